//! Fast float reductions.
//!
//! Owns: the dot products and sums of `canon` over a vector unit, bit-equal by test. Refuses to know: what they are for.

use super::blocks::Float;
use super::canon;
use super::simd::Simd;

/// Lanes of a vector; the definition's 32 lanes are two of them.
const LANES: usize = 16;

/// The dot products of one row with `R` others: [`canon::dot_float`] of each pair.
#[inline(always)]
pub fn dots<W: Float, S: Simd, const R: usize>(s: S, w: &[W], x: [&[f32]; R]) -> [f32; R] {
    let sums = lanes(s, w, x);
    let mut dots = [0.0; R];
    for (dot, sum) in dots.iter_mut().zip(sums) {
        *dot = s.tree(sum);
    }
    dots
}

/// [`dots`] of one pair.
#[inline(always)]
pub fn dot<W: Float, S: Simd>(s: S, w: &[W], x: &[f32]) -> f32 {
    let [dot] = dots(s, w, [x]);
    dot
}

/// [`dots`] before the last four levels of the tree: what is left is [`Simd::tree`].
#[inline(always)]
pub fn lanes<W: Float, S: Simd, const R: usize>(s: S, w: &[W], x: [&[f32]; R]) -> [S::Floats; R] {
    let mut low = [s.splat_float(0.0); R];
    let mut high = [s.splat_float(0.0); R];
    let (pairs, tail) = w.as_chunks::<LANES>().0.as_chunks::<2>();
    let whole = pairs.len() * 2 * LANES;
    for (i, pair) in pairs.iter().enumerate() {
        let (w_low, w_high) = (W::vector(s, &pair[0]), W::vector(s, &pair[1]));
        for r in 0..R {
            let x = &x[r][i * 2 * LANES..][..2 * LANES].as_chunks::<LANES>().0;
            low[r] = s.fma(w_low, s.load_floats(&x[0]), low[r]);
            high[r] = s.fma(w_high, s.load_floats(&x[1]), high[r]);
        }
    }
    if !tail.is_empty() || whole + tail.len() * LANES < w.len() {
        for r in 0..R {
            rest(s, &w[whole..], &x[r][whole..], (&mut low[r], &mut high[r]));
        }
    }
    for r in 0..R {
        low[r] = s.add_floats(low[r], high[r]);
    }
    low
}

/// The last, partial step of the chains: as many lanes as elements are left.
#[inline(always)]
fn rest<W: Float, S: Simd>(s: S, w: &[W], x: &[f32], (low, high): (&mut S::Floats, &mut S::Floats)) {
    let mut lanes = [[0.0; LANES]; 2];
    s.store_floats(*low, &mut lanes[0]);
    s.store_floats(*high, &mut lanes[1]);
    for (lane, (w, x)) in lanes.as_flattened_mut().iter_mut().zip(w.iter().zip(x)) {
        *lane = w.widen().mul_add(*x, *lane);
    }
    *low = s.load_floats(&lanes[0]);
    *high = s.load_floats(&lanes[1]);
}

/// The sum of a row: [`canon::sum_f32`].
#[inline(always)]
pub fn sum<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut lanes = [s.splat_float(0.0); 2];
    let (pairs, _) = x.as_chunks::<{ 2 * LANES }>();
    for pair in pairs {
        let pair = pair.as_chunks::<LANES>().0;
        lanes[0] = s.add_floats(lanes[0], s.load_floats(&pair[0]));
        lanes[1] = s.add_floats(lanes[1], s.load_floats(&pair[1]));
    }
    let mut all = [[0.0; LANES]; 2];
    s.store_floats(lanes[0], &mut all[0]);
    s.store_floats(lanes[1], &mut all[1]);
    let mut all: [f32; canon::LANES] = bytemuck::cast(all);
    for (lane, x) in all.iter_mut().zip(&x[pairs.len() * 2 * LANES..]) {
        *lane += x;
    }
    canon::reduce(all)
}
