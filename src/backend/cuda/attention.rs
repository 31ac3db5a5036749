//! Gated attention over a cache of K and V.
//!
//! Owns: the cache on its die, and how attention.cu is launched. Refuses to know: projections and residuals.

use std::ops::Range;

use kernels::{Address, Allocation, Arg, Kernel};

use super::die::{Die, Launch, Room};
use super::norm::both;
use super::pass::{CudaPass, Span, flag, grid, int, kernel};
use super::rows::{Form, Rows};
use super::{Cuda, Vector};
use crate::backend::{AttentionShape, KvFormat};
use crate::{Error, Result};

const ROTATE: Kernel = kernel("attention", "rotate");
const SCORES: Kernel = kernel("attention", "scores");
const WEIGH: Kernel = kernel("attention", "weigh");
const ATTEND: Kernel = kernel("attention", "attend");

/// All of them.
pub const KERNELS: [Kernel; 4] = [ROTATE, SCORES, WEIGH, ATTEND];

/// Keys of a segment, the longest head, and the most queries in shared memory (attention.cu).
const SEGMENT: usize = 256;
const HEAD: usize = 256;
const QUERIES: usize = 64;

/// Keys that a block of `scores` goes through.
const KEYS: usize = 64;

/// Bytes of scores at a time: rows beyond are taken in turns.
const SCORE_BYTES: usize = 32 << 20;

/// Shared memory of a block.
const SHARED: usize = 44 << 10;

/// K and V of one layer: `[position][kv_heads][head_dim]` each.
pub struct Kv {
    pub die: usize,
    k: Allocation,
    v: Allocation,
    format: KvFormat,
    /// Bytes of a position.
    stride: usize,
}

impl Kv {
    /// Room for `positions` rows on `die`.
    ///
    /// # Errors
    /// If the memory does not suffice, or the heads are not of a kind that the kernels take.
    pub fn new(die: &Die, shape: &AttentionShape, positions: usize, format: KvFormat) -> Result<Kv> {
        if shape.head_dim > HEAD || shape.heads / shape.kv_heads > QUERIES {
            let text = format!(
                "attention heads of {} elements, {} to a head of K and V: CUDA devices take up to {HEAD} and {QUERIES}",
                shape.head_dim,
                shape.heads / shape.kv_heads
            );
            return Err(Error::new(text));
        }
        let stride = shape.kv_width() * format.bytes();
        let room = || die.name(die.driver().allocate(positions * stride));
        Ok(Kv { die: die.index(), k: room()?, v: room()?, format, stride })
    }

    /// The first `positions` rows of K, then of V.
    pub fn save(&self, cuda: &Cuda, positions: usize, out: &mut Vec<u8>) {
        for half in [&self.k, &self.v] {
            let from = out.len();
            out.resize(from + positions * self.stride, 0);
            let die = &cuda.dies[self.die];
            cuda.must(die.name(die.driver().download(half.at, &mut out[from..])));
        }
    }

    /// Takes back what [`Kv::save`] gave.
    pub fn load(&mut self, cuda: &Cuda, bytes: &[u8]) {
        let (k, v) = bytes.split_at(bytes.len() / 2);
        let die = &cuda.dies[self.die];
        for (half, bytes) in [(&self.k, k), (&self.v, v)] {
            cuda.must(die.name(die.driver().upload(half.at, bytes)));
        }
    }
}

/// What an attention layer's commands need.
#[derive(Clone, Copy)]
struct Layer {
    shape: AttentionShape,
    q: Span,
    k: Span,
    v: Span,
    rope: Span,
    out: Span,
    forms: [Form; 2],
    norms: [Address; 2],
    cache: [Address; 2],
    half: bool,
    /// Kept positions before the pass.
    start: usize,
}

impl Layer {
    /// Norms, rotates and stores the rows of `range`, then attends, as many rows at a time as scratch memory holds scores of.
    fn run(&self, die: &Die, range: Range<usize>) -> kernels::Result<()> {
        let keys = self.start + range.end;
        let most = (SCORE_BYTES / (4 * self.shape.heads * keys)).max(1);
        let maxima = die.room(Room::Maxima, 4 * self.shape.heads * range.len())?;
        self.rotate(die, range.clone(), maxima)?;
        for from in range.clone().step_by(most) {
            let rows = from..range.end.min(from + most);
            let skipped = (4 * self.shape.heads * (from - range.start)) as Address;
            self.attend(die, rows, maxima + skipped)?;
        }
        Ok(())
    }

    fn rotate(&self, die: &Die, rows: Range<usize>, maxima: Address) -> kernels::Result<()> {
        let (s, from) = (&self.shape, rows.start);
        let args = [
            self.q.row(from),
            self.k.row(from),
            self.v.row(from),
            Arg::At(self.norms[0]),
            Arg::At(self.norms[1]),
            self.rope.row(from),
            Arg::At(self.cache[0]),
            Arg::At(self.cache[1]),
            Arg::At(maxima),
            int(s.heads),
            int(s.kv_heads),
            int(s.head_dim),
            int(s.rope_dim),
            int(self.start + from),
            flag(self.half),
            Arg::Float(s.eps),
        ];
        let grid = grid([s.heads + s.kv_heads, rows.len(), 1], 32, 0);
        die.launch(Launch { stage: "attention", kernel: ROTATE, grid, args: &args, bytes: 0 })
    }

    fn attend(&self, die: &Die, rows: Range<usize>, maxima: Address) -> kernels::Result<()> {
        let s = &self.shape;
        let (n, group, dim) = (rows.len(), s.heads / s.kv_heads, s.head_dim);
        let (start, keys) = (self.start + rows.start, self.start + rows.end);
        let segments = keys.div_ceil(SEGMENT);
        let scores = die.room(Room::Scores, 4 * n * s.heads * keys)?;
        let partial = die.room(Room::Partial, 4 * n * s.heads * segments * dim)?;
        let masses = die.room(Room::Masses, 4 * n * s.heads * segments)?;
        let tile = (QUERIES / group).min(SHARED / (4 * group * dim)).clamp(1, 4);
        let q = self.q.row(rows.start);
        let bytes = keys * s.kv_width() * if self.half { 2 } else { 4 };

        let (heads, kv_heads, width) = (int(s.heads), int(s.kv_heads), int(dim));
        let args = [
            q,
            Arg::At(self.cache[0]),
            Arg::At(scores),
            Arg::At(maxima),
            heads,
            kv_heads,
            width,
            int(start),
            int(n),
            int(tile),
            int(keys),
            flag(self.half),
            Arg::Float(1.0 / (dim as f32).sqrt()),
        ];
        let blocks = grid([keys.div_ceil(KEYS), s.kv_heads, n.div_ceil(tile)], 256, 4 * tile * group * dim);
        die.launch(Launch { stage: "attention", kernel: SCORES, grid: blocks, args: &args, bytes })?;
        let args = [
            Arg::At(scores),
            Arg::At(maxima),
            Arg::At(self.cache[1]),
            Arg::At(partial),
            Arg::At(masses),
            heads,
            kv_heads,
            width,
            int(start),
            int(keys),
            int(segments),
            flag(self.half),
        ];
        let blocks = grid([segments, s.kv_heads, n], 256, 0);
        die.launch(Launch { stage: "attention", kernel: WEIGH, grid: blocks, args: &args, bytes })?;
        let out = self.out.row(rows.start);
        let mut args = vec![Arg::At(partial), Arg::At(masses), q, out, heads, width, int(start), int(segments)];
        args.extend(both(self.forms, self.out.width, rows.start));
        let blocks = grid([self.out.width.div_ceil(256), n, 1], 256, 0);
        die.launch(Launch { stage: "attention", kernel: ATTEND, grid: blocks, args: &args, bytes: 0 })
    }
}

/// The rows that enter [`CudaPass::attend_rows`].
pub struct Streams<'a> {
    pub q: &'a mut Rows,
    pub k: &'a mut Rows,
    pub v: &'a Rows,
    /// `[rows][rope_dim]`: cosines, then sines.
    pub rope: &'a Rows,
}

impl CudaPass<'_> {
    /// Norms, rotates, stores and attends: see `Pass::attention`.
    pub(super) fn attend_rows(
        &self,
        shape: &AttentionShape,
        norms: [&Vector; 2],
        streams: Streams,
        (cache, start): (&mut Kv, usize),
        out: &mut Rows,
    ) {
        let Streams { q, k, v, rope } = streams;
        assert_eq!((q.width(), rope.width()), (2 * shape.out_width(), shape.rope_dim), "attention's input widths");
        let (die, rows) = (cache.die, q.len());
        let (_, _, v, rope) = (self.read(q, die), self.read(k, die), self.read(v, die), self.read(rope, die));
        let layer = Layer {
            shape: *shape,
            q: self.write(q, rows, die),
            k: self.write(k, rows, die),
            v,
            rope,
            out: self.write(out, rows, die),
            forms: self.forms(out, die),
            norms: norms.map(Vector::at),
            cache: [cache.k.at, cache.v.at],
            half: cache.format == KvFormat::F16,
            start,
        };
        self.push(die, rows, move |die: &Die, range: Range<usize>| layer.run(die, range));
    }
}
