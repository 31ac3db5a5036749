//! A drafter that asks a head of the model: its first layers, its next-token-prediction block, or a smaller model.
//!
//! Owns: how far the head's confidence can be trusted, and what its guesses cost. Refuses to know: how it guesses.
//!
//! A head says how probable it finds its token. How often it is right when it says so is learnt twice: over all guesses,
//! how many were right of those that should have been, which tells quickly that a text is not its kind; and for each
//! class of confidence, for the first token of a block and for the later ones, which follow guesses of its own.

use std::time::Duration;

use crate::odds::Odds;
use crate::{Block, Decision, Drafter, Guess, Head, Outcome, Target};

/// Upper ends of the classes of confidence.
const CLASSES: [f32; 10] = [0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.995, f32::INFINITY];
/// What a head's own word weighs, in trials.
const WORD: f64 = 4.0;
/// What one more guess leaves of the earlier ones' say in how honest the head is.
const HONESTY: f64 = 1.0 - 1.0 / 64.0;
/// What one more guess leaves of the earlier ones' price.
const MEMORY: f64 = 1.0 - 1.0 / 32.0;

/// Asks a head.
#[derive(Debug, Clone)]
pub struct Guesser {
    head: Head,
    /// For the first token, and for the later ones: by class.
    odds: [[Odds; CLASSES.len()]; 2],
    /// Of all later tokens, whatever their class.
    later: Odds,
    /// Guesses that were right, and the sum of their confidences, fading.
    right: f64,
    sure: f64,
    /// The last guesses, whether they were drafted or not.
    guessed: Vec<Guess>,
    /// Seconds of a guess; nothing before the first.
    price: Option<f64>,
}

impl Guesser {
    /// A drafter that asks `head`.
    pub fn new(head: Head) -> Guesser {
        let (odds, later) = (Default::default(), Odds::default());
        Guesser { head, odds, later, right: 0.0, sure: 0.0, guessed: Vec::new(), price: None }
    }

    /// The chance that a guess is right. A head is a little too sure of itself until it has shown otherwise.
    fn chance(&self, later: bool, confidence: f32) -> f64 {
        let honest = (self.right + 0.9 * WORD) / (self.sure + WORD);
        let prior = (honest * f64::from(confidence)).min(0.98);
        self.odds[usize::from(later)][class(confidence)].chance(prior, WORD)
    }

    fn learn_price(&mut self, time: Duration, guesses: usize) {
        if guesses > 0 {
            let each = time.as_secs_f64() / guesses as f64;
            self.price = Some(self.price.map_or(each, |price| price * MEMORY + each * (1.0 - MEMORY)));
        }
    }

    /// Seconds of a guess; nothing before the first.
    pub fn price(&self) -> Option<f64> {
        self.price
    }
}

/// The class of a confidence.
fn class(confidence: f32) -> usize {
    CLASSES.iter().position(|&end| confidence < end).unwrap_or(CLASSES.len() - 1)
}

impl Drafter for Guesser {
    fn name(&self) -> &'static str {
        self.head.name()
    }

    fn propose(&mut self, target: &mut dyn Target, block: &mut Block) {
        let mut guessed = std::mem::take(&mut self.guessed);
        guessed.clear();
        // A head guesses behind the text alone, not behind what others have drafted.
        if block.is_empty() && !block.is_full() {
            let began = target.now();
            let price = block.rate() * self.price.unwrap_or(0.0);
            target.guess(self.head, &mut |guess| {
                let chance = self.chance(!guessed.is_empty(), guess.confidence);
                guessed.push(guess);
                if block.reach() * chance < block.floor() {
                    return false;
                }
                block.push(guess.token, chance);
                // Another guess is worth its price if the token it gives is likely to be worth that and its row.
                let next = block.reach() * self.later.chance(0.6, WORD);
                !block.is_full() && next >= block.floor() + price
            });
            self.learn_price(target.now().saturating_sub(began), guessed.len());
        }
        self.guessed = guessed;
    }

    fn observe(&mut self, outcome: &Outcome) {
        for (i, (guess, &emitted)) in self.guessed.iter().zip(outcome.emitted).enumerate() {
            let right = guess.token == emitted;
            self.odds[usize::from(i > 0)][class(guess.confidence)].learn(right);
            self.right = self.right * HONESTY + f64::from(u8::from(right));
            self.sure = self.sure * HONESTY + f64::from(guess.confidence);
            if i > 0 {
                self.later.learn(right);
            }
            if !right {
                break;
            }
        }
        self.guessed.clear();
    }

    fn prefilled(&mut self, _rows: usize, _time: Duration) {}

    fn decision(&self) -> Decision {
        Decision { drafter: self.name(), ..Decision::default() }
    }

    fn reset(&mut self) {
        // What guesses cost and how often they are right is the head's more than the text's.
        self.guessed.clear();
    }
}
