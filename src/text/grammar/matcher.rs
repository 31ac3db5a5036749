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
    /// Sees masks and emitted tokens alone, exactly as in plain decoding: the parser has limits on its work, and what it
    /// does for a draft would count.
    inner: llguidance::Matcher,
    /// Follows the text too, and is asked about drafts; nothing once it has failed.
    scout: Option<llguidance::Matcher>,
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
        let scout = Some(inner.deep_clone());
        Matcher { inner, scout, vocabulary, behind, mask, current: false, failure: None }
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

    /// How many of the tokens the grammar allows. Drafts are tried on the scout, which is back where it was afterwards; one
    /// that fails is dismissed, and nothing is allowed to be drafted from then on.
    fn valid_in_grammar(&mut self, tokens: &[Token]) -> usize {
        let Some(scout) = self.scout.as_mut().filter(|_| self.failure.is_none()) else {
            return 0;
        };
        let valid = self.vocabulary.valid_prefix(scout, tokens);
        if valid.is_none() {
            self.scout = None;
        }
        valid.unwrap_or(0)
    }
}

impl Vocabulary {
    fn is_end(&self, token: Token) -> bool {
        self.ends.binary_search(&token).is_ok()
    }

    /// Whether the grammar allows a token here that does not end the text. Agrees with the mask.
    /// Nothing if the parser gave up, here and below.
    fn fits(&self, scout: &mut llguidance::Matcher, token: Token) -> Option<bool> {
        if scout.is_stopped() || token as usize >= self.size || self.is_end(token) {
            return Some(false);
        }
        match scout.compute_ff_tokens().first() {
            Some(&forced) => Some(token == forced),
            None => scout.validate_tokens(&[token]).ok().map(|valid| valid == 1),
        }
    }

    /// The same for the end of the text.
    fn may_end(scout: &mut llguidance::Matcher) -> Option<bool> {
        let forced = !scout.is_stopped() && !scout.compute_ff_tokens().is_empty();
        Some(scout.is_stopped() || (!forced && scout.is_accepting().ok()?))
    }

    /// How many of the tokens may come next, one after another.
    fn valid_prefix(&self, scout: &mut llguidance::Matcher, tokens: &[Token]) -> Option<usize> {
        let mut taken = 0;
        while let Some(&token) = tokens.get(taken) {
            if !self.fits(scout, token)? {
                break;
            }
            scout.consume_token(token).ok()?;
            taken += 1;
        }
        // Behind an end there are only ends.
        let ends = tokens[taken..].iter().take_while(|&&token| self.is_end(token)).count();
        let ends = if ends > 0 && Vocabulary::may_end(scout)? { ends } else { 0 };
        scout.rollback(taken).ok()?;
        Some(taken + ends)
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
        self.scout.take_if(|scout| scout.consume_token(token).is_err());
    }

    fn forced(&mut self) -> Vec<Token> {
        if self.behind.is_some() {
            return Vec::new();
        }
        if !self.stopped() {
            return self.scout.as_mut().map(|scout| scout.compute_ff_tokens()).unwrap_or_default();
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
