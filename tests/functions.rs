//! exp and its kin: error against f64 over the whole range of singles, defined values at the edges, and their bits.

use verbatim::quant::canon::{exp, rsqrt, sigmoid, silu, softplus};
use xxhash_rust::xxh3::xxh3_64;

/// Every 1009th single, both signs, all exponents: 4.2 million numbers and the NaNs among them.
fn singles() -> impl Iterator<Item = f32> {
    (0..=u32::MAX).step_by(1009).map(f32::from_bits)
}

/// The largest error in units of the last place of the exact value, over inputs in `range`, and where it is.
fn worst(range: std::ops::RangeInclusive<f32>, f: fn(f32) -> f32, exact: fn(f64) -> f64) -> (f64, f32) {
    let mut worst = (0.0, 0.0);
    for x in singles().filter(|x| range.contains(x)) {
        let exact = exact(f64::from(x));
        let exponent = (exact.abs().to_bits() >> 52).max(1023 - 126);
        let ulp = f64::from_bits((exponent - 23) << 52);
        let error = (f64::from(f(x)) - exact).abs() / ulp;
        if error > worst.0 {
            worst = (error, x);
        }
    }
    worst
}

#[test]
fn exp_is_within_one_ulp() {
    let (error, x) = worst(-87.336_54..=88.722_83, exp, libm::exp);
    assert!(error <= 1.0, "{error} ulp at {x}");
}

#[test]
fn sigmoid_silu_and_softplus_are_within_a_few_ulp() {
    let logistic = |x: f64| 1.0 / (1.0 + libm::exp(-x));
    let (error, x) = worst(-87.3..=f32::MAX, sigmoid, logistic);
    assert!(error <= 3.0, "sigmoid: {error} ulp at {x}");
    let (error, x) = worst(-87.3..=f32::MAX, silu, |x| x / (1.0 + libm::exp(-x)));
    assert!(error <= 3.0, "silu: {error} ulp at {x}");
    let (error, x) = worst(-87.3..=f32::MAX, softplus, |x| x.max(0.0) + libm::log1p(libm::exp(-x.abs())));
    assert!(error <= 4.0, "softplus: {error} ulp at {x}");
}

#[test]
fn edges_have_defined_values() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let above = |x: f32| f32::from_bits(x.to_bits() + 1);
    assert_eq!([exp(-inf), exp(-88.0), exp(f32::MIN), exp(0.0), exp(-0.0)], [0.0, 0.0, 0.0, 1.0, 1.0]);
    assert_eq!([exp(inf), exp(88.73), exp(f32::MAX)], [inf; 3]);
    assert!(exp(88.722_83) < inf && exp(above(88.722_83)) == inf);
    assert!(exp(-87.336_54) >= f32::MIN_POSITIVE && exp(above(-87.336_54)) == 0.0);
    assert_eq!([sigmoid(-inf), sigmoid(0.0), sigmoid(inf)], [0.0, 0.5, 1.0]);
    assert_eq!([silu(0.0), silu(inf), silu(-100.0)], [0.0, inf, 0.0]);
    assert!(silu(-inf).is_nan());
    assert_eq!([softplus(-inf), softplus(inf), softplus(20.5), softplus(1e30)], [0.0, inf, 20.5, 1e30]);
    assert_eq!([rsqrt(4.0), rsqrt(0.0), rsqrt(inf)], [0.5, inf, 0.0]);
    assert!(rsqrt(-1.0).is_nan());
    let quiet = [nan, -nan, f32::from_bits(0x7f80_0001), f32::from_bits(0x7fbf_ffff), f32::from_bits(0xff80_1234)];
    for f in [exp, sigmoid, silu, softplus, rsqrt] {
        assert!(quiet.iter().all(|&nan| f(nan).is_nan()));
    }
}

#[test]
fn exp_never_decreases_across_the_seams_of_its_range_reduction() {
    for n in -126..=128 {
        let seam = ((n as f32 - 0.5) * std::f32::consts::LN_2).to_bits();
        let values: Vec<f32> = (seam - 50..seam + 50).map(|bits| exp(f32::from_bits(bits))).collect();
        let up = n > 0;
        assert!(values.windows(2).all(|v| if up { v[0] <= v[1] } else { v[0] >= v[1] }), "{n}");
    }
}

#[test]
fn the_bits_of_the_functions_are_pinned() {
    let digest = |f: fn(f32) -> f32| {
        let bits = singles().map(f).map(|y| if y.is_nan() { f32::NAN.to_bits() } else { y.to_bits() });
        xxh3_64(&bits.flat_map(u32::to_le_bytes).collect::<Vec<u8>>())
    };
    let digests = [exp, sigmoid, silu, softplus, rsqrt].map(digest);
    let pinned = [
        0x4e0c_7749_2a4f_c258,
        0x8d21_6f63_c2ff_6963,
        0x3c9c_cf80_2808_fc2b,
        0xa831_964d_9fb8_96b2,
        0x2581_fa46_bb0a_960f,
    ];
    assert_eq!(digests, pinned, "{digests:#x?}");
}
