//! Faults of the operations other than products, and of what all kernels share.
//!
//! Owns: the list. Refuses to know: how a fault is run.

use super::{Fault, On, fault};

const ROWS: On = On::plain(&[("rows", "")], &["row-wise operations, 9 x 2048"]);
/// Narrow enough for a gate that is neither open nor shut.
const NARROW: On = On::plain(&[("rows", "")], &["row-wise operations, 9 x 32", "row-wise operations, 9 x 96"]);
const FORMS: On = On::plain(&[("rows", "")], &["rows and their int8 forms"]);
const ATTENTION: On =
    On::plain(&[("attention", "")], &["attention 3 on 1, 40 wide, f16", "attention 3 on 1, 40 wide, f32"]);
const LONG: On = On::plain(&[("attention", "")], &["attention 3 on 1, 40 wide, f32, [520, 3]"]);
const ONWARD: On = On::plain(&[("attention", "")], &["attention 4 on 2, 64 wide, f16, [3, 1, 5]"]);
const GROUPED: On = On::plain(&[("attention", "")], &["attention 20 on 2, 32 wide, f16, [3, 1, 5]"]);
const DELTA: On =
    On::plain(&[("delta", "")], &["delta rule DeltaShape { key_heads: 2", "delta rule DeltaShape { key_heads: 1"]);
const ROUTES: On = On::plain(&[("moe", "")], &["8 of 256 experts, 17 rows, Q8_0", "3 of 300 experts, 40 rows, Q8_0"]);
const MIXTURE: On = On::plain(&[("rows", "")], &["8 of 256 experts, 17 rows, Q8_0", "3 of 300 experts, 40 rows, Q8_0"]);
const CROWD: On = On::plain(&[("moe", "")], &["8 of 64 experts, 130 rows"]);
const LARGEST: On = On::plain(&[("select", "")], &["the largest of"]);

pub const FAULTS: &[Fault] = &[
    // ---- rows.cu ----
    fault(
        "norm: the row's scale is computed before the row is there",
        ROWS.shuffled(),
        "rows.cu",
        ["    __syncthreads();\n    // Every warp computes", "    // Every warp computes"],
    ),
    fault(
        "norm: the row is overwritten before its scale is computed",
        ROWS.shuffled(),
        "rows.cu",
        ["width, eps);\n    __syncthreads();", "width, eps);"],
    ),
    fault(
        "norm: int8 forms are made before the row is there",
        FORMS.shuffled(),
        "rows.cu",
        [
            "        out[i] = v;\n        values[i] = v;\n    }\n    __syncthreads();",
            "        out[i] = v;\n        values[i] = v;\n    }",
        ],
    ),
    fault(
        "swiglu: int8 forms are made before the row is there",
        FORMS.shuffled(),
        "rows.cu",
        [
            "        gate[i] = v;\n        values[i] = v;\n    }\n    __syncthreads();",
            "        gate[i] = v;\n        values[i] = v;\n    }",
        ],
    ),
    fault(
        "norm: scale and weight are multiplied first",
        ROWS,
        "rows.cu",
        ["mul(mul(values[i], scale), weight[i])", "mul(values[i], mul(scale, weight[i]))"],
    ),
    fault(
        "swiglu: divided last",
        ROWS,
        "rows.cu",
        ["mul(silu(gate[i]), up[i])", "divide(mul(gate[i], up[i]), add(1.0f, exp_of(-gate[i])))"],
    ),
    fault(
        "shared gate: product and sum rounded one by one",
        NARROW,
        "rows.cu",
        [
            "fma(open, y[row * width + i], out[row * width + i])",
            "add(mul(open, y[row * width + i]), out[row * width + i])",
        ],
    ),
    fault("join: one element too many from the left", ROWS, "rows.cu", ["i < x_width ?", "i <= x_width ?"]),
    fault(
        "experts: ranks from the last to the first",
        MIXTURE,
        "rows.cu",
        [
            "u32 rank = row * used; rank < (row + 1) * used; rank++)",
            "u32 rank = (row + 1) * used; rank-- > row * used;)",
        ],
    ),
    fault(
        "experts: the bytes read are those of the last pass",
        MIXTURE,
        "rows.cu",
        ["        if (threadIdx.x == 0 && row == 0) read[0] +=", "        if (threadIdx.x == 0 && row == 0) read[0] ="],
    ),
    fault(
        "shared expert: product and sum rounded one by one",
        MIXTURE,
        "rows.cu",
        ["fma(open, shared[row * width + i], sum)", "add(mul(open, shared[row * width + i]), sum)"],
    ),
    fault(
        "experts: a norm that sums them does not write the sum",
        MIXTURE,
        "rows.cu",
        ["            if (down) y[row * width + i] = more;\n", ""],
    ),
    fault(
        "swiglu: the other rows begin where the first do",
        MIXTURE,
        "rows.cu",
        ["activate(blockIdx.y - rows,", "activate(blockIdx.y,"],
    ),
    // ---- attention.cu ----
    fault(
        "rotation: both products rounded",
        ATTENTION,
        "attention.cu",
        ["fma(a, c, -mul(b, s))", "sub(mul(a, c), mul(b, s))"],
    ),
    fault(
        "rotation: does not wait for the norm",
        ATTENTION.shuffled(),
        "attention.cu",
        ["scale), weight[i]);\n    __syncwarp(FULL);", "scale), weight[i]);"],
    ),
    fault(
        "rotation: the last pass's maxima are not taken back",
        ATTENTION,
        "attention.cu",
        ["if (lane() == 0) maxima[row * heads + head] = 0;", ""],
    ),
    fault(
        "scores: do not wait for the queries",
        ATTENTION.shuffled(),
        "attention.cu",
        ["dim + i % dim];\n    }\n    __syncthreads();", "dim + i % dim];\n    }"],
    ),
    fault(
        "scores: the maximum does not wait for all warps",
        ATTENTION.shuffled(),
        "attention.cu",
        [
            "    __syncthreads();\n    for (u32 which = threadIdx.x; which < count",
            "    for (u32 which = threadIdx.x; which < count",
        ],
    ),
    fault(
        "scores: a row sees the next key",
        ATTENTION,
        "attention.cu",
        ["if (key > start + row) continue;", "if (key > start + row + 1) continue;"],
    ),
    fault(
        "scores: scaled before the sum",
        ATTENTION,
        "attention.cu",
        ["mul(tree(sum), scale)", "tree(mul(sum, scale))"],
    ),
    fault(
        "weights: values do not wait for all weights",
        ATTENTION.shuffled(),
        "attention.cu",
        ["from + key], max));\n        }\n        __syncthreads();", "from + key], max));\n        }"],
    ),
    fault(
        "weights: the next heads do not wait for the last",
        GROUPED.shuffled(),
        "attention.cu",
        ["= sums[g];\n        }\n        __syncthreads();", "= sums[g];\n        }"],
    ),
    fault(
        "weights: the last key of a segment is left out",
        ATTENTION,
        "attention.cu",
        ["seen - from : SEGMENT;", "seen - from : SEGMENT - 1;"],
    ),
    fault(
        "sum: segments from the last to the first",
        LONG,
        "attention.cu",
        ["for (u32 s = 0; s < seen; s++) {\n            mass", "for (u32 s = seen; s-- > 0;) {\n            mass"],
    ),
    fault(
        "sum: multiplied by the gate before the division",
        ATTENTION,
        "attention.cu",
        [
            "mul(divide(sum, mass), sigmoid(q[head * 2 * dim + dim + d]))",
            "divide(mul(sum, sigmoid(q[head * 2 * dim + dim + d])), mass)",
        ],
    ),
    fault(
        "sum: int8 forms are made before the row is there",
        ONWARD.shuffled(),
        "attention.cu",
        ["column] = values[threadIdx.x];\n    }\n    __syncthreads();", "column] = values[threadIdx.x];\n    }"],
    ),
    // ---- delta.cu ----
    fault(
        "convolution: taps from the newest to the oldest",
        DELTA,
        "delta.cu",
        [
            "            if (t < taps) sum = fma(w[t], held[t], sum);\n        }",
            "        }\n        for (u32 t = taps; t-- > 0;) sum = fma(w[t], held[t], sum);",
        ],
    ),
    fault(
        "convolution: lengths do not wait for the row",
        DELTA.shuffled(),
        "delta.cu",
        ["mine[threadIdx.x] = v;\n        __syncthreads();", "mine[threadIdx.x] = v;"],
    ),
    fault(
        "convolution: the next row overwrites this one",
        DELTA.shuffled(),
        "delta.cu",
        ["values[row % 2]", "values[0]"],
    ),
    fault(
        "recurrence: quarters in another order",
        DELTA,
        "delta.cu",
        [
            "v, 8));\n    return add(v, __shfl_xor_sync(FULL, v, 16));",
            "v, 16));\n    return add(v, __shfl_xor_sync(FULL, v, 8));",
        ],
    ),
    fault(
        "recurrence: the next row's keys do not wait",
        DELTA.shuffled(),
        "delta.cu",
        ["row * channels;\n        __syncthreads();", "row * channels;"],
    ),
    fault(
        "recurrence: does not wait for the row's keys",
        DELTA.shuffled(),
        "delta.cu",
        [
            "k[i] = x[key_heads * key_dim + key_at + i];\n        }\n        __syncthreads();",
            "k[i] = x[key_heads * key_dim + key_at + i];\n        }",
        ],
    ),
    fault(
        "recurrence: one rounding fewer in delta",
        DELTA,
        "delta.cu",
        [
            "float delta = mul(sub(v, quarters(read)), rate), out = 0.0f;",
            "float delta = fma(v, rate, -mul(quarters(read), rate)), out = 0.0f;",
        ],
    ),
    fault(
        "recurrence: goes on from tentative S, not from kept S",
        DELTA,
        "delta.cu",
        ["inside && i < quarter ? s_in[at", "inside && i < quarter ? s_out[at"],
    ),
    fault(
        "rollback: the replay skips the decay",
        DELTA,
        "delta.cu",
        ["fma(k[i], delta, mul(s[i], decay))", "fma(k[i], delta, s[i])"],
    ),
    fault(
        "rollback: the replay rounds the update, not the decay",
        DELTA,
        "delta.cu",
        ["fma(k[i], delta, mul(s[i], decay))", "fma(s[i], decay, mul(k[i], delta))"],
    ),
    fault(
        "rollback: the replay leaves out the last row",
        DELTA,
        "delta.cu",
        [
            "row < rows; row++) {\n        const float *k = log_k",
            "row + 1 < rows; row++) {\n        const float *k = log_k",
        ],
    ),
    fault(
        "rollback: the replay starts from tentative S",
        DELTA,
        "delta.cu",
        ["s[i] = i < quarter ? s_in[at", "s[i] = i < quarter ? s_out[at"],
    ),
    fault(
        "rollback: the window keeps a rejected row",
        DELTA,
        "delta.cu",
        ["u32 from = rows + slot;", "u32 from = rows + slot + 1;"],
    ),
    fault(
        "gated norm: the gate times the weight first",
        DELTA,
        "delta.cu",
        [
            "mul(mul(mul(y[at + i], scale), weight[i]), silu(z[at + i]))",
            "mul(mul(y[at + i], scale), mul(weight[i], silu(z[at + i])))",
        ],
    ),
    fault(
        "gated norm: int8 forms are made before the row is there",
        DELTA.shuffled(),
        "delta.cu",
        ["silu(z[at + i]));\n    }\n    __syncthreads();", "silu(z[at + i]));\n    }"],
    ),
    fault(
        "gated norm: one head of a block too few",
        DELTA,
        "delta.cu",
        ["count = min(heads - first, each)", "count = min(heads - first, each - 1)"],
    ),
    // ---- moe.cu ----
    fault(
        "router: of equal experts of a thread the last",
        ROUTES,
        "moe.cu",
        ["if (word > mine) mine", "if (word >= mine) mine"],
    ),
    fault(
        "router: of equal experts of a warp the last",
        ROUTES,
        "moe.cu",
        ["~warp_max(mine == most ? ~where : 0)", "warp_max(mine == most ? where : 0)"],
    ),
    fault(
        "router: the next choice does not wait for the last",
        ROUTES.shuffled(),
        "moe.cu",
        ["p[chosen] = -1.0f;\n            }\n            __syncwarp(FULL);", "p[chosen] = -1.0f;\n            }"],
    ),
    fault(
        "router: multiplied by the reciprocal of the sum",
        ROUTES,
        "moe.cu",
        [
            "renormalize ? divide(weight, shared_sum) : weight",
            "renormalize ? mul(weight, divide(1.0f, shared_sum)) : weight",
        ],
    ),
    fault(
        "router: the sum is not waited for",
        ROUTES.shuffled(),
        "moe.cu",
        ["    __syncthreads();\n    for (u32 rank = row * used", "    for (u32 rank = row * used"],
    ),
    fault(
        "grouping: sums over experts do not wait",
        ROUTES.shuffled(),
        "moe.cu",
        ["? groups_before[e - step] : 0;\n        __syncthreads();", "? groups_before[e - step] : 0;"],
    ),
    fault(
        "grouping: counts before the pairs are there",
        ROUTES.shuffled(),
        "moe.cu",
        [
            "experts[from + e];\n        __syncthreads();\n        for (u32 i = 0; i < end; i++) mine",
            "experts[from + e];\n        for (u32 i = 0; i < end; i++) mine",
        ],
    ),
    fault("grouping: later pairs enter as earlier rows", CROWD, "moe.cu", ["(from + i) / used", "i / used"]),
    // ---- select.cu ----
    fault(
        "argmax: of equal elements the last",
        LARGEST,
        "select.cu",
        ["(other == word && where < at)", "(other == word && where > at)"],
    ),
    fault(
        "argmax: does not wait for all warps",
        LARGEST.shuffled(),
        "select.cu",
        ["places[threadIdx.x / WARP] = at;\n    __syncthreads();", "places[threadIdx.x / WARP] = at;"],
    ),
    fault(
        "argmax: the last element of a part is left out",
        LARGEST,
        "select.cu",
        ["n ? from + PART : n, word = 0", "n ? from + PART - 1 : n, word = 0"],
    ),
    fault(
        "argmax: zero is above minus zero",
        LARGEST,
        "select.cu",
        ["ordered(add(x[(u64)blockIdx.y * n + i], 0.0f))", "ordered(x[(u64)blockIdx.y * n + i])"],
    ),
    fault(
        "argmax: minus infinity is above NaN",
        LARGEST,
        "select.cu",
        ["word <= ordered(__uint_as_float(0xff800000u)) ? 0 : at", "at"],
    ),
    // ---- canon.cuh ----
    fault(
        "dot product: elements from the last to the first",
        ROWS,
        "canon.cuh",
        ["for (u32 k = 0; k < 8; k++) sum = fma(", "for (u32 k = 8; k-- > 0;) sum = fma("],
    ),
    fault(
        "sum: elements from the last to the first",
        ATTENTION,
        "canon.cuh",
        [
            "for (u32 i = lane(); i < n; i += WARP) sum = add",
            "for (u32 k = (n + WARP - 1) / WARP, i; k-- > 0;) if ((i = k * WARP + lane()) < n) sum = add",
        ],
    ),
    fault(
        "rsqrt: the root of the reciprocal",
        ROWS,
        "canon.cuh",
        ["divide(1.0f, __fsqrt_rn(x))", "__fsqrt_rn(divide(1.0f, x))"],
    ),
    fault(
        "silu: multiplied by the sigmoid",
        ROWS,
        "canon.cuh",
        ["return divide(x, add(1.0f, exp_of(-x)));", "return mul(x, sigmoid(x));"],
    ),
    fault(
        "exp: a term rounded twice",
        ROWS,
        "canon.cuh",
        ["p = fma(p, r, 0.49999994f);", "p = add(mul(p, r), 0.49999994f);"],
    ),
    // ---- forms.cuh ----
    fault(
        "int8: the last block of 256 of a row is left out",
        FORMS,
        "forms.cuh",
        ["at = warp * 256; at < count;", "at = warp * 256; at + 256 < count;"],
    ),
    fault(
        "int8: the last block of 32 of a row is left out",
        FORMS,
        "forms.cuh",
        ["at = warp * 32; at < count;", "at = warp * 32; at + 32 < count;"],
    ),
    // ---- quant.cuh ----
    fault(
        "int8: the scale by a reciprocal",
        FORMS,
        "quant.cuh",
        [
            "(i16)sum;\n    if (lane() == 0) d[0] = divide(amax, 127.0f);",
            "(i16)sum;\n    if (lane() == 0) d[0] = mul(amax, divide(1.0f, 127.0f));",
        ],
    ),
    fault("int8: sums of 8 instead of 16", FORMS, "quant.cuh", ["sum += __shfl_xor_sync(FULL, sum, 1);", ""]),
    fault(
        "int8: sums of 32 instead of 16",
        FORMS,
        "quant.cuh",
        ["for (int half = 8; half > 0; half /= 2) v +=", "for (int half = 16; half > 0; half /= 2) v +="],
    ),
    // ---- warp.cuh ----
    fault(
        "tree: from neighbours outwards",
        ROWS,
        "warp.cuh",
        [
            "for (int half = 16; half > 0; half /= 2) v = __fadd_rn(",
            "for (int half = 1; half < WARP; half *= 2) v = __fadd_rn(",
        ],
    ),
    fault(
        "tree: only lane 0 has the sum",
        ROWS,
        "warp.cuh",
        ["v = __fadd_rn(v, __shfl_xor_sync(FULL, v, half));", "v = __fadd_rn(v, __shfl_down_sync(FULL, v, half));"],
    ),
    fault("order: NaN is above everything", LARGEST, "warp.cuh", ["return v != v ? 0u : word;", "return word;"]),
];
