//! The bits of each quantised format, reduced to one integer form.
//!
//! Owns: block layouts (as the GGUF file format stores them) and their unpacking. Refuses to know: activations, rows.

use super::Format;
use bytemuck::{Pod, Zeroable};

/// A block of weights in integer form: `w[i] = (d * scale[i / SUB]) * q[i] - dmin * min[i / SUB]`.
pub trait Block: Pod {
    /// The format this is the block of.
    const FORMAT: Format;
    /// Weights in a block: 32 or 256.
    const LEN: usize;
    /// Weights that share a scale: 16 or 32.
    const SUB: usize;
    /// Whether the format has a minimum term.
    const HAS_MIN: bool;

    /// Writes `q` (`LEN`), `scale` and `min` (`LEN / SUB` each) and returns `(d, dmin)`.
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], min: &mut [u8]) -> (f32, f32);
}

macro_rules! block {
    ($(#[$doc:meta])* $name:ident: $format:ident, $len:literal / $sub:literal, min $min:literal,
     { $($field:ident: $type:ty),* }, $unpack:expr) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Pod, Zeroable)]
        pub struct $name { $($field: $type),* }

        const _: () = assert!(size_of::<$name>() == Format::$format.block_bytes());
        const _: () = assert!($len == Format::$format.block_weights());

        impl Block for $name {
            const FORMAT: Format = Format::$format;
            const LEN: usize = $len;
            const SUB: usize = $sub;
            const HAS_MIN: bool = $min;

            #[inline(always)]
            fn unpack(&self, q: &mut [i8], scale: &mut [i8], min: &mut [u8]) -> (f32, f32) {
                assert!(q.len() == $len && scale.len() == $len / $sub && min.len() == $len / $sub);
                let unpack: fn(&$name, &mut [i8], &mut [i8], &mut [u8]) -> (f32, f32) = $unpack;
                unpack(self, q, scale, min)
            }
        }
    };
}

/// Runs `$body` with `$block` standing for the block type of `$format`; a float format is a caller's mistake.
macro_rules! with_block {
    ($format:expr, $block:ident => $body:expr) => {{
        use $crate::quant::blocks;
        macro_rules! arm {
            ($type:ident) => {{
                type $block = blocks::$type;
                $body
            }};
        }
        match $format {
            Format::Q8_0 => arm!(Q8_0),
            Format::Q4_0 => arm!(Q4_0),
            Format::Q4_1 => arm!(Q4_1),
            Format::Q5_0 => arm!(Q5_0),
            Format::Q5_1 => arm!(Q5_1),
            Format::Q2_K => arm!(Q2K),
            Format::Q3_K => arm!(Q3K),
            Format::Q4_K => arm!(Q4K),
            Format::Q5_K => arm!(Q5K),
            Format::Q6_K => arm!(Q6K),
            Format::IQ4_NL => arm!(Iq4Nl),
            Format::IQ4_XS => arm!(Iq4Xs),
            Format::MXFP4 => arm!(Mxfp4),
            Format::F32 | Format::F16 | Format::BF16 => unreachable!("float formats have no blocks"),
        }
    }};
}
pub(crate) use with_block;

/// Half precision, as stored.
#[inline(always)]
fn half(bytes: [u8; 2]) -> f32 {
    super::canon::f16_to_f32(u16::from_le_bytes(bytes))
}

/// Splits 16 bytes into 32 nibbles, low ones first: the layout of all 32-weight formats of 4 or 5 bits.
#[inline(always)]
fn nibbles(qs: &[u8; 16], q: &mut [i8], map: impl Fn(usize, u8) -> i8) {
    let (low, high) = q.split_at_mut(16);
    for l in 0..16 {
        low[l] = map(l, qs[l] & 15);
        high[l] = map(l + 16, qs[l] >> 4);
    }
}

/// The sole scale of formats without sub-blocks.
#[inline(always)]
fn unit(scale: &mut [i8]) {
    scale[0] = 1;
}

/// The fifth bit of weight `i`, in place.
#[inline(always)]
fn fifth(qh: [u8; 4], i: usize) -> u8 {
    (((u32::from_le_bytes(qh) >> i) & 1) << 4) as u8
}

block! {
    /// Q8_0.
    Q8_0: Q8_0, 32 / 32, min false, { d: [u8; 2], qs: [i8; 32] },
    |b, q, scale, _| {
        q.copy_from_slice(&b.qs);
        unit(scale);
        (half(b.d), 0.0)
    }
}

block! {
    /// Q4_0.
    Q4_0: Q4_0, 32 / 32, min false, { d: [u8; 2], qs: [u8; 16] },
    |b, q, scale, _| {
        nibbles(&b.qs, q, |_, n| n as i8 - 8);
        unit(scale);
        (half(b.d), 0.0)
    }
}

block! {
    /// Q4_1: its minimum is added, so `dmin` is its negative.
    Q4_1: Q4_1, 32 / 32, min true, { d: [u8; 2], m: [u8; 2], qs: [u8; 16] },
    |b, q, scale, min| {
        nibbles(&b.qs, q, |_, n| n as i8);
        unit(scale);
        min[0] = 1;
        (half(b.d), -half(b.m))
    }
}

block! {
    /// Q5_0.
    Q5_0: Q5_0, 32 / 32, min false, { d: [u8; 2], qh: [u8; 4], qs: [u8; 16] },
    |b, q, scale, _| {
        nibbles(&b.qs, q, |i, n| (n | fifth(b.qh, i)) as i8 - 16);
        unit(scale);
        (half(b.d), 0.0)
    }
}

block! {
    /// Q5_1: its minimum is added, so `dmin` is its negative.
    Q5_1: Q5_1, 32 / 32, min true, { d: [u8; 2], m: [u8; 2], qh: [u8; 4], qs: [u8; 16] },
    |b, q, scale, min| {
        nibbles(&b.qs, q, |i, n| (n | fifth(b.qh, i)) as i8);
        unit(scale);
        min[0] = 1;
        (half(b.d), -half(b.m))
    }
}

/// The 16 values of IQ4_NL and IQ4_XS.
const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

block! {
    /// IQ4_NL.
    Iq4Nl: IQ4_NL, 32 / 32, min false, { d: [u8; 2], qs: [u8; 16] },
    |b, q, scale, _| {
        nibbles(&b.qs, q, |_, n| IQ4[usize::from(n)]);
        unit(scale);
        (half(b.d), 0.0)
    }
}

/// E2M1 floats, doubled.
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half of the power of two that `e` stands for (E8M0), since [`E2M1`] is doubled.
#[inline(always)]
fn e8m0_half(e: u8) -> f32 {
    let e = u32::from(e);
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 })
}

block! {
    /// MXFP4 (OCP microscaling formats, 2023).
    Mxfp4: MXFP4, 32 / 32, min false, { e: u8, qs: [u8; 16] },
    |b, q, scale, _| {
        nibbles(&b.qs, q, |_, n| E2M1[usize::from(n)]);
        unit(scale);
        (e8m0_half(b.e), 0.0)
    }
}

block! {
    /// Q2_K.
    Q2K: Q2_K, 256 / 16, min true, { scales: [u8; 16], qs: [u8; 64], d: [u8; 2], dmin: [u8; 2] },
    |b, q, scale, min| {
        for h in 0..2 {
            for j in 0..4 {
                for l in 0..32 {
                    q[128 * h + 32 * j + l] = ((b.qs[32 * h + l] >> (2 * j)) & 3) as i8;
                }
            }
        }
        for s in 0..16 {
            scale[s] = (b.scales[s] & 15) as i8;
            min[s] = b.scales[s] >> 4;
        }
        (half(b.d), half(b.dmin))
    }
}

block! {
    /// Q3_K.
    Q3K: Q3_K, 256 / 16, min false, { hmask: [u8; 32], qs: [u8; 64], scales: [u8; 12], d: [u8; 2] },
    |b, q, scale, _| {
        for h in 0..2 {
            for j in 0..4 {
                for l in 0..32 {
                    let low = (b.qs[32 * h + l] >> (2 * j)) & 3;
                    let high = (b.hmask[l] >> (4 * h + j)) & 1;
                    q[128 * h + 32 * j + l] = (low | high << 2) as i8 - 4;
                }
            }
        }
        for s in 0..16 {
            let low = if s < 8 { b.scales[s] & 15 } else { b.scales[s - 8] >> 4 };
            let high = (b.scales[8 + s % 4] >> (2 * (s / 4))) & 3;
            scale[s] = (low | high << 4) as i8 - 32;
        }
        (half(b.d), 0.0)
    }
}

/// The eight 6-bit scales and minimums of Q4_K and Q5_K.
#[inline(always)]
fn six_bits(s: &[u8; 12], scale: &mut [i8], min: &mut [u8]) {
    for j in 0..4 {
        scale[j] = (s[j] & 63) as i8;
        min[j] = s[j + 4] & 63;
        scale[j + 4] = ((s[j + 8] & 15) | (s[j] >> 6) << 4) as i8;
        min[j + 4] = (s[j + 8] >> 4) | (s[j + 4] >> 6) << 4;
    }
}

block! {
    /// Q4_K.
    Q4K: Q4_K, 256 / 32, min true, { d: [u8; 2], dmin: [u8; 2], scales: [u8; 12], qs: [u8; 128] },
    |b, q, scale, min| {
        for c in 0..4 {
            for l in 0..32 {
                q[64 * c + l] = (b.qs[32 * c + l] & 15) as i8;
                q[64 * c + 32 + l] = (b.qs[32 * c + l] >> 4) as i8;
            }
        }
        six_bits(&b.scales, scale, min);
        (half(b.d), half(b.dmin))
    }
}

block! {
    /// Q5_K.
    Q5K: Q5_K, 256 / 32, min true, { d: [u8; 2], dmin: [u8; 2], scales: [u8; 12], qh: [u8; 32], qs: [u8; 128] },
    |b, q, scale, min| {
        for c in 0..4 {
            for l in 0..32 {
                let high = b.qh[l] >> (2 * c);
                q[64 * c + l] = ((b.qs[32 * c + l] & 15) | (high & 1) << 4) as i8;
                q[64 * c + 32 + l] = ((b.qs[32 * c + l] >> 4) | (high & 2) << 3) as i8;
            }
        }
        six_bits(&b.scales, scale, min);
        (half(b.d), half(b.dmin))
    }
}

block! {
    /// Q6_K.
    Q6K: Q6_K, 256 / 16, min false, { ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: [u8; 2] },
    |b, q, scale, _| {
        for h in 0..2 {
            for l in 0..32 {
                let (a, c, high) = (b.ql[64 * h + l], b.ql[64 * h + 32 + l], b.qh[32 * h + l]);
                q[128 * h + l] = ((a & 15) | (high & 3) << 4) as i8 - 32;
                q[128 * h + 32 + l] = ((c & 15) | (high & 12) << 2) as i8 - 32;
                q[128 * h + 64 + l] = ((a >> 4) | (high & 48)) as i8 - 32;
                q[128 * h + 96 + l] = ((c >> 4) | (high & 192) >> 2) as i8 - 32;
            }
        }
        scale.copy_from_slice(&b.scales);
        (half(b.d), 0.0)
    }
}

block! {
    /// IQ4_XS.
    Iq4Xs: IQ4_XS, 256 / 32, min false, { d: [u8; 2], high: [u8; 2], low: [u8; 4], qs: [u8; 128] },
    |b, q, scale, _| {
        let high = u16::from_le_bytes(b.high);
        for s in 0..8 {
            for l in 0..16 {
                q[32 * s + l] = IQ4[usize::from(b.qs[16 * s + l] & 15)];
                q[32 * s + 16 + l] = IQ4[usize::from(b.qs[16 * s + l] >> 4)];
            }
            let low = (b.low[s / 2] >> (4 * (s % 2))) & 15;
            scale[s] = (low | (((high >> (2 * s)) & 3) << 4) as u8) as i8 - 32;
        }
        (half(b.d), 0.0)
    }
}
