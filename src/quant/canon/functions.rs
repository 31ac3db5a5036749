//! exp and what is made of it, from fma, mul, add, IEEE division and square root only.
//!
//! Owns: the polynomials. Refuses to know: slices, lanes. There is no branch on data: selections at the end, so that
//! loops vectorise and a GPU twin runs the same operations. No subnormal number is made on the way or given back by
//! `exp`.

/// e^x within 1 ulp, rounded into the normal numbers: 0 below ln 2^-126 (-87.33654), ∞ above ln 2^128 (88.72284),
/// NaN for NaN.
///
/// `n = rint(x / ln 2)` by adding 1.5·2^23, `r = x − n·ln 2` in two fma, a minimax polynomial of degree 6 on
/// |r| ≤ ln 2 / 2 in Horner form (relative error 3.1e-9), and `n` added to the exponent field.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = std::f32::consts::LN_2;
    const LN2_LOW: f32 = (std::f64::consts::LN_2 - std::f32::consts::LN_2 as f64) as f32;
    const SMALLEST: f32 = -87.336_54;
    const LARGEST: f32 = 88.722_83;

    let shifted = x.mul_add(std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = n.mul_add(-LN2_HIGH, x);
    let r = n.mul_add(-LN2_LOW, r);
    let mut p = 0.001_381_432_f32;
    for c in [0.008_368_851, 0.041_668_4, 0.166_665_2, 0.499_999_94, 1.0, 1.0] {
        p = p.mul_add(r, c);
    }
    // The low bits of `shifted` are n in two's complement; the shift leaves them in the exponent's place.
    let scaled = f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23));
    let y = if x < SMALLEST { 0.0 } else { scaled };
    let y = if x > LARGEST { f32::INFINITY } else { y };
    if x.is_nan() { f32::NAN } else { y }
}

/// `1 / (1 + exp(−x))`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / (1 + exp(−x))`: one rounding less than `x · sigmoid(x)`. NaN at −∞, as every other form of it.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `ln(1 + e^x)` as `max(x, 0) + ln(1 + u)` with `u = exp(−|x|)`; it is `x` itself from about 17 up, and 0 where `exp(x)` is.
///
/// `ln(1 + u) = 2·atanh(s)` with `s = u / (2 + u)` in [0, 1/3], an odd minimax polynomial in `s` (relative error 4.5e-9).
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let u = exp(-x.abs());
    let s = u / (2.0 + u);
    let z = s * s;
    let mut p = 0.140_093_86_f32;
    for c in [0.140_002_68, 0.200_107_99, 0.333_332_06] {
        p = p.mul_add(z, c);
    }
    let atanh = (p * z).mul_add(s, s);
    x.max(0.0) + (atanh + atanh)
}

/// `1 / sqrt(x)` by IEEE square root and division.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}
