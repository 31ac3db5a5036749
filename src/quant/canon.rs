//! The canonical arithmetic: the scalar definition of every rounding, written for reading and kept for ever.
//!
//! Owns: the order of every floating-point operation inside a row. Fast paths, other instruction sets and other
//! devices must reproduce these bits; `docs/arithmetic.md` says the same in words. Refuses to know: how many rows,
//! threads or devices there are, and which instruction set runs it.
//!
//! `mul_add` stands where the specification says *fma* and nowhere else. NaN results are NaNs, with no promise about
//! their sign and payload.

mod functions;

use super::blocks::{self, Block, Float};
use super::formats::Format;
use crate::with_block;

pub use functions::{exp, rsqrt, sigmoid, silu, softplus};

/// Lanes of a float reduction.
pub const LANES: usize = 32;

/// Activations that share one entry of [`Activations::sums`].
pub const SUM: usize = 16;

/// The longest block, in weights.
const MAX_LEN: usize = 256;
/// The most sub-blocks in a block.
const MAX_SUBS: usize = 16;

/// One row of quantised activations, `x[i] ≈ d[i / len] · q[i]` with `len` the weight format's
/// [`Format::activation_block`].
#[derive(Debug, Clone, Copy)]
pub struct Activations<'a> {
    /// The integers, −127 to 127.
    pub q: &'a [i8],
    /// One scale per activation block.
    pub d: &'a [f32],
    /// The sum of each [`SUM`] integers.
    pub sums: &'a [i16],
}

/// Quantises one row to int8 with a scale per `len` (32 or 256) values.
///
/// Per block: `amax = max |x|`, `d = amax / 127`, `q = rint(x · (127 / amax))`, ties to even, clamped to ±127; `sums` are
/// the sums of 16 neighbouring `q`. `q` is as long as `x`, `d` is `x.len() / len`, `sums` is `x.len() / 16`.
///
/// Everything follows from these formulas once `rint(NaN) = 0`: a block of zeros has `d = 0, q = 0`. An infinite value
/// gives `d = ∞, q = 0` and a NaN gives `d = NaN, q = 0`, so either makes every dot product with the block NaN. Where
/// `127 / amax` overflows (`amax` below 2^-121), nonzero values become ±127.
#[inline(always)]
pub fn quantize_row(x: &[f32], len: usize, q: &mut [i8], d: &mut [f32], sums: &mut [i16]) {
    assert!(len == 32 || len == 256, "activation blocks are of 32 or 256");
    assert!(x.len().is_multiple_of(len) && q.len() == x.len());
    assert!(d.len() == x.len() / len && sums.len() == x.len() / SUM);
    let blocks = x.chunks_exact(len).zip(q.chunks_exact_mut(len));
    for ((x, q), (d, sums)) in blocks.zip(d.iter_mut().zip(sums.chunks_exact_mut(len / SUM))) {
        let amax = max_magnitude(x);
        *d = amax / 127.0;
        let inverse = 127.0 / amax;
        for (q, x) in q.iter_mut().zip(x) {
            *q = round_to_i8(x * inverse);
        }
        for (sum, q) in sums.iter_mut().zip(q.as_chunks::<SUM>().0) {
            *sum = q.iter().map(|&q| i16::from(q)).sum();
        }
    }
}

/// The largest |x|; NaN if any is NaN. The order of the bits of magnitudes is the order of the magnitudes.
#[inline(always)]
fn max_magnitude(x: &[f32]) -> f32 {
    f32::from_bits(x.iter().fold(0, |max, x| max.max(x.to_bits() & 0x7fff_ffff)))
}

/// The nearest integer, ties to even, clamped to ±127; 0 for NaN.
#[inline(always)]
fn round_to_i8(x: f32) -> i8 {
    // Adding 1.5·2^23 leaves no fraction bits, so the addition itself rounds.
    const MAGIC: f32 = 12_582_912.0;
    let x = if x.is_nan() { 0.0 } else { x };
    let rounded = x.clamp(-127.0, 127.0) + MAGIC;
    rounded.to_bits() as i8
}

/// The integer part of a dot product of one block: `(I, M)`, exact whatever the order.
///
/// `I = Σ scale · Σ q·x` and `M = Σ min · Σ x` over sub-blocks; `M` is 0 without [`Block::HAS_MIN`].
/// `x` is `B::LEN` activations, `sums` their `B::LEN / 16` sums. |I| < 2^28 and |M| < 2^22.
#[inline(always)]
pub fn dot_block<B: Block>(w: &B, x: &[i8], sums: &[i16]) -> (i32, i32) {
    let (i, m, _) = dot_block_scaled(w, x, sums);
    (i, m)
}

/// [`dot_block`] with the block's `(d, dmin)`.
#[inline(always)]
fn dot_block_scaled<B: Block>(w: &B, x: &[i8], sums: &[i16]) -> (i32, i32, (f32, f32)) {
    assert!(x.len() == B::LEN && sums.len() == B::LEN / SUM);
    let (mut q, mut scale, mut min) = ([0; MAX_LEN], [0; MAX_SUBS], [0; MAX_SUBS]);
    let (q, scale, min) = (&mut q[..B::LEN], &mut scale[..B::LEN / B::SUB], &mut min[..B::LEN / B::SUB]);
    let scales = w.unpack(q, scale, min);
    let (mut i, mut m) = (0, 0);
    for sub in 0..B::LEN / B::SUB {
        let at = sub * B::SUB..(sub + 1) * B::SUB;
        let dot: i32 = q[at.clone()].iter().zip(&x[at]).map(|(&q, &x)| i32::from(q) * i32::from(x)).sum();
        i += i32::from(scale[sub]) * dot;
        if B::HAS_MIN {
            let sums = &sums[sub * B::SUB / SUM..(sub + 1) * B::SUB / SUM];
            m += i32::from(min[sub]) * sums.iter().map(|&s| i32::from(s)).sum::<i32>();
        }
    }
    (i, m, scales)
}

/// One link of the chain over blocks: `acc = fma(d_w · d_x, I, acc)`, then with a minimum
/// `acc = fma(−(dmin · d_x), M, acc)`. `I` and `M` are converted to f32 to nearest, ties to even.
#[inline(always)]
pub fn chain<B: Block>(acc: f32, (d, dmin): (f32, f32), d_x: f32, (i, m): (i32, i32)) -> f32 {
    let acc = (d * d_x).mul_add(i as f32, acc);
    if B::HAS_MIN { (-(dmin * d_x)).mul_add(m as f32, acc) } else { acc }
}

/// The dot product of a row of blocks with a row of activations: blocks chained in ascending order from 0.
#[inline(always)]
pub fn dot_row<B: Block>(w: &[B], x: Activations<'_>) -> f32 {
    assert!(x.q.len() == w.len() * B::LEN && x.d.len() == w.len() && x.sums.len() == x.q.len() / SUM);
    let rows = x.q.chunks_exact(B::LEN).zip(x.sums.chunks_exact(B::LEN / SUM));
    let mut acc = 0.0;
    for ((w, d_x), (q, sums)) in w.iter().zip(x.d).zip(rows) {
        let (i, m, scales) = dot_block_scaled(w, q, sums);
        acc = chain::<B>(acc, scales, *d_x, (i, m));
    }
    acc
}

/// The dot product of floats: lane `l` is a sequential fma chain from 0 over `l, l + 32, …`, then [`reduce`].
#[inline(always)]
pub fn dot_float<W: Float>(w: &[W], x: &[f32]) -> f32 {
    assert!(w.len() == x.len());
    let mut lanes = [0.0; LANES];
    let ((w, w_tail), (x, x_tail)) = (w.as_chunks::<LANES>(), x.as_chunks::<LANES>());
    for (w, x) in w.iter().zip(x) {
        for l in 0..LANES {
            lanes[l] = w[l].widen().mul_add(x[l], lanes[l]);
        }
    }
    for (lane, (w, x)) in lanes.iter_mut().zip(w_tail.iter().zip(x_tail)) {
        *lane = w.widen().mul_add(*x, *lane);
    }
    reduce(lanes)
}

/// [`dot_float`] of two rows of singles.
#[inline(always)]
pub fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
    dot_float(a, b)
}

/// The sum of a row: lane `l` adds `l, l + 32, …` in order from 0, then [`reduce`].
#[inline(always)]
pub fn sum_f32(x: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (x, tail) = x.as_chunks::<LANES>();
    for x in x {
        for l in 0..LANES {
            lanes[l] += x[l];
        }
    }
    for (lane, x) in lanes.iter_mut().zip(tail) {
        *lane += x;
    }
    reduce(lanes)
}

/// The fixed tree over the lanes: lane `l + 16` is added to lane `l`, then 8, 4, 2, 1.
#[inline(always)]
pub fn reduce(mut lanes: [f32; LANES]) -> f32 {
    for half in [16, 8, 4, 2, 1] {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
    }
    lanes[0]
}

/// Writes the weights of a row stored in `format`, as the `gguf` Python package does, bit for bit:
/// `(d · scale) · q`, then minus `dmin · min` where the format has a minimum, each operation rounded by itself.
///
/// `bytes` must be exactly the row of `out.len()` weights ([`Format::row_bytes`]).
pub fn dequantize_row(format: Format, bytes: &[u8], out: &mut [f32]) {
    assert!(format.row_bytes(out.len()) == Some(bytes.len()), "{format}: {} bytes for {}", bytes.len(), out.len());
    with_block!(format, B => dequantize_blocks::<B>(bytemuck::cast_slice(bytes), out), else => match format {
        Format::F16 => widen_row::<blocks::F16>(bytemuck::cast_slice(bytes), out),
        Format::BF16 => widen_row::<blocks::BF16>(bytemuck::cast_slice(bytes), out),
        _ => widen_row::<blocks::F32>(bytemuck::cast_slice(bytes), out),
    });
}

#[inline(always)]
fn widen_row<W: Float>(w: &[W], out: &mut [f32]) {
    for (out, w) in out.iter_mut().zip(w) {
        *out = w.widen();
    }
}

#[inline(always)]
fn dequantize_blocks<B: Block>(w: &[B], out: &mut [f32]) {
    let (mut q, mut scale, mut min) = ([0; MAX_LEN], [0; MAX_SUBS], [0; MAX_SUBS]);
    let (q, scale, min) = (&mut q[..B::LEN], &mut scale[..B::LEN / B::SUB], &mut min[..B::LEN / B::SUB]);
    for (w, out) in w.iter().zip(out.chunks_exact_mut(B::LEN)) {
        let (d, dmin) = w.unpack(q, scale, min);
        for sub in 0..B::LEN / B::SUB {
            let at = sub * B::SUB..(sub + 1) * B::SUB;
            let d = d * f32::from(scale[sub]);
            let dmin = dmin * f32::from(min[sub]);
            for (out, &q) in out[at.clone()].iter_mut().zip(&q[at]) {
                let w = d * f32::from(q);
                *out = if B::HAS_MIN { w - dmin } else { w };
            }
        }
    }
}
