//! A text that follows a grammar.
//!
//! Owns: where in the grammar the text is. Refuses to know: how it came there.

use std::sync::Arc;

use draft::Token;

use super::{Vocabulary, sentence};
use crate::Error;
use crate::constraint::{Constraint, Mask};

/// Follows one text through a grammar. Tokens that end a text are allowed exactly where the grammar may end; behind its
/// end nothing else is.
pub struct Matcher {
    inner: llguidance::Matcher,
    vocabulary: Arc<Vocabulary>,
    /// The token behind which the grammar begins, until it has come.
    behind: Option<Token>,
    mask: Mask,
    /// Whether `mask` is that of this place.
    current: bool,
    failure: Option<Error>,
}

impl Matcher {
    pub(super) fn new(inner: llguidance::Matcher, vocabulary: Arc<Vocabulary>, behind: Option<Token>) -> Matcher {
        let mask = Mask::none(vocabulary.size);
        Matcher { inner, vocabulary, behind, mask, current: false, failure: None }
    }

    fn fail(&mut self, reason: &dyn std::fmt::Display) {
        let message = format!("cannot be followed any further; {}", sentence(&reason.to_string()));
        self.failure.get_or_insert_with(|| Error::new(message).about("grammar"));
        self.current = false;
    }

    /// Whether only the end of the text is left.
    fn stopped(&self) -> bool {
        self.failure.is_some() || self.inner.is_stopped()
    }

    fn is_end(&self, token: Token) -> bool {
        self.vocabulary.ends.binary_search(&token).is_ok()
    }

    fn compute_mask(&mut self) {
        if !self.stopped() {
            match self.inner.compute_mask() {
                Ok(set) => self.mask.copy_words(set.as_slice()),
                Err(e) => self.fail(&e),
            }
        }
        if self.stopped() {
            self.mask.clear();
            self.vocabulary.ends.iter().for_each(|&end| self.mask.allow(end));
        }
        self.current = true;
    }

    /// Whether the grammar allows a token here that does not end the text. Agrees with the mask.
    fn fits(&mut self, token: Token) -> bool {
        if self.stopped() || token as usize >= self.vocabulary.size || self.is_end(token) {
            return false;
        }
        if let Some(&forced) = self.inner.compute_ff_tokens().first() {
            return token == forced;
        }
        match self.inner.validate_tokens(&[token]) {
            Ok(valid) => valid == 1,
            Err(e) => {
                self.fail(&e);
                false
            }
        }
    }

    /// The same for the end of the text.
    fn may_end(&mut self) -> bool {
        let forced = !self.stopped() && !self.inner.compute_ff_tokens().is_empty();
        self.stopped() || (!forced && self.inner.is_accepting().unwrap_or(false))
    }

    /// How many of the tokens the grammar allows; it is back where it was afterwards.
    fn valid_in_grammar(&mut self, tokens: &[Token]) -> usize {
        let mut taken = 0;
        while let Some(&token) = tokens.get(taken).filter(|&&token| self.fits(token)) {
            if let Err(e) = self.inner.consume_token(token) {
                self.fail(&e);
                return taken;
            }
            taken += 1;
        }
        // Behind an end there are only ends.
        let rest = &tokens[taken..];
        let ends = rest.iter().take_while(|&&token| self.is_end(token)).count();
        let ends = if ends > 0 && self.may_end() { ends } else { 0 };
        if let Err(e) = self.inner.rollback(taken) {
            self.fail(&e);
        }
        taken + ends
    }
}

impl Constraint for Matcher {
    fn mask(&mut self) -> Option<&Mask> {
        if self.behind.is_some() {
            return None;
        }
        if !self.current {
            self.compute_mask();
        }
        Some(&self.mask)
    }

    fn valid_prefix(&mut self, tokens: &[Token]) -> usize {
        let free = match self.behind {
            Some(last) => tokens.iter().position(|&token| token == last).map_or(tokens.len(), |at| at + 1),
            None => 0,
        };
        free + self.valid_in_grammar(&tokens[free..])
    }

    fn accept(&mut self, token: Token) {
        if let Some(last) = self.behind {
            self.behind = self.behind.filter(|_| token != last);
            return;
        }
        if self.stopped() {
            return;
        }
        self.current = false;
        if let Err(e) = self.inner.consume_token(token) {
            self.fail(&e);
        }
    }

    fn forced(&mut self) -> Vec<Token> {
        if self.behind.is_some() {
            return Vec::new();
        }
        if !self.stopped() {
            return self.inner.compute_ff_tokens();
        }
        // The only token that may follow, if there is only one.
        Vec::from_iter(self.vocabulary.ends.first().copied().filter(|_| self.vocabulary.ends.len() == 1))
    }

    fn ended(&self) -> bool {
        self.behind.is_none() && self.stopped()
    }

    fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.stopped() { "end" } else { "inside" };
        f.debug_struct("Matcher").field("place", &place).field("behind", &self.behind).finish_non_exhaustive()
    }
}
