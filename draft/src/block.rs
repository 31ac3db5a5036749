//! The block: drafted tokens on their way to the verifier.
//!
//! Owns: its capacity, how sure its tokens are, and what a further token must be worth. Refuses to know: who fills it.

use crate::Token;

/// Up to `capacity` drafted tokens; reused from step to step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    tokens: Vec<Token>,
    /// The chance of each token, given that those before it are right.
    chances: Vec<f64>,
    capacity: usize,
    /// By place: see [`Block::floor`]. Places beyond have the last one's.
    floors: Vec<f64>,
    rate: f64,
}

impl Block {
    /// An empty block.
    pub fn new(capacity: usize) -> Block {
        Block { capacity, ..Block::default() }
    }

    /// Empties it and sets its capacity; every token is worth its row, and time costs nothing.
    pub fn clear(&mut self, capacity: usize) {
        self.tokens.clear();
        self.chances.clear();
        self.floors.clear();
        self.rate = 0.0;
        self.capacity = capacity;
    }

    /// Sets what a second is worth in tokens, and what tokens must be worth, by place: see [`Block::floor`].
    pub fn set_terms(&mut self, rate: f64, floors: impl IntoIterator<Item = f64>) {
        self.rate = rate;
        self.floors.clear();
        self.floors.extend(floors);
    }

    /// Adds a token that is right with this chance if all tokens before it are; `false` if the block is full.
    pub fn push(&mut self, token: Token, chance: f64) -> bool {
        let fits = self.tokens.len() < self.capacity;
        if fits {
            self.tokens.push(token);
            self.chances.push(chance);
        }
        fits
    }

    /// Drops all but the first `len` tokens.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.chances.truncate(len);
    }

    /// The tokens, first in time first.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The chance of each token, given that those before it are right.
    pub fn chances(&self) -> &[f64] {
        &self.chances
    }

    /// The chance that all of its tokens are right; 1 if there are none.
    pub fn reach(&self) -> f64 {
        self.chances.iter().product()
    }

    /// How many of its tokens will be accepted, on average: the sum over places of the chance that all tokens up to
    /// there are right.
    pub fn expected(&self) -> f64 {
        let mut reach = 1.0;
        let accepted = self.chances.iter().map(|chance| {
            reach *= chance;
            reach
        });
        accepted.sum()
    }

    /// The least [`Block::reach`], the next token's chance included, at which that token is worth its row.
    pub fn floor(&self) -> f64 {
        let place = self.tokens.len().min(self.floors.len().saturating_sub(1));
        self.floors.get(place).copied().unwrap_or(0.0)
    }

    /// Tokens that a second spent on drafting must bring.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Tokens in the block.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether nothing is drafted.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Whether nothing more fits.
    pub fn is_full(&self) -> bool {
        self.tokens.len() >= self.capacity
    }

    /// How many tokens may be drafted.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_follow_from_the_chances() {
        let mut block = Block::new(3);
        assert_eq!((block.reach(), block.expected(), block.floor()), (1.0, 0.0, 0.0));
        block.set_terms(2.0, [0.5, 0.25]);
        assert_eq!(block.floor(), 0.5);
        assert!(block.push(7, 0.5) && block.push(8, 0.5) && block.push(9, 1.0) && !block.push(9, 1.0));
        assert_eq!((block.reach(), block.expected(), block.floor()), (0.25, 1.0, 0.25));
        block.truncate(1);
        assert_eq!((block.tokens(), block.chances(), block.expected()), (&[7][..], &[0.5][..], 0.5));
        block.clear(1);
        assert_eq!((block.len(), block.capacity(), block.floor()), (0, 1, 0.0));
    }
}
