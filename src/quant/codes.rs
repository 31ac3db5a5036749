//! The weight formats for vector units: the same bits as `blocks`, decoded many at a time.
//!
//! Owns: each format's way from stored bits to unsigned codes, scales and minima. Refuses to know: activations and the
//! order in which anything is summed.
//!
//! A code is the weight's integer `q` plus the format's offset, so that it is unsigned: `q = code − OFFSET`. There are
//! two ways to the codes: in order, one block to some vectors; and *turned*, 16 blocks at once with one block to a lane.
//!
//! What formats share is written in functions that are always inlined, never in closures: the operations of a vector
//! unit become instructions only inside the function that carries its features.

mod narrow;
mod wide;

use super::blocks::{Block, E2M1_DOUBLED, IQ4_VALUES};
use super::simd::{Ahead, Rows, Simd};

/// A block of 256 weights.
pub trait Wide: Block {
    /// What codes are above the weights' integers: a power of two, or 0 where minima do this service.
    const OFFSET: i32;
    /// Whether codes may be above 128.
    const FULL: bool = false;

    /// The codes of weights `64v..64v + 64` in vector `v`.
    fn codes<S: Simd>(&self, s: S) -> [S::Bytes; 4];

    /// The codes of the 16 blocks at `at` in each row: weights `4k..4k + 4` of block `r` in lane `r` of vector `k`.
    /// Takes [`LINES`] of the lines ahead now and then.
    fn turned<S: Simd>(s: S, rows: Rows, at: usize, into: (&mut [S::Bytes; 64], &mut Ahead));

    /// The scales and minima of the 16 blocks at `at` in each row.
    fn sides<S: Simd>(s: S, rows: Rows, at: usize) -> Sides<S>;
}

/// A block of 32 weights.
pub trait Narrow: Block {
    /// What codes are above the weights' integers.
    const OFFSET: i32;
    /// Whether codes may be above 127.
    const FULL: bool = false;

    /// The codes of one block in the lower half, of another in the upper half.
    fn codes<S: Simd>(s: S, pair: [&Self; 2]) -> S::Bytes;

    /// The codes of the 16 blocks at `at` in each row: weights `4k..4k + 4` of block `r` in lane `r` of vector `k`.
    fn turned<S: Simd>(s: S, rows: Rows, at: usize) -> [S::Bytes; 8];

    /// `d` and `dmin` of the 16 blocks at `at` in each row; `dmin` is unspecified without minima.
    fn scales<S: Simd>(s: S, rows: Rows, at: usize) -> (S::Floats, S::Floats);
}

/// The scales and minima of 16 blocks. Lane `r` of a vector holds what belongs to block `r`.
pub struct Sides<S: Simd> {
    /// Scales (i8), four to a lane, of sub-blocks 0 to 3 in the first vector and so on. Sub-blocks of 32 take two
    /// vectors; their minima, if any, the other two.
    pub scales: [S::Lanes; 4],
    /// Minima of sub-blocks of 16, if any.
    pub minima: [S::Lanes; 4],
    /// Scale of the scales.
    pub d: S::Floats,
    /// Scale of the minima; unspecified without minima.
    pub dmin: S::Floats,
}

/// Lines asked for with each few columns that are turned.
const LINES: usize = 4;

/// The same byte four times.
const fn each(byte: u8) -> u32 {
    u32::from_le_bytes([byte; 4])
}

/// Columns as words.
#[inline(always)]
fn words<S: Simd>(s: S, rows: Rows, at: usize) -> [S::Lanes; 4] {
    let [a, b, c, d] = s.columns(rows, at);
    [s.lanes(a), s.lanes(b), s.lanes(c), s.lanes(d)]
}

/// Both halves of each word, lower and upper, as singles.
#[inline(always)]
fn two_halves<S: Simd>(s: S, v: S::Lanes) -> (S::Floats, S::Floats) {
    (s.halves_of(v), s.halves_of(s.lanes_right(v, 16)))
}

/// Bit (or field) `from` of each byte moved to bit `to`, under `mask`.
#[inline(always)]
fn moved<S: Simd>(s: S, v: S::Bytes, from: u8, to: u8, mask: u8) -> S::Bytes {
    s.and(if to >= from { s.left(v, to - from) } else { s.right(v, from - to) }, mask)
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

/// The nibbles of 16 times 16 bytes, turned: low ones first.
#[inline(always)]
fn turned_nibbles<S: Simd>(s: S, rows: Rows, at: usize) -> [S::Bytes; 8] {
    let [a, b, c, d] = s.columns(rows, at);
    [
        s.and(a, 15),
        s.and(b, 15),
        s.and(c, 15),
        s.and(d, 15),
        s.and(s.right(a, 4), 15),
        s.and(s.right(b, 4), 15),
        s.and(s.right(c, 4), 15),
        s.and(s.right(d, 4), 15),
    ]
}
