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

/// The index of the largest element; the lowest index wins a tie. A row of NaN gives 0.
pub fn argmax(row: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, &v) in row.iter().enumerate() {
        if v > best.1 {
            best = (i as u32, v);
        }
    }
    best.0
}
