//! Gated attention over a cache of K and V.
//!
//! Owns: the cache's layout and the attention of a row. Refuses to know: projections and residuals.
//!
//! Per query row and head: exact maximum, `p = exp(s - max)`, sums over segments of 256 keys, segments added in order.
//! Nothing depends on the pass's other rows.

use super::rows::Rows;
use super::team::{Chunks, Phases};
use crate::backend::{AttentionShape, KvFormat};
use crate::quant::blocks::f16_to_f32;
use crate::quant::simd::Simd;
use crate::quant::{Isa, Kernel, canon};

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
    F16(Vec<u16>),
    F32(Vec<f32>),
}

impl Store {
    /// Zeroed, so that pages are touched only once they are used.
    fn new(len: usize, format: KvFormat) -> Store {
        match format {
            KvFormat::F16 => Store::F16(vec![0; len]),
            KvFormat::F32 => Store::F32(vec![0.0; len]),
        }
    }

    fn write(&mut self, from: usize, values: &[f32]) {
        match self {
            Store::F16(data) => {
                for (out, v) in data[from..from + values.len()].iter_mut().zip(values) {
                    *out = half::f16::from_f32_const(*v).to_bits();
                }
            }
            Store::F32(data) => data[from..from + values.len()].copy_from_slice(values),
        }
    }

    fn save(&self, len: usize, out: &mut Vec<u8>) {
        match self {
            Store::F16(data) => out.extend(data[..len].iter().flat_map(|v| v.to_le_bytes())),
            Store::F32(data) => out.extend(data[..len].iter().flat_map(|v| v.to_le_bytes())),
        }
    }

    fn load(&mut self, bytes: &[u8]) {
        match self {
            Store::F16(data) => {
                for (out, b) in data.iter_mut().zip(bytes.chunks_exact(2)) {
                    *out = u16::from_le_bytes([b[0], b[1]]);
                }
            }
            Store::F32(data) => {
                for (out, b) in data.iter_mut().zip(bytes.chunks_exact(4)) {
                    *out = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                }
            }
        }
    }
}

impl Kv {
    /// Room for `positions` rows.
    pub fn new(shape: &AttentionShape, positions: usize, format: KvFormat) -> Kv {
        let width = shape.kv_width();
        Kv { width, k: Store::new(positions * width, format), v: Store::new(positions * width, format) }
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
    fn run<S: Simd>(self, _: S) {
        let scale = super::norm::rms_scale(self.head, self.eps);
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
    fn run<S: Simd>(mut self, _: S) {
        match (self.k, self.v) {
            (Store::F16(k), Store::F16(v)) => self.attend(|i| f16_to_f32(k[i]), |i| f16_to_f32(v[i])),
            (Store::F32(k), Store::F32(v)) => self.attend(|i| k[i], |i| v[i]),
            _ => unreachable!("K and V are stored alike"),
        }
    }
}

impl Attend<'_> {
    #[inline(always)]
    fn attend(&mut self, k: impl Fn(usize) -> f32, v: impl Fn(usize) -> f32) {
        let dim = self.query.len();
        let scale = 1.0 / (dim as f32).sqrt();
        let mut p = vec![0.0f32; self.keys];
        let mut row = vec![0.0f32; dim];
        let mut max = f32::NEG_INFINITY;
        for (j, p) in p.iter_mut().enumerate() {
            let from = j * self.stride + self.offset;
            for (i, r) in row.iter_mut().enumerate() {
                *r = k(from + i);
            }
            *p = canon::dot_f32(self.query, &row) * scale;
            max = if *p > max { *p } else { max };
        }
        for p in &mut p {
            *p = canon::exp(*p - max);
        }
        let mut sum = 0.0f32;
        self.out.fill(0.0);
        for (s, p) in p.chunks(SEGMENT).enumerate() {
            sum += canon::sum_f32(p);
            row.fill(0.0);
            for (j, p) in p.iter().enumerate() {
                let from = (s * SEGMENT + j) * self.stride + self.offset;
                for (i, r) in row.iter_mut().enumerate() {
                    *r = p.mul_add(v(from + i), *r);
                }
            }
            for (out, r) in self.out.iter_mut().zip(&row) {
                *out += r;
            }
        }
        for (out, gate) in self.out.iter_mut().zip(self.gate) {
            *out = (*out / sum) * canon::sigmoid(*gate);
        }
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
        cache.k.write(start * cache.width, k.values());
        cache.v.write(start * cache.width, v.values());

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
