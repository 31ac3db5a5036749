//! Blocks whose 4-bit codes look a value up in a fixed table: IQ4_NL, IQ4_XS, MXFP4.
//!
//! Owns: their bits and tables. Refuses to know: anything but [`Block`].

use super::{Block, array, half, nibbles, to_half};
use crate::quant::Format;
use bytemuck::{Pod, Zeroable};

/// The non-linear 4-bit grid of IQ4_NL and IQ4_XS.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The E2M1 values doubled, so that they are integers (OCP Microscaling Formats 1.0). Minus zero is zero.
pub const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 32 nibbles into `IQ4_VALUES`, one scale: `w = d·q`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct IQ4_NL {
    /// Scale, a half.
    pub d: [u8; 2],
    /// Low nibbles are weights 0..16, high nibbles 16..32.
    pub qs: [u8; 16],
}

/// 256 nibbles into `IQ4_VALUES`, 8 sub-blocks of 32: `w = d·(scale − 32)·q`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct IQ4_XS {
    /// Scale of scales, a half.
    pub d: [u8; 2],
    /// Two high bits of each scale, little-endian, sub-block 0 lowest.
    pub scales_h: [u8; 2],
    /// Four low bits of each scale, two to a byte, low nibble first.
    pub scales_l: [u8; 4],
    /// 16 bytes a sub-block, each laid out as in [`IQ4_NL`].
    pub qs: [u8; 128],
}

/// 32 nibbles of E2M1, one E8M0 scale: `w = 2^(e − 127) · value`, held as `2^(e − 128) · doubled value`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct MXFP4 {
    /// Biased exponent of the scale.
    pub e: u8,
    /// Low nibbles are weights 0..16, high nibbles 16..32.
    pub qs: [u8; 16],
}

/// `table[code]` by selection on the code's four bits, which vectorises where a lookup does not.
#[inline(always)]
fn select(table: &[i8; 16], code: u8) -> i8 {
    let mut values = *table;
    let mut count = 16;
    for bit in 0..4 {
        let mask = 0u8.wrapping_sub(code >> bit & 1) as i8;
        count /= 2;
        for i in 0..count {
            let (even, odd) = (values[2 * i], values[2 * i + 1]);
            values[i] = even ^ (mask & (even ^ odd));
        }
    }
    values[0]
}

#[inline(always)]
fn look_up(table: &[i8; 16], bytes: &[u8; 16], q: &mut [i8; 32]) {
    let codes = nibbles(bytes);
    for j in 0..32 {
        q[j] = select(table, codes[j]);
    }
}

/// Half of the E8M0 number `e`, i.e. 2^(e − 128); its two smallest values are subnormal singles.
#[inline(always)]
fn e8m0_halved(e: u8) -> f32 {
    let e = u32::from(e);
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 })
}

impl Block for IQ4_NL {
    const FORMAT: Format = Format::IQ4_NL;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], _min: &mut [u8]) -> (f32, f32) {
        look_up(&IQ4_VALUES, &self.qs, array(q));
        *array(scale) = [1];
        (half(self.d), 0.0)
    }

    fn set_scales(&mut self, d: f32, _dmin: f32) {
        self.d = to_half(d);
    }
}

impl Block for IQ4_XS {
    const FORMAT: Format = Format::IQ4_XS;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], _min: &mut [u8]) -> (f32, f32) {
        let q: &mut [i8; 256] = array(q);
        for (bytes, q) in self.qs.as_chunks().0.iter().zip(q.as_chunks_mut().0) {
            look_up(&IQ4_VALUES, bytes, q);
        }
        let scale: &mut [i8; 8] = array(scale);
        let high = u16::from_le_bytes(self.scales_h);
        for (i, scale) in scale.iter_mut().enumerate() {
            let low = self.scales_l[i / 2] >> (4 * (i % 2)) & 15;
            *scale = (low | ((high >> (2 * i) & 3) << 4) as u8) as i8 - 32;
        }
        (half(self.d), 0.0)
    }

    fn set_scales(&mut self, d: f32, _dmin: f32) {
        self.d = to_half(d);
    }
}

impl Block for MXFP4 {
    const FORMAT: Format = Format::MXFP4;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], _min: &mut [u8]) -> (f32, f32) {
        look_up(&E2M1_DOUBLED, &self.qs, array(q));
        *array(scale) = [1];
        (e8m0_halved(self.e), 0.0)
    }

    fn set_scales(&mut self, d: f32, _dmin: f32) {
        // The power of two at or below d; doubling it is the stored exponent's bias.
        self.e = ((d.to_bits() >> 23 & 0xff) + 1).min(254) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_is_lookup() {
        for table in [IQ4_VALUES, E2M1_DOUBLED] {
            for code in 0..16 {
                assert_eq!(select(&table, code), table[usize::from(code)]);
            }
        }
    }

    #[test]
    fn setting_the_scale_of_an_mxfp4_block_keeps_powers_of_two() {
        for exponent in -126..=126 {
            let d = f32::from_bits(((exponent + 127) as u32) << 23);
            let mut block = MXFP4::zeroed();
            block.set_scales(d, 0.0);
            assert_eq!(e8m0_halved(block.e), d);
        }
    }
}
