//! In how many micro-blocks a pass goes over several dies, learnt from what passes took.
//!
//! Owns: the choice and its memory. Refuses to know: how micro-blocks are run.
//!
//! A pass of two micro-blocks keeps both dies busy, but reads its weights twice; which is faster depends on the card, the model and
//! the number of rows. The bits are the same however a pass is cut, so each way is tried on real passes, and then the fastest
//! is kept.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Micro-blocks that are tried.
const WAYS: [usize; 4] = [1, 2, 4, 8];

/// Rows of a micro-block, at least.
const FEWEST: usize = 4;

/// Passes of each way before one is chosen.
const TRIES: usize = 3;

/// What passes took, by rows.
#[derive(Default)]
pub struct Cut {
    /// Not learnt but asked for.
    fixed: Option<usize>,
    seen: Mutex<HashMap<usize, [Way; WAYS.len()]>>,
}

#[derive(Debug, Clone, Copy)]
struct Way {
    tries: usize,
    fastest: f64,
}

impl Cut {
    /// As near to `blocks` micro-blocks as rows allow.
    pub fn fixed(blocks: usize) -> Cut {
        Cut { fixed: Some(blocks), ..Cut::default() }
    }

    /// Micro-blocks for a pass of `rows` rows: a way that was not tried enough, else the fastest.
    pub fn choose(&self, rows: usize) -> usize {
        let ways = possible(rows);
        if let Some(wanted) = self.fixed {
            return WAYS[..ways].iter().copied().filter(|&blocks| blocks <= wanted).max().unwrap_or(1);
        }
        let seen = self.lock();
        let Some(seen) = seen.get(&rows) else {
            return 1;
        };
        if let Some(way) = (0..ways).find(|&way| seen[way].tries < TRIES) {
            return WAYS[way];
        }
        let fastest = (0..ways).min_by(|&a, &b| seen[a].fastest.total_cmp(&seen[b].fastest));
        WAYS[fastest.unwrap_or(0)]
    }

    /// Takes in that a pass of `rows` rows in `blocks` micro-blocks took so many seconds.
    pub fn learn(&self, rows: usize, blocks: usize, seconds: f64) {
        let Some(way) = WAYS.iter().position(|&way| way == blocks) else { return };
        let none = [Way { tries: 0, fastest: f64::INFINITY }; WAYS.len()];
        let mut seen = self.lock();
        let way = &mut seen.entry(rows).or_insert(none)[way];
        way.tries += 1;
        way.fastest = way.fastest.min(seconds);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, [Way; WAYS.len()]>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ways in which `rows` rows can be cut.
fn possible(rows: usize) -> usize {
    WAYS.iter().take_while(|&&blocks| blocks == 1 || rows / blocks >= FEWEST).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_tried_and_the_fastest_kept() {
        let cut = Cut::default();
        let seconds = |blocks: usize| [9.0, 5.0, 7.0, 8.0][blocks.ilog2() as usize];
        let mut tried = [0; 4];
        for _ in 0..4 * TRIES {
            let blocks = cut.choose(32);
            tried[blocks.ilog2() as usize] += 1;
            cut.learn(32, blocks, seconds(blocks));
        }
        assert_eq!(tried, [TRIES; 4]);
        assert_eq!(cut.choose(32), 2);
        assert_eq!(cut.choose(8), 1, "another length is its own question");
    }

    #[test]
    fn what_was_asked_for_is_kept_as_far_as_rows_allow() {
        let cut = Cut::fixed(4);
        assert_eq!([1, 7, 8, 15, 16, 100].map(|rows| cut.choose(rows)), [1, 1, 2, 2, 4, 4]);
    }

    #[test]
    fn few_rows_are_not_cut() {
        let cut = Cut::default();
        for _ in 0..20 {
            assert_eq!(cut.choose(7), 1);
            cut.learn(7, 1, 1.0);
        }
    }
}
