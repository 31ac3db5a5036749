//! The suffix drafter: what followed where the text, or an earlier one, went on like this?
//!
//! Owns: what is guessed from the longest match and from copies that were left, and how sure that is. Refuses to know:
//! the model, what a pass costs.

use std::time::Duration;

use crate::automaton::{Automaton, Cursor};
use crate::copies::Copies;
use crate::trust::{Kind, Trust};
use crate::{Block, Decision, Drafter, Outcome, Target, Token};

/// Between documents of a corpus; no token.
pub(crate) const SEPARATOR: Token = Token::MAX;
/// Less likely tokens are not worth a thought, whatever a row costs.
const LEAST_REACH: f64 = 1.0 / 32.0;

/// Proposes what followed the longest match of the text's end in the text itself, or in texts indexed before.
#[derive(Debug, Clone)]
pub struct Suffix {
    text: Automaton,
    corpus: Automaton,
    place: Place,
    trust: Trust,
    matched: usize,
}

/// A place in the text or in a block behind it: all that guessing depends on and that moves with each token.
#[derive(Debug, Clone, Default)]
struct Place {
    text: Cursor,
    corpus: Cursor,
    copies: Copies,
}

/// A guess at a token.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    token: Token,
    kind: Kind,
    length: usize,
}

impl Suffix {
    /// A drafter that knows no other text.
    pub fn new() -> Suffix {
        Suffix::warmed(&[])
    }

    /// A drafter that has read earlier texts: documents, separated by `u32::MAX`.
    pub fn warmed(corpus: &[Token]) -> Suffix {
        Suffix {
            text: Automaton::new(),
            corpus: Automaton::of(corpus),
            place: Place::default(),
            trust: Trust::new(),
            matched: 0,
        }
    }

    /// Tokens of the longest match where the last proposal began; 0 if there was none.
    pub fn matched(&self) -> usize {
        self.matched
    }

    /// Bytes that its indices hold.
    pub fn bytes(&self) -> usize {
        self.text.bytes() + self.corpus.bytes()
    }

    /// Brings the index up to `history`: by its new tokens if the old ones are still there, else anew.
    fn follow(&mut self, history: &[Token]) {
        if !history.starts_with(self.text.text()) {
            self.forget_text();
        }
        for &token in &history[self.text.len()..] {
            for candidate in self.candidates(&self.place, &[]) {
                self.trust.learn(candidate.kind, candidate.token == token);
            }
            let mut place = std::mem::take(&mut self.place);
            self.advance(&mut place, token, &[]);
            self.text.push(token);
            place.text = self.text.end();
            self.start(&mut place);
            self.place = place;
        }
    }

    fn forget_text(&mut self) {
        self.text.clear();
        self.place = Place::default();
        self.trust.clear();
    }

    /// The token at `position` of the text and, behind it, of `block`.
    fn token(&self, position: usize, block: &[Token]) -> Option<Token> {
        self.text.text().get(position).or_else(|| block.get(position.checked_sub(self.text.len())?)).copied()
    }

    /// Moves `place` over one token, the next one behind `block`.
    fn advance(&self, place: &mut Place, token: Token, block: &[Token]) {
        self.text.advance(&mut place.text, token);
        self.corpus.advance(&mut place.corpus, token);
        place.copies.advance(token, |position| self.token(position, block));
    }

    /// Makes a copy of the longest match.
    fn start(&self, place: &mut Place) {
        if place.text.length() >= 2
            && let Some(found) = self.text.continuation(place.text)
        {
            place.copies.start(found.next);
        }
    }

    /// What may come next.
    fn candidates(&self, place: &Place, block: &[Token]) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let mut cursor = place.text;
        let mut found = self.text.continuation(cursor);
        // A text that ends in a period comes to its own end; it goes on with what the period says.
        while found.is_none() && self.text.shorten(&mut cursor) {
            found = self.text.continuation(cursor);
        }
        let length = cursor.length();
        if let Some(found) = found.filter(|_| length > 0) {
            let token = self.text.text()[found.next];
            candidates.push(Candidate { token, kind: Kind::matching(length, &found, false), length });
        }
        let earlier = self.corpus.continuation(place.corpus).filter(|_| place.corpus.length() > length);
        if let Some(found) = earlier {
            let token = self.corpus.text()[found.next];
            let length = place.corpus.length();
            candidates.push(Candidate { token, kind: Kind::matching(length, &found, true), length });
        }
        for (position, kind) in place.copies.candidates() {
            if let Some(token) = self.token(position, block) {
                candidates.push(Candidate { token, kind, length: 0 });
            }
        }
        candidates.retain(|candidate| candidate.token != SEPARATOR);
        candidates
    }

    /// The likeliest token, and how likely it is.
    fn best(&self, place: &Place, block: &[Token]) -> Option<(Candidate, f64)> {
        let weighed = |candidate: Candidate| (candidate, self.trust.estimate(candidate.kind));
        let mut best: Option<(Candidate, f64)> = None;
        for (candidate, chance) in self.candidates(place, block).into_iter().map(weighed) {
            if best.is_none_or(|(_, most)| chance > most) {
                best = Some((candidate, chance));
            }
        }
        best
    }
}

impl Default for Suffix {
    fn default() -> Self {
        Suffix::new()
    }
}

impl Drafter for Suffix {
    fn name(&self) -> &'static str {
        "suffix"
    }

    fn propose(&mut self, target: &mut dyn Target, block: &mut Block) {
        self.follow(target.history());
        let mut place = self.place.clone();
        for i in 0..block.len() {
            self.advance(&mut place, block.tokens()[i], &block.tokens()[..i]);
        }
        self.matched = self.candidates(&place, block.tokens()).iter().map(|guess| guess.length).max().unwrap_or(0);
        while !block.is_full() {
            let Some((guess, chance)) = self.best(&place, block.tokens()) else {
                return;
            };
            if block.reach() * chance < block.floor().max(LEAST_REACH) {
                return;
            }
            self.advance(&mut place, guess.token, block.tokens());
            block.push(guess.token, chance);
        }
    }

    fn observe(&mut self, _outcome: &Outcome) {}

    fn prefilled(&mut self, _rows: usize, _time: Duration) {}

    fn decision(&self) -> Decision {
        Decision { drafter: self.name(), matched: self.matched, ..Decision::default() }
    }

    fn reset(&mut self) {
        self.forget_text();
        self.matched = 0;
    }
}
