//! The first layers as a guesser: what the model would say if it stopped early.
//!
//! Owns: its own activations and its fork of the state. Refuses to know: what becomes of its guesses.

use draft::{Guess, Token};

use super::{Extent, Model, Workspace};
use crate::Result;
use crate::backend::Backend;
use crate::state::{Scratch, State};

/// Guesses with the first layers, the output norm and the output matrix.
pub struct Shallow<B: Backend> {
    layers: usize,
    scratch: Scratch<B>,
    workspace: Workspace<B>,
}

impl<B: Backend> Shallow<B> {
    /// A guesser of `layers` layers (1 to the model's) for sequences whose state is like `state`.
    ///
    /// # Errors
    /// If the device's memory does not suffice.
    pub fn new(model: &Model<B>, state: &State<B>, layers: usize) -> Result<Shallow<B>> {
        assert!((1..=model.config().layers.len()).contains(&layers), "a guesser has some of the model's layers");
        let scratch = Scratch::new(model.backend(), state, layers)?;
        Ok(Shallow { layers, scratch, workspace: model.workspace() })
    }

    /// Guesses token after token behind `rows`, the tokens that follow the kept state, each time following its own
    /// guess, while `more` says so and the state has room. Afterwards the state is what it was.
    pub fn guess(
        &mut self,
        model: &Model<B>,
        state: &mut State<B>,
        rows: &[Token],
        more: &mut dyn FnMut(Guess) -> bool,
    ) {
        let mut fork = state.fork(model.backend(), &mut self.scratch);
        let mut rows = rows.to_vec();
        while rows.len() <= fork.state().room() {
            let extent = Extent { layers: self.layers, logits_from: rows.len() - 1 };
            let verdict = model.run(&mut self.workspace, fork.state(), &rows, extent);
            let token = verdict.choices[0];
            verdict.guard.keep(rows.len());
            if !more(Guess { token, confidence: model.confidence(&self.workspace) }) {
                return;
            }
            rows = vec![token];
        }
    }
}
