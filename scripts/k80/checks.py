"""`--self-test`: the interpreter on machine code written by hand, the model's arithmetic, and whether the backend is still as
the model follows it.

Owns: what must hold. Refuses to know: how it comes to hold.
"""

import math
import tempfile
from pathlib import Path

import launch
import machine
import model
import ours
import pipeline
import product
import source
import warp
import words
from counts import Counts, digest
from launch import Launch, Part, cost
from machine import Die
from sass import Code, read_listing

ROOT = Path(__file__).resolve().parent.parent.parent
KERNELS, BACKEND = ROOT / "kernels", ROOT / "src" / "backend" / "cuda"


def same(found, expected, what):
    if found != expected:
        raise AssertionError(f"{what}: expected {expected}, found {found}")


def near(found, expected, what, by=1e-9):
    if abs(found - expected) > by * max(1e-3, abs(expected)):
        raise AssertionError(f"{what}: expected {expected}, found {found}")


# ---- machine code


def listing(lines, name="k"):
    """Machine code as the disassembler prints it: (scheduling byte, text) of each instruction."""
    out, at = [f"// {name} registers 20 shared 0 spills 0", f"Function : {name}"], 0
    for first in range(0, len(lines), 7):
        group = lines[first : first + 7]
        word = 0x08 << 56 | sum(sched << 8 * k for k, (sched, _) in enumerate(group)) << 2
        out.append(f"  /* {word:#018x} */")
        for k, (_, text) in enumerate(group):
            out.append(f"  /*{at + 8 * (k + 1):04x}*/  {text}; /* 0x0000000000000000 */")
        at += 64
    return "\n".join(out)


def code(*lines):
    return read_listing(listing(lines))["k"]


def block(lines, args=(), threads=(32, 1), buffers=()):
    return warp.Block(code(*lines), threads, list(args), buffers=dict(buffers)).run()


def schedules_are_read():
    c = code((0x04, "MOV R0, RZ"), (0x80, "MOV R1, RZ"), (0x8F, "MOV R2, RZ"), (0x00, "MOV R3, RZ"), (0x2B, "@!P0 EXIT"))
    same([i.gap for i in c.instructions], [0, 1, 16, 32, 12], "clocks until the next instruction")
    same([i.dual for i in c.instructions], [True, False, False, False, False], "instructions that issue with the next")
    same((c.instructions[4].guard, c.instructions[4].base, c.registers), ("!P0", "EXIT", 20), "guard, operation, registers")


def loops_are_counted():
    loop = [
        (0x80, "MOV R0, RZ"),
        (0x80, "IADD R0, R0, 0x1"),
        (0x84, "FFMA R2, R2, R2, R2"),
        (0x80, "ISETP.LT.AND P0, PT, R0, c[0x0][0x140], PT"),
        (0x80, "@P0 BRA 0x10"),
        (0x80, "EXIT"),
    ]
    count, slots, clock, unknown = block(loop, [5])
    same((count["int"], count["fp32"], count["control"]), (11, 5, 6), "instructions of five turns")
    same((slots, clock, unknown), (22, 1 + 5 * (1 + 5 + 1 + 1) + 1, 0), "slots, clocks, unknown branches")
    loop[2] = (0x04, "FFMA R2, R2, R2, R2")
    same(block(loop, [5])[1], 17, "slots where two instructions issue together")
    # Lane l goes through l + 1 turns: the warp goes on as long as one of its lanes does.
    lanes = [(0x80, "S2R R1, SR_TID.X"), (0x80, "MOV R0, RZ"), (0x80, "IADD R0, R0, 0x1")]
    lanes += [(0x80, "ISETP.LE.AND P0, PT, R0, R1, PT"), (0x80, "@P0 BRA 0x18"), (0x80, "EXIT")]
    same(block(lanes)[0]["int"], 1 + 2 * 32, "instructions where lanes leave one by one")


def loads_are_waited_for():
    load = [(0x80, "LDS R0, [RZ+0x10]"), (0x80, "IADD R1, R0, 0x1"), (0x80, "EXIT")]
    same(block(load)[2], machine.LATENCY["lds"] + 2, "clocks with a load that is used at once")
    load[1] = (0x80, "IADD R1, R2, 0x1")
    same(block(load)[2], 3, "clocks with a load that nobody uses")
    texture = [(0x80, "LDG.E.128 R4, [R2]"), (0x80, "TEXDEPBAR 0x0"), (0x80, "EXIT")]
    count, _, clock, _ = block(texture)
    same((count["tex"], clock), (8, machine.LATENCY["ldg"] + 2), "passes of a wide load, clocks until its barrier")
    generic = [(0x80, "MOV R2, c[0x0][0x140]"), (0x80, "MOV R3, c[0x0][0x144]"), (0x80, "LD.E R0, [R2]")]
    generic += [(0x80, "IADD R1, R0, 0x1"), (0x80, "EXIT")]
    same(block(generic, [("ptr", 0)])[2], machine.LATENCY["ld"] + 4, "clocks with a load from a buffer")
    same(block(generic, [64, 0])[2], machine.LATENCY["lds"] + 4, "clocks with the same load from shared memory")
    wide = block([(0x80, "STS.128 [R2], R4"), (0x80, "EXIT")])
    same((wide[0]["lsu"], wide[1]), (2, 3), "passes and slots of a wide store to shared memory")


def data_steers_branches_where_it_is_known():
    lines = [
        (0x80, "MOV R2, c[0x0][0x140]"),
        (0x80, "MOV R3, c[0x0][0x144]"),
        (0x80, "LD.E R0, [R2+0x8]"),
        (0x80, "ISETP.EQ.AND P0, PT, R0, 0x7, PT"),
        (0x80, "@P0 EXIT"),
        (0x80, "FADD R1, R1, R1"),
        (0x80, "EXIT"),
    ]
    same(block(lines, [("ptr", 0)], buffers={0: {8: 7}.get})[0]["fp32"], 0, "a branch that the buffer takes")
    same(block(lines, [("ptr", 0)], buffers={0: {8: 6}.get})[0]["fp32"], 1, "a branch that the buffer does not take")
    same(block(lines, [("ptr", 0)])[3], 1, "branches that hang on unknown data")


def warps_meet_at_barriers():
    lines = [
        (0x80, "S2R R0, SR_TID.X"),
        (0x80, "ISETP.GE.AND P0, PT, R0, 0x20, PT"),
        (0x80, "@P0 BRA 0x28"),
        (0x9F, "FADD R1, R1, R1"),
        (0x80, "BAR.SYNC 0x0"),
        (0x80, "EXIT"),
    ]
    short, both = block(lines, threads=(32, 1)), block(lines, threads=(64, 1))
    same(both[2], short[2], "clocks of a block are those of its slowest warp")
    same(both[0]["fp32"], 1, "instructions that one of two warps skips")


def integers_are_followed():
    same(hex(words.permute(0x03020100, 0x7531, 0x07060504)), "0x7050301", "PRMT")
    same(words.extract(["U32"])(0xABCD, 4 | 8 << 8), 0xBC, "BFE.U32")
    same(words.extract([])(0x80, 7 | 1 << 8), words.M, "BFE of a sign")
    same(words.insert(0x5, 8 | 4 << 8, 0xFFFF), 0xF5FF, "BFI")
    lines = [
        (0x80, "MOV32I R0, 0xffffffff"),
        (0x80, "IADD R2.CC, R0, 0x2"),
        (0x80, "IADD.X R3, RZ, RZ"),
        (0x80, "IMUL.U32.U32.HI R4, R0, R0"),
        (0x80, "IMUL.HI R5, R0, R0"),
        (0x80, "ISCADD R6, R0, 0x5, 0x2"),
        (0x80, "SHR R7, R0, 0x1f"),
        (0x80, "ICMP.EQ R8, R2, 0x7, R5"),
        (0x80, "EXIT"),
    ]
    w = warp.Warp(code(*lines), warp.Block(code(*lines), (32, 1), []), 0)
    list(w.run())
    found = [w.r[f"R{k}"] for k in range(2, 9)]
    same(found, [1, 1, 0xFFFFFFFE, 0, 1, words.M, 1], "carry, products, shifts")


def unknown_operations_stop():
    try:
        block([(0x80, "FROB R0, R1"), (0x80, "EXIT")])
    except SystemExit as e:
        same("FROB" in str(e), True, "the operation's name")
        return
    raise AssertionError("an unknown operation was counted")


# ---- times


def launches_cost_what_binds():
    die = Die(launch=0.0, bandwidth_share=0.5, hidden=0.0)
    lines = [(0x80, "FFMA R0, R0, R0, R0")] * 12 + [(0x80, "SHL R0, R0, 0x1")] * 6 + [(0x80, "EXIT")]
    one = Launch("k", code(*lines), (26, 1, 1), (64, 1), [], bytes=120e9 * 1e-3)
    got = cost(one, die, Counts())
    # Two blocks of two warps a multiprocessor; six shifts at a clock each are more than 19 / 4 slots.
    near(got.issue, 2 * 2 * 6 / die.clock, "seconds of issue")
    near(got.wait, 19 / die.clock, "seconds that a warp takes by itself, both blocks at once")
    near(got.move, 1e-3, "seconds of bytes")
    near(got.seconds, got.issue + got.wait + got.move, "seconds")
    same(got.bound, "wide", "what binds")
    half = cost(one, Die(launch=0.0, bandwidth_share=0.5, hidden=0.5), Counts())
    near(half.seconds, got.seconds - 0.5 * (got.issue + got.wait), "seconds where half of the shorter is hidden")
    uneven = Launch("k", one.code, (27, 1, 1), (64, 1), [])
    near(cost(uneven, die, Counts()).issue, 3 * 2 * 6 / die.clock, "the busiest multiprocessor has a whole block more")
    few = Launch("k", Code("k", one.code.instructions, 168), (1, 1, 1), (256, 1), [], shared=34 * 1024)
    same(launch.residency(few, die), 3, "blocks of 256 threads, 168 registers and 34 KiB")
    mixed = Launch("k", one.code, (2, 1, 1), (32, 1), [], parts=[Part(1), Part(25)])
    same(cost(mixed, die, Counts()).slots, 26 * 19, "slots of all parts")


def counts_are_kept():
    with tempfile.TemporaryDirectory() as folder:
        path, runs = Path(folder) / "counts.json", []
        c = code((0x80, "EXIT"))

        def run():
            runs.append(1)
            return warp.Block(c, (32, 1), []).run()

        for _ in range(2):
            counts = Counts(path)
            same(counts.get(c, (1,), run)[1:], (1, 1, 0), "what was counted")
            counts.save()
        same(len(runs), 1, "runs for one block")
        Counts(path).get(code((0x81, "EXIT")), (1,), run)
        same(len(runs), 2, "runs after the machine code changed")
    same(digest(1, "a") == digest("1a"), False, "digests of different things")


class Even:
    """An engine whose layers take what their rows take."""

    def layer(self, _, n):
        return [Launch("l", None, (0, 0, 0), (0, 0), [], bytes=240e9 * 1e-3 * n)]

    def boundary(self, _):
        return ()

    def head(self, n):
        return [Launch("h", None, (0, 0, 0), (0, 0), [], bytes=240e9 * 4e-3 * n)]


def micro_blocks_overlap():
    die = Die(launch=0.0, bandwidth_share=1.0, least=0.0, link_start=0.0, link=math.inf)
    run = pipeline.Pass(Even(), model.Shape(layers=4), die, Counts(), lambda n: 0.5)
    near(run.sequence(8, 8), 8 * 4e-3 + 32e-3 + 0.5, "one die after the other")
    near(run.cut(8, 2, 8, 1), run.sequence(8, 8), "one micro-block")
    # Two dies of 2 ms a row: the second begins when the first micro-block is through.
    near(run.cut(8, 2, 8, 2), 16e-3 + 8e-3 + 32e-3 + 0.5, "two micro-blocks")
    near(run.cut(8, 1, 0, 2), 4e-3 + 24e-3 + 0.5, "two micro-blocks, the second die slower")
    same(run.best(7, 2, 7)[1], 1, "micro-blocks of seven rows: fewer than four rows are not cut off")
    same(run.best(32, 2, 32)[1], 8, "micro-blocks where cutting costs nothing")


# ---- the model


def shapes_have_their_bytes():
    s = model.Shape()
    same((s.channels, s.value_width, s.attention_width), (8192, 4096, 4096), "widths")
    same([i for i in range(12) if not s.recurrent(i)], [3, 7, 11], "attention layers")
    same(model.size("Q3_K", 512, 2048), 512 * 8 * 110, "bytes of a matrix")
    bits = {"Q8_0": 8, "Q3_K": 3, "Q4_K": 4, "Q5_K": 5, "Q6_K": 6}
    for name, b in bits.items():
        same(model.BYTES[name] * 8 // model.WEIGHTS[name], b, f"whole bits of a weight in {name}")
    held, read = model.file_bytes(s)
    same((round(held / 1e9, 2), round(read / 1e9, 3)), (16.12, 1.737), "gigabytes held and read")
    same(sum(model.more_bits(i, 40) for i in range(40)), 20, "layers with more bits")
    same(model.formats(s, 1)["ffn_down_exps"], "Q5_K", "the second layer's down")
    same(pipeline.balance(s), 20, "layers on the first die")


def experts_are_shared():
    s = model.Shape()
    near(model.distinct(s, 1), 8, "experts of one row")
    near(model.distinct(s, 2), 16 - 8 * 8 / 256, "experts of two rows")
    near(model.distinct(s, 16, 1.0), 8, "experts of rows that agree")
    for n in (1, 2, 16, 32):
        for overlap in (0.0, 0.4):
            groups = product.Products(s, {}, KERNELS, overlap).groups(n)
            # Groups of which a thousandth is expected are left out.
            near(sum(k * g for k, g in groups.items()), n * s.used, f"places of {n} rows", 0.05)
            near(sum(groups.values()), model.distinct(s, n, overlap), f"groups of {n} rows", 0.01)


# ---- what is followed


def parameters_are_read():
    got = source.signatures(KERNELS / "product_float.cu")["product_n"]
    same([name for name, _ in got][:5], ["w0", "y0", "rows0", "stride0", "w1"], "a kernel's parameters through macros")
    same(dict(got)["tile"], "int", "a number")
    same(launch.arguments([("x", "ptr"), ("y", "ptr"), ("n", "int")], {"n": 3}, {"y"}), [("ptr", 0), ("null",), 3], "arguments")
    same(product.layout(KERNELS, "Q3_K"), product.Layout(256, 16, 114, False), "a format's layout")


def products_are_planned_as_the_backend_does():
    path = BACKEND / "product.rs"
    for name in ("WARPS", "THREADS", "THREADS_WIDE", "JOBS"):
        same(source.number(path, name), getattr(product, name), f"{name} in {path}")
    found = [(after, name, digest(source.function(path, name, after))[:8]) for after, name, _ in product.FOLLOWED]
    for (after, name, text), (_, _, now) in zip(product.FOLLOWED, found):
        what = f"{path}: {after or 'fn'} {name} has changed; follow it in scripts/k80/product.py, then note its digest in FOLLOWED"
        same(now, text, what)


def layers_launch_what_the_backend_launches():
    for file, name, value in ours.CONSTANTS:
        same(source.number(BACKEND / f"{file}.rs", name), value, f"{name} in {BACKEND / file}.rs; follow it in scripts/k80/ours.py")
    same(tuple(source.numbers(BACKEND / "cut.rs", "WAYS")), pipeline.WAYS, f"WAYS in {BACKEND}/cut.rs")
    split = digest(source.function(BACKEND / "split.rs", "balanced"))[:8]
    same(split, pipeline.BALANCED, "split.rs: fn balanced has changed; follow it in scripts/k80/pipeline.py, then note its digest in BALANCED")
    there = source.launched(BACKEND)
    for name, grid in ours.GRIDS.items():
        found = there.get(name, ("", "no launch"))[1]
        same(found, grid, f"blocks, threads and shared bytes of {name} in {BACKEND}; follow them in scripts/k80/ours.py")
    same(set(there), set(ours.GRIDS) | ours.ELSEWHERE, f"kernels that {BACKEND} launches; follow them in scripts/k80/ours.py")
    shape = model.Shape()
    for n, each in ((1, 16), (16, 17)):
        engine = ours.Ours(shape, Anything(), KERNELS)
        for layer in (0, 1, 3):
            names = [launch.name for launch in engine.layer(layer, n)]
            same(len(names), each, f"launches of layer {layer} for {n} rows: {names}")
    used = {launch.name for n in (1, 2) for layer in (0, 3) for launch in engine.layer(layer, n)}
    used |= {launch.name for launch in [*engine.head(2), *engine.boundary(2), *engine.rollback(0, 2)]}
    same(set(ours.GRIDS) - used, set(), "kernels whose grids are followed and that no pass launches")


class Anything(dict):
    """Code for every file, of no instructions."""

    def __missing__(self, _):
        return self

    digest, registers, shared = "", 0, 0


CHECKS = [
    schedules_are_read, loops_are_counted, loads_are_waited_for, data_steers_branches_where_it_is_known, warps_meet_at_barriers,
    integers_are_followed, unknown_operations_stop, launches_cost_what_binds, counts_are_kept, micro_blocks_overlap,
    shapes_have_their_bytes, experts_are_shared, parameters_are_read, products_are_planned_as_the_backend_does,
    layers_launch_what_the_backend_launches,
]  # fmt: skip


def run():
    """All checks; 1 if one fails."""
    failed = 0
    for check in CHECKS:
        try:
            check()
        except (AssertionError, SystemExit) as e:
            failed += 1
            print(f"{check.__name__}: {e}")
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks hold")
    return 1 if failed else 0
