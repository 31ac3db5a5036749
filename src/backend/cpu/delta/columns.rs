//! Columns of S: the four steps that a row of a pass takes over them.
//!
//! Owns: the order of operations down a column. Refuses to know: heads, logs, what is kept.
//!
//! S is `[key_dim][width]`. A step takes `N` vectors of 16 columns at a time, or (`PART`) fewer than 16 columns. Down
//! the keys a sum is four contiguous quarters, each a sequential fma chain, then `(q0 + q1) + (q2 + q3)`.

use crate::quant::simd::Simd;

/// Lanes of a vector.
pub const LANES: usize = 16;

/// Which columns of a matrix how wide.
#[derive(Clone, Copy)]
pub struct Columns {
    /// Columns in all.
    pub width: usize,
    /// The first.
    pub from: usize,
    /// How many: `N · LANES`, or fewer than `LANES`.
    pub count: usize,
}

impl Columns {
    /// Elements of row `i`.
    #[inline(always)]
    fn row<'s>(&self, s: &'s [f32], i: usize) -> &'s [f32] {
        &s[i * self.width + self.from..][..self.count]
    }

    /// Elements of row `i`, to be changed.
    #[inline(always)]
    fn row_mut<'s>(&self, s: &'s mut [f32], i: usize) -> &'s mut [f32] {
        &mut s[i * self.width + self.from..][..self.count]
    }
}

/// `N` vectors from memory; fewer than 16 elements are followed by zeros.
#[inline(always)]
pub fn take<S: Simd, const N: usize, const PART: bool>(s: S, from: &[f32]) -> [S::Floats; N] {
    let mut v = [s.splat_float(0.0); N];
    if PART {
        let mut all = [0.0; LANES];
        all[..from.len()].copy_from_slice(from);
        v[0] = s.load_floats(&all);
    } else {
        for (v, from) in v.iter_mut().zip(from.as_chunks().0) {
            *v = s.load_floats(from);
        }
    }
    v
}

/// The reverse of [`take`].
#[inline(always)]
pub fn put<S: Simd, const N: usize, const PART: bool>(s: S, v: [S::Floats; N], to: &mut [f32]) {
    if PART {
        let mut all = [0.0; LANES];
        s.store_floats(v[0], &mut all);
        to.copy_from_slice(&all[..to.len()]);
    } else {
        for (v, to) in v.into_iter().zip(to.as_chunks_mut().0) {
            s.store_floats(v, to);
        }
    }
}

/// The four quarters' sums together.
#[inline(always)]
fn together<S: Simd, const N: usize>(s: S, acc: [[S::Floats; N]; 4]) -> [S::Floats; N] {
    let mut sum = acc[0];
    for n in 0..N {
        sum[n] = s.add_floats(s.add_floats(acc[0][n], acc[1][n]), s.add_floats(acc[2][n], acc[3][n]));
    }
    sum
}

/// `S = decay·S`, from `kept` or in place; returns `kᵀS`.
#[inline(always)]
pub fn decay_read<S: Simd, const N: usize, const PART: bool>(
    s: S,
    (kept, state): (Option<&[f32]>, &mut [f32]),
    columns: Columns,
    decay: f32,
    k: &[f32],
) -> [S::Floats; N] {
    let mut acc = [[s.splat_float(0.0); N]; 4];
    let (decay, quarter) = (s.splat_float(decay), k.len() / 4);
    for i in 0..quarter {
        for (q, acc) in acc.iter_mut().enumerate() {
            let i = q * quarter + i;
            let key = s.splat_float(k[i]);
            let mut v: [S::Floats; N] = take::<S, N, PART>(s, columns.row(kept.unwrap_or(state), i));
            for n in 0..N {
                v[n] = s.mul_floats(v[n], decay);
                acc[n] = s.fma(v[n], key, acc[n]);
            }
            put::<S, N, PART>(s, v, columns.row_mut(state, i));
        }
    }
    together(s, acc)
}

/// `S = S + k⊗delta`; returns `qᵀS`.
#[inline(always)]
pub fn write_read<S: Simd, const N: usize, const PART: bool>(
    s: S,
    state: &mut [f32],
    columns: Columns,
    (k, delta): (&[f32], [S::Floats; N]),
    q: &[f32],
) -> [S::Floats; N] {
    let mut acc = [[s.splat_float(0.0); N]; 4];
    let quarter = k.len() / 4;
    for i in 0..quarter {
        for (part, acc) in acc.iter_mut().enumerate() {
            let i = part * quarter + i;
            let (key, query) = (s.splat_float(k[i]), s.splat_float(q[i]));
            let mut v: [S::Floats; N] = take::<S, N, PART>(s, columns.row(state, i));
            for n in 0..N {
                v[n] = s.fma(key, delta[n], v[n]);
                acc[n] = s.fma(v[n], query, acc[n]);
            }
            put::<S, N, PART>(s, v, columns.row_mut(state, i));
        }
    }
    together(s, acc)
}

/// `S = decay·S + k⊗delta`, from `kept` or in place: both updates of a row once more, rounded as they were.
#[inline(always)]
pub fn replay<S: Simd, const N: usize, const PART: bool>(
    s: S,
    (kept, state): (Option<&[f32]>, &mut [f32]),
    columns: Columns,
    decay: f32,
    (k, delta): (&[f32], [S::Floats; N]),
) {
    let decay = s.splat_float(decay);
    for (i, k) in k.iter().enumerate() {
        let key = s.splat_float(*k);
        let mut v: [S::Floats; N] = take::<S, N, PART>(s, columns.row(kept.unwrap_or(state), i));
        for n in 0..N {
            v[n] = s.fma(key, delta[n], s.mul_floats(v[n], decay));
        }
        put::<S, N, PART>(s, v, columns.row_mut(state, i));
    }
}

/// Runs `$step!(N, PART, columns)` over all `width` columns: two vectors at a time, then one, then what is left.
macro_rules! over_columns {
    ($width:expr, $step:ident) => {{
        let width = $width;
        let mut from = 0;
        while from + 2 * LANES <= width {
            $step!(2, false, Columns { width, from, count: 2 * LANES });
            from += 2 * LANES;
        }
        if from + LANES <= width {
            $step!(1, false, Columns { width, from, count: LANES });
            from += LANES;
        }
        if from < width {
            $step!(1, true, Columns { width, from, count: width - from });
        }
    }};
}
pub(super) use over_columns;
