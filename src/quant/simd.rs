//! What every vector unit can do with 64 bytes, 16 integers or 16 singles at a time.
//!
//! Owns: the operations that the products are written in, so that each is written once for all instruction sets.
//! Refuses to know: formats, rows, and how an instruction set does it (`x86`, `arm`, `portable`).
//!
//! A logical vector may be one register or several. All integer operations are exact and all float operations round
//! once, so that the same code gives the same bits everywhere.

mod portable;

pub use portable::Portable;

/// 16 rows of bytes that lie a stride apart.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    bytes: &'a [u8],
    stride: usize,
}

impl<'a> Rows<'a> {
    /// `bytes` cut into 16 rows of `stride`.
    #[inline(always)]
    pub fn new(bytes: &'a [u8]) -> Rows<'a> {
        assert!(bytes.len().is_multiple_of(16), "16 equal rows");
        Rows { bytes, stride: bytes.len() / 16 }
    }

    /// 16 bytes of row `r`.
    #[inline(always)]
    pub fn sixteen(&self, r: usize, at: usize) -> &'a [u8; 16] {
        match self.bytes[r * self.stride + at..].first_chunk() {
            Some(bytes) => bytes,
            None => unreachable!("16 bytes are inside the row"),
        }
    }

    /// All bytes and the stride, after it is certain that each row has 16 bytes from `at`.
    #[inline(always)]
    pub fn checked(&self, at: usize) -> (&'a [u8], usize) {
        assert!(at + 16 <= self.stride, "columns lie inside the rows");
        (self.bytes, self.stride)
    }
}

/// A vector unit; a value of an implementing type is the proof that the machine has it.
pub trait Simd: Copy {
    /// 64 bytes: weight codes (unsigned) or activations (signed).
    type Bytes: Copy;
    /// 16 integers of 32 bits.
    type Lanes: Copy;
    /// 16 singles.
    type Floats: Copy;
    /// The scales of 64 weights, as [`Simd::dot_scaled`] wants them.
    type Scales: Copy;

    /// 64 bytes from memory.
    fn load(self, from: &[u8; 64]) -> Self::Bytes;
    /// 32 bytes in both halves.
    fn twice(self, half: &[u8; 32]) -> Self::Bytes;
    /// Two halves side by side.
    fn halves(self, low: &[u8; 32], high: &[u8; 32]) -> Self::Bytes;
    /// Two quarters, each twice: `a a b b`.
    fn quarters(self, a: &[u8; 16], b: &[u8; 16]) -> Self::Bytes;
    /// Four bytes in all 16 lanes.
    fn splat4(self, bytes: [u8; 4]) -> Self::Bytes;

    /// Each byte shifted right, by its quarter's count (0 to 7). The bits that come in from above are unspecified:
    /// an [`Simd::and`] must follow.
    fn shift_right(self, v: Self::Bytes, by: [u8; 4]) -> Self::Bytes;
    /// Each byte shifted left, with the same reservation for the bits that come in from below.
    fn shift_left(self, v: Self::Bytes, by: [u8; 4]) -> Self::Bytes;
    /// Each byte shifted right by the same count, with the same reservation.
    fn right(self, v: Self::Bytes, by: u8) -> Self::Bytes;
    /// Each byte shifted left by the same count, with the same reservation.
    fn left(self, v: Self::Bytes, by: u8) -> Self::Bytes;
    /// Every byte masked.
    fn and(self, v: Self::Bytes, mask: u8) -> Self::Bytes;
    /// Every byte with these bits flipped.
    fn xor(self, v: Self::Bytes, mask: u8) -> Self::Bytes;
    /// The bits of both.
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// `table[code]` for codes below 16.
    fn look_up(self, table: &[u8; 16], codes: Self::Bytes) -> Self::Bytes;
    /// `value` where the bit is set, else 0: bit `i` of `low` for byte `i`, of `high` for byte `32 + i`.
    fn where_set(self, low: u32, high: u32, value: u8) -> Self::Bytes;

    /// Bytes as the lanes that they make up, lowest byte first.
    fn lanes(self, v: Self::Bytes) -> Self::Lanes;
    /// Lanes as the bytes that make them up.
    fn bytes(self, v: Self::Lanes) -> Self::Bytes;
    /// Every lane shifted right, zeros coming in.
    fn lanes_right(self, v: Self::Lanes, by: u8) -> Self::Lanes;
    /// Every lane shifted left.
    fn lanes_left(self, v: Self::Lanes, by: u8) -> Self::Lanes;
    /// Every lane masked.
    fn lanes_and(self, v: Self::Lanes, mask: u32) -> Self::Lanes;
    /// The bits of both.
    fn lanes_or(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// Every lane with these bits flipped.
    fn lanes_xor(self, v: Self::Lanes, mask: u32) -> Self::Lanes;

    /// 16 times the same integer.
    fn splat(self, v: i32) -> Self::Lanes;
    /// `a + b`, wrapping.
    fn add(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// `a · b`, wrapping.
    fn mul(self, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// `acc + ` in each lane the dot product of its four codes (unsigned) with its four activations (signed, not −128).
    /// `full` says whether codes may be above 127.
    fn dot(self, acc: Self::Lanes, codes: Self::Bytes, x: Self::Bytes, full: bool) -> Self::Lanes;
    /// `acc + ` in each lane the dot product of two pairs of i16.
    fn dot_pairs(self, acc: Self::Lanes, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// The scales (i8) of 256 weights, 16 of them, or 8 if `sub`, the weights that share one, is 32.
    fn scales(self, scale: &[u8; 16], sub: usize) -> [Self::Scales; 4];
    /// `acc + Σ scale · code · x`; how the sum falls into lanes is the unit's own. Codes are at most 128.
    fn dot_scaled(self, acc: Self::Lanes, codes: Self::Bytes, x: Self::Bytes, scales: Self::Scales) -> Self::Lanes;
    /// Lane `r` is the sum of all lanes of `v[r]`.
    fn sums(self, v: &[Self::Lanes; 16]) -> Self::Lanes;
    /// Lane `r` is the sum of the lower 8 lanes of `v[r]`, lane `8 + r` that of the upper 8.
    fn half_sums(self, v: &[Self::Lanes; 8]) -> Self::Lanes;

    /// Four columns of four bytes: vector `c` has bytes `at + 4c..at + 4c + 4` of row `r` in lane `r`.
    fn columns(self, rows: Rows, at: usize) -> [Self::Bytes; 4];
    /// Rows again from columns of words: the reverse of [`Simd::columns`] for rows of 16 bytes.
    fn rows(self, columns: [Self::Lanes; 4]) -> [[u8; 16]; 16];
    /// Byte `i` of each lane, widened as a signed number.
    fn signed_byte(self, v: Self::Lanes, i: usize) -> Self::Lanes;
    /// Bytes `i` and `j` of each lane as a pair of i16, widened as signed numbers.
    fn signed_pair(self, v: Self::Lanes, i: usize, j: usize) -> Self::Lanes;

    /// 16 singles from memory.
    fn load_floats(self, from: &[f32; 16]) -> Self::Floats;
    /// 16 singles to memory.
    fn store_floats(self, v: Self::Floats, to: &mut [f32; 16]);
    /// 16 singles, little-endian bytes, from memory.
    fn stored_floats(self, from: &[u8; 64]) -> Self::Floats;
    /// 16 halves, little-endian bytes, widened exactly.
    fn widen(self, halves: &[u8; 32]) -> Self::Floats;
    /// 16 upper halves of singles (bfloat16), little-endian bytes, widened exactly.
    fn widen_upper(self, halves: &[u8; 32]) -> Self::Floats;
    /// The lower 16 bits of each lane as a half, widened exactly.
    fn halves_of(self, v: Self::Lanes) -> Self::Floats;
    /// Each lane's bits as a single.
    fn bits_to_floats(self, v: Self::Lanes) -> Self::Floats;
    /// Singles rounded to halves, ties to even, as little-endian bytes.
    fn narrow(self, v: Self::Floats) -> [u8; 32];
    /// 16 times the same single.
    fn splat_float(self, v: f32) -> Self::Floats;
    /// Integers to the nearest singles, ties to even.
    fn to_floats(self, v: Self::Lanes) -> Self::Floats;
    /// `a + b`.
    fn add_floats(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a · b`.
    fn mul_floats(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `fma(a, b, c)`.
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `fma(−a, b, c)`.
    fn fnma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;

    /// Lane `r` is the sum of the lanes of `v[r]` by the fixed tree: lane `l + 8` is added to lane `l`, then 4, 2, 1.
    fn trees(self, v: &[Self::Floats; 16]) -> Self::Floats;
    /// The sum of all lanes by the same tree.
    fn tree(self, v: Self::Floats) -> f32;

    /// Asks for the cache line of `byte`, which will be read soon.
    fn prefetch(self, byte: &u8);
}

/// Memory that will be read after this, asked for little by little: a processor has few outstanding reads, and a burst
/// of them holds up the reads that matter now.
pub struct Ahead<'a> {
    bytes: &'a [u8],
}

impl<'a> Ahead<'a> {
    /// Nothing asked for yet.
    #[inline(always)]
    pub fn new(bytes: &'a [u8]) -> Ahead<'a> {
        Ahead { bytes }
    }

    /// Lines that are left.
    #[inline(always)]
    pub fn lines(&self) -> usize {
        self.bytes.len().div_ceil(LINE)
    }

    /// Asks for the next `lines` lines.
    #[inline(always)]
    pub fn step<S: Simd>(&mut self, s: S, lines: usize) {
        for _ in 0..lines {
            if let Some(byte) = self.bytes.first() {
                s.prefetch(byte);
                self.bytes = self.bytes.get(LINE..).unwrap_or_default();
            }
        }
    }
}

/// Bytes in a cache line.
const LINE: usize = 64;
