"""How this project's backend launches matrix products: the device's layout, the grid, which places an expert has.

Owns: the arithmetic of src/backend/cuda/product.rs and the sizes of kernels/quant.cuh and product.cuh. Refuses to know: what
launches cost.
"""

import math
from dataclasses import dataclass

from launch import Launch, Part
from model import distinct

WARPS = 8


@dataclass(frozen=True)
class Layout:
    """A format on the device: weights of a block and of a sub-block, words of the planes and bytes of scales of 32 weights,
    bytes of d and dmin, whether there is a minimum, whether codes are centred."""

    len: int
    sub: int
    low: int
    high: int
    scales: int
    head: int
    min: int
    centred: int

    @property
    def bytes(self):
        """Bytes of a block of one row."""
        return self.len // 32 * (4 * self.low + 4 * self.high + self.scales) + self.head


LAYOUTS = {
    "Q8_0": Layout(32, 32, 8, 0, 0, 2, 0, 1),
    "Q3_K": Layout(256, 16, 2, 1, 2, 2, 0, 1),
    "Q4_K": Layout(256, 32, 4, 0, 2, 4, 1, 0),
    "Q5_K": Layout(256, 32, 4, 1, 2, 4, 1, 0),
    "Q6_K": Layout(256, 16, 4, 2, 2, 2, 0, 1),
}


def blocks_of_unit(f, n):
    """Blocks that a warp takes at a time."""
    return 1 if f.len == 256 else 4 if n <= 2 else 8 // n


def area(f, n, w):
    """Singles of shared memory that a warp has for a tile of n places and w rows a lane."""
    rows = 32 * w
    record = n * rows + (n * rows if f.min and f.len == 256 else 0) + rows + (rows if f.min else 0) + 2 * n
    groups = 8 if f.len == 256 else blocks_of_unit(f, n)
    step = 4 if f.len == 256 and n == 8 else groups
    staged = n * 32 * step + n * step * (32 // f.sub)
    records = record * blocks_of_unit(f, n)
    return (max(records, staged) if f.len == 256 else records + staged) + 3 & ~3


def power(n):
    """The next power of two."""
    return 1 << max(0, n - 1).bit_length()


class Products:
    """Launches of matrix products."""

    def __init__(self, shape, codes, overlap):
        self.shape, self.codes, self.overlap = shape, codes, overlap

    def dense(self, names, mix, shapes, n):
        """Products of several matrices with one input: one launch a format."""
        formats = dict.fromkeys(mix[name] for name in names)
        for format in formats:
            same = [name for name in names if mix[name] == format]
            rows, cols = [shapes[name][0] for name in same], shapes[same[0]][1]
            if format == "F32":
                yield self.wide(same, rows, cols, n)
            else:
                yield self.quantised(same, format, rows, cols, n, None)

    def grouped(self, names, mix, shapes, n):
        """Products of the experts that n rows chose."""
        (rows, cols, _), format = shapes[names[0]], mix[names[0]]
        yield self.quantised(names, format, [rows] * len(names), cols, n, self.groups(n))

    def groups(self, n):
        """{places: experts that have so many}."""
        s = self.shape
        if n == 1:
            return {1: s.used}
        p = s.used / s.experts
        have = {k: s.experts * math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(1, n + 1)}
        few = distinct(s, n, self.overlap) / distinct(s, n)
        # With shared choices fewer experts have proportionally more places.
        out = {}
        for k, count in have.items():
            if count > 1e-3:
                more = min(n, k / few)
                low = math.floor(more)
                for places, share in ((low, 1 - (more - low)), (low + 1, more - low)):
                    if share > 0:
                        out[places] = out.get(places, 0) + count * few * share
        return out

    def quantised(self, names, format, rows, cols, n, groups):
        """One launch of the quantised products: the twin of `Shape::of`."""
        f, name, w = LAYOUTS[format], "product_1" if n == 1 else "product_n", 1 if n == 1 else 2
        most = min(self.shape.experts, n * self.shape.used) if groups else 1
        average = -(-n * self.shape.used // most) if groups else n
        tile = 1 if n == 1 else max(2, min(power(2 * average), power(n), 8))
        blocks = cols // f.len
        split = min(3, power(-(-blocks // blocks_of_unit(f, tile))).bit_length() - 1)
        x = sum(-(-r // ((WARPS >> split) * w * 32)) for r in rows)
        shared = 4 * WARPS * max(area(f, k, w) for k in (1, 2, 4, 8) if k <= tile)
        args = self.matrices(rows) + [("ptr", 10), ("ptr", 11), ("ptr", 12)]
        args += ([("ptr", 20), ("ptr", 21), ("ptr", 22)] if groups else [("null",)] * 3) + [n, blocks, split, tile]
        matrix = sum(rows) * blocks * f.bytes
        grid, parts, reads = self.places(x, n, tile, groups, most)
        weights = sum(rows) * cols * (self.shape.used if groups else 1) * n
        code = self.codes["product_float", format][name]
        return Launch("+".join(names), code, grid, (256, 1), args, matrix * reads, shared, weights, parts)

    def matrices(self, rows):
        """The four matrices of a launch."""
        args = []
        for k in range(4):
            args += [("ptr", 2 * k), ("ptr", 2 * k + 1), rows[k] if k < len(rows) else 0, 1]
        return args

    def places(self, x, n, tile, groups, most):
        """Grid, parts, and how often a matrix is read from memory. A group's second turn finds its weights in the cache."""
        if not groups:
            z = -(-n // tile)
            parts = [Part(x * (n // tile))] + ([Part(x, (0, 0, n // tile))] if n % tile else [])
            return (x, 1, z), parts, z
        parts = [Part(x * have, (0, 0, 0), {20: {0: 0, 4: 0, 8: k, 12: 0}, 21: {0: 1}}) for k, have in groups.items()]
        idle = most - sum(groups.values())
        if idle > 0.01:
            parts.append(Part(x * idle, (0, 1, 0), {21: {0: 1}}))
        return (x, most, 1), parts, sum(groups.values())

    def wide(self, names, rows, cols, n):
        """F32 weights."""
        name, w = ("product_1", 1) if n == 1 else ("product_n", 2)
        x = sum(-(-r // (WARPS * w)) for r in rows)
        args = self.matrices(rows) + [("ptr", 10)] + [("null",)] * 3 + [n, cols]
        grid, parts, reads = self.places(x, n, 8, None, 1)
        code = self.codes["product_wide", "F32"][name]
        return Launch("+".join(names), code, grid, (256, 1), args, 4 * sum(rows) * cols * reads, 0, sum(rows) * cols * n, parts)
