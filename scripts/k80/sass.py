"""Kepler machine code: compiling, disassembling and reading it.

Owns: the run-time compiler's call, the disassembler's text, the scheduling words. Refuses to know: what instructions cost.
"""

import ctypes
import hashlib
import re
import struct
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Instruction:
    """One instruction: its address, its guard (`P0`, `!P0` or nothing), operation with modifiers, operands, schedule."""

    at: int
    guard: str
    op: str
    args: list
    sched: int = 0x20

    def __post_init__(self):
        self.base, *self.mods = self.op.split(".")
        # Whether the compiler issues it together with the next one.
        self.dual = self.sched == 0x04

    @property
    def gap(self):
        """Clocks until the next instruction of this warp may issue."""
        if self.sched == 0x04:
            return 0
        if self.sched == 0:
            return 32
        return (self.sched & (0xF if self.sched & 0x80 else 0x1F)) + 1


@dataclass
class Code:
    """A kernel: instructions in order, registers, bytes of static shared memory, compiler's constants."""

    name: str
    instructions: list
    registers: int
    shared: int = 0
    spills: int = 0
    constants: bytes = b""
    at: dict = field(default_factory=dict)
    digest: str = ""

    def __post_init__(self):
        self.at = {i.at: n for n, i in enumerate(self.instructions)}
        self.digest = hashlib.sha256(repr((self.instructions, self.constants)).encode()).hexdigest()


LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?P\d)\s+)?([A-Z0-9_.]+)\s*([^;]*);")
CONTROL = re.compile(r"^\s*/\* 0x(08|09|0a|0b)([0-9a-f]{14}) \*/\s*$")
FUNCTION = re.compile(r"Function : (\S+)")


def read_listing(text):
    """The kernels of a listing as the disassembler prints it, with `// name registers R shared S spills B constants HEX`
    lines between them where it was saved by this program."""
    codes, facts, name, body, word = {}, {}, None, [], 0

    def close():
        if name:
            registers, shared, spills, constants = facts.get(name, (0, 0, 0, b""))
            codes[name] = Code(name, body, registers, shared, spills, constants)

    for line in text.splitlines():
        if line.startswith("// ") and " registers " in line:
            w = line.split()
            facts[w[1]] = (int(w[3]), int(w[5]), int(w[7]), bytes.fromhex(w[9]) if len(w) > 9 else b"")
        elif m := FUNCTION.search(line):
            close()
            name, body = m[1], []
        elif m := CONTROL.match(line):
            word = int(m[1] + m[2], 16) >> 2
        elif m := LINE.search(line):
            args = [a.strip() for a in m[4].split(",")] if m[4].strip() else []
            at = int(m[1], 16)
            sched = word >> 8 * (at % 64 // 8 - 1) & 0xFF if at % 64 else 0x20
            body.append(Instruction(at, m[2] or "", m[3], args, sched))
    close()
    return codes


def sections(elf):
    """Name and contents of an ELF file's sections."""
    table, count, names = struct.unpack_from("<Q", elf, 40)[0], *struct.unpack_from("<HH", elf, 60)
    heads = [struct.unpack_from("<IIQQQQ", elf, table + 64 * i) for i in range(count)]
    texts = heads[names][4]
    out = {}
    for head in heads:
        start = texts + head[0]
        name = elf[start : elf.index(b"\0", start)].decode()
        out[name] = elf[head[4] : head[4] + head[5]] if head[1] != 8 else bytes(0)
    return out


class Compiler:
    """NVRTC through ctypes, and `cuobjdump` (which wants `nvdisasm` beside it)."""

    def __init__(self, nvrtc, cuobjdump, arch="sm_37"):
        self.lib = ctypes.CDLL(str(nvrtc))
        self.lib.nvrtcCreateProgram.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int]
        self.lib.nvrtcCreateProgram.argtypes += [ctypes.c_void_p, ctypes.c_void_p]
        self.cuobjdump, self.arch = Path(cuobjdump), arch

    def compile(self, source, options=()):
        """A file's listing: CUBIN for the architecture, disassembled; headers are looked for beside it."""
        source, program = Path(source), ctypes.c_void_p()
        headers = sorted(source.parent.glob("*.cuh"))
        texts = (ctypes.c_char_p * len(headers))(*[h.read_bytes() for h in headers])
        names = (ctypes.c_char_p * len(headers))(*[h.name.encode() for h in headers])
        create = self.lib.nvrtcCreateProgram
        create(ctypes.byref(program), source.read_bytes(), source.name.encode(), len(headers), texts, names)
        words = [f"--gpu-architecture={self.arch}", "--std=c++17", "--ptxas-options=-v", *options]
        array = (ctypes.c_char_p * len(words))(*[w.encode() for w in words])
        failed = self.lib.nvrtcCompileProgram(program, len(words), array)
        log = self._take(program, "ProgramLog").decode(errors="replace").rstrip("\0")
        if failed:
            raise SystemExit(f"{source}: does not compile for {self.arch}\n{log}")
        return self._listing(self._take(program, "CUBIN"), log)

    def _take(self, program, what):
        size = ctypes.c_size_t()
        getattr(self.lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        getattr(self.lib, f"nvrtcGet{what}")(program, data)
        return data.raw

    def _listing(self, cubin, log):
        parts, facts = sections(cubin), []
        entry = re.compile(r"entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers([^\n]*)", re.S)
        for name, spills, registers, rest in entry.findall(log):
            shared = re.search(r"(\d+) bytes smem", rest)
            constants = parts.get(f".nv.constant2.{name}", b"").hex()
            facts.append(f"// {name} registers {registers} shared {shared[1] if shared else 0} spills {spills} constants {constants}")
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            path = f"{self.cuobjdump.parent}:/usr/bin:/bin"
            run = subprocess.run([self.cuobjdump, "-sass", file.name], capture_output=True, text=True, env={"PATH": path})
        if run.returncode:
            raise SystemExit(f"{self.cuobjdump}: {run.stderr.strip()}")
        return "\n".join(facts) + "\n" + run.stdout
