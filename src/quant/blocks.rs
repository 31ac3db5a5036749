//! The bits of every weight format, and the one integer form that all of them reduce to.
//!
//! Owns: where each bit of a block lies. Refuses to know: activations, rounding (`canon`), rows, files.
//!
//! Block structs are the file's bytes: alignment 1, so a slice of a mapped file is a slice of blocks whatever its
//! offset. Halves and wider numbers are little-endian byte arrays for the same reason.

mod plain;
mod table;
mod wide;

use super::Format;
use super::simd::Simd;
use bytemuck::Pod;

pub use plain::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
pub use table::{E2M1_DOUBLED, IQ4_NL, IQ4_VALUES, IQ4_XS, MXFP4};
pub use wide::{Q2_K, Q3_K, Q4_K, Q5_K, Q6_K};

/// A block of weights in integer form: `w[i] = (d · scale[i / SUB]) · q[i] − dmin · min[i / SUB]`.
///
/// `d` and `dmin` are the only floats; everything else is small integers, so a dot product with int8 activations is
/// exact inside a block, in any order.
pub trait Block: Pod + Send + Sync {
    /// The format these blocks make up.
    const FORMAT: Format;
    /// Weights in a block: 32 or 256.
    const LEN: usize = Self::FORMAT.block_weights();
    /// Weights that share a scale (and a minimum): 16 or 32.
    const SUB: usize;
    /// Whether the minimum term exists.
    const HAS_MIN: bool;

    /// Writes the block's integers and returns `(d, dmin)`.
    ///
    /// `q` has `LEN` elements, `scale` and `min` have `LEN / SUB`; other lengths panic. `scale` is 1 where the format
    /// has a single scale. Without [`Block::HAS_MIN`], `min` is left alone and `dmin` is 0.
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], min: &mut [u8]) -> (f32, f32);

    /// Overwrites `d` and `dmin`, rounded to what the format can hold; `dmin` is ignored without [`Block::HAS_MIN`].
    fn set_scales(&mut self, d: f32, dmin: f32);
}

/// Runs one generic expression for the block type of a run-time [`Format`], so that each kernel is written once:
/// `with_block!(format, B => dot::<B>(w, x), else => dot_float(w, x))`. The `else` arm is for F32, F16 and BF16.
/// Blocks of 256 and of 32 weights may have an expression each: `with_block!(format, wide B => .., narrow B => .., else => ..)`.
#[macro_export]
macro_rules! with_block {
    ($format:expr, $block:ident => $quantised:expr, else => $float:expr) => {
        $crate::with_block!($format, wide $block => $quantised, narrow $block => $quantised, else => $float)
    };
    ($format:expr, wide $block:ident => $wide:expr, narrow $small:ident => $narrow:expr, else => $float:expr) => {{
        macro_rules! wide {
            ($type:ident) => {{
                type $block = $crate::quant::blocks::$type;
                $wide
            }};
        }
        macro_rules! narrow {
            ($type:ident) => {{
                type $small = $crate::quant::blocks::$type;
                $narrow
            }};
        }
        match $format {
            $crate::quant::Format::Q8_0 => narrow!(Q8_0),
            $crate::quant::Format::Q4_0 => narrow!(Q4_0),
            $crate::quant::Format::Q4_1 => narrow!(Q4_1),
            $crate::quant::Format::Q5_0 => narrow!(Q5_0),
            $crate::quant::Format::Q5_1 => narrow!(Q5_1),
            $crate::quant::Format::IQ4_NL => narrow!(IQ4_NL),
            $crate::quant::Format::MXFP4 => narrow!(MXFP4),
            $crate::quant::Format::Q2_K => wide!(Q2_K),
            $crate::quant::Format::Q3_K => wide!(Q3_K),
            $crate::quant::Format::Q4_K => wide!(Q4_K),
            $crate::quant::Format::Q5_K => wide!(Q5_K),
            $crate::quant::Format::Q6_K => wide!(Q6_K),
            $crate::quant::Format::IQ4_XS => wide!(IQ4_XS),
            $crate::quant::Format::F32 | $crate::quant::Format::F16 | $crate::quant::Format::BF16 => $float,
        }
    }};
}

/// A number of a float format, widened to f32 exactly. Implemented by f32 itself and by the file's own bytes.
pub trait Float: Pod + Send + Sync {
    /// The same value in single precision.
    fn widen(self) -> f32;
    /// 16 of them at once.
    fn vector<S: Simd>(s: S, from: &[Self; 16]) -> S::Floats;
}

impl Float for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn vector<S: Simd>(s: S, from: &[f32; 16]) -> S::Floats {
        s.load_floats(from)
    }
}

/// A single as it lies in a file: little-endian, any alignment.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct F32(pub [u8; 4]);

/// A half as it lies in a file: little-endian, any alignment.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct F16(pub [u8; 2]);

/// The upper half of a single as it lies in a file: little-endian, any alignment.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct BF16(pub [u8; 2]);

impl Float for F32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_le_bytes(self.0)
    }

    #[inline(always)]
    fn vector<S: Simd>(s: S, from: &[F32; 16]) -> S::Floats {
        s.stored_floats(bytemuck::cast_ref(from))
    }
}

impl Float for F16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f16_to_f32(u16::from_le_bytes(self.0))
    }

    #[inline(always)]
    fn vector<S: Simd>(s: S, from: &[F16; 16]) -> S::Floats {
        s.widen(bytemuck::cast_ref(from))
    }
}

impl Float for BF16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(u16::from_le_bytes(self.0)) << 16)
    }

    #[inline(always)]
    fn vector<S: Simd>(s: S, from: &[BF16; 16]) -> S::Floats {
        s.widen_upper(bytemuck::cast_ref(from))
    }
}

/// The half with these bits, exactly; a NaN stays a NaN.
///
/// By selection instead of the `half` crate's run-time check of the processor, so that loops over it vectorise, and
/// without subnormal operands: the scales of K-quants are often subnormal halves, and those are slow on many processors.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    const SMALLEST_NORMAL: u32 = 113 << 23;
    let bits = u32::from(bits);
    let magnitude = (bits & 0x7fff) << 13;
    let normal = magnitude + (112 << 23);
    let subnormal = (f32::from_bits(magnitude + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL)).to_bits();
    let special = magnitude | 0x7f80_0000;
    let finite = if magnitude < 1 << 23 { subnormal } else { normal };
    let value = if magnitude >= 31 << 23 { special } else { finite };
    f32::from_bits(value | (bits & 0x8000) << 16)
}

/// A half stored in a block.
#[inline(always)]
fn half(bytes: [u8; 2]) -> f32 {
    f16_to_f32(u16::from_le_bytes(bytes))
}

/// The stored form of the half nearest to `value`.
fn to_half(value: f32) -> [u8; 2] {
    half::f16::from_f32(value).to_le_bytes()
}

/// A slice of known length as an array, so that loops over it have a fixed trip count and no bounds checks.
#[inline(always)]
fn array<T, const N: usize>(slice: &mut [T]) -> &mut [T; N] {
    match slice.try_into() {
        Ok(array) => array,
        Err(_) => panic!("an unpacked block has {N} elements here"),
    }
}

/// The low and high four bits of 16 bytes: weights 0..16 are the low ones, 16..32 the high ones.
#[inline(always)]
fn nibbles(bytes: &[u8; 16]) -> [u8; 32] {
    let mut codes = [0; 32];
    for j in 0..16 {
        codes[j] = bytes[j] & 15;
        codes[j + 16] = bytes[j] >> 4;
    }
    codes
}

/// The file's size and length of each block, checked when this is compiled.
macro_rules! assert_sizes {
    ($($block:ident)*) => {
        $(const _: () = {
            assert!(size_of::<$block>() == Format::$block.block_bytes());
            assert!(align_of::<$block>() == 1);
            assert!(<$block as Block>::LEN == Format::$block.block_weights());
            assert!(<$block as Block>::LEN.is_multiple_of(<$block as Block>::SUB));
        };)*
    };
}

assert_sizes!(Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_as_the_half_crate_says() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:04x}");
        }
    }
}
