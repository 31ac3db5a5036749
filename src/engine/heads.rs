//! What a drafter may ask beside the history: the heads of a sequence's model, and a smaller model.
//!
//! Owns: which of them a sequence has. Refuses to know: who asks, and what becomes of the guesses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use draft::{Guess, Head, Target, Token};

use super::assistant::Assistant;
use super::sequence::Settings;
use crate::Result;
use crate::backend::Backend;
use crate::model::{Model, Mtp, Shallow, Workspace};
use crate::state::State;

/// Which heads a sequence is to have.
pub struct Wanted<B: Backend> {
    /// The number of first layers that guess by themselves.
    pub shallow: Option<usize>,
    /// The next-token-prediction block, if the model has one.
    pub mtp: bool,
    /// A smaller model of the same vocabulary.
    pub model: Option<Arc<Model<B>>>,
}

impl<B: Backend> Wanted<B> {
    /// None.
    pub fn nothing() -> Wanted<B> {
        Wanted { shallow: None, mtp: false, model: None }
    }
}

/// The heads of a sequence.
pub struct Heads<B: Backend> {
    shallow: Option<Shallow<B>>,
    mtp: Option<Mtp<B>>,
    model: Option<Assistant<B>>,
}

impl<B: Backend> Heads<B> {
    /// Those `wanted` for sequences of `model` whose state is like `state`.
    ///
    /// # Errors
    /// If the device's memory does not suffice.
    pub fn new(model: &Model<B>, state: &State<B>, settings: Settings, wanted: &Wanted<B>) -> Result<Heads<B>> {
        let (positions, kv) = (settings.context, settings.kv);
        let mtp = if wanted.mtp { Mtp::new(model, positions, kv)? } else { None };
        Ok(Heads {
            shallow: wanted.shallow.map(|layers| Shallow::new(model, state, layers)).transpose()?,
            mtp,
            model: wanted.model.clone().map(|small| Assistant::new(small, positions, kv)).transpose()?,
        })
    }

    /// The first `rows` rows of the trunk's last pass, from `position` on, were kept.
    pub fn follow(&mut self, model: &Model<B>, trunk: &Workspace<B>, position: usize, rows: usize) {
        if let Some(mtp) = &mut self.mtp {
            mtp.follow(model, trunk, position, rows);
        }
    }
}

/// What a drafter sees of a sequence.
pub struct View<'a, B: Backend> {
    /// Prompt and output.
    pub tokens: &'a [Token],
    /// Where its clock begins.
    pub since: Instant,
    /// The model.
    pub model: &'a Model<B>,
    /// The state of all tokens but the last; as it was after every call.
    pub state: &'a mut State<B>,
    /// What there is to be asked.
    pub heads: &'a mut Heads<B>,
}

impl<B: Backend> Target for View<'_, B> {
    fn history(&self) -> &[Token] {
        self.tokens
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    fn guess(&mut self, head: Head, more: &mut dyn FnMut(Guess) -> bool) {
        let heads = &mut *self.heads;
        match head {
            Head::Shallow => {
                if let Some(shallow) = &mut heads.shallow {
                    let rows = &self.tokens[self.state.len()..];
                    shallow.guess(self.model, self.state, rows, more);
                }
            }
            Head::Mtp => {
                if let Some(mtp) = &mut heads.mtp {
                    mtp.guess(self.model, self.tokens, more);
                }
            }
            Head::Model => {
                if let Some(model) = &mut heads.model {
                    model.guess(self.tokens, more);
                }
            }
        }
    }
}
