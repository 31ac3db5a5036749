//! Faults of the matrix products. A row for each kernel file that multiplies: its units, the architecture that takes it.
//!
//! Owns: the list. Refuses to know: how a fault is run.

use super::{Fault, On, fault};

const FLOAT: On = On::plain(&[("product_float", "Q4_K")], &["Q4_K product, 9 blocks"]);
const FLOAT_SMALL: On = On::plain(&[("product_float", "Q4_1")], &["Q4_1 product, 9 blocks"]);
const FLOAT_CENTRED: On = On::plain(&[("product_float", "Q6_K")], &["Q6_K product, 9 blocks"]);
const ONE_TILE: On = On::plain(&[("product_float", "Q4_K")], &["Q4_K product, 1 blocks, 31 outputs, 2 rows"]);
const DP4A: On = On::plain(&[("product_dp4a", "Q6_K")], &["Q6_K product, 9 blocks"]).on(61);
const MMA: On = On::plain(&[("product_mma", "Q6_K")], &["Q6_K product, 9 blocks"]).on(80);
const MMA_SMALL: On = On::plain(&[("product_mma", "Q5_0")], &["Q5_0 product, 9 blocks"]).on(80);
const WIDE: On = On::plain(&[("product_wide", "BF16")], &["BF16 product, 9 blocks"]);

pub const FAULTS: &[Fault] = &[
    // ---- product.cuh ----
    fault(
        "product: the chain does not wait for all blocks",
        FLOAT.shuffled(),
        "product.cuh",
        ["        __syncthreads();\n        if (split == 3) {", "        if (split == 3) {"],
    ),
    fault(
        "product: the next turn does not wait for the chain",
        FLOAT.shuffled(),
        "product.cuh",
        [
            "            }\n        }\n        __syncthreads();\n    }\n}\n\n// The block's matrix",
            "            }\n        }\n    }\n}\n\n// The block's matrix",
        ],
    ),
    fault(
        "product: rows that enter are not waited for",
        FLOAT.shuffled(),
        "product.cuh",
        [": in.place + threadIdx.x;\n        __syncthreads();", ": in.place + threadIdx.x;"],
    ),
    fault(
        "product: staged activations are not waited for",
        FLOAT.shuffled(),
        "product.cuh",
        ["staged.store(area);\n        __syncwarp();", "staged.store(area);"],
    ),
    fault(
        "product: staged anew while others read",
        FLOAT.shuffled(),
        "product.cuh",
        ["            if ((k + UNROLL) % STEP == 0) __syncwarp();", ""],
    ),
    fault(
        "product: a link is rounded twice",
        FLOAT,
        "product.cuh",
        ["acc = fma(scale[b], some[b], acc);", "acc = add(mul(scale[b], some[b]), acc);"],
    ),
    fault(
        "product: each turn begins a chain of its own",
        FLOAT,
        "product.cuh",
        ["chain.run(end, acc[j])", "chain.run(end, 0.0f)"],
    ),
    fault(
        "product: a tile behind the last is read",
        ONE_TILE,
        "product.cuh",
        ["(u64)min(tile + v, tiles - 1)", "(u64)(tile + v)"],
    ),
    fault(
        "product: the last rows' set is not counted",
        FLOAT,
        "product.cuh",
        ["(rows + (1u << shift) - 1) >> shift", "rows >> shift"],
    ),
    // ---- quant.cuh ----
    fault(
        "float product: sums leave what a single holds exactly",
        FLOAT,
        "quant.cuh",
        ["FORMAT(Q4_K, NIBBLES, 256, 32, 4, 0, 2, 4, 0, 1, 4)", "FORMAT(Q4_K, NIBBLES, 256, 32, 4, 0, 2, 4, 0, 1, 8)"],
    ),
    fault(
        "float product: sums of two groups of Q6_K in a single",
        FLOAT_CENTRED,
        "quant.cuh",
        ["FORMAT(Q6_K, SIX, 256, 16, 4, 2, 2, 2, 32, 0, 1)", "FORMAT(Q6_K, SIX, 256, 16, 4, 2, 2, 2, 32, 0, 2)"],
    ),
    fault(
        "weights: the minimum of the wrong byte",
        FLOAT,
        "quant.cuh",
        ["return (i32)(u8)(scales >> 8);", "return (i32)(u8)scales;"],
    ),
    // ---- product_float.cu ----
    fault(
        "float product: the last activations of a row are left out",
        FLOAT,
        "product_float.cu",
        ["n < in.rows && k < width", "n < in.rows && k + 8 < width"],
    ),
    fault(
        "float product: what was carried over stays",
        FLOAT,
        "product_float.cu",
        [
            "whole += __float2int_rn(mul(some, 1.0f / UNIT));\n            some = 0.0f;",
            "whole += __float2int_rn(mul(some, 1.0f / UNIT));",
        ],
    ),
    fault(
        "float product: the centre stays in",
        FLOAT_CENTRED,
        "product_float.cu",
        ["? sums[n] : 0.0f", "? 0.0f : 0.0f"],
    ),
    fault(
        "float product: small blocks' nibbles at the wrong place",
        FLOAT_SMALL,
        "product_float.cu",
        ["{0, 8, 16, 8, 4, 12, 4, 12}", "{0, 8, 16, 8, 4, 12, 12, 4}"],
    ),
    // ---- product_dp4a.cu ----
    fault(
        "dp4a product: sums in singles",
        DP4A,
        "product_dp4a.cu",
        ["{ sum += scale * i; }", "{ sum = (i32)fma((float)scale, (float)i, (float)sum); }"],
    ),
    fault(
        "dp4a product: the last activations of a row are left out",
        DP4A,
        "product_dp4a.cu",
        ["n < in.rows && k < width", "n < in.rows && k + 16 < width"],
    ),
    fault("dp4a product: the centre stays in", DP4A, "product_dp4a.cu", ["centre() != 0.0f ? (i32)sums[n] : 0", "0"]),
    // ---- product_mma.cu ----
    fault(
        "tensor product: the other half of a sub-block",
        MMA,
        "product_mma.cu",
        ["lane() % 4 / 2 == sub", "lane() % 2 == sub"],
    ),
    fault(
        "tensor product: a neighbour's centre",
        MMA,
        "product_mma.cu",
        ["d[1] = d[3] = (i32)first.y;", "d[1] = d[3] = (i32)first.x;"],
    ),
    fault(
        "tensor product: sums are not waited for",
        MMA_SMALL.shuffled(),
        "product_mma.cu",
        [
            "        __syncwarp();\n        Places<N> places(in);\n#pragma unroll 1",
            "        Places<N> places(in);\n#pragma unroll 1",
        ],
    ),
    fault(
        "tensor product: sums of a block of 256 are not waited for",
        MMA.shuffled(),
        "product_mma.cu",
        [
            "        __syncwarp();\n        Places<N> places(in);\n        float *record",
            "        Places<N> places(in);\n        float *record",
        ],
    ),
    fault(
        "tensor product: a record takes the place of sums that are still read",
        MMA,
        "product_mma.cu",
        ["float *record = area + RECORDS;\n        Heads", "float *record = area;\n        Heads"],
    ),
    fault(
        "tensor product: the first sixteen rows twice",
        MMA,
        "product_mma.cu",
        ["load_part(at, 16 * h + lane() / 4 + 8 * k", "load_part(at, lane() / 4 + 8 * k"],
    ),
    fault(
        "tensor product: weight rows 8 to 15 in the place of 16 to 23",
        MMA_SMALL,
        "product_mma.cu",
        ["16 * h + i / 2 * 8 + lane() / 4]", "8 * h + i / 2 * 16 + lane() / 4]"],
    ),
    // ---- product_wide.cu ----
    fault(
        "wide product: product and sum rounded one by one",
        WIDE,
        "product_wide.cu",
        ["fma(weight[u][v], value[u][n], acc[v][n])", "add(mul(weight[u][v], value[u][n]), acc[v][n])"],
    ),
    fault(
        "wide product: weights from the last to the first",
        WIDE,
        "product_wide.cu",
        ["    for (int u = 0; u < U; u++)\n#pragma unroll", "    for (int u = U; u-- > 0;)\n#pragma unroll"],
    ),
    fault(
        "wide product: a row behind the last is read",
        WIDE,
        "product_wide.cu",
        ["min(row + v, m.rows - 1)", "min(row + v, m.rows)"],
    ),
    fault(
        "wide product: the last rows are left out",
        WIDE,
        "product_wide.cu",
        ["(rows + per - 1) / per", "rows / per"],
    ),
    fault("wide product: four of eight places", WIDE, "product_wide.cu", ["there <= 4", "there <= 8"]),
];
