//! Columns of S: the steps that a row of a pass takes over them.
//!
//! Owns: the order of operations down a column. Refuses to know: heads, logs, what is kept.
//!
//! S is `[key_dim][width]`. Some columns of it are taken through all rows in a slice of their own: in S itself they lie
//! a power of two apart, where a cache can hold only few of them. Down the keys a sum is four contiguous quarters, each
//! a sequential fma chain, then `(q0 + q1) + (q2 + q3)`.

use crate::quant::simd::Simd;

/// Lanes of a vector.
pub const LANES: usize = 16;

/// Vectors side by side in a slice; the last slices of a matrix may have one.
pub const VECTORS: usize = 2;

/// Which columns of a matrix how wide.
#[derive(Clone, Copy)]
pub struct Columns {
    /// Columns in all.
    pub width: usize,
    /// The first.
    pub from: usize,
    /// How many, at most `N · LANES`.
    pub count: usize,
}

impl Columns {
    /// These columns of row `row` of a matrix, as vectors; beyond the last column, zeros.
    #[inline(always)]
    pub fn take<S: Simd, const N: usize>(self, s: S, matrix: &[f32], row: usize) -> [S::Floats; N] {
        let from = &matrix[row * self.width + self.from..][..self.count];
        let mut all = [[0.0; LANES]; N];
        copy::<N>(from, all.as_flattened_mut(), self.count);
        load(s, &all)
    }

    /// The reverse of [`Columns::take`].
    #[inline(always)]
    pub fn put<S: Simd, const N: usize>(self, s: S, v: [S::Floats; N], matrix: &mut [f32], row: usize) {
        let mut all = [[0.0; LANES]; N];
        store(s, v, &mut all);
        let to = &mut matrix[row * self.width + self.from..][..self.count];
        copy::<N>(all.as_flattened(), to, self.count);
    }

    /// Copies these columns of S into `slice`, `[key_dim][N]` vectors.
    #[inline(always)]
    pub fn take_all<const N: usize>(self, matrix: &[f32], slice: &mut [[f32; LANES]]) {
        for (row, slice) in matrix.chunks_exact(self.width).zip(slice.chunks_exact_mut(N)) {
            copy::<N>(&row[self.from..self.from + self.count], slice.as_flattened_mut(), self.count);
        }
    }

    /// Copies `slice` back.
    #[inline(always)]
    pub fn put_all<const N: usize>(self, slice: &[[f32; LANES]], matrix: &mut [f32]) {
        for (row, slice) in matrix.chunks_exact_mut(self.width).zip(slice.chunks_exact(N)) {
            copy::<N>(slice.as_flattened(), &mut row[self.from..self.from + self.count], self.count);
        }
    }
}

/// Copies `count` elements. That these are mostly `N` vectors makes it some moves instead of a call.
#[inline(always)]
fn copy<const N: usize>(from: &[f32], to: &mut [f32], count: usize) {
    if count == N * LANES {
        to[..N * LANES].copy_from_slice(&from[..N * LANES]);
    } else {
        to[..count].copy_from_slice(&from[..count]);
    }
}

/// `N` vectors from memory.
#[inline(always)]
fn load<S: Simd, const N: usize>(s: S, from: &[[f32; LANES]]) -> [S::Floats; N] {
    let from = &from[..N];
    let mut v = [s.splat_float(0.0); N];
    for n in 0..N {
        v[n] = s.load_floats(&from[n]);
    }
    v
}

/// `N` vectors to memory.
#[inline(always)]
fn store<S: Simd, const N: usize>(s: S, v: [S::Floats; N], to: &mut [[f32; LANES]]) {
    let to = &mut to[..N];
    for n in 0..N {
        s.store_floats(v[n], &mut to[n]);
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

/// `S = decay·S`; returns `kᵀS`.
#[inline(always)]
pub fn decay_read<S: Simd, const N: usize>(s: S, slice: &mut [[f32; LANES]], decay: f32, k: &[f32]) -> [S::Floats; N] {
    let mut acc = [[s.splat_float(0.0); N]; 4];
    let (decay, quarter) = (s.splat_float(decay), k.len() / 4);
    for i in 0..quarter {
        for (q, acc) in acc.iter_mut().enumerate() {
            let i = q * quarter + i;
            let (key, state) = (s.splat_float(k[i]), &mut slice[i * N..][..N]);
            let mut v: [S::Floats; N] = load(s, state);
            for n in 0..N {
                v[n] = s.mul_floats(v[n], decay);
                acc[n] = s.fma(v[n], key, acc[n]);
            }
            store(s, v, state);
        }
    }
    together(s, acc)
}

/// `S = S + k⊗delta`; returns `qᵀS`.
#[inline(always)]
pub fn write_read<S: Simd, const N: usize>(
    s: S,
    slice: &mut [[f32; LANES]],
    (k, delta): (&[f32], [S::Floats; N]),
    q: &[f32],
) -> [S::Floats; N] {
    let mut acc = [[s.splat_float(0.0); N]; 4];
    let quarter = k.len() / 4;
    for i in 0..quarter {
        for (part, acc) in acc.iter_mut().enumerate() {
            let i = part * quarter + i;
            let (key, query, state) = (s.splat_float(k[i]), s.splat_float(q[i]), &mut slice[i * N..][..N]);
            let mut v: [S::Floats; N] = load(s, state);
            for n in 0..N {
                v[n] = s.fma(key, delta[n], v[n]);
                acc[n] = s.fma(v[n], query, acc[n]);
            }
            store(s, v, state);
        }
    }
    together(s, acc)
}

/// `S = decay·S + k⊗delta`: both updates of a row once more, rounded as they were.
#[inline(always)]
pub fn replay<S: Simd, const N: usize>(
    s: S,
    slice: &mut [[f32; LANES]],
    decay: f32,
    (k, delta): (&[f32], [S::Floats; N]),
) {
    let decay = s.splat_float(decay);
    for (k, state) in k.iter().zip(slice.chunks_exact_mut(N)) {
        let key = s.splat_float(*k);
        let mut v: [S::Floats; N] = load(s, state);
        for n in 0..N {
            v[n] = s.fma(key, delta[n], s.mul_floats(v[n], decay));
        }
        store(s, v, state);
    }
}

/// Runs `$step!(N, columns)` over all `width` columns, [`VECTORS`] vectors at a time, then one at a time.
macro_rules! over_columns {
    ($width:expr, $step:ident) => {{
        let width = $width;
        let mut from = 0;
        while from + VECTORS * LANES <= width {
            $step!(VECTORS, Columns { width, from, count: VECTORS * LANES });
            from += VECTORS * LANES;
        }
        while from < width {
            $step!(1, Columns { width, from, count: LANES.min(width - from) });
            from += LANES;
        }
    }};
}
pub(super) use over_columns;
