//! Acceptance: which drafted tokens are the model's own, and where the output ends.
//!
//! Owns: two pure functions. Refuses to know: everything else.

use draft::Token;
use serde::{Deserialize, Serialize};

/// Why an output ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended it with an end-of-text token.
    Stop,
    /// A stop string was completed.
    StopString,
    /// The token limit or the end of the context was reached.
    Length,
    /// The user interrupted.
    Interrupted,
}

impl Finish {
    /// The word users see.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::StopString => "stop string",
            Finish::Length => "length",
            Finish::Interrupted => "interrupted",
        }
    }
}

/// How many drafted tokens are what the model itself chose. `choices[i]` is its token after row `i`, so that
/// `choices[..=accepted]` are the tokens of this pass: the accepted drafts and the bonus.
pub fn accept(drafted: &[Token], choices: &[Token]) -> usize {
    assert_eq!(choices.len(), drafted.len() + 1, "a pass has a row for the last token and one for each draft");
    drafted.iter().zip(choices).take_while(|(d, c)| d == c).count()
}

/// How many of a pass's tokens are emitted, and why the output ends with the last of them, if it does. An end is looked
/// for before the limit: an end that is the last token allowed is an end, not a cut.
pub fn trim(tokens: &[Token], budget: usize, ends: &mut dyn FnMut(Token) -> Option<Finish>) -> (usize, Option<Finish>) {
    assert!(budget > 0 && !tokens.is_empty(), "a pass emits at least one token");
    for (i, &token) in tokens.iter().enumerate() {
        if let Some(finish) = ends(token) {
            return (i + 1, Some(finish));
        }
        if i + 1 == budget {
            return (i + 1, Some(Finish::Length));
        }
    }
    (tokens.len(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All strings of `len` tokens over a vocabulary of three.
    fn strings(len: usize) -> Vec<Vec<Token>> {
        (0..3usize.pow(len as u32))
            .map(|n| (0..len).map(|i| (n / 3usize.pow(i as u32) % 3) as Token).collect())
            .collect()
    }

    #[test]
    fn the_accepted_tokens_are_the_common_prefix_for_every_draft_and_choice() {
        for len in 0..=4 {
            for drafted in strings(len) {
                for choices in strings(len + 1) {
                    let n = accept(&drafted, &choices);
                    assert_eq!(drafted[..n], choices[..n]);
                    assert!(n == len || drafted[n] != choices[n]);
                }
            }
        }
    }

    #[test]
    fn trimming_equals_going_token_by_token() {
        for len in 1..=4 {
            for tokens in strings(len) {
                for budget in 1..=5 {
                    let mut expected = (0, None);
                    for &token in &tokens {
                        expected.0 += 1;
                        if token == 2 {
                            expected.1 = Some(Finish::Stop);
                        } else if expected.0 == budget {
                            expected.1 = Some(Finish::Length);
                        }
                        if expected.1.is_some() {
                            break;
                        }
                    }
                    let ends = &mut |t| (t == 2).then_some(Finish::Stop);
                    assert_eq!(trim(&tokens, budget, ends), expected);
                }
            }
        }
    }

    #[test]
    fn a_stop_is_seen_before_the_cap() {
        let ends = &mut |t| (t == 99).then_some(Finish::Stop);
        assert_eq!(trim(&[10, 11, 99, 20, 21, 22], 5, ends), (3, Some(Finish::Stop)));
        assert_eq!(trim(&[10, 11, 99], 3, ends), (3, Some(Finish::Stop)));
        assert_eq!(trim(&[10, 11, 12], 2, ends), (2, Some(Finish::Length)));
    }

    #[test]
    fn tokens_after_an_end_are_not_even_looked_at() {
        let mut seen = Vec::new();
        trim(&[1, 2, 3], 5, &mut |t| {
            seen.push(t);
            (t == 2).then_some(Finish::Stop)
        });
        assert_eq!(seen, [1, 2]);
    }
}
