"""This project's CUDA backend, launch by launch.

Owns: its sequence of kernels, their grids and arguments, as the backend launches them. Refuses to know: what launches cost.
"""

import math

from launch import Launch, Part
from model import formats, matrices
from product import Products

P = lambda n: [("ptr", k) for k in range(n)]


class Ours:
    """Launches of a pass of this project's engine."""

    def __init__(self, shape, codes, overlap=0.0, context=512):
        """`codes`: {(file, variant): {kernel: code}}; `overlap`: see `model.distinct`; `context`: positions held before."""
        self.shape, self.codes, self.context = shape, codes, context
        self.products = Products(shape, codes, overlap)

    def kernel(self, file, name, grid, threads, args, bytes=0, shared=0, label=None):
        code = self.codes[file, ""][name]
        grid = (grid + (1, 1, 1))[:3] if isinstance(grid, tuple) else (grid, 1, 1)
        return Launch(label or name, code, grid, (threads, 1), args, bytes, shared)

    def norm(self, n, form):
        """x += y, norm, and the int8 forms that follow need (`form`: the pointers that are given)."""
        w = self.shape.width
        pointers = [("ptr", k + 6) if k in form else ("null",) for k in range(6)]
        args = [("ptr", 0), ("ptr", 1), ("ptr", 2), ("ptr", 3), w, 1e-6, *pointers]
        return self.kernel("rows", "rms_norm", n, 256, args, 20 * w * n, 4 * w)

    def forms(self, wide, narrow):
        """The six pointers of a row's int8 forms."""
        return [("ptr", 10 + k) if wide else ("null",) for k in range(3)] + [("ptr", 13 + k) if narrow else ("null",) for k in range(3)]

    def rows_kernel(self, name, n, args, width, shared=0):
        return self.kernel("rows", name, n, 256, args, 13 * width * n, shared)

    def delta(self, layer, n):
        """A gated delta net."""
        s, mix, shapes = self.shape, formats(self.shape, layer), matrices(self.shape, layer)
        width, heads = s.value_width, s.value_heads
        yield from self.products.dense(["attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta"], mix, shapes, n)
        args = [*P(6), n, s.channels, s.taps]
        yield self.kernel("delta", "convolve", s.channels // 256, 256, args, 4 * s.channels * (3 * n + 10))
        args = [*P(2), s.key_heads, s.state_dim, s.channels]
        yield self.kernel("delta", "normalize", (2 * s.key_heads, n), 32, args, 8 * 2 * s.key_heads * s.state_dim * n)
        args = [*P(10), n, s.key_heads, heads, s.state_dim, s.state_dim, 0.1]
        moved = 8 * heads * s.state_dim**2 + 4 * n * (s.channels + 2 * width)
        shared = 4 * 2 * (s.state_dim + n)
        yield self.kernel("delta", "recur", (s.state_dim // 32, heads), 128, args, moved, shared)
        args = [*P(4), heads, s.state_dim, 1e-6]
        yield self.kernel("delta", "gated_norm", (heads, n), 32, args, 12 * width * n)
        yield self.rows_kernel("quantize", n, [("ptr", 0), width, *self.forms(True, False)], width)
        yield from self.products.dense(["ssm_out"], mix, shapes, n)

    def attention(self, layer, n):
        """Gated attention over `context` positions and the rows themselves."""
        s, mix, shapes = self.shape, formats(self.shape, layer), matrices(self.shape, layer)
        start, keys, dim = self.context, self.context + n, s.head_dim
        segments = -(-keys // 256)
        yield from self.products.dense(["attn_q", "attn_k", "attn_v"], mix, shapes, n)
        args = [*P(9), s.heads, s.kv_heads, dim, 64, start, 1, 1e-6]
        yield self.kernel("attention", "rotate", (s.heads + s.kv_heads, n), 32, args, 12 * s.attention_width * n)
        tile = max(1, min(n, 12288 // (s.heads // s.kv_heads * dim)))
        args = [*P(4), s.heads, s.kv_heads, dim, start, n, tile, keys, 1, 0.1]
        grid = (-(-keys // 64), s.kv_heads, -(-n // tile))
        moved = 2 * keys * s.kv_heads * dim * grid[2]
        yield self.kernel("attention", "scores", grid, 256, args, moved, 4 * tile * s.heads // s.kv_heads * dim)
        args = [*P(5), s.heads, s.kv_heads, dim, start, keys, segments, 1]
        yield self.kernel("attention", "weigh", (segments, s.kv_heads, n), 256, args, 2 * keys * s.kv_heads * dim)
        args = [*P(4), s.heads, dim, start, segments]
        yield self.kernel("attention", "attend", (s.heads, n), 256, args, 12 * s.attention_width * n)
        width = s.attention_width
        yield self.rows_kernel("quantize", n, [("ptr", 0), width, *self.forms(True, False)], width)
        yield from self.products.dense(["attn_output"], mix, shapes, n)

    def ffn(self, layer, n):
        """Router, routed experts, shared expert."""
        s, mix, shapes = self.shape, formats(self.shape, layer), matrices(self.shape, layer)
        yield from self.products.dense(["ffn_gate_inp"], mix, shapes, n)
        args = [*P(7), s.experts, s.used, 1, 1.0, int(n == 1)]
        yield self.kernel("moe", "route", n, 256, args, 8 * s.experts * n, 4 * s.experts)
        if n > 1:
            args = [*P(5), n * s.used, s.used]
            yield self.kernel("moe", "group", 1, 1024, args, 16 * n * s.used)
        yield from self.products.grouped(["ffn_gate_exps", "ffn_up_exps"], mix, shapes, n)
        args = [*P(2), s.ff, *self.forms(True, False)]
        yield self.rows_kernel("swiglu", n * s.used, args, s.ff, 4 * s.ff)
        yield from self.products.grouped(["ffn_down_exps"], mix, shapes, n)
        args = [*P(6), s.width, s.used, 1]
        yield self.kernel("moe", "combine", (s.width // 256, n), 256, args, 4 * s.width * (s.used + 1) * n)
        yield from self.products.dense(["ffn_gate_shexp", "ffn_up_shexp"], mix, shapes, n)
        yield self.rows_kernel("swiglu", n, [*P(2), s.shared_ff, *self.forms(False, True)], s.shared_ff, 4 * s.shared_ff)
        yield from self.products.dense(["ffn_down_shexp"], mix, shapes, n)
        args = [*P(4), s.width, s.width]
        yield self.kernel("rows", "add_gated", n, 256, args, 16 * s.width * n)

    def layer(self, layer, n):
        """Launches of a layer for n rows of one sequence."""
        yield self.norm(n, range(3))
        yield from self.delta(layer, n) if self.shape.recurrent(layer) else self.attention(layer, n)
        yield self.norm(n, range(6))
        yield from self.ffn(layer, n)

    def head(self, n):
        """Norm, output matrix and best tokens."""
        s = self.shape
        yield self.norm(n, range(3))
        shapes = {"output": (s.vocab, s.width, 1)}
        yield from self.products.dense(["output"], {"output": "Q6_K"}, shapes, n)
        parts = -(-s.vocab // 4096)
        yield self.kernel("select", "best_of_parts", (parts, n), 256, [*P(3), s.vocab], 4 * s.vocab * n)
        yield self.kernel("select", "best_of_row", n, 256, [*P(3), parts])
