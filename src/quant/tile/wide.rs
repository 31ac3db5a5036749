//! The product for blocks of 256 weights with a scale per sub-block.
//!
//! Owns: both ways through a panel, and the terms of minima and offsets. Refuses to know: where the bits of a block lie.
//!
//! With codes `u = q + OFFSET` a block's integers are `I = Σ scale·u·x − OFFSET · Σ scale·(Σ x)` and, where there are
//! minima, `M = Σ min·(Σ x)`, with `Σ x` the activations' sums of 16: one more small dot product either way.

use super::{Activations, Block, MOST, Output, PANEL, Panel, over_panels, over_rows};
use crate::quant::codes::{Sides, Wide};
use crate::quant::simd::{Ahead, Simd};

/// Weights in a block, and sums of activations that go with them.
const N: usize = 256;
const SUMS: usize = N / Activations::SUM;

type X<'a> = Block<'a, N, SUMS>;

/// What 16 blocks have beside their codes; lanes are rows.
struct Beside<S: Simd> {
    sides: Sides<S>,
    /// A pair of i16 for each pair of activation sums: minima, or scales where codes have an offset.
    pairs: [S::Lanes; SUMS / 2],
}

impl<S: Simd> Beside<S> {
    #[inline(always)]
    fn new<B: Wide>(s: S, panel: &Panel<B>, b: usize) -> Self {
        let sides = B::sides(s, panel.rows(), b * size_of::<B>());
        let mut pairs = [s.splat(0); SUMS / 2];
        if B::SUB == 16 {
            let from = if B::HAS_MIN { &sides.minima } else { &sides.scales };
            for (j, pair) in pairs.iter_mut().enumerate() {
                *pair = s.signed_pair(from[j / 2], j % 2 * 2, j % 2 * 2 + 1);
            }
        } else {
            // Two sums of 16 to a sub-block of 32; minima follow the scales.
            let first = if B::HAS_MIN { 2 } else { 0 };
            for (j, pair) in pairs.iter_mut().enumerate() {
                *pair = s.signed_pair(sides.scales[first + j / 4], j % 4, j % 4);
            }
        }
        Beside { sides, pairs }
    }

    /// The scale of each sub-block.
    #[inline(always)]
    fn scales<B: Wide>(&self, s: S) -> [S::Lanes; 16] {
        let mut scales = [s.splat(0); 16];
        for (sub, scale) in scales[..N / B::SUB].iter_mut().enumerate() {
            *scale = s.signed_byte(self.sides.scales[sub / 4], sub % 4);
        }
        scales
    }

    /// Chains a block's terms on: `i` is `Σ scale·u·x`.
    #[inline(always)]
    fn chain<B: Wide>(&self, s: S, acc: S::Floats, x: X, i: S::Lanes) -> S::Floats {
        let mut side = s.splat(0);
        if B::HAS_MIN || B::OFFSET != 0 {
            for (pair, sums) in self.pairs.iter().zip(x.sums.as_chunks::<2>().0) {
                let sums = i32::from(sums[0]) & 0xffff | i32::from(sums[1]) << 16;
                side = s.dot_pairs(side, *pair, s.splat(sums));
            }
        }
        let d_x = s.splat_float(x.d);
        let i = if B::OFFSET == 0 { i } else { s.add(i, s.mul(side, s.splat(-B::OFFSET))) };
        let acc = s.fma(s.mul_floats(self.sides.d, d_x), s.to_floats(i), acc);
        if B::HAS_MIN { s.fnma(s.mul_floats(self.sides.dmin, d_x), s.to_floats(side), acc) } else { acc }
    }
}

/// `out[o][r] = weights[r] · x[i]`; `ahead` is what follows the weights.
#[inline(always)]
pub fn product<B: Wide, S: Simd>(
    s: S,
    (blocks, ahead): (&[B], &[u8]),
    x: &Activations,
    pairs: &[(u32, u32)],
    out: &mut dyn Output,
) {
    over_panels!((blocks, ahead), x.width / N, (s, x, pairs, out));
}

/// Weight row by weight row: codes stay in registers for `R` activation rows, lanes are summed for 16 rows at once.
#[inline(always)]
fn few<B: Wide, S: Simd, const R: usize>(
    s: S,
    panel: &Panel<B>,
    x: &Activations,
    pairs: &[(u32, u32); R],
    out: &mut dyn Output,
) {
    let mut acc = [s.splat_float(0.0); R];
    let mut lanes = [[s.splat(0); PANEL]; R];
    for b in 0..panel.per_row {
        let mut ahead = panel.ahead(b);
        let lines = ahead.lines().div_ceil(PANEL);
        let beside = Beside::new(s, panel, b);
        let scales = s.rows(beside.sides.scales);
        for r in 0..PANEL {
            ahead.step(s, lines);
            let scales = s.scales(&scales[r], B::SUB);
            let codes = panel.block(r, b).codes(s);
            for (lanes, pair) in lanes.iter_mut().zip(pairs) {
                let x: X = x.block(pair.0 as usize, b);
                let x = x.q.as_chunks().0;
                let mut sum = s.splat(0);
                for v in 0..4 {
                    let x = s.load(&x[v]);
                    if B::FULL {
                        sum = s.dot_scaled(sum, s.and(codes[v], 0x7f), x, scales[v]);
                        sum = s.dot_scaled(sum, s.and(codes[v], 0x80), x, scales[v]);
                    } else {
                        sum = s.dot_scaled(sum, codes[v], x, scales[v]);
                    }
                }
                lanes[r] = sum;
            }
        }
        for a in 0..R {
            let x: X = x.block(pairs[a].0 as usize, b);
            acc[a] = beside.chain::<B>(s, acc[a], x, s.sums(&lanes[a]));
        }
    }
    for (acc, pair) in acc.iter().zip(pairs) {
        panel.put(s, *acc, out.row(pair.1 as usize));
    }
}

/// 16 blocks turned so that lanes are weight rows.
struct Turned<'c, S: Simd> {
    /// Four weights of each row in a vector.
    codes: &'c [S::Bytes; N / 4],
    scales: [S::Lanes; 16],
    beside: Beside<S>,
}

impl<'c, S: Simd> Turned<'c, S> {
    #[inline(always)]
    fn new<B: Wide>(s: S, panel: &Panel<B>, b: usize, (codes, ahead): (&'c mut [S::Bytes; N / 4], &mut Ahead)) -> Self {
        B::turned(s, panel.rows(), b * size_of::<B>(), (codes, ahead));
        let beside = Beside::new(s, panel, b);
        Turned { codes, scales: beside.scales::<B>(s), beside }
    }

    /// `Σ scale·u·x` of `R` activation rows.
    #[inline(always)]
    fn dot<B: Wide, const R: usize>(&self, s: S, x: &[X; R], (ahead, lines): (&mut Ahead, usize)) -> [S::Lanes; R] {
        let mut total = [s.splat(0); R];
        let vectors = B::SUB / 4;
        for (sub, (codes, scale)) in self.codes.chunks_exact(vectors).zip(&self.scales).enumerate() {
            ahead.step(s, lines);
            // Two chains a row for longer sub-blocks: one alone would wait for itself.
            let mut part = [[s.splat(0); R]; 2];
            for (k, codes) in codes.iter().enumerate() {
                for a in 0..R {
                    let four = x[a].q.as_chunks().0[sub * vectors + k];
                    part[k / 4 % 2][a] = s.dot(part[k / 4 % 2][a], *codes, s.splat4(four), B::FULL);
                }
            }
            for a in 0..R {
                total[a] = s.add(total[a], s.mul(s.add(part[0][a], part[1][a]), *scale));
            }
        }
        total
    }

    /// One block's terms chained on for `R` activation rows.
    #[inline(always)]
    fn chain<B: Wide, const R: usize>(
        &self,
        s: S,
        x: &Activations,
        (b, pairs): (usize, &[(u32, u32)]),
        (acc, ahead): (&mut [[f32; PANEL]], (&mut Ahead, usize)),
    ) {
        let mut rows = [x.block(pairs[0].0 as usize, b); R];
        for (row, pair) in rows.iter_mut().zip(pairs) {
            *row = x.block(pair.0 as usize, b);
        }
        let dots = self.dot::<B, R>(s, &rows, ahead);
        for a in 0..R {
            let sum = self.beside.chain::<B>(s, s.load_floats(&acc[a]), rows[a], dots[a]);
            s.store_floats(sum, &mut acc[a]);
        }
    }
}

/// Block by block: turned once, then used for all activation rows.
#[inline(always)]
fn many<B: Wide, S: Simd>(s: S, panel: &Panel<B>, x: &Activations, pairs: &[(u32, u32)], out: &mut dyn Output) {
    let mut acc = [[0.0; PANEL]; MOST];
    let mut codes = [s.splat4([0; 4]); N / 4];
    for b in 0..panel.per_row {
        let mut ahead = panel.ahead(b);
        let turned = Turned::new(s, panel, b, (&mut codes, &mut ahead));
        // What is left goes evenly with the steps of the dot products.
        let lines = ahead.lines().div_ceil(pairs.len().div_ceil(8) * (N / B::SUB));
        macro_rules! chain {
            ($r:literal, $a:expr) => {
                turned.chain::<B, $r>(s, x, (b, &pairs[$a..]), (&mut acc[$a..], (&mut ahead, lines)))
            };
        }
        over_rows!(pairs.len(), chain);
    }
    for (acc, pair) in acc.iter().zip(pairs) {
        panel.put(s, s.load_floats(acc), out.row(pair.1 as usize));
    }
}
