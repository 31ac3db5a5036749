//! Counts of a generation and the rates that follow from them.
//!
//! Owns: what counts as drafted, accepted, emitted. Refuses to know: clocks; times are handed in.

use std::time::Duration;

use serde::Serialize;

/// One pass: its block, and what became of it. A token dropped by a stop or a limit is neither accepted nor emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Tokens in the block.
    pub drafted: usize,
    /// Drafted tokens that were emitted.
    pub accepted: usize,
    /// Tokens emitted: the accepted ones, and the bonus unless a stop or a limit came before it.
    pub emitted: usize,
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
    /// Time spent drafting.
    #[serde(serialize_with = "seconds")]
    pub draft_time: Duration,
    /// Time spent in steps, drafting included.
    #[serde(serialize_with = "seconds")]
    pub time: Duration,
}

fn seconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
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

impl Metrics {
    /// Counts one pass.
    pub fn record(&mut self, pass: Pass, draft_time: Duration, time: Duration) {
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
        }
        self.draft_time += draft_time;
        self.time += time;
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
        self.draft_time += other.draft_time;
        self.time += other.time;
    }

    /// Accepted of drafted tokens, 0 to 1.
    pub fn acceptance(&self) -> f64 {
        ratio(self.accepted, self.drafted)
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

    fn count(passes: &[(usize, usize, usize)]) -> Metrics {
        let mut m = Metrics::default();
        for &(drafted, accepted, emitted) in passes {
            m.record(Pass { drafted, accepted, emitted }, Duration::from_millis(1), Duration::from_millis(10));
        }
        m
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
    }
}
