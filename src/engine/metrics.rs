//! Counts of a generation and the rates that follow from them.
//!
//! Owns: what counts as drafted, accepted, emitted. Refuses to know: clocks; times are handed in.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// The bands in which lengths are counted.
pub const BANDS: [&str; 9] = ["0", "1", "2", "3", "4", "5-8", "9-16", "17-32", "33+"];

/// Which of [`BANDS`] a length is in.
pub fn band(length: usize) -> usize {
    match length {
        0..=4 => length,
        5..=8 => 5,
        9..=16 => 6,
        17..=32 => 7,
        _ => 8,
    }
}

/// One pass: its block, and what became of it. A token dropped by a stop or a limit is neither accepted nor emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Who drafted; it does not matter where nothing was drafted.
    pub drafter: &'static str,
    /// Tokens of the match that was copied from, if the block is a copy.
    pub matched: Option<usize>,
    /// Tokens in the block.
    pub drafted: usize,
    /// Drafted tokens that were emitted.
    pub accepted: usize,
    /// Tokens emitted: the accepted ones, and the bonus unless a stop or a limit came before it.
    pub emitted: usize,
}

/// Where a step's time went. What is left of `all` went into choosing tokens and learning from the outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Drafting.
    pub draft: Duration,
    /// The pass, up to its last layer.
    pub verify: Duration,
    /// The pass behind its last layer: output norm, output matrix, best tokens.
    pub head: Duration,
    /// Keeping the rows that were right.
    pub rollback: Duration,
    /// The whole step.
    pub all: Duration,
}

/// Some of the passes with a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// How many.
    pub passes: usize,
    /// Tokens drafted for them.
    pub drafted: usize,
    /// Drafted tokens that were emitted.
    pub accepted: usize,
}

/// Sums over passes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Metrics {
    /// Forward passes.
    pub passes: usize,
    /// Passes with a block.
    pub drafted_passes: usize,
    /// Rows evaluated: one for each pass, one for each drafted token.
    pub rows: usize,
    /// Tokens drafted.
    pub drafted: usize,
    /// Drafted tokens that were emitted.
    pub accepted: usize,
    /// The model's own tokens after the accepted ones.
    pub bonus: usize,
    /// All tokens emitted.
    pub emitted: usize,
    /// How often the block had a token at each position.
    pub drafted_at: Vec<usize>,
    /// How often the token at each position was accepted.
    pub accepted_at: Vec<usize>,
    /// How many passes with a block accepted 0, 1, 2... tokens.
    pub lengths: Vec<usize>,
    /// The passes with a block by who drafted, in the order in which they first did.
    #[serde(serialize_with = "named")]
    pub drafters: Vec<(&'static str, Share)>,
    /// The passes whose block was a copy, by the length of the match, in [`BANDS`].
    #[serde(serialize_with = "banded")]
    pub matches: [Share; BANDS.len()],
    /// Time spent drafting.
    #[serde(serialize_with = "seconds")]
    pub draft_time: Duration,
    /// Time spent in passes, up to the last layer; in whole passes on a device that works while the host goes ahead.
    #[serde(serialize_with = "seconds")]
    pub verify_time: Duration,
    /// Time spent in passes behind the last layer: output norm, output matrix, best tokens.
    #[serde(serialize_with = "seconds")]
    pub head_time: Duration,
    /// Time spent keeping the rows that were right.
    #[serde(serialize_with = "seconds")]
    pub rollback_time: Duration,
    /// Time spent in steps, drafting included.
    #[serde(serialize_with = "seconds")]
    pub time: Duration,
}

fn seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

fn named<S: Serializer>(shares: &[(&'static str, Share)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(shares.iter().map(|(name, share)| (name, share)))
}

fn banded<S: Serializer>(shares: &[Share; BANDS.len()], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(BANDS.iter().zip(shares))
}

/// `a / b`, 0 where nothing was counted.
fn ratio(a: usize, b: usize) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Adds 1 to each of the first `n` counters.
fn bump(counters: &mut Vec<usize>, n: usize) {
    if counters.len() < n {
        counters.resize(n, 0);
    }
    counters[..n].iter_mut().for_each(|c| *c += 1);
}

/// Adds `more` to `counters`, position by position.
fn add(counters: &mut Vec<usize>, more: &[usize]) {
    if counters.len() < more.len() {
        counters.resize(more.len(), 0);
    }
    counters.iter_mut().zip(more).for_each(|(c, m)| *c += m);
}

impl Share {
    fn merge(&mut self, other: &Share) {
        self.passes += other.passes;
        self.drafted += other.drafted;
        self.accepted += other.accepted;
    }

    /// Accepted of drafted tokens, 0 to 1.
    pub fn acceptance(&self) -> f64 {
        ratio(self.accepted, self.drafted)
    }
}

impl Metrics {
    /// Counts one pass and its time.
    pub fn record(&mut self, pass: Pass, times: Times) {
        assert!(pass.accepted <= pass.drafted && pass.accepted <= pass.emitted, "accepted tokens were drafted");
        self.passes += 1;
        self.rows += pass.drafted + 1;
        self.drafted += pass.drafted;
        self.accepted += pass.accepted;
        self.bonus += pass.emitted - pass.accepted;
        self.emitted += pass.emitted;
        if pass.drafted > 0 {
            self.drafted_passes += 1;
            bump(&mut self.drafted_at, pass.drafted);
            bump(&mut self.accepted_at, pass.accepted);
            if self.lengths.len() <= pass.accepted {
                self.lengths.resize(pass.accepted + 1, 0);
            }
            self.lengths[pass.accepted] += 1;
            let share = Share { passes: 1, drafted: pass.drafted, accepted: pass.accepted };
            self.share(pass.drafter).merge(&share);
            if let Some(matched) = pass.matched {
                self.matches[band(matched)].merge(&share);
            }
        }
        self.draft_time += times.draft;
        self.verify_time += times.verify;
        self.head_time += times.head;
        self.rollback_time += times.rollback;
        self.time += times.all;
    }

    /// The passes of `drafter`.
    fn share(&mut self, drafter: &'static str) -> &mut Share {
        let known = self.drafters.iter().position(|(name, _)| *name == drafter);
        let i = known.unwrap_or_else(|| {
            self.drafters.push((drafter, Share::default()));
            self.drafters.len() - 1
        });
        &mut self.drafters[i].1
    }

    /// Adds another generation's counts.
    pub fn merge(&mut self, other: &Metrics) {
        self.passes += other.passes;
        self.drafted_passes += other.drafted_passes;
        self.rows += other.rows;
        self.drafted += other.drafted;
        self.accepted += other.accepted;
        self.bonus += other.bonus;
        self.emitted += other.emitted;
        add(&mut self.drafted_at, &other.drafted_at);
        add(&mut self.accepted_at, &other.accepted_at);
        add(&mut self.lengths, &other.lengths);
        other.drafters.iter().for_each(|(name, share)| self.share(name).merge(share));
        self.matches.iter_mut().zip(&other.matches).for_each(|(sum, more)| sum.merge(more));
        self.draft_time += other.draft_time;
        self.verify_time += other.verify_time;
        self.head_time += other.head_time;
        self.rollback_time += other.rollback_time;
        self.time += other.time;
    }

    /// Accepted of drafted tokens, 0 to 1.
    pub fn acceptance(&self) -> f64 {
        ratio(self.accepted, self.drafted)
    }

    /// Time that was spent on none of drafting, the pass, the head and rolling back.
    pub fn other_time(&self) -> Duration {
        self.time.saturating_sub(self.draft_time + self.verify_time + self.head_time + self.rollback_time)
    }

    /// Where the time went, in seconds; the parts' sum is the time.
    pub fn time_split(&self) -> [(&'static str, f64); 5] {
        [
            ("draft", self.draft_time),
            ("verify", self.verify_time),
            ("head", self.head_time),
            ("rollback", self.rollback_time),
            ("other", self.other_time()),
        ]
        .map(|(part, time)| (part, time.as_secs_f64()))
    }

    /// Emitted tokens per pass.
    pub fn tokens_per_pass(&self) -> f64 {
        ratio(self.emitted, self.passes)
    }

    /// Emitted tokens per second of step time.
    pub fn tokens_per_second(&self) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { self.emitted as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes by drafter, match, drafted, accepted and emitted tokens.
    fn tell(passes: &[(&'static str, Option<usize>, [usize; 3])]) -> Metrics {
        let mut m = Metrics::default();
        for &(drafter, matched, [drafted, accepted, emitted]) in passes {
            let [draft, verify, head, rollback, all] = [1, 5, 2, 1, 10].map(Duration::from_millis);
            let pass = Pass { drafter, matched, drafted, accepted, emitted };
            m.record(pass, Times { draft, verify, head, rollback, all });
        }
        m
    }

    /// The same where nobody cares who drafted.
    fn count(passes: &[(usize, usize, usize)]) -> Metrics {
        let pass = |&(drafted, accepted, emitted): &_| ("suffix", Some(drafted), [drafted, accepted, emitted]);
        tell(&passes.iter().map(pass).collect::<Vec<_>>())
    }

    /// The sum over `shares`.
    fn sum<'a>(shares: impl Iterator<Item = &'a Share>) -> Share {
        shares.fold(Share::default(), |mut sum, share| {
            sum.merge(share);
            sum
        })
    }

    #[test]
    fn a_scripted_run_gives_the_counts_worked_out_by_hand() {
        // Empty draft; 2 of 4; 4 of 4 and the bonus; 3 drafted, a stop inside the block after 2 accepted.
        let m = count(&[(0, 0, 1), (4, 2, 3), (4, 4, 5), (3, 2, 2)]);
        assert_eq!((m.passes, m.drafted_passes, m.rows), (4, 3, 15));
        assert_eq!((m.drafted, m.accepted, m.bonus, m.emitted), (11, 8, 3, 11));
        assert_eq!(m.drafted_at, [3, 3, 3, 2]);
        assert_eq!(m.accepted_at, [3, 3, 1, 1]);
        assert_eq!(m.lengths, [0, 0, 2, 0, 1]);
        assert_eq!(m.acceptance(), 8.0 / 11.0);
        assert_eq!(m.tokens_per_pass(), 11.0 / 4.0);
    }

    #[test]
    fn nothing_counted_gives_zeros_not_nan() {
        let m = Metrics::default();
        assert_eq!((m.acceptance(), m.tokens_per_pass(), m.tokens_per_second()), (0.0, 0.0, 0.0));
        assert_eq!(count(&[(0, 0, 1)]).acceptance(), 0.0);
        assert_eq!((m.matches[3].acceptance(), m.other_time()), (0.0, Duration::ZERO));
    }

    #[test]
    fn passes_are_told_apart_by_drafter_and_by_match() {
        let m = tell(&[
            ("suffix", Some(3), [4, 2, 3]),
            ("mtp", None, [1, 1, 2]),
            ("suffix", Some(40), [8, 8, 9]),
            ("", Some(5), [0, 0, 1]),
            ("suffix", Some(8), [2, 0, 1]),
        ]);
        let share = |passes, drafted, accepted| Share { passes, drafted, accepted };
        assert_eq!(m.drafters, [("suffix", share(3, 14, 10)), ("mtp", share(1, 1, 1))]);
        let found: Vec<_> = BANDS.iter().zip(m.matches).filter(|(_, share)| share.passes > 0).collect();
        assert_eq!(found, [(&"3", share(1, 4, 2)), (&"5-8", share(1, 2, 0)), (&"33+", share(1, 8, 8))]);
        assert_eq!(m.other_time(), Duration::from_millis(5));
    }

    #[test]
    fn every_length_is_in_the_band_that_names_it() {
        for (i, name) in BANDS.iter().enumerate() {
            let ends: Vec<usize> = name.trim_end_matches('+').split('-').map(|end| end.parse().unwrap()).collect();
            assert!(ends.iter().all(|&end| band(end) == i), "{name}");
            assert_eq!(band(ends[ends.len() - 1] + 1), (i + 1).min(BANDS.len() - 1), "{name}");
        }
    }

    #[test]
    fn the_invariants_hold_for_every_short_script_and_survive_a_merge() {
        let mut all = Metrics::default();
        for drafted in 0..5 {
            for accepted in 0..=drafted {
                for bonus in 0..=1 {
                    let m = count(&[(drafted, accepted, (accepted + bonus).max(1)), (2, 1, 2)]);
                    all.merge(&m);
                }
            }
        }
        assert_eq!(all.accepted_at.iter().sum::<usize>(), all.accepted);
        assert_eq!(all.drafted_at.iter().sum::<usize>(), all.drafted);
        assert_eq!(all.lengths.iter().sum::<usize>(), all.drafted_passes);
        assert_eq!(all.lengths.iter().enumerate().map(|(n, c)| n * c).sum::<usize>(), all.accepted);
        assert!(all.accepted <= all.drafted);
        assert_eq!(all.emitted, all.accepted + all.bonus);
        let whole = Share { passes: all.drafted_passes, drafted: all.drafted, accepted: all.accepted };
        assert_eq!((sum(all.drafters.iter().map(|d| &d.1)), sum(all.matches.iter())), (whole, whole));
        let parts = all.draft_time + all.verify_time + all.head_time + all.rollback_time + all.other_time();
        assert_eq!(parts, all.time);
    }
}
