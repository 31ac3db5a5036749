//! A sequence's memory: what a pass may change, and the guard that decides what stays.
//!
//! Owns: the caches of all layers, the number of kept positions, the guard. Refuses to know: what a layer computes and
//! why rows are kept or dropped.

mod fork;
mod snapshot;

use crate::Result;
use crate::backend::{AttentionShape, Backend, DeltaShape, KvFormat, Pass, Place};

pub use fork::{Fork, Scratch};
pub use snapshot::{Checkpoint, Snapshot};

/// What a layer remembers, by kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LayerShape {
    /// K and V rows.
    Attention(AttentionShape),
    /// S and a conv window.
    Delta(DeltaShape),
}

/// Sizes of a sequence's state.
#[derive(Debug, Clone, PartialEq)]
pub struct StateShape {
    /// One entry per layer of the trunk.
    pub layers: Vec<LayerShape>,
    /// Positions that K and V have room for.
    pub positions: usize,
    /// How K and V are stored.
    pub kv: KvFormat,
    /// The longest pass that may be cut at any row; longer ones are kept whole or dropped.
    pub log_rows: usize,
}

impl StateShape {
    fn sum(&self, bytes: impl Fn(&LayerShape) -> usize) -> usize {
        self.layers.iter().map(bytes).sum()
    }

    /// Bytes of K and V per position.
    pub fn kv_bytes_per_position(&self) -> usize {
        self.sum(|layer| match layer {
            LayerShape::Attention(a) => 2 * a.kv_width() * self.kv.bytes(),
            LayerShape::Delta(_) => 0,
        })
    }

    /// Bytes of S and conv windows, kept once and tentative once.
    pub fn recurrent_bytes(&self) -> usize {
        self.sum(|layer| match layer {
            LayerShape::Attention(_) => 0,
            LayerShape::Delta(d) => 2 * 4 * (d.state_len() + d.window_len()),
        })
    }

    /// Bytes that the log takes for one drafted row: all that a rollback needs of it.
    pub fn log_bytes_per_row(&self) -> usize {
        self.sum(|layer| match layer {
            LayerShape::Attention(_) => 0,
            LayerShape::Delta(d) => 4 * d.log_len(),
        })
    }

    /// Bytes of all S once: what an engine that copies S for every drafted row would copy.
    pub fn s_bytes(&self) -> usize {
        self.sum(|layer| match layer {
            LayerShape::Attention(_) => 0,
            LayerShape::Delta(d) => 4 * d.state_len(),
        })
    }
}

/// One layer's memory on the device.
pub enum Cache<B: Backend> {
    /// Of an attention layer. Rows beyond the kept positions are leftovers and never read.
    Kv(B::Kv),
    /// Of a recurrent layer.
    Recurrent(B::Recurrent),
}

/// The memory of one sequence: kept positions `0..len`, and room for a tentative pass.
pub struct State<B: Backend> {
    shape: StateShape,
    layers: Vec<Cache<B>>,
    len: usize,
}

impl<B: Backend> State<B> {
    /// An empty sequence.
    ///
    /// # Errors
    /// If the device's memory does not suffice.
    pub fn new(backend: &B, shape: StateShape) -> Result<State<B>> {
        let layers = shape
            .layers
            .iter()
            .enumerate()
            .map(|(i, layer)| match layer {
                LayerShape::Attention(a) => Ok(Cache::Kv(backend.kv(Place::Layer(i), a, shape.positions, shape.kv)?)),
                LayerShape::Delta(d) => Ok(Cache::Recurrent(backend.recurrent(Place::Layer(i), d, shape.log_rows)?)),
            })
            .collect::<Result<_>>()?;
        Ok(State { shape, layers, len: 0 })
    }

    /// Kept positions.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is kept yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions still free.
    pub fn room(&self) -> usize {
        self.shape.positions - self.len
    }

    /// The sizes it was made with.
    pub fn shape(&self) -> &StateShape {
        &self.shape
    }

    /// Forgets everything.
    pub fn clear(&mut self, backend: &B) {
        for (cache, shape) in self.layers.iter_mut().zip(&self.shape.layers) {
            if let (Cache::Recurrent(recurrent), LayerShape::Delta(d)) = (cache, shape) {
                backend.load_recurrent(recurrent, &vec![0; 4 * (d.state_len() + d.window_len())]);
            }
        }
        self.len = 0;
    }

    /// The caches that a pass of `rows` rows writes, and the position of its first row.
    pub fn open(&mut self, rows: usize) -> (&mut [Cache<B>], usize) {
        assert!(rows >= 1 && rows <= self.room(), "a pass has rows, and room for them");
        (&mut self.layers, self.len)
    }

    /// The guard of a pass of `rows` rows that was just computed on this state's first `layers` layers.
    pub fn tentative<'s>(&'s mut self, backend: &'s B, layers: usize, rows: usize) -> Tentative<'s, B> {
        Tentative { state: self, backend, layers, rows }
    }
}

/// A pass whose rows are not decided yet. [`Tentative::keep`] makes some permanent; dropping it keeps none, and costs
/// nothing: kept buffers were never written.
#[must_use = "dropping the guard rolls the whole pass back"]
pub struct Tentative<'s, B: Backend> {
    state: &'s mut State<B>,
    backend: &'s B,
    layers: usize,
    rows: usize,
}

impl<B: Backend> Tentative<'_, B> {
    /// Rows of the pass.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Makes the first `rows` rows permanent (at least 1; any number up to the pass's if it was at most `log_rows`
    /// long, else all). The rest is as if it had never been computed.
    pub fn keep(self, rows: usize) {
        assert!(rows >= 1 && rows <= self.rows, "a pass keeps between one and all of its rows");
        self.backend.pass(|pass| {
            for (cache, shape) in self.state.layers.iter_mut().zip(&self.state.shape.layers).take(self.layers) {
                if let (Cache::Recurrent(recurrent), LayerShape::Delta(shape)) = (cache, shape) {
                    pass.keep(shape, recurrent, rows, self.rows);
                }
            }
        });
        self.state.len += rows;
    }
}
