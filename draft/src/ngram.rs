//! The n-gram drafter: what followed the last time that the text ended like this?
//!
//! Owns: the index of everything seen so far and the acceptance learnt per match length. Refuses to know:
//! the model, what a pass costs.
//!
//! The index holds one open-addressing table per n. A slot is the end of the most recent occurrence of an
//! n-gram, compared with the history itself, so a match is never a hash collision. If n tokens were seen
//! before, so were its last n-1: the longest match is a binary search over n.
//!
//! Edits copy a text but for a token here and there. Where the model wrote another token than the copy had, the
//! longest match is lost for as long as the new token is part of it; so the copy is resumed behind that token,
//! unless a match is trusted more.

use std::time::Duration;

use crate::{Block, Decision, Drafter, Outcome, Target, Token};

/// Shortest match worth a guess: measured on editing tasks, 1 gains no pass and 3 loses some.
const SHORTEST: usize = 2;
/// Longest match told apart. Beyond it the most recent occurrence is as good as any.
const LONGEST: usize = 24;
/// A token is proposed while the chance that it will be kept is at least this. Measured on editing tasks: from
/// a half down to here more rows buy more tokens, below they buy hardly any.
const WORTH: f64 = 3.0 / 8.0;
/// What one more trial leaves of the earlier ones: a memory of about 64 trials.
const MEMORY: f64 = 1.0 - 1.0 / 64.0;

/// Where the end of the history was seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// Tokens that agree, at most the longest n.
    pub length: usize,
    /// Index in the history of the token that followed the earlier occurrence.
    pub next: usize,
}

/// Proposes what followed the most recent earlier occurrence of the longest suffix of the history.
///
/// How much of it is proposed follows from what was accepted: each drafted token is a trial of its match
/// length (a token behind i accepted ones has a match i longer), and a block ends where the product of the
/// estimates falls under three eighths. Unlearnt, the estimate for length m is m/(m+1), so that a match of n
/// tokens proposes 5n/3 tokens.
#[derive(Debug, Clone)]
pub struct Ngram {
    shortest: usize,
    longest: usize,
    history: Vec<Token>,
    indexed: usize,
    tables: Vec<Table>,
    /// By match length; 0 is the first token of a resumed copy.
    trust: Vec<Trust>,
    source: Option<Match>,
    resume: Option<usize>,
}

impl Ngram {
    /// The drafter as users get it.
    pub fn new() -> Self {
        Ngram::with_lengths(SHORTEST, LONGEST)
    }

    /// Matches of `shortest..=longest` tokens. Any choice with `1 <= shortest <= longest` gives the same text.
    pub fn with_lengths(shortest: usize, longest: usize) -> Self {
        assert!(
            1 <= shortest && shortest <= longest,
            "match lengths {shortest}..={longest} are not a range of at least one token"
        );
        Ngram {
            shortest,
            longest,
            history: Vec::new(),
            indexed: 0,
            tables: vec![Table::default(); longest - shortest + 1],
            trust: vec![Trust::default(); longest + 1],
            source: None,
            resume: None,
        }
    }

    /// The longest suffix of `history` that also occurs further to the left, and the most recent place where.
    pub fn longest_match(&mut self, history: &[Token]) -> Option<Match> {
        self.follow(history);
        let hashes = SuffixHashes::of(&self.history, self.longest);
        // Invariant: a match of `known` tokens exists (or none is known), none of `absent` or more does.
        let mut found = None;
        let (mut known, mut absent) = (self.shortest - 1, self.longest.min(self.history.len()) + 1);
        while known + 1 < absent {
            let n = known + (absent - known).div_ceil(2);
            let suffix = &self.history[self.history.len() - n..];
            match self.tables[n - self.shortest].find(&self.history, suffix, hashes.at(n)) {
                Some(end) => {
                    found = Some(Match { length: n, next: end });
                    known = n;
                }
                None => absent = n,
            }
        }
        found
    }

    /// Brings the index up to `history`: the new tokens alone if the old ones are still there, else anew.
    fn follow(&mut self, history: &[Token]) {
        assert!(u32::try_from(history.len()).is_ok(), "a history of 2^32 tokens cannot be indexed");
        if !history.starts_with(&self.history) {
            self.forget_history();
        }
        self.history.extend_from_slice(&history[self.history.len()..]);
        // An occurrence counts once something follows it; so the suffix never matches itself.
        while self.indexed + 1 < self.history.len() {
            self.indexed += 1;
            let hashes = SuffixHashes::of(&self.history[..self.indexed], self.longest);
            for n in self.shortest..=self.longest.min(self.indexed) {
                self.tables[n - self.shortest].insert(&self.history, self.indexed, n, hashes.at(n));
            }
        }
    }

    fn forget_history(&mut self) {
        self.history.clear();
        self.source = None;
        self.resume = None;
        self.indexed = 0;
        self.tables.fill(Table::default());
    }

    /// What is copied next: the longest match, or the last copy behind the token in which the model left it,
    /// whichever is trusted more. A resumed copy is a match of length 0.
    fn choose(&mut self, history: &[Token]) -> Option<Match> {
        let found = self.longest_match(history);
        let new = |next: &usize| *next < self.history.len() && found.is_none_or(|m| m.next != *next);
        let resume = self.resume.take().filter(new);
        let resumed = resume.map(|next| Match { length: 0, next });
        let trust = |m: &Match| self.estimate(m, 0);
        match (found, resumed) {
            (Some(found), Some(resumed)) if trust(&resumed) > trust(&found) => Some(resumed),
            (found, resumed) => found.or(resumed),
        }
    }

    /// Whose trials the `i`-th token of a copy from `source` belongs to: a token behind i accepted ones has a match
    /// i longer.
    fn trust_index(&self, source: &Match, i: usize) -> usize {
        match (source.length, i) {
            (0, 0) => 0,
            (0, i) => (i + 1).min(self.longest),
            (length, i) => (length + i).min(self.longest),
        }
    }

    fn estimate(&self, source: &Match, i: usize) -> f64 {
        let index = self.trust_index(source, i);
        // Unlearnt, a resumed copy is as good as a match of two tokens.
        let length = if index == 0 { 2 } else { index };
        self.trust[index].estimate(length)
    }
}

impl Default for Ngram {
    fn default() -> Self {
        Ngram::new()
    }
}

impl Drafter for Ngram {
    fn name(&self) -> &'static str {
        "ngram"
    }

    fn propose(&mut self, target: &mut dyn Target, block: &mut Block) {
        self.source = self.choose(target.history());
        let Some(source) = self.source else {
            return;
        };
        let mut chance = 1.0;
        for i in 0..block.capacity() {
            let estimate = self.estimate(&source, i);
            chance *= estimate;
            if chance < WORTH {
                break;
            }
            let from = source.next + i;
            // A match that overlaps the end is a period: it goes on with its own continuation.
            let token = match self.history.get(from) {
                Some(&token) => token,
                None => block.tokens()[from - self.history.len()],
            };
            block.push(token, estimate);
        }
        if block.is_empty() {
            // Silence teaches nothing; forgetting a little each time makes sure that it is tried again.
            let index = self.trust_index(&source, 0);
            self.trust[index].fade();
        }
    }

    fn observe(&mut self, outcome: &Outcome) {
        let Some(source) = self.source.take() else {
            return;
        };
        // What lies behind the first rejection was not tried.
        let tried = outcome.drafted.len().min(outcome.accepted + 1);
        for i in 0..tried {
            let index = self.trust_index(&source, i);
            self.trust[index].learn(i < outcome.accepted);
        }
        self.resume = Some(source.next + outcome.accepted + 1);
    }

    fn prefilled(&mut self, _rows: usize, _time: Duration) {}

    fn decision(&self) -> Decision {
        Decision { drafter: self.name(), ..Decision::default() }
    }

    fn reset(&mut self) {
        self.forget_history();
        self.trust.fill(Trust::default());
    }
}

/// Acceptance of tokens drafted on a match of one length, older trials fading.
#[derive(Debug, Clone, Copy, Default)]
struct Trust {
    accepted: f64,
    tried: f64,
}

impl Trust {
    /// Chance that the next token is accepted, with `length` imagined successes and one imagined failure.
    fn estimate(&self, length: usize) -> f64 {
        let length = length as f64;
        (self.accepted + length) / (self.tried + length + 1.0)
    }

    fn learn(&mut self, accepted: bool) {
        self.fade();
        self.tried += 1.0;
        if accepted {
            self.accepted += 1.0;
        }
    }

    fn fade(&mut self) {
        self.accepted *= MEMORY;
        self.tried *= MEMORY;
    }
}

/// Hashes of the suffixes of a text, by their length.
struct SuffixHashes([u64; LONGEST_HASHED + 1]);

/// Suffixes longer than this share the hash of their last so many tokens; comparison tells them apart.
const LONGEST_HASHED: usize = 32;

impl SuffixHashes {
    fn of(text: &[Token], longest: usize) -> Self {
        let mut hashes = [0; LONGEST_HASHED + 1];
        let mut hash = 0u64;
        for (n, &token) in text.iter().rev().take(longest.min(LONGEST_HASHED)).enumerate() {
            // One multiply and one xor-shift per token: the odd constant is 2^64 over the golden ratio.
            hash = (hash ^ (u64::from(token) + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            hash ^= hash >> 29;
            hashes[n + 1] = hash;
        }
        SuffixHashes(hashes)
    }

    fn at(&self, n: usize) -> u64 {
        self.0[n.min(LONGEST_HASHED)]
    }
}

/// Open-addressing set of n-grams of one length. A slot is the n-gram's end: the index of the token after
/// it; 0 is free, since no n-gram ends before the first token.
#[derive(Debug, Clone, Default)]
struct Table {
    slots: Vec<u32>,
    used: usize,
}

impl Table {
    /// End of the most recent insertion equal to `gram`.
    fn find(&self, history: &[Token], gram: &[Token], hash: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let end = self.slots[self.slot_of(history, gram, hash)] as usize;
        (end != 0).then_some(end)
    }

    /// Makes `end` the most recent occurrence of `history[end - n..end]`.
    fn insert(&mut self, history: &[Token], end: usize, n: usize, hash: u64) {
        if (self.used + 1) * 2 > self.slots.len() {
            self.grow(history, n);
        }
        let slot = self.slot_of(history, &history[end - n..end], hash);
        self.used += usize::from(self.slots[slot] == 0);
        self.slots[slot] = end as u32;
    }

    /// The slot that holds `gram`, or the free one where it belongs. The table is never full.
    fn slot_of(&self, history: &[Token], gram: &[Token], hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let end = self.slots[slot] as usize;
            if end == 0 || history[end - gram.len()..end] == *gram {
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }

    fn grow(&mut self, history: &[Token], n: usize) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![0; (old.len() * 2).max(64)];
        for end in old.into_iter().filter(|&end| end != 0) {
            let gram = &history[end as usize - n..end as usize];
            let slot = self.slot_of(history, gram, SuffixHashes::of(gram, n).at(n));
            self.slots[slot] = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::{Guess, Head};

    struct History(Vec<Token>);

    impl Target for History {
        fn history(&self) -> &[Token] {
            &self.0
        }

        fn now(&self) -> Duration {
            Duration::ZERO
        }

        fn guess(&mut self, _head: Head, _prefix: &[Token], _more: &mut dyn FnMut(Guess) -> bool) {}
    }

    fn told<'a>(drafted: &'a [Token], accepted: usize, emitted: &'a [Token]) -> Outcome<'a> {
        Outcome { drafted, accepted, emitted, time: Duration::ZERO }
    }

    fn proposal(drafter: &mut Ngram, history: &[Token], capacity: usize) -> Vec<Token> {
        let mut block = Block::new(capacity);
        drafter.propose(&mut History(history.to_vec()), &mut block);
        block.tokens().to_vec()
    }

    #[test]
    fn nothing_is_proposed_without_a_repetition() {
        assert_eq!(proposal(&mut Ngram::new(), &[], 8), []);
        assert_eq!(proposal(&mut Ngram::new(), &[1], 8), []);
        assert_eq!(proposal(&mut Ngram::new(), &[1, 2, 3, 1], 8), []);
    }

    #[test]
    fn an_untaught_drafter_proposes_in_proportion_to_the_match() {
        let history = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3];
        assert_eq!(proposal(&mut Ngram::new(), &history, 8), [4, 5, 6, 7, 8]);
        assert_eq!(proposal(&mut Ngram::new(), &history, 2), [4, 5]);
    }

    #[test]
    fn the_most_recent_occurrence_is_preferred() {
        let history = [1, 2, 3, 4, 1, 2, 5, 6, 1, 2];
        assert_eq!(proposal(&mut Ngram::new(), &history, 8), [5, 6, 1]);
    }

    #[test]
    fn a_period_fills_the_block_from_itself() {
        let history: Vec<Token> = [1, 2, 3].repeat(9);
        let expected: Vec<Token> = [1, 2, 3].repeat(6)[..16].to_vec();
        assert_eq!(proposal(&mut Ngram::new(), &history, 16), expected);
    }

    #[test]
    fn a_copy_is_resumed_behind_the_token_that_was_changed() {
        // The model copies 1 to 9 but writes 50 for 4: no match of two tokens ends in 50.
        let mut drafter = Ngram::new();
        let mut history = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2];
        let drafted = proposal(&mut drafter, &history, 8);
        assert_eq!(drafted[..2], [3, 4]);
        drafter.observe(&told(&drafted, 1, &[3, 50]));
        history.extend([3, 50]);
        assert_eq!(proposal(&mut drafter, &history, 8), [5, 6]);
    }

    #[test]
    fn a_copy_is_not_resumed_beyond_the_history_or_in_another_one() {
        let mut drafter = Ngram::new();
        let drafted = proposal(&mut drafter, &[7, 7, 7], 8);
        // The output ends inside the block, and the next history is not longer by what was emitted.
        drafter.observe(&told(&drafted, drafted.len(), &drafted));
        assert_eq!(proposal(&mut drafter, &[7, 7, 7, 5], 8), []);
        let drafted = proposal(&mut drafter, &[1, 2, 3, 1, 2], 8);
        drafter.observe(&told(&drafted, 0, &[9]));
        assert_eq!(proposal(&mut drafter, &[4, 5, 6, 8, 9], 8), []);
    }

    #[test]
    fn a_truncated_or_replaced_history_is_indexed_anew() {
        let mut drafter = Ngram::new();
        proposal(&mut drafter, &[1, 2, 3, 4, 1, 2], 8);
        assert_eq!(drafter.longest_match(&[1, 2, 3, 1]), None);
        assert_eq!(drafter.longest_match(&[7, 1, 2, 9, 9, 1, 2]), Some(Match { length: 2, next: 3 }));
    }

    #[test]
    fn rejection_silences_a_match_length_and_silence_is_forgotten() {
        let mut drafter = Ngram::new();
        let history = [1, 2, 3, 4, 1, 2];
        for _ in 0..200 {
            let drafted = proposal(&mut drafter, &history, 8);
            if drafted.is_empty() {
                break;
            }
            drafter.observe(&told(&drafted, 0, &[9]));
        }
        assert_eq!(proposal(&mut drafter, &history, 8), []);
        assert!((0..200).any(|_| !proposal(&mut drafter, &history, 8).is_empty()));
    }

    #[test]
    fn acceptance_lengthens_the_block() {
        let mut drafter = Ngram::new();
        let history: Vec<Token> = (0..40).chain(0..2).collect();
        for _ in 0..32 {
            let drafted = proposal(&mut drafter, &history, 16);
            drafter.observe(&told(&drafted, drafted.len(), &drafted));
        }
        assert_eq!(proposal(&mut drafter, &history, 16).len(), 16);
    }

    #[test]
    fn reset_makes_it_new() {
        let history: Vec<Token> = (0..40).chain(0..2).collect();
        let mut drafter = Ngram::new();
        let fresh = proposal(&mut drafter, &history, 16);
        drafter.observe(&told(&fresh, 0, &[9]));
        drafter.reset();
        assert_eq!(proposal(&mut drafter, &history, 16), fresh);
    }
}
