"""Runs a thread block's machine code as far as control and addresses need it, and counts.

Owns: what integer instructions do to 32 lanes, in-order issue of a warp, what each instruction occupies. Refuses to know:
how many blocks there are and how long they take together. Floats and loaded data are unknown (`None`) unless a buffer says
what it holds; a branch that hangs on unknown data is not taken, and counted.
"""

from collections import Counter
from functools import cache

from machine import LATENCY, classify, passes
from words import COMPARE, LOGIC, M, extract, insert, lift, permute, signed

# Instructions of a warp, at most.
LIMIT = 2_000_000
# Where buffers begin: one for every 64 GiB of addresses. Below is shared memory.
BUFFERS = 1 << 36
MEMORY = {"LD", "LDG", "LDS", "LDL", "ST", "STG", "STS", "STL", "RED", "ATOM"}


@cache
def parsed(text):
    """An operand's text taken apart: what it is, and of which register, word or bank."""
    if text.startswith(("-c[", "-R")):
        return "minus", text[1:], None
    if text.startswith("~"):
        return "not", text[1:], None
    if text.startswith("R"):
        name = text.split(".")[0]
        return ("number", 0, None) if name == "RZ" else ("register", name, None)
    if text.startswith("c["):
        bank, rest = text[2:].split("]", 1)
        inner = rest[1:-1]
        if "R" in inner:
            register, _, offset = inner.partition("+")
            return "indexed", int(bank, 16), (register, int(offset or "0", 16))
        return "constant", int(bank, 16), int(inner, 16)
    try:
        return "number", int(text, 16) & M if "0x" in text else None, None
    except ValueError:
        return "number", None, None


@cache
def touched(text, count, pair):
    """Registers that an operand names: `count` from the first on, or an address of one or two."""
    name = text.lstrip("-~|[")
    for sign in ("+", "]", ".", "|"):
        name = name.split(sign)[0]
    if not name.startswith("R") or name == "RZ" or not name[1:].isdigit():
        return ()
    first, many = int(name[1:]), 1 + pair if "[" in text else count
    return tuple(f"R{first + w}" for w in range(many))


class Warp:
    """One warp: registers, predicates, clock, counts."""

    def __init__(self, code, block, index):
        self.code, self.block, self.index = code, block, index
        first = 32 * index
        x = block.threads[0]
        self.special = {
            "SR_TID.X": self._shrink([(first + l) % x for l in range(32)]),
            "SR_TID.Y": self._shrink([(first + l) // x for l in range(32)]),
            "SR_TID.Z": 0,
            "SR_LANEID": list(range(32)),
            "SR_CTAID.X": block.at[0],
            "SR_CTAID.Y": block.at[1],
            "SR_CTAID.Z": block.at[2],
            "SR_NTID.X": x,
        }
        self.r, self.p, self.cc = {}, {"PT": 1}, 0
        self.clock, self.ready, self.textures = 0, {}, []
        self.count, self.slots, self.unknown, self.steps = Counter(), 0, 0, 0

    @staticmethod
    def _shrink(v):
        return v[0] if all(x == v[0] for x in v) else v

    # ---- operands
    def constant(self, bank, offset):
        data = self.block.constants if bank == 0 else self.code.constants
        word = data[offset : offset + 4]
        return int.from_bytes(word, "little") if len(word) == 4 else None

    def value(self, text):
        kind, what, more = parsed(text)
        if kind == "register":
            return self.r.get(what)
        if kind == "number":
            return what
        if kind == "constant":
            return self.constant(what, more)
        if kind == "indexed":
            at = lift(lambda v: v + more[1], self.value(more[0]))
            return lift(lambda v: self.constant(what, v) or 0, at)
        if kind == "minus":
            return lift(lambda v: -v & M, self.value(what))
        if kind == "not":
            return lift(lambda v: ~v & M, self.value(what))
        return None

    def predicate(self, text):
        v = self.p.get(text.lstrip("!"))
        if text.startswith("!"):
            return lift(lambda a: 1 - a, v)
        return v

    def set(self, text, value, flags=0):
        name = text.split(".")[0]
        if text.endswith(".CC"):
            self.cc = flags
        if name != "RZ":
            self.r[name] = value

    def put(self, name, value, guard):
        """Writes a register where the guard holds."""
        if guard == 1 or guard is None:
            self.set(name, value)
        elif isinstance(guard, list):
            old = self.r.get(name.split(".")[0])
            self.set(name, lift(lambda g, a, b: a if g else b, guard, value, old) if old is not None else value)

    # ---- what instructions do
    def add(self, i, a, b, guard):
        carry = self.cc if "X" in i.mods else 0
        extra = 1 if "PO" in i.mods else 0
        wide = lift(lambda x, y, c: x + y + c + extra, a, b, carry)
        self._wide(i.args[0], wide, guard)

    def _wide(self, target, wide, guard):
        if target.endswith(".CC"):
            self.cc = lift(lambda v: v >> 32 & 1, wide)
        self.put(target.removesuffix(".CC"), lift(lambda v: v & M, wide), guard)

    def subtracted(self, text, with_carry):
        """An operand of an addition; a negated one in carry arithmetic is its complement, the one comes with the carry."""
        if with_carry and text.startswith("-") and not text.startswith("-0x"):
            return lift(lambda v: ~v & M, self.value(text[1:]))
        return self.value(text)

    def integer(self, i, guard):
        """Executes an integer instruction; False if it is none that is known."""
        a, base, mods = i.args, i.base, i.mods
        val = self.value
        if base in ("MOV", "MOV32I"):
            self.put(a[0], val(a[1]), guard)
        elif base == "S2R":
            self.put(a[0], self.special.get(a[1]), guard)
        elif base in ("IADD", "IADD32I"):
            x = "X" in mods
            if not x and a[0].endswith(".CC") and a[2].startswith("-R"):
                whole = lift(lambda p, q: p + (~q & M) + 1, val(a[1]), val(a[2][1:]))
                self._wide(a[0], whole, guard)
            else:
                self.add(i, self.subtracted(a[1], x), self.subtracted(a[2], x), guard)
        elif base == "ISUB":
            self._wide(a[0], lift(lambda p, q: p + (~q & M) + 1, val(a[1]), val(a[2])), guard)
        elif base in ("ISCADD", "ISCADD32I"):
            shift = int(a[3], 16)
            self._wide(a[0], lift(lambda p, q: (p << shift & M) + q, val(a[1]), val(a[2])), guard)
        elif base in ("LOP", "LOP32I"):
            f = LOGIC[next(m for m in mods if m in LOGIC)]
            both = (0, val(a[2])) if "PASS_B" in mods else (val(a[1]), val(a[2]))
            self.put(a[0], lift(f, *both), guard)
        elif base in ("IMAD", "IMUL", "IMUL32I", "IMAD32I"):
            self.multiply(i, guard)
        elif base in ("SHL", "SHR"):
            self.shift(i, guard)
        elif base == "SHF":
            self.funnel(i, guard)
        elif base == "BFE":
            self.put(a[0], lift(extract(mods), val(a[1]), val(a[2])), guard)
        elif base == "BFI":
            self.put(a[0], lift(insert, val(a[1]), val(a[2]), val(a[3])), guard)
        elif base == "PRMT":
            self.put(a[0], lift(permute, val(a[1]), val(a[2]), val(a[3])), guard)
        elif base == "SEL":
            self.put(a[0], lift(lambda p, q, c: p if c else q, val(a[1]), val(a[2]), self.predicate(a[3])), guard)
        elif base == "ICMP":
            number = (lambda v: v) if "U32" in mods else signed
            f = COMPARE[mods[0]]
            self.put(a[0], lift(lambda p, q, c: p if f(number(c), 0) else q, val(a[1]), val(a[2]), val(a[3])), guard)
        elif base == "IMNMX":
            number = (lambda v: v) if "U32" in mods else signed
            pick = lift(lambda p, q, c: (min if c else max)(p, q, key=number), val(a[1]), val(a[2]), self.predicate(a[3]))
            self.put(a[0], pick, guard)
        elif base == "ISETP":
            number = (lambda v: v) if "U32" in mods else signed
            f = COMPARE[mods[0]]
            self.compare(i, lift(lambda p, q: int(f(number(p), number(q))), val(a[2]), val(a[3])), a[4], guard)
        elif base == "PSETP":
            first = lift(LOGIC[mods[0]], self.predicate(a[2]), self.predicate(a[3]))
            self.compare(i, first, a[4], guard)
        elif base == "LDC":
            self.put(a[0], val(a[1]), guard)
        else:
            return False
        return True

    def compare(self, i, first, other, guard):
        f = LOGIC[next((m for m in reversed(i.mods) if m in LOGIC), "AND")]
        rest = self.predicate(other)
        for name, v in ((i.args[0], first), (i.args[1], lift(lambda x: 1 - x, first))):
            if name != "PT":
                result = lift(f, v, rest)
                if isinstance(guard, list):
                    result = lift(lambda g, n, o: n if g else o, guard, result, self.p.get(name, 0))
                if guard != 0:
                    self.p[name] = result

    def multiply(self, i, guard):
        a, mods = i.args, i.mods
        unsigned = "U32" in mods
        number = (lambda v: v) if unsigned else signed
        high = "HI" in mods
        product = lift(lambda p, q: number(p) * number(q) >> (32 if high else 0) & M, self.value(a[1]), self.value(a[2]))
        third = self.value(a[3]) if i.base == "IMAD" else 0
        carry = self.cc if "X" in mods else 0
        self._wide(a[0], lift(lambda p, q, c: p + q + c, product, third, carry), guard)

    def shift(self, i, guard):
        a, mods = i.args, i.mods
        number = (lambda v: v) if "U32" in mods else signed
        if i.base == "SHL":
            result = lift(lambda p, s: p << min(s, 32) & M, self.value(a[1]), self.value(a[2]))
        else:
            result = lift(lambda p, s: number(p) >> min(s, 32) & M, self.value(a[1]), self.value(a[2]))
        self.put(a[0], result, guard)

    def funnel(self, i, guard):
        a, mods = i.args, i.mods
        low, by, high = (self.value(x) for x in a[1:4])
        if "L" in mods:
            result = lift(lambda l, s, h: (h << 32 | l) << (s & 63) >> 32 & M, low, by, high)
        elif "S64" in mods:
            result = lift(lambda l, s, h: (signed(h) << 32 | l) >> (s & 63) & M, low, by, high)
        else:
            result = lift(lambda l, s, h: (h << 32 | l) >> (s & 63) & M, low, by, high)
        self.put(a[0], result, guard)

    # ---- memory
    def address(self, text, wide):
        inner = text[text.index("[") + 1 : text.index("]")]
        register, offset = inner, 0
        if "+" in inner:
            register, _, tail = inner.partition("+")
            offset = int(tail, 16)
        elif inner.startswith("0x"):
            return int(inner, 16)
        if register == "RZ":
            return offset
        low = self.r.get(register)
        if not wide:
            return lift(lambda l: l + offset & M, low)
        high = self.r.get(f"R{int(register[1:]) + 1}")
        return lift(lambda l, h: (h << 32 | l) + offset, low, high)

    def memory(self, i, guard):
        """Loads and stores: unknown data unless the block holds it."""
        words = next((int(m) // 32 for m in i.mods if m in ("64", "128")), 1)
        load = i.base in ("LD", "LDG", "LDS", "LDL")
        place = i.args[1] if load else i.args[0]
        at = self.address(place, "E" in i.mods)
        if load:
            first = int(i.args[0][1:]) if i.args[0] != "RZ" else None
            for w in range(words):
                if first is not None:
                    got = self.block.load(i.base, at, w)
                    self.put(f"R{first + w}", got, guard)
        elif i.base == "STS":
            self.block.store(at, self.value(i.args[1]), words)

    # ---- control
    def run(self):
        """Executes to the end; yields at every barrier of the block."""
        stack, calls, n = [], [], 0
        code = self.code.instructions
        last_dual = False
        while True:
            i = code[n]
            if self.steps > LIMIT:
                raise SystemExit(f"{self.code.name}: does not end (at {i.at:#x} {i.op})")
            self.steps += 1
            self.issue(i, last_dual)
            last_dual = i.dual
            guard = 1 if not i.guard else self.predicate(i.guard)
            base, jump = i.base, None
            if base == "SSY" or base == "PBK" or base == "PCNT":
                stack.append((base, int(i.args[0], 16)))
            elif base in ("BRA", "CAL", "BRK", "CONT", "RET", "EXIT"):
                if guard is None:
                    self.unknown += 1
                    guard = 0
                target = int(i.args[-1], 16) if base in ("BRA", "CAL") else None
                backward = target is not None and target <= i.at
                take = self.any(guard) if backward else self.all(guard)
                if base == "EXIT" and take:
                    return
                if take and base == "CAL":
                    calls.append(n + 1)
                if take and base == "RET":
                    n = calls.pop()
                    continue
                if take and base in ("BRK", "CONT"):
                    kind, target = stack.pop()
                    while kind != ("PBK" if base == "BRK" else "PCNT"):
                        kind, target = stack.pop()
                if take:
                    jump = target
            elif base == "BAR":
                yield self.clock
            elif base in MEMORY:
                self.memory(i, 0 if guard is None else guard)
            elif base == "NOP" or base == "TEXDEPBAR":
                pass
            elif not self.integer(i, guard):
                self.forget(i)
            if "S" in i.mods and self.all(0 if guard is None else guard) and stack:
                jump = stack.pop()[1]
            if "S" in i.mods and guard is None:
                self.unknown += 1
            n = n + 1 if jump is None else self.code.at[self.landing(jump)]

    def landing(self, at):
        """The first instruction at or behind an address (a scheduling word may stand there)."""
        return at if at in self.code.at else at + 8

    @staticmethod
    def any(v):
        return any(v) if isinstance(v, list) else bool(v)

    @staticmethod
    def all(v):
        return all(v) if isinstance(v, list) else bool(v)

    def forget(self, i):
        """An instruction whose result is not followed."""
        if not i.args:
            return
        # Data is ordinary: no division needs its long way, nothing is NaN.
        plain = i.base == "FCHK" or (i.base == "FSETP" and "NAN" in i.mods)
        for target in i.args[:2] if i.base in ("FSETP", "VOTE", "SHFL", "R2P", "DSETP") else i.args[:1]:
            name = target.split(".")[0]
            if name.startswith("P") and name != "PT":
                self.p[name] = 0 if plain else None
            elif name.startswith("R") and name != "RZ":
                self.r[name] = None

    # ---- time
    def issue(self, i, paired):
        """Counts an instruction and moves the warp's clock: fixed latencies stand in the schedule, loads are waited for."""
        kind = classify(i)
        self.count[kind] += 1
        if not paired:
            self.slots += 1
        start = self.clock
        if self.ready:
            many = self.words(i) if i.base in MEMORY else 1
            for text in i.args:
                for name in touched(text, many, "E" in i.mods):
                    start = max(start, self.ready.pop(name, 0))
        if i.base == "TEXDEPBAR":
            keep = int(i.args[0], 16)
            done = self.textures[: len(self.textures) - keep]
            if done:
                start = max(start, done[-1])
                self.textures = self.textures[len(done) :]
        self.clock = start + i.gap
        if kind in ("lds", "ldg", "ld", "shuffle"):
            self.load_time(i, kind, start)
        if kind in ("lds", "sts", "ld", "st"):
            extra = passes(i) - 1
            self.slots += extra
            self.count["lsu"] += 1 + extra

    def load_time(self, i, kind, start):
        # A generic load whose address is in no buffer is one from shared memory.
        if kind == "ld" and self.is_shared(self.address(i.args[1], True)):
            kind = "lds"
        done = start + LATENCY[kind]
        if kind == "ldg":
            self.textures.append(max(done, self.textures[-1] if self.textures else 0))
            self.count["tex"] += 2 * self.words(i)
            return
        first = i.args[0] if i.args[0].startswith("R") else i.args[1]
        if first != "RZ":
            for w in range(self.words(i)):
                self.ready[f"R{int(first[1:].split('.')[0]) + w}"] = done

    @staticmethod
    def is_shared(at):
        return at is not None and max(at if isinstance(at, list) else [at]) < BUFFERS

    @staticmethod
    def words(i):
        return next((int(m) // 32 for m in i.mods if m in ("64", "128")), 1)


class Block:
    """A thread block: its place in the grid, its constants, what its buffers hold."""

    def __init__(self, code, threads, args, at=(0, 0, 0), grid=(1, 1, 1), buffers=()):
        """`args`: ints, floats, `("ptr", n)` and `("null",)`; `buffers`: {n: offset -> word or None}."""
        self.code, self.threads, self.at = code, threads, at
        self.buffers, self.shared = dict(buffers), {}
        data = bytearray(0x140)
        for k, n in enumerate((*threads, 1)[:3]):
            data[0x28 + 4 * k : 0x2C + 4 * k] = n.to_bytes(4, "little")
        for k, n in enumerate(grid):
            data[0x34 + 4 * k : 0x38 + 4 * k] = n.to_bytes(4, "little")
        for arg in args:
            if isinstance(arg, tuple):
                at = (arg[1] + 1) * BUFFERS if arg[0] == "ptr" else 0
                data += bytes(-len(data) % 8) + at.to_bytes(8, "little")
            else:
                data += (0 if isinstance(arg, float) else arg & M).to_bytes(4, "little")
        self.constants = bytes(data)

    def load(self, base, at, word):
        """A loaded word where it is known."""
        if at is None:
            return None
        if base == "LDS":
            v = [self.shared.get(a + 4 * word) for a in (at if isinstance(at, list) else [at])]
            return None if any(x is None for x in v) else (v[0] if len(set(v)) == 1 else v if len(v) == 32 else None)
        one = lambda a: self.buffers.get(a // BUFFERS - 1, lambda _: None)(a % BUFFERS + 4 * word)
        got = [one(a) for a in (at if isinstance(at, list) else [at])]
        return None if any(x is None for x in got) else (got[0] if len(set(got)) == 1 else got)

    def store(self, at, value, words):
        if isinstance(at, int) and isinstance(value, int) and words == 1:
            self.shared[at] = value
        elif isinstance(at, list):
            lanes = value if isinstance(value, list) else [value] * 32
            for a, v in zip(at, lanes):
                self.shared[a] = v if words == 1 else None

    def run(self):
        """Runs all warps from barrier to barrier: counts, issue slots, and clocks of the slowest warp in each stretch."""
        warps = [Warp(self.code, self, w) for w in range(-(-self.threads[0] * self.threads[1] // 32))]
        living, clock = [(w, w.run()) for w in warps], 0
        while living:
            still = []
            for warp, steps in living:
                warp.clock = clock
                if next(steps, None) is not None:
                    still.append((warp, steps))
            clock = max([w.clock for w, _ in living])
            living = still
        count, slots, unknown = Counter(), 0, 0
        for w in warps:
            count += w.count
            slots += w.slots
            unknown += w.unknown
        return count, slots, clock, unknown
