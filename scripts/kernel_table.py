#!/usr/bin/env python3
"""Compiles every kernel for four generations of cards, and tells the registers, spills and memory of each.

    python3 scripts/kernel_table.py --fetch target/nvrtc --compare docs/kernel-table.csv
    python3 scripts/kernel_table.py --nvrtc /usr/local/cuda/lib64/libnvrtc.so --csv docs/kernel-table.csv

No card, driver or toolkit is needed, only NVIDIA's run-time compiler (libnvrtc) of CUDA 11.8, the last that knows a Tesla
K80; --fetch gets it with pip and checks it. What it makes for sm_XX is machine code, so what it says of registers is so.

Exit code: 0 if all compiles and no product, attention or delta kernel spills registers; 1 if not; 2 for bad flags or a file
that is damaged; 3 if the compiler cannot be fetched.
"""

import argparse
import csv
import ctypes
import hashlib
import io
import multiprocessing
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
ARCHITECTURES = [37, 61, 80, 90]
OPTIONS = ["--std=c++17", "--fmad=false", "--ptxas-options=-v"]
# Where a spilled register costs time at every weight.
HOT = ("product", "attention", "delta")
COLUMNS = ["file", "variant", "kernel", "architecture", "registers", "spill_bytes", "shared_bytes", "stack_bytes"]
NAMED_BY = 4

# Where another file takes over from an architecture on: nobody launches the first there.
SUCCESSORS = {"product_float": ("product_dp4a", 61)}

PACKAGE = "nvidia-cuda-nvrtc-cu11==11.8.89"
WHEEL = "nvidia_cuda_nvrtc_cu11-11.8.89-py3-none-manylinux2014_x86_64.whl"
SHA256 = "a8d02f3cba345be56b1ffc3e74d8f61f02bb758dd31b0f20e12277a5a244f756"
LIBRARY = "nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2"


def fail(text, code=2):
    print(f"kernel_table.py: {text}", file=sys.stderr)
    sys.exit(code)


def typed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvrtc", type=Path, help="the run-time compiler, a file named libnvrtc.so*")
    parser.add_argument("--fetch", type=Path, metavar="DIR", help="keep the compiler here; fetch it if it is not here yet")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the table here too")
    parser.add_argument("--compare", type=Path, metavar="OLD.csv", help="show what changed since")
    parser.add_argument("--brief", action="store_true", help="do not print the table, only what is wrong or changed")
    parser.add_argument("--only", default="", metavar="TEXT", help="only files whose names contain this")
    parser.add_argument("--architecture", type=int, nargs="+", default=ARCHITECTURES, metavar="N", help="[37 61 80 90]")
    args = parser.parse_args()
    if not args.nvrtc and not args.fetch:
        fail("no compiler: name it with --nvrtc, or give a folder to --fetch it into")
    return args


def fetch(folder):
    """The compiler in `folder`, which is fetched, checked and unpacked once."""
    library = folder / LIBRARY
    if library.exists():
        return library
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--platform", "manylinux2014_x86_64", "--dest", str(folder), PACKAGE]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        fail(f"{PACKAGE} cannot be fetched with pip", 3)
    wheel = folder / WHEEL
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != SHA256:
        fail(f"{wheel}: expected SHA-256 {SHA256}, found {found}")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    wheel.unlink()
    return library


def strings(text):
    return re.findall(r'"([^"]*)"', text)


def manifest():
    """(file, variant, lowest architecture) of every compilation, as kernels/src/manifest.rs lists them."""
    text = re.sub(r"//[^\n]*", "", (KERNELS / "src" / "manifest.rs").read_text())
    lists = re.findall(r"const (\w+): \[&str; \d+\]\s*=\s*\[(.*?)\];", text, re.S)
    lists = {name: strings(body) for name, body in lists}
    plain = re.search(r"fn plain\(.*?from: (\d+)", text, re.S)
    sources = re.search(r"const SOURCES: \[Source; (\d+)\]\s*=\s*\[(.*?)\];\n", text, re.S)
    if not sources:
        fail("kernels/src/manifest.rs: the list SOURCES is not understood")
    units = []
    entry = r'plain\("(\w+)"\)|Source\s*\{\s*file: "(\w+)",\s*variants: &(\w+|\[.*?\]),\s*from: (\d+),?\s*\}'
    entries = re.findall(entry, sources[2], re.S)
    for simple, file, variants, lowest in entries:
        if simple:
            units.append((simple, "", int(plain[1])))
        else:
            names = strings(variants) if variants.startswith("[") else lists[variants]
            units += [(file, variant, int(lowest)) for variant in names or [""]]
    if len(entries) != int(sources[1]):
        fail(f"kernels/src/manifest.rs: expected {sources[1]} sources, found {len(entries)} that are understood")
    return units


class Compiler:
    """NVIDIA's run-time compiler."""

    def __init__(self, path):
        # It looks for its built-in headers by name alone; a library that is open already is found.
        self.open = [ctypes.CDLL(str(file)) for file in sorted(path.resolve().parent.glob("libnvrtc-builtins.so*"))]
        self.library = ctypes.CDLL(str(path))
        texts = {file.name: file.read_bytes() for file in KERNELS.glob("*.cuh")}
        self.names = (ctypes.c_char_p * len(texts))(*(name.encode() for name in texts))
        self.texts = (ctypes.c_char_p * len(texts))(*texts.values())

    def version(self):
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def compile(self, file, variant, architecture):
        """Whether it compiles, and what the compiler says."""
        name = f"{file}.cu"
        options = [f"--gpu-architecture=sm_{architecture}", *OPTIONS]
        if variant:
            options.append(f"--define-macro=VARIANT={variant}")
        program = ctypes.c_void_p()
        text = (KERNELS / name).read_bytes()
        self.library.nvrtcCreateProgram(
            ctypes.byref(program), text, name.encode(), len(self.names), self.texts, self.names
        )
        done = self.library.nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        )
        size = ctypes.c_size_t()
        self.library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self.library.nvrtcGetProgramLog(program, log)
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return done == 0, log.value.decode(errors="replace")


def rows_of(log, file, variant, architecture):
    """A row for every kernel that the assembler speaks of."""
    rows = []
    for part in log.split("Compiling entry function '")[1:]:
        kernel = part[: part.index("'")]
        told = [r"Used (\d+) registers", r"(\d+) bytes spill (?:stores|loads)", r"(\d+) bytes smem", r"(\d+) bytes stack frame"]
        figures = [sum(int(n) for n in re.findall(pattern, part)) for pattern in told]
        rows.append([file, variant, kernel, str(architecture), *map(str, figures)])
    return rows


def work(unit):
    """Compiles one unit in a process of the pool, each of which has a compiler of its own."""
    file, variant, architecture = unit
    ok, log = work.compiler.compile(file, variant, architecture)
    rows = rows_of(log, file, variant, architecture) if ok else []
    return unit, rows, "" if rows else log


def begin(path):
    work.compiler = Compiler(path)


def compare(old, new):
    """Lines that tell what changed between two tables."""
    before, after = ({tuple(row[:NAMED_BY]): row[NAMED_BY:] for row in table} for table in (old, new))
    lines = []
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) == after.get(key):
            continue
        name = "{} {} {} sm_{}".format(*key).replace("  ", " ")
        if key not in before:
            lines.append(f"new      {name}: " + ", ".join(f"{c} {v}" for c, v in zip(COLUMNS[NAMED_BY:], after[key])))
        elif key not in after:
            lines.append(f"gone     {name}")
        else:
            pairs = zip(COLUMNS[NAMED_BY:], before[key], after[key])
            lines.append(f"changed  {name}: " + ", ".join(f"{c} {a} -> {b}" for c, a, b in pairs if a != b))
    return lines


def read_table(path):
    try:
        with path.open(newline="") as file:
            header, *rows = csv.reader(file)
    except (OSError, ValueError) as e:
        fail(f"{path}: cannot read the table: {e}")
    if header != COLUMNS:
        fail(f"{path}: expected the columns {','.join(COLUMNS)}, found {','.join(header)}")
    return rows


def show(rows):
    """The table for people."""
    print(f"{'file':16} {'variant':8} {'kernel':24} {'arch':6} {'regs':>4} {'spill':>6} {'shared':>7} {'stack':>6}")
    for file, variant, kernel, architecture, registers, spills, shared, stack in rows:
        mark = "  SPILLS" if int(spills) else ""
        print(f"{file:16} {variant:8} {kernel:24} sm_{architecture:3} {registers:>4} {spills:>6} {shared:>7} {stack:>6}{mark}")


def asked(args):
    """(file, variant, architecture) of every compilation that somebody would launch kernels of."""
    units = manifest()
    files = {file for file, _, _ in units}
    for file, variant, lowest in units:
        successor, end = SUCCESSORS.get(file, ("", 0))
        for architecture in args.architecture:
            served = lowest <= architecture and not (successor in files and architecture >= end)
            if served and args.only in file:
                yield file, variant, architecture


def main():
    args = typed()
    path = args.nvrtc or fetch(args.fetch)
    if not path.exists():
        fail(f"{path}: the compiler is not there")
    old = read_table(args.compare) if args.compare else None
    units = list(asked(args))
    # What takes longest first, so that no processor waits at the end.
    units.sort(key=lambda unit: not unit[0].startswith("product"))
    with multiprocessing.Pool(os.cpu_count(), begin, (path,)) as pool:
        results = pool.map(work, units, chunksize=1)
    rows = sorted((row for _, rows, _ in results for row in rows), key=lambda row: (*row[:3], int(row[3])))
    broken = [(unit, log) for unit, _, log in results if log]
    if not args.brief:
        show(rows)
    for (file, variant, architecture), log in broken:
        print(f"\n{file}.cu {variant} for sm_{architecture} does not compile:\n{log}")
    if args.csv:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
        args.csv.write_text(text.getvalue())
    if old is not None:
        changes = compare([row for row in old if args.only in row[0] and int(row[3]) in args.architecture], rows)
        print(f"\nsince {args.compare}: " + (f"{len(changes)} changes" if changes else "nothing changed"))
        print("".join(line + "\n" for line in changes), end="")
    spilling = [row for row in rows if int(row[5]) and row[0].startswith(HOT)]
    for row in spilling:
        print(f"spills {row[5]} bytes: {row[0]}.cu {row[1]} {row[2]} for sm_{row[3]}", file=sys.stderr)
    print(f"\n{len(rows)} kernels in {len(units)} compilations, {len(broken)} broken, {len(spilling)} hot ones spill")
    return 1 if spilling or broken else 0


if __name__ == "__main__":
    sys.exit(main())
