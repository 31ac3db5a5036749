//! The block: drafted tokens on their way to the verifier.
//!
//! Owns: its capacity. Refuses to know: who fills it.

use crate::Token;

/// Up to `capacity` drafted tokens; reused from step to step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Block {
    tokens: Vec<Token>,
    capacity: usize,
}

impl Block {
    /// An empty block.
    pub fn new(capacity: usize) -> Block {
        Block { tokens: Vec::with_capacity(capacity), capacity }
    }

    /// Empties it and sets its capacity.
    pub fn clear(&mut self, capacity: usize) {
        self.tokens.clear();
        self.capacity = capacity;
    }

    /// Adds a token; `false` if the block is full.
    pub fn push(&mut self, token: Token) -> bool {
        let fits = self.tokens.len() < self.capacity;
        if fits {
            self.tokens.push(token);
        }
        fits
    }

    /// Drops all but the first `len` tokens.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
    }

    /// The tokens, first in time first.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Tokens in the block.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether nothing is drafted.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// How many tokens may be drafted.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}
