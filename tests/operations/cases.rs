//! The cases.
//!
//! Owns: which shapes are tried, at the sizes where an operation changes its way. Refuses to know: devices.

#[path = "works.rs"]
mod works;

use verbatim::backend::cpu::Cpu;
use verbatim::backend::cuda::Cuda;
use verbatim::backend::{AttentionShape, DeltaShape, KvFormat};
use verbatim::quant::Format;

use works::{Attend, Formed, Largest, Product, Recur, Reload, Route, RowWise, Work};

/// What a case gives on a device, as bits.
pub type On<D> = Box<dyn Fn(&D) -> Vec<u32>>;

/// A case on both kinds of devices.
pub struct Case {
    pub name: String,
    pub on_cpu: On<Cpu>,
    pub on_cuda: On<Cuda>,
}

fn case<W: Work>(work: W) -> Case {
    let (name, other) = (work.name(), work.clone());
    Case { name, on_cpu: Box::new(move |cpu| work.on(cpu)), on_cuda: Box::new(move |cuda| other.on(cuda)) }
}

/// All cases.
pub fn all() -> Vec<Case> {
    let mut all = Vec::new();
    for (width, rows) in [32, 96, 256, 2048].into_iter().flat_map(|width| [1, 2, 9].map(|rows| (width, rows))) {
        all.push(case(RowWise { width, rows }));
    }
    all.extend([(256, 1), (2304, 3)].map(|(width, rows)| case(Formed { width, rows })));
    all.extend([(256, 1), (96, 9)].map(|(width, rows)| case(Reload { width, rows })));
    all.extend([1, 4095, 4096, 4097, 10_000].map(|n| case(Largest { n })));
    for format in FORMATS {
        for (rows, n) in [(1, 1), (31, 2), (33, 3), (64, 5), (40, 8), (96, 17), (32, 33)] {
            for &blocks in if n < 4 { &[1, 2, 9][..] } else { &[1, 9] } {
                all.push(case(Product { format, rows, n, blocks }));
            }
        }
    }
    for shape in ATTENTION {
        for kv in [KvFormat::F16, KvFormat::F32] {
            for passes in [&[1][..], &[3, 1, 5], &[255, 10, 1]] {
                // Long passes of the largest heads take longest and show nothing more.
                if passes[0] < 200 || shape.heads < 16 {
                    all.push(case(Attend { shape, kv, passes }));
                }
            }
        }
    }
    // Three segments of keys: two have the same sum in either order.
    all.push(case(Attend { shape: ATTENTION[2], kv: KvFormat::F32, passes: &[520, 3] }));
    for shape in DELTA {
        for passes in [&[(1, 1)][..], &[(2, 2), (5, 3), (4, 1), (9, 9)], &[(40, 40), (9, 2)]] {
            all.push(case(Recur { shape, passes }));
        }
    }
    for (experts, used, n) in [(4, 2, 1), (8, 8, 3), (64, 8, 5), (256, 8, 1), (256, 8, 17), (300, 3, 40), (300, 290, 1)]
    {
        for (format, down) in [(Format::Q3_K, Format::Q4_K), (Format::Q8_0, Format::Q8_0), (Format::BF16, Format::F32)]
        {
            for fused in [false, true] {
                all.push(case(Route { experts, used, n, format, down, fused }));
            }
        }
    }
    // More pairs than `group` (moe.cu) sorts at a time.
    all.push(case(Route { experts: 64, used: 8, n: 130, format: Format::Q8_0, down: Format::Q8_0, fused: false }));
    all
}

const FORMATS: [Format; 16] = [
    Format::F32,
    Format::F16,
    Format::BF16,
    Format::Q8_0,
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::IQ4_NL,
    Format::MXFP4,
    Format::Q2_K,
    Format::Q3_K,
    Format::Q4_K,
    Format::Q5_K,
    Format::Q6_K,
    Format::IQ4_XS,
];

const ATTENTION: [AttentionShape; 4] = [
    AttentionShape { heads: 4, kv_heads: 2, head_dim: 64, rope_dim: 16, eps: 1e-6 },
    AttentionShape { heads: 16, kv_heads: 2, head_dim: 256, rope_dim: 64, eps: 1e-6 },
    AttentionShape { heads: 3, kv_heads: 1, head_dim: 40, rope_dim: 8, eps: 1e-5 },
    AttentionShape { heads: 20, kv_heads: 2, head_dim: 32, rope_dim: 16, eps: 1e-6 },
];

const DELTA: [DeltaShape; 3] = [
    DeltaShape { key_heads: 2, value_heads: 4, key_dim: 32, value_dim: 64, taps: 4, eps: 1e-6 },
    DeltaShape { key_heads: 4, value_heads: 8, key_dim: 128, value_dim: 128, taps: 4, eps: 1e-6 },
    DeltaShape { key_heads: 1, value_heads: 3, key_dim: 20, value_dim: 24, taps: 3, eps: 1e-6 },
];
