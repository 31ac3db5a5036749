//! Gated attention over a cache of K and V.
//!
//! Owns: the cache's layout and the attention of a row. Refuses to know: projections and residuals.
//!
//! Per query row and head: exact maximum, `p = exp(s - max)`, sums over segments of 256 keys, segments added in order.
//! Nothing depends on the pass's other rows.

use super::rows::Rows;
use super::team::{Chunks, Phases};
use crate::backend::{AttentionShape, KvFormat};
use crate::quant::blocks::{F16, Float};
use crate::quant::simd::Simd;
use crate::quant::{Isa, Kernel, canon, floats};
use crate::{Error, Result};

/// Keys in one segment of the softmax and of the weighted sum.
pub const SEGMENT: usize = 256;

/// K and V of one layer: `[position][kv_heads][head_dim]` each.
pub struct Kv {
    width: usize,
    k: Store,
    v: Store,
}

/// One of the two, in the chosen format.
enum Store {
    F16(Vec<F16>),
    F32(Vec<f32>),
}

impl Store {
    /// Zeroed, so that pages are touched only once they are used.
    fn new(len: usize, format: KvFormat) -> Result<Store> {
        let full = |()| Error::new(format!("the memory does not suffice for {len} elements of K or V (--ctx)"));
        Ok(match format {
            KvFormat::F16 => Store::F16(bytemuck::try_zeroed_vec(len).map_err(full)?),
            KvFormat::F32 => Store::F32(bytemuck::try_zeroed_vec(len).map_err(full)?),
        })
    }

    fn write(&mut self, isa: Isa, from: usize, values: &[f32]) {
        match self {
            Store::F16(data) => isa.run(Narrow { values, out: &mut data[from..from + values.len()] }),
            Store::F32(data) => data[from..from + values.len()].copy_from_slice(values),
        }
    }

    fn save(&self, len: usize, out: &mut Vec<u8>) {
        match self {
            Store::F16(data) => out.extend_from_slice(bytemuck::cast_slice(&data[..len])),
            Store::F32(data) => out.extend(data[..len].iter().flat_map(|v| v.to_le_bytes())),
        }
    }

    fn load(&mut self, bytes: &[u8]) {
        match self {
            Store::F16(data) => bytemuck::cast_slice_mut(data)[..bytes.len()].copy_from_slice(bytes),
            Store::F32(data) => {
                for (out, b) in data.iter_mut().zip(bytes.chunks_exact(4)) {
                    *out = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                }
            }
        }
    }
}

/// Rounds values to halves.
struct Narrow<'a> {
    values: &'a [f32],
    out: &'a mut [F16],
}

impl Kernel for Narrow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (values, tail) = self.values.as_chunks::<16>();
        let (out, out_tail) = self.out.as_chunks_mut::<16>();
        for (out, v) in out.iter_mut().zip(values) {
            *out = bytemuck::cast(s.narrow(s.load_floats(v)));
        }
        for (out, v) in out_tail.iter_mut().zip(tail) {
            *out = F16(half::f16::from_f32_const(*v).to_le_bytes());
        }
    }
}

impl Kv {
    /// Room for `positions` rows.
    pub fn new(shape: &AttentionShape, positions: usize, format: KvFormat) -> Result<Kv> {
        let width = shape.kv_width();
        let len = positions.saturating_mul(width);
        Ok(Kv { width, k: Store::new(len, format)?, v: Store::new(len, format)? })
    }

    /// The first `positions` rows of K, then of V.
    pub fn save(&self, positions: usize, out: &mut Vec<u8>) {
        self.k.save(positions * self.width, out);
        self.v.save(positions * self.width, out);
    }

    /// Takes back what [`Kv::save`] gave.
    pub fn load(&mut self, bytes: &[u8]) {
        let (k, v) = bytes.split_at(bytes.len() / 2);
        self.k.load(k);
        self.v.load(v);
    }
}

/// Norms one head and rotates its leading elements.
struct NormRotate<'a> {
    head: &'a mut [f32],
    weight: &'a [f32],
    eps: f32,
    /// Cosines, then sines, of the row's position.
    rope: &'a [f32],
}

impl Kernel for NormRotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let scale = super::norm::rms_scale(s, self.head, self.eps);
        for (x, w) in self.head.iter_mut().zip(self.weight) {
            *x = (*x * scale) * w;
        }
        let half = self.rope.len() / 2;
        let (cos, sin) = self.rope.split_at(half);
        let (low, high) = self.head.split_at_mut(half);
        for i in 0..half {
            let (a, b) = (low[i], high[i]);
            low[i] = a.mul_add(cos[i], -(b * sin[i]));
            high[i] = a.mul_add(sin[i], b * cos[i]);
        }
    }
}

/// One query head of one row against the cache.
struct Attend<'a> {
    query: &'a [f32],
    gate: &'a [f32],
    k: &'a Store,
    v: &'a Store,
    /// Elements between two positions, and the kv head's first element in a position.
    stride: usize,
    offset: usize,
    /// Positions visible to this row.
    keys: usize,
    out: &'a mut [f32],
}

impl Kernel for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match (self.k, self.v) {
            (Store::F16(k), Store::F16(v)) => self.attend(s, k, v),
            (Store::F32(k), Store::F32(v)) => self.attend(s, k, v),
            _ => unreachable!("K and V are stored alike"),
        }
    }
}

/// Keys whose scores are computed together.
const KEYS: usize = 16;

/// Vectors of 16 elements of V that are summed over a segment before the next ones.
const SPAN: usize = 4;

impl Attend<'_> {
    #[inline(always)]
    fn attend<S: Simd, W: Float>(self, s: S, k: &[W], v: &[W]) {
        let mut p = vec![0.0f32; self.keys];
        let max = self.scores(s, k, &mut p);
        for p in &mut p {
            *p = canon::exp(*p - max);
        }
        let mut sum = 0.0f32;
        self.out.fill(0.0);
        for (segment, p) in p.chunks(SEGMENT).enumerate() {
            sum += floats::sum(s, p);
            let v = &v[segment * SEGMENT * self.stride + self.offset..];
            let (spans, rest) = self.out.as_chunks_mut::<{ 16 * SPAN }>();
            for (i, out) in spans.iter_mut().enumerate() {
                weigh::<S, W, SPAN>(s, p, (&v[16 * SPAN * i..], self.stride), out.as_chunks_mut().0);
            }
            let done = spans.len() * 16 * SPAN;
            let (vectors, rest) = rest.as_chunks_mut::<16>();
            for (i, out) in vectors.iter_mut().enumerate() {
                weigh::<S, W, 1>(s, p, (&v[done + 16 * i..], self.stride), std::slice::from_mut(out));
            }
            let done = done + vectors.len() * 16;
            for (i, out) in rest.iter_mut().enumerate() {
                let column = v[done + i..].iter().step_by(self.stride);
                *out += p.iter().zip(column).fold(0.0, |sum, (p, v)| p.mul_add(v.widen(), sum));
            }
        }
        for (out, gate) in self.out.iter_mut().zip(self.gate) {
            *out = (*out / sum) * canon::sigmoid(*gate);
        }
    }

    /// `q·k / sqrt(head_dim)` for every key into `p`; returns the largest.
    #[inline(always)]
    fn scores<S: Simd, W: Float>(&self, s: S, k: &[W], p: &mut [f32]) -> f32 {
        let dim = self.query.len();
        let scale = s.splat_float(1.0 / (dim as f32).sqrt());
        let mut scores = [0.0; KEYS];
        for (i, p) in p.chunks_mut(KEYS).enumerate() {
            let mut lanes = [s.splat_float(0.0); KEYS];
            for (j, lanes) in lanes.iter_mut().enumerate() {
                // Beyond the last key, the last again.
                let key = KEYS * i + j.min(p.len() - 1);
                [*lanes] = floats::lanes(s, &k[key * self.stride + self.offset..][..dim], [self.query]);
            }
            s.store_floats(s.mul_floats(s.trees(&lanes), scale), &mut scores);
            p.copy_from_slice(&scores[..p.len()]);
        }
        p.iter().fold(f32::NEG_INFINITY, |max, &p| if p > max { p } else { max })
    }
}

/// `out += Σ p·v` over the keys of a segment, for `N` vectors of V's elements.
#[inline(always)]
fn weigh<S: Simd, W: Float, const N: usize>(s: S, p: &[f32], (v, stride): (&[W], usize), out: &mut [[f32; 16]]) {
    let mut sums = [s.splat_float(0.0); N];
    for (j, p) in p.iter().enumerate() {
        let (p, v) = (s.splat_float(*p), v[j * stride..][..16 * N].as_chunks::<16>().0);
        for n in 0..N {
            sums[n] = s.fma(p, W::vector(s, &v[n]), sums[n]);
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        let sum = s.add_floats(s.load_floats(out), sum);
        s.store_floats(sum, out);
    }
}

/// The rows that enter [`attention`].
pub struct Streams<'a> {
    pub q: &'a mut Rows,
    pub k: &'a mut Rows,
    pub v: &'a Rows,
    /// `[rows][rope_dim]`: cosines, then sines.
    pub rope: &'a Rows,
}

/// An attention layer: its shape and the norms of its heads.
pub struct Layer<'a> {
    pub shape: &'a AttentionShape,
    pub q_norm: &'a [f32],
    pub k_norm: &'a [f32],
}

impl Layer<'_> {
    /// Norms, rotates, stores and attends: see `Pass::attention`.
    pub fn run(
        &self,
        (phases, isa): (&Phases, Isa),
        streams: Streams,
        (cache, start): (&mut Kv, usize),
        out: &mut Rows,
    ) {
        let shape = self.shape;
        let Streams { q, k, v, rope } = streams;
        let (rows, dim) = (q.len(), shape.head_dim);
        assert_eq!((q.width(), rope.width()), (2 * shape.out_width(), shape.rope_dim), "attention's input widths");
        let rotate = |row: usize, head: &mut [f32], weight| {
            isa.run(NormRotate { head, weight, eps: shape.eps, rope: rope.row(row) });
        };
        phases.each(rows * shape.heads, 8 * rows * shape.out_width(), Chunks::new(q.change(), 2 * dim), |i, head| {
            rotate(i / shape.heads, &mut head[..dim], self.q_norm);
        });
        phases.each(rows * shape.kv_heads, 8 * rows * shape.kv_width(), Chunks::new(k.change(), dim), |i, head| {
            rotate(i / shape.kv_heads, head, self.k_norm);
        });
        cache.k.write(isa, start * cache.width, k.values());
        cache.v.write(isa, start * cache.width, v.values());

        let (q, cache) = (&*q, &*cache);
        let group = shape.heads / shape.kv_heads;
        let work = 4 * rows * shape.out_width() * (start + rows);
        let parts = Chunks::new(out.write(rows), dim);
        phases.each(rows * shape.heads, work, parts, |i, out| {
            let (row, head) = (i / shape.heads, i % shape.heads);
            let (query, gate) = q.row(row)[head * 2 * dim..][..2 * dim].split_at(dim);
            isa.run(Attend {
                query,
                gate,
                k: &cache.k,
                v: &cache.v,
                stride: cache.width,
                offset: head / group * dim,
                keys: start + row + 1,
                out,
            });
        });
    }
}
