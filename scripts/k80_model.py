#!/usr/bin/env python3
"""Predicts what a Tesla K80 does with this project's kernels, from their sm_37 machine code; see docs/k80.md.

    k80_model.py --nvrtc libnvrtc.so.11.2 --cuobjdump cuobjdump --listings DIR    compile, disassemble, save, predict
    k80_model.py --listings DIR                                                    predict from saved listings
    k80_model.py --self-test                                                       the arithmetic, and what it follows

`nvdisasm` must lie beside `cuobjdump`, both of CUDA 11.8 or earlier. Counts are kept in DIR as well: a first run takes minutes,
one with other constants seconds.
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "k80"))

import checks  # noqa: E402
import machine  # noqa: E402
import sensitivity  # noqa: E402
from counts import Counts, digest  # noqa: E402
from launch import cost  # noqa: E402
from machine import Die  # noqa: E402
from model import Shape, distinct, file_bytes  # noqa: E402
from ours import Ours  # noqa: E402
from pipeline import FEWEST, WAYS, Pass, balance  # noqa: E402
from sass import Compiler, read_listing  # noqa: E402
from seed import Seed  # noqa: E402
from source import whole  # noqa: E402

FILES = {"": ["rows", "delta", "moe", "attention", "select"], "product_float": ["Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_0"]}
# What the seed document measured.
MEASURED = {"decode": 13.7, "prefill 32": 32.2, "prefill 128": 36.5}


def wanted(kernels):
    """(key, source, options) of every listing."""
    for file in FILES[""]:
        yield (file, ""), kernels / f"{file}.cu", ["--fmad=false"]
    for variant in FILES["product_float"]:
        yield ("product_float", variant), kernels / "product_float.cu", ["--fmad=false", f"-DVARIANT={variant}"]
    yield ("product_wide", "F32"), kernels / "product_wide.cu", ["--fmad=false", "-DVARIANT=F32"]
    for columns in (1, 4):
        yield ("described", str(columns)), HERE / "k80" / "described.cu", [f"-DCOLUMNS={columns}"]


def listings(args):
    """All kernels' code: compiled, or read where the saved listing is of the source as it is now."""
    codes, folder = {}, Path(args.listings) if args.listings else None
    compiler = Compiler(args.nvrtc, args.cuobjdump) if args.nvrtc and args.cuobjdump else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    for key, source, options in wanted(Path(args.kernels)):
        mark = f"// source {digest(whole(source), options)}\n"
        saved = folder / f"{key[0]}.{key[1]}.sass" if folder else None
        text = saved.read_text(encoding="utf-8") if saved and saved.exists() else ""
        if not text.startswith(mark):
            if not compiler:
                raise SystemExit(f"{saved or source}: no listing of {source.name} as it is now; expected --nvrtc and --cuobjdump to make one")
            text = mark + compiler.compile(source, options)
            if saved:
                saved.write_text(text, encoding="utf-8")
        codes[key] = read_listing(text)
    return codes


def table(launches, die, counts):
    """Per kernel: launches, slots a weight and row, seconds by what they go to, bytes."""
    rows = defaultdict(lambda: defaultdict(float))
    for launch in launches:
        c = cost(launch, die, counts)
        row = rows[launch.name]
        for key, value in {"launches": 1, "issue": c.issue, "wait": c.wait, "move": c.move, "bytes": launch.bytes}.items():
            row[key] += value
        row["slots"] += c.slots * 32
        row["weights"] += launch.weights
        row["seconds"] += c.seconds
        row["bound"] = c.bound
        row["resident"] = c.resident
        row["registers"] = launch.code.registers if launch.code else 0
    return rows


def print_table(rows, die):
    print(f"{'kernel':32} {'launches':>8} {'slots/w':>7} {'issue':>7} {'wait':>7} {'bytes':>7} {'ms':>7} {'GB/s':>5}  bound, blocks, registers")
    for name, r in sorted(rows.items(), key=lambda item: -item[1]["seconds"]):
        each = f"{r['slots'] / r['weights']:.2f}" if r["weights"] else ""
        ms = [f"{1e3 * r[k]:7.2f}" for k in ("issue", "wait", "move", "seconds")]
        rest = f"{r['bound']}, {r['resident']}, {r['registers']:.0f}" if r["registers"] else ""
        print(f"{name:32} {r['launches']:8.0f} {each:>7} {' '.join(ms)} {r['bytes'] / r['seconds'] / 1e9:5.0f}  {rest}")
    sums = {key: 1e3 * sum(r[key] for r in rows.values()) for key in ("issue", "wait", "move", "seconds")}
    launches = sum(r["launches"] for r in rows.values())
    print(f"{'all':32} {launches:8.0f} {'':7} " + " ".join(f"{v:7.2f}" for v in sums.values()), end="")
    print(f"        and {1e3 * launches * die.launch:.1f} ms of launches")


def everything(engine, shape, n, head):
    """All launches of a pass."""
    out = [launch for layer in range(shape.layers) for launch in engine.layer(layer, n)]
    return out + list(engine.head(head))


class Prediction:
    """All figures under one set of assumptions."""

    def __init__(self, codes, counts, args, die, overlap):
        self.args, self.die, self.overlap, self.shape = args, die, overlap, Shape()
        self.seed = Seed(self.shape, codes["described", "1"], codes["described", "4"])
        self.ours = Ours(self.shape, codes, Path(args.kernels), overlap, args.context)
        self.counts = counts

    def described(self):
        """The described engine's rates."""
        run = Pass(self.seed, self.shape, self.die, self.counts, self.seed.host)
        rates = {"decode": 1 / run.sequence(1, 1)}
        for n in (32, 128):
            rates[f"prefill {n}"] = n / run.sequence(n, 1)
        return {"launches": run.launches(1), **rates}

    def mine(self, rows, prompts=(32, 128, 256), split=None):
        """This project's, of passes of `rows` and prompts of `prompts` rows, with `split` layers on the first die."""
        run = Pass(self.ours, self.shape, self.die, self.counts, lambda n: self.die.finish)
        split, one, out = split or self.args.split or balance(self.shape), run.sequence(1, 1), {}
        out |= {"split": split, "launches": run.launches(1), "decode": 1 / one, "pass": {}, "prefill": {}}
        for n in rows:
            time, micro = run.best(n, split, n)
            cuts = {m: 1e3 * run.cut(n, split, n, m) for m in WAYS if m == 1 or n // m >= FEWEST}
            experts = distinct(self.shape, n, self.overlap)
            out["pass"][n] = {"ms": 1e3 * time, "ratio": time / one, "micro-blocks": micro, "cuts": cuts, "experts": experts}
        for n in prompts:
            out["prefill"][n] = n / run.best(n, split, 1)[0]
        out["rollback ms"] = 1e3 * run.rollback(8)
        return out


def vary(codes, counts, args, die):
    """The figures that matter, under other assumptions."""
    out = []
    for name, changes, overlap, split in sensitivity.CASES:
        p = Prediction(codes, counts, args, replace(die, **changes), args.overlap if overlap is None else overlap)
        out.append((name, p.mine([16], [128], split), p.described()))
    return out


def print_prediction(p, mine, described):
    held, read = file_bytes(p.shape)
    print(f"\nFile {held / 1e9:.2f} GB, one row reads {read / 1e9:.3f} GB. {p.die.clock / 1e6:.0f} MHz, launch {p.die.launch * 1e6:.1f} us.")
    print(f"Described engine, {described['launches']} launches a pass:")
    for name, measured in MEASURED.items():
        got = described[name]
        print(f"  {name:12} {got:6.1f} tok/s, measured {measured}: {100 * (got / measured - 1):+.0f} %")
    print(f"This project, {mine['launches']} launches a pass, {mine['split']} layers on the first die:")
    print(f"  plain decoding {mine['decode']:.1f} tok/s")
    for n, row in mine["pass"].items():
        cuts = ", ".join(f"{m}: {ms:.1f}" for m, ms in row["cuts"].items())
        print(f"  T({n}) {row['ms']:7.1f} ms, T({n})/T(1) {row['ratio']:.2f}, {row['experts']:.0f} experts a layer; by micro-blocks {cuts}")
    for n, rate in mine["prefill"].items():
        print(f"  prefill of {n} rows {rate:.1f} tok/s")
    print(f"  a pass of which 8 rows are kept adds {mine['rollback ms']:.1f} ms")


def print_variations(cases):
    print(f"\n{'assumed':26} {'tok/s':>6} {'T(16)':>7} {'ratio':>6} {'prefill 128':>11}   described: {'decode':>6} {'32':>6} {'128':>6}")
    for name, mine, described in cases:
        row, rates = mine["pass"][16], [100 * (described[k] / v - 1) for k, v in MEASURED.items()]
        print(f"{name:26} {mine['decode']:6.1f} {row['ms']:7.1f} {row['ratio']:6.2f} {mine['prefill'][128]:11.1f}", end="")
        print("              " + " ".join(f"{rate:+5.0f}%" for rate in rates))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvrtc", help="NVRTC library of CUDA 11.8")
    parser.add_argument("--cuobjdump", help="cuobjdump of CUDA 11.8, nvdisasm beside it")
    parser.add_argument("--kernels", default=HERE.parent / "kernels", help="folder of the kernels")
    parser.add_argument("--listings", help="folder of listings and counts: read where they are of these kernels, written where not")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32], help="rows of a pass")
    parser.add_argument("--clock", type=float, default=Die.clock / 1e6, help="MHz")
    parser.add_argument("--launch", type=float, default=Die.launch * 1e6, help="microseconds between two kernels")
    parser.add_argument("--latency", type=int, default=machine.LATENCY["ld"], help="clocks of a load from memory")
    parser.add_argument("--bandwidth-share", type=float, default=Die.bandwidth_share, help="of 240 GB/s")
    parser.add_argument("--hidden", type=float, default=Die.hidden, help="share of a kernel's shorter time, memory or the rest, behind the longer")
    parser.add_argument("--overlap", type=float, default=0.0, help="0: rows choose experts at random, 1: all choose the same")
    parser.add_argument("--context", type=int, default=512, help="positions before the pass")
    parser.add_argument("--split", type=int, default=0, help="layers on the first die; 0: half of the bytes, as the backend does")
    parser.add_argument("--kernel-rows", type=int, nargs="*", default=[1], help="print the table of kernels for these rows")
    parser.add_argument("--sensitivity", action="store_true", help="print the figures under other assumptions too")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return checks.run()
    machine.LATENCY |= {"ld": args.latency, "ldg": args.latency}
    codes = listings(args)
    counts = Counts(Path(args.listings) / "counts.json" if args.listings else None)
    die = Die(clock=args.clock * 1e6, launch=args.launch * 1e-6, bandwidth_share=args.bandwidth_share, hidden=args.hidden)
    p = Prediction(codes, counts, args, die, args.overlap)
    mine, described = p.mine(args.rows), p.described()
    cases = vary(codes, counts, args, die) if args.sensitivity else []
    if args.json:
        varied = {name: {"this project": a, "described": b} for name, a, b in cases}
        print(json.dumps({"die": vars(die), "this project": mine, "described": described, "sensitivity": varied}, indent=1))
    else:
        for n in args.kernel_rows:
            print(f"\nThis project's kernels, {n} rows, all {p.shape.layers} layers")
            print_table(table(everything(p.ours, p.shape, n, n), die, counts), die)
        print(f"\nThe described kernels, 1 row, all {p.shape.layers} layers")
        print_table(table(everything(p.seed, p.shape, 1, 1), die, counts), die)
        print_prediction(p, mine, described)
        if cases:
            print_variations(cases)
    counts.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
