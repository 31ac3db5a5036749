//! Row-wise operations: norms, sums, gates, the largest element.
//!
//! Owns: these operations over rows. Refuses to know: where in a layer they stand.

use super::rows::Rows;
use super::team::{Chunks, Phases};
use crate::quant::simd::Simd;
use crate::quant::{Isa, Kernel, canon, floats};

/// `out = x / sqrt(mean(x²) + eps) * weight` for one row or head.
pub struct RmsNorm<'a> {
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub eps: f32,
    pub out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let scale = rms_scale(s, self.x, self.eps);
        for ((out, x), w) in self.out.iter_mut().zip(self.x).zip(self.weight) {
            *out = (x * scale) * w;
        }
    }
}

/// `1 / sqrt(mean(x²) + eps)`.
#[inline(always)]
pub fn rms_scale<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    canon::rsqrt(floats::dot(s, x, x) / x.len() as f32 + eps)
}

/// `out = rms_norm(x)`, row by row.
pub fn rms_norm(phases: &Phases, isa: Isa, x: &Rows, (weight, eps): (&[f32], f32), out: &mut Rows) {
    assert_eq!((x.width(), out.width()), (weight.len(), weight.len()), "a norm keeps the width");
    let rows = x.len();
    let parts = Chunks::new(out.write(rows), weight.len());
    phases.each(rows, 2 * rows * weight.len(), parts, |row, out| {
        isa.run(RmsNorm { x: x.row(row), weight, eps, out });
    });
}

/// `x += y`.
pub fn add(phases: &Phases, x: &mut Rows, y: &Rows) {
    assert_eq!((x.width(), x.len()), (y.width(), y.len()), "sums are of one shape");
    let (rows, width) = (x.len(), x.width());
    phases.each(rows, rows * width, Chunks::new(x.change(), width), |row, x| {
        for (x, y) in x.iter_mut().zip(y.row(row)) {
            *x += y;
        }
    });
}

/// `out = [x | y]`, row by row.
pub fn join(phases: &Phases, x: &Rows, y: &Rows, out: &mut Rows) {
    assert_eq!((x.len(), x.width() + y.width()), (y.len(), out.width()), "joined rows stand side by side");
    let (rows, width) = (x.len(), out.width());
    phases.each(rows, rows * width, Chunks::new(out.write(rows), width), |row, out| {
        let (left, right) = out.split_at_mut(x.width());
        left.copy_from_slice(x.row(row));
        right.copy_from_slice(y.row(row));
    });
}

/// `gate = silu(gate) * up`.
pub struct SwiGlu<'a> {
    pub gate: &'a mut [f32],
    pub up: &'a [f32],
}

impl Kernel for SwiGlu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (gate, up) in self.gate.iter_mut().zip(self.up) {
            *gate = canon::silu(*gate) * up;
        }
    }
}

/// Elements that one item of an element-wise phase takes.
const SPAN: usize = 256;

/// `gate = silu(gate) * up` over all rows.
pub fn swiglu(phases: &Phases, isa: Isa, gate: &mut Rows, up: &Rows) {
    assert_eq!((gate.width(), gate.len()), (up.width(), up.len()), "gate and up are of one shape");
    let elements = up.values().len();
    let parts = Chunks::new(gate.change(), SPAN);
    phases.each(elements.div_ceil(SPAN), 16 * elements, parts, |i, gate| {
        let up = &up.values()[i * SPAN..][..gate.len()];
        isa.run(SwiGlu { gate, up });
    });
}

/// `out += sigmoid(gate · x) * y` for one row.
struct AddGated<'a> {
    x: &'a [f32],
    gate: &'a [f32],
    y: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for AddGated<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let open = canon::sigmoid(floats::dot(s, self.gate, self.x));
        for (out, y) in self.out.iter_mut().zip(self.y) {
            *out = open.mul_add(*y, *out);
        }
    }
}

/// `out += sigmoid(gate · x) * y`, row by row.
pub fn add_gated(phases: &Phases, isa: Isa, (x, gate): (&Rows, &[f32]), y: &Rows, out: &mut Rows) {
    assert_eq!((x.len(), y.width()), (out.len(), out.width()), "a gated sum keeps its shape");
    let (rows, width) = (out.len(), out.width());
    phases.each(rows, 3 * rows * width, Chunks::new(out.change(), width), |row, out| {
        isa.run(AddGated { x: x.row(row), gate, y: y.row(row), out });
    });
}

/// Lanes in which [`argmax`] looks for the largest element.
const LANES: usize = 64;

/// The index of the largest element; the lowest index wins a tie. A row of NaN gives 0.
struct ArgMax<'a>(&'a [f32]);

impl Kernel for ArgMax<'_> {
    type Output = u32;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> u32 {
        // The largest value first, which any order finds; then the first place that holds it.
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        for chunk in chunks {
            for l in 0..LANES {
                lanes[l] = if chunk[l] > lanes[l] { chunk[l] } else { lanes[l] };
            }
        }
        let max = lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |max, &v| if v > max { v } else { max });
        let mut from = 0;
        for chunk in chunks {
            let mut found = false;
            for v in chunk {
                found |= *v == max;
            }
            if found {
                break;
            }
            from += LANES;
        }
        // Where nothing is above minus infinity, the first element wins.
        let place = self.0.get(from..).unwrap_or_default().iter().position(|&v| v == max);
        if max == f32::NEG_INFINITY { 0 } else { place.map_or(0, |place| (from + place) as u32) }
    }
}

/// The index of each row's largest element.
pub fn argmax(phases: &Phases, isa: Isa, x: &Rows) -> Vec<u32> {
    let mut best = vec![0; x.len()];
    phases.each(x.len(), x.values().len(), Chunks::new(&mut best, 1), |row, best| {
        best[0] = isa.run(ArgMax(x.row(row)));
    });
    best
}

/// Elements that one item of [`confidence`] adds up.
const PART: usize = 4096;

/// `Σ exp(x - max)` over part of a row.
struct Mass<'a> {
    x: &'a [f32],
    max: f32,
}

impl Kernel for Mass<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f32 {
        let mut lanes = [0.0; LANES];
        let (chunks, rest) = self.x.as_chunks::<LANES>();
        for chunk in chunks {
            for l in 0..LANES {
                lanes[l] += canon::exp(chunk[l] - self.max);
            }
        }
        lanes.iter().sum::<f32>() + rest.iter().map(|&v| canon::exp(v - self.max)).sum::<f32>()
    }
}

/// The probability that the softmax of the only row gives to its largest element. A guess's weight, no part of the
/// model's arithmetic: the sums are the same on every device only nearly.
pub fn confidence(phases: &Phases, isa: Isa, x: &Rows) -> f32 {
    assert_eq!(x.len(), 1, "the confidence of one row");
    let row = x.row(0);
    let max = row[isa.run(ArgMax(row)) as usize];
    let mut masses = vec![0.0; row.len().div_ceil(PART)];
    phases.each(masses.len(), 16 * row.len(), Chunks::new(&mut masses, 1), |i, mass| {
        let x = &row[i * PART..row.len().min((i + 1) * PART)];
        mass[0] = isa.run(Mass { x, max });
    });
    1.0 / masses.iter().sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_index_of_the_largest_element_wins() {
        let simple = |row: &[f32]| {
            let mut best = (0, f32::NEG_INFINITY);
            for (i, &v) in row.iter().enumerate() {
                best = if v > best.1 { (i as u32, v) } else { best };
            }
            best.0
        };
        let specials = [f32::NAN, f32::NEG_INFINITY, -0.0, 0.0, 1.0, f32::INFINITY];
        for isa in Isa::available() {
            for n in [0, 1, 63, 64, 65, 127, 128, 200] {
                for kinds in 1..=specials.len() {
                    // Few different values, so that ties are everywhere.
                    let row: Vec<f32> = (0..n).map(|i: usize| specials[i * i * 7 % 31 % kinds]).collect();
                    assert_eq!(isa.run(ArgMax(&row)), simple(&row), "{}: {row:?}", isa.name());
                }
            }
        }
    }
}
