//! The vector operations in plain Rust, for every machine.
//!
//! Owns: what each operation means, element by element. Refuses to know: any instruction set; the compiler does what
//! it can.

use super::{Rows, Simd};
use crate::quant::blocks::f16_to_f32;
use std::array::from_fn;

/// No vector unit that is known of.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

/// The bytes of a lane pair as the two i16 that they are.
#[inline(always)]
fn pair(v: i32) -> [i32; 2] {
    [i32::from(v as i16), v >> 16]
}

impl Simd for Portable {
    type Bytes = [u8; 64];
    type Lanes = [i32; 16];
    type Floats = [f32; 16];
    type Scales = [i32; 4];

    #[inline(always)]
    fn load(self, from: &[u8; 64]) -> [u8; 64] {
        *from
    }

    #[inline(always)]
    fn twice(self, half: &[u8; 32]) -> [u8; 64] {
        self.halves(half, half)
    }

    #[inline(always)]
    fn halves(self, low: &[u8; 32], high: &[u8; 32]) -> [u8; 64] {
        let mut v = [0; 64];
        v[..32].copy_from_slice(low);
        v[32..].copy_from_slice(high);
        v
    }

    #[inline(always)]
    fn quarters(self, a: &[u8; 16], b: &[u8; 16]) -> [u8; 64] {
        let mut v = [0; 64];
        for (quarter, from) in v.as_chunks_mut().0.iter_mut().zip([a, a, b, b]) {
            *quarter = *from;
        }
        v
    }

    #[inline(always)]
    fn splat4(self, bytes: [u8; 4]) -> [u8; 64] {
        from_fn(|i| bytes[i % 4])
    }

    #[inline(always)]
    fn shift_right(self, v: [u8; 64], by: [u8; 4]) -> [u8; 64] {
        from_fn(|i| v[i] >> by[i / 16])
    }

    #[inline(always)]
    fn shift_left(self, v: [u8; 64], by: [u8; 4]) -> [u8; 64] {
        from_fn(|i| v[i] << by[i / 16])
    }

    #[inline(always)]
    fn right(self, v: [u8; 64], by: u8) -> [u8; 64] {
        v.map(|b| b >> by)
    }

    #[inline(always)]
    fn left(self, v: [u8; 64], by: u8) -> [u8; 64] {
        v.map(|b| b << by)
    }

    #[inline(always)]
    fn and(self, v: [u8; 64], mask: u8) -> [u8; 64] {
        v.map(|b| b & mask)
    }

    #[inline(always)]
    fn xor(self, v: [u8; 64], mask: u8) -> [u8; 64] {
        v.map(|b| b ^ mask)
    }

    #[inline(always)]
    fn or(self, a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        from_fn(|i| a[i] | b[i])
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], codes: [u8; 64]) -> [u8; 64] {
        codes.map(|code| table[usize::from(code & 15)])
    }

    #[inline(always)]
    fn where_set(self, low: u32, high: u32, value: u8) -> [u8; 64] {
        let bits = u64::from(high) << 32 | u64::from(low);
        from_fn(|i| if bits >> i & 1 == 1 { value } else { 0 })
    }

    #[inline(always)]
    fn lanes(self, v: [u8; 64]) -> [i32; 16] {
        from_fn(|l| i32::from_le_bytes(v.as_chunks().0[l]))
    }

    #[inline(always)]
    fn bytes(self, v: [i32; 16]) -> [u8; 64] {
        from_fn(|i| v[i / 4].to_le_bytes()[i % 4])
    }

    #[inline(always)]
    fn lanes_right(self, v: [i32; 16], by: u8) -> [i32; 16] {
        v.map(|v| (v as u32 >> by) as i32)
    }

    #[inline(always)]
    fn lanes_left(self, v: [i32; 16], by: u8) -> [i32; 16] {
        v.map(|v| v << by)
    }

    #[inline(always)]
    fn lanes_and(self, v: [i32; 16], mask: u32) -> [i32; 16] {
        v.map(|v| v & mask as i32)
    }

    #[inline(always)]
    fn lanes_or(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|l| a[l] | b[l])
    }

    #[inline(always)]
    fn lanes_xor(self, v: [i32; 16], mask: u32) -> [i32; 16] {
        v.map(|v| v ^ mask as i32)
    }

    #[inline(always)]
    fn splat(self, v: i32) -> [i32; 16] {
        [v; 16]
    }

    #[inline(always)]
    fn add(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn mul(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|i| a[i].wrapping_mul(b[i]))
    }

    #[inline(always)]
    fn dot(self, acc: [i32; 16], codes: [u8; 64], x: [u8; 64], _full: bool) -> [i32; 16] {
        from_fn(|l| {
            (4 * l..4 * l + 4).map(|i| i32::from(codes[i]) * i32::from(x[i] as i8)).fold(acc[l], |sum, p| sum + p)
        })
    }

    #[inline(always)]
    fn dot_pairs(self, acc: [i32; 16], a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|l| {
            let ([a0, a1], [b0, b1]) = (pair(a[l]), pair(b[l]));
            acc[l] + a0 * b0 + a1 * b1
        })
    }

    #[inline(always)]
    fn scales(self, scale: &[u8; 16], sub: usize) -> [[i32; 4]; 4] {
        from_fn(|v| from_fn(|quarter| i32::from(scale[(64 * v + 16 * quarter) / sub] as i8)))
    }

    #[inline(always)]
    fn dot_scaled(self, acc: [i32; 16], codes: [u8; 64], x: [u8; 64], scales: [i32; 4]) -> [i32; 16] {
        let dot = self.dot([0; 16], codes, x, true);
        from_fn(|l| acc[l] + dot[l] * scales[l / 4])
    }

    #[inline(always)]
    fn sums(self, v: &[[i32; 16]; 16]) -> [i32; 16] {
        from_fn(|r| v[r].iter().sum())
    }

    #[inline(always)]
    fn half_sums(self, v: &[[i32; 16]; 8]) -> [i32; 16] {
        from_fn(|r| v[r % 8][r / 8 * 8..][..8].iter().sum())
    }

    #[inline(always)]
    fn columns(self, rows: Rows, at: usize) -> [[u8; 64]; 4] {
        from_fn(|c| from_fn(|i| rows.sixteen(i / 4, at)[4 * c + i % 4]))
    }

    #[inline(always)]
    fn rows(self, columns: [[i32; 16]; 4]) -> [[u8; 16]; 16] {
        from_fn(|r| from_fn(|i| columns[i / 4][r].to_le_bytes()[i % 4]))
    }

    #[inline(always)]
    fn signed_byte(self, v: [i32; 16], i: usize) -> [i32; 16] {
        v.map(|v| i32::from((v >> (8 * i)) as i8))
    }

    #[inline(always)]
    fn signed_pair(self, v: [i32; 16], i: usize, j: usize) -> [i32; 16] {
        v.map(|v| i32::from((v >> (8 * i)) as i8) & 0xffff | i32::from((v >> (8 * j)) as i8) << 16)
    }

    #[inline(always)]
    fn load_floats(self, from: &[f32; 16]) -> [f32; 16] {
        *from
    }

    #[inline(always)]
    fn store_floats(self, v: [f32; 16], to: &mut [f32; 16]) {
        *to = v;
    }

    #[inline(always)]
    fn stored_floats(self, from: &[u8; 64]) -> [f32; 16] {
        from_fn(|i| f32::from_le_bytes(from.as_chunks().0[i]))
    }

    #[inline(always)]
    fn widen(self, halves: &[u8; 32]) -> [f32; 16] {
        from_fn(|i| f16_to_f32(u16::from_le_bytes(halves.as_chunks().0[i])))
    }

    #[inline(always)]
    fn widen_upper(self, halves: &[u8; 32]) -> [f32; 16] {
        from_fn(|i| f32::from_bits(u32::from(u16::from_le_bytes(halves.as_chunks().0[i])) << 16))
    }

    #[inline(always)]
    fn halves_of(self, v: [i32; 16]) -> [f32; 16] {
        v.map(|v| f16_to_f32(v as u16))
    }

    #[inline(always)]
    fn bits_to_floats(self, v: [i32; 16]) -> [f32; 16] {
        v.map(|v| f32::from_bits(v as u32))
    }

    #[inline(always)]
    fn narrow(self, v: [f32; 16]) -> [u8; 32] {
        bytemuck::cast(v.map(|v| half::f16::from_f32_const(v).to_le_bytes()))
    }

    #[inline(always)]
    fn splat_float(self, v: f32) -> [f32; 16] {
        [v; 16]
    }

    #[inline(always)]
    fn to_floats(self, v: [i32; 16]) -> [f32; 16] {
        v.map(|v| v as f32)
    }

    #[inline(always)]
    fn add_floats(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn mul_floats(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn fma(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn fnma(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        from_fn(|i| (-a[i]).mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn trees(self, v: &[[f32; 16]; 16]) -> [f32; 16] {
        from_fn(|r| self.tree(v[r]))
    }

    #[inline(always)]
    fn tree(self, mut v: [f32; 16]) -> f32 {
        for half in [8, 4, 2, 1] {
            for l in 0..half {
                v[l] += v[l + half];
            }
        }
        v[0]
    }

    #[inline(always)]
    fn prefetch(self, _byte: &u8) {}
}
