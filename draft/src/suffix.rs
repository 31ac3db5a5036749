//! The suffix drafter: what followed where the text, or an earlier one, went on like this?
//!
//! Owns: what is guessed from the longest match and from copies that were left, and learning how far that is right. Refuses
//! to know: the model, what a pass costs.
//!
//! Every token of the text is a trial of what would have been guessed for it, whether or not it was drafted, by whomever:
//! so learning needs no outcomes, and the guesses depend on the text alone.

use std::time::Duration;

use crate::automaton::{Automaton, Cursor};
use crate::copies::Copies;
use crate::trust::{Evidence, Trust};
use crate::{Block, Decision, Drafter, Outcome, Target, Token};

/// Between documents of a corpus; no token.
pub(crate) const SEPARATOR: Token = Token::MAX;
/// A match that long is a copy in progress: measured, shorter ones are too often chance.
const COPY: usize = 4;
/// Tokens reached less likely are not worth a thought, whatever a row costs.
const LEAST_REACH: f64 = 1.0 / 32.0;

/// Proposes what followed the longest match of the text's end, in the text itself or in texts indexed before, or what a
/// copy goes on with behind a changed token, whichever is likelier right.
#[derive(Debug, Clone)]
pub struct Suffix {
    text: Automaton,
    corpus: Automaton,
    place: Place,
    trust: Trust,
    matched: usize,
}

/// A place in the text or in a block behind it: what guesses depend on and what moves with each token.
#[derive(Debug, Clone, Default)]
struct Place {
    text: Cursor,
    corpus: Cursor,
    copies: Copies,
}

/// A guess at one token.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    token: Token,
    evidence: Evidence,
}

/// The best guess: its chance before and after calibration.
#[derive(Debug, Clone, Copy)]
struct Best {
    token: Token,
    estimate: f64,
    chance: f64,
}

impl Suffix {
    /// What users call it.
    pub const NAME: &str = "suffix";

    /// A drafter that knows no other text.
    pub fn new() -> Suffix {
        Suffix::warmed(&[])
    }

    /// A drafter that has read earlier texts: documents, separated by `u32::MAX`. They outlive [`Drafter::reset`].
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
        let mut candidates = Vec::new();
        for &token in &history[self.text.len()..] {
            self.guess(&self.place, &[], &mut candidates);
            if let Some(best) = self.best(&candidates) {
                self.trust.learn_best(best.estimate, best.token == token);
            }
            for candidate in &candidates {
                self.trust.learn(&candidate.evidence, candidate.token == token);
            }
            self.push(token);
        }
    }

    fn push(&mut self, token: Token) {
        let mut place = std::mem::take(&mut self.place);
        self.advance(&mut place, token, &[]);
        self.text.push(token);
        // The cursor that was advanced knows nothing of the state that the push may have split.
        place.text = self.text.end();
        let copied = self.text.continuation(place.text).filter(|_| place.text.length() >= COPY);
        if let Some(copied) = copied {
            place.copies.start(copied.next);
        }
        self.place = place;
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

    /// Finds what may come next; answers the length of the longest match.
    fn guess(&self, place: &Place, block: &[Token], candidates: &mut Vec<Candidate>) -> usize {
        candidates.clear();
        let in_text = add_matches(&self.text, place.text, candidates);
        let of_text = candidates.len();
        let in_corpus = add_matches(&self.corpus, place.corpus, candidates);
        if in_corpus <= in_text {
            candidates.truncate(of_text);
        }
        for candidate in &mut candidates[of_text..] {
            candidate.evidence = candidate.evidence.earlier();
        }
        for (position, evidence) in place.copies.guesses() {
            candidates.extend(self.token(position, block).map(|token| Candidate { token, evidence }));
        }
        candidates.retain(|candidate| candidate.token != SEPARATOR);
        let end = self.text.len() + block.len();
        let before = [2, 1].map(|back| end.checked_sub(back).and_then(|at| self.token(at, block)).unwrap_or(0));
        for candidate in candidates {
            candidate.evidence = candidate.evidence.tokens(before, candidate.token);
        }
        in_text.max(in_corpus)
    }

    fn best(&self, candidates: &[Candidate]) -> Option<Best> {
        let weighed = candidates.iter().map(|candidate| (candidate.token, self.trust.estimate(&candidate.evidence)));
        // Of equals the first: the longest match.
        let (token, estimate) = weighed.reduce(|best, other| if other.1 > best.1 { other } else { best })?;
        Some(Best { token, estimate, chance: self.trust.calibrated(estimate) })
    }
}

/// Adds what followed the longest match, last and usually; answers the match's length.
fn add_matches(automaton: &Automaton, mut cursor: Cursor, candidates: &mut Vec<Candidate>) -> usize {
    let mut found = automaton.continuation(cursor);
    // A text that ends in a period comes to its own end; it goes on with what the period says.
    while found.is_none() && automaton.shorten(&mut cursor) {
        found = automaton.continuation(cursor);
    }
    let Some(found) = found.filter(|_| cursor.length() > 0) else {
        return 0;
    };
    let mut shorter = cursor;
    automaton.shorten(&mut shorter);
    let visits = automaton.continuation(shorter).filter(|_| shorter.length() > 0).map_or(0, |shorter| shorter.visits);
    let last = automaton.text()[found.next];
    let mut add = |token: Token| {
        let evidence = Evidence::matching(cursor.length(), &found, token == last, token == found.usual)
            .shorter(automaton.count(shorter, token), visits);
        candidates.push(Candidate { token, evidence });
    };
    add(last);
    if found.usual != last {
        add(found.usual);
    }
    cursor.length()
}

impl Default for Suffix {
    fn default() -> Self {
        Suffix::new()
    }
}

impl Drafter for Suffix {
    fn name(&self) -> &'static str {
        Suffix::NAME
    }

    fn propose(&mut self, target: &mut dyn Target, block: &mut Block) {
        self.follow(target.history());
        let mut place = self.place.clone();
        for (i, &token) in block.tokens().iter().enumerate() {
            self.advance(&mut place, token, &block.tokens()[..i]);
        }
        let mut candidates = Vec::new();
        self.matched = self.guess(&place, block.tokens(), &mut candidates);
        while let Some(best) = self.best(&candidates) {
            if block.is_full() || block.reach() * best.chance < block.floor().max(LEAST_REACH) {
                return;
            }
            self.advance(&mut place, best.token, block.tokens());
            block.push(best.token, best.chance);
            self.guess(&place, block.tokens(), &mut candidates);
        }
    }

    /// The next history tells it all.
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
