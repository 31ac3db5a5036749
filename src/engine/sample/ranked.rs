//! Candidates in the order of their logits.
//!
//! Owns: the order, made only as far as somebody looks. Refuses to know: probabilities.

use draft::Token;

/// How many ranks are put in order at first; a vocabulary has thousands of times more.
const FIRST: usize = 64;

/// Candidates: the larger logit first, the lower token first among equals. NaN and −∞ are no candidates.
#[derive(Debug, Default)]
pub struct Ranked {
    /// See [`key`]. The first `sorted` are the smallest, in order; the others are in the order they came in if `sorted`
    /// is 0, and in none otherwise.
    keys: Vec<u64>,
    sorted: usize,
}

/// A number that is smaller for a larger logit, and among equal ones for a lower token.
fn key(logit: f32, token: Token) -> u64 {
    // −0 + 0 is 0: the two are equal, so the token decides.
    let bits = (logit + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(!ascending) << 32 | u64::from(token)
}

fn logit(key: u64) -> f32 {
    let ascending = !((key >> 32) as u32);
    f32::from_bits(if ascending >> 31 == 1 { ascending & !(1 << 31) } else { !ascending })
}

impl Ranked {
    /// Makes these the candidates.
    pub fn fill(&mut self, candidates: impl Iterator<Item = (Token, f32)>) {
        self.keys.clear();
        self.sorted = 0;
        self.keys.extend(candidates.filter(|&(_, l)| l > f32::NEG_INFINITY).map(|(token, l)| key(l, token)));
    }

    /// Drops all but the first `n` in rank.
    pub fn keep(&mut self, n: usize) {
        if n < self.keys.len() {
            self.order(n);
            self.keys.truncate(n);
        }
    }

    /// The candidate of a rank, the best one's is 0; `None` behind the last one.
    pub fn get(&mut self, rank: usize) -> Option<(Token, f32)> {
        if rank >= self.sorted {
            self.order((rank + 1).max(4 * self.sorted).max(FIRST).min(self.keys.len()));
        }
        self.keys.get(rank).map(|&key| (key as Token, logit(key)))
    }

    /// The logits, in the order the candidates came in. Only before anybody asked for a rank.
    pub fn unordered(&self) -> impl Iterator<Item = f32> + '_ {
        assert_eq!(self.sorted, 0, "ranks have been made");
        self.keys.iter().map(|&key| logit(key))
    }

    /// Puts the first `n` ranks in order.
    fn order(&mut self, n: usize) {
        let Some(more) = n.checked_sub(self.sorted) else {
            return;
        };
        let rest = &mut self.keys[self.sorted..];
        if more < rest.len() {
            rest.select_nth_unstable(more);
        }
        rest[..more].sort_unstable();
        self.sorted = n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_the_logit_and_the_order() {
        let values = [f32::INFINITY, f32::MAX, 1.5, 1.0, 1e-40, 0.0, -1e-40, -2.0, f32::MIN];
        for (i, &a) in values.iter().enumerate() {
            assert_eq!(logit(key(a, 7)), a);
            assert!(key(a, 3) < key(a, 4));
            assert!(values[i + 1..].iter().all(|&b| key(a, u32::MAX) < key(b, 0)));
        }
        assert_eq!(key(-0.0, 1), key(0.0, 1));
    }

    #[test]
    fn ranks_are_those_of_a_full_sort_however_they_are_asked_for() {
        let logits: Vec<f32> = (0..1000u32).map(|i| ((i * 7919) % 97) as f32 - 40.0).collect();
        let mut expected: Vec<(Token, f32)> = (0..).zip(logits.iter().copied()).collect();
        expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let filled = || {
            let mut ranked = Ranked::default();
            ranked.fill((0..).zip(logits.iter().copied()));
            ranked
        };
        let all = |mut ranked: Ranked| (0..).map_while(|rank| ranked.get(rank)).collect::<Vec<_>>();
        assert_eq!(all(filled()), expected);
        for n in [0, 1, 63, 64, 65, 999, 1000, 1001] {
            let mut ranked = filled();
            ranked.keep(n);
            assert_eq!(ranked.get(n), None);
            assert_eq!(all(ranked), expected[..n.min(1000)]);
            let mut ranked = filled();
            assert_eq!(ranked.get(n), expected.get(n).copied());
            assert_eq!(all(ranked), expected);
        }
    }

    #[test]
    fn what_cannot_be_chosen_is_no_candidate() {
        let mut ranked = Ranked::default();
        ranked.fill([(0, f32::NAN), (1, f32::NEG_INFINITY), (2, -1.0), (3, -f32::NAN)].into_iter());
        assert_eq!((ranked.get(0), ranked.get(1)), (Some((2, -1.0)), None));
    }
}
