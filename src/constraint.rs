//! What may come next.
//!
//! Owns: a set of tokens, and the trait of whatever allows and forbids tokens while a text grows. Refuses to know: why
//! something is forbidden (`text` has grammars), and how a token is chosen among those allowed (`engine`).

use draft::Token;

use crate::Error;

/// A set of tokens of one vocabulary: those that may come next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask {
    /// Token `t` is bit `t % 32` of word `t / 32`; bits behind the last token are clear.
    words: Vec<u32>,
    vocab: usize,
}

impl Mask {
    /// No token of a vocabulary of `vocab`.
    pub fn none(vocab: usize) -> Mask {
        Mask { words: vec![0; vocab.div_ceil(32)], vocab }
    }

    /// Number of tokens in the vocabulary.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Removes all tokens.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Adds a token.
    pub fn allow(&mut self, token: Token) {
        assert!((token as usize) < self.vocab, "token {token} is not in the vocabulary of {}", self.vocab);
        self.words[token as usize / 32] |= 1 << (token % 32);
    }

    /// Makes it the set whose words, laid out as here, are `words`; what lies behind the vocabulary is left out.
    pub fn copy_words(&mut self, words: &[u32]) {
        self.words.fill(0);
        let n = words.len().min(self.words.len());
        self.words[..n].copy_from_slice(&words[..n]);
        if let Some(last) = self.words.last_mut().filter(|_| !self.vocab.is_multiple_of(32)) {
            *last &= (1 << (self.vocab % 32)) - 1;
        }
    }

    /// Whether the token is in the set; one outside the vocabulary is not.
    pub fn allows(&self, token: Token) -> bool {
        self.words.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }

    /// Its tokens, ascending.
    pub fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        self.words.iter().zip(0..).flat_map(|(&word, i)| {
            // Each step clears the lowest bit that is set.
            let rests = std::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)));
            rests.take_while(|&rest| rest != 0).map(move |rest| i * 32 + rest.trailing_zeros())
        })
    }

    /// How many tokens it has.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no token is allowed.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }
}

/// Something that follows an output and says which token may come next. It sees tokens of the output only, never the
/// prompt's, and each once: tokens that are drafted but not emitted are asked about, not accepted.
pub trait Constraint {
    /// What may come next, never nothing; `None` if everything may.
    fn mask(&mut self) -> Option<&Mask>;

    /// How many of the first `tokens`, coming next one after another, are allowed. Nothing is remembered of them.
    fn valid_prefix(&mut self, tokens: &[Token]) -> usize;

    /// Takes the token that came next, which [`Constraint::mask`] allowed.
    fn accept(&mut self, token: Token);

    /// Tokens that will come next whatever the model thinks, since nothing else is allowed; often none. They are drafts
    /// that cost nothing.
    fn forced(&mut self) -> Vec<Token>;

    /// Whether the text is complete: nothing but the end of the output may come.
    fn ended(&self) -> bool;

    /// What made it give up: from then on only the end of the output is allowed.
    fn failure(&self) -> Option<&Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_holds_what_was_put_in() {
        for vocab in [1, 31, 32, 33, 64, 100] {
            let mut mask = Mask::none(vocab);
            assert!(mask.is_empty() && mask.count() == 0 && mask.tokens().next().is_none());
            let chosen: Vec<Token> = (0..vocab as Token).filter(|t| t % 3 != 1).collect();
            chosen.iter().for_each(|&t| mask.allow(t));
            assert_eq!(mask.tokens().collect::<Vec<_>>(), chosen);
            assert_eq!(mask.count(), chosen.len());
            assert!((0..200).all(|t| mask.allows(t) == chosen.contains(&t)));
            mask.clear();
            assert!(mask.is_empty());
        }
    }

    #[test]
    fn words_behind_the_vocabulary_are_left_out() {
        let mut mask = Mask::none(33);
        mask.copy_words(&[u32::MAX; 4]);
        assert_eq!((mask.count(), mask.allows(32), mask.allows(33)), (33, true, false));
        mask.copy_words(&[5]);
        assert_eq!(mask.tokens().collect::<Vec<_>>(), [0, 2]);
    }
}
