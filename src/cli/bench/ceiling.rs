//! What drafting could gain at most, with passes that cost what they cost here.
//!
//! Owns: the two ceilings. Refuses to know: clocks, and who drafts.
//!
//! A pass of n rows costs T(n). Were every drafted token right, blocks of n - 1 tokens would give n tokens for T(n), which
//! plain decoding gives for n·T(1): the ceiling is the best n·T(1)/T(n). Nearer is what perfect cuts would have given: the
//! tokens that were accepted, in the same passes, without one row for a token that was not.

use super::passes::Point;
use crate::engine::Metrics;

/// What passes cost.
pub struct Ceiling {
    /// Rows, ascending from 1, and the pass's time, that of one row being 1.
    pub costs: Vec<(usize, f64)>,
}

impl Ceiling {
    /// Of a measured curve, from one row on.
    pub fn new(points: &[Point]) -> Ceiling {
        let one = points[0].fastest();
        Ceiling { costs: points.iter().map(|p| (p.rows, p.fastest() / one)).collect() }
    }

    /// The time of a pass of `rows` rows, between measured ones and behind them on a straight line.
    pub fn cost(&self, rows: usize) -> f64 {
        let behind = self.costs.partition_point(|&(measured, _)| measured < rows);
        let Some(&(high, above)) = self.costs.get(behind.min(self.costs.len() - 1)) else {
            return 1.0;
        };
        if high <= rows {
            return above * rows as f64 / high as f64;
        }
        let (low, below) = self.costs[behind - 1];
        below + (above - below) * (rows - low) as f64 / (high - low) as f64
    }

    /// The rows of the best pass in which every drafted token is right, and how many times as fast as plain decoding
    /// such passes are.
    pub fn best(&self) -> (usize, f64) {
        let gains = self.costs.iter().map(|&(rows, cost)| (rows, rows as f64 / cost));
        gains.fold((1, 1.0), |best, gain| if gain.1 > best.1 { gain } else { best })
    }

    /// How many times as fast as plain decoding the passes of `metrics` would have been, had just the tokens been drafted
    /// that were accepted, at no cost; 1 if there were none.
    pub fn perfect_cuts(&self, metrics: &Metrics) -> f64 {
        let plain = (metrics.passes - metrics.drafted_passes) as f64;
        let drafted = metrics.lengths.iter().enumerate();
        let cost: f64 = drafted.map(|(accepted, &passes)| passes as f64 * self.cost(accepted + 1)).sum();
        if plain + cost > 0.0 { metrics.emitted as f64 / (plain + cost) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Pass, Times};

    fn ceiling() -> Ceiling {
        Ceiling { costs: vec![(1, 1.0), (2, 1.4), (4, 2.0), (8, 5.0)] }
    }

    fn metrics(passes: &[(usize, usize)]) -> Metrics {
        let mut m = Metrics::default();
        for &(drafted, accepted) in passes {
            let pass = Pass { drafter: "suffix", matched: None, drafted, accepted, emitted: accepted + 1 };
            m.record(pass, Times::default());
        }
        m
    }

    #[test]
    fn costs_lie_on_lines_between_measured_ones() {
        for (rows, cost) in [(1, 1.0), (2, 1.4), (3, 1.7), (4, 2.0), (6, 3.5), (8, 5.0), (16, 10.0)] {
            assert!((ceiling().cost(rows) - cost).abs() < 1e-12, "{rows}");
        }
        assert_eq!(Ceiling { costs: vec![(1, 1.0)] }.cost(3), 3.0);
    }

    #[test]
    fn the_best_pass_is_not_always_the_longest() {
        assert_eq!(ceiling().best(), (4, 2.0));
        assert_eq!(Ceiling { costs: vec![(1, 1.0)] }.best(), (1, 1.0));
    }

    #[test]
    fn perfect_cuts_cost_the_accepted_rows_only() {
        assert_eq!(ceiling().perfect_cuts(&metrics(&[])), 1.0);
        assert_eq!(ceiling().perfect_cuts(&metrics(&[(0, 0), (7, 0)])), 1.0);
        // 1 + 4 tokens for T(1) + T(4); what was drafted in vain does not count.
        assert_eq!(ceiling().perfect_cuts(&metrics(&[(0, 0), (7, 3)])), 5.0 / 3.0);
    }
}
