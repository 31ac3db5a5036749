//! The weight formats for vector units: the same bits as `blocks`, decoded many at a time.
//!
//! Owns: each format's way from stored bits to unsigned codes, scales and minima. Refuses to know: activations and the
//! order in which anything is summed.
//!
//! A code is the weight's integer `q` plus the format's offset, so that it is unsigned: `q = code − OFFSET`.

use super::blocks::{
    Block, E2M1_DOUBLED, IQ4_NL, IQ4_VALUES, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
};
use super::simd::Simd;

/// A block of 256 weights.
pub trait Wide: Block {
    /// What codes are above the weights' integers: a power of two, or 0 where minima do this service.
    const OFFSET: i32;
    /// Whether codes may be above 128.
    const FULL: bool = false;

    /// The codes of weights `64v..64v + 64` in vector `v`.
    fn codes<S: Simd>(&self, s: S) -> [S::Bytes; 4];

    /// The 16 bytes that hold the scales and minima, among others perhaps.
    fn packed(&self) -> &[u8; 16];

    /// The scales and minima of 16 blocks, unpacked from the four words of each one's [`Wide::packed`].
    fn sides<S: Simd>(s: S, packed: [S::Lanes; 4]) -> Sides<S>;

    /// The halves `d` and `dmin` (0 without minima).
    fn halves(&self) -> (u16, u16);
}

/// The small integers of 16 blocks: lane `r` of a vector holds four of block `r`, a byte each.
pub struct Sides<S: Simd> {
    /// Scales (i8), of sub-blocks 0 to 3 in the first vector and so on. Sub-blocks of 32 take two vectors; their
    /// minima, if any, the other two.
    pub scales: [S::Lanes; 4],
    /// Minima of sub-blocks of 16, if any.
    pub minima: [S::Lanes; 4],
}

/// A block of 32 weights.
pub trait Narrow: Block {
    /// What codes are above the weights' integers.
    const OFFSET: i32;
    /// Whether codes may be above 127.
    const FULL: bool = false;

    /// The codes of one block in the lower half, of another in the upper half.
    fn codes<S: Simd>(s: S, pair: [&Self; 2]) -> S::Bytes;

    /// The stored `d` and `dmin` in 16 bits each.
    fn stored(&self) -> (u16, u16);

    /// Stored scales of 16 blocks as singles.
    #[inline(always)]
    fn widen<S: Simd>(s: S, stored: &[u16; 16]) -> S::Floats {
        s.widen(&halves(stored))
    }
}

/// Halves as the bytes that [`Simd::widen`] takes.
#[inline(always)]
pub fn halves(stored: &[u16; 16]) -> [u8; 32] {
    bytemuck::cast(stored.map(u16::to_le))
}

/// A stored half's bits.
#[inline(always)]
fn half(bytes: [u8; 2]) -> u16 {
    u16::from_le_bytes(bytes)
}

// What the formats share is written in functions that are always inlined, never in closures: the operations of a vector
// unit become instructions only inside the function that carries its features.

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

/// The same byte four times.
const fn each(byte: u8) -> u32 {
    u32::from_le_bytes([byte; 4])
}

/// The scales and minima of Q4_K and Q5_K: see `blocks`. The words are those of `d` and `dmin`, then three packed ones.
#[inline(always)]
fn scales_and_minima<S: Simd>(s: S, [_, scale, min, low]: [S::Lanes; 4]) -> Sides<S> {
    let (four, two) = (each(0x0f), each(0x30));
    let scales = [
        s.lanes_and(scale, each(0x3f)),
        s.lanes_or(s.lanes_and(low, four), s.lanes_and(s.lanes_right(scale, 2), two)),
        s.lanes_and(min, each(0x3f)),
        s.lanes_or(s.lanes_and(s.lanes_right(low, 4), four), s.lanes_and(s.lanes_right(min, 2), two)),
    ];
    Sides { scales, minima: [s.splat(0); 4] }
}

/// 16 of a block's bytes.
#[inline(always)]
fn sixteen<B: Block>(block: &B, at: usize) -> &[u8; 16] {
    match bytemuck::bytes_of(block)[at..].first_chunk() {
        Some(bytes) => bytes,
        None => unreachable!("a block of 256 has 16 bytes there"),
    }
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
    fn packed(&self) -> &[u8; 16] {
        &self.scales
    }

    #[inline(always)]
    fn sides<S: Simd>(s: S, packed: [S::Lanes; 4]) -> Sides<S> {
        let mut sides = Sides { scales: packed, minima: packed };
        for (scale, min) in sides.scales.iter_mut().zip(&mut sides.minima) {
            *scale = s.lanes_and(*scale, each(15));
            *min = s.lanes_and(s.lanes_right(*min, 4), each(15));
        }
        sides
    }

    #[inline(always)]
    fn halves(&self) -> (u16, u16) {
        (half(self.d), half(self.dmin))
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
    fn packed(&self) -> &[u8; 16] {
        // The last two bytes of `qs`, the twelve of the scales, `d`.
        sixteen(self, 94)
    }

    #[inline(always)]
    fn sides<S: Simd>(s: S, [w, x, y, z]: [S::Lanes; 4]) -> Sides<S> {
        let first = s.lanes_or(s.lanes_right(w, 16), s.lanes_left(x, 16));
        let second = s.lanes_or(s.lanes_right(x, 16), s.lanes_left(y, 16));
        let high = s.lanes_or(s.lanes_right(y, 16), s.lanes_left(z, 16));
        let mut scales = [first, second, first, second];
        for (i, scale) in scales.iter_mut().enumerate() {
            let low = s.lanes_and(s.lanes_right(*scale, i as u8 / 2 * 4), each(15));
            let high = s.lanes_and(s.lanes_right(high, 2 * i as u8), each(3));
            let code = s.lanes_or(low, s.lanes_left(high, 4));
            // 32 less in each byte: 32 is flipped, and what was below it gets the sign bits of a negative number.
            let below = s.lanes_and(s.lanes_xor(code, each(32)), each(32));
            *scale =
                s.lanes_or(s.lanes_xor(code, each(32)), s.lanes_or(s.lanes_left(below, 1), s.lanes_left(below, 2)));
        }
        Sides { scales, minima: [s.splat(0); 4] }
    }

    #[inline(always)]
    fn halves(&self) -> (u16, u16) {
        (half(self.d), 0)
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
    fn packed(&self) -> &[u8; 16] {
        sixteen(self, 0)
    }

    #[inline(always)]
    fn sides<S: Simd>(s: S, packed: [S::Lanes; 4]) -> Sides<S> {
        scales_and_minima(s, packed)
    }

    #[inline(always)]
    fn halves(&self) -> (u16, u16) {
        (half(self.d), half(self.dmin))
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
    fn packed(&self) -> &[u8; 16] {
        sixteen(self, 0)
    }

    #[inline(always)]
    fn sides<S: Simd>(s: S, packed: [S::Lanes; 4]) -> Sides<S> {
        scales_and_minima(s, packed)
    }

    #[inline(always)]
    fn halves(&self) -> (u16, u16) {
        (half(self.d), half(self.dmin))
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
    fn packed(&self) -> &[u8; 16] {
        bytemuck::cast_ref(&self.scales)
    }

    #[inline(always)]
    fn sides<S: Simd>(s: S, packed: [S::Lanes; 4]) -> Sides<S> {
        Sides { scales: packed, minima: [s.splat(0); 4] }
    }

    #[inline(always)]
    fn halves(&self) -> (u16, u16) {
        (half(self.d), 0)
    }
}

/// A table of signed values, `offset` added.
const fn raised(table: [i8; 16], offset: i32) -> [u8; 16] {
    let mut codes = [0; 16];
    let mut i = 0;
    while i < 16 {
        codes[i] = (table[i] as i32 + offset) as u8;
        i += 1;
    }
    codes
}

static IQ4_CODES: [u8; 16] = raised(IQ4_VALUES, 128);
static E2M1_CODES: [u8; 16] = raised(E2M1_DOUBLED, 12);

/// The nibbles of two blocks of 32: low ones first.
#[inline(always)]
fn nibbles<S: Simd>(s: S, a: &[u8; 16], b: &[u8; 16]) -> S::Bytes {
    s.and(s.shift_right(s.quarters(a, b), [0, 4, 0, 4]), 15)
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
    fn packed(&self) -> &[u8; 16] {
        // `d`, the high bits, the low bits, and eight bytes of codes.
        sixteen(self, 0)
    }

    #[inline(always)]
    fn sides<S: Simd>(s: S, [first, low, ..]: [S::Lanes; 4]) -> Sides<S> {
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
        Sides { scales, minima: [s.splat(0); 4] }
    }

    #[inline(always)]
    fn halves(&self) -> (u16, u16) {
        (half(self.d), 0)
    }
}

impl Narrow for Q8_0 {
    const OFFSET: i32 = 128;
    const FULL: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, pair: [&Self; 2]) -> S::Bytes {
        s.xor(s.halves(bytemuck::cast_ref(&pair[0].qs), bytemuck::cast_ref(&pair[1].qs)), 128)
    }

    #[inline(always)]
    fn stored(&self) -> (u16, u16) {
        (half(self.d), 0)
    }
}

impl Narrow for Q4_0 {
    const OFFSET: i32 = 8;

    #[inline(always)]
    fn codes<S: Simd>(s: S, pair: [&Self; 2]) -> S::Bytes {
        nibbles(s, &pair[0].qs, &pair[1].qs)
    }

    #[inline(always)]
    fn stored(&self) -> (u16, u16) {
        (half(self.d), 0)
    }
}

/// Flips a half's sign: what Q4_1 and Q5_1 store is added, a minimum is subtracted.
const SIGN: u16 = 0x8000;

impl Narrow for Q4_1 {
    const OFFSET: i32 = 0;

    #[inline(always)]
    fn codes<S: Simd>(s: S, pair: [&Self; 2]) -> S::Bytes {
        nibbles(s, &pair[0].qs, &pair[1].qs)
    }

    #[inline(always)]
    fn stored(&self) -> (u16, u16) {
        (half(self.d), half(self.m) ^ SIGN)
    }
}

/// The codes of two blocks of Q5_0 or Q5_1.
#[inline(always)]
fn five_bits<S: Simd>(s: S, qs: [&[u8; 16]; 2], qh: [[u8; 4]; 2]) -> S::Bytes {
    let high = s.where_set(u32::from_le_bytes(qh[0]), u32::from_le_bytes(qh[1]), 16);
    s.or(nibbles(s, qs[0], qs[1]), high)
}

impl Narrow for Q5_0 {
    const OFFSET: i32 = 16;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: [&Self; 2]) -> S::Bytes {
        five_bits(s, [&a.qs, &b.qs], [a.qh, b.qh])
    }

    #[inline(always)]
    fn stored(&self) -> (u16, u16) {
        (half(self.d), 0)
    }
}

impl Narrow for Q5_1 {
    const OFFSET: i32 = 0;

    #[inline(always)]
    fn codes<S: Simd>(s: S, [a, b]: [&Self; 2]) -> S::Bytes {
        five_bits(s, [&a.qs, &b.qs], [a.qh, b.qh])
    }

    #[inline(always)]
    fn stored(&self) -> (u16, u16) {
        (half(self.d), half(self.m) ^ SIGN)
    }
}

impl Narrow for IQ4_NL {
    const OFFSET: i32 = 128;
    const FULL: bool = true;

    #[inline(always)]
    fn codes<S: Simd>(s: S, pair: [&Self; 2]) -> S::Bytes {
        s.look_up(&IQ4_CODES, nibbles(s, &pair[0].qs, &pair[1].qs))
    }

    #[inline(always)]
    fn stored(&self) -> (u16, u16) {
        (half(self.d), 0)
    }
}

impl Narrow for MXFP4 {
    const OFFSET: i32 = 12;

    #[inline(always)]
    fn codes<S: Simd>(s: S, pair: [&Self; 2]) -> S::Bytes {
        s.look_up(&E2M1_CODES, nibbles(s, &pair[0].qs, &pair[1].qs))
    }

    #[inline(always)]
    fn stored(&self) -> (u16, u16) {
        (u16::from(self.e), 0)
    }

    #[inline(always)]
    fn widen<S: Simd>(s: S, stored: &[u16; 16]) -> S::Floats {
        let mut scales = [0.0; 16];
        for (scale, e) in scales.iter_mut().zip(stored) {
            *scale = super::blocks::e8m0_halved(*e as u8);
        }
        s.load_floats(&scales)
    }
}
