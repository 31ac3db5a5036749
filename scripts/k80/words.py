"""Words as machine code sees them, the same in all lanes, different, or unknown.

Owns: signs, byte permutation, bit fields. Refuses to know: instructions.
"""

M = 0xFFFFFFFF


def signed(v):
    """A 32-bit word as a signed number."""
    return v - (1 << 32) if v & 0x80000000 else v


def lift(f, *values):
    """`f` over words that are the same in all lanes (int), differ (list) or are unknown (None)."""
    if any(v is None for v in values):
        return None
    if all(isinstance(v, int) for v in values):
        return f(*values)
    rows = [v if isinstance(v, list) else [v] * 32 for v in values]
    out = [f(*lane) for lane in zip(*rows)]
    return out[0] if all(o == out[0] for o in out) else out


COMPARE = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "T": lambda a, b: True,
    "F": lambda a, b: False,
}
LOGIC = {
    "AND": lambda a, b: a & b,
    "OR": lambda a, b: a | b,
    "XOR": lambda a, b: a ^ b,
    "PASS_B": lambda a, b: b,
}


def permute(a, selector, b):
    """PRMT: four bytes out of eight."""
    pool, out = a | b << 32, 0
    for i in range(4):
        s = selector >> 4 * i & 15
        byte = pool >> 8 * (s & 7) & 0xFF
        out |= (0xFF * (byte >> 7) if s & 8 else byte) << 8 * i
    return out


def extract(mods):
    """BFE: bits of a word, with or without sign."""

    def f(a, field):
        start, width = field & 0xFF, field >> 8 & 0xFF
        v = a >> start & (1 << width) - 1
        if "U32" not in mods and width and v >> width - 1:
            v -= 1 << width
        return v & M

    return f


def insert(a, field, c):
    """BFI: puts bits of `a` into `c`."""
    start, width = field & 0xFF, field >> 8 & 0xFF
    mask = ((1 << width) - 1) << start & M
    return c & ~mask & M | a << start & mask
