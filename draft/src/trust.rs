//! How far a kind of guess is to be trusted.
//!
//! Owns: the kinds, what was true of them before any text, and the decayed counts. Refuses to know: tokens.

use crate::automaton::Continuation;

/// What one more trial leaves of the earlier ones: a memory of about 64 trials.
const MEMORY: f64 = 1.0 - 1.0 / 64.0;
/// Trials that the estimate before any trial is worth.
const IMAGINED: f64 = 4.0;

/// Match lengths that are told apart: up to these, and beyond.
const LENGTHS: [usize; 9] = [1, 2, 3, 4, 6, 9, 14, 23, 47];
/// Tokens of a resumed copy, or since one was left, that are told apart: up to these, and beyond.
const STEPS: [usize; 4] = [1, 2, 4, 8];

/// A kind of guess: those of one kind are trusted alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind(usize);

const BANDS: usize = LENGTHS.len() + 1;
const RUNS: usize = STEPS.len() + 1;
/// Agreements of a context, and texts.
const MATCHES: usize = BANDS * 4 * 2;
const KINDS: usize = MATCHES + RUNS + 3 * RUNS;

fn band(bounds: &[usize], value: usize) -> usize {
    bounds.iter().position(|&bound| value <= bound).unwrap_or(bounds.len())
}

impl Kind {
    /// A match of `length` tokens in this text, or in an earlier one.
    pub fn matching(length: usize, found: &Continuation, earlier: bool) -> Kind {
        let agreement = match found {
            Continuation { sole: true, visits: 0..=1, .. } => 0,
            Continuation { sole: true, .. } => 1,
            Continuation { count, visits, .. } if 2 * count > *visits => 2,
            _ => 3,
        };
        Kind((band(&LENGTHS, length) * 4 + agreement) * 2 + usize::from(earlier))
    }

    /// A copy that was left and goes on since `run` tokens.
    pub fn resumed(run: usize) -> Kind {
        Kind(MATCHES + band(&STEPS, run))
    }

    /// A copy that was left `gap` tokens ago and goes on `skipped` tokens later: none, one, or as many as were written.
    pub fn left(gap: usize, way: usize) -> Kind {
        Kind(MATCHES + RUNS + way * RUNS + band(&STEPS, gap))
    }

    /// What was right in this share of trials on other texts.
    fn prior(self) -> f64 {
        if self.0 < MATCHES {
            let length = self.0 / 8;
            let agreement = self.0 / 2 % 4;
            let base: f64 = [0.35, 0.55, 0.66, 0.73, 0.8, 0.86, 0.9, 0.94, 0.96, 0.97][length];
            return [base, base + (1.0 - base) * 0.4, base * 0.85, base * 0.6][agreement];
        }
        if self.0 < MATCHES + RUNS {
            return [0.7, 0.8, 0.85, 0.9, 0.95][self.0 - MATCHES];
        }
        let left = self.0 - MATCHES - RUNS;
        [[0.2, 0.15, 0.15, 0.1, 0.05], [0.5, 0.3, 0.2, 0.1, 0.05], [0.5, 0.2, 0.15, 0.1, 0.05]][left / RUNS]
            [left % RUNS]
    }
}

/// Share of right guesses by kind, older trials fading.
#[derive(Debug, Clone)]
pub struct Trust(Vec<Trials>);

#[derive(Debug, Clone, Copy, Default)]
struct Trials {
    right: f64,
    tried: f64,
}

impl Trust {
    /// Nothing learnt.
    pub fn new() -> Trust {
        Trust(vec![Trials::default(); KINDS])
    }

    /// The chance that a guess of this kind is right.
    pub fn estimate(&self, kind: Kind) -> f64 {
        let Trials { right, tried } = self.0[kind.0];
        (right + IMAGINED * kind.prior()) / (tried + IMAGINED)
    }

    /// Counts a trial.
    pub fn learn(&mut self, kind: Kind, right: bool) {
        let Trials { right: rights, tried } = &mut self.0[kind.0];
        *rights = *rights * MEMORY + f64::from(u8::from(right));
        *tried = *tried * MEMORY + 1.0;
    }

    /// Forgets all trials.
    pub fn clear(&mut self) {
        self.0.fill(Trials::default());
    }
}
