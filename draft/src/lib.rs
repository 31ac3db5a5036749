//! Drafters: they guess the next tokens and know nothing of the model.
//!
//! Owns: the traits between an engine and its drafters, and the drafters. Refuses to know: weights, state, text. A
//! drafter can be useless but never wrong: what it proposes is verified before it counts.

mod block;
mod ngram;
mod scripted;

pub use block::Block;
pub use ngram::{Match, Ngram};
pub use scripted::{Plan, Scripted};

/// A token's number in the vocabulary.
pub type Token = u32;

/// What a drafter may ask of the sequence it drafts for: all that it may ask.
pub trait Target {
    /// Prompt and output so far. The last token is not evaluated yet.
    fn history(&self) -> &[Token];
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
}

/// Something that guesses.
pub trait Drafter {
    /// What users call it.
    fn name(&self) -> &'static str;
    /// Pushes guesses for the tokens after the target's history, best guess first in time; none is a legal answer.
    fn propose(&mut self, target: &dyn Target, block: &mut Block);
    /// Learns what became of the last block.
    fn observe(&mut self, outcome: &Outcome);
    /// Forgets everything: another text follows, and equal texts are drafted equally.
    fn reset(&mut self);
}
