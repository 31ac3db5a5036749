"""The engine that the seed document describes, launch by launch.

Owns: its sequence, as far as the document gives it; what it does not give is marked as guessed. Refuses to know: what
launches cost.
"""

from launch import Launch
from model import formats, matrices

# Bytes of 32 or 256 weights as repacked: a word of codes a lane, scales unpacked to bytes, d as singles.
REPACKED = {"Q3_K": 148, "Q4_K": 152, "Q5_K": 184, "Q6_K": 216, "Q8_0": 288, "F32": 1024}
CHUNK = 2048


class Seed:
    """Launches of a pass of the described engine."""

    def __init__(self, shape, single, four):
        """`single`, `four`: its kernels for one activation row and for tiles of four."""
        self.shape, self.codes = shape, {1: single, 4: four}

    def product(self, name, format, rows, cols, n):
        columns = 1 if n == 1 else 4
        tiles = -(-n // columns)
        code = self.codes[columns][f"product_{format}"]
        moved = rows * cols // 256 * REPACKED[format] * tiles
        args = [("ptr", k) for k in range(6)] + [cols, rows]
        return Launch(name, code, (-(-rows // 8), tiles, 1), (256, 1), args, moved, columns * CHUNK * 4, rows * cols * n)

    def small(self, name, moved):
        """A tiny kernel, of which only its bytes count besides its launch."""
        return Launch(name, None, (0, 0, 0), (0, 0), [], moved)

    def experts(self, mix, n):
        s, codes = self.shape, self.codes[1]
        pair = s.ff * s.width // 256 * REPACKED["Q3_K"] * 2
        args = [("ptr", k) for k in range(10)] + [s.width, s.ff, s.used]
        yield Launch("gate_up", codes["gate_up_Q3_K"], (s.ff // 8, s.used * n, 1), (256, 1), args, pair * s.used * n, CHUNK * 4,
                     2 * s.ff * s.width * s.used * n)  # fmt: skip
        down = mix["ffn_down_exps"]
        moved = s.width * s.ff // 256 * REPACKED[down] * s.used * n
        args = [("ptr", k) for k in range(8)] + [s.ff, s.width, s.used]
        yield Launch("down", codes[f"down_{down}"], (s.width // 8, n, 1), (256, 1), args, moved, CHUNK * 4,
                     s.width * s.ff * s.used * n)  # fmt: skip

    def layer(self, layer, n):
        """Launches of a layer for n rows of one sequence."""
        s, mix, row = self.shape, formats(self.shape, layer), 4 * self.shape.width * n
        shapes = matrices(s, layer)
        product = lambda name: self.product(name, mix[name], *shapes[name][:2], n)
        yield self.small("norm", 2 * row)
        if s.recurrent(layer):
            for name in ("attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta"):
                yield product(name)
            yield self.small("conv", 8 * s.channels * n)
            yield self.small("delta", 8 * s.value_heads * s.state_dim**2)
            yield self.small("gated norm", 12 * s.value_width * n)
            yield product("ssm_out")
        else:
            for name in ("attn_q", "attn_k", "attn_v"):
                yield product(name)
            yield self.small("q norm, k norm, rope", 4 * s.attention_width * n)
            yield product("attn_output")
        yield self.small("add", 3 * row)
        yield self.small("norm", 2 * row)
        yield product("ffn_gate_inp")
        yield self.small("top k", 0)
        yield from self.experts(mix, n)
        for name in ("ffn_gate_shexp", "ffn_up_shexp"):
            yield product(name)
        yield self.small("swiglu", 0)
        yield product("ffn_down_shexp")
        yield self.small("add gated", 3 * row)
        yield self.small("add", 3 * row)

    def boundary(self, _):
        """Nothing between the dies but the rows' way."""
        return ()

    def head(self, n):
        yield self.small("norm", 0)
        yield self.product("output", "Q6_K", self.shape.vocab, self.shape.width, n)

    def host(self, n):
        """Attention on the host, guessed: a copy there and back a layer, and 150 us a row and layer."""
        return self.shape.layers // self.shape.interval * (60e-6 + 150e-6 * n)
