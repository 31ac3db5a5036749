//! Acceptance: which drafted tokens are the model's own, and where the output ends.
//!
//! Owns: one pure function. Refuses to know: everything else.

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

/// What a pass gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Tokens emitted, in order; at least one.
    pub emitted: Vec<Token>,
    /// How many of them were drafted.
    pub drafted: usize,
    /// Why the output ends with the last of them, if it does.
    pub finish: Option<Finish>,
}

/// Goes through a pass as plain decoding would: `choose(i)` is the token after row `i`, asked for in order and only while
/// the rows before were right. Ends with the first token that is not the drafted one, with the bonus behind the block,
/// with an end (looked for before the limit: an end that is the last token allowed is an end, not a cut), or after
/// `budget` tokens.
pub fn accept(
    drafted: &[Token],
    budget: usize,
    choose: &mut dyn FnMut(usize) -> Token,
    ends: &mut dyn FnMut(Token) -> Option<Finish>,
) -> Accepted {
    assert!(budget > 0, "a pass emits at least one token");
    let mut emitted = Vec::with_capacity(drafted.len() + 1);
    loop {
        let token = choose(emitted.len());
        let right = drafted.get(emitted.len()) == Some(&token);
        emitted.push(token);
        let full = (emitted.len() == budget).then_some(Finish::Length);
        let finish = ends(token).or(full);
        if finish.is_some() || !right {
            let drafted = emitted.len() - usize::from(!right);
            return Accepted { emitted, drafted, finish };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All strings of `len` tokens over a vocabulary of three.
    fn strings(len: usize) -> impl Iterator<Item = Vec<Token>> {
        (0..3usize.pow(len as u32)).map(move |n| (0..len).map(|i| (n / 3usize.pow(i as u32) % 3) as Token).collect())
    }

    /// Emitted tokens, how many were drafted, and the end, of a pass over `drafted` of which the model chose `choices`.
    fn pass(drafted: &[Token], choices: &[Token], budget: usize, end: Token) -> (Vec<Token>, usize, Option<Finish>) {
        let ends = &mut |t| (t == end).then_some(Finish::Stop);
        let accepted = accept(drafted, budget, &mut |i| choices[i], ends);
        (accepted.emitted, accepted.drafted, accepted.finish)
    }

    #[test]
    fn what_is_emitted_is_the_common_prefix_and_one_more_for_every_draft_and_choice() {
        for len in 0..=4 {
            for drafted in strings(len) {
                for choices in strings(len + 1) {
                    let (emitted, n, finish) = pass(&drafted, &choices, 99, 99);
                    assert_eq!((&emitted[..], finish), (&choices[..=n], None));
                    assert_eq!(drafted[..n], choices[..n]);
                    assert!(n == len || drafted[n] != choices[n]);
                }
            }
        }
    }

    #[test]
    fn ends_and_limits_are_those_of_going_token_by_token() {
        for len in 0..=3 {
            for (drafted, choices) in strings(len).flat_map(|d| strings(len + 1).map(move |c| (d.clone(), c))) {
                let common = drafted.iter().zip(&choices).take_while(|(d, c)| d == c).count();
                for budget in 1..=5 {
                    let mut expected = (0, None);
                    for &token in &choices[..=common] {
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
                    let (emitted, n, finish) = pass(&drafted, &choices, budget, 2);
                    assert_eq!((emitted.len(), finish), expected);
                    assert_eq!(n, common.min(emitted.len()));
                }
            }
        }
    }

    #[test]
    fn a_stop_is_seen_before_the_cap() {
        let block = [10, 11, 99, 20, 21];
        let choices = [10, 11, 99, 20, 21, 22];
        assert_eq!(pass(&block, &choices, 5, 99), (vec![10, 11, 99], 3, Some(Finish::Stop)));
        assert_eq!(pass(&block, &choices, 3, 99), (vec![10, 11, 99], 3, Some(Finish::Stop)));
        assert_eq!(pass(&block, &choices, 2, 99), (vec![10, 11], 2, Some(Finish::Length)));
    }

    #[test]
    fn rows_behind_an_end_or_a_wrong_token_are_not_even_looked_at() {
        let mut seen = Vec::new();
        accept(
            &[1, 5, 3],
            9,
            &mut |i| {
                seen.push(i);
                [1, 2, 3, 4][i]
            },
            &mut |_| None,
        );
        assert_eq!(seen, [0, 1]);
        seen.clear();
        accept(
            &[1, 2, 3],
            9,
            &mut |i| {
                seen.push(i);
                [1, 2, 3, 4][i]
            },
            &mut |t| (t == 2).then_some(Finish::Stop),
        );
        assert_eq!(seen, [0, 1]);
    }
}
