//! The vector operations in AVX-512, with or without VNNI.
//!
//! Owns: 512-bit registers. Refuses to know: formats.

use super::{PAIR_TOPS, SCALE_TOPS, operations};
use crate::quant::simd::{Rows, Simd};
use std::arch::x86_64::*;

/// AVX-512 F, BW, DQ and VL; with `VNNI` also its dot products.
#[derive(Debug, Clone, Copy)]
pub struct Avx512<const VNNI: bool>(());

impl<const VNNI: bool> Avx512<VNNI> {
    /// The unit.
    ///
    /// # Safety
    /// The machine, and the function in which the operations end up, must have the features.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Avx512(())
    }

    operations! {
        /// In every quarter the sums of that quarter of the four.
        fn four_sums(self, a: __m512i, b: __m512i, c: __m512i, d: __m512i) -> __m512i {
            let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
        }

        /// In every quarter the 4 × 4 words of that quarter of the four, rows and columns exchanged.
        fn turn_quarters(self, a: __m512i, b: __m512i, c: __m512i, d: __m512i) -> [__m512i; 4] {
            let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
            let (ab2, cd2) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
            [
                _mm512_unpacklo_epi64(ab, cd),
                _mm512_unpackhi_epi64(ab, cd),
                _mm512_unpacklo_epi64(ab2, cd2),
                _mm512_unpackhi_epi64(ab2, cd2),
            ]
        }

        /// The same count in the four lanes of a quarter.
        fn counts(self, by: [u8; 4]) -> __m512i {
            let [a, b, c, d] = [i32::from(by[0]), i32::from(by[1]), i32::from(by[2]), i32::from(by[3])];
            _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d)
        }
    }
}

impl<const VNNI: bool> Simd for Avx512<VNNI> {
    type Bytes = __m512i;
    type Lanes = __m512i;
    type Floats = __m512;
    type Scales = __m512i;

    operations! {
        fn load(self, from: &[u8; 64]) -> __m512i {
            _mm512_loadu_si512(from.as_ptr().cast())
        }

        fn twice(self, half: &[u8; 32]) -> __m512i {
            _mm512_broadcast_i64x4(_mm256_loadu_si256(half.as_ptr().cast()))
        }

        fn halves(self, low: &[u8; 32], high: &[u8; 32]) -> __m512i {
            let low = _mm512_castsi256_si512(_mm256_loadu_si256(low.as_ptr().cast()));
            _mm512_inserti64x4::<1>(low, _mm256_loadu_si256(high.as_ptr().cast()))
        }

        fn quarters(self, a: &[u8; 16], b: &[u8; 16]) -> __m512i {
            let a = _mm512_broadcast_i32x4(_mm_loadu_si128(a.as_ptr().cast()));
            _mm512_mask_broadcast_i32x4(a, 0xff00, _mm_loadu_si128(b.as_ptr().cast()))
        }

        fn splat4(self, bytes: [u8; 4]) -> __m512i {
            _mm512_set1_epi32(i32::from_le_bytes(bytes))
        }

        fn shift_right(self, v: __m512i, by: [u8; 4]) -> __m512i {
            _mm512_srlv_epi32(v, self.counts(by))
        }

        fn shift_left(self, v: __m512i, by: [u8; 4]) -> __m512i {
            _mm512_sllv_epi32(v, self.counts(by))
        }

        fn right(self, v: __m512i, by: u8) -> __m512i {
            self.lanes_right(v, by)
        }

        fn left(self, v: __m512i, by: u8) -> __m512i {
            self.lanes_left(v, by)
        }

        fn and(self, v: __m512i, mask: u8) -> __m512i {
            _mm512_and_si512(v, _mm512_set1_epi8(mask as i8))
        }

        fn xor(self, v: __m512i, mask: u8) -> __m512i {
            _mm512_xor_si512(v, _mm512_set1_epi8(mask as i8))
        }

        fn or(self, a: __m512i, b: __m512i) -> __m512i {
            _mm512_or_si512(a, b)
        }

        fn look_up(self, table: &[u8; 16], codes: __m512i) -> __m512i {
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), codes)
        }

        fn where_set(self, low: u32, high: u32, value: u8) -> __m512i {
            _mm512_maskz_set1_epi8(u64::from(high) << 32 | u64::from(low), value as i8)
        }

        fn lanes(self, v: __m512i) -> __m512i {
            v
        }

        fn bytes(self, v: __m512i) -> __m512i {
            v
        }

        fn lanes_right(self, v: __m512i, by: u8) -> __m512i {
            _mm512_srl_epi32(v, _mm_cvtsi32_si128(i32::from(by)))
        }

        fn lanes_left(self, v: __m512i, by: u8) -> __m512i {
            _mm512_sll_epi32(v, _mm_cvtsi32_si128(i32::from(by)))
        }

        fn lanes_and(self, v: __m512i, mask: u32) -> __m512i {
            _mm512_and_si512(v, _mm512_set1_epi32(mask as i32))
        }

        fn lanes_or(self, a: __m512i, b: __m512i) -> __m512i {
            _mm512_or_si512(a, b)
        }

        fn lanes_xor(self, v: __m512i, mask: u32) -> __m512i {
            _mm512_xor_si512(v, _mm512_set1_epi32(mask as i32))
        }

        fn splat(self, v: i32) -> __m512i {
            _mm512_set1_epi32(v)
        }

        fn add(self, a: __m512i, b: __m512i) -> __m512i {
            _mm512_add_epi32(a, b)
        }

        fn mul(self, a: __m512i, b: __m512i) -> __m512i {
            _mm512_mullo_epi32(a, b)
        }

        fn dot(self, acc: __m512i, codes: __m512i, x: __m512i, full: bool) -> __m512i {
            if VNNI {
                return _mm512_dpbusd_epi32(acc, codes, x);
            }
            // Two products of at most 128 · 127 fit an i16.
            let ones = _mm512_set1_epi16(1);
            if full {
                let low = _mm512_madd_epi16(_mm512_maddubs_epi16(self.and(codes, 0x7f), x), ones);
                let top = _mm512_madd_epi16(_mm512_maddubs_epi16(self.and(codes, 0x80), x), ones);
                _mm512_add_epi32(acc, _mm512_add_epi32(low, top))
            } else {
                _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, x), ones))
            }
        }

        fn dot_pairs(self, acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
            if VNNI { _mm512_dpwssd_epi32(acc, a, b) } else { _mm512_add_epi32(acc, _mm512_madd_epi16(a, b)) }
        }

        fn scales(self, scale: &[u8; 16], sub: usize) -> [__m512i; 4] {
            let all = _mm512_broadcast_i32x4(_mm_loadu_si128(scale.as_ptr().cast()));
            let tops = &SCALE_TOPS[usize::from(sub == 32)];
            [
                _mm512_srai_epi16::<8>(_mm512_shuffle_epi8(all, self.load(&tops[0]))),
                _mm512_srai_epi16::<8>(_mm512_shuffle_epi8(all, self.load(&tops[1]))),
                _mm512_srai_epi16::<8>(_mm512_shuffle_epi8(all, self.load(&tops[2]))),
                _mm512_srai_epi16::<8>(_mm512_shuffle_epi8(all, self.load(&tops[3]))),
            ]
        }

        fn dot_scaled(self, acc: __m512i, codes: __m512i, x: __m512i, scales: __m512i) -> __m512i {
            self.dot_pairs(acc, _mm512_maddubs_epi16(codes, x), scales)
        }

        fn sums(self, v: &[__m512i; 16]) -> __m512i {
            let mut halves = [v[0]; 8];
            for (r, half) in halves.iter_mut().enumerate() {
                let low = _mm512_shuffle_i64x2::<0x44>(v[r], v[r + 8]);
                let high = _mm512_shuffle_i64x2::<0xee>(v[r], v[r + 8]);
                *half = _mm512_add_epi32(low, high);
            }
            self.half_sums(&halves)
        }

        fn half_sums(self, v: &[__m512i; 8]) -> __m512i {
            let (a, b) = (self.four_sums(v[0], v[1], v[2], v[3]), self.four_sums(v[4], v[5], v[6], v[7]));
            let even = _mm512_shuffle_i64x2::<0x88>(a, b);
            let odd = _mm512_shuffle_i64x2::<0xdd>(a, b);
            let sums = _mm512_add_epi32(even, odd);
            _mm512_shuffle_i64x2::<0xd8>(sums, sums)
        }

        fn columns(self, rows: Rows, at: usize) -> [__m512i; 4] {
            let (bytes, stride) = rows.checked(at);
            let start = bytes.as_ptr().add(at);
            let mut four = [_mm512_setzero_si512(); 4];
            for (r, four) in four.iter_mut().enumerate() {
                let v = _mm512_castsi128_si512(_mm_loadu_si128(start.add(r * stride).cast()));
                let v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128(start.add((r + 4) * stride).cast()));
                let v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128(start.add((r + 8) * stride).cast()));
                *four = _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128(start.add((r + 12) * stride).cast()));
            }
            self.turn_quarters(four[0], four[1], four[2], four[3])
        }

        fn rows(self, columns: [__m512i; 4]) -> [[u8; 16]; 16] {
            let mut rows = [[0; 16]; 16];
            for (r, four) in self.turn_quarters(columns[0], columns[1], columns[2], columns[3]).into_iter().enumerate() {
                _mm_storeu_si128(rows[r].as_mut_ptr().cast(), _mm512_castsi512_si128(four));
                _mm_storeu_si128(rows[r + 4].as_mut_ptr().cast(), _mm512_extracti32x4_epi32::<1>(four));
                _mm_storeu_si128(rows[r + 8].as_mut_ptr().cast(), _mm512_extracti32x4_epi32::<2>(four));
                _mm_storeu_si128(rows[r + 12].as_mut_ptr().cast(), _mm512_extracti32x4_epi32::<3>(four));
            }
            rows
        }

        fn signed_byte(self, v: __m512i, i: usize) -> __m512i {
            let top = _mm512_sll_epi32(v, _mm_cvtsi32_si128(24 - 8 * i as i32));
            _mm512_srai_epi32::<24>(top)
        }

        fn signed_pair(self, v: __m512i, i: usize, j: usize) -> __m512i {
            let tops = _mm512_broadcast_i32x4(_mm_loadu_si128(PAIR_TOPS[i][j].as_ptr().cast()));
            _mm512_srai_epi16::<8>(_mm512_shuffle_epi8(v, tops))
        }

        fn load_floats(self, from: &[f32; 16]) -> __m512 {
            _mm512_loadu_ps(from.as_ptr())
        }

        fn store_floats(self, v: __m512, to: &mut [f32; 16]) {
            _mm512_storeu_ps(to.as_mut_ptr(), v)
        }

        fn stored_floats(self, from: &[u8; 64]) -> __m512 {
            _mm512_loadu_ps(from.as_ptr().cast())
        }

        fn widen(self, halves: &[u8; 32]) -> __m512 {
            _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_ptr().cast()))
        }

        fn widen_upper(self, halves: &[u8; 32]) -> __m512 {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(halves.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }

        fn halves_of(self, v: __m512i) -> __m512 {
            _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v))
        }

        fn bits_to_floats(self, v: __m512i) -> __m512 {
            _mm512_castsi512_ps(v)
        }

        fn narrow(self, v: __m512) -> [u8; 32] {
            let mut halves = [0; 32];
            let v = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v);
            _mm256_storeu_si256(halves.as_mut_ptr().cast(), v);
            halves
        }

        fn splat_float(self, v: f32) -> __m512 {
            _mm512_set1_ps(v)
        }

        fn to_floats(self, v: __m512i) -> __m512 {
            _mm512_cvtepi32_ps(v)
        }

        fn add_floats(self, a: __m512, b: __m512) -> __m512 {
            _mm512_add_ps(a, b)
        }

        fn mul_floats(self, a: __m512, b: __m512) -> __m512 {
            _mm512_mul_ps(a, b)
        }

        fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
            _mm512_fmadd_ps(a, b, c)
        }

        fn fnma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
            _mm512_fnmadd_ps(a, b, c)
        }

        fn trees(self, v: &[__m512; 16]) -> __m512 {
            let mut by8 = [v[0]; 8];
            for (r, sum) in by8.iter_mut().enumerate() {
                let (a, b) = (v[r], v[r + 8]);
                *sum = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
            }
            // Quarters are rows r, r + 8, r + 4, r + 12.
            let mut by4 = [v[0]; 4];
            for (r, sum) in by4.iter_mut().enumerate() {
                let (a, b) = (by8[r], by8[r + 4]);
                *sum = _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
            }
            // In each quarter two lanes of row r, then two of r + 2.
            let mut by2 = [v[0]; 2];
            for (r, sum) in by2.iter_mut().enumerate() {
                let (a, b) = (_mm512_castps_pd(by4[r]), _mm512_castps_pd(by4[r + 2]));
                let (low, high) = (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
                *sum = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
            }
            let even = _mm512_shuffle_ps::<0x88>(by2[0], by2[1]);
            let odd = _mm512_shuffle_ps::<0xdd>(by2[0], by2[1]);
            let sums = _mm512_add_ps(even, odd);
            // In each quarter rows r, r + 2, r + 1, r + 3; quarters stand for 0, 8, 4, 12.
            let rows = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
            _mm512_permutexvar_ps(rows, sums)
        }

        fn tree(self, v: __m512) -> f32 {
            let v = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        }

        fn prefetch(self, byte: &u8) {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast());
        }
    }
}
