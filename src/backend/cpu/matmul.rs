//! Matrix products: weights stay in the file's blocks, activations are rows.
//!
//! Owns: how outputs fall into tiles for the threads. Refuses to know: the bits of a block (`quant::tile`).

use super::rows::Rows;
use super::team::{Grid, Parts, Phases, Rect, Several};
use crate::backend::MatrixShape;
use crate::gguf::Bytes;
use crate::quant::{Format, Input, Isa, Output, PANEL, TileDot};
use std::ops::Range;

/// Weight rows that one item computes: a panel of the product.
pub const TILE: usize = PANEL;

/// A weight tensor in the file's own pages.
pub struct Matrix {
    shape: MatrixShape,
    format: Format,
    data: Bytes,
    /// Rows of each stacked matrix that this view covers; all but for a half of a fused tensor.
    view: Range<usize>,
}

impl Matrix {
    /// A tensor of `shape` whose bytes are `data`.
    pub fn new(shape: MatrixShape, format: Format, data: Bytes) -> Matrix {
        let bytes = format.row_bytes(shape.cols).map(|b| b * shape.rows * shape.count);
        assert_eq!(bytes, Some(data.len()), "the bytes of a matrix fit its shape");
        Matrix { shape, format, data, view: 0..shape.rows }
    }

    /// A view of rows `part` of every stacked matrix.
    pub fn part(&self, part: Range<usize>) -> Matrix {
        assert!(part.start < part.end && part.end <= self.rows(), "a part lies inside its matrix");
        let view = self.view.start + part.start..self.view.start + part.end;
        Matrix { data: self.data.clone(), view, ..*self }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.view.len()
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.shape.cols
    }

    /// Stacked matrices.
    pub fn count(&self) -> usize {
        self.shape.count
    }

    /// Number format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The bytes of rows `rows` of matrix `which`.
    pub fn bytes(&self, which: usize, rows: Range<usize>) -> &[u8] {
        assert!(which < self.shape.count && rows.end <= self.rows(), "rows lie inside the matrix");
        let row_bytes = self.data.len() / (self.shape.rows * self.shape.count);
        let first = which * self.shape.rows + self.view.start;
        &self.data[(first + rows.start) * row_bytes..(first + rows.end) * row_bytes]
    }

    /// As many bytes as `rows` has, from where it ends: what will probably be multiplied next.
    pub fn ahead(&self, which: usize, rows: Range<usize>) -> &[u8] {
        let row_bytes = self.data.len() / (self.shape.rows * self.shape.count);
        let from = (which * self.shape.rows + self.view.start + rows.end) * row_bytes;
        let to = (from + rows.len() * row_bytes).min(self.data.len());
        &self.data[from..to]
    }
}

impl Output for Rect<'_> {
    #[inline(always)]
    fn row(&mut self, row: usize) -> &mut [f32] {
        Rect::row(self, row)
    }
}

/// What matrices of `format` multiply: the rows' int8 form, or the rows themselves.
pub fn input(x: &Rows, format: Format) -> Input<'_> {
    match x.int8(format) {
        Some(int8) => Input::Int8(int8),
        None => Input::Float { values: x.values(), width: x.width() },
    }
}

/// `out[row] = matrix · x[row]` for each of `into`, all in one phase.
pub fn project(phases: &Phases, isa: Isa, x: &mut Rows, into: &mut [(&Matrix, &mut Rows)]) {
    for (matrix, _) in into.iter() {
        assert_eq!(matrix.cols(), x.width(), "a matrix takes its input's width");
        x.quantize(phases, isa, matrix.format());
    }
    let rows = x.len();
    let mut tiles = Vec::with_capacity(into.len());
    let mut grids = Vec::with_capacity(into.len());
    let mut work = 0;
    for (matrix, out) in into.iter_mut() {
        assert_eq!(matrix.rows(), out.width(), "a matrix fills its output's width");
        work += matrix.rows() * matrix.cols() * rows;
        grids.push(Grid::columns(out.write(rows), matrix.rows(), TILE));
        tiles.push((*matrix, input(x, matrix.format())));
    }
    let pairs: Vec<(u32, u32)> = (0..rows as u32).map(|r| (r, r)).collect();
    let grids = Several(grids);
    phases.each(grids.items(), work, grids, |_, (which, mut rect)| {
        let (matrix, input) = tiles[which];
        let (weights, ahead) = (matrix.bytes(0, rect.cols()), matrix.ahead(0, rect.cols()));
        TileDot { format: matrix.format(), weights, ahead, input, pairs: &pairs, out: &mut rect }.run(isa);
    });
}
