//! The n-gram drafter: what followed the last time these tokens stood here.
//!
//! Owns: an index of prompt and output, and what it has learnt about matches of each length. Refuses to know: the model.
//!
//! It looks for the longest earlier occurrence of the history's end (the most recent one among equals) and proposes what
//! followed it. How far to trust a match it learns from what was accepted, by the length of the match.

use std::collections::HashMap;

use crate::{Block, Drafter, Outcome, Target, Token};

/// Tokens that must match at least.
const MIN: usize = 2;

/// Tokens that are compared at most: longer matches count as this long.
const MAX: usize = 32;

/// Earlier occurrences that are looked at for one proposal.
const CANDIDATES: usize = 64;

/// No position.
const NONE: u32 = u32::MAX;

/// Drafts from earlier occurrences of the last tokens.
pub struct Ngram {
    /// The history as far as it is indexed.
    seen: Vec<Token>,
    /// The last `MIN` tokens up to a position, to the latest such position.
    latest: HashMap<[Token; MIN], u32>,
    /// For each position the one before it with the same last `MIN` tokens.
    previous: Vec<u32>,
    trust: [Trust; BUCKETS],
    /// The bucket of the match that the last block came from.
    used: Option<usize>,
    /// Proposals held back since the last one, by bucket's lack of trust.
    silent: u32,
}

/// Match lengths that share what is learnt: 2, 3, 4-5, 6-8, 9-15, 16 and more.
const BUCKETS: usize = 6;

fn bucket(matched: usize) -> usize {
    match matched {
        0..=2 => 0,
        3 => 1,
        4..=5 => 2,
        6..=8 => 3,
        9..=15 => 4,
        _ => 5,
    }
}

/// Decayed counts of drafted tokens that were checked, and of those that were right.
#[derive(Debug, Clone, Copy)]
struct Trust {
    checked: f64,
    right: f64,
}

/// What a match of each bucket is trusted with before anything is known.
const PRIOR: [f64; BUCKETS] = [0.55, 0.65, 0.75, 0.85, 0.9, 0.95];

impl Trust {
    /// The probability that a drafted token is right if all before it were.
    fn rate(&self) -> f64 {
        self.right / self.checked
    }

    /// How many tokens to draft: as far as the last one is still right with a probability of at least 0.35.
    fn reach(&self) -> usize {
        let rate = self.rate();
        match rate {
            r if r < 0.35 => 0,
            r if r > 0.99 => usize::MAX,
            r => ((0.35f64).ln() / r.ln()) as usize,
        }
    }

    fn learn(&mut self, right: usize, wrong: bool) {
        const DECAY: f64 = 0.9;
        let checked = right + usize::from(wrong);
        self.checked = self.checked * DECAY + checked as f64;
        self.right = self.right * DECAY + right as f64;
    }
}

impl Default for Ngram {
    fn default() -> Ngram {
        Ngram::new()
    }
}

impl Ngram {
    /// Nothing seen, nothing learnt.
    pub fn new() -> Ngram {
        Ngram {
            seen: Vec::new(),
            latest: HashMap::new(),
            previous: Vec::new(),
            trust: PRIOR.map(|p| Trust {
                checked: 4.0,
                right: 4.0 * p,
            }),
            used: None,
            silent: 0,
        }
    }

    /// Indexes what is new in `history`; starts anew if it is not a continuation of what was seen.
    fn catch_up(&mut self, history: &[Token]) {
        let n = self.seen.len();
        let tail = n.saturating_sub(MAX);
        if history.len() < n || history[tail..n] != self.seen[tail..] {
            self.reset();
        }
        for &token in &history[self.seen.len()..] {
            self.seen.push(token);
            let end = self.seen.len();
            let key = end
                .checked_sub(MIN)
                .and_then(|from| <[Token; MIN]>::try_from(&self.seen[from..end]).ok());
            let before = key.and_then(|key| self.latest.insert(key, (end - 1) as u32));
            self.previous.push(before.unwrap_or(NONE));
        }
    }

    /// The longest earlier match of the history's end: (position of its last token, tokens matched).
    fn longest(&self) -> Option<(usize, usize)> {
        let last = self.seen.len().checked_sub(1)?;
        let mut best: Option<(usize, usize)> = None;
        let mut at = self.previous[last];
        for _ in 0..CANDIDATES {
            if at == NONE {
                break;
            }
            let end = at as usize;
            let matched = (0..MAX.min(end + 1))
                .take_while(|&i| self.seen[end - i] == self.seen[last - i])
                .count();
            if best.is_none_or(|(_, longest)| matched > longest) {
                best = Some((end, matched));
            }
            if matched == MAX {
                break;
            }
            at = self.previous[end];
        }
        best
    }
}

impl Drafter for Ngram {
    fn name(&self) -> &'static str {
        "ngram"
    }

    fn propose(&mut self, target: &dyn Target, block: &mut Block) {
        /// Held-back proposals after which one is made all the same, to find out whether the text has changed.
        const PROBE: u32 = 16;
        self.catch_up(target.history());
        self.used = None;
        let Some((end, matched)) = self.longest() else {
            return;
        };
        let bucket = bucket(matched);
        let mut reach = self.trust[bucket].reach();
        if reach == 0 {
            self.silent += 1;
            if self.silent < PROBE {
                return;
            }
            reach = 1;
        }
        self.silent = 0;
        self.used = Some(bucket);
        let n = self.seen.len();
        for i in 0..reach.min(block.capacity()) {
            let from = end + 1 + i;
            // A match that overlaps the history's end goes on into the block itself: a repeating text.
            let token = if from < n {
                self.seen[from]
            } else {
                block.tokens()[from - n]
            };
            if !block.push(token) {
                break;
            }
        }
    }

    fn observe(&mut self, outcome: &Outcome) {
        if let Some(bucket) = self.used.take().filter(|_| !outcome.drafted.is_empty()) {
            // A block cut by the end of the output was not refuted.
            let refuted = outcome.accepted < outcome.drafted.len() && outcome.emitted.len() > outcome.accepted;
            self.trust[bucket].learn(outcome.accepted, refuted);
        }
    }

    fn reset(&mut self) {
        self.seen.clear();
        self.latest.clear();
        self.previous.clear();
        self.used = None;
    }
}
