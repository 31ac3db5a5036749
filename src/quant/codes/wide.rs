//! Blocks of 256 weights, decoded many at a time.
//!
//! Owns: Q2_K to Q6_K, IQ4_XS. Refuses to know: anything but [`Wide`].

use super::{IQ4_CODES, LINES, Sides, Wide, each, moved, nibbles, turned_nibbles, two_halves, words};
use crate::quant::blocks::{IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K};
use crate::quant::simd::{Ahead, Rows, Simd};
use std::mem::offset_of;

/// 2-bit codes, shifted to the bottom by the quarters' counts.
#[inline(always)]
fn two_bits<S: Simd>(s: S, packed: S::Bytes, by: [u8; 4]) -> S::Bytes {
    s.and(s.shift_right(packed, by), 3)
}

/// The nibbles of 32 bytes: the low ones, then the high ones.
#[inline(always)]
fn four_bits<S: Simd>(s: S, packed: &[u8; 32]) -> S::Bytes {
    s.and(s.shift_right(s.twice(packed), [0, 0, 4, 4]), 15)
}

/// 32 turned bytes: eight vectors.
#[inline(always)]
fn thirty_two<S: Simd>(s: S, rows: Rows, at: usize) -> [S::Bytes; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (s.columns(rows, at), s.columns(rows, at + 16));
    [a, b, c, d, e, f, g, h]
}

/// The scales and minima of Q4_K and Q5_K: see `blocks`. `d` and `dmin` are the first word, the others are packed.
#[inline(always)]
fn scales_and_minima<S: Simd>(s: S, rows: Rows, at: usize) -> Sides<S> {
    let [first, scale, min, low] = words(s, rows, at);
    let (four, two) = (each(0x0f), each(0x30));
    let scales = [
        s.lanes_and(scale, each(0x3f)),
        s.lanes_or(s.lanes_and(low, four), s.lanes_and(s.lanes_right(scale, 2), two)),
        s.lanes_and(min, each(0x3f)),
        s.lanes_or(s.lanes_and(s.lanes_right(low, 4), four), s.lanes_and(s.lanes_right(min, 2), two)),
    ];
    let (d, dmin) = two_halves(s, first);
    Sides { scales, minima: [s.splat(0); 4], d, dmin }
}

impl Wide for Q2_K {
    const OFFSET: i32 = 0;

    #[inline(always)]
    fn codes<S: Simd>(&self, s: S) -> [S::Bytes; 4] {
        let (halves, _) = self.qs.as_chunks();
        let (low, high) = (s.twice(&halves[0]), s.twice(&halves[1]));
        [
            two_bits(s, low, [0, 0, 2, 2]),
            two_bits(s, low, [4, 4, 6, 6]),
            two_bits(s, high, [0, 0, 2, 2]),
            two_bits(s, high, [4, 4, 6, 6]),
        ]
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize, (codes, ahead): (&mut [S::Bytes; 64], &mut Ahead)) {
        for (half, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            ahead.step(s, LINES);
            let packed = thirty_two(s, rows, at + offset_of!(Q2_K, qs) + 32 * half);
            for plane in 0..4 {
                for k in 0..8 {
                    codes[8 * plane + k] = moved(s, packed[k], 2 * plane as u8, 0, 3);
                }
            }
        }
    }

    #[inline(always)]
    fn sides<S: Simd>(s: S, rows: Rows, at: usize) -> Sides<S> {
        let packed = words(s, rows, at + offset_of!(Q2_K, scales));
        let [.., last] = words(s, rows, at + size_of::<Q2_K>() - 16);
        let (d, dmin) = two_halves(s, last);
        let mut sides = Sides { scales: packed, minima: packed, d, dmin };
        for (scale, min) in sides.scales.iter_mut().zip(&mut sides.minima) {
            *scale = s.lanes_and(*scale, each(15));
            *min = s.lanes_and(s.lanes_right(*min, 4), each(15));
        }
        sides
    }
}

impl Wide for Q3_K {
    const OFFSET: i32 = 4;

    #[inline(always)]
    fn codes<S: Simd>(&self, s: S) -> [S::Bytes; 4] {
        let (halves, _) = self.qs.as_chunks();
        let (low, high, mask) = (s.twice(&halves[0]), s.twice(&halves[1]), s.twice(&self.hmask));
        [
            s.or(two_bits(s, low, [0, 0, 2, 2]), s.and(s.shift_left(mask, [2, 2, 1, 1]), 4)),
            s.or(two_bits(s, low, [4, 4, 6, 6]), s.and(s.shift_right(mask, [0, 0, 1, 1]), 4)),
            s.or(two_bits(s, high, [0, 0, 2, 2]), s.and(s.shift_right(mask, [2, 2, 3, 3]), 4)),
            s.or(two_bits(s, high, [4, 4, 6, 6]), s.and(s.shift_right(mask, [4, 4, 5, 5]), 4)),
        ]
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize, (codes, ahead): (&mut [S::Bytes; 64], &mut Ahead)) {
        let mask = thirty_two(s, rows, at + offset_of!(Q3_K, hmask));
        for (half, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            ahead.step(s, LINES);
            let packed = thirty_two(s, rows, at + offset_of!(Q3_K, qs) + 32 * half);
            for plane in 0..4 {
                for k in 0..8 {
                    let high = moved(s, mask[k], (4 * half + plane) as u8, 2, 4);
                    codes[8 * plane + k] = s.or(moved(s, packed[k], 2 * plane as u8, 0, 3), high);
                }
            }
        }
    }

    #[inline(always)]
    fn sides<S: Simd>(s: S, rows: Rows, at: usize) -> Sides<S> {
        // The last 16 bytes: two of `qs`, the twelve of the scales, `d`.
        let [w, x, y, z] = words(s, rows, at + size_of::<Q3_K>() - 16);
        let first = s.lanes_or(s.lanes_right(w, 16), s.lanes_left(x, 16));
        let second = s.lanes_or(s.lanes_right(x, 16), s.lanes_left(y, 16));
        let high = s.lanes_or(s.lanes_right(y, 16), s.lanes_left(z, 16));
        let mut scales = [first, second, first, second];
        for (i, scale) in scales.iter_mut().enumerate() {
            let low = s.lanes_and(s.lanes_right(*scale, i as u8 / 2 * 4), each(15));
            let high = s.lanes_and(s.lanes_right(high, 2 * i as u8), each(3));
            // 32 less in each byte: 32 is flipped, and a negative number gets its two sign bits above.
            let flipped = s.lanes_xor(s.lanes_or(low, s.lanes_left(high, 4)), each(32));
            let negative = s.lanes_and(flipped, each(32));
            *scale = s.lanes_or(flipped, s.lanes_or(s.lanes_left(negative, 1), s.lanes_left(negative, 2)));
        }
        let (_, d) = two_halves(s, z);
        Sides { scales, minima: [s.splat(0); 4], d, dmin: d }
    }
}

impl Wide for Q4_K {
    const OFFSET: i32 = 0;

    #[inline(always)]
    fn codes<S: Simd>(&self, s: S) -> [S::Bytes; 4] {
        let (groups, _) = self.qs.as_chunks();
        [four_bits(s, &groups[0]), four_bits(s, &groups[1]), four_bits(s, &groups[2]), four_bits(s, &groups[3])]
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize, (codes, ahead): (&mut [S::Bytes; 64], &mut Ahead)) {
        for (group, codes) in codes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            ahead.step(s, LINES);
            let packed = thirty_two(s, rows, at + offset_of!(Q4_K, qs) + 32 * group);
            for k in 0..8 {
                codes[k] = s.and(packed[k], 15);
                codes[k + 8] = s.and(s.right(packed[k], 4), 15);
            }
        }
    }

    #[inline(always)]
    fn sides<S: Simd>(s: S, rows: Rows, at: usize) -> Sides<S> {
        scales_and_minima(s, rows, at)
    }
}

impl Wide for Q5_K {
    const OFFSET: i32 = 0;

    #[inline(always)]
    fn codes<S: Simd>(&self, s: S) -> [S::Bytes; 4] {
        let (groups, _) = self.qs.as_chunks();
        let high = s.twice(&self.qh);
        [
            s.or(four_bits(s, &groups[0]), s.and(s.shift_left(high, [4, 4, 3, 3]), 16)),
            s.or(four_bits(s, &groups[1]), s.and(s.shift_left(high, [2, 2, 1, 1]), 16)),
            s.or(four_bits(s, &groups[2]), s.and(s.shift_right(high, [0, 0, 1, 1]), 16)),
            s.or(four_bits(s, &groups[3]), s.and(s.shift_right(high, [2, 2, 3, 3]), 16)),
        ]
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize, (codes, ahead): (&mut [S::Bytes; 64], &mut Ahead)) {
        let high = thirty_two(s, rows, at + offset_of!(Q5_K, qh));
        for (group, codes) in codes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            ahead.step(s, LINES);
            let packed = thirty_two(s, rows, at + offset_of!(Q5_K, qs) + 32 * group);
            let bit = 2 * group as u8;
            for k in 0..8 {
                codes[k] = s.or(s.and(packed[k], 15), moved(s, high[k], bit, 4, 16));
                codes[k + 8] = s.or(s.and(s.right(packed[k], 4), 15), moved(s, high[k], bit + 1, 4, 16));
            }
        }
    }

    #[inline(always)]
    fn sides<S: Simd>(s: S, rows: Rows, at: usize) -> Sides<S> {
        scales_and_minima(s, rows, at)
    }
}

/// The codes of half a block of Q6_K.
#[inline(always)]
fn six_bits<S: Simd>(s: S, low: &[u8; 64], high: &[u8; 32]) -> [S::Bytes; 2] {
    let (low, high) = (s.load(low), s.twice(high));
    let lower = s.or(s.and(low, 15), s.and(s.shift_left(high, [4, 4, 2, 2]), 48));
    let upper = s.and(s.shift_right(low, [4; 4]), 15);
    [lower, s.or(upper, s.and(s.shift_right(high, [0, 0, 2, 2]), 48))]
}

impl Wide for Q6_K {
    const OFFSET: i32 = 32;

    #[inline(always)]
    fn codes<S: Simd>(&self, s: S) -> [S::Bytes; 4] {
        let ((low, _), (high, _)) = (self.ql.as_chunks(), self.qh.as_chunks());
        let ([a, b], [c, d]) = (six_bits(s, &low[0], &high[0]), six_bits(s, &low[1], &high[1]));
        [a, b, c, d]
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize, (codes, ahead): (&mut [S::Bytes; 64], &mut Ahead)) {
        for (half, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let high = thirty_two(s, rows, at + offset_of!(Q6_K, qh) + 32 * half);
            for part in 0..2 {
                ahead.step(s, LINES);
                let low = thirty_two(s, rows, at + offset_of!(Q6_K, ql) + 64 * half + 32 * part);
                let bit = 2 * part as u8;
                for k in 0..8 {
                    codes[8 * part + k] = s.or(s.and(low[k], 15), moved(s, high[k], bit, 4, 48));
                    let upper = s.and(s.right(low[k], 4), 15);
                    codes[8 * part + k + 16] = s.or(upper, moved(s, high[k], bit + 4, 4, 48));
                }
            }
        }
    }

    #[inline(always)]
    fn sides<S: Simd>(s: S, rows: Rows, at: usize) -> Sides<S> {
        let scales = words(s, rows, at + offset_of!(Q6_K, scales));
        let [.., last] = words(s, rows, at + size_of::<Q6_K>() - 16);
        let (_, d) = two_halves(s, last);
        Sides { scales, minima: [s.splat(0); 4], d, dmin: d }
    }
}

impl Wide for IQ4_XS {
    const OFFSET: i32 = 128;
    const FULL: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(&self, s: S) -> [S::Bytes; 4] {
        let (subs, _) = self.qs.as_chunks();
        [
            s.look_up(&IQ4_CODES, nibbles(s, &subs[0], &subs[1])),
            s.look_up(&IQ4_CODES, nibbles(s, &subs[2], &subs[3])),
            s.look_up(&IQ4_CODES, nibbles(s, &subs[4], &subs[5])),
            s.look_up(&IQ4_CODES, nibbles(s, &subs[6], &subs[7])),
        ]
    }

    #[inline(always)]
    fn turned<S: Simd>(s: S, rows: Rows, at: usize, (codes, ahead): (&mut [S::Bytes; 64], &mut Ahead)) {
        for (sub, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            ahead.step(s, LINES / 2);
            let nibbles = turned_nibbles(s, rows, at + offset_of!(IQ4_XS, qs) + 16 * sub);
            for k in 0..8 {
                codes[k] = s.look_up(&IQ4_CODES, nibbles[k]);
            }
        }
    }

    #[inline(always)]
    fn sides<S: Simd>(s: S, rows: Rows, at: usize) -> Sides<S> {
        // `d` and the high bits, the low bits, and eight bytes of codes.
        let [first, low, ..] = words(s, rows, at);
        let mut scales = [s.splat(0); 4];
        for (i, scales) in scales[..2].iter_mut().enumerate() {
            for byte in 0..4 {
                let at = (4 * i + byte) as u8;
                let low = s.lanes_and(s.lanes_right(low, 4 * at), 15);
                let high = s.lanes_and(s.lanes_right(first, 16 + 2 * at), 3);
                // 32 less, in this byte alone.
                let scale = s.lanes_and(s.add(s.lanes_or(low, s.lanes_left(high, 4)), s.splat(-32)), 0xff);
                *scales = s.lanes_or(*scales, s.lanes_left(scale, 8 * byte as u8));
            }
        }
        let d = s.halves_of(first);
        Sides { scales, minima: [s.splat(0); 4], d, dmin: d }
    }
}
