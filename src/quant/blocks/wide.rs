//! Blocks of 256 weights with integer scales per sub-block: Q2_K to Q6_K.
//!
//! Owns: their bits. Refuses to know: anything but [`Block`].

use super::{Block, array, half, to_half};
use crate::quant::Format;
use bytemuck::{Pod, Zeroable};

/// 2-bit codes, 16 sub-blocks of 16: `w = d·scale·q − dmin·min`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q2_K {
    /// Low nibble: scale, high nibble: minimum, a byte for each sub-block.
    pub scales: [u8; 16],
    /// Two halves of 32 bytes; bits `2j..2j+2` of byte `l` are weight `32j + l` of the half's 128.
    pub qs: [u8; 64],
    /// Scale of scales, a half.
    pub d: [u8; 2],
    /// Scale of minima, a half.
    pub dmin: [u8; 2],
}

/// 3-bit codes, 16 sub-blocks of 16: `w = d·(scale − 32)·(q − 4)`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q3_K {
    /// Bit `k` of byte `l` is the third bit of weight `32k + l`.
    pub hmask: [u8; 32],
    /// The low two bits, laid out as in [`Q2_K`].
    pub qs: [u8; 64],
    /// 6-bit scales: low nibbles in bytes 0..8 (low half: 0..8, high half: 8..16), two high bits in bytes 8..12.
    pub scales: [u8; 12],
    /// Scale of scales, a half.
    pub d: [u8; 2],
}

/// 4-bit codes, 8 sub-blocks of 32: `w = d·scale·q − dmin·min`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q4_K {
    /// Scale of scales, a half.
    pub d: [u8; 2],
    /// Scale of minima, a half.
    pub dmin: [u8; 2],
    /// 6-bit scales and minima, see `scales_and_minima`.
    pub scales: [u8; 12],
    /// Four groups of 32 bytes: low nibbles are the group's first 32 weights, high nibbles its last 32.
    pub qs: [u8; 128],
}

/// 5-bit codes, 8 sub-blocks of 32: `w = d·scale·q − dmin·min`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q5_K {
    /// Scale of scales, a half.
    pub d: [u8; 2],
    /// Scale of minima, a half.
    pub dmin: [u8; 2],
    /// 6-bit scales and minima, as in [`Q4_K`].
    pub scales: [u8; 12],
    /// Bit `k` of byte `l` is the fifth bit of weight `32k + l`.
    pub qh: [u8; 32],
    /// The low four bits, laid out as in [`Q4_K`].
    pub qs: [u8; 128],
}

/// 6-bit codes, 16 sub-blocks of 16: `w = d·scale·(q − 32)`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q6_K {
    /// Two halves of 64 bytes; low nibbles are weights 0..64 of the half's 128, high nibbles 64..128.
    pub ql: [u8; 128],
    /// Two halves of 32 bytes; bits `2k..2k+2` of byte `l` are the high bits of weight `32k + l` of the half.
    pub qh: [u8; 64],
    /// A signed scale for each sub-block.
    pub scales: [i8; 16],
    /// Scale of scales, a half.
    pub d: [u8; 2],
}

/// The 2-bit codes of Q2_K and Q3_K in weight order.
#[inline(always)]
fn two_bits(qs: &[u8; 64], q: &mut [i8; 256]) {
    for (bytes, q) in qs.as_chunks::<32>().0.iter().zip(q.as_chunks_mut::<128>().0) {
        for (j, q) in q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for l in 0..32 {
                q[l] = (bytes[l] >> (2 * j) & 3) as i8;
            }
        }
    }
}

/// The 4-bit codes of Q4_K and Q5_K in weight order.
#[inline(always)]
fn four_bits(qs: &[u8; 128], q: &mut [i8; 256]) {
    for (bytes, q) in qs.as_chunks::<32>().0.iter().zip(q.as_chunks_mut::<64>().0) {
        for l in 0..32 {
            q[l] = (bytes[l] & 15) as i8;
            q[l + 32] = (bytes[l] >> 4) as i8;
        }
    }
}

/// Adds `2^place` to the weights whose bit is set in a mask of 8 × 32 bits: bit `k` of byte `l` for weight `32k + l`.
#[inline(always)]
fn add_bit(mask: &[u8; 32], place: u32, q: &mut [i8; 256]) {
    for (k, q) in q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for l in 0..32 {
            q[l] += ((mask[l] >> k & 1) << place) as i8;
        }
    }
}

/// The eight 6-bit scales and minima of Q4_K and Q5_K. Bytes 0..4 and 4..8 hold the first four of each in their low
/// six bits and the last four's top two bits above; bytes 8..12 hold the last four's low nibbles, scale below minimum.
#[inline(always)]
fn scales_and_minima(packed: &[u8; 12], scale: &mut [i8; 8], min: &mut [u8; 8]) {
    for j in 0..4 {
        let (s, m, low) = (packed[j], packed[j + 4], packed[j + 8]);
        scale[j] = (s & 63) as i8;
        min[j] = m & 63;
        scale[j + 4] = ((low & 15) | (s >> 6 << 4)) as i8;
        min[j + 4] = (low >> 4) | (m >> 6 << 4);
    }
}

impl Block for Q2_K {
    const FORMAT: Format = Format::Q2_K;
    const SUB: usize = 16;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], min: &mut [u8]) -> (f32, f32) {
        two_bits(&self.qs, array(q));
        let (scale, min): (&mut [i8; 16], &mut [u8; 16]) = (array(scale), array(min));
        for i in 0..16 {
            scale[i] = (self.scales[i] & 15) as i8;
            min[i] = self.scales[i] >> 4;
        }
        (half(self.d), half(self.dmin))
    }

    fn set_scales(&mut self, d: f32, dmin: f32) {
        self.d = to_half(d);
        self.dmin = to_half(dmin);
    }
}

impl Block for Q3_K {
    const FORMAT: Format = Format::Q3_K;
    const SUB: usize = 16;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], _min: &mut [u8]) -> (f32, f32) {
        let q: &mut [i8; 256] = array(q);
        two_bits(&self.qs, q);
        add_bit(&self.hmask, 2, q);
        for q in q.iter_mut() {
            *q -= 4;
        }
        let scale: &mut [i8; 16] = array(scale);
        for (i, scale) in scale.iter_mut().enumerate() {
            let low = self.scales[i % 8] >> (4 * (i / 8)) & 15;
            let high = self.scales[8 + i % 4] >> (2 * (i / 4)) & 3;
            *scale = (low | high << 4) as i8 - 32;
        }
        (half(self.d), 0.0)
    }

    fn set_scales(&mut self, d: f32, _dmin: f32) {
        self.d = to_half(d);
    }
}

impl Block for Q4_K {
    const FORMAT: Format = Format::Q4_K;
    const SUB: usize = 32;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], min: &mut [u8]) -> (f32, f32) {
        four_bits(&self.qs, array(q));
        scales_and_minima(&self.scales, array(scale), array(min));
        (half(self.d), half(self.dmin))
    }

    fn set_scales(&mut self, d: f32, dmin: f32) {
        self.d = to_half(d);
        self.dmin = to_half(dmin);
    }
}

impl Block for Q5_K {
    const FORMAT: Format = Format::Q5_K;
    const SUB: usize = 32;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], min: &mut [u8]) -> (f32, f32) {
        let q: &mut [i8; 256] = array(q);
        four_bits(&self.qs, q);
        add_bit(&self.qh, 4, q);
        scales_and_minima(&self.scales, array(scale), array(min));
        (half(self.d), half(self.dmin))
    }

    fn set_scales(&mut self, d: f32, dmin: f32) {
        self.d = to_half(d);
        self.dmin = to_half(dmin);
    }
}

impl Block for Q6_K {
    const FORMAT: Format = Format::Q6_K;
    const SUB: usize = 16;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], _min: &mut [u8]) -> (f32, f32) {
        let q: &mut [i8; 256] = array(q);
        let halves = self.ql.as_chunks::<64>().0.iter().zip(self.qh.as_chunks::<32>().0);
        for ((ql, qh), q) in halves.zip(q.as_chunks_mut::<128>().0) {
            for l in 0..32 {
                q[l] = ((ql[l] & 15) | (qh[l] & 3) << 4) as i8 - 32;
                q[l + 32] = ((ql[l + 32] & 15) | (qh[l] >> 2 & 3) << 4) as i8 - 32;
                q[l + 64] = ((ql[l] >> 4) | (qh[l] >> 4 & 3) << 4) as i8 - 32;
                q[l + 96] = ((ql[l + 32] >> 4) | (qh[l] >> 6) << 4) as i8 - 32;
            }
        }
        *array(scale) = self.scales;
        (half(self.d), 0.0)
    }

    fn set_scales(&mut self, d: f32, _dmin: f32) {
        self.d = to_half(d);
    }
}
