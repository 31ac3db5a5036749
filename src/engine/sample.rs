//! The choice of a token.
//!
//! Owns: what becomes of logits on the way to a token, step by step. Refuses to know: where logits come from, and what
//! was drafted.
//!
//! The token at position t is a pure function of the logits, the tokens before t, the settings and (seed, t). Nothing is
//! carried from one choice to the next, so a drafted token is verified by making the choice that plain decoding makes.
//! Probabilities are f64, exp is libm's own code, sums run in a fixed order: every machine makes the same choice.
//!
//! In this order: bias, penalties (repetition, then frequency and presence), the constraint, temperature, top-k, top-p,
//! min-p. What is left is drawn from in the order of rank.

mod logprobs;
mod philox;
mod ranked;
mod settings;

use draft::Token;

use crate::constraint::Mask;
use logprobs::weight;
use ranked::Ranked;

pub use logprobs::{Logprobs, logprobs};
pub use settings::{PENALTY_WINDOW, Sampling};

/// Chooses tokens. All that it keeps beside its settings is room to work in.
#[derive(Debug)]
pub struct Sampler {
    settings: Sampling,
    /// Logits after bias and penalties.
    adjusted: Vec<f32>,
    /// How often each token stands in the window; all 0 between choices.
    counts: Vec<u32>,
    ranked: Ranked,
    /// By rank: the weights up to and with this one.
    sums: Vec<f64>,
}

impl Sampler {
    /// A sampler with settings that [`Sampling::validate`] accepts.
    pub fn new(settings: Sampling) -> Sampler {
        let (adjusted, counts, sums) = (Vec::new(), Vec::new(), Vec::new());
        Sampler { settings, adjusted, counts, ranked: Ranked::default(), sums }
    }

    /// Its settings.
    pub fn settings(&self) -> &Sampling {
        &self.settings
    }

    /// The token that follows `history` (prompt and output; its length is the token's position), given the model's
    /// `logits` after it and what is `allowed` there (everything if `None`). A NaN is never chosen; where no logit is
    /// above −∞, the lowest allowed token is.
    pub fn choose(&mut self, logits: &[f32], history: &[Token], allowed: Option<&Mask>) -> Token {
        assert!(!logits.is_empty(), "there are no logits to choose from");
        assert!(allowed.is_none_or(|mask| !mask.is_empty()), "no token is allowed");
        let mut adjusted = std::mem::take(&mut self.adjusted);
        let logits = match self.settings.changes_logits() {
            true => {
                self.adjust(logits, history, &mut adjusted);
                &adjusted[..]
            }
            false => logits,
        };
        let chosen = match self.settings.temperature == 0.0 {
            true => best(candidates(logits, allowed)),
            false => self.draw(logits, history.len(), allowed),
        };
        self.adjusted = adjusted;
        let lowest = || allowed.and_then(|mask| mask.tokens().next()).unwrap_or(0);
        chosen.unwrap_or_else(lowest)
    }

    /// Bias and penalties.
    fn adjust(&mut self, logits: &[f32], history: &[Token], adjusted: &mut Vec<f32>) {
        let s = &self.settings;
        adjusted.clear();
        adjusted.extend_from_slice(logits);
        for &(token, bias) in &s.logit_bias {
            if let Some(logit) = adjusted.get_mut(token as usize) {
                *logit += bias;
            }
        }
        if !s.penalizes() {
            return;
        }
        self.counts.resize(logits.len(), 0);
        let window = &history[history.len().saturating_sub(s.penalty_window)..];
        let window = window.iter().map(|&token| token as usize).filter(|&token| token < logits.len());
        window.clone().for_each(|token| self.counts[token] += 1);
        for token in window {
            let count = std::mem::take(&mut self.counts[token]);
            if count > 0 {
                let logit = adjusted[token];
                let scaled = if logit > 0.0 { logit / s.repetition_penalty } else { logit * s.repetition_penalty };
                adjusted[token] = scaled - (count as f32 * s.frequency_penalty + s.presence_penalty);
            }
        }
    }

    /// Temperature, top-k, top-p, min-p, and the draw. `None` if there is no candidate.
    fn draw(&mut self, logits: &[f32], position: usize, allowed: Option<&Mask>) -> Option<Token> {
        self.ranked.fill(candidates(logits, allowed));
        let max = self.ranked.unordered().fold(f32::NEG_INFINITY, f32::max);
        let temperature = f64::from(self.settings.temperature);
        let weigh = |logit: f32| weight(logit, max, temperature);
        let uniform = philox::uniform(self.settings.seed, position as u64);
        self.ranked.keep(if self.settings.top_k > 0 { self.settings.top_k } else { usize::MAX });
        self.sums.clear();
        let (top_p, min_p) = (f64::from(self.settings.top_p), self.settings.min_p);
        let target = if top_p < 1.0 {
            let limit = top_p * self.total(weigh);
            uniform * self.walk(weigh, |sum| sum >= limit)
        } else if min_p > 0.0 {
            uniform * self.walk(weigh, |_| false)
        } else {
            // Nothing is cut off, so ranks are made only up to the drawn one.
            let target = uniform * self.total(weigh);
            self.walk(weigh, |sum| sum > target);
            target
        };
        let rank = self.sums.partition_point(|&sum| sum <= target);
        // Rounding may leave the target just behind the last sum.
        self.ranked.get(rank.min(self.sums.len().saturating_sub(1))).map(|(token, _)| token)
    }

    /// The sum of the weights that top-k left: in the order of rank if it is in force; in that of the tokens if not, so
    /// that their ranks need not be made.
    fn total(&mut self, weigh: impl Fn(f32) -> f64) -> f64 {
        match self.settings.top_k {
            0 => self.ranked.unordered().map(weigh).sum(),
            _ => (0..).map_while(|rank| self.ranked.get(rank)).map(|(_, logit)| weigh(logit)).sum(),
        }
    }

    /// Sums weights by rank until `enough`, or until the next is under min-p or nothing. Gives the last sum.
    fn walk(&mut self, weigh: impl Fn(f32) -> f64, enough: impl Fn(f64) -> bool) -> f64 {
        let min_p = f64::from(self.settings.min_p);
        let mut sum = 0.0;
        while let Some((_, logit)) = self.ranked.get(self.sums.len()) {
            let weight = weigh(logit);
            if weight < min_p || weight == 0.0 {
                break;
            }
            sum += weight;
            self.sums.push(sum);
            if enough(sum) {
                break;
            }
        }
        sum
    }
}

/// The tokens that may be chosen, ascending, with their logits.
fn candidates<'a>(logits: &'a [f32], allowed: Option<&'a Mask>) -> impl Iterator<Item = (Token, f32)> + 'a {
    let all = allowed.is_none().then(|| (0..).zip(logits.iter().copied()));
    let some = allowed.map(|mask| mask.tokens().map_while(|t| Some((t, *logits.get(t as usize)?))));
    all.into_iter().flatten().chain(some.into_iter().flatten())
}

/// The token with the largest logit, the first one among equals; `None` if no logit is above −∞.
fn best(candidates: impl Iterator<Item = (Token, f32)>) -> Option<Token> {
    let mut best = (None, f32::NEG_INFINITY);
    candidates.for_each(|(token, logit)| {
        if logit > best.1 {
            best = (Some(token), logit);
        }
    });
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSITIONS: usize = 400;

    /// Logits that look like a model's: many small, few large, ties.
    fn logits(n: usize, row: u64) -> Vec<f32> {
        let value = |i: usize| philox::uniform(row, i as u64 + 1_000_000).powi(6) * 12.0 - 3.0;
        (0..n).map(|i| (value(i) * 8.0).round() as f32 / 8.0).collect()
    }

    fn hot() -> Sampling {
        Sampling { temperature: 0.9, seed: 5, ..Sampling::default() }
    }

    fn history(len: usize) -> Vec<Token> {
        (0..len as Token).map(|i| i * i % 23).collect()
    }

    /// The tokens chosen at positions 0, 1, 2 and so on, each with logits of its own.
    fn choices(settings: &Sampling, n: usize, allowed: Option<&Mask>) -> Vec<Token> {
        let mut sampler = Sampler::new(settings.clone());
        let all = history(POSITIONS);
        (0..POSITIONS).map(|t| sampler.choose(&logits(n, t as u64), &all[..t], allowed)).collect()
    }

    /// The definition, by a full sort and with nothing kept between choices. Settings without bias and penalties.
    fn by_definition(s: &Sampling, logits: &[f32], position: usize) -> Token {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap().then(a.cmp(&b)));
        if s.top_k > 0 {
            order.truncate(s.top_k);
        }
        let max = f64::from(logits[order[0]]);
        let weights: Vec<f64> =
            order.iter().map(|&i| libm::exp((f64::from(logits[i]) - max) / f64::from(s.temperature))).collect();
        let total: f64 = weights.iter().sum();
        let mut kept = 0;
        let mut mass = 0.0;
        while kept < weights.len()
            && (kept == 0 || mass / total < f64::from(s.top_p) || s.top_p == 1.0)
            && weights[kept] >= f64::from(s.min_p)
        {
            mass += weights[kept];
            kept += 1;
        }
        let target = philox::uniform(s.seed, position as u64) * mass;
        let mut sum = 0.0;
        for (&i, weight) in order[..kept].iter().zip(&weights) {
            sum += weight;
            if sum > target {
                return i as Token;
            }
        }
        order[kept - 1] as Token
    }

    #[test]
    fn choices_are_those_of_the_definition() {
        for n in [1, 2, 50, 700] {
            for (top_k, top_p, min_p) in
                [(0, 1.0, 0.0), (7, 1.0, 0.0), (0, 0.8, 0.0), (0, 1.0, 0.05), (20, 0.9, 0.02), (9999, 0.5, 0.3)]
            {
                for temperature in [0.05, 0.7, 1.0, 3.0] {
                    let settings = Sampling { temperature, top_k, top_p, min_p, ..hot() };
                    let expected: Vec<Token> =
                        (0..POSITIONS).map(|t| by_definition(&settings, &logits(n, t as u64), t)).collect();
                    assert_eq!(choices(&settings, n, None), expected, "{n} {settings:?}");
                }
            }
        }
    }

    #[test]
    fn settings_that_leave_one_token_are_greedy() {
        let greedy = choices(&Sampling::default(), 300, None);
        assert_eq!(choices(&Sampling { top_k: 1, ..hot() }, 300, None), greedy);
        assert_eq!(choices(&Sampling { top_p: 1e-6, ..hot() }, 300, None), greedy);
        assert_eq!(choices(&Sampling { top_p: 0.0, ..hot() }, 300, None), greedy);
        // Among equals min-p draws, so here they must not be equal.
        let apart = |t: usize| -> Vec<f32> { (0..300).map(|i| ((i * 7 + t) % 300) as f32 * 0.01).collect() };
        for settings in [Sampling { min_p: 1.0, ..hot() }, Sampling { temperature: 1e-40, ..hot() }] {
            let mut sampler = Sampler::new(settings);
            for t in 0..100 {
                assert_eq!(Some(sampler.choose(&apart(t), &history(t), None)), best((0..).zip(apart(t))));
            }
        }
    }

    #[test]
    fn a_choice_depends_on_nothing_but_what_is_handed_in() {
        let settings = Sampling { repetition_penalty: 1.3, frequency_penalty: 0.1, top_p: 0.9, ..hot() };
        let forward = choices(&settings, 200, None);
        let mut sampler = Sampler::new(settings.clone());
        let all = history(POSITIONS);
        for t in (0..POSITIONS).rev() {
            for n in [3, 200, 200] {
                let choice = sampler.choose(&logits(n, t as u64), &all[..t], None);
                assert!(n == 3 || choice == forward[t], "position {t}");
            }
        }
        assert_ne!(choices(&Sampling { seed: 6, ..settings }, 200, None), forward);
        let flat = [0.0; 1000];
        let drawn: std::collections::HashSet<Token> =
            (0..POSITIONS).map(|t| Sampler::new(hot()).choose(&flat, &all[..t], None)).collect();
        assert!(drawn.len() > POSITIONS / 2, "positions draw numbers of their own");
    }

    #[test]
    fn tokens_come_as_often_as_their_probabilities_say() {
        let logits = [0.0, 1.0, -1.0, 2.0, 0.5, f32::NEG_INFINITY];
        for temperature in [0.5, 1.0, 2.0] {
            let weights = logits.map(|l: f32| (f64::from(l) / f64::from(temperature)).exp());
            let total: f64 = weights.iter().sum();
            let mut sampler = Sampler::new(Sampling { temperature, seed: 11, ..Sampling::default() });
            let all = vec![0; 20_000];
            let mut counts = [0u32; 6];
            (0..all.len()).for_each(|t| counts[sampler.choose(&logits, &all[..t], None) as usize] += 1);
            let expected = weights.map(|w| w / total * all.len() as f64);
            let chi: f64 = (0..5).map(|i| (f64::from(counts[i]) - expected[i]).powi(2) / expected[i]).sum();
            // The 99.9 % point for four degrees of freedom.
            assert!(chi < 18.5 && counts[5] == 0, "{temperature}: {counts:?} against {expected:?}");
        }
    }

    #[test]
    fn bias_comes_first_then_penalties_on_the_window() {
        let pick = |settings: Sampling, logits: &[f32], history: &[Token]| {
            Sampler::new(settings).choose(logits, history, None)
        };
        let plain = Sampling::default;
        assert_eq!(pick(plain(), &[1.0, 3.0, 3.0, 2.0], &[]), 1);
        assert_eq!(pick(Sampling { logit_bias: vec![(3, 1.5), (9, 50.0)], ..plain() }, &[1.0, 3.0, 3.0, 2.0], &[]), 3);
        let forbid = vec![(1, f32::NEG_INFINITY), (2, -0.5), (2, -1.0)];
        assert_eq!(pick(Sampling { logit_bias: forbid, ..plain() }, &[1.0, 3.0, 3.0, 2.0], &[]), 3);
        // Positive logits are divided, negative ones multiplied.
        let repeat = || Sampling { repetition_penalty: 2.0, ..plain() };
        assert_eq!(pick(repeat(), &[1.0, 3.0, 1.75], &[1, 1, 7]), 2);
        assert_eq!(pick(repeat(), &[-2.5, -2.0], &[1]), 0);
        assert_eq!(pick(Sampling { penalty_window: 1, ..repeat() }, &[1.0, 3.0, 1.75], &[1, 2]), 1);
        assert_eq!(pick(Sampling { penalty_window: 0, ..repeat() }, &[1.0, 3.0, 1.75], &[1]), 1);
        // Presence counts once, frequency each time.
        let presence = Sampling { presence_penalty: 0.6, ..plain() };
        assert_eq!(pick(presence, &[0.0, 1.0, 0.3], &[1, 1, 1]), 1);
        let frequency = Sampling { frequency_penalty: 0.25, ..plain() };
        assert_eq!(pick(frequency.clone(), &[0.0, 1.0, 0.3], &[1, 1]), 1);
        assert_eq!(pick(frequency, &[0.0, 1.0, 0.3], &[1, 1, 1]), 2);
        // The bias makes the logit positive before the penalty divides it.
        let both = Sampling { logit_bias: vec![(0, 2.0)], ..repeat() };
        assert_eq!(pick(both, &[-1.0, 0.4], &[0]), 0);
    }

    #[test]
    fn only_allowed_tokens_are_chosen_and_probabilities_are_theirs_alone() {
        let mut mask = Mask::none(200);
        (0..200).filter(|t| t % 5 == 2).for_each(|t| mask.allow(t));
        for settings in [Sampling::default(), hot(), Sampling { top_k: 3, top_p: 0.7, ..hot() }] {
            let chosen = choices(&settings, 200, Some(&mask));
            assert!(chosen.iter().all(|&t| mask.allows(t)));
            let mut sampler = Sampler::new(settings);
            for (t, &choice) in chosen.iter().enumerate() {
                let row = logits(200, t as u64);
                let few: Vec<f32> = mask.tokens().map(|token| row[token as usize]).collect();
                assert_eq!(sampler.choose(&few, &history(t), None) * 5 + 2, choice);
            }
        }
    }

    #[test]
    fn impossible_logits_are_never_chosen_unless_nothing_else_is_there() {
        let (nan, low) = (f32::NAN, f32::NEG_INFINITY);
        let mut last = Mask::none(4);
        (2..4).for_each(|t| last.allow(t));
        for settings in [Sampling::default(), hot(), Sampling { top_k: 2, min_p: 0.1, top_p: 0.5, ..hot() }] {
            let mut sampler = Sampler::new(settings);
            for t in 0..50 {
                let mut choose = |logits: &[f32], mask| sampler.choose(logits, &history(t), mask);
                assert_eq!(choose(&[nan, low, -1e30, -nan], None), 2);
                assert_eq!(choose(&[nan, f32::INFINITY, 5.0, 1e30], None), 1);
                assert_eq!(choose(&[nan, low, low, nan], None), 0);
                assert_eq!(choose(&[9.0, 9.0, low, nan], Some(&last)), 2);
                assert_eq!(choose(&[low, 9.0, nan, 1.0], Some(&last)), 3);
            }
        }
    }
}
