//! A state that goes on for a while and then was never touched: what a drafter guesses with.
//!
//! Owns: the recurrent layers' second home, and the way back. Refuses to know: who guesses.
//!
//! K and V need no copy: rows behind the kept ones are leftovers in any case. S and the conv window are copied once, for
//! the first layers only.

use super::{Cache, LayerShape, State};
use crate::Result;
use crate::backend::{Backend, Place};

/// Recurrent layers to go on with in place of a state's own.
pub struct Scratch<B: Backend> {
    layers: usize,
    recurrent: Vec<B::Recurrent>,
}

impl<B: Backend> Scratch<B> {
    /// Room for the first `layers` layers of states like `state`.
    ///
    /// # Errors
    /// If the device's memory does not suffice.
    pub fn new(backend: &B, state: &State<B>, layers: usize) -> Result<Scratch<B>> {
        let deltas = state.shape.layers.iter().take(layers).enumerate().filter_map(|(i, layer)| match layer {
            LayerShape::Attention(_) => None,
            // Rows are kept as they come, one pass after another: nothing is cut, so nothing is logged.
            LayerShape::Delta(d) => Some(backend.recurrent(Place::Layer(i), d, 0)),
        });
        Ok(Scratch { layers, recurrent: deltas.collect::<Result<_>>()? })
    }

    /// Exchanges the recurrent layers of `state` and these.
    fn exchange(&mut self, state: &mut State<B>) {
        let recurrent = state.layers.iter_mut().take(self.layers).filter_map(|cache| match cache {
            Cache::Kv(_) => None,
            Cache::Recurrent(recurrent) => Some(recurrent),
        });
        recurrent.zip(&mut self.recurrent).for_each(|(a, b)| std::mem::swap(a, b));
    }
}

/// A forked state. Passes through its first layers may be kept on it; when it is dropped, the state is what it was.
pub struct Fork<'s, B: Backend> {
    state: &'s mut State<B>,
    scratch: &'s mut Scratch<B>,
    len: usize,
}

impl<B: Backend> State<B> {
    /// Forks the layers that `scratch` has room for.
    pub fn fork<'s>(&'s mut self, backend: &B, scratch: &'s mut Scratch<B>) -> Fork<'s, B> {
        let kept = self.layers.iter().take(scratch.layers).filter_map(|cache| match cache {
            Cache::Kv(_) => None,
            Cache::Recurrent(recurrent) => Some(recurrent),
        });
        kept.zip(&mut scratch.recurrent).for_each(|(from, to)| backend.fork_recurrent(from, to));
        scratch.exchange(self);
        let len = self.len;
        Fork { state: self, scratch, len }
    }
}

impl<B: Backend> Fork<'_, B> {
    /// The state to go on with.
    pub fn state(&mut self) -> &mut State<B> {
        self.state
    }
}

impl<B: Backend> Drop for Fork<'_, B> {
    fn drop(&mut self) {
        self.scratch.exchange(self.state);
        self.state.len = self.len;
    }
}
