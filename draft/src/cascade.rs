//! Who drafts, and how much of it is worth its rows: the drafter that nobody has to tune.
//!
//! Owns: the decision, pass by pass. Refuses to know: how the drafters guess, and whether a guess is right.
//!
//! A pass of n rows costs `t(n)`; a second is worth as many tokens as the text has been getting lately, at least as many
//! as plain decoding gives. So a block of k tokens is worth its expected accepted tokens less the rate times
//! `t(k + 1) - t(1)`, and the best block is the one worth most; an empty one is worth nothing. (Choosing what is worth
//! most at the rate that the choices bring about maximises that rate: Dinkelbach, "On nonlinear fractional
//! programming", 1967.)
//!
//! Copying costs nothing, so its offer is always known. A head costs time before it has said anything; whether to ask it
//! goes by what asking has brought lately where the copy's offer was about as good. Where it brought nothing, or was never
//! asked, it is asked now and then, from a fixed small share of the time, in case the text has changed.

use std::time::Duration;

use crate::costs::Costs;
use crate::guesser::Guesser;
use crate::{Block, Decision, Drafter, Head, Outcome, Suffix, Target};

/// The share of the time that may go into asking heads that have brought nothing lately.
const PROBES: f64 = 1.0 / 250.0;
/// A head that was never asked is asked after so many passes: its first answer is the dearest, and a short text has no time
/// to win it back.
const FIRST: usize = 40;
/// What one more pass leaves of the earlier ones' rate: a memory of about 64 passes.
const MEMORY: f64 = 1.0 - 1.0 / 64.0;
/// What one more question leaves of what the earlier ones brought.
const ANSWERS: f64 = 1.0 - 1.0 / 16.0;
/// What a head's answers to all offers weigh among those to offers of one class, in questions; and nothing at all among
/// the former.
const COMMON: f64 = 2.0;
/// A question counts as bringing at least this, in tokens.
const WORST: f64 = -2.0;
/// After so many passes with a block comes one without: what plain decoding takes must be known for all else.
const PLAIN: usize = 48;
/// Upper ends of the classes of the chance of the copy's first token; the last class is that of no copy at all.
const OFFERS: [f64; 4] = [0.4, 0.7, 0.9, f64::INFINITY];
/// Before any pass was measured, a token is drafted if its chance is at least this.
const BLIND: f64 = 0.5;

/// What asking a head has brought, in tokens beyond the copy's offer, its price paid.
#[derive(Debug, Clone, Copy, Default)]
struct Gain {
    sum: f64,
    weight: f64,
}

impl Gain {
    fn learn(&mut self, tokens: f64) {
        self.sum = self.sum * ANSWERS + tokens;
        self.weight = self.weight * ANSWERS + 1.0;
    }

    /// What the next question will bring, where `prior` was expected.
    fn expected(&self, prior: f64) -> f64 {
        (self.sum + prior * COMMON) / (self.weight + COMMON)
    }
}

/// A head, and what asking it has brought by the class of the copy's offer.
#[derive(Debug, Clone)]
struct Member {
    guesser: Guesser,
    gains: [Gain; OFFERS.len() + 1],
    gain: Gain,
}

impl Member {
    /// What asking it will bring beside an offer of this class.
    fn expected(&self, class: usize) -> f64 {
        self.gains[class].expected(self.gain.expected(0.0))
    }
}

/// A question under way.
#[derive(Debug, Clone, Copy)]
struct Asked {
    member: usize,
    class: usize,
    /// Its price, the rows of its block, and what the copy would have been worth, in tokens.
    paid: f64,
    /// Whether its guesses are in the block.
    drafted: bool,
}

/// Copies, and asks heads where that pays.
#[derive(Debug, Clone)]
pub struct Cascade {
    name: &'static str,
    suffix: Option<Suffix>,
    members: Vec<Member>,
    costs: Costs,
    /// Tokens and seconds of the last passes, fading.
    tokens: f64,
    seconds: f64,
    /// Seconds that may still go into probes.
    credit: f64,
    /// Passes of all texts.
    passes: usize,
    /// Whether the head that is asked now is only being tried.
    probing: bool,
    asked: Option<Asked>,
    /// Passes with a block since the last one without.
    blocks: usize,
    copy: Block,
    decision: Decision,
    /// Seconds the draft took.
    drafting: Duration,
}

impl Cascade {
    /// Copies by `suffix`, if there is one, and may ask `heads`.
    pub fn new(name: &'static str, suffix: Option<Suffix>, heads: &[Head]) -> Cascade {
        let member =
            |&head: &Head| Member { guesser: Guesser::new(head), gains: Default::default(), gain: Gain::default() };
        Cascade {
            name,
            suffix,
            members: heads.iter().map(member).collect(),
            costs: Costs::new(),
            tokens: 0.0,
            seconds: 0.0,
            credit: 0.0,
            passes: 0,
            probing: false,
            asked: None,
            blocks: 0,
            copy: Block::default(),
            decision: Decision::default(),
            drafting: Duration::ZERO,
        }
    }

    /// Tokens a second lately, at least those of plain decoding; nothing before a pass was measured.
    fn rate(&self) -> Option<f64> {
        let plain = 1.0 / self.costs.pass(1)?;
        Some(if self.seconds > 0.0 { plain.max(self.tokens / self.seconds) } else { plain })
    }

    /// Tells `block` what its tokens must be worth.
    fn set_terms(&self, block: &mut Block) {
        match self.rate() {
            None => block.set_terms(0.0, [BLIND]),
            Some(rate) => {
                let row = |i: usize| rate * (self.extra(i + 1) - self.extra(i)).max(0.0);
                block.set_terms(rate, (0..block.capacity()).map(row));
            }
        }
    }

    /// The most that a part of `block` from its front is worth, in tokens, and the part's length.
    fn best(&self, block: &Block) -> (f64, usize) {
        let Some(rate) = self.rate() else {
            let reached = block.chances().iter().scan(1.0, |reach, chance| {
                *reach *= chance;
                Some(*reach)
            });
            let len = reached.take_while(|&reach| reach >= BLIND).count();
            return (len as f64, len);
        };
        let (mut best, mut reach, mut expected) = ((0.0, 0), 1.0, 0.0);
        for (i, chance) in block.chances().iter().enumerate() {
            reach *= chance;
            expected += reach;
            let worth = expected - rate * self.extra(i + 1);
            if worth > best.0 {
                best = (worth, i + 1);
            }
        }
        best
    }

    /// Seconds that a block of `len` tokens adds to a pass.
    fn extra(&self, len: usize) -> f64 {
        let cost = |rows: usize| self.costs.pass(rows).unwrap_or(0.0);
        cost(len + 1) - cost(1)
    }

    /// The head to ask, if any: the one that is expected to bring most, or one whose turn it is to be tried.
    fn whom_to_ask(&mut self, class: usize) -> Option<usize> {
        self.probing = false;
        let expected = |i: &usize| self.members[*i].expected(class);
        let best = (0..self.members.len()).max_by(|a, b| expected(a).total_cmp(&expected(b)))?;
        if expected(&best) > 0.0 {
            return Some(best);
        }
        // Probes go to the head that has been asked least lately.
        let weight = |i: &usize| self.members[*i].gains[class].weight;
        let i = (0..self.members.len()).min_by(|a, b| weight(a).total_cmp(&weight(b)))?;
        self.probing = match self.members[i].guesser.price() {
            Some(price) => self.credit > price,
            // One that the user chose is asked at once.
            None => self.suffix.is_none() || self.passes >= FIRST * (1 + i),
        };
        self.probing.then_some(i)
    }

    /// Fills the empty `block` with the copy's offer, or with what a head says.
    fn choose(&mut self, target: &mut dyn Target, block: &mut Block) {
        self.copy.clear(block.capacity());
        if let Some(suffix) = &mut self.suffix {
            suffix.propose(target, &mut self.copy);
            self.decision.matched = suffix.matched();
        }
        let class = class(&self.copy);
        match self.whom_to_ask(class).filter(|_| block.capacity() > 0) {
            Some(i) => self.ask(i, class, target, block),
            None => self.take_copy(block),
        }
    }

    /// Lets the copy go on behind what the block holds already.
    fn go_on(&mut self, target: &mut dyn Target, block: &mut Block) {
        let given = block.len();
        if let Some(suffix) = &mut self.suffix {
            suffix.propose(target, block);
        }
        let (_, len) = self.best(block);
        block.truncate(len.max(given));
    }

    /// Asks head `i`, lets the copy go on behind its guesses, and takes the better of this and the copy's own offer.
    fn ask(&mut self, i: usize, class: usize, target: &mut dyn Target, block: &mut Block) {
        let began = target.now();
        self.members[i].guesser.propose(target, block);
        let spent = target.now().saturating_sub(began).as_secs_f64();
        if let Some(suffix) = self.suffix.as_mut().filter(|_| !block.is_empty()) {
            suffix.propose(target, block);
        }
        let (copied, _) = self.best(&self.copy);
        let (worth, len) = self.best(block);
        let price = self.rate().unwrap_or(0.0) * spent;
        if self.probing {
            self.credit -= spent;
        }
        // The tokens that come of the head's block are added once they are known.
        let rows = self.rate().unwrap_or(0.0) * self.extra(len);
        let paid = if worth > copied { copied + rows + price } else { price };
        self.asked = Some(Asked { member: i, class, paid, drafted: worth > copied });
        if worth > copied {
            block.truncate(len);
            self.decision.drafter = self.members[i].guesser.name();
            self.decision.matched = 0;
        } else {
            self.take_copy(block);
        }
    }

    /// Makes the best part of the copy's offer the block.
    fn take_copy(&mut self, block: &mut Block) {
        let (_, len) = self.best(&self.copy);
        block.truncate(0);
        for (&token, &chance) in self.copy.tokens().iter().zip(self.copy.chances()).take(len) {
            block.push(token, chance);
        }
        match &self.suffix {
            Some(suffix) if len > 0 => self.decision.drafter = suffix.name(),
            _ => self.decision.matched = 0,
        }
    }
}

/// The class of the copy's offer: by the chance of its first token.
fn class(copy: &Block) -> usize {
    let first = copy.chances().first();
    first.map_or(OFFERS.len(), |chance| OFFERS.iter().position(|end| chance < end).unwrap_or(OFFERS.len() - 1))
}

impl Drafter for Cascade {
    fn name(&self) -> &'static str {
        self.name
    }

    fn propose(&mut self, target: &mut dyn Target, block: &mut Block) {
        let began = target.now();
        self.decision = Decision::default();
        self.set_terms(block);
        match block.is_empty() {
            true if self.blocks >= PLAIN => {}
            true => self.choose(target, block),
            false => self.go_on(target, block),
        }
        self.decision.seconds = self.costs.pass(block.len() + 1);
        self.drafting = target.now().saturating_sub(began);
    }

    fn observe(&mut self, outcome: &Outcome) {
        let seconds = outcome.time.as_secs_f64();
        self.blocks = if outcome.drafted.is_empty() { 0 } else { self.blocks + 1 };
        self.costs.learn(outcome.drafted.len() + 1, seconds);
        let all = seconds + self.drafting.as_secs_f64();
        self.tokens = self.tokens * MEMORY + outcome.emitted.len() as f64;
        self.seconds = self.seconds * MEMORY + all;
        self.credit += PROBES * all;
        self.passes += 1;
        if let Some(asked) = self.asked.take() {
            let accepted = if asked.drafted { outcome.accepted as f64 } else { 0.0 };
            // A head that had to catch up with the text was dear once.
            let gain = (accepted - asked.paid).max(WORST);
            let member = &mut self.members[asked.member];
            member.gains[asked.class].learn(gain);
            member.gain.learn(gain);
        }
        if let Some(suffix) = &mut self.suffix {
            suffix.observe(outcome);
        }
        self.members.iter_mut().for_each(|m| m.guesser.observe(outcome));
    }

    fn prefilled(&mut self, rows: usize, time: Duration) {
        self.costs.learn_prompt(rows, time.as_secs_f64());
    }

    fn decision(&self) -> Decision {
        self.decision
    }

    fn reset(&mut self) {
        // What passes cost and what heads are worth stays true, more or less; the rest is the text's.
        (self.tokens, self.seconds, self.asked) = (0.0, 0.0, None);
        if let Some(suffix) = &mut self.suffix {
            suffix.reset();
        }
        self.members.iter_mut().for_each(|m| m.guesser.reset());
    }
}
