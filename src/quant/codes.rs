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

    /// The scales (i8), then the minima: 16 of each where a sub-block has 16 weights, else 8 of each in the first array.
    fn sides(&self) -> ([u8; 16], [u8; 16]);

    /// The halves `d` and `dmin` (0 without minima).
    fn halves(&self) -> (u16, u16);
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

/// Words of a packed field.
#[inline(always)]
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// Words as bytes.
#[inline(always)]
fn bytes(words: [u32; 4]) -> [u8; 16] {
    let all = words.iter().rev().fold(0u128, |all, word| all << 32 | u128::from(*word));
    all.to_le_bytes()
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

/// The scales and minima of Q4_K and Q5_K, four to a word.
#[inline(always)]
fn scales_and_minima(packed: &[u8; 12]) -> [u8; 16] {
    const SIX: u32 = 0x3f3f_3f3f;
    const FOUR: u32 = 0x0f0f_0f0f;
    const TWO: u32 = 0x3030_3030;
    let [s, m, low] = words(packed);
    bytes([s & SIX, (low & FOUR) | (s >> 2 & TWO), m & SIX, (low >> 4 & FOUR) | (m >> 2 & TWO)])
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
    fn sides(&self) -> ([u8; 16], [u8; 16]) {
        const LOW: u128 = 0x0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f;
        let packed = u128::from_le_bytes(self.scales);
        ((packed & LOW).to_le_bytes(), (packed >> 4 & LOW).to_le_bytes())
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
    fn sides(&self) -> ([u8; 16], [u8; 16]) {
        const FOUR: u32 = 0x0f0f_0f0f;
        const TWO: u32 = 0x0303_0303;
        let [a, b, high] = words(&self.scales);
        // 32 less in each byte; the top bit lends, so that no byte borrows from the next.
        let less = |word: u32| ((word | 0x8080_8080) - 0x2020_2020) ^ 0x8080_8080;
        let scale = [
            less((a & FOUR) | (high & TWO) << 4),
            less((b & FOUR) | (high >> 2 & TWO) << 4),
            less((a >> 4 & FOUR) | (high >> 4 & TWO) << 4),
            less((b >> 4 & FOUR) | (high >> 6 & TWO) << 4),
        ];
        (bytes(scale), [0; 16])
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
    fn sides(&self) -> ([u8; 16], [u8; 16]) {
        (scales_and_minima(&self.scales), [0; 16])
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
    fn sides(&self) -> ([u8; 16], [u8; 16]) {
        (scales_and_minima(&self.scales), [0; 16])
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
    fn sides(&self) -> ([u8; 16], [u8; 16]) {
        (bytemuck::cast(self.scales), [0; 16])
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
    fn sides(&self) -> ([u8; 16], [u8; 16]) {
        let (low, high) = (u32::from_le_bytes(self.scales_l), u16::from_le_bytes(self.scales_h));
        let mut scale = [0; 16];
        for (i, scale) in scale[..8].iter_mut().enumerate() {
            let bits = (low >> (4 * i) & 15) as u8 | ((high >> (2 * i) & 3) << 4) as u8;
            *scale = bits.wrapping_sub(32);
        }
        (scale, [0; 16])
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
