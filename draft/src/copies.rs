//! Copies in progress: places in earlier text that the present text follows, token for token or with changes.
//!
//! Owns: where each copy goes on, and how after a change. Refuses to know: how the place was found, how far it is
//! trusted.
//!
//! Edits copy a text but for some tokens. Behind a changed token the longest match is lost for as long as that token is
//! part of it. So a copy that is left stays a candidate for a few tokens, in three ways: new tokens were put in front of
//! the one that was expected, or in its place, or one for one in place of as many.

use crate::Token;
use crate::trust::Kind;

/// Copies kept at a time.
const MOST: usize = 6;
/// Tokens after which a copy that was left is given up.
const PATIENCE: usize = 12;

/// How a copy goes on where it was left.
const INSERTED: usize = 0;
const REPLACED: usize = 1;
const CHANGED: usize = 2;

/// A place that is copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// Position of the next token.
    pub next: usize,
    /// Tokens that agreed since it was last left.
    run: usize,
    /// Whether it was ever left.
    left: bool,
    /// Tokens since it was left; 0 while it agrees.
    gap: usize,
    way: usize,
}

/// The copies, best first.
#[derive(Debug, Clone, Default)]
pub struct Copies(Vec<Copy>);

impl Copies {
    /// Starts one that goes on at `next`, unless there is one.
    pub fn start(&mut self, next: usize) {
        if let Some(at) = self.0.iter().position(|copy| copy.next == next && copy.gap == 0) {
            self.0[..=at].rotate_right(1);
            return;
        }
        self.0.insert(0, Copy { next, run: 0, left: false, gap: 0, way: INSERTED });
        self.0.truncate(MOST);
    }

    /// The copies that were left and may go on: where, and what kind of guess that is.
    pub fn candidates(&self) -> impl Iterator<Item = (usize, Kind)> + '_ {
        self.0.iter().filter(|copy| copy.left).map(|copy| {
            let kind = if copy.gap == 0 { Kind::resumed(copy.run) } else { Kind::left(copy.gap, copy.way) };
            (copy.next, kind)
        })
    }

    /// Follows the text by one token; `at` reads the copied text.
    pub fn advance(&mut self, token: Token, at: impl Fn(usize) -> Option<Token>) {
        let mut left = Vec::new();
        for copy in &mut self.0 {
            if at(copy.next) == Some(token) {
                *copy =
                    Copy { next: copy.next + 1, run: if copy.gap == 0 { copy.run + 1 } else { 1 }, gap: 0, ..*copy };
            } else if copy.gap > 0 {
                copy.gap += 1;
                copy.next += usize::from(copy.way == CHANGED);
            } else {
                *copy = Copy { run: 0, left: true, gap: 1, way: INSERTED, ..*copy };
                left.push(Copy { next: copy.next + 1, way: REPLACED, ..*copy });
            }
        }
        self.0.extend(left);
        self.0.retain(|copy| copy.gap <= PATIENCE && at(copy.next).is_some());
        self.0.truncate(MOST);
    }
}
