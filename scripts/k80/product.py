"""How this project's backend launches matrix products: the grid, shared memory, which places an expert has.

Owns: the arithmetic of src/backend/cuda/product.rs for cards without dp4a, followed by hand: `checks` knows the text that was
followed. Refuses to know: what launches cost.
"""

import math
from dataclasses import dataclass

from launch import Launch, Part, arguments
from model import distinct
from source import formats, signatures

WARPS, THREADS, THREADS_WIDE, JOBS = 8, 256, 64, 4
# The functions of product.rs that are followed here: where to look from, name, digest of their text.
FOLLOWED = [
    ("", "of", "79a0a127"),
    ("impl Shape", "of", "5034882b"),
    ("impl Sizes", "of", "246188a5"),
    ("", "unit_blocks", "925bb5ea"),
    ("", "area", "1a3c13ba"),
    ("", "has_min", "3304d688"),
    ("", "sub", "becb7dd8"),
    ("", "plan", "1eed1f10"),
    ("", "plan_wide", "09473687"),
]


@dataclass(frozen=True)
class Layout:
    """A format on the device: weights of a block and of a sub-block, bytes of a block of one row, whether there is a minimum."""

    len: int
    sub: int
    bytes: int
    min: bool


def layout(kernels, name):
    """A format's layout, as quant.cuh gives it."""
    f = formats(kernels / "quant.cuh")[name]
    bytes = f["len"] // 32 * (4 * f["low"] + 4 * f["high"] + f["scales"]) + f["head"]
    return Layout(f["len"], f["sub"], bytes, bool(f["min"]))


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

    def __init__(self, shape, codes, kernels, overlap):
        self.shape, self.codes, self.kernels, self.overlap = shape, codes, kernels, overlap

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
        f, w = layout(self.kernels, format), 1 if n == 1 else 2
        most = min(self.shape.experts, n * self.shape.used) if groups else 1
        average = -(-n * self.shape.used // most) if groups else n
        tile = 1 if n == 1 else max(2, min(power(2 * average), power(n), 8))
        name = {1: "product_1", 2: "product_2"}.get(tile, "product_n")
        blocks = cols // f.len
        split = min(3, power(-(-blocks // blocks_of_unit(f, tile))).bit_length() - 1)
        x = sum(-(-r // ((WARPS >> split) * w * 32)) for r in rows)
        shared = 4 * WARPS * max(area(f, k, w) for k in (1, 2, 4, 8) if k < 2 * tile)
        values = {"rows": 0 if groups else n, "blocks": blocks, "split": split, "tile": tile}
        matrix = sum(rows) * blocks * f.bytes
        grid, parts, reads = self.places(x, n, tile, groups, most)
        weights = sum(rows) * cols * (self.shape.used if groups else 1) * n
        return self.launch("product_float", format, name, names, rows, values, grid, parts, matrix * reads, shared, weights)

    def launch(self, file, format, name, names, rows, values, grid, parts, bytes, shared, weights):
        """A launch of up to four matrices; of each part what its groups hold is known."""
        signature = signatures(self.kernels / f"{file}.cu")[name]
        for k in range(JOBS):
            values |= {f"rows{k}": rows[k] if k < len(rows) else 0, f"stride{k}": 1}
        grouped = any(part.buffers for part in parts)
        null = {"enter"} if grouped and "ffn_down_exps" in names else () if grouped else {"groups", "count", "enter"}
        args = arguments(signature, values, null)
        at = {name: k for k, (name, _) in enumerate(signature)}
        for part in parts:
            part.buffers = {at[name]: words for name, words in part.buffers.items()}
        code, threads = self.codes[file, format][name], THREADS if file == "product_float" else THREADS_WIDE
        return Launch("+".join(names), code, grid, (threads, 1), args, bytes, shared, weights, parts)

    def places(self, x, n, tile, groups, most):
        """Grid, parts, and how often a matrix is read from memory. A group's second turn finds its weights in the cache."""
        if not groups:
            z = -(-n // tile)
            parts = [Part(x * (n // tile))] + ([Part(x, (0, 0, n // tile))] if n % tile else [])
            return (x, 1, z), parts, z
        parts = [Part(x * have, (0, 0, 0), {"groups": {0: 0, 4: 0, 8: k, 12: 0}, "count": {0: 1}}) for k, have in groups.items()]
        idle = most - sum(groups.values())
        if idle > 0.01:
            parts.append(Part(x * idle, (0, 1, 0), {"count": {0: 1}}))
        return (x, most, 1), parts, sum(groups.values())

    def wide(self, names, rows, cols, n):
        """F32 weights."""
        name, w = ("product_1", 1) if n == 1 else ("product_n", 2)
        x = sum(-(-r // (THREADS_WIDE // 32 * w)) for r in rows)
        grid, parts, reads = self.places(x, n, 8, None, 1)
        moved, weights = 4 * sum(rows) * cols * reads, sum(rows) * cols * n
        return self.launch("product_wide", "F32", name, names, rows, {"rows": n, "cols": cols}, grid, parts, moved, 0, weights)
