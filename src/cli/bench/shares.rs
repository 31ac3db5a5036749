//! What share of what: rates that reports show, by length.
//!
//! Owns: which counts are divided. Refuses to know: how rates are shown.

use crate::engine::{BANDS, Metrics, band};

/// A rate for each of [`BANDS`]; none where nothing was counted.
pub type Banded = [Option<f64>; BANDS.len()];

fn rate(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Acceptance at each position of the block, from the first.
pub fn by_position(metrics: &Metrics) -> Vec<f64> {
    let accepted = metrics.accepted_at.iter().chain(std::iter::repeat(&0));
    metrics
        .drafted_at
        .iter()
        .zip(accepted)
        .map(|(&drafted, &accepted)| rate(accepted, drafted).unwrap_or(0.0))
        .collect()
}

/// Acceptance by position in the block, counted from 1.
pub fn positions(metrics: &Metrics) -> Banded {
    let sums = |counts: &[usize]| {
        let mut sums = [0; BANDS.len()];
        counts.iter().enumerate().for_each(|(i, count)| sums[band(i + 1)] += count);
        sums
    };
    let (accepted, drafted) = (sums(&metrics.accepted_at), sums(&metrics.drafted_at));
    std::array::from_fn(|i| rate(accepted[i], drafted[i]))
}

/// Acceptance of copies by the length of the match that they were copied from.
pub fn matches(metrics: &Metrics) -> Banded {
    metrics.matches.map(|share| rate(share.accepted, share.drafted))
}

/// The share of the passes with a block that accepted so many tokens.
pub fn lengths(metrics: &Metrics) -> Banded {
    let mut passes = [0; BANDS.len()];
    metrics.lengths.iter().enumerate().for_each(|(length, count)| passes[band(length)] += count);
    passes.map(|n| rate(n, metrics.drafted_passes).filter(|&rate| rate > 0.0))
}

/// Where the time went: the parts' shares of all, which add up to 1; zeros if no time was spent.
pub fn times(metrics: &Metrics) -> [(&'static str, f64); 5] {
    let parts = metrics.time_split();
    let whole: f64 = parts.iter().map(|part| part.1).sum();
    parts.map(|(part, seconds)| (part, if whole > 0.0 { seconds / whole } else { 0.0 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Pass, Times};

    fn metrics(passes: &[(usize, usize)]) -> Metrics {
        let mut m = Metrics::default();
        for &(drafted, accepted) in passes {
            let pass = Pass { drafter: "suffix", matched: Some(7), drafted, accepted, emitted: accepted + 1 };
            m.record(pass, Times::default());
        }
        m
    }

    fn only(wanted: &[(usize, f64)]) -> Banded {
        let mut banded = Banded::default();
        wanted.iter().for_each(|&(i, rate)| banded[i] = Some(rate));
        banded
    }

    #[test]
    fn rates_are_those_worked_out_by_hand() {
        let m = metrics(&[(0, 0), (2, 1), (6, 6), (1, 0), (6, 0)]);
        assert_eq!(by_position(&m), [0.5, 1.0 / 3.0, 0.5, 0.5, 0.5, 0.5]);
        assert_eq!(positions(&m), only(&[(1, 0.5), (2, 1.0 / 3.0), (3, 0.5), (4, 0.5), (5, 0.5)]));
        assert_eq!(matches(&m), only(&[(5, 7.0 / 15.0)]));
        assert_eq!(lengths(&m), only(&[(0, 0.5), (1, 0.25), (5, 0.25)]));
    }

    #[test]
    fn nothing_counted_has_no_rates() {
        let m = metrics(&[(0, 0)]);
        assert!(by_position(&m).is_empty());
        assert_eq!([positions(&m), matches(&m), lengths(&m)], [Banded::default(); 3]);
    }
}
