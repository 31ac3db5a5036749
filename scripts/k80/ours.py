"""This project's CUDA backend, launch by launch.

Owns: its sequence of kernels, their grids and arguments, as src/backend/cuda launches them. Refuses to know: what launches cost.
"""

from dataclasses import replace

from launch import Launch, Part, arguments
from model import formats, matrices
from product import Products
from source import signatures

# The grids and threads that this file follows, in the backend's words: blocks, threads, shared bytes. `checks` compares.
GRIDS = {
    "rms_norm": "[range.len(), 1, 1], NORM, shared",
    "add_rows": "[count.div_ceil(256), 1, 1], 256, 0",
    "swiglu": "[width.max(other).div_ceil(SPAN), rows + more, 1], 256, 4 * SPAN",
    "convolve": "[channels.div_ceil(each), 1, 1], CHANNELS, 0",
    "recur": "[s.value_dim.div_ceil(COLUMNS), s.value_heads, 1], 4 * COLUMNS, shared",
    "gated_norm": "[s.value_heads.div_ceil(each), rows, 1], 32 * each.min(8), 0",
    "replay": "[s.value_dim.div_ceil(COLUMNS), s.value_heads, 1], 4 * COLUMNS, 0",
    "slide": "[(slots * channels).div_ceil(256).max(1), 1, 1], 256, 0",
    "rotate": "[s.heads + s.kv_heads, rows.len(), 1], 32, 0",
    "scores": "[keys.div_ceil(KEYS), s.kv_heads, n.div_ceil(tile)], 256, 4 * tile * group * dim",
    "weigh": "[segments, s.kv_heads, n], 256, 0",
    "attend": "[self.out.width.div_ceil(256), n, 1], 256, 0",
    "route": "[rows, 1, 1], 256, 4 * n",
    "group": "[1, 1, 1], n.next_multiple_of(32), 0",
    "combine": "[width.div_ceil(256), rows, 1], 256, 0",
    "best_of_parts": "[parts, rows, 1], 256, 0",
    "best_of_row": "[rows, 1, 1], 256, 0",
}
# Kernels that this model's passes do not launch: for other models, for drafts, for operations that stand alone.
ELSEWHERE = {"add_gated", "join_rows", "quantize", "masses_of_parts"}
# Constants of the backend that are used here: file, name, value.
CONSTANTS = [
    ("attention", "SEGMENT", 256), ("attention", "KEYS", 64), ("attention", "QUERIES", 64), ("delta", "COLUMNS", 32),
    ("delta", "CHANNELS", 256), ("norm", "PART", 4096), ("norm", "SPAN", 2048), ("norm", "NORM", 512), ("cut", "FEWEST", 4),
]  # fmt: skip
FORM = {256: {"q256", "d256", "sums256"}, 32: {"q32", "d32", "sums32"}}


class Ours:
    """Launches of a pass of this project's engine."""

    def __init__(self, shape, codes, kernels, overlap=0.0, context=512):
        """`codes`: {(file, variant): {kernel: code}}; `kernels`: the folder of their sources; `overlap`: see `model.distinct`;
        `context`: positions held before."""
        self.shape, self.codes, self.kernels, self.context = shape, codes, kernels, context
        self.products = Products(shape, codes, kernels, overlap)

    def kernel(self, file, name, grid, threads, values, bytes=0, shared=0, null=()):
        """A launch: `values` are the numbers by their parameters' names, `null` the pointers that are not given."""
        args = arguments(signatures(self.kernels / f"{file}.cu")[name], values, null)
        return Launch(name, self.codes[file, ""][name], (grid + (1, 1))[:3], (threads, 1), args, bytes, shared)

    def norm(self, n, forms, add=True, experts=False):
        """x += y, norm, and the int8 forms that the products behind it read; y may be the experts' sum, made on the way."""
        w, more = self.shape.width, self.mixture(n)
        null = unwanted(forms) | (set() if add else {"y"}) | (set() if experts else {"down", "shared"})
        moved = 20 * w * n + (more["moved"] if experts else 0)
        return self.kernel("rows", "rms_norm", (n,), 512, {**more["values"], "staged": 1, "eps": 1e-6}, moved, 4 * w, null)

    def mixture(self, n):
        """The experts' sum: its numbers, and bytes."""
        s = self.shape
        return {"values": {"width": s.width, "used": s.used, "bytes": 1}, "moved": 4 * s.width * (s.used + 4) * n}

    def swiglu(self, *sides):
        """Of rows of two widths: (rows, width, the form that the products behind them read) each."""
        (rows, width, form), (more, other, another) = sides
        grid = (-(-max(width, other) // 2048), rows + more)
        values = {"width0": width, "width1": other, "rows": rows}
        null = {f"{name}_{i}" for i, f in enumerate((form, another)) for name in unwanted({f})}
        parts = [Part(grid[0] * rows, (0, 0, 0)), Part(grid[0] * more, (0, rows, 0))]
        moved = 13 * (width * rows + other * more)
        return replace(self.kernel("rows", "swiglu", grid, 256, values, moved, 4 * 2048, null), parts=parts)

    def delta(self, layer, n):
        """A gated delta net."""
        s, mix, shapes = self.shape, formats(self.shape, layer), matrices(self.shape, layer)
        width, heads, keys = s.value_width, s.value_heads, s.key_heads * s.state_dim
        yield from self.products.dense(["attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta"], mix, shapes, n)
        # A pass of one row is kept whole: nothing is logged.
        values = {"rows": n, "channels": s.channels, "taps": s.taps, "key_width": keys, "key_dim": s.state_dim}
        grid = (-(-s.channels // (256 // s.state_dim * s.state_dim)),)
        moved = 4 * s.channels * (3 * n + 10)
        yield self.kernel("delta", "convolve", grid, 256, values, moved, null={"log", "log_k"} if n == 1 else ())
        values = {"rows": n, **self.heads(), "scale": 0.1}
        moved = 8 * heads * s.state_dim**2 + 4 * n * (s.channels + 2 * width)
        shared = 8 * (s.state_dim + n)
        null = {"log_delta", "log_decay"} if n == 1 else ()
        yield self.kernel("delta", "recur", (s.state_dim // 32, heads), 128, values, moved, shared, null)
        each = 256 // s.state_dim
        values = {"heads": heads, "dim": s.state_dim, "each": each, "eps": 1e-6}
        yield self.kernel("delta", "gated_norm", (heads // each, n), 32 * each, values, 13 * width * n, null=unwanted({256}))
        yield from self.products.dense(["ssm_out"], mix, shapes, n)

    def heads(self):
        s = self.shape
        return {"key_heads": s.key_heads, "value_heads": s.value_heads, "key_dim": s.state_dim, "value_dim": s.state_dim}

    def attention(self, layer, n):
        """Gated attention over `context` positions and the rows themselves."""
        s, mix, shapes = self.shape, formats(self.shape, layer), matrices(self.shape, layer)
        start, keys, dim, width = self.context, self.context + n, s.head_dim, s.attention_width
        group, segments = s.heads // s.kv_heads, -(-keys // 256)
        yield from self.products.dense(["attn_q", "attn_k", "attn_v"], mix, shapes, n)
        both = {"heads": s.heads, "dim": dim, "start": start}
        all = {**both, "kv_heads": s.kv_heads, "half": 1, "rows": n, "keys": keys, "segments": segments}
        values = {"rope_dim": 64, "eps": 1e-6, **all}
        yield self.kernel("attention", "rotate", (s.heads + s.kv_heads, n), 32, values, 12 * width * n)
        tile = max(1, min(4, 64 // group, (44 << 10) // (4 * group * dim)))
        grid = (-(-keys // 64), s.kv_heads, -(-n // tile))
        moved = 2 * keys * s.kv_heads * dim
        values = {"tile": tile, "scale": 0.1, **all}
        yield self.kernel("attention", "scores", grid, 256, values, moved * grid[2], 4 * tile * group * dim)
        yield self.kernel("attention", "weigh", (segments, s.kv_heads, n), 256, all, moved)
        yield self.kernel("attention", "attend", (width // 256, n), 256, all, 13 * width * n, null=unwanted({256}))
        yield from self.products.dense(["attn_output"], mix, shapes, n)

    def ffn(self, layer, n):
        """Router, routed experts, shared expert."""
        s, mix, shapes = self.shape, formats(self.shape, layer), matrices(self.shape, layer)
        yield from self.products.dense(["ffn_gate_inp"], mix, shapes, n)
        values = {"n": s.experts, "used": s.used, "renormalize": 1, "scale": 1.0, "alone": int(n == 1)}
        yield self.kernel("moe", "route", (n,), 256, values, 8 * s.experts * n, 4 * s.experts)
        if n > 1:
            values = {"pairs": n * s.used, "used": s.used}
            yield self.kernel("moe", "group", (1,), s.experts, values, 16 * n * s.used)
        yield from self.products.grouped(["ffn_gate_exps", "ffn_up_exps"], mix, shapes, n)
        yield from self.products.dense(["ffn_gate_shexp", "ffn_up_shexp"], mix, shapes, n)
        yield self.swiglu((n * s.used, s.ff, 256), (n, s.shared_ff, 32))
        yield from self.products.grouped(["ffn_down_exps"], mix, shapes, n)
        yield from self.products.dense(["ffn_down_shexp"], mix, shapes, n)

    def layer(self, layer, n):
        """Launches of a layer for n rows of one sequence; the last sum is left to the next layer's norm."""
        yield self.norm(n, {256}, add=layer > 0, experts=layer > 0)
        yield from self.delta(layer, n) if self.shape.recurrent(layer) else self.attention(layer, n)
        yield self.norm(n, {256, 32})
        yield from self.ffn(layer, n)

    def boundary(self, n):
        """The sums that no norm of the same die takes with it, before the rows go to the next die or are thinned out."""
        count, more = n * self.shape.width, self.mixture(n)
        yield self.kernel("rows", "combine", (self.shape.width // 256, n), 256, more["values"], more["moved"])
        yield self.kernel("rows", "add_rows", (count // 256,), 256, {"count": count}, 12 * count)

    def head(self, n):
        """The last sum, the wanted rows' copy, norm, output matrix and best tokens."""
        s = self.shape
        yield from self.boundary(n)
        yield Launch("copy", None, (0, 0, 0), (0, 0), [], 8 * s.width * n)
        yield self.norm(n, {256}, add=False)
        shapes = {"output": (s.vocab, s.width, 1)}
        yield from self.products.dense(["output"], {"output": "Q6_K"}, shapes, n)
        parts = -(-s.vocab // 4096)
        yield self.kernel("select", "best_of_parts", (parts, n), 256, {"n": s.vocab}, 4 * s.vocab * n)
        yield self.kernel("select", "best_of_row", (n,), 256, {"parts": parts})

    def rollback(self, layer, keep):
        """What a layer does when a pass keeps its first `keep` rows only."""
        s = self.shape
        if s.recurrent(layer):
            state = 8 * s.value_heads * s.state_dim**2
            values = {"rows": keep, **self.heads()}
            yield self.kernel("delta", "replay", (s.state_dim // 32, s.value_heads), 128, values, state)
            slots = s.taps - 1
            values = {"rows": keep, "channels": s.channels, "slots": slots}
            yield self.kernel("delta", "slide", (slots * s.channels // 256,), 256, values, 8 * slots * s.channels)


def unwanted(forms):
    """The addresses of int8 forms that are not given."""
    return {name for block, names in FORM.items() if block not in forms for name in names}
