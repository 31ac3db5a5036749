//! The fast product: a tile of weight rows times many activation rows.
//!
//! Owns: activations in int8, and the choice of a format's product. Refuses to know: matrices, threads. Bit-equal to
//! `canon::dot_row` and `canon::dot_f32` by test.

mod narrow;
mod wide;

use super::blocks::{BF16, F16, F32, Float};
use super::floats::dots;
use super::simd::{Ahead, Rows, Simd};
use super::{Format, Isa, Kernel, canon};
use crate::with_block;
use bytemuck::Pod;

/// Weight rows that are multiplied together: the lanes of a vector.
pub const PANEL: usize = 16;

/// Activation rows that share one decoding of the weights.
const MOST: usize = 64;

/// Rows of activations as int8 with one scale per block.
pub struct Activations {
    block: usize,
    width: usize,
    q: Vec<i8>,
    d: Vec<f32>,
    sums: Vec<i16>,
}

impl Activations {
    /// Values whose q are summed into one entry of the sums that minimum and offset terms use.
    pub const SUM: usize = canon::SUM;

    /// No rows yet; `block` is 32 or 256.
    pub fn new(block: usize) -> Activations {
        Activations { block, width: 0, q: Vec::new(), d: Vec::new(), sums: Vec::new() }
    }

    /// Room for `rows` rows of `width`: q `[rows][width]`, d `[rows][width / block]`, sums `[rows][width / SUM]`.
    pub fn write(&mut self, rows: usize, width: usize) -> (&mut [i8], &mut [f32], &mut [i16]) {
        assert!(width.is_multiple_of(self.block), "a row is whole blocks");
        self.width = width;
        self.q.resize(rows * width, 0);
        self.d.resize(rows * (width / self.block), 0.0);
        self.sums.resize(rows * (width / Self::SUM), 0);
        (&mut self.q, &mut self.d, &mut self.sums)
    }

    /// Quantises one row into its part of what [`Activations::write`] gave.
    pub fn quantize(isa: Isa, block: usize, x: &[f32], (q, d, sums): (&mut [i8], &mut [f32], &mut [i16])) {
        isa.run(Quantize { block, x, q, d, sums });
    }

    /// Block `b` of a row: `N` codes, the scale, and `M = N / SUM` sums.
    #[inline(always)]
    fn block<const N: usize, const M: usize>(&self, row: usize, b: usize) -> Block<'_, N, M> {
        let at = row * self.width + b * N;
        let q: &[u8] = bytemuck::cast_slice(&self.q);
        Block {
            q: array(&q[at..at + N]),
            d: self.d[row * (self.width / N) + b],
            sums: array(&self.sums[at / Self::SUM..at / Self::SUM + M]),
        }
    }
}

/// One block of one activation row.
#[derive(Clone, Copy)]
struct Block<'a, const N: usize, const M: usize> {
    q: &'a [u8; N],
    d: f32,
    sums: &'a [i16; M],
}

/// A slice of known length as an array.
#[inline(always)]
fn array<T, const N: usize>(slice: &[T]) -> &[T; N] {
    match slice.as_array() {
        Some(array) => array,
        None => unreachable!("a slice of {N} elements has {N} elements"),
    }
}

/// Quantises a row.
struct Quantize<'a> {
    block: usize,
    x: &'a [f32],
    q: &'a mut [i8],
    d: &'a mut [f32],
    sums: &'a mut [i16],
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        canon::quantize_row(self.x, self.block, self.q, self.d, self.sums);
    }
}

/// What a tile of weights multiplies.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// For quantised formats.
    Int8(&'a Activations),
    /// For float formats: `[rows][width]`.
    Float {
        /// All rows.
        values: &'a [f32],
        /// Elements in a row.
        width: usize,
    },
}

/// Where a tile's results go: the tile's columns of an output row.
pub trait Output {
    /// Row `row`, as long as the tile has weight rows.
    fn row(&mut self, row: usize) -> &mut [f32];
}

/// `out[o][r] = weights[r] · x[i]` for each pair `(i, o)` and each of the tile's weight rows.
pub struct TileDot<'a> {
    /// Format of the weights.
    pub format: Format,
    /// Whole weight rows, one after another.
    pub weights: &'a [u8],
    /// What will be multiplied next: asked for while this tile is computed.
    pub ahead: &'a [u8],
    /// Activations.
    pub input: Input<'a>,
    /// (input row, output row).
    pub pairs: &'a [(u32, u32)],
    /// Results.
    pub out: &'a mut dyn Output,
}

impl TileDot<'_> {
    /// Computes the tile. Compiled once, here: there is much of it.
    pub fn run(self, isa: Isa) {
        isa.run(self);
    }
}

impl Kernel for TileDot<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let TileDot { format, weights, ahead, input, pairs, out } = self;
        match input {
            Input::Int8(x) => with_block!(
                format,
                wide B => wide::product::<B, S>(s, (bytemuck::cast_slice(weights), ahead), x, pairs, out),
                narrow B => narrow::product::<B, S>(s, (bytemuck::cast_slice(weights), ahead), x, pairs, out),
                else => unreachable!("{format} multiplies float activations")
            ),
            Input::Float { values, width } => match format {
                Format::F32 => floats::<F32, S>(s, (bytemuck::cast_slice(weights), width), values, pairs, out),
                Format::F16 => floats::<F16, S>(s, (bytemuck::cast_slice(weights), width), values, pairs, out),
                Format::BF16 => floats::<BF16, S>(s, (bytemuck::cast_slice(weights), width), values, pairs, out),
                _ => unreachable!("{format} multiplies int8 activations"),
            },
        }
    }
}

/// Float weights: four activation rows at a time.
#[inline(always)]
fn floats<W: Float, S: Simd>(
    s: S,
    (weights, width): (&[W], usize),
    x: &[f32],
    pairs: &[(u32, u32)],
    out: &mut dyn Output,
) {
    let (fours, rest) = pairs.as_chunks::<4>();
    for (r, w) in weights.chunks_exact(width).enumerate() {
        for four in fours {
            let x = four.map(|(i, _)| &x[i as usize * width..][..width]);
            let dots = dots(s, w, x);
            for (dot, &(_, o)) in dots.into_iter().zip(four) {
                out.row(o as usize)[r] = dot;
            }
        }
        for &(i, o) in rest {
            [out.row(o as usize)[r]] = dots(s, w, [&x[i as usize * width..][..width]]);
        }
    }
}

/// [`PANEL`] neighbouring rows of blocks.
struct Panel<'a, B> {
    /// `[PANEL][per_row]`; beyond the rows that are there, zeros.
    blocks: &'a [B],
    per_row: usize,
    /// Rows that are really there.
    rows: usize,
    /// The first of them, counted in the tile.
    first: usize,
    ahead: &'a [u8],
}

impl<'a, B: Pod> Panel<'a, B> {
    /// Block `b` of row `r`.
    #[inline(always)]
    fn block(&self, r: usize, b: usize) -> &'a B {
        &self.blocks[r * self.per_row + b]
    }

    /// The rows as bytes.
    #[inline(always)]
    fn rows(&self) -> Rows<'a> {
        Rows::new(bytemuck::cast_slice(self.blocks))
    }

    /// The share of what lies ahead that goes with block `b`.
    #[inline(always)]
    fn ahead(&self, b: usize) -> Ahead<'a> {
        let (from, to) = (self.ahead.len() * b / self.per_row, self.ahead.len() * (b + 1) / self.per_row);
        Ahead::new(&self.ahead[from..to])
    }

    /// Hands the sums of one activation row over.
    #[inline(always)]
    fn put<S: Simd>(&self, s: S, acc: S::Floats, out: &mut [f32]) {
        let mut values = [0.0; PANEL];
        s.store_floats(acc, &mut values);
        out[self.first..self.first + self.rows].copy_from_slice(&values[..self.rows]);
    }
}

/// A format's product over the panels of a tile: `few` for one or two activation rows, else `many`, both the caller's.
/// The last panel looks ahead to what follows the tile.
macro_rules! over_panels {
    (($blocks:expr, $ahead:expr), $per_row:expr, ($s:ident, $x:ident, $pairs:ident, $out:ident)) => {{
        let (blocks, ahead, per_row): (_, _, usize) = ($blocks, $ahead, $per_row);
        macro_rules! multiply {
            ($panel:expr) => {{
                let panel = $panel;
                match $pairs {
                    [] => {}
                    [a] => few($s, &panel, $x, &[*a], $out),
                    [a, b] => few($s, &panel, $x, &[*a, *b], $out),
                    _ => {
                        for pairs in $pairs.chunks(MOST) {
                            many($s, &panel, $x, pairs, $out);
                        }
                    }
                }
            }};
        }
        let panels = blocks.chunks_exact(PANEL * per_row);
        let left = panels.remainder();
        let last = (blocks.len() / per_row).saturating_sub(1) / PANEL;
        for (i, blocks) in panels.enumerate() {
            let ahead = if i == last { ahead } else { &[] };
            multiply!(Panel { blocks, per_row, rows: PANEL, first: i * PANEL, ahead });
        }
        if !left.is_empty() {
            let mut whole: Vec<B> = bytemuck::zeroed_vec(PANEL * per_row);
            whole[..left.len()].copy_from_slice(left);
            let rows = left.len() / per_row;
            multiply!(Panel { blocks: &whole, per_row, rows, first: last * PANEL, ahead });
        }
    }};
}
use over_panels;

/// Runs `$chain!(R, a)` for all `n` activation rows, `R` of them from `a` on: eight at a time, then what is left.
macro_rules! over_rows {
    ($n:expr, $chain:ident) => {{
        let (n, mut a): (usize, usize) = ($n, 0);
        while a < n {
            match n - a {
                8.. => {
                    $chain!(8, a);
                    a += 8;
                }
                4.. => {
                    $chain!(4, a);
                    a += 4;
                }
                2.. => {
                    $chain!(2, a);
                    a += 2;
                }
                _ => {
                    $chain!(1, a);
                    a += 1;
                }
            }
        }
    }};
}
use over_rows;
