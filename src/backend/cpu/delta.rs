//! The gated delta rule: conv window, recurrence, log and replay.
//!
//! Owns: S twice (kept and tentative), the conv window, the log that a rollback replays. Refuses to know: how many of
//! a pass's rows will be kept.
//!
//! `S' = exp(g)·S; delta = (v - kᵀS')·beta; S = S' + k⊗delta; y = qᵀS / sqrt(key_dim)`, one row after another
//! (Yang et al., "Gated Delta Networks", 2024, in its recurrent form).

mod columns;

use self::columns::{Columns, LANES, VECTORS, decay_read, over_columns, replay, write_read};
use super::norm::rms_scale;
use super::rows::Rows;
use super::team::{Chunks, Grid, Phases};
use crate::backend::DeltaShape;
use crate::quant::simd::Simd;
use crate::quant::{Isa, Kernel, canon, floats};

/// Added to the squared length in the L2 norm of q and k.
const L2_EPS: f32 = 1e-6;

/// Channels of the convolution that one item takes.
const CHANNELS: usize = 256;

/// The state of one recurrent layer.
pub struct Recurrent {
    /// `[value_heads][key_dim][value_dim]`, after the last kept row.
    kept: Vec<f32>,
    /// The same, after the last row of the pass.
    tentative: Vec<f32>,
    /// `[taps - 1][channels]`, oldest first: the inputs before the next row.
    window: Vec<f32>,
    tentative_window: Vec<f32>,
    log: Log,
}

/// What the updates of a pass need to be replayed.
struct Log {
    /// Rows it has room for; longer passes are kept whole or not at all.
    capacity: usize,
    /// `[rows][channels]`: inputs of the convolution.
    inputs: Vec<f32>,
    /// `[rows][key_width]`: normed keys.
    k: Vec<f32>,
    /// `[value_heads][capacity][value_dim]`.
    delta: Vec<f32>,
    /// `[value_heads][capacity]`: exp(g).
    decay: Vec<f32>,
}

impl Recurrent {
    /// The zero state.
    pub fn new(shape: &DeltaShape, log_rows: usize) -> Recurrent {
        let zeros = |len: usize| vec![0.0; len];
        Recurrent {
            kept: zeros(shape.state_len()),
            tentative: zeros(shape.state_len()),
            window: zeros(shape.window_len()),
            tentative_window: zeros(shape.window_len()),
            log: Log {
                capacity: log_rows,
                inputs: zeros(log_rows * shape.channels()),
                k: zeros(log_rows * shape.key_width()),
                delta: zeros(log_rows * shape.value_width()),
                decay: zeros(log_rows * shape.value_heads),
            },
        }
    }

    /// Kept S and window.
    pub fn save(&self, out: &mut Vec<u8>) {
        out.extend(self.kept.iter().chain(&self.window).flat_map(|v| v.to_le_bytes()));
    }

    /// Takes over the kept S and window of `from`.
    pub fn fork(&mut self, from: &Recurrent) {
        self.kept.copy_from_slice(&from.kept);
        self.window.copy_from_slice(&from.window);
    }

    /// Takes back what [`Recurrent::save`] gave.
    pub fn load(&mut self, bytes: &[u8]) {
        for (out, b) in self.kept.iter_mut().chain(&mut self.window).zip(bytes.chunks_exact(4)) {
            *out = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        }
    }
}

/// One row of the convolution over some channels: taps oldest first, then silu.
struct Convolve<'a> {
    /// For each tap the input of these channels.
    inputs: &'a [&'a [f32]],
    /// For each tap the weight of these channels.
    weights: &'a [&'a [f32]],
    out: &'a mut [f32],
}

impl Kernel for Convolve<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.out.fill(0.0);
        for (input, weight) in self.inputs.iter().zip(self.weights) {
            for ((out, x), w) in self.out.iter_mut().zip(*input).zip(*weight) {
                *out = w.mul_add(*x, *out);
            }
        }
        for out in self.out.iter_mut() {
            *out = canon::silu(*out);
        }
    }
}

/// Divides a head by its length.
struct L2Norm<'a>(&'a mut [f32]);

impl Kernel for L2Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let scale = canon::rsqrt(floats::dot(s, self.0, self.0) + L2_EPS);
        for x in self.0.iter_mut() {
            *x *= scale;
        }
    }
}

/// Row `row - back` of `x`, reaching into the window (`[taps - 1][channels]`) before row 0.
#[inline]
fn tap<'a>(x: &'a [f32], window: &'a [f32], channels: usize, row: usize, back: usize) -> &'a [f32] {
    match row.checked_sub(back) {
        Some(r) => &x[r * channels..][..channels],
        None => {
            let slots = window.len() / channels;
            &window[(slots - (back - row)) * channels..][..channels]
        }
    }
}

/// `next = the last taps - 1 rows of (window ++ x[..rows])`.
fn slide(x: &[f32], window: &[f32], channels: usize, rows: usize, next: &mut [f32]) {
    let slots = window.len() / channels;
    for (slot, out) in next.chunks_exact_mut(channels).enumerate() {
        out.copy_from_slice(tap(x, window, channels, rows, slots - slot));
    }
}

/// Convolution, silu and the L2 norms of q and k: see `Pass::conv`. `weight` is `[taps][channels]`, oldest tap first.
pub fn conv(
    phases: &Phases,
    isa: Isa,
    shape: &DeltaShape,
    weight: &[f32],
    x: &Rows,
    (state, out): (&mut Recurrent, &mut Rows),
) {
    let (rows, channels, taps) = (x.len(), shape.channels(), shape.taps);
    assert_eq!((x.width(), weight.len()), (channels, taps * channels), "the convolution's widths");
    let (values, window) = (x.values(), &state.window);
    let grid = Grid::columns(out.write(rows), channels, CHANNELS);
    phases.each(channels.div_ceil(CHANNELS), 24 * rows * channels, grid, |_, mut rect| {
        let cols = rect.cols();
        let weights: Vec<&[f32]> = (0..taps).map(|t| &weight[t * channels..][cols.clone()]).collect();
        for row in rect.rows() {
            let inputs: Vec<&[f32]> =
                (0..taps).map(|t| &tap(values, window, channels, row, taps - 1 - t)[cols.clone()]).collect();
            isa.run(Convolve { inputs: &inputs, weights: &weights, out: rect.row(row) });
        }
    });
    slide(values, window, channels, rows, &mut state.tentative_window);

    let key_heads = 2 * shape.key_heads;
    phases.each(rows, 4 * rows * 2 * shape.key_width(), Chunks::new(out.change(), channels), |_, row| {
        for head in row.chunks_exact_mut(shape.key_dim).take(key_heads) {
            isa.run(L2Norm(head));
        }
    });
    if rows <= state.log.capacity {
        state.log.inputs[..values.len()].copy_from_slice(values);
        for row in 0..rows {
            let k = &out.row(row)[shape.key_width()..2 * shape.key_width()];
            state.log.k[row * k.len()..][..k.len()].copy_from_slice(k);
        }
    }
}

/// The streams and weights of [`delta`].
pub struct Gates<'a> {
    pub alpha: &'a Rows,
    pub beta: &'a Rows,
    pub z: &'a Rows,
    pub a: &'a [f32],
    pub dt: &'a [f32],
    pub norm: &'a [f32],
}

/// One value head through all rows of a pass.
struct DeltaHead<'a> {
    shape: &'a DeltaShape,
    head: usize,
    qkv: &'a Rows,
    gates: &'a Gates<'a>,
    kept: &'a [f32],
    state: &'a mut [f32],
    /// `[capacity][value_dim]` and `[capacity]` of this head, if the pass is logged.
    log: Option<(&'a mut [f32], &'a mut [f32])>,
    out: super::team::Rect<'a>,
}

impl DeltaHead<'_> {
    /// exp(g) and beta of every row.
    #[inline(always)]
    fn gates(&self) -> Vec<(f32, f32)> {
        let mut gates = Vec::with_capacity(self.qkv.len());
        for row in 0..self.qkv.len() {
            let alpha = self.gates.alpha.row(row)[self.head] + self.gates.dt[self.head];
            let decay = canon::exp(self.gates.a[self.head] * canon::softplus(alpha));
            gates.push((decay, canon::sigmoid(self.gates.beta.row(row)[self.head])));
        }
        gates
    }

    /// `N` vectors of S's columns, through all rows.
    #[inline(always)]
    fn columns<S: Simd, const N: usize>(
        &mut self,
        s: S,
        columns: Columns,
        (gates, slice): (&[(f32, f32)], &mut [[f32; LANES]]),
    ) {
        let shape = self.shape;
        let key_at = self.head % shape.key_heads * shape.key_dim;
        let value_at = 2 * shape.key_width() + self.head * shape.value_dim;
        let scale = s.splat_float(1.0 / (shape.key_dim as f32).sqrt());
        columns.take_all::<N>(self.kept, slice);
        for (row, &(decay, beta)) in gates.iter().enumerate() {
            let qkv = self.qkv.row(row);
            let q = &qkv[key_at..][..shape.key_dim];
            let k = &qkv[shape.key_width() + key_at..][..shape.key_dim];
            let read: [S::Floats; N] = decay_read(s, slice, decay, k);
            let mut delta: [S::Floats; N] = columns.take(s, &qkv[value_at..], 0);
            for n in 0..N {
                // v − read, rounded once.
                let left = s.fnma(read[n], s.splat_float(1.0), delta[n]);
                delta[n] = s.mul_floats(left, s.splat_float(beta));
            }
            let mut y: [S::Floats; N] = write_read(s, slice, (k, delta), q);
            for y in &mut y {
                *y = s.mul_floats(*y, scale);
            }
            columns.put(s, y, self.out.row(row), 0);
            if let Some((log_delta, log_decay)) = &mut self.log {
                columns.put(s, delta, log_delta, row);
                log_decay[row] = decay;
            }
        }
        columns.put_all::<N>(slice, self.state);
    }
}

impl Kernel for DeltaHead<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (width, eps) = (self.shape.value_dim, self.shape.eps);
        let gates = self.gates();
        let mut slice = vec![[0.0; LANES]; self.shape.key_dim * VECTORS];
        macro_rules! step {
            ($n:expr, $columns:expr) => {
                self.columns::<S, { $n }>(s, $columns, (&gates, &mut slice))
            };
        }
        over_columns!(width, step);
        for row in 0..self.qkv.len() {
            let z = &self.gates.z.row(row)[self.head * width..][..width];
            let y = self.out.row(row);
            let scale = rms_scale(s, y, eps);
            for ((y, w), z) in y.iter_mut().zip(self.gates.norm).zip(z) {
                *y = ((*y * scale) * w) * canon::silu(*z);
            }
        }
    }
}

/// The recurrence from kept to tentative S, and the gated norm: see `Pass::delta`.
pub fn delta(
    phases: &Phases,
    isa: Isa,
    shape: &DeltaShape,
    (qkv, gates): (&Rows, Gates),
    state: &mut Recurrent,
    out: &mut Rows,
) {
    let (rows, heads, width) = (qkv.len(), shape.value_heads, shape.value_dim);
    assert_eq!((qkv.width(), out.width()), (shape.channels(), shape.value_width()), "the recurrence's widths");
    assert!(shape.key_dim.is_multiple_of(4), "the key dimension falls into quarters");
    let logged = rows <= state.log.capacity;
    let per_head = shape.key_dim * width;
    let capacity = state.log.capacity.max(1);
    let log = &mut state.log;
    let kept = &state.kept;
    let parts = (Chunks::new(&mut state.tentative, per_head), Grid::columns(out.write(rows), heads * width, width));
    let work = 6 * rows * heads * per_head;
    if logged {
        let log = (Chunks::new(&mut log.delta, capacity * width), Chunks::new(&mut log.decay, capacity));
        phases.each(heads, work, (parts.0, parts.1, log.0, log.1), |head, (state, out, delta, decay)| {
            let kept = &kept[head * per_head..][..per_head];
            let log = Some((delta, decay));
            isa.run(DeltaHead { shape, head, qkv, gates: &gates, kept, state, log, out });
        });
    } else {
        phases.each(heads, work, parts, |head, (state, out)| {
            let kept = &kept[head * per_head..][..per_head];
            isa.run(DeltaHead { shape, head, qkv, gates: &gates, kept, state, log: None, out });
        });
    }
}

/// The logged updates of one value head, once more.
struct Replay<'a> {
    shape: &'a DeltaShape,
    head: usize,
    rows: usize,
    kept: &'a [f32],
    state: &'a mut [f32],
    k: &'a [f32],
    delta: &'a [f32],
    decay: &'a [f32],
}

impl Replay<'_> {
    #[inline(always)]
    fn columns<S: Simd, const N: usize>(&mut self, s: S, columns: Columns, slice: &mut [[f32; LANES]]) {
        let key_dim = self.shape.key_dim;
        let key_at = self.head % self.shape.key_heads * key_dim;
        columns.take_all::<N>(self.kept, slice);
        for row in 0..self.rows {
            let k = &self.k[row * self.shape.key_width() + key_at..][..key_dim];
            let delta: [S::Floats; N] = columns.take(s, self.delta, row);
            replay(s, slice, self.decay[row], (k, delta));
        }
        columns.put_all::<N>(slice, self.state);
    }
}

impl Kernel for Replay<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let mut slice = vec![[0.0; LANES]; self.shape.key_dim * VECTORS];
        macro_rules! step {
            ($n:expr, $columns:expr) => {
                self.columns::<S, { $n }>(s, $columns, &mut slice)
            };
        }
        over_columns!(self.shape.value_dim, step);
    }
}

/// Makes the first `keep` of `of` rows permanent: see `Pass::keep`.
pub fn keep(phases: &Phases, isa: Isa, shape: &DeltaShape, state: &mut Recurrent, (keep, of): (usize, usize)) {
    assert!(keep >= 1 && keep <= of, "a pass keeps between one and all of its rows");
    if keep < of {
        let Recurrent { kept, tentative, window, tentative_window, log } = &mut *state;
        assert!(of <= log.capacity, "a pass that may be cut is logged");
        let per_head = shape.key_dim * shape.value_dim;
        let parts = Chunks::new(tentative, per_head);
        phases.each(shape.value_heads, 2 * keep * kept.len(), parts, |head, state| {
            isa.run(Replay {
                shape,
                head,
                rows: keep,
                kept: &kept[head * per_head..][..per_head],
                state,
                k: &log.k,
                delta: &log.delta[head * log.capacity * shape.value_dim..],
                decay: &log.decay[head * log.capacity..],
            });
        });
        slide(&log.inputs, window, shape.channels(), keep, tentative_window);
    }
    std::mem::swap(&mut state.kept, &mut state.tentative);
    std::mem::swap(&mut state.window, &mut state.tentative_window);
}
