//! Activations on the CPU.
//!
//! Owns: the f32 rows of a pass and, once a quantised matrix has asked for them, their int8 forms. Refuses to know:
//! what the rows mean.

use super::team::{Chunks, Phases};
use crate::quant::{Activations, Format, Isa};

/// `[rows][width]` f32, with the int8 forms that quantised matrices multiply.
pub struct Rows {
    width: usize,
    data: Vec<f32>,
    /// Per 32 and per 256 values; valid until the rows are written again.
    int8: [Int8; 2],
}

struct Int8 {
    valid: bool,
    values: Activations,
}

/// Both activation block lengths, as indices of `Rows::int8`.
const BLOCKS: [usize; 2] = [32, 256];

impl Rows {
    /// No rows yet.
    pub fn new(width: usize) -> Rows {
        assert!(width > 0, "rows have a width");
        Rows { width, data: Vec::new(), int8: BLOCKS.map(|b| Int8 { valid: false, values: Activations::new(b) }) }
    }

    /// Elements in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows of the current pass.
    pub fn len(&self) -> usize {
        self.data.len() / self.width
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.width..][..self.width]
    }

    /// All rows, one after another.
    pub fn values(&self) -> &[f32] {
        &self.data
    }

    /// Room for `rows` rows to be written; their old contents are unspecified, their int8 forms forgotten.
    pub fn write(&mut self, rows: usize) -> &mut [f32] {
        self.data.resize(rows * self.width, 0.0);
        self.change()
    }

    /// The rows, to be changed in place.
    pub fn change(&mut self) -> &mut [f32] {
        self.int8.iter_mut().for_each(|form| form.valid = false);
        &mut self.data
    }

    /// Makes sure that the int8 form for matrices of `format` is there (a float format needs none).
    pub fn quantize(&mut self, phases: &Phases, isa: Isa, format: Format) {
        let Some(which) = format.activation_block().map(|b| usize::from(b == BLOCKS[1])) else {
            return;
        };
        let form = &mut self.int8[which];
        if form.valid {
            return;
        }
        let (rows, width) = (self.data.len() / self.width, self.width);
        let (q, d, sums) = form.values.write(rows, width);
        let (per_d, per_sum) = (width / BLOCKS[which], width / Activations::SUM);
        let parts = (Chunks::new(q, width), Chunks::new(d, per_d), Chunks::new(sums, per_sum));
        let data = &self.data;
        phases.each(rows, rows * width, parts, |row, (q, d, sums)| {
            Activations::quantize(isa, BLOCKS[which], &data[row * width..][..width], (q, d, sums));
        });
        form.valid = true;
    }

    /// The int8 form that matrices of `format` multiply; [`Rows::quantize`] has made it.
    pub fn int8(&self, format: Format) -> Option<&Activations> {
        let form = &self.int8[usize::from(format.activation_block()? == BLOCKS[1])];
        assert!(form.valid, "rows were not quantised for {format}");
        Some(&form.values)
    }
}
