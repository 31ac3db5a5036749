//! The product for blocks of 32 weights with one scale.
//!
//! Owns: both ways through a panel, and the terms of minima and offsets. Refuses to know: where the bits of a block lie.
//!
//! With codes `u = q + OFFSET` a block's integer is `I = Σ u·x − OFFSET · Σ x`; a minimum multiplies `M = Σ x`.

use super::{Activations, Block, MOST, Output, PANEL, Panel, over_panels, over_rows};
use crate::quant::codes::Narrow;
use crate::quant::simd::Simd;

/// Weights in a block, and sums of activations that go with them.
const N: usize = 32;
const SUMS: usize = N / Activations::SUM;

type X<'a> = Block<'a, N, SUMS>;

/// The scales of 16 rows' blocks.
struct Scales<S: Simd> {
    d: S::Floats,
    dmin: S::Floats,
}

impl<S: Simd> Scales<S> {
    #[inline(always)]
    fn new<B: Narrow>(s: S, panel: &Panel<B>, b: usize) -> Self {
        let (d, dmin) = B::scales(s, panel.rows(), b * size_of::<B>());
        Scales { d, dmin }
    }

    /// Chains a block's terms on: `i` is `Σ u·x`.
    #[inline(always)]
    fn chain<B: Narrow>(&self, s: S, acc: S::Floats, x: X, i: S::Lanes) -> S::Floats {
        let sum = x.sums.iter().map(|&sum| i32::from(sum)).sum::<i32>();
        let d_x = s.splat_float(x.d);
        let i = if B::OFFSET == 0 { i } else { s.add(i, s.splat(-B::OFFSET * sum)) };
        let acc = s.fma(s.mul_floats(self.d, d_x), s.to_floats(i), acc);
        if B::HAS_MIN { s.fnma(s.mul_floats(self.dmin, d_x), s.to_floats(s.splat(sum)), acc) } else { acc }
    }
}

/// `out[o][r] = weights[r] · x[i]`; `ahead` is what follows the weights.
#[inline(always)]
pub fn product<B: Narrow, S: Simd>(
    s: S,
    (blocks, ahead): (&[B], &[u8]),
    x: &Activations,
    pairs: &[(u32, u32)],
    out: &mut dyn Output,
) {
    over_panels!((blocks, ahead), x.width / N, (s, x, pairs, out));
}

/// Two weight rows to a vector, their codes in registers for `R` activation rows; lanes are summed for 16 rows at once.
#[inline(always)]
fn few<B: Narrow, S: Simd, const R: usize>(
    s: S,
    panel: &Panel<B>,
    x: &Activations,
    pairs: &[(u32, u32); R],
    out: &mut dyn Output,
) {
    let mut acc = [s.splat_float(0.0); R];
    let mut lanes = [[s.splat(0); PANEL / 2]; R];
    for b in 0..panel.per_row {
        let mut ahead = panel.ahead(b);
        ahead.step(s, ahead.lines());
        for r in 0..PANEL / 2 {
            let codes = B::codes(s, [panel.block(r, b), panel.block(r + PANEL / 2, b)]);
            for (lanes, pair) in lanes.iter_mut().zip(pairs) {
                let x: X = x.block(pair.0 as usize, b);
                lanes[r] = s.dot(s.splat(0), codes, s.twice(x.q), B::FULL);
            }
        }
        let scales = Scales::new(s, panel, b);
        for a in 0..R {
            let x: X = x.block(pairs[a].0 as usize, b);
            acc[a] = scales.chain::<B>(s, acc[a], x, s.half_sums(&lanes[a]));
        }
    }
    for (acc, pair) in acc.iter().zip(pairs) {
        panel.put(s, *acc, out.row(pair.1 as usize));
    }
}

/// 16 blocks turned so that lanes are weight rows.
struct Turned<S: Simd> {
    /// Four weights of each row in a vector.
    codes: [S::Bytes; N / 4],
    scales: Scales<S>,
}

impl<S: Simd> Turned<S> {
    #[inline(always)]
    fn new<B: Narrow>(s: S, panel: &Panel<B>, b: usize) -> Self {
        let codes = B::turned(s, panel.rows(), b * size_of::<B>());
        Turned { codes, scales: Scales::new(s, panel, b) }
    }

    /// One block's terms chained on for `R` activation rows.
    #[inline(always)]
    fn chain<B: Narrow, const R: usize>(
        &self,
        s: S,
        x: &Activations,
        (b, pairs): (usize, &[(u32, u32)]),
        acc: &mut [[f32; PANEL]],
    ) {
        let mut rows: [X; R] = [x.block(pairs[0].0 as usize, b); R];
        for (row, pair) in rows.iter_mut().zip(pairs) {
            *row = x.block(pair.0 as usize, b);
        }
        let mut dots = [s.splat(0); R];
        for (k, codes) in self.codes.iter().enumerate() {
            for a in 0..R {
                dots[a] = s.dot(dots[a], *codes, s.splat4(rows[a].q.as_chunks().0[k]), B::FULL);
            }
        }
        for a in 0..R {
            let sum = self.scales.chain::<B>(s, s.load_floats(&acc[a]), rows[a], dots[a]);
            s.store_floats(sum, &mut acc[a]);
        }
    }
}

/// Block by block: turned once, then used for all activation rows.
#[inline(always)]
fn many<B: Narrow, S: Simd>(s: S, panel: &Panel<B>, x: &Activations, pairs: &[(u32, u32)], out: &mut dyn Output) {
    let mut acc = [[0.0; PANEL]; MOST];
    for b in 0..panel.per_row {
        let mut ahead = panel.ahead(b);
        ahead.step(s, ahead.lines());
        let turned = Turned::new(s, panel, b);
        macro_rules! chain {
            ($r:literal, $a:expr) => {
                turned.chain::<B, $r>(s, x, (b, &pairs[$a..]), &mut acc[$a..])
            };
        }
        over_rows!(pairs.len(), chain);
    }
    for (acc, pair) in acc.iter().zip(pairs) {
        panel.put(s, s.load_floats(acc), out.row(pair.1 as usize));
    }
}
