//! The arithmetic, defined: every rounding of the engine happens in one of these functions or in their order.
//!
//! Owns: the meaning of every result bit. Refuses to know: speed; the fast paths are compared with this, bit by bit.
//! The text is `docs/arithmetic.md`. Where a fused multiply-add is meant, it says `mul_add`; nothing else is ever fused.

use super::Format;
use super::blocks::{Block, with_block};

/// Lanes of a float sum.
const LANES: usize = 32;

/// Half to single precision, exact; a signalling NaN stays as it is.
#[inline(always)]
pub fn f16_to_f32(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let rest = u32::from(h & 0x7fff) << 13;
    // The exponent's bias differs by 112; multiplying also makes normals out of subnormals, exactly.
    let finite = f32::from_bits(rest) * f32::from_bits((127 + 112) << 23);
    let special = f32::from_bits(rest | 0x7f80_0000);
    let magnitude = if rest >= 0x7c00 << 13 { special } else { finite };
    f32::from_bits(magnitude.to_bits() | sign)
}

/// Quantises a block of activations: `d = amax / 127`, `q = rint(x * (127 / amax))`, ties to even. A block of zeros
/// has `d = 0`. A block that holds an infinity or NaN has `d` infinite or NaN, so that what it enters is visibly broken.
#[inline(always)]
pub fn quantize_block<const N: usize>(x: &[f32; N], q: &mut [i16; N]) -> f32 {
    let mut top = 0u32;
    for v in x {
        // Magnitudes order like their bits, and NaN above all.
        top = top.max(v.to_bits() & 0x7fff_ffff);
    }
    let amax = f32::from_bits(top);
    let scale = if top == 0 { 0.0 } else { 127.0 / amax };
    for (q, v) in q.iter_mut().zip(x) {
        let v = v * scale;
        // NaN and what overflowed become 0 or the end of the range.
        let v = if v < 127.0 { v } else { 127.0 };
        let v = if v > -127.0 { v } else { -127.0 };
        *q = round(v).1 as i16;
    }
    amax / 127.0
}

/// The nearest integer, ties to even, of `|x| < 2^22`: as a float and as an integer.
#[inline(always)]
fn round(x: f32) -> (f32, i32) {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves no fraction bits
    let shifted = x + MAGIC;
    (
        shifted - MAGIC,
        (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32),
    )
}

/// Block by activation block, in exact integers: `I = Σ scale·Σ q·x` and `M = Σ min·Σ x`.
pub fn dot_block<B: Block>(w: &B, x: &[i16]) -> (i32, i32) {
    let (mut q, mut scale, mut min) = ([0i8; 256], [0i8; 16], [0u8; 16]);
    let subs = B::LEN / B::SUB;
    w.unpack(&mut q[..B::LEN], &mut scale[..subs], &mut min[..subs]);
    let (mut dot, mut mins) = (0, 0);
    for s in 0..subs {
        let range = s * B::SUB..(s + 1) * B::SUB;
        let products: i32 = range.clone().map(|i| i32::from(q[i]) * i32::from(x[i])).sum();
        let sum: i32 = range.map(|i| i32::from(x[i])).sum();
        dot += i32::from(scale[s]) * products;
        mins += i32::from(min[s]) * sum;
    }
    (dot, mins)
}

/// A quantised weight row times an f32 row: blocks chained in ascending order, one `fma` per term.
pub fn dot_row(format: Format, weights: &[u8], x: &[f32]) -> f32 {
    with_block!(format, B => dot_blocks::<B>(bytemuck::cast_slice(weights), x))
}

fn dot_blocks<B: Block>(weights: &[B], x: &[f32]) -> f32 {
    match B::LEN {
        32 => dot_blocks_of::<B, 32>(weights, x),
        _ => dot_blocks_of::<B, 256>(weights, x),
    }
}

fn dot_blocks_of<B: Block, const N: usize>(weights: &[B], x: &[f32]) -> f32 {
    assert_eq!(
        weights.len() * N,
        x.len(),
        "a row of weights is as long as its activations"
    );
    let mut acc = 0.0f32;
    for (w, x) in weights.iter().zip(x.as_chunks::<N>().0) {
        let mut q = [0i16; N];
        let d = quantize_block(x, &mut q);
        let (dw, dmin) = w.unpack(
            &mut [0; 256][..N],
            &mut [0; 16][..N / B::SUB],
            &mut [0; 16][..N / B::SUB],
        );
        let (dot, mins) = dot_block(w, &q);
        acc = (dw * d).mul_add(dot as f32, acc);
        if B::HAS_MIN {
            acc = (-(dmin * d)).mul_add(mins as f32, acc);
        }
    }
    acc
}

/// Adds lanes 16 apart, then 8, 4, 2, 1: the upper half onto the lower.
#[inline(always)]
fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// Float dot product: lane `i % 32` is a sequential `fma` chain from 0 over its elements; then the fixed tree.
#[inline(always)]
pub fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "a dot product takes two of one length");
    let mut lanes = [0.0f32; LANES];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for l in 0..LANES {
            lanes[l] = a[l].mul_add(b[l], lanes[l]);
        }
    }
    for (l, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[l] = a.mul_add(*b, lanes[l]);
    }
    fold(lanes)
}

/// Float sum in the same order.
#[inline(always)]
pub fn sum_f32(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (x, rest) = x.as_chunks::<LANES>();
    for x in x {
        for l in 0..LANES {
            lanes[l] += x[l];
        }
    }
    for (l, x) in rest.iter().enumerate() {
        lanes[l] += x;
    }
    fold(lanes)
}

/// `e^x`: range reduction by ln 2 in two parts, a polynomial of degree 7, scaling by a power of two in two steps, so
/// that subnormal results round once. Overflow is infinity, NaN stays NaN. At most 1 ulp off.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let (n, k) = round(x * std::f32::consts::LOG2_E);
    let r = n.mul_add(-LN2_HIGH, x);
    let r = n.mul_add(-LN2_LOW, r);
    let p = 1.987_569_1e-4f32;
    let p = p.mul_add(r, 1.398_2e-3);
    let p = p.mul_add(r, 8.333_452e-3);
    let p = p.mul_add(r, 4.166_579_6e-2);
    let p = p.mul_add(r, 1.666_666_5e-1);
    let p = p.mul_add(r, 5.000_000_1e-1);
    let y = (p * r).mul_add(r, r) + 1.0;
    let half = k >> 1;
    y * power_of_two(half) * power_of_two(k.wrapping_sub(half))
}

/// `2^k` for `-126 <= k <= 127`.
#[inline(always)]
fn power_of_two(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / (1 + e^-x)`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `log(1 + e^x) = max(x, 0) + log1p(e^-|x|)`.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let positive = if x > 0.0 { x } else { 0.0 };
    let tail = log1p(exp(-x.abs()));
    // A NaN is lost in the maximum above and comes back through the tail.
    positive + tail
}

/// `log(1 + t)` for `0 <= t <= 1`: a polynomial around 1, or around 2 for the upper part.
#[inline(always)]
fn log1p(t: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let upper = t > std::f32::consts::SQRT_2 - 1.0;
    let z = if upper { (t - 1.0) * 0.5 } else { t };
    let e = if upper { 1.0f32 } else { 0.0 };
    let p = 7.037_683_6e-2f32;
    let p = p.mul_add(z, -1.151_461e-1);
    let p = p.mul_add(z, 1.167_699_9e-1);
    let p = p.mul_add(z, -1.242_014_1e-1);
    let p = p.mul_add(z, 1.424_932_3e-1);
    let p = p.mul_add(z, -1.666_805_8e-1);
    let p = p.mul_add(z, 2.000_071_5e-1);
    let p = p.mul_add(z, -2.499_999_4e-1);
    let p = p.mul_add(z, 3.333_333_1e-1);
    let z2 = z * z;
    let y = (p * z) * z2;
    let y = e.mul_add(LN2_LOW, y);
    let y = (-0.5f32).mul_add(z2, y);
    e.mul_add(LN2_HIGH, z + y)
}

/// `1 / sqrt(x)`, two IEEE roundings.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// Weights as f32, for `out.len()` weights: `(d * scale) * q`, then minus `dmin * min`, each rounded once.
///
/// `bytes` holds exactly the blocks of `out.len()` weights.
pub fn dequantize_row(format: Format, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(
        format.row_bytes(out.len()),
        Some(bytes.len()),
        "the bytes of a row fit its length"
    );
    match format {
        Format::F32 => widen::<4>(bytes, out, f32::from_le_bytes),
        Format::F16 => widen::<2>(bytes, out, |b| f16_to_f32(u16::from_le_bytes(b))),
        Format::BF16 => widen::<2>(bytes, out, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)),
        _ => with_block!(format, B => dequantize::<B>(bytemuck::cast_slice(bytes), out)),
    }
}

fn widen<const BYTES: usize>(bytes: &[u8], out: &mut [f32], convert: impl Fn([u8; BYTES]) -> f32) {
    for (out, b) in out.iter_mut().zip(bytes.as_chunks::<BYTES>().0) {
        *out = convert(*b);
    }
}

fn dequantize<B: Block>(blocks: &[B], out: &mut [f32]) {
    let (mut q, mut scale, mut min) = ([0i8; 256], [0i8; 16], [0u8; 16]);
    let subs = B::LEN / B::SUB;
    for (block, out) in blocks.iter().zip(out.chunks_exact_mut(B::LEN)) {
        let (d, dmin) = block.unpack(&mut q[..B::LEN], &mut scale[..subs], &mut min[..subs]);
        for (i, out) in out.iter_mut().enumerate() {
            *out = (d * f32::from(scale[i / B::SUB])) * f32::from(q[i]);
            if B::HAS_MIN {
                *out -= dmin * f32::from(min[i / B::SUB]);
            }
        }
    }
}
