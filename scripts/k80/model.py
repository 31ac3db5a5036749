"""The model whose passes are predicted: its matrices, their formats in a file of mixed 3 bits, which experts rows choose.

Owns: Qwen3.5-35B-A3B's dimensions and the rule by which such files are mixed. Refuses to know: kernels and devices.
"""

from dataclasses import dataclass

WEIGHTS = {"Q3_K": 256, "Q4_K": 256, "Q5_K": 256, "Q6_K": 256, "Q8_0": 32, "F32": 1}
BYTES = {"Q3_K": 110, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210, "Q8_0": 34, "F32": 4}


@dataclass(frozen=True)
class Shape:
    """Dimensions, as in the model's published configuration."""

    layers: int = 40
    interval: int = 4
    width: int = 2048
    heads: int = 16
    kv_heads: int = 2
    head_dim: int = 256
    key_heads: int = 16
    value_heads: int = 32
    state_dim: int = 128
    taps: int = 4
    experts: int = 256
    used: int = 8
    ff: int = 512
    shared_ff: int = 512
    vocab: int = 248320

    @property
    def channels(self):
        return (2 * self.key_heads + self.value_heads) * self.state_dim

    @property
    def value_width(self):
        return self.value_heads * self.state_dim

    @property
    def attention_width(self):
        return self.heads * self.head_dim

    def recurrent(self, layer):
        return (layer + 1) % self.interval != 0


def more_bits(layer, layers):
    """The layers to which the rule gives more bits: the first and last eighth, and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def formats(shape, layer):
    """Format of each matrix of a layer: the 3-bit medium mix; what is small stays Q8_0 or F32."""
    attention = sum(not shape.recurrent(i) for i in range(layer))
    down = "Q5_K" if layer < shape.layers // 16 else "Q4_K" if more_bits(layer, shape.layers) else "Q3_K"
    return {
        "attn_qkv": "Q4_K", "attn_gate": "Q3_K", "ssm_alpha": "F32", "ssm_beta": "F32", "ssm_out": "Q3_K",
        "attn_q": "Q3_K", "attn_k": "Q3_K", "attn_v": "Q5_K" if attention < 2 else "Q4_K", "attn_output": "Q4_K",
        "ffn_gate_inp": "F32", "ffn_gate_exps": "Q3_K", "ffn_up_exps": "Q3_K", "ffn_down_exps": down,
        "ffn_gate_shexp": "Q8_0", "ffn_up_shexp": "Q8_0", "ffn_down_shexp": "Q8_0",
    }  # fmt: skip


def matrices(shape, layer):
    """(rows, cols, count) of each matrix of a layer."""
    w, s = shape.width, shape
    ffn = {
        "ffn_gate_inp": (s.experts, w, 1), "ffn_gate_exps": (s.ff, w, s.experts), "ffn_up_exps": (s.ff, w, s.experts),
        "ffn_down_exps": (w, s.ff, s.experts), "ffn_gate_shexp": (s.shared_ff, w, 1), "ffn_up_shexp": (s.shared_ff, w, 1),
        "ffn_down_shexp": (w, s.shared_ff, 1),
    }  # fmt: skip
    if shape.recurrent(layer):
        return {
            "attn_qkv": (s.channels, w, 1), "attn_gate": (s.value_width, w, 1), "ssm_alpha": (s.value_heads, w, 1),
            "ssm_beta": (s.value_heads, w, 1), "ssm_out": (w, s.value_width, 1), **ffn,
        }  # fmt: skip
    kv = s.kv_heads * s.head_dim
    return {
        "attn_q": (2 * s.attention_width, w, 1), "attn_k": (kv, w, 1), "attn_v": (kv, w, 1),
        "attn_output": (w, s.attention_width, 1), **ffn,
    }  # fmt: skip


def size(format, rows, cols):
    """Bytes of a matrix in the file."""
    return rows * cols // WEIGHTS[format] * BYTES[format]


def layer_bytes(shape, layer):
    """Bytes of a layer's weights in the file, and of those that a pass of one row reads."""
    mix, held, read = formats(shape, layer), 0, 0
    for name, (rows, cols, count) in matrices(shape, layer).items():
        one = size(mix[name], rows, cols)
        held += one * count
        read += one * (shape.used if count > 1 else 1)
    return held, read


def file_bytes(shape):
    """The same of the whole file; embeddings are looked up."""
    held, read = (sum(part) for part in zip(*(layer_bytes(shape, layer) for layer in range(shape.layers))))
    head = size("Q6_K", shape.vocab, shape.width)
    return held + head + size("Q3_K", shape.vocab, shape.width), read + head


def distinct(shape, rows, overlap=0.0):
    """Experts that some row chose: rows choosing at random, or less where neighbours share (`overlap` of all choices)."""
    random = shape.experts * (1 - (1 - shape.used / shape.experts) ** rows)
    return shape.used + (random - shape.used) * (1 - overlap)
