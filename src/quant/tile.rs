//! The fast product: a tile of weight rows times many activation rows.
//!
//! Owns: activations in int8, and the loop that decodes each weight block once for all rows. Refuses to know: matrices,
//! threads. Bit-equal to `canon::dot_row` and `canon::dot_f32` by test.

use super::blocks::{BF16, Block, F16, F32, Float};
use super::{Format, Isa, Kernel, canon};
use crate::with_block;

/// Rows of activations as int8 with one scale per block, held as i16: a multiply-add of i16 pairs into i32 is what
/// every vector unit has, and a weight times its sub-block's scale fits i16 too.
pub struct Activations {
    block: usize,
    width: usize,
    q: Vec<i16>,
    d: Vec<f32>,
    sums: Vec<i16>,
}

impl Activations {
    /// Values whose q are summed into one entry of the sums that minimum terms use.
    pub const SUM: usize = canon::SUM;

    /// No rows yet; `block` is 32 or 256.
    pub fn new(block: usize) -> Activations {
        Activations { block, width: 0, q: Vec::new(), d: Vec::new(), sums: Vec::new() }
    }

    /// Room for `rows` rows of `width`: q `[rows][width]`, d `[rows][width / block]`, sums `[rows][width / SUM]`.
    pub fn write(&mut self, rows: usize, width: usize) -> (&mut [i16], &mut [f32], &mut [i16]) {
        assert!(width.is_multiple_of(self.block), "a row is whole blocks");
        self.width = width;
        self.q.resize(rows * width, 0);
        self.d.resize(rows * (width / self.block), 0.0);
        self.sums.resize(rows * (width / Self::SUM), 0);
        (&mut self.q, &mut self.d, &mut self.sums)
    }

    /// Quantises one row into its part of what [`Activations::write`] gave.
    pub fn quantize(isa: Isa, block: usize, x: &[f32], (q, d, sums): (&mut [i16], &mut [f32], &mut [i16])) {
        isa.run(Quantize { block, x, q, d, sums });
    }

    #[inline(always)]
    fn block_at(&self, row: usize, block: usize, len: usize) -> (&[i16], f32, &[i16]) {
        let at = row * self.width + block * len;
        let q = &self.q[at..at + len];
        let sums = &self.sums[at / Self::SUM..(at + len) / Self::SUM];
        (q, self.d[row * (self.width / len) + block], sums)
    }
}

/// Quantises a row.
struct Quantize<'a> {
    block: usize,
    x: &'a [f32],
    q: &'a mut [i16],
    d: &'a mut [f32],
    sums: &'a mut [i16],
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let n = self.block;
        let blocks = self.x.chunks_exact(n).zip(self.q.chunks_exact_mut(n));
        let scales = self.d.iter_mut().zip(self.sums.chunks_exact_mut(n / Activations::SUM));
        for ((x, wide), (d, sums)) in blocks.zip(scales) {
            let mut q = [0i8; 256];
            canon::quantize_row(x, n, &mut q[..n], std::slice::from_mut(d), sums);
            for (wide, q) in wide.iter_mut().zip(&q[..n]) {
                *wide = i16::from(*q);
            }
        }
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
pub struct TileDot<'a, O: Output> {
    /// Format of the weights.
    pub format: Format,
    /// Whole weight rows, one after another.
    pub weights: &'a [u8],
    /// Activations.
    pub input: Input<'a>,
    /// (input row, output row).
    pub pairs: &'a [(u32, u32)],
    /// Results.
    pub out: &'a mut O,
}

impl<O: Output> Kernel for TileDot<'_, O> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let TileDot { format, weights, input, pairs, out } = self;
        match input {
            Input::Int8(x) => with_block!(
                format,
                B => quantized::<B, O>(weights, x, pairs, out),
                else => unreachable!("{format} multiplies float activations")
            ),
            Input::Float { values, width } => match format {
                Format::F32 => floats::<F32, O>(bytemuck::cast_slice(weights), (values, width), pairs, out),
                Format::F16 => floats::<F16, O>(bytemuck::cast_slice(weights), (values, width), pairs, out),
                Format::BF16 => floats::<BF16, O>(bytemuck::cast_slice(weights), (values, width), pairs, out),
                _ => unreachable!("{format} multiplies int8 activations"),
            },
        }
    }
}

/// Float weights: each row widened once for all activation rows.
#[inline(always)]
fn floats<W: Float, O: Output>(weights: &[W], (x, width): (&[f32], usize), pairs: &[(u32, u32)], out: &mut O) {
    let mut row = vec![0.0f32; width];
    for (r, weights) in weights.chunks_exact(width).enumerate() {
        for (wide, w) in row.iter_mut().zip(weights) {
            *wide = w.widen();
        }
        for &(i, o) in pairs {
            out.row(o as usize)[r] = canon::dot_f32(&row, &x[i as usize * width..][..width]);
        }
    }
}

/// Weight rows that are decoded together, so that an activation is loaded once for all of them.
const GROUP: usize = 4;

#[inline(always)]
fn quantized<B: Block, O: Output>(weights: &[u8], x: &Activations, pairs: &[(u32, u32)], out: &mut O) {
    let blocks: &[B] = bytemuck::cast_slice(weights);
    let per_row = x.width / B::LEN;
    let rows = blocks.len() / per_row;
    let mut r = 0;
    while r + GROUP <= rows {
        group::<B, O, GROUP>(&blocks[r * per_row..], x, pairs, (out, r));
        r += GROUP;
    }
    while r < rows {
        group::<B, O, 1>(&blocks[r * per_row..], x, pairs, (out, r));
        r += 1;
    }
}

/// A weight block with the scales multiplied in: exact in i16 for every format.
struct Decoded {
    q: [i16; 256],
    min: [i16; 16],
    scales: (f32, f32),
}

impl Decoded {
    #[inline(always)]
    fn new() -> Decoded {
        Decoded { q: [0; 256], min: [0; 16], scales: (0.0, 0.0) }
    }

    #[inline(always)]
    fn decode<B: Block>(&mut self, block: &B) {
        let (mut q, mut scale, mut min) = ([0i8; 256], [0i8; 16], [0u8; 16]);
        let subs = B::LEN / B::SUB;
        self.scales = block.unpack(&mut q[..B::LEN], &mut scale[..subs], &mut min[..subs]);
        let scaled = self.q.chunks_exact_mut(B::SUB).zip(q.chunks_exact(B::SUB));
        for ((wide, q), scale) in scaled.zip(&scale[..subs]) {
            for (wide, q) in wide.iter_mut().zip(q) {
                *wide = i16::from(*q) * i16::from(*scale);
            }
        }
        if B::HAS_MIN {
            // Sums of activations come per 16; a sub-block of 32 takes two of them.
            let per_sum = B::SUB / Activations::SUM;
            for s in 0..B::LEN / Activations::SUM {
                self.min[s] = i16::from(min[s / per_sum]);
            }
        }
    }
}

#[inline(always)]
fn dot_i16(a: &[i16], b: &[i16]) -> i32 {
    let mut sum = 0i32;
    for (a, b) in a.iter().zip(b) {
        sum += i32::from(*a) * i32::from(*b);
    }
    sum
}

/// `R` weight rows: block after block, each decoded once, then every activation row's term chained on.
#[inline(always)]
fn group<B: Block, O: Output, const R: usize>(
    blocks: &[B],
    x: &Activations,
    pairs: &[(u32, u32)],
    (out, at): (&mut O, usize),
) {
    let per_row = x.width / B::LEN;
    let mut w: [Decoded; R] = std::array::from_fn(|_| Decoded::new());
    for &(_, o) in pairs {
        out.row(o as usize)[at..at + R].fill(0.0);
    }
    for b in 0..per_row {
        for (r, w) in w.iter_mut().enumerate() {
            w.decode(&blocks[r * per_row + b]);
        }
        for &(i, o) in pairs {
            let (q, d, sums) = x.block_at(i as usize, b, B::LEN);
            let acc = &mut out.row(o as usize)[at..at + R];
            for (acc, w) in acc.iter_mut().zip(&w) {
                let dot = dot_i16(&w.q[..B::LEN], q);
                let min = if B::HAS_MIN { dot_i16(&w.min[..B::LEN / Activations::SUM], sums) } else { 0 };
                *acc = canon::chain::<B>(*acc, w.scales, d, (dot, min));
            }
        }
    }
}
