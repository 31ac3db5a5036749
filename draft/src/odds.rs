//! How often a kind of guess was right, older trials fading.
//!
//! Owns: the counts and what is imagined before there are any. Refuses to know: what kinds there are.

/// What one more trial leaves of the earlier ones: a memory of about 64 trials.
const MEMORY: f64 = 1.0 - 1.0 / 64.0;

/// Right and tried guesses of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Odds {
    right: f64,
    tried: f64,
}

impl Odds {
    /// The chance that the next guess is right, when `prior` was expected with the weight of `weight` trials.
    pub fn chance(&self, prior: f64, weight: f64) -> f64 {
        (self.right + prior * weight) / (self.tried + weight)
    }

    /// Counts a guess.
    pub fn learn(&mut self, right: bool) {
        self.right = self.right * MEMORY + f64::from(u8::from(right));
        self.tried = self.tried * MEMORY + 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_move_the_chance_away_from_what_was_expected() {
        let mut odds = Odds::default();
        assert_eq!(odds.chance(0.75, 4.0), 0.75);
        odds.learn(false);
        assert_eq!(odds.chance(0.75, 4.0), 0.6);
        (0..1000).for_each(|_| odds.learn(true));
        assert!(odds.chance(0.75, 4.0) > 0.97);
    }
}
