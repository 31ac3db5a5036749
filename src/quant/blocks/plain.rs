//! Blocks of 32 weights with one scale: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1.
//!
//! Owns: their bits. Refuses to know: anything but [`Block`].

use super::{Block, array, half, nibbles, to_half};
use crate::quant::Format;
use bytemuck::{Pod, Zeroable};

/// 32 bytes, one scale: `w = d·q`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q8_0 {
    /// Scale, a half.
    pub d: [u8; 2],
    /// The weights.
    pub qs: [i8; 32],
}

/// 32 nibbles, one scale: `w = d·(q − 8)`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q4_0 {
    /// Scale, a half.
    pub d: [u8; 2],
    /// Low nibbles are weights 0..16, high nibbles 16..32.
    pub qs: [u8; 16],
}

/// 32 nibbles, scale and offset: `w = d·q + m`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q4_1 {
    /// Scale, a half.
    pub d: [u8; 2],
    /// Offset, a half; the integer form's `dmin` is its negative.
    pub m: [u8; 2],
    /// Low nibbles are weights 0..16, high nibbles 16..32.
    pub qs: [u8; 16],
}

/// 32 codes of 5 bits, one scale: `w = d·(q − 16)`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q5_0 {
    /// Scale, a half.
    pub d: [u8; 2],
    /// Bit `i` of this little-endian word is bit 4 of weight `i`.
    pub qh: [u8; 4],
    /// The low four bits, as in [`Q4_0`].
    pub qs: [u8; 16],
}

/// 32 codes of 5 bits, scale and offset: `w = d·q + m`.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Q5_1 {
    /// Scale, a half.
    pub d: [u8; 2],
    /// Offset, a half; the integer form's `dmin` is its negative.
    pub m: [u8; 2],
    /// Bit `i` of this little-endian word is bit 4 of weight `i`.
    pub qh: [u8; 4],
    /// The low four bits, as in [`Q4_1`].
    pub qs: [u8; 16],
}

/// Nibbles with a fifth bit from `qh`.
#[inline(always)]
fn five_bits(qs: &[u8; 16], qh: [u8; 4]) -> [u8; 32] {
    let high = u32::from_le_bytes(qh);
    let mut codes = nibbles(qs);
    for (j, code) in codes.iter_mut().enumerate() {
        *code |= ((high >> j & 1) << 4) as u8;
    }
    codes
}

/// Codes less a constant offset.
#[inline(always)]
fn centre(codes: [u8; 32], offset: i8, q: &mut [i8]) {
    let q: &mut [i8; 32] = array(q);
    for j in 0..32 {
        q[j] = codes[j] as i8 - offset;
    }
}

impl Block for Q8_0 {
    const FORMAT: Format = Format::Q8_0;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], _min: &mut [u8]) -> (f32, f32) {
        *array(q) = self.qs;
        *array(scale) = [1];
        (half(self.d), 0.0)
    }

    fn set_scales(&mut self, d: f32, _dmin: f32) {
        self.d = to_half(d);
    }
}

impl Block for Q4_0 {
    const FORMAT: Format = Format::Q4_0;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], _min: &mut [u8]) -> (f32, f32) {
        centre(nibbles(&self.qs), 8, q);
        *array(scale) = [1];
        (half(self.d), 0.0)
    }

    fn set_scales(&mut self, d: f32, _dmin: f32) {
        self.d = to_half(d);
    }
}

impl Block for Q4_1 {
    const FORMAT: Format = Format::Q4_1;
    const SUB: usize = 32;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], min: &mut [u8]) -> (f32, f32) {
        centre(nibbles(&self.qs), 0, q);
        *array(scale) = [1];
        *array(min) = [1];
        (half(self.d), -half(self.m))
    }

    fn set_scales(&mut self, d: f32, dmin: f32) {
        self.d = to_half(d);
        self.m = to_half(-dmin);
    }
}

impl Block for Q5_0 {
    const FORMAT: Format = Format::Q5_0;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], _min: &mut [u8]) -> (f32, f32) {
        centre(five_bits(&self.qs, self.qh), 16, q);
        *array(scale) = [1];
        (half(self.d), 0.0)
    }

    fn set_scales(&mut self, d: f32, _dmin: f32) {
        self.d = to_half(d);
    }
}

impl Block for Q5_1 {
    const FORMAT: Format = Format::Q5_1;
    const SUB: usize = 32;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack(&self, q: &mut [i8], scale: &mut [i8], min: &mut [u8]) -> (f32, f32) {
        centre(five_bits(&self.qs, self.qh), 0, q);
        *array(scale) = [1];
        *array(min) = [1];
        (half(self.d), -half(self.m))
    }

    fn set_scales(&mut self, d: f32, dmin: f32) {
        self.d = to_half(d);
        self.m = to_half(-dmin);
    }
}
