//! Copies in progress: places in the text that its end follows, token for token but for changes.
//!
//! Owns: where each copy goes on, and for how long after a change. Refuses to know: how the place was found, how far it is
//! trusted.
//!
//! Edits copy a text but for a token here and there. Behind a changed token the longest match is lost for as long as that
//! token is part of it. So a copy that was left stays a candidate for the next tokens: behind the token that was expected.

use crate::Token;
use crate::trust::Evidence;

/// Copies kept at a time.
const MOST: usize = 4;
/// Tokens after which a copy that was left is given up.
const PATIENCE: usize = 2;

/// A place that is copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Copy {
    /// Position of the next token.
    next: usize,
    /// Tokens that agreed since it was resumed; nothing if it was never left.
    run: Option<usize>,
    /// Tokens since it was left; 0 while it agrees.
    gap: usize,
}

/// The copies, the latest match first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Copies(Vec<Copy>);

impl Copies {
    /// Starts one that goes on at `next`, unless there is one.
    pub fn start(&mut self, next: usize) {
        if let Some(at) = self.0.iter().position(|copy| copy.next == next && copy.gap == 0) {
            self.0[..=at].rotate_right(1);
            return;
        }
        self.0.insert(0, Copy { next, run: None, gap: 0 });
        self.0.truncate(MOST);
    }

    /// Where the copies that were left go on, and what is true of it.
    pub fn guesses(&self) -> impl Iterator<Item = (usize, Evidence)> + '_ {
        self.0.iter().filter_map(|copy| {
            let evidence = match (copy.gap, copy.run) {
                (0, run) => Evidence::resumed(run?),
                (gap, _) => Evidence::left(gap),
            };
            Some((copy.next, evidence))
        })
    }

    /// Follows the text by one token; `at` reads the copied text.
    pub fn advance(&mut self, token: Token, at: impl Fn(usize) -> Option<Token>) {
        for copy in &mut self.0 {
            *copy = match (at(copy.next) == Some(token), copy.gap) {
                (true, 0) => Copy { next: copy.next + 1, run: copy.run.map(|run| run + 1), gap: 0 },
                (true, _) => Copy { next: copy.next + 1, run: Some(1), gap: 0 },
                (false, 0) => Copy { next: copy.next + 1, run: Some(0), gap: 1 },
                (false, gap) => Copy { gap: gap + 1, ..*copy },
            };
        }
        self.0.retain(|copy| copy.gap <= PATIENCE && at(copy.next).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: [Token; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

    /// Where the copies of `SOURCE` that were left go on, after a copy of its first two tokens and then `text`.
    fn left_at(text: &[Token]) -> Vec<usize> {
        let mut copies = Copies::default();
        copies.start(2);
        text.iter().for_each(|&token| copies.advance(token, |at| SOURCE.get(at).copied()));
        copies.guesses().map(|(next, _)| next).collect()
    }

    #[test]
    fn a_copy_that_was_left_goes_on_behind_the_changed_token() {
        assert_eq!(left_at(&[3, 4]), []);
        assert_eq!(left_at(&[3, 50]), [4]);
        assert_eq!(left_at(&[3, 50, 51]), [4]);
        assert_eq!(left_at(&[3, 50, 51, 5]), [5]);
        assert_eq!(left_at(&[50, 4, 51, 6]), [6]);
    }

    #[test]
    fn a_copy_is_given_up_in_the_end() {
        assert_eq!(left_at(&[3, 50, 51, 52]), []);
        assert_eq!(left_at(&[3, 50, 5, 6, 7, 8, 9]), []);
    }

    #[test]
    fn the_oldest_of_too_many_copies_goes() {
        let mut copies = Copies::default();
        (0..6).for_each(|next| copies.start(next));
        copies.start(3);
        copies.advance(77, |at| SOURCE.get(at).copied());
        assert_eq!(copies.guesses().map(|(next, _)| next).collect::<Vec<_>>(), [4, 6, 5, 3]);
    }
}
