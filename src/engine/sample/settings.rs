//! How tokens are to be chosen.
//!
//! Owns: the settings and their ranges. Refuses to know: logits.

use draft::Token;

use crate::{Error, Result};

/// How tokens are chosen. The default is greedy, with nothing that changes the logits.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it; 0 is greedy: the largest logit, the lowest token among equals.
    pub temperature: f32,
    /// Only so many of the best tokens; 0 is all.
    pub top_k: usize,
    /// Only the fewest best tokens whose probabilities sum up to this; 1 is all.
    pub top_p: f32,
    /// Only tokens at least this times as probable as the best one; 0 is all.
    pub min_p: f32,
    /// Positive logits of tokens in the window are divided by it, the others multiplied (Keskar et al., "CTRL", 2019); 1
    /// changes nothing.
    pub repetition_penalty: f32,
    /// Taken from the logit of every token in the window.
    pub presence_penalty: f32,
    /// Taken from a token's logit once for each time it stands in the window.
    pub frequency_penalty: f32,
    /// How many of the last tokens, of prompt and output, the penalties look at.
    pub penalty_window: usize,
    /// Added to the logits of tokens; −∞ forbids one. Those of a token named twice add up.
    pub logit_bias: Vec<(Token, f32)>,
    /// Which of all possible texts; another seed draws other numbers.
    pub seed: u64,
}

/// How many of the last tokens penalties look at, unless the user says otherwise.
pub const PENALTY_WINDOW: usize = 64;

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: PENALTY_WINDOW,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

impl Sampling {
    /// Checks the ranges.
    ///
    /// # Errors
    /// If a value lies outside: names the flag, the range and the value.
    pub fn validate(&self) -> Result<()> {
        let wrong = |flag: &str, range: &str, value: f32| {
            Err(Error::new(format!("expected {range}, found {value}")).about(flag))
        };
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return wrong("--temperature", "a number of at least 0", self.temperature);
        }
        for (flag, value) in [("--top-p", self.top_p), ("--min-p", self.min_p)] {
            if !(0.0..=1.0).contains(&value) {
                return wrong(flag, "a number from 0 to 1", value);
            }
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) {
            return wrong("--repeat-penalty", "a number above 0", self.repetition_penalty);
        }
        let additive = [("--presence-penalty", self.presence_penalty), ("--frequency-penalty", self.frequency_penalty)];
        for (flag, value) in additive {
            if !value.is_finite() {
                return wrong(flag, "a finite number", value);
            }
        }
        match self.logit_bias.iter().find(|(_, bias)| bias.is_nan() || *bias == f32::INFINITY) {
            Some(&(_, bias)) => wrong("--logit-bias", "a finite number or -inf", bias),
            None => Ok(()),
        }
    }

    /// Whether the choice is the largest logit and nothing else, wherever nothing is forbidden: the device may make it.
    pub fn is_plain(&self) -> bool {
        self.temperature == 0.0 && !self.changes_logits()
    }

    /// Whether logits depend on the text before, or are biased.
    pub(super) fn changes_logits(&self) -> bool {
        !self.logit_bias.is_empty() || self.penalizes()
    }

    /// Whether a token's logit depends on the tokens before it.
    pub(super) fn penalizes(&self) -> bool {
        let neutral = self.repetition_penalty == 1.0 && self.presence_penalty == 0.0 && self.frequency_penalty == 0.0;
        self.penalty_window > 0 && !neutral
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_plain_and_valid() {
        let plain = Sampling::default();
        assert!(plain.is_plain() && plain.validate().is_ok());
        let with = |change: &dyn Fn(&mut Sampling)| {
            let mut settings = Sampling::default();
            change(&mut settings);
            settings.is_plain()
        };
        assert!(with(&|s| s.top_k = 5) && with(&|s| s.top_p = 0.5) && with(&|s| s.seed = 5));
        assert!(with(&|s| (s.presence_penalty, s.penalty_window) = (1.0, 0)));
        assert!(!with(&|s| s.temperature = 0.1) && !with(&|s| s.logit_bias = vec![(0, 1.0)]));
        assert!(!with(&|s| s.repetition_penalty = 1.1));
        assert!(!with(&|s| s.presence_penalty = 1.0) && !with(&|s| s.frequency_penalty = -1.0));
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_the_name_of_its_flag() {
        #[track_caller]
        fn refused(flag: &str, change: impl Fn(&mut Sampling, f32), values: &[f32]) {
            for &value in values {
                let mut settings = Sampling::default();
                change(&mut settings, value);
                let message = settings.validate().unwrap_err().to_string();
                assert!(message.starts_with(&format!("{flag}: expected ")), "{message}");
                assert!(message.ends_with(&format!("found {value}")), "{message}");
            }
        }
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        refused("--temperature", |s, v| s.temperature = v, &[-0.1, nan, inf]);
        refused("--top-p", |s, v| s.top_p = v, &[-0.1, 1.1, nan]);
        refused("--min-p", |s, v| s.min_p = v, &[-0.1, 1.1, nan]);
        refused("--repeat-penalty", |s, v| s.repetition_penalty = v, &[0.0, -1.0, nan, inf]);
        refused("--presence-penalty", |s, v| s.presence_penalty = v, &[nan, inf, -inf]);
        refused("--frequency-penalty", |s, v| s.frequency_penalty = v, &[nan, inf, -inf]);
        refused("--logit-bias", |s, v| s.logit_bias = vec![(1, 0.0), (2, v)], &[nan, inf]);
        let allowed = Sampling { logit_bias: vec![(1, f32::NEG_INFINITY)], ..Sampling::default() };
        assert!(allowed.validate().is_ok());
    }
}
