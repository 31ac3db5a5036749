//! Log-probabilities, for those who ask.
//!
//! Owns: the logarithm of a softmax. Refuses to know: how tokens are chosen; these are the model's own probabilities,
//! before any setting changed them.

use draft::Token;

use super::ranked::Ranked;

/// What the model thought of a token, and of the best ones in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprobs {
    /// Natural logarithm of the chosen token's probability.
    pub chosen: f32,
    /// The best tokens with theirs, best first, the lower token first among equals.
    pub top: Vec<(Token, f32)>,
}

/// The log-softmax of raw `logits`, natural logarithm, for the token `chosen` and the best `n`. A NaN counts as −∞. The
/// sum is taken in f64 in the order of the tokens, so that every machine gives the same bits.
pub fn logprobs(logits: &[f32], chosen: Token, n: usize) -> Logprobs {
    assert!((chosen as usize) < logits.len(), "token {chosen} is not in the vocabulary of {}", logits.len());
    let mut ranked = Ranked::default();
    ranked.fill((0..).zip(logits.iter().copied()));
    let mut sum = 0.0;
    let max = ranked.unordered().fold(f32::NEG_INFINITY, f32::max);
    ranked.unordered().for_each(|logit| sum += weight(logit, max, 1.0));
    let log_sum = libm::log(sum);
    let relative = |logit: f32| if logit == max { 0.0 } else { f64::from(logit) - f64::from(max) };
    let of =
        |logit: f32| if logit > f32::NEG_INFINITY { (relative(logit) - log_sum) as f32 } else { f32::NEG_INFINITY };
    let top = (0..n).map_while(|rank| ranked.get(rank)).map(|(token, logit)| (token, of(logit))).collect();
    Logprobs { chosen: of(logits[chosen as usize]), top }
}

/// e^((logit − max) / temperature): 1 for the largest logit, infinite or not. libm's own code, no platform's.
pub(super) fn weight(logit: f32, max: f32, temperature: f64) -> f64 {
    if logit == max { 1.0 } else { libm::exp((f64::from(logit) - f64::from(max)) / temperature) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logprobs_are_the_logarithm_of_the_softmax() {
        let logits: Vec<f32> = (0..50u32).map(|i| ((i * 31) % 17) as f32 * 0.5 - 4.0).collect();
        let sum: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        for chosen in 0..50 {
            let found = logprobs(&logits, chosen, 5);
            let expected = f64::from(logits[chosen as usize]) - sum.ln();
            assert!((f64::from(found.chosen) - expected).abs() < 1e-5);
            assert_eq!(found.top.len(), 5);
            assert!(found.top.is_sorted_by(|a, b| a.1 > b.1 || (a.1 == b.1 && a.0 < b.0)));
            assert!(found.top[0].1 >= found.chosen);
            for &(token, logprob) in &found.top {
                assert_eq!(logprobs(&logits, token, 0), Logprobs { chosen: logprob, top: Vec::new() });
            }
        }
        let all: f64 = logprobs(&logits, 0, 99).top.iter().map(|&(_, p)| f64::from(p).exp()).sum();
        assert!((all - 1.0).abs() < 1e-6);
    }

    #[test]
    fn impossible_tokens_have_no_probability() {
        let logits = [f32::NAN, 0.0, f32::NEG_INFINITY, 0.0];
        let half = -std::f32::consts::LN_2;
        let found = logprobs(&logits, 0, 9);
        assert_eq!(found, Logprobs { chosen: f32::NEG_INFINITY, top: vec![(1, half), (3, half)] });
        assert_eq!(logprobs(&logits, 2, 0).chosen, f32::NEG_INFINITY);
        assert_eq!(logprobs(&[f32::NAN; 3], 1, 2), Logprobs { chosen: f32::NEG_INFINITY, top: Vec::new() });
        assert_eq!(logprobs(&[1.0, f32::INFINITY], 1, 2).chosen, 0.0);
        assert_eq!(logprobs(&[1.0, f32::INFINITY], 0, 2).chosen, f32::NEG_INFINITY);
    }
}
