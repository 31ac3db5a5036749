//! Another run beside the plain one, row by row.
//!
//! Owns: what is compared and how differences are counted. Refuses to know: who drafted.

use draft::Token;
use serde::Serialize;

use super::plain::{Limits, Plain, state_hash};
use crate::backend::Backend;
use crate::cli::setup::About;
use crate::engine::{Finish, Sequence};

/// A token and its logit in one of two runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Choice {
    /// The token chosen.
    pub token: Token,
    /// Its logit.
    pub logit: f32,
}

/// What differed first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "differs", rename_all = "snake_case")]
pub enum What {
    /// The logits behind a token, and perhaps the token.
    Row {
        /// The number of the generated token, from 0.
        generated: usize,
        /// Its position in prompt and output together.
        position: usize,
        /// Plain decoding's token.
        plain: Choice,
        /// The other run's token.
        other: Choice,
        /// Bits of the row's logits that differ.
        bits: u64,
        /// Distance between plain decoding's two largest logits.
        margin: f32,
    },
    /// How many tokens there are, or why they end.
    Finish {
        /// Plain decoding's number of tokens.
        plain_tokens: usize,
        /// Why plain decoding ends.
        plain: Finish,
        /// The other run's number of tokens.
        other_tokens: usize,
        /// Why the other run ends.
        other: Finish,
    },
    /// The state after the last token.
    State {
        /// Tokens generated when the states were compared.
        generated: usize,
    },
}

/// Counts over runs, and the first difference among them.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Runs compared.
    pub runs: usize,
    /// Rows of logits compared.
    pub rows: usize,
    /// Bits of them that differ.
    pub bits: u64,
    /// Runs whose state differs at the end, or that never reached a comparable end.
    pub states: usize,
    /// What differed first.
    pub first: Option<What>,
}

impl Tally {
    /// Counts a difference; only the first is kept.
    fn found(&mut self, what: What) {
        self.first.get_or_insert(what);
    }

    /// Compares the logits behind token `i`; whether the tokens are the same.
    pub fn row(&mut self, plain: &Plain, i: usize, token: Token, logits: &[f32]) -> bool {
        let expected = plain.logits(i);
        assert_eq!(expected.len(), logits.len(), "both runs have one vocabulary");
        let differing = |(a, b): (&f32, &f32)| u64::from((a.to_bits() ^ b.to_bits()).count_ones());
        let bits: u64 = expected.iter().zip(logits).map(differing).sum();
        self.rows += 1;
        self.bits += bits;
        let chosen = plain.tokens[i];
        if bits > 0 || token != chosen {
            let top = plain.top(i, 2);
            self.found(What::Row {
                generated: i,
                position: plain.prompt.len() + i,
                plain: Choice { token: chosen, logit: expected[chosen as usize] },
                other: Choice { token, logit: logits[token as usize] },
                bits,
                margin: margin(&top),
            });
        }
        token == chosen
    }
}

/// The distance between the two largest of `top`; 0 if there is only one.
pub fn margin(top: &[(Token, f32)]) -> f32 {
    match top {
        [(_, first), (_, second), ..] => first - second,
        _ => 0.0,
    }
}

/// A run to be compared: how far it may go, and where it starts in the plain run's output.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    /// How far it may go.
    pub limits: Limits,
    /// Tokens of the plain output that are already part of the sequence's prompt.
    pub from: usize,
}

/// Generates with `sequence`, whose prompt is evaluated, and compares every row, the end and the state.
pub fn compare<B: Backend>(
    about: &About,
    plain: &Plain,
    course: Course,
    sequence: &mut Sequence<B>,
    tally: &mut Tally,
) {
    let (tokens, finish) = plain.expected(course.limits);
    let mut done = course.from;
    let mut logits = Vec::with_capacity(about.vocab);
    tally.runs += 1;
    let ended = loop {
        let mut seen = done;
        let step = sequence.step(course.limits.tokens - done, &mut |token| {
            seen += 1;
            let end = about.is_eog(token).then_some(Finish::Stop);
            let stop = (course.limits.stop_at == Some(seen)).then_some(Finish::StopString);
            stop.or(end)
        });
        // Tokens beyond the plain run's end have nothing to be compared with; their number is told by the finish.
        for (row, &token) in step.emitted.iter().enumerate().take(tokens.saturating_sub(done)) {
            logits.clear();
            sequence.logits(row, &mut logits);
            if !tally.row(plain, done + row, token, &logits) {
                tally.states += 1;
                return;
            }
        }
        done += step.emitted.len();
        match step.finish {
            Some(finish) => break finish,
            None if done > tokens => break Finish::Length,
            None => {}
        }
    };
    if (done, ended) != (tokens, finish) {
        tally.states += 1;
        tally.found(What::Finish { plain_tokens: tokens, plain: finish, other_tokens: done, other: ended });
    } else if state_hash(sequence) != plain.state(done) {
        tally.states += 1;
        tally.found(What::State { generated: done });
    }
}

#[cfg(test)]
mod tests {
    use super::super::manner::Manner;
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::cli::args::{KvArg, ModelArgs};
    use crate::cli::device::{Device, Processor};
    use crate::cli::setup::{self, Loaded};
    use crate::engine::Settings;

    /// Generated tokens.
    const TOKENS: usize = 5;

    fn loaded() -> Loaded<Cpu> {
        let args = ModelArgs {
            model: None,
            device: Device::Cpu,
            split: Vec::new(),
            threads: Some(1),
            ctx: None,
            kv: KvArg::F16,
            isa: None,
        };
        setup::load(&args, &Processor { args: &args }).unwrap()
    }

    /// Counts of a run of the model itself beside `plain`.
    fn count(loaded: &Loaded<Cpu>, plain: &Plain) -> Tally {
        let limits = Limits { context: plain.prompt.len() + TOKENS, tokens: TOKENS, stop_at: None };
        let settings = Settings { context: limits.context, ..loaded.about.settings };
        let mut sequence = Sequence::new(loaded.model.clone(), settings, None).unwrap();
        sequence.restore(&plain.prompt, &plain.start).unwrap();
        let mut tally = Tally::default();
        compare(&loaded.about, plain, Course { limits, from: 0 }, &mut sequence, &mut tally);
        tally
    }

    #[test]
    fn every_kind_of_difference_is_seen() {
        let loaded = loaded();
        let prompt =
            setup::chat_prompt(&loaded.about, "Write these words in capitals.\n\norder, block, state").unwrap();
        let run = || Plain::run(&loaded, &prompt, prompt.len() + TOKENS, TOKENS, &Manner::greedy()).unwrap();
        let same = count(&loaded, &run());
        assert_eq!((same.rows, same.bits, same.states, same.first), (TOKENS, 0, 0, None));

        let mut bit = run();
        let at = 3 * loaded.model.vocab() + 17;
        bit.logits[at] = f32::from_bits(bit.logits[at].to_bits() ^ 1);
        let seen = count(&loaded, &bit);
        assert_eq!((seen.rows, seen.bits, seen.states), (TOKENS, 1, 0));
        assert!(matches!(seen.first, Some(What::Row { generated: 3, bits: 1, .. })));

        let mut token = run();
        token.tokens[2] ^= 1;
        let seen = count(&loaded, &token);
        assert_eq!((seen.rows, seen.bits, seen.states), (3, 0, 1));
        assert!(matches!(seen.first, Some(What::Row { generated: 2, .. })));

        let mut state = run();
        state.states[TOKENS] ^= 1;
        let seen = count(&loaded, &state);
        assert_eq!((seen.bits, seen.states), (0, 1));
        assert_eq!(seen.first, Some(What::State { generated: TOKENS }));

        let mut short = run();
        short.tokens.truncate(4);
        short.finish = Finish::Stop;
        let seen = count(&loaded, &short);
        assert_eq!((seen.rows, seen.bits, seen.states), (4, 0, 1));
        assert!(matches!(seen.first, Some(What::Finish { plain_tokens: 4, other_tokens: TOKENS, .. })));
    }
}
