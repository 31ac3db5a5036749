//! How far a guess is to be trusted.
//!
//! Owns: what is looked at in a guess, what each of it is worth, and how often such guesses were right. Refuses to know:
//! where guesses come from.
//!
//! Logistic regression over what is true of the guess, learnt on line, gives a first chance; how often guesses of about
//! that chance were right gives the chance that is told (an adaptive probability map, as in data compression). The first
//! weights are rounded shares of right guesses in edited code, records and prose; weights fitted to such texts drafted no
//! better than rounded ones.

use crate::Token;
use crate::automaton::Continuation;

/// How much one trial moves the weights.
const RATE: f64 = 0.2;

/// Match lengths that are told apart: up to these, and beyond.
const LENGTHS: [usize; 9] = [1, 2, 3, 4, 6, 9, 14, 23, 47];
/// The chance that the only known continuation of a match that long is right.
const RIGHT: [f64; LENGTHS.len() + 1] = [0.27, 0.6, 0.7, 0.75, 0.84, 0.86, 0.9, 0.93, 0.96, 0.98];
/// What it is worth that the continuation was: seen once; seen more often and never another; the last and the usual one of
/// several; the last one only; the usual one only.
const AGREEMENT: [f64; 5] = [0.0, 1.0, 0.0, -2.0, -2.0];
/// Tokens since a copy was resumed that are told apart, and the chance that it goes on.
const RUNS: [usize; 4] = [1, 2, 4, 8];
const RESUMES: [f64; RUNS.len() + 1] = [0.7, 0.8, 0.85, 0.9, 0.95];
/// What it is worth that a copy was left one token ago, and longer ago.
const LEAVES: [f64; 2] = [0.0, -3.0];
/// What it is worth that a match is in an earlier text: one of another kind must not cost much.
const STRANGE: f64 = -1.4;

const MATCHED: usize = 0;
const RESUMED: usize = MATCHED + RIGHT.len() * AGREEMENT.len();
const LEFT: usize = RESUMED + RESUMES.len();
const EARLIER: usize = LEFT + LEAVES.len();
const SHORTER: usize = EARLIER + 1;
const BEHIND: usize = SHORTER + 5;
/// Tokens share that many weights.
const HASHED: usize = 1 << HASH_BITS;
const HASH_BITS: u32 = 10;
const GUESSED: usize = BEHIND + HASHED;
const WEIGHTS: usize = GUESSED + HASHED;

/// What is true of a guess: indices of weights.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Evidence {
    of: [u16; 6],
    count: usize,
}

impl Evidence {
    /// The guess is what followed a match of `length` tokens, the last time or else usually.
    pub fn matching(length: usize, found: &Continuation, last: bool, usual: bool) -> Evidence {
        let agreement = match found {
            _ if !last => 4,
            Continuation { sole: true, visits: 0..=1, .. } => 0,
            Continuation { sole: true, .. } => 1,
            _ if usual => 2,
            _ => 3,
        };
        Evidence::default().and(MATCHED + band(&LENGTHS, length) * AGREEMENT.len() + agreement)
    }

    /// The guess is where a copy goes on that was left and resumed `run` tokens ago.
    pub fn resumed(run: usize) -> Evidence {
        Evidence::default().and(RESUMED + band(&RUNS, run))
    }

    /// The guess is where a copy may go on that was left `gap` tokens ago.
    pub fn left(gap: usize) -> Evidence {
        Evidence::default().and(LEFT + usize::from(gap > 1))
    }

    /// The match is in an earlier text.
    pub fn earlier(self) -> Evidence {
        self.and(EARLIER)
    }

    /// A shorter context than the match was followed `visits` times, `count` times by the guess.
    pub fn shorter(self, count: u32, visits: u32) -> Evidence {
        let share = match count {
            _ if visits == 0 => 0,
            _ if count >= visits => 1,
            _ if 2 * u64::from(count) > u64::from(visits) => 2,
            1.. => 3,
            0 => 4,
        };
        self.and(SHORTER + share)
    }

    /// The guess is `guess`, and comes behind `before`.
    pub fn tokens(self, before: [Token; 2], guess: Token) -> Evidence {
        let pair = before[0].wrapping_mul(31).wrapping_add(before[1]);
        self.and(BEHIND + hash(before[1])).and(BEHIND + hash(pair)).and(GUESSED + hash(guess))
    }

    fn and(mut self, weight: usize) -> Evidence {
        self.of[self.count] = weight as u16;
        self.count += 1;
        self
    }

    fn weights(&self) -> impl Iterator<Item = usize> + '_ {
        self.of[..self.count].iter().map(|&weight| usize::from(weight))
    }
}

/// The band that a value falls into: up to each bound, and beyond.
fn band(bounds: &[usize], value: usize) -> usize {
    bounds.iter().position(|&bound| value <= bound).unwrap_or(bounds.len())
}

/// The upper bits of the product with 2^32 over the golden ratio.
fn hash(token: Token) -> usize {
    (token.wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize
}

/// What was learnt of guesses that turned out right or wrong.
#[derive(Debug, Clone)]
pub(crate) struct Trust {
    weights: Vec<f64>,
    bins: Vec<Bin>,
}

impl Trust {
    /// Nothing learnt.
    pub fn new() -> Trust {
        let mut trust = Trust { weights: Vec::new(), bins: Vec::new() };
        trust.clear();
        trust
    }

    /// The first chance that a guess is right, from what is true of it: good enough to compare guesses.
    pub fn estimate(&self, evidence: &Evidence) -> f64 {
        sigmoid(evidence.weights().map(|weight| self.weights[weight]).sum())
    }

    /// The chance that a guess of this first chance is right.
    pub fn calibrated(&self, estimate: f64) -> f64 {
        let (low, share) = Bin::of(estimate);
        self.bins[low].chance() * (1.0 - share) + self.bins[low + 1].chance() * share
    }

    /// Learns whether a guess was right.
    pub fn learn(&mut self, evidence: &Evidence, right: bool) {
        let step = RATE * (f64::from(u8::from(right)) - self.estimate(evidence));
        evidence.weights().for_each(|weight| self.weights[weight] += step);
    }

    /// Learns whether the best guess, of this first chance, was right.
    pub fn learn_best(&mut self, estimate: f64, right: bool) {
        let (low, share) = Bin::of(estimate);
        self.bins[low].learn(right, 1.0 - share);
        self.bins[low + 1].learn(right, share);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.weights.clear();
        self.weights.extend(RIGHT.iter().flat_map(|&right| AGREEMENT.map(|worth| logit(right) + worth)));
        self.weights.extend(RESUMES.map(logit));
        self.weights.extend(LEAVES);
        self.weights.push(STRANGE);
        self.weights.resize(WEIGHTS, 0.0);
        self.bins.clear();
        self.bins.extend((0..=BINS).map(Bin::new));
    }
}

/// How often guesses of about one first chance were right, older trials fading.
#[derive(Debug, Clone, Copy)]
struct Bin {
    right: f64,
    tried: f64,
    prior: f64,
}

/// Bins, from a logit of [`LOWEST`] on, one apart.
const BINS: usize = 10;
const LOWEST: f64 = -4.0;
/// Nothing is surer than that before it is learnt.
const SUREST: f64 = 0.98;
/// Trials that the first chance itself is worth.
const IMAGINED: f64 = 24.0;
/// What one more trial leaves of the earlier ones.
const MEMORY: f64 = 1.0 - 1.0 / 128.0;

impl Bin {
    fn new(index: usize) -> Bin {
        Bin { right: 0.0, tried: 0.0, prior: sigmoid(LOWEST + index as f64).min(SUREST) }
    }

    /// The bin below an estimate, and its share of the way to the next one.
    fn of(estimate: f64) -> (usize, f64) {
        let place = (logit(estimate) - LOWEST).clamp(0.0, BINS as f64 - 1e-9);
        (place as usize, place.fract())
    }

    fn chance(&self) -> f64 {
        (self.right + IMAGINED * self.prior) / (self.tried + IMAGINED)
    }

    fn learn(&mut self, right: bool, share: f64) {
        let kept = MEMORY.powf(share);
        self.right = self.right * kept + share * f64::from(u8::from(right));
        self.tried = self.tried * kept + share;
    }
}

fn logit(chance: f64) -> f64 {
    (chance / (1.0 - chance)).ln()
}

fn sigmoid(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(count: u32, visits: u32) -> Continuation {
        Continuation { next: 0, usual: 0, count, visits, sole: count == visits }
    }

    #[test]
    fn longer_matches_and_agreeing_ones_are_trusted_more() {
        let trust = Trust::new();
        let chance =
            |length, count, visits| trust.estimate(&Evidence::matching(length, &found(count, visits), true, true));
        assert!((1..60).all(|length| chance(length, 1, 1) <= chance(length + 1, 1, 1)));
        assert!(chance(3, 5, 5) > chance(3, 1, 1));
        assert!(trust.estimate(&Evidence::matching(3, &found(2, 3), true, false)) < chance(3, 1, 1));
    }

    #[test]
    fn trials_move_the_chance_and_are_forgotten_on_request() {
        let mut trust = Trust::new();
        let evidence = Evidence::resumed(1).tokens([1, 2], 3);
        let first = trust.calibrated(trust.estimate(&evidence));
        for _ in 0..200 {
            trust.learn_best(trust.estimate(&evidence), false);
            trust.learn(&evidence, false);
        }
        assert!(trust.calibrated(trust.estimate(&evidence)) < 0.05);
        trust.clear();
        assert_eq!(trust.calibrated(trust.estimate(&evidence)), first);
    }

    #[test]
    fn chances_stay_between_impossible_and_certain() {
        let mut trust = Trust::new();
        for estimate in [0.0, 1e-300, 0.5, 1.0 - 1e-16, 1.0] {
            assert!((0.0..=SUREST).contains(&trust.calibrated(estimate)), "{estimate}");
        }
        let evidence =
            Evidence::matching(99, &found(9, 9), true, true).earlier().shorter(9, 9).tokens([u32::MAX; 2], 0);
        for right in [true, false] {
            for _ in 0..10_000 {
                trust.learn_best(trust.estimate(&evidence), right);
                trust.learn(&evidence, right);
            }
            assert!((0.0..=1.0).contains(&trust.calibrated(trust.estimate(&evidence))));
        }
    }
}
