//! The vector operations in NEON, with or without its dot products.
//!
//! Owns: 128-bit registers, four to a logical vector. Refuses to know: formats.
//!
//! Products of bytes are signed here, so unsigned codes are made signed first. Halves widen and narrow exactly as
//! defined: subnormals are kept, for nothing sets the mode that flushes them.

use super::operations;
use crate::quant::simd::{Rows, Simd};
use std::arch::aarch64::*;
use std::arch::asm;

/// NEON; with `DOT` also its dot products of four bytes.
#[derive(Debug, Clone, Copy)]
pub struct Neon<const DOT: bool>(());

/// The quarters of a logical vector, written out: a closure handed to the library might not end up in the kernel.
macro_rules! each {
    ($q:ident => $value:expr) => {
        [
            {
                let $q: usize = 0;
                $value
            },
            {
                let $q: usize = 1;
                $value
            },
            {
                let $q: usize = 2;
                $value
            },
            {
                let $q: usize = 3;
                $value
            },
        ]
    };
}

/// Quarters of a logical vector, in order.
type Bytes = [uint8x16_t; 4];
type Lanes = [int32x4_t; 4];
type Floats = [float32x4_t; 4];

/// For `signed_pair`: in each lane, the lane's first byte goes to the top of both i16. What is set is out of the table,
/// which makes a zero.
static PAIR_TOPS: [u8; 16] = [0x80, 0, 0x80, 0, 0x80, 4, 0x80, 4, 0x80, 8, 0x80, 8, 0x80, 12, 0x80, 12];

impl<const DOT: bool> Neon<DOT> {
    /// The unit.
    ///
    /// # Safety
    /// The machine, and the function in which the operations end up, must have the features.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Neon(())
    }

    operations! {
        /// `acc + ` in each lane the dot product of four pairs of signed bytes; two products must fit an i16.
        fn four(self, acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
            if DOT {
                let mut sums = acc;
                // The intrinsic is not stable yet.
                asm!(
                    "sdot {sums:v}.4s, {a:v}.16b, {b:v}.16b",
                    sums = inout(vreg) sums,
                    a = in(vreg) a,
                    b = in(vreg) b,
                    options(pure, nomem, nostack, preserves_flags)
                );
                sums
            } else {
                let low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
                vpadalq_s16(acc, vpaddq_s16(low, vmull_high_s8(a, b)))
            }
        }

        /// Lane `r` is the sum of all lanes of the `r`th.
        fn four_sums(self, a: int32x4_t, b: int32x4_t, c: int32x4_t, d: int32x4_t) -> int32x4_t {
            vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d))
        }

        /// [`Neon::four_sums`] by the tree: lanes 2 and 3 are added to lanes 0 and 1, then lane 1 to lane 0.
        fn four_trees(self, a: float32x4_t, b: float32x4_t, c: float32x4_t, d: float32x4_t) -> float32x4_t {
            vpaddq_f32(self.two_by_two(a, b), self.two_by_two(c, d))
        }

        /// Lanes 2 and 3 added to lanes 0 and 1: two sums of `a`, then two of `b`.
        fn two_by_two(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
            let (a, b) = (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
            vaddq_f32(vreinterpretq_f32_f64(vtrn1q_f64(a, b)), vreinterpretq_f32_f64(vtrn2q_f64(a, b)))
        }

        /// The first two levels of the tree over 16 lanes.
        fn folded(self, v: Floats) -> float32x4_t {
            vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]))
        }

        /// The 4 × 4 words of the four, rows and columns exchanged.
        fn turn(self, a: int32x4_t, b: int32x4_t, c: int32x4_t, d: int32x4_t) -> Lanes {
            let even = (vreinterpretq_s64_s32(vtrn1q_s32(a, b)), vreinterpretq_s64_s32(vtrn1q_s32(c, d)));
            let odd = (vreinterpretq_s64_s32(vtrn2q_s32(a, b)), vreinterpretq_s64_s32(vtrn2q_s32(c, d)));
            [
                vreinterpretq_s32_s64(vtrn1q_s64(even.0, even.1)),
                vreinterpretq_s32_s64(vtrn1q_s64(odd.0, odd.1)),
                vreinterpretq_s32_s64(vtrn2q_s64(even.0, even.1)),
                vreinterpretq_s32_s64(vtrn2q_s64(odd.0, odd.1)),
            ]
        }

        /// 16 bytes as four words.
        fn word_row(self, from: *const u8) -> int32x4_t {
            vreinterpretq_s32_u8(vld1q_u8(from))
        }

        /// Four halves as singles.
        fn singles(self, halves: uint16x4_t) -> float32x4_t {
            vcvt_f32_f16(vreinterpret_f16_u16(halves))
        }
    }
}

impl<const DOT: bool> Simd for Neon<DOT> {
    type Bytes = Bytes;
    type Lanes = Lanes;
    type Floats = Floats;
    /// A lane for each quarter.
    type Scales = int32x4_t;

    operations! {
        fn load(self, from: &[u8; 64]) -> Bytes {
            each!(q => vld1q_u8(from.as_ptr().add(16 * q)))
        }

        fn twice(self, half: &[u8; 32]) -> Bytes {
            self.halves(half, half)
        }

        fn halves(self, low: &[u8; 32], high: &[u8; 32]) -> Bytes {
            let (low, high) = (low.as_ptr(), high.as_ptr());
            [vld1q_u8(low), vld1q_u8(low.add(16)), vld1q_u8(high), vld1q_u8(high.add(16))]
        }

        fn quarters(self, a: &[u8; 16], b: &[u8; 16]) -> Bytes {
            let (a, b) = (vld1q_u8(a.as_ptr()), vld1q_u8(b.as_ptr()));
            [a, a, b, b]
        }

        fn splat4(self, bytes: [u8; 4]) -> Bytes {
            [vreinterpretq_u8_u32(vdupq_n_u32(u32::from_le_bytes(bytes))); 4]
        }

        fn shift_right(self, v: Bytes, by: [u8; 4]) -> Bytes {
            each!(q => vshlq_u8(v[q], vdupq_n_s8(-(by[q] as i8))))
        }

        fn shift_left(self, v: Bytes, by: [u8; 4]) -> Bytes {
            each!(q => vshlq_u8(v[q], vdupq_n_s8(by[q] as i8)))
        }

        fn right(self, v: Bytes, by: u8) -> Bytes {
            self.shift_right(v, [by; 4])
        }

        fn left(self, v: Bytes, by: u8) -> Bytes {
            self.shift_left(v, [by; 4])
        }

        fn and(self, v: Bytes, mask: u8) -> Bytes {
            each!(q => vandq_u8(v[q], vdupq_n_u8(mask)))
        }

        fn xor(self, v: Bytes, mask: u8) -> Bytes {
            each!(q => veorq_u8(v[q], vdupq_n_u8(mask)))
        }

        fn or(self, a: Bytes, b: Bytes) -> Bytes {
            each!(q => vorrq_u8(a[q], b[q]))
        }

        fn look_up(self, table: &[u8; 16], codes: Bytes) -> Bytes {
            let table = vld1q_u8(table.as_ptr());
            each!(q => vqtbl1q_u8(table, codes[q]))
        }

        fn where_set(self, low: u32, high: u32, value: u8) -> Bytes {
            // Byte `i` of a quarter sees its eight bits and tests bit `i % 8` of them.
            let bits = vreinterpretq_u8_u64(vdupq_n_u64(u64::from(high) << 32 | u64::from(low)));
            let tests = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
            each!(q => {
                let bytes = vcombine_u8(vdup_n_u8(2 * q as u8), vdup_n_u8(2 * q as u8 + 1));
                vandq_u8(vtstq_u8(vqtbl1q_u8(bits, bytes), tests), vdupq_n_u8(value))
            })
        }

        fn lanes(self, v: Bytes) -> Lanes {
            each!(q => vreinterpretq_s32_u8(v[q]))
        }

        fn bytes(self, v: Lanes) -> Bytes {
            each!(q => vreinterpretq_u8_s32(v[q]))
        }

        fn lanes_right(self, v: Lanes, by: u8) -> Lanes {
            let count = vdupq_n_s32(-i32::from(by));
            each!(q => vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(v[q]), count)))
        }

        fn lanes_left(self, v: Lanes, by: u8) -> Lanes {
            each!(q => vshlq_s32(v[q], vdupq_n_s32(i32::from(by))))
        }

        fn lanes_and(self, v: Lanes, mask: u32) -> Lanes {
            each!(q => vandq_s32(v[q], vdupq_n_s32(mask as i32)))
        }

        fn lanes_or(self, a: Lanes, b: Lanes) -> Lanes {
            each!(q => vorrq_s32(a[q], b[q]))
        }

        fn lanes_xor(self, v: Lanes, mask: u32) -> Lanes {
            each!(q => veorq_s32(v[q], vdupq_n_s32(mask as i32)))
        }

        fn splat(self, v: i32) -> Lanes {
            [vdupq_n_s32(v); 4]
        }

        fn add(self, a: Lanes, b: Lanes) -> Lanes {
            each!(q => vaddq_s32(a[q], b[q]))
        }

        fn mul(self, a: Lanes, b: Lanes) -> Lanes {
            each!(q => vmulq_s32(a[q], b[q]))
        }

        fn dot(self, acc: Lanes, codes: Bytes, x: Bytes, full: bool) -> Lanes {
            if full {
                // Codes less 128 are signed. What that takes away is −128 times the sum of the activations.
                each!(q => {
                    let signed = vreinterpretq_s8_u8(veorq_u8(codes[q], vdupq_n_u8(0x80)));
                    let x = vreinterpretq_s8_u8(x[q]);
                    let less = self.four(vdupq_n_s32(0), vdupq_n_s8(-128), x);
                    vsubq_s32(self.four(acc[q], signed, x), less)
                })
            } else {
                each!(q => self.four(acc[q], vreinterpretq_s8_u8(codes[q]), vreinterpretq_s8_u8(x[q])))
            }
        }

        fn dot_pairs(self, acc: Lanes, a: Lanes, b: Lanes) -> Lanes {
            each!(q => {
                let (a, b) = (vreinterpretq_s16_s32(a[q]), vreinterpretq_s16_s32(b[q]));
                let low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
                vaddq_s32(acc[q], vpaddq_s32(low, vmull_high_s16(a, b)))
            })
        }

        fn scales(self, scale: &[u8; 16], sub: usize) -> [int32x4_t; 4] {
            let scale = vreinterpretq_s8_u8(vld1q_u8(scale.as_ptr()));
            let scale = if sub == 32 { vzip1q_s8(scale, scale) } else { scale };
            let (low, high) = (vmovl_s8(vget_low_s8(scale)), vmovl_high_s8(scale));
            [
                vmovl_s16(vget_low_s16(low)),
                vmovl_high_s16(low),
                vmovl_s16(vget_low_s16(high)),
                vmovl_high_s16(high),
            ]
        }

        fn dot_scaled(self, acc: Lanes, codes: Bytes, x: Bytes, scales: int32x4_t) -> Lanes {
            // Up to 128, minus a code fits an i8.
            let minus = each!(q => {
                let code = vnegq_s8(vreinterpretq_s8_u8(codes[q]));
                self.four(vdupq_n_s32(0), code, vreinterpretq_s8_u8(x[q]))
            });
            [
                vmlsq_laneq_s32::<0>(acc[0], minus[0], scales),
                vmlsq_laneq_s32::<1>(acc[1], minus[1], scales),
                vmlsq_laneq_s32::<2>(acc[2], minus[2], scales),
                vmlsq_laneq_s32::<3>(acc[3], minus[3], scales),
            ]
        }

        fn sums(self, v: &[Lanes; 16]) -> Lanes {
            let mut one = [v[0][0]; 16];
            for (one, v) in one.iter_mut().zip(v) {
                *one = vaddq_s32(vaddq_s32(v[0], v[1]), vaddq_s32(v[2], v[3]));
            }
            each!(q => self.four_sums(one[4 * q], one[4 * q + 1], one[4 * q + 2], one[4 * q + 3]))
        }

        fn half_sums(self, v: &[Lanes; 8]) -> Lanes {
            let (mut low, mut high) = ([v[0][0]; 8], [v[0][0]; 8]);
            for (r, v) in v.iter().enumerate() {
                low[r] = vaddq_s32(v[0], v[1]);
                high[r] = vaddq_s32(v[2], v[3]);
            }
            [
                self.four_sums(low[0], low[1], low[2], low[3]),
                self.four_sums(low[4], low[5], low[6], low[7]),
                self.four_sums(high[0], high[1], high[2], high[3]),
                self.four_sums(high[4], high[5], high[6], high[7]),
            ]
        }

        fn columns(self, rows: Rows, at: usize) -> [Bytes; 4] {
            let (bytes, stride) = rows.checked(at);
            let start = bytes.as_ptr().add(at);
            let turned = each!(q => {
                let row = start.add(4 * q * stride);
                self.turn(
                    self.word_row(row),
                    self.word_row(row.add(stride)),
                    self.word_row(row.add(2 * stride)),
                    self.word_row(row.add(3 * stride)),
                )
            });
            each!(c => self.bytes([turned[0][c], turned[1][c], turned[2][c], turned[3][c]]))
        }

        fn rows(self, columns: [Lanes; 4]) -> [[u8; 16]; 16] {
            let mut rows = [[0; 16]; 16];
            for (q, rows) in rows.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let turned = self.turn(columns[0][q], columns[1][q], columns[2][q], columns[3][q]);
                for (row, words) in rows.iter_mut().zip(turned) {
                    vst1q_u8(row.as_mut_ptr(), vreinterpretq_u8_s32(words));
                }
            }
            rows
        }

        fn signed_byte(self, v: Lanes, i: usize) -> Lanes {
            let count = vdupq_n_s32(24 - 8 * i as i32);
            each!(q => vshrq_n_s32::<24>(vshlq_s32(v[q], count)))
        }

        fn signed_pair(self, v: Lanes, i: usize, j: usize) -> Lanes {
            let which = vreinterpretq_u8_u32(vdupq_n_u32(u32::from_le_bytes([0, i as u8, 0, j as u8])));
            let tops = vaddq_u8(vld1q_u8(PAIR_TOPS.as_ptr()), which);
            each!(q => {
                let tops = vqtbl1q_u8(vreinterpretq_u8_s32(v[q]), tops);
                vreinterpretq_s32_s16(vshrq_n_s16::<8>(vreinterpretq_s16_u8(tops)))
            })
        }

        fn load_floats(self, from: &[f32; 16]) -> Floats {
            each!(q => vld1q_f32(from.as_ptr().add(4 * q)))
        }

        fn store_floats(self, v: Floats, to: &mut [f32; 16]) {
            for (q, v) in v.into_iter().enumerate() {
                vst1q_f32(to.as_mut_ptr().add(4 * q), v);
            }
        }

        fn stored_floats(self, from: &[u8; 64]) -> Floats {
            each!(q => vreinterpretq_f32_u8(vld1q_u8(from.as_ptr().add(16 * q))))
        }

        fn widen(self, halves: &[u8; 32]) -> Floats {
            each!(q => self.singles(vreinterpret_u16_u8(vld1_u8(halves.as_ptr().add(8 * q)))))
        }

        fn widen_upper(self, halves: &[u8; 32]) -> Floats {
            each!(q => {
                let halves = vreinterpret_u16_u8(vld1_u8(halves.as_ptr().add(8 * q)));
                vreinterpretq_f32_u32(vshll_n_u16::<16>(halves))
            })
        }

        fn halves_of(self, v: Lanes) -> Floats {
            each!(q => self.singles(vmovn_u32(vreinterpretq_u32_s32(v[q]))))
        }

        fn bits_to_floats(self, v: Lanes) -> Floats {
            each!(q => vreinterpretq_f32_s32(v[q]))
        }

        fn narrow(self, v: Floats) -> [u8; 32] {
            let mut halves = [0; 32];
            for (to, v) in halves.as_chunks_mut::<8>().0.iter_mut().zip(v) {
                vst1_u8(to.as_mut_ptr(), vreinterpret_u8_f16(vcvt_f16_f32(v)));
            }
            halves
        }

        fn splat_float(self, v: f32) -> Floats {
            [vdupq_n_f32(v); 4]
        }

        fn to_floats(self, v: Lanes) -> Floats {
            each!(q => vcvtq_f32_s32(v[q]))
        }

        fn add_floats(self, a: Floats, b: Floats) -> Floats {
            each!(q => vaddq_f32(a[q], b[q]))
        }

        fn mul_floats(self, a: Floats, b: Floats) -> Floats {
            each!(q => vmulq_f32(a[q], b[q]))
        }

        fn fma(self, a: Floats, b: Floats, c: Floats) -> Floats {
            each!(q => vfmaq_f32(c[q], a[q], b[q]))
        }

        fn fnma(self, a: Floats, b: Floats, c: Floats) -> Floats {
            each!(q => vfmsq_f32(c[q], a[q], b[q]))
        }

        fn trees(self, v: &[Floats; 16]) -> Floats {
            let mut one = [v[0][0]; 16];
            for (one, v) in one.iter_mut().zip(v) {
                *one = self.folded(*v);
            }
            each!(q => self.four_trees(one[4 * q], one[4 * q + 1], one[4 * q + 2], one[4 * q + 3]))
        }

        fn tree(self, v: Floats) -> f32 {
            let v = self.folded(v);
            vpadds_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v)))
        }

        fn prefetch(self, byte: &u8) {
            // The intrinsic is not stable yet.
            asm!(
                "prfm pldl1keep, [{byte}]",
                byte = in(reg) std::ptr::from_ref(byte),
                options(nomem, nostack, preserves_flags)
            );
        }
    }
}
