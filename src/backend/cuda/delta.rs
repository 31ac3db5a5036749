//! The gated delta rule: conv window, recurrence, log and replay.
//!
//! Owns: S twice (kept and tentative), the conv window, the log that a rollback replays, and how delta.cu is launched. Refuses to
//! know: how many of a pass's rows will be kept.

use std::ops::Range;

use kernels::{Address, Allocation, Arg, Kernel};

use super::die::{Die, Launch, Room};
use super::norm::both;
use super::pass::{CudaPass, Span, grid, int, kernel};
use super::rows::{Form, Rows};
use super::{Cuda, Vector};
use crate::backend::DeltaShape;
use crate::{Error, Result};

const CONVOLVE: Kernel = kernel("delta", "convolve");
const RECUR: Kernel = kernel("delta", "recur");
const REPLAY: Kernel = kernel("delta", "replay");
const SLIDE: Kernel = kernel("delta", "slide");
const GATED_NORM: Kernel = kernel("delta", "gated_norm");

/// All of them.
pub const KERNELS: [Kernel; 5] = [CONVOLVE, RECUR, REPLAY, SLIDE, GATED_NORM];

/// The longest key, the columns of a block, the most taps (delta.cu).
const KEY: usize = 128;
const COLUMNS: usize = 32;
const TAPS: usize = 8;

/// Channels that a block of `convolve` takes, at most.
const CHANNELS: usize = 256;

/// The state of one recurrent layer.
pub struct Recurrent {
    pub die: usize,
    /// `[value_heads][key_dim][value_dim]`, after the last kept row, and then after the last row of the pass.
    kept: Allocation,
    tentative: Allocation,
    /// `[taps - 1][channels]`, oldest first, likewise.
    window: Allocation,
    tentative_window: Allocation,
    log: Option<Log>,
}

/// What the updates of a pass need to be replayed.
struct Log {
    /// Rows it has room for; longer passes are kept whole or not at all.
    capacity: usize,
    /// `[rows][channels]`: inputs of the convolution.
    inputs: Allocation,
    /// `[rows][key_width]`: normed keys.
    k: Allocation,
    /// `[rows][value_width]`.
    delta: Allocation,
    /// `[rows][value_heads]`: exp(g).
    decay: Allocation,
}

impl Recurrent {
    /// The zero state on `die`.
    ///
    /// # Errors
    /// If the memory does not suffice, or the shape is not one that the kernels take.
    pub fn new(die: &Die, shape: &DeltaShape, log_rows: usize) -> Result<Recurrent> {
        if shape.key_dim > KEY || !shape.key_dim.is_multiple_of(4) || shape.taps > TAPS {
            let (key, taps) = (shape.key_dim, shape.taps);
            let text =
                format!("state of {key} elements and a convolution of {taps}: CUDA devices take {KEY} and {TAPS}");
            return Err(Error::new(text));
        }
        let room = |len: usize| die.name(die.driver().allocate((4 * len).max(4)));
        let zeros = |len: usize| {
            let new = room(len)?;
            die.name(die.driver().clear(new.at, new.len))?;
            Ok::<_, Error>(new)
        };
        let log = match log_rows {
            0 => None,
            capacity => Some(Log {
                capacity,
                inputs: room(capacity * shape.channels())?,
                k: room(capacity * shape.key_width())?,
                delta: room(capacity * shape.value_width())?,
                decay: room(capacity * shape.value_heads)?,
            }),
        };
        Ok(Recurrent {
            die: die.index(),
            kept: zeros(shape.state_len())?,
            tentative: room(shape.state_len())?,
            window: zeros(shape.window_len())?,
            tentative_window: room(shape.window_len())?,
            log,
        })
    }

    /// Kept S and window.
    pub fn save(&self, cuda: &Cuda, out: &mut Vec<u8>) {
        let die = &cuda.dies[self.die];
        for part in [&self.kept, &self.window] {
            let from = out.len();
            out.resize(from + part.len, 0);
            cuda.must(die.name(die.driver().download(part.at, &mut out[from..])));
        }
    }

    /// Takes back what [`Recurrent::save`] gave.
    pub fn load(&mut self, cuda: &Cuda, bytes: &[u8]) {
        let die = &cuda.dies[self.die];
        let (kept, window) = bytes.split_at(self.kept.len);
        for (part, bytes) in [(&self.kept, kept), (&self.window, window)] {
            cuda.must(die.name(die.driver().upload(part.at, bytes)));
        }
    }

    /// Takes over the kept S and window of `from`, which is on the same die.
    pub fn fork(&mut self, cuda: &Cuda, from: &Recurrent) {
        assert_eq!(self.die, from.die, "a state and its fork stand side by side");
        let die = &cuda.dies[self.die];
        for (to, from) in [(&self.kept, &from.kept), (&self.window, &from.window)] {
            cuda.must(die.name(die.driver().copy(from.at, to.at, from.len)));
        }
    }

    fn log_of(&self, rows: usize) -> Option<&Log> {
        self.log.as_ref().filter(|log| rows <= log.capacity)
    }
}

/// Row `row` of a log of rows of `width`, or nothing.
fn log_row(at: Option<Address>, width: usize, row: usize) -> Arg {
    at.map_or(Arg::At(0), |at| Span { at, width }.row(row))
}

/// The small weights of a delta net.
pub struct Gates<'a> {
    pub a: &'a Vector,
    pub dt: &'a Vector,
    pub norm: &'a Vector,
}

/// The streams that enter [`CudaPass::recur_rows`].
pub struct Streams<'a> {
    pub qkv: &'a Rows,
    pub alpha: &'a Rows,
    pub beta: &'a Rows,
    pub z: &'a Rows,
}

/// What a recurrence's commands need.
#[derive(Clone, Copy)]
struct Recurrence {
    shape: DeltaShape,
    qkv: Span,
    alpha: Span,
    beta: Span,
    z: Span,
    out: Span,
    forms: [Form; 2],
    gates: [Address; 3],
    kept: Address,
    tentative: Address,
    delta: Option<Address>,
    decay: Option<Address>,
}

impl Recurrence {
    fn run(&self, die: &Die, range: Range<usize>) -> kernels::Result<()> {
        let (s, from, rows) = (&self.shape, range.start, range.len());
        let y = Span { at: die.room(Room::Readout, 4 * rows * s.value_width())?, width: s.value_width() };
        // The pass's later rows go on from where its earlier ones left S.
        let s_in = if from == 0 { self.kept } else { self.tentative };
        let args = [
            self.qkv.row(from),
            self.alpha.row(from),
            self.beta.row(from),
            Arg::At(self.gates[0]),
            Arg::At(self.gates[1]),
            Arg::At(s_in),
            Arg::At(self.tentative),
            log_row(self.delta, s.value_width(), from),
            log_row(self.decay, s.value_heads, from),
            y.row(0),
            int(rows),
            int(s.key_heads),
            int(s.value_heads),
            int(s.key_dim),
            int(s.value_dim),
            Arg::Float(1.0 / (s.key_dim as f32).sqrt()),
        ];
        let shared = 8 * (s.key_dim + rows);
        let blocks = grid([s.value_dim.div_ceil(COLUMNS), s.value_heads, 1], 4 * COLUMNS, shared);
        die.launch(Launch { stage: "delta", kernel: RECUR, grid: blocks, args: &args, bytes: 8 * s.state_len() })?;
        self.gated_norm(die, range, y)
    }

    /// The gated norm of what was read out of S in the rows of `range`.
    fn gated_norm(&self, die: &Die, range: Range<usize>, y: Span) -> kernels::Result<()> {
        let (s, from, rows) = (&self.shape, range.start, range.len());
        // Heads that fill whole blocks of 256.
        let each = s.value_heads.min(256 >> s.value_dim.trailing_zeros().min(8));
        let mut args = vec![y.row(0), self.z.row(from), Arg::At(self.gates[2]), self.out.row(from)];
        args.extend([s.value_heads, s.value_dim, each].map(int));
        args.push(Arg::Float(s.eps));
        args.extend(both(self.forms, s.value_width(), from));
        let grid = grid([s.value_heads.div_ceil(each), rows, 1], 32 * each.min(8), 0);
        let bytes = 12 * rows * s.value_width();
        die.launch(Launch { stage: "delta", kernel: GATED_NORM, grid, args: &args, bytes })
    }
}

impl CudaPass<'_> {
    /// Convolution, silu and L2 norms: see `Pass::conv`.
    pub(super) fn conv_rows(
        &self,
        shape: &DeltaShape,
        weight: &Vector,
        x: &Rows,
        state: &mut Recurrent,
        out: &mut Rows,
    ) {
        let (die, rows, channels) = (state.die, x.len(), shape.channels());
        assert_eq!((x.width(), out.width()), (channels, channels), "the convolution's widths");
        let (x, out, weight, s) = (self.read(x, die), self.write(out, rows, die), weight.at(), *shape);
        let (window, next) = (state.window.at, state.tentative_window.at);
        let log = state.log_of(rows).map(|log| (log.inputs.at, log.k.at)).unzip();
        self.push(die, rows, move |die: &Die, range: Range<usize>| {
            let (from, rows) = (range.start, range.len());
            let window = if from == 0 { window } else { next };
            let args = [
                x.row(from),
                Arg::At(weight),
                Arg::At(window),
                Arg::At(next),
                log_row(log.0, channels, from),
                log_row(log.1, s.key_width(), from),
                out.row(from),
                int(rows),
                int(channels),
                int(s.taps),
                int(s.key_width()),
                int(s.key_dim),
            ];
            // Whole heads to a block.
            let each = CHANNELS / s.key_dim * s.key_dim;
            let (blocks, bytes) = (grid([channels.div_ceil(each), 1, 1], CHANNELS, 0), 12 * rows * channels);
            die.launch(Launch { stage: "conv", kernel: CONVOLVE, grid: blocks, args: &args, bytes })
        });
    }

    /// The recurrence and the gated norm: see `Pass::delta`.
    pub(super) fn recur_rows(
        &self,
        shape: &DeltaShape,
        gates: Gates,
        streams: Streams,
        state: &mut Recurrent,
        out: &mut Rows,
    ) {
        let (die, rows) = (state.die, streams.qkv.len());
        let width = shape.value_width();
        assert_eq!((streams.qkv.width(), out.width()), (shape.channels(), width), "the recurrence's widths");
        let (delta, decay) = state.log_of(rows).map(|log| (log.delta.at, log.decay.at)).unzip();
        let recurrence = Recurrence {
            shape: *shape,
            qkv: self.read(streams.qkv, die),
            alpha: self.read(streams.alpha, die),
            beta: self.read(streams.beta, die),
            z: self.read(streams.z, die),
            out: self.write(out, rows, die),
            forms: self.forms(out, die),
            gates: [gates.a.at(), gates.dt.at(), gates.norm.at()],
            kept: state.kept.at,
            tentative: state.tentative.at,
            delta,
            decay,
        };
        self.push(die, rows, move |die: &Die, range: Range<usize>| recurrence.run(die, range));
    }

    /// Makes the first `keep` of `of` rows permanent: see `Pass::keep`.
    pub(super) fn keep_rows(&self, shape: &DeltaShape, state: &mut Recurrent, (keep, of): (usize, usize)) {
        assert!(keep >= 1 && keep <= of, "a pass keeps between one and all of its rows");
        if keep < of {
            let Some(log) = state.log_of(of) else { panic!("a pass that may be cut is logged") };
            let (s, kept, tentative) = (*shape, state.kept.at, state.tentative.at);
            let (window, next) = (state.window.at, state.tentative_window.at);
            let (inputs, k, delta, decay) = (log.inputs.at, log.k.at, log.delta.at, log.decay.at);
            self.push(state.die, 1, move |die: &Die, _: Range<usize>| {
                let args = [
                    Arg::At(k),
                    Arg::At(delta),
                    Arg::At(decay),
                    Arg::At(kept),
                    Arg::At(tentative),
                    int(keep),
                    int(s.key_heads),
                    int(s.value_heads),
                    int(s.key_dim),
                    int(s.value_dim),
                ];
                let blocks = grid([s.value_dim.div_ceil(COLUMNS), s.value_heads, 1], 4 * COLUMNS, 0);
                die.launch(Launch {
                    stage: "rollback",
                    kernel: REPLAY,
                    grid: blocks,
                    args: &args,
                    bytes: 8 * s.state_len(),
                })?;
                let (channels, slots) = (s.channels(), s.taps - 1);
                let args = [Arg::At(inputs), Arg::At(window), Arg::At(next), int(keep), int(channels), int(slots)];
                let blocks = grid([(slots * channels).div_ceil(256).max(1), 1, 1], 256, 0);
                die.launch(Launch {
                    stage: "rollback",
                    kernel: SLIDE,
                    grid: blocks,
                    args: &args,
                    bytes: 8 * s.window_len(),
                })
            });
        }
        std::mem::swap(&mut state.kept, &mut state.tentative);
        std::mem::swap(&mut state.window, &mut state.tentative_window);
    }
}
