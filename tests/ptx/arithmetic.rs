//! What instructions compute, a lane's worth.
//!
//! Owns: the arithmetic of the PTX ISA: rounding, NaN, shifts beyond the width, conversions. Refuses to know: registers, lanes.

/// What an operation gives that has no number to give.
pub const NAN: u32 = 0x7fff_ffff;

fn bits(value: f32) -> u32 {
    if value.is_nan() { NAN } else { value.to_bits() }
}

fn single(bits: u32) -> f32 {
    f32::from_bits(bits)
}

pub fn add(a: u32, b: u32) -> u32 {
    bits(single(a) + single(b))
}

pub fn sub(a: u32, b: u32) -> u32 {
    bits(single(a) - single(b))
}

pub fn mul(a: u32, b: u32) -> u32 {
    bits(single(a) * single(b))
}

pub fn div(a: u32, b: u32) -> u32 {
    bits(single(a) / single(b))
}

pub fn sqrt(a: u32) -> u32 {
    bits(single(a).sqrt())
}

/// The product is exact in a double; the sum is rounded to odd there, so that rounding it again gives what rounding once would.
pub fn fma(a: u32, b: u32, c: u32) -> u32 {
    let (product, c) = (widened(a) * widened(b), widened(c));
    let sum = product + c;
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    let exact = sum.to_bits();
    // Of an even last bit: the neighbour towards the error, whose last bit is odd.
    let away = (error > 0.0) == (sum > 0.0);
    let odd = if away { exact | 1 } else { exact.wrapping_sub(1) | 1 };
    let sum = f64::from_bits(if error.abs() > 0.0 { odd } else { exact });
    bits(sum as f32)
}

/// As a double. Without a conversion of subnormal numbers, at which processors are slow.
fn widened(a: u32) -> f64 {
    let (sign, magnitude) = (u64::from(a >> 31) << 63, a & 0x7fff_ffff);
    let small = f64::from(magnitude as i32) * f64::from_bits((1023 - 149) << 52);
    let bias = if magnitude >= 0x7f80_0000 { 2047 - 255 } else { 1023 - 127 };
    let large = (u64::from(magnitude) << 29) + (bias << 52);
    f64::from_bits(sign | if magnitude < 0x0080_0000 { small.to_bits() } else { large })
}

pub fn max(a: u32, b: u32) -> u32 {
    match (single(a).is_nan(), single(b).is_nan()) {
        (true, true) => NAN,
        (true, false) => b,
        (false, true) => a,
        // Of zeros the positive one.
        (false, false) if single(a) == single(b) => a & b,
        (false, false) => {
            if single(a) > single(b) {
                a
            } else {
                b
            }
        }
    }
}

pub fn lt(a: u32, b: u32) -> bool {
    single(a) < single(b)
}

pub fn gt(a: u32, b: u32) -> bool {
    single(a) > single(b)
}

pub fn is_nan(a: u32) -> bool {
    single(a).is_nan()
}

pub fn half_to_single(a: u32) -> u32 {
    bits(half::f16::from_bits(a as u16).to_f32())
}

pub fn single_to_half(a: u32) -> u32 {
    if is_nan(a) { 0x7fff } else { u32::from(half::f16::from_f32(single(a)).to_bits()) }
}

/// Towards 0, as far as the integers go; 0 for NaN.
pub fn truncate(a: u32) -> u32 {
    single(a) as i32 as u32
}

/// To the nearest, of two the even one.
pub fn round(a: u32) -> u32 {
    single(a).round_ties_even() as i32 as u32
}

pub fn shl(a: u32, n: u32) -> u32 {
    if n < 32 { a << n } else { 0 }
}

pub fn shr(a: u32, n: u32) -> u32 {
    if n < 32 { a >> n } else { 0 }
}

pub fn shr_signed(a: u32, n: u32) -> u32 {
    (a as i32 >> n.min(31)) as u32
}

pub fn shl_wide(a: u64, n: u32) -> u64 {
    if n < 64 { a << n } else { 0 }
}

pub fn shr_wide(a: u64, n: u32) -> u64 {
    if n < 64 { a >> n } else { 0 }
}

/// A quotient by 0 is unspecified: all ones, as the oldest cards have it.
pub fn divide(a: u32, b: u32) -> u32 {
    a.checked_div(b).unwrap_or(u32::MAX)
}

pub fn remainder(a: u32, b: u32) -> u32 {
    a.checked_rem(b).unwrap_or(u32::MAX)
}

/// `c` bits from bit `b` on.
pub fn extract(a: u32, b: u32, c: u32) -> u32 {
    let (from, len) = (b & 255, c & 255);
    let mask = if len < 32 { (1 << len) - 1 } else { u32::MAX };
    shr(a, from) & mask
}

/// The same, the rest filled with the field's highest bit.
pub fn extract_signed(a: u32, b: u32, c: u32) -> u32 {
    let (from, len) = (b & 255, c & 255);
    if len == 0 {
        return 0;
    }
    let highest = (from + len - 1).min(31);
    let sign = if a >> highest & 1 == 1 { u32::MAX } else { 0 };
    let there = (32 - from.min(32)).min(len);
    let mask = if there < 32 { (1 << there) - 1 } else { u32::MAX };
    shr(a, from) & mask | sign & !mask
}

/// `b` with `len` bits of `a` at bit `from`.
pub fn insert(a: u32, b: u32, from: u32, len: u32) -> u32 {
    let field = shl(if len < 32 { (1 << len) - 1 } else { u32::MAX }, from);
    b & !field | shl(a, from) & field
}

/// Four of the eight bytes of `b` and `a`, each said by a nibble of `c`, whose highest bit asks for the sign instead.
pub fn permute(a: u32, b: u32, c: u32) -> u32 {
    let all = u64::from(b) << 32 | u64::from(a);
    let byte = |i: u32| {
        let nibble = c >> (4 * i);
        let byte = (all >> (8 * (nibble & 7))) as u8;
        u32::from(if nibble & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 }) << (8 * i)
    };
    byte(0) | byte(1) | byte(2) | byte(3)
}

/// `c` and the four products of signed bytes.
pub fn dot(a: u32, b: u32, c: u32) -> u32 {
    let byte = |word: u32, i: u32| i32::from((word >> (8 * i)) as i8);
    let sum = |i: u32| byte(a, i) * byte(b, i);
    c.wrapping_add((sum(0) + sum(1) + sum(2) + sum(3)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fused_product_and_sum_is_rounded_once() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        for turn in 0..2_000_000 {
            let (mut a, mut b, mut c) = (random(), random(), random());
            if turn % 4 != 0 {
                // Exponents near each other and near the subnormal numbers, few bits: sums that end between two singles.
                a = a & 0x807f_f000 | 0x2000_0000 & random() | 0x1f80_0000;
                b = b & 0x807f_f0ff | 0x1f80_0000 | random() & 0x0380_0000;
                c &= if turn % 2 == 0 { 0x80ff_ffff } else { 0xbfff_f00f };
            }
            let expected = f32::mul_add(f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
            let expected = if expected.is_nan() { NAN } else { expected.to_bits() };
            assert_eq!(fma(a, b, c), expected, "{a:#x} {b:#x} {c:#x}");
        }
    }

    #[test]
    fn fields_and_bytes_are_cut_out_as_the_instruction_set_says() {
        assert_eq!((extract(0xabcd_1234, 8, 8), extract_signed(0xabcd_f234, 8, 8)), (0x12, 0xffff_fff2));
        assert_eq!((extract(0x8000_0000, 28, 8), extract_signed(0x8000_0000, 28, 8)), (8, 0xffff_fff8));
        assert_eq!(insert(0xff, 0, 28, 8), 0xf000_0000);
        assert_eq!(permute(0x8322_1100, 0x7766_5544, 0xb740), 0xff77_4400);
        assert_eq!(dot(0x80ff_0102, 0x8001_0203, 10), 16384 - 1 + 2 + 6 + 10);
        assert_eq!((truncate(0x7fc0_0000), truncate(0x5000_0000), round(0x4020_0000)), (0, 0x7fff_ffff, 2));
    }
}
