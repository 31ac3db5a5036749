//! The vector operations in AVX2, FMA and F16C.
//!
//! Owns: 256-bit registers, two to a logical vector. Refuses to know: formats.

use super::{PAIR_TOPS, SCALE_TOPS, operations};
use crate::quant::simd::{Rows, Simd};
use std::arch::x86_64::*;

/// AVX2, FMA and F16C.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

/// Both halves of a logical vector, written out: a closure handed to the library might not end up in the kernel.
macro_rules! each {
    ($h:ident => $value:expr) => {
        [
            {
                let $h = 0;
                $value
            },
            {
                let $h = 1;
                $value
            },
        ]
    };
}

/// Lower and upper half of a logical vector.
type Two = [__m256i; 2];

impl Avx2 {
    /// The unit.
    ///
    /// # Safety
    /// The machine, and the function in which the operations end up, must have the features.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Avx2(())
    }

    operations! {
        /// 32 bytes from memory.
        fn half(self, from: &[u8; 32]) -> __m256i {
            _mm256_loadu_si256(from.as_ptr().cast())
        }

        /// 16 bytes in both halves of a register.
        fn quarter_twice(self, from: &[u8; 16]) -> __m256i {
            _mm256_broadcastsi128_si256(_mm_loadu_si128(from.as_ptr().cast()))
        }

        /// The same count in the four lanes of a quarter.
        fn counts(self, a: u8, b: u8) -> __m256i {
            let (a, b) = (i32::from(a), i32::from(b));
            _mm256_setr_epi32(a, a, a, a, b, b, b, b)
        }

        /// Lane `r` is the sum of all lanes of `v[r]`.
        fn sums_of_8(self, v: [__m256i; 8]) -> __m256i {
            let a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
            let b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
            _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b))
        }

        /// [`Simd::columns`] of 8 rows from `start`.
        fn columns_of_8(self, start: *const u8, stride: usize) -> [__m256i; 4] {
            let mut two = [_mm256_setzero_si256(); 4];
            for (r, two) in two.iter_mut().enumerate() {
                let low = _mm_loadu_si128(start.add(r * stride).cast());
                let high = _mm_loadu_si128(start.add((r + 4) * stride).cast());
                *two = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
            }
            self.turn_quarters(two[0], two[1], two[2], two[3])
        }

        /// In every half the 4 × 4 words of that half of the four, rows and columns exchanged.
        fn turn_quarters(self, a: __m256i, b: __m256i, c: __m256i, d: __m256i) -> [__m256i; 4] {
            let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
            let (ab2, cd2) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
            [
                _mm256_unpacklo_epi64(ab, cd),
                _mm256_unpackhi_epi64(ab, cd),
                _mm256_unpacklo_epi64(ab2, cd2),
                _mm256_unpackhi_epi64(ab2, cd2),
            ]
        }
    }
}

impl Simd for Avx2 {
    type Bytes = Two;
    type Lanes = Two;
    type Floats = [__m256; 2];
    type Scales = Two;

    operations! {
        fn load(self, from: &[u8; 64]) -> Two {
            each!(h => _mm256_loadu_si256(from.as_ptr().add(32 * h).cast()))
        }

        fn twice(self, half: &[u8; 32]) -> Two {
            [self.half(half); 2]
        }

        fn halves(self, low: &[u8; 32], high: &[u8; 32]) -> Two {
            [self.half(low), self.half(high)]
        }

        fn quarters(self, a: &[u8; 16], b: &[u8; 16]) -> Two {
            [self.quarter_twice(a), self.quarter_twice(b)]
        }

        fn splat4(self, bytes: [u8; 4]) -> Two {
            [_mm256_set1_epi32(i32::from_le_bytes(bytes)); 2]
        }

        fn shift_right(self, v: Two, by: [u8; 4]) -> Two {
            each!(h => _mm256_srlv_epi32(v[h], self.counts(by[2 * h], by[2 * h + 1])))
        }

        fn shift_left(self, v: Two, by: [u8; 4]) -> Two {
            each!(h => _mm256_sllv_epi32(v[h], self.counts(by[2 * h], by[2 * h + 1])))
        }

        fn right(self, v: Two, by: u8) -> Two {
            self.lanes_right(v, by)
        }

        fn left(self, v: Two, by: u8) -> Two {
            self.lanes_left(v, by)
        }

        fn and(self, v: Two, mask: u8) -> Two {
            each!(h => _mm256_and_si256(v[h], _mm256_set1_epi8(mask as i8)))
        }

        fn xor(self, v: Two, mask: u8) -> Two {
            each!(h => _mm256_xor_si256(v[h], _mm256_set1_epi8(mask as i8)))
        }

        fn or(self, a: Two, b: Two) -> Two {
            each!(h => _mm256_or_si256(a[h], b[h]))
        }

        fn look_up(self, table: &[u8; 16], codes: Two) -> Two {
            let table = self.quarter_twice(table);
            each!(h => _mm256_shuffle_epi8(table, codes[h]))
        }

        fn where_set(self, low: u32, high: u32, value: u8) -> Two {
            // Byte `i` sees the bits' byte `i / 8` and tests bit `i % 8` of it.
            let bytes = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
            let tests = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            let bits = [low, high];
            each!(h => {
                let bits = _mm256_shuffle_epi8(_mm256_set1_epi32(bits[h] as i32), bytes);
                let set = _mm256_cmpeq_epi8(_mm256_and_si256(bits, tests), tests);
                _mm256_and_si256(set, _mm256_set1_epi8(value as i8))
            })
        }

        fn lanes(self, v: Two) -> Two {
            v
        }

        fn bytes(self, v: Two) -> Two {
            v
        }

        fn lanes_right(self, v: Two, by: u8) -> Two {
            each!(h => _mm256_srl_epi32(v[h], _mm_cvtsi32_si128(i32::from(by))))
        }

        fn lanes_left(self, v: Two, by: u8) -> Two {
            each!(h => _mm256_sll_epi32(v[h], _mm_cvtsi32_si128(i32::from(by))))
        }

        fn lanes_and(self, v: Two, mask: u32) -> Two {
            each!(h => _mm256_and_si256(v[h], _mm256_set1_epi32(mask as i32)))
        }

        fn lanes_or(self, a: Two, b: Two) -> Two {
            self.or(a, b)
        }

        fn lanes_xor(self, v: Two, mask: u32) -> Two {
            each!(h => _mm256_xor_si256(v[h], _mm256_set1_epi32(mask as i32)))
        }

        fn splat(self, v: i32) -> Two {
            [_mm256_set1_epi32(v); 2]
        }

        fn add(self, a: Two, b: Two) -> Two {
            each!(h => _mm256_add_epi32(a[h], b[h]))
        }

        fn mul(self, a: Two, b: Two) -> Two {
            each!(h => _mm256_mullo_epi32(a[h], b[h]))
        }

        fn dot(self, acc: Two, codes: Two, x: Two, full: bool) -> Two {
            // Two products of at most 128 · 127 fit an i16.
            let ones = _mm256_set1_epi16(1);
            if full {
                let (low, top) = (self.and(codes, 0x7f), self.and(codes, 0x80));
                each!(h => {
                    let low = _mm256_madd_epi16(_mm256_maddubs_epi16(low[h], x[h]), ones);
                    let top = _mm256_madd_epi16(_mm256_maddubs_epi16(top[h], x[h]), ones);
                    _mm256_add_epi32(acc[h], _mm256_add_epi32(low, top))
                })
            } else {
                each!(h => _mm256_add_epi32(acc[h], _mm256_madd_epi16(_mm256_maddubs_epi16(codes[h], x[h]), ones)))
            }
        }

        fn dot_pairs(self, acc: Two, a: Two, b: Two) -> Two {
            each!(h => _mm256_add_epi32(acc[h], _mm256_madd_epi16(a[h], b[h])))
        }

        fn scales(self, scale: &[u8; 16], sub: usize) -> [Two; 4] {
            let all = self.quarter_twice(scale);
            let tops = &SCALE_TOPS[usize::from(sub == 32)];
            let mut scales = [[all; 2]; 4];
            for (scales, tops) in scales.iter_mut().zip(tops) {
                let tops = self.load(tops);
                *scales = each!(h => _mm256_srai_epi16::<8>(_mm256_shuffle_epi8(all, tops[h])));
            }
            scales
        }

        fn dot_scaled(self, acc: Two, codes: Two, x: Two, scales: Two) -> Two {
            self.dot_pairs(acc, each!(h => _mm256_maddubs_epi16(codes[h], x[h])), scales)
        }

        fn sums(self, v: &[Two; 16]) -> Two {
            let (mut low, mut high) = ([v[0][0]; 8], [v[0][0]; 8]);
            for r in 0..8 {
                low[r] = _mm256_add_epi32(v[r][0], v[r][1]);
                high[r] = _mm256_add_epi32(v[r + 8][0], v[r + 8][1]);
            }
            [self.sums_of_8(low), self.sums_of_8(high)]
        }

        fn half_sums(self, v: &[Two; 8]) -> Two {
            each!(h => self.sums_of_8([v[0][h], v[1][h], v[2][h], v[3][h], v[4][h], v[5][h], v[6][h], v[7][h]]))
        }

        fn columns(self, rows: Rows, at: usize) -> [Two; 4] {
            let (bytes, stride) = rows.checked(at);
            let start = bytes.as_ptr().add(at);
            let (low, high) = (self.columns_of_8(start, stride), self.columns_of_8(start.add(8 * stride), stride));
            [[low[0], high[0]], [low[1], high[1]], [low[2], high[2]], [low[3], high[3]]]
        }

        fn rows(self, columns: [Two; 4]) -> [[u8; 16]; 16] {
            let mut rows = [[0; 16]; 16];
            for h in 0..2 {
                let [a, b, c, d] = [columns[0][h], columns[1][h], columns[2][h], columns[3][h]];
                for (r, two) in self.turn_quarters(a, b, c, d).into_iter().enumerate() {
                    let (low, high) = (_mm256_castsi256_si128(two), _mm256_extracti128_si256::<1>(two));
                    _mm_storeu_si128(rows[8 * h + r].as_mut_ptr().cast(), low);
                    _mm_storeu_si128(rows[8 * h + r + 4].as_mut_ptr().cast(), high);
                }
            }
            rows
        }

        fn signed_byte(self, v: Two, i: usize) -> Two {
            let count = _mm_cvtsi32_si128(24 - 8 * i as i32);
            each!(h => _mm256_srai_epi32::<24>(_mm256_sll_epi32(v[h], count)))
        }

        fn signed_pair(self, v: Two, i: usize, j: usize) -> Two {
            let tops = self.quarter_twice(&PAIR_TOPS[i][j]);
            each!(h => _mm256_srai_epi16::<8>(_mm256_shuffle_epi8(v[h], tops)))
        }

        fn load_floats(self, from: &[f32; 16]) -> [__m256; 2] {
            each!(h => _mm256_loadu_ps(from.as_ptr().add(8 * h)))
        }

        fn store_floats(self, v: [__m256; 2], to: &mut [f32; 16]) {
            for (h, v) in v.into_iter().enumerate() {
                _mm256_storeu_ps(to.as_mut_ptr().add(8 * h), v);
            }
        }

        fn stored_floats(self, from: &[u8; 64]) -> [__m256; 2] {
            each!(h => _mm256_loadu_ps(from.as_ptr().add(32 * h).cast()))
        }

        fn widen(self, halves: &[u8; 32]) -> [__m256; 2] {
            each!(h => _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().add(16 * h).cast())))
        }

        fn widen_upper(self, halves: &[u8; 32]) -> [__m256; 2] {
            each!(h => {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves.as_ptr().add(16 * h).cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            })
        }

        fn halves_of(self, v: Two) -> [__m256; 2] {
            let lower = self.lanes_and(v, 0xffff);
            // Packing works in each half of a register; the second step puts the halves in order.
            let packed = _mm256_packus_epi32(lower[0], lower[1]);
            let packed = _mm256_permute4x64_epi64::<0xd8>(packed);
            [_mm256_cvtph_ps(_mm256_castsi256_si128(packed)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(packed))]
        }

        fn bits_to_floats(self, v: Two) -> [__m256; 2] {
            each!(h => _mm256_castsi256_ps(v[h]))
        }

        fn narrow(self, v: [__m256; 2]) -> [u8; 32] {
            let mut halves = [0u8; 32];
            for (to, v) in halves.as_chunks_mut::<16>().0.iter_mut().zip(v) {
                _mm_storeu_si128(to.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
            }
            halves
        }

        fn splat_float(self, v: f32) -> [__m256; 2] {
            [_mm256_set1_ps(v); 2]
        }

        fn to_floats(self, v: Two) -> [__m256; 2] {
            each!(h => _mm256_cvtepi32_ps(v[h]))
        }

        fn add_floats(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            each!(h => _mm256_add_ps(a[h], b[h]))
        }

        fn mul_floats(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            each!(h => _mm256_mul_ps(a[h], b[h]))
        }

        fn fma(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
            each!(h => _mm256_fmadd_ps(a[h], b[h], c[h]))
        }

        fn fnma(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
            each!(h => _mm256_fnmadd_ps(a[h], b[h], c[h]))
        }

        fn trees(self, v: &[[__m256; 2]; 16]) -> [__m256; 2] {
            let mut sums = [0.0; 16];
            for (sum, v) in sums.iter_mut().zip(v) {
                *sum = self.tree(*v);
            }
            self.load_floats(&sums)
        }

        fn tree(self, v: [__m256; 2]) -> f32 {
            let v = _mm256_add_ps(v[0], v[1]);
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        }

        fn prefetch(self, byte: &u8) {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast());
        }
    }
}
