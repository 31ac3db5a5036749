//! Blocks of 32 weights, decoded many at a time.
//!
//! Owns: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4. Refuses to know: anything but [`Narrow`].

use super::{E2M1_CODES, IQ4_CODES, Narrow, nibbles, turned_nibbles, two_halves, words};
use crate::quant::blocks::{IQ4_NL, MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use crate::quant::simd::{Rows, Simd};

/// `d` alone, at the start of a block.
#[inline(always)]
fn one_scale<S: Simd>(s: S, rows: Rows, at: usize) -> (S::Floats, S::Floats) {
    let [first, ..] = words(s, rows, at);
    (s.halves_of(first), s.splat_float(0.0))
}

/// `d` and an offset that is added, at the start of a block.
#[inline(always)]
fn scale_and_offset<S: Simd>(s: S, rows: Rows, at: usize) -> (S::Floats, S::Floats) {
    let [first, ..] = words(s, rows, at);
    // A minimum is subtracted: the offset with its sign flipped.
    two_halves(s, s.lanes_xor(first, 0x8000_0000))
}

/// Adds a fifth bit to turned codes: bit `i` of the word is weight `i`'s.
#[inline(always)]
fn with_fifth_bits<S: Simd>(s: S, codes: &mut [S::Bytes; 8], bits: S::Lanes) {
    for (k, codes) in codes.iter_mut().enumerate() {
        // The four bits of a lane's four weights, one to each byte's bit 4.
        let four = s.lanes_right(bits, 4 * k as u8);
        let mut spread = s.lanes_left(s.lanes_and(four, 1), 4);
        spread = s.lanes_or(spread, s.lanes_left(s.lanes_and(four, 2), 11));
        spread = s.lanes_or(spread, s.lanes_left(s.lanes_and(four, 4), 18));
        spread = s.lanes_or(spread, s.lanes_left(s.lanes_and(four, 8), 25));
        *codes = s.or(*codes, s.bytes(spread));
    }
}

/// The codes of two blocks of Q5_0 or Q5_1.
#[inline(always)]
fn five_bits<S: Simd>(s: S, qs: [&[u8; 16]; 2], qh: [[u8; 4]; 2]) -> S::Bytes {
    let high = s.where_set(u32::from_le_bytes(qh[0]), u32::from_le_bytes(qh[1]), 16);
    s.or(nibbles(s, qs[0], qs[1]), high)
}

/// Turned codes looked up in a table.
#[inline(always)]
fn looked_up<S: Simd>(s: S, table: &[u8; 16], mut codes: [S::Bytes; 8]) -> [S::Bytes; 8] {
    for codes in &mut codes {
        *codes = s.look_up(table, *codes);
    }
    codes
}

impl Narrow for Q8_0 {
    const OFFSET: i32 = 128;
    const FULL: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: [&Self; 2]) -> S::Bytes {
        s.xor(s.halves(bytemuck::cast_ref(&a.qs), bytemuck::cast_ref(&b.qs)), 128)
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize) -> [S::Bytes; 8] {
        let ([a, b, c, d], [e, f, g, h]) = (s.columns(rows, at + 2), s.columns(rows, at + 18));
        let mut codes = [a, b, c, d, e, f, g, h];
        for codes in &mut codes {
            *codes = s.xor(*codes, 128);
        }
        codes
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: Rows, at: usize) -> (S::Floats, S::Floats) {
        one_scale(s, rows, at)
    }
}

impl Narrow for Q4_0 {
    const OFFSET: i32 = 8;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: [&Self; 2]) -> S::Bytes {
        nibbles(s, &a.qs, &b.qs)
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize) -> [S::Bytes; 8] {
        turned_nibbles(s, rows, at + 2)
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: Rows, at: usize) -> (S::Floats, S::Floats) {
        one_scale(s, rows, at)
    }
}

impl Narrow for Q4_1 {
    const OFFSET: i32 = 0;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: [&Self; 2]) -> S::Bytes {
        nibbles(s, &a.qs, &b.qs)
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize) -> [S::Bytes; 8] {
        turned_nibbles(s, rows, at + 4)
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: Rows, at: usize) -> (S::Floats, S::Floats) {
        scale_and_offset(s, rows, at)
    }
}

impl Narrow for Q5_0 {
    const OFFSET: i32 = 16;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: [&Self; 2]) -> S::Bytes {
        five_bits(s, [&a.qs, &b.qs], [a.qh, b.qh])
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize) -> [S::Bytes; 8] {
        let mut codes = turned_nibbles(s, rows, at + 6);
        let [bits, ..] = words(s, rows, at + 2);
        with_fifth_bits(s, &mut codes, bits);
        codes
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: Rows, at: usize) -> (S::Floats, S::Floats) {
        one_scale(s, rows, at)
    }
}

impl Narrow for Q5_1 {
    const OFFSET: i32 = 0;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: [&Self; 2]) -> S::Bytes {
        five_bits(s, [&a.qs, &b.qs], [a.qh, b.qh])
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize) -> [S::Bytes; 8] {
        let mut codes = turned_nibbles(s, rows, at + 8);
        let [_, bits, ..] = words(s, rows, at);
        with_fifth_bits(s, &mut codes, bits);
        codes
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: Rows, at: usize) -> (S::Floats, S::Floats) {
        scale_and_offset(s, rows, at)
    }
}

impl Narrow for IQ4_NL {
    const OFFSET: i32 = 128;
    const FULL: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: [&Self; 2]) -> S::Bytes {
        s.look_up(&IQ4_CODES, nibbles(s, &a.qs, &b.qs))
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize) -> [S::Bytes; 8] {
        looked_up(s, &IQ4_CODES, turned_nibbles(s, rows, at + 2))
    }

    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: Rows, at: usize) -> (S::Floats, S::Floats) {
        one_scale(s, rows, at)
    }
}

impl Narrow for MXFP4 {
    const OFFSET: i32 = 12;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: [&Self; 2]) -> S::Bytes {
        s.look_up(&E2M1_CODES, nibbles(s, &a.qs, &b.qs))
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize) -> [S::Bytes; 8] {
        looked_up(s, &E2M1_CODES, turned_nibbles(s, rows, at + 1))
    }

    /// The scale is 2^(e − 128), which may be subnormal: the product of two normal powers of two.
    #[inline(always)]
    fn scales<S: Simd>(s: S, rows: Rows, at: usize) -> (S::Floats, S::Floats) {
        let [first, ..] = words(s, rows, at);
        let e = s.lanes_and(first, 0xff);
        let (low, high) = (s.lanes_right(e, 1), s.lanes_right(s.add(e, s.splat(1)), 1));
        // The exponents e/2 − 64 and (e + 1)/2 − 64, biased.
        let low = s.bits_to_floats(s.lanes_left(s.add(low, s.splat(63)), 23));
        let high = s.bits_to_floats(s.lanes_left(s.add(high, s.splat(63)), 23));
        (s.mul_floats(low, high), s.splat_float(0.0))
    }
}
