//! The plain run: what every other run is compared with.
//!
//! Owns: tokens, logits and state hashes of plain decoding over one prompt. Refuses to know: drafters.

use draft::Token;
use xxhash_rust::xxh3::xxh3_128;

use super::manner::Manner;
use crate::Result;
use crate::backend::Backend;
use crate::cli::ranking;
use crate::cli::setup::Loaded;
use crate::engine::{Finish, Sequence, Settings, Unwatched};
use crate::state::Snapshot;

/// How far a run may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Positions: prompt and output together.
    pub context: usize,
    /// Most tokens to generate.
    pub tokens: usize,
    /// The number of the token with which a stop string is completed, counted from 1.
    pub stop_at: Option<usize>,
}

/// Plain decoding of one prompt, kept in memory.
pub struct Plain {
    /// The prompt.
    pub prompt: Vec<Token>,
    /// The state after the prompt, but for its last token.
    pub start: Snapshot,
    /// The tokens generated.
    pub tokens: Vec<Token>,
    /// Why it ended.
    pub finish: Finish,
    /// The logits behind each token, one after another.
    pub(super) logits: Vec<f32>,
    /// A hash of the state after 0, 1, 2... tokens.
    pub(super) states: Vec<u128>,
    vocab: usize,
    manner: Manner,
}

/// A hash of a sequence's whole kept state.
pub fn state_hash<B: Backend>(sequence: &Sequence<B>) -> u128 {
    xxh3_128(sequence.snapshot().body())
}

impl Plain {
    /// Generates up to `tokens` tokens after `prompt`, one row a pass, chosen in this `manner`.
    ///
    /// # Errors
    /// If the prompt is empty, too long or not of this vocabulary, or the memory does not suffice.
    pub fn run<B: Backend>(
        loaded: &Loaded<B>,
        prompt: &[Token],
        context: usize,
        tokens: usize,
        manner: &Manner,
    ) -> Result<Plain> {
        let settings = Settings { context, ..loaded.about.settings };
        let mut sequence = Sequence::new(loaded.model.clone(), settings, None)?;
        sequence.prompt(prompt, &mut Unwatched)?;
        manner.apply(&mut sequence)?;
        let mut plain = Plain {
            prompt: prompt.to_vec(),
            start: sequence.snapshot(),
            tokens: Vec::new(),
            finish: Finish::Length,
            logits: Vec::new(),
            states: vec![state_hash(&sequence)],
            vocab: loaded.about.vocab,
            manner: manner.clone(),
        };
        while plain.tokens.len() < tokens {
            let left = tokens - plain.tokens.len();
            let step = sequence.step(left, &mut |token| loaded.about.is_eog(token).then_some(Finish::Stop));
            for (row, &token) in step.emitted.iter().enumerate() {
                sequence.logits(row, &mut plain.logits);
                plain.tokens.push(token);
            }
            plain.states.push(state_hash(&sequence));
            if let Some(finish) = step.finish {
                plain.finish = finish;
                break;
            }
        }
        // A step that found no room emitted nothing and changed nothing.
        plain.states.truncate(plain.tokens.len() + 1);
        Ok(plain)
    }

    /// Makes `sequence`, whose prompt is set, choose its tokens as this run did.
    ///
    /// # Errors
    /// Never, once this run has been made.
    pub fn choose_alike<B: Backend>(&self, sequence: &mut Sequence<B>) -> Result<()> {
        self.manner.apply(sequence)
    }

    /// The logits behind token `i`.
    pub fn logits(&self, i: usize) -> &[f32] {
        &self.logits[i * self.vocab..(i + 1) * self.vocab]
    }

    /// The state's hash after `tokens` tokens.
    pub fn state(&self, tokens: usize) -> u128 {
        self.states[tokens]
    }

    /// How many tokens a run within `limits` gives, and why it ends. The limits lie within this run's own.
    pub fn expected(&self, limits: Limits) -> (usize, Finish) {
        let room = limits.tokens.min(limits.context - self.prompt.len());
        let whole = self.tokens.len();
        match limits.stop_at {
            Some(at) if at <= room && at <= whole => (at, Finish::StopString),
            _ if self.finish == Finish::Stop && whole <= room => (whole, Finish::Stop),
            _ => (room.min(whole), Finish::Length),
        }
    }

    /// The largest logits behind token `i` with their tokens, `n` of them, largest first.
    pub fn top(&self, i: usize, n: usize) -> Vec<(Token, f32)> {
        ranking::top(self.logits(i), n)
    }
}
