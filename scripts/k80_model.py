#!/usr/bin/env python3
"""Predicts what a Tesla K80 does with this project's kernels, from their sm_37 machine code; see docs/k80.md.

    k80_model.py --nvrtc libnvrtc.so.11.2 --cuobjdump cuobjdump --kernels kernels      compile, disassemble, predict
    k80_model.py --listings DIR                                                        predict from saved listings
    k80_model.py --self-test                                                           the script's own arithmetic

`nvdisasm` must lie beside `cuobjdump`, both of CUDA 11.8 or earlier. With both --nvrtc and --listings the listings are saved.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "k80"))

import checks  # noqa: E402
from launch import cost  # noqa: E402
from machine import Die  # noqa: E402
from model import Shape, distinct, file_bytes  # noqa: E402
from ours import Ours  # noqa: E402
from pipeline import Pass, best  # noqa: E402
from sass import Compiler, read_listing  # noqa: E402
from seed import Seed  # noqa: E402

FILES = {"": ["rows", "delta", "moe", "attention", "select"], "product_float": ["Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_0"]}
# What the seed document measured.
MEASURED = {"decode": 13.7, "prefill 32": 32.2, "prefill 128": 36.5}


def wanted(kernels):
    """(key, source, options) of every listing."""
    for file in FILES[""]:
        yield (file, ""), kernels / f"{file}.cu", ["--fmad=false"]
    for variant in FILES["product_float"]:
        yield ("product_float", variant), kernels / "product_float.cu", ["--fmad=false", f"-DVARIANT={variant}"]
    if (kernels / "product_wide.cu").exists():
        yield ("product_wide", "F32"), kernels / "product_wide.cu", ["--fmad=false", "-DVARIANT=F32"]
    for columns in (1, 4):
        yield ("described", str(columns)), HERE / "k80" / "described.cu", [f"-DCOLUMNS={columns}"]


def listings(args):
    """All kernels' code, compiled or read."""
    codes, compiler = {}, None
    if args.nvrtc:
        compiler = Compiler(args.nvrtc, args.cuobjdump)
    folder = Path(args.listings) if args.listings else None
    if compiler:
        for key, source, options in wanted(Path(args.kernels)):
            text = compiler.compile(source, options)
            codes[key] = read_listing(text)
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{key[0]}.{key[1]}.sass").write_text(text)
        return codes
    if not folder or not folder.is_dir():
        raise SystemExit("expected --nvrtc and --cuobjdump, or --listings with a folder of saved listings")
    for file in sorted(folder.glob("*.sass")):
        name, variant = file.name.removesuffix(".sass").split(".")
        codes[name, variant] = read_listing(file.read_text())
    return codes


def table(launches, die):
    """Per kernel: launches, slots a weight and row, seconds by what they go to, bytes."""
    rows = defaultdict(lambda: defaultdict(float))
    for launch in launches:
        c = cost(launch, die)
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


def print_table(rows):
    print(f"{'kernel':32} {'launches':>8} {'slots/w':>7} {'issue':>7} {'wait':>7} {'bytes':>7} {'ms':>7} {'GB/s':>5}  bound, blocks, registers")
    for name, r in sorted(rows.items(), key=lambda item: -item[1]["seconds"]):
        each = f"{r['slots'] / r['weights']:.2f}" if r["weights"] else ""
        ms = [f"{1e3 * r[k]:7.2f}" for k in ("issue", "wait", "move", "seconds")]
        rest = f"{r['bound']}, {r['resident']}, {r['registers']:.0f}" if r["registers"] else ""
        print(f"{name:32} {r['launches']:8.0f} {each:>7} {' '.join(ms)} {r['bytes'] / r['seconds'] / 1e9:5.0f}  {rest}")


def everything(engine, shape, n, head):
    """All launches of a pass."""
    out = [launch for layer in range(shape.layers) for launch in engine.layer(layer, n)]
    return out + list(engine.head(head))


def predict(args, codes):
    """All figures, as a dictionary."""
    shape, die = Shape(), Die(clock=args.clock * 1e6, launch=args.launch * 1e-6, bandwidth_share=args.bandwidth_share)
    seed = Seed(shape, codes["described", "1"], codes["described", "4"])
    ours = Ours(shape, codes, args.overlap, args.context)
    held, read = file_bytes(shape)
    out = {"die": vars(die), "file GB": held / 1e9, "read GB": read / 1e9}
    described = Pass(seed, shape, die, seed.host)
    alone = described.sequence(1, 1)
    out["described"] = {
        "launches": described.launches(1),
        "decode": 1 / alone,
        "prefill 32": 32 / described.sequence(32, 1),
        "prefill 128": 128 / described.sequence(128, 1),
    }
    mine = Pass(ours, shape, die, lambda n: die.finish)
    out["split"] = args.split or mine.balance(8)
    out["launches"] = mine.launches(1)
    one = mine.sequence(1, 1)
    out["decode"] = 1 / one
    out["pass"] = {}
    for n in args.rows:
        time, micro = best(mine, n, out["split"], n)
        out["pass"][n] = {"ms": 1e3 * time, "ratio": time / one, "micro-blocks": micro, "experts": distinct(shape, n, args.overlap)}
    out["prefill"] = {n: n / best(mine, n, out["split"], 1)[0] for n in (32, 128)}
    return out, seed, ours, die, shape


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvrtc", help="NVRTC library of CUDA 11.8")
    parser.add_argument("--cuobjdump", help="cuobjdump of CUDA 11.8, nvdisasm beside it")
    parser.add_argument("--kernels", default=HERE.parent / "kernels", help="folder of the kernels")
    parser.add_argument("--listings", help="folder to save listings to, or to read them from")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32], help="rows of a pass")
    parser.add_argument("--clock", type=float, default=875, help="MHz")
    parser.add_argument("--launch", type=float, default=Die.launch * 1e6, help="microseconds between two kernels")
    parser.add_argument("--bandwidth-share", type=float, default=Die.bandwidth_share, help="of 240 GB/s")
    parser.add_argument("--overlap", type=float, default=0.0, help="0: rows choose experts at random, 1: all choose the same")
    parser.add_argument("--context", type=int, default=512, help="positions before the pass")
    parser.add_argument("--split", type=int, default=0, help="layers on the first die; 0: balanced")
    parser.add_argument("--kernel-rows", type=int, nargs="*", default=[1], help="print the table of kernels for these rows")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return checks.run()
    out, seed, ours, die, shape = predict(args, listings(args))
    if args.json:
        print(json.dumps(out, indent=1))
        return 0
    for n in args.kernel_rows:
        print(f"\nThis project's kernels, {n} rows, all {shape.layers} layers")
        print_table(table(everything(ours, shape, n, n), die))
    print(f"\nThe described kernels, 1 row, all {shape.layers} layers")
    print_table(table(everything(seed, shape, 1, 1), die))
    print(f"\nFile {out['file GB']:.2f} GB, one row reads {out['read GB']:.3f} GB. {die.clock / 1e6:.0f} MHz, launch {die.launch * 1e6:.1f} us.")
    print(f"Described engine, {out['described']['launches']} launches a pass:")
    for name, measured in MEASURED.items():
        got = out["described"][name]
        print(f"  {name:12} {got:6.1f} tok/s, measured {measured}: {100 * (got / measured - 1):+.0f} %")
    print(f"This project, {out['launches']} launches a pass, {out['split']} layers on the first die:")
    print(f"  plain decoding {out['decode']:.1f} tok/s")
    for n, row in out["pass"].items():
        blocks = f"{row['micro-blocks']} micro-blocks, {row['experts']:.0f} experts a layer"
        print(f"  T({n}) {row['ms']:7.1f} ms, T({n})/T(1) {row['ratio']:.2f}, {blocks}")
    for n, rate in out["prefill"].items():
        print(f"  prefill of {n} rows {rate:.1f} tok/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
