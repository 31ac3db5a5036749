//! Drafters: they guess the next tokens and know nothing of the model.
//!
//! Owns: the traits between an engine and its drafters, and the drafters. Refuses to know: weights, state, text. A
//! drafter can be useless but never wrong: what it proposes is verified before it counts.

mod automaton;
mod block;
mod cascade;
mod copies;
mod corpus;
mod costs;
mod guesser;
mod odds;
mod scripted;
mod suffix;
mod trust;

use std::time::Duration;

pub use automaton::{Automaton, Continuation, Cursor};
pub use block::Block;
pub use cascade::Cascade;
pub use corpus::{Corpus, CorpusError};
pub use scripted::{Plan, Scripted};
pub use suffix::Suffix;

/// A token's number in the vocabulary.
pub type Token = u32;

/// A part of a model that guesses, for a price: it runs for every token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Head {
    /// The model's first layers, and its output matrix.
    Shallow,
    /// The model's next-token-prediction block.
    Mtp,
    /// A smaller model of the same vocabulary.
    Model,
}

impl Head {
    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Head::Shallow => "shallow",
            Head::Mtp => "mtp",
            Head::Model => "model",
        }
    }
}

/// What a head thinks comes next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guess {
    /// Its best token.
    pub token: Token,
    /// The probability that the head gives it.
    pub confidence: f32,
}

/// What a drafter may ask of the sequence it drafts for: all that it may ask.
pub trait Target {
    /// Prompt and output so far. The last token is not evaluated yet.
    fn history(&self) -> &[Token];

    /// The time, from some moment on. Tests hand in their own.
    fn now(&self) -> Duration;

    /// Lets `head` guess token after token behind the history, each time following its own guess, while `more` answers
    /// true to the last one. A head that the target does not have guesses nothing.
    fn guess(&mut self, head: Head, more: &mut dyn FnMut(Guess) -> bool);
}

/// What became of a block.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// The block as it was verified; empty if nothing was drafted.
    pub drafted: &'a [Token],
    /// How many of its first tokens were emitted.
    pub accepted: usize,
    /// The tokens emitted by the pass: the accepted ones, and the model's own.
    pub emitted: &'a [Token],
    /// What the pass took, from the draft's end to the kept state.
    pub time: Duration,
}

/// Why a block is what it is, for traces and reports.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Decision {
    /// Who drafted; empty if nobody did.
    pub drafter: &'static str,
    /// Tokens of the match behind a copy.
    pub matched: usize,
    /// Seconds that the pass is expected to take, if anything is known.
    pub seconds: Option<f64>,
}

/// Something that guesses.
pub trait Drafter {
    /// What users call it.
    fn name(&self) -> &'static str;
    /// Pushes guesses for the tokens behind the target's history and what the block already holds, best guess first in
    /// time; none is a legal answer.
    fn propose(&mut self, target: &mut dyn Target, block: &mut Block);
    /// Learns what became of the last block.
    fn observe(&mut self, outcome: &Outcome);
    /// Learns that evaluating `rows` rows of a prompt took `time`.
    fn prefilled(&mut self, rows: usize, time: Duration);
    /// Why the last block is what it is.
    fn decision(&self) -> Decision;
    /// Forgets the text: another one follows.
    fn reset(&mut self);
}
