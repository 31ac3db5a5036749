//! Drafters that know the answer, for tests: right, wrong, or both on purpose.
//!
//! Owns: the plans. Refuses to know: where the answer comes from.

use std::time::Duration;

use crate::{Block, Decision, Drafter, Outcome, Target, Token};

/// What a scripted drafter does with the answer it knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Drafts the true continuation, as long as the block allows.
    Oracle,
    /// Fills the block with tokens that are not the true ones.
    Wrong,
    /// Drafts nothing.
    Empty,
    /// Fills the block; past the answer's end it goes on with token 0.
    Overrun,
    /// Random lengths, and a random number of right tokens in front; by seed.
    Random(u64),
    /// Step after step (drafted, right in front), over and over.
    Steps(Vec<(usize, usize)>),
}

/// A drafter that knows the whole true sequence, prompt and output.
pub struct Scripted {
    plan: Plan,
    truth: Vec<Token>,
    vocab: usize,
    step: usize,
    random: u64,
}

impl Scripted {
    /// A drafter for the sequence `truth` over `vocab` tokens (at least two, so that a token can be wrong).
    pub fn new(plan: Plan, truth: Vec<Token>, vocab: usize) -> Scripted {
        assert!(vocab >= 2, "a vocabulary has two tokens");
        let random = if let Plan::Random(seed) = plan { seed } else { 0 };
        Scripted { plan, truth, vocab, step: 0, random }
    }

    /// The next number of a 64-bit generator (splitmix64; Steele, Lea, Flood 2014), below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    /// How many tokens to draft, and how many of them right.
    fn lengths(&mut self, capacity: usize) -> (usize, usize) {
        match &self.plan {
            Plan::Oracle | Plan::Overrun => (capacity, capacity),
            Plan::Wrong => (capacity, 0),
            Plan::Empty => (0, 0),
            Plan::Random(_) => {
                let drafted = self.below(capacity + 1);
                (drafted, self.below(drafted + 1))
            }
            Plan::Steps(steps) if steps.is_empty() => (0, 0),
            Plan::Steps(steps) => {
                let step = steps[self.step % steps.len()];
                self.step += 1;
                step
            }
        }
    }
}

impl Drafter for Scripted {
    fn name(&self) -> &'static str {
        match self.plan {
            Plan::Oracle => "oracle",
            Plan::Wrong => "wrong",
            Plan::Empty => "empty",
            Plan::Overrun => "overrun",
            Plan::Random(_) => "random",
            Plan::Steps(_) => "scripted",
        }
    }

    fn propose(&mut self, target: &mut dyn Target, block: &mut Block) {
        let at = target.history().len();
        let (drafted, right) = self.lengths(block.capacity());
        for i in 0..drafted {
            let next = match (self.truth.get(at + i), i < right) {
                (Some(&truth), true) => truth,
                (Some(&truth), false) => ((truth as usize + 1) % self.vocab) as Token,
                (None, _) if self.plan == Plan::Oracle => return,
                (None, _) => 0,
            };
            if !block.push(next, 1.0) {
                return;
            }
        }
    }

    fn observe(&mut self, _outcome: &Outcome) {}

    fn prefilled(&mut self, _rows: usize, _time: Duration) {}

    fn decision(&self) -> Decision {
        Decision { drafter: self.name(), ..Decision::default() }
    }

    fn reset(&mut self) {
        self.step = 0;
        if let Plan::Random(seed) = self.plan {
            self.random = seed;
        }
    }
}
