//! Random numbers without a state.
//!
//! Owns: the generator Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
//! 2011). Refuses to know: what is drawn with them. It is integers only, so every machine gives the same numbers.

/// Ten rounds over a counter under a key: 128 bits that look random, a different 128 for every counter.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let [c0, c1, c2, c3] = counter;
        let a = u64::from(MULTIPLIERS[0]) * u64::from(c0);
        let b = u64::from(MULTIPLIERS[1]) * u64::from(c2);
        counter = [(b >> 32) as u32 ^ c1 ^ key[0], b as u32, (a >> 32) as u32 ^ c3 ^ key[1], a as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// The number in [0, 1) that belongs to `position` of the text under `seed`: a multiple of 2^-53.
pub fn uniform(seed: u64, position: u64) -> f64 {
    let halves = |x: u64| [x as u32, (x >> 32) as u32];
    let [low, high] = halves(position);
    let [a, b, ..] = philox([low, high, 0, 0], halves(seed));
    let bits = u64::from(a) << 32 | u64::from(b);
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_answers_are_met() {
        let known = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, answer) in known {
            assert_eq!(philox(counter, key), answer);
        }
    }

    /// Pearson's statistic of `counts` against equal expectations.
    fn chi_square(counts: &[u32]) -> f64 {
        let expected = counts.iter().sum::<u32>() as f64 / counts.len() as f64;
        counts.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum()
    }

    #[test]
    fn numbers_are_spread_evenly_over_positions_and_over_seeds() {
        for along_seeds in [false, true] {
            for fixed in [0, 1, u64::MAX] {
                let mut singles = vec![0; 64];
                let mut pairs = vec![0; 256];
                let mut last = 0;
                for i in 0..40_000 {
                    let u = if along_seeds { uniform(i, fixed) } else { uniform(fixed, i) };
                    assert!((0.0..1.0).contains(&u));
                    singles[(u * 64.0) as usize] += 1;
                    let now = (u * 16.0) as usize;
                    pairs[last * 16 + now] += 1;
                    last = now;
                }
                // The 99.99 % points for 63 and 255 degrees of freedom.
                assert!(chi_square(&singles) < 111.0, "{along_seeds} {fixed}: {}", chi_square(&singles));
                assert!(chi_square(&pairs) < 347.0, "{along_seeds} {fixed}: {}", chi_square(&pairs));
            }
        }
    }

    #[test]
    fn all_bits_of_seed_and_position_count() {
        let first = uniform(0, 0);
        for bit in 0..64 {
            assert_ne!(uniform(1 << bit, 0), first);
            assert_ne!(uniform(0, 1 << bit), first);
        }
    }
}
