//! A smaller model of the same vocabulary as a guesser.
//!
//! Owns: that model's sequence, which follows the text. Refuses to know: what becomes of its guesses.
//!
//! Its state holds true tokens only; guesses are made on a fork of it.

use std::sync::Arc;

use draft::{Guess, Token};

use super::sequence::PREFILL;
use crate::Result;
use crate::backend::{Backend, KvFormat};
use crate::model::{Model, Workspace};
use crate::state::{Scratch, State};

/// Guesses with a smaller model.
pub struct Assistant<B: Backend> {
    model: Arc<Model<B>>,
    state: State<B>,
    scratch: Scratch<B>,
    workspace: Workspace<B>,
    /// The tokens in the state.
    tokens: Vec<Token>,
}

impl<B: Backend> Assistant<B> {
    /// A guesser for sequences of up to `positions` tokens.
    ///
    /// # Errors
    /// If the device's memory does not suffice.
    pub fn new(model: Arc<Model<B>>, positions: usize, kv: KvFormat) -> Result<Assistant<B>> {
        let state = model.state(positions, kv, 0)?;
        let scratch = Scratch::new(model.backend(), &state, model.config().layers.len())?;
        let workspace = model.workspace();
        Ok(Assistant { model, state, scratch, workspace, tokens: Vec::new() })
    }

    /// Guesses token after token behind `history`, each time following its own guess, while `more` says so
    /// and there is room.
    pub fn guess(&mut self, history: &[Token], more: &mut dyn FnMut(Guess) -> bool) {
        let fits = |t: &Token| (*t as usize) < self.model.vocab();
        let room = self.state.shape().positions;
        if history.len() >= room || !history.iter().all(fits) {
            return;
        }
        let model = self.model.clone();
        if !history.starts_with(&self.tokens) || history.len() == self.tokens.len() {
            self.state.clear(model.backend());
            self.tokens.clear();
        }
        let waiting = history[self.tokens.len()..].chunks(PREFILL);
        let last = waiting.map(|rows| run(&model, &mut self.workspace, &mut self.state, rows)).last();
        self.tokens.extend_from_slice(&history[self.tokens.len()..]);
        let Some(mut guess) = last.filter(|&guess| more(guess)) else {
            return;
        };
        let mut fork = self.state.fork(model.backend(), &mut self.scratch);
        while fork.state().room() > 0 {
            guess = run(&model, &mut self.workspace, fork.state(), &[guess.token]);
            if !more(guess) {
                return;
            }
        }
    }
}

/// One pass, kept; the guess behind its last row.
fn run<B: Backend>(model: &Model<B>, workspace: &mut Workspace<B>, state: &mut State<B>, rows: &[Token]) -> Guess {
    let verdict = model.forward(workspace, state, rows, rows.len() - 1);
    let token = verdict.choices[0];
    verdict.guard.keep(rows.len());
    Guess { token, confidence: model.confidence(workspace) }
}
