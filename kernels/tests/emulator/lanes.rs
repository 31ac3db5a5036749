//! What threads of a block do together.

use super::*;

#[test]
fn a_file_is_compiled_once_for_each_variant() {
    let device = device(0);
    for (variant, value) in [("1", 1), ("2", 2)] {
        let out = room(&device, 32);
        device.launch(&Kernel { variant, ..probe("compiled_as") }, line(1, 32), &[at(&out)]).unwrap();
        assert_eq!(get(&device, &out), [value; 32]);
    }
}

#[test]
fn arguments_of_every_kind_arrive() {
    for seed in SEEDS {
        let device = device(seed);
        let x: Vec<f32> = (0..600).map(|i| i as f32 * 0.25).collect();
        let (a, out) = (put_floats(&device, &x), room(&device, 600));
        let args = [at(&a), Arg::Float(-1.5), Arg::Int(-7), Arg::Int(600), at(&out)];
        run(&device, "arguments", line(3, 256), &args).unwrap();
        let expected: Vec<u32> = x.iter().map(|x| x.mul_add(-1.5, -7.0).to_bits()).collect();
        assert_eq!(get(&device, &out), expected, "seed {seed}");
    }
}

#[test]
fn threads_know_their_place_in_a_grid_of_three_dimensions() {
    for seed in SEEDS {
        let device = device(seed);
        let out = room(&device, 30 * 128);
        run(&device, "places", Grid { blocks: [5, 3, 2], threads: [32, 4], shared: 0 }, &[at(&out)]).unwrap();
        let expected: Vec<u32> = (0..30 * 128)
            .map(|i| {
                let (block, thread) = (i / 128, i % 128);
                block % 5 + 100 * (block / 5 % 3) + 10_000 * (block / 15) + 1_000_000 * thread
            })
            .collect();
        assert_eq!(get(&device, &out), expected, "seed {seed}");
    }
}

#[test]
fn shuffles_and_ballots_follow_the_manual() {
    let input: Vec<u32> = (0..32).map(|i| 900 + 7 * i % 101 + i).collect();
    let v = |lane: usize| input[lane];
    let odd = (0..32).fold(0, |bits, lane| bits | (v(lane) & 1) << lane);
    let any = u32::from(input.contains(&1000)) + 2;
    let mut expected = Vec::new();
    expected.extend((0..32).map(|_| v(7)));
    expected.extend((0..32).map(|l| v(if l >= 3 { l - 3 } else { l })));
    expected.extend((0..32).map(|l| v(if l + 3 < 32 { l + 3 } else { l })));
    expected.extend((0..32).map(|l| v(l ^ 5)));
    // In segments of 8 a lane of a later segment is beyond reach, one of an earlier is not.
    expected.extend((0..32).map(|l| v(if (l ^ 12) >= (l & !7) + 8 { l } else { l ^ 12 })));
    expected.extend((0..32).map(|l| v((l & !7) + 3)));
    expected.extend((0..32).map(|_| odd));
    expected.extend((0..32).map(|_| any));
    for seed in SEEDS {
        let device = device(seed);
        let (a, out) = (put(&device, &input), room(&device, 256));
        run(&device, "shuffles", line(1, 32), &[at(&a), at(&out)]).unwrap();
        assert_eq!(get(&device, &out), expected, "seed {seed}");
    }
}

/// Counts of `values` mod 32.
fn counts(values: &[u32]) -> Vec<u32> {
    let mut counts = vec![0; 32];
    values.iter().for_each(|v| counts[(v & 31) as usize] += 1);
    counts
}

#[test]
fn atomics_count_right_whatever_the_order_and_the_host_threads() {
    let values = noise(64 * 256, 9);
    let of_blocks: Vec<u32> = values.chunks(256).flat_map(counts).collect();
    for (seed, threads) in [(0, 1), (0, 4), (1, 1), (2, 3), (3, 8)] {
        let device = device(seed).with_threads(threads);
        let (a, out) = (put(&device, &values), room(&device, 64 * 32));
        let (total, most) = (put(&device, &[0; 32]), put(&device, &[0]));
        run(&device, "histogram", line(64, 256), &[at(&a), at(&out), at(&total), at(&most)]).unwrap();
        assert_eq!(get(&device, &out), of_blocks, "seed {seed}, {threads} threads");
        assert_eq!(get(&device, &total), counts(&values), "seed {seed}, {threads} threads");
        assert_eq!(get(&device, &most), [*values.iter().max().unwrap()], "seed {seed}, {threads} threads");
    }
}

#[test]
fn dynamic_shared_memory_joins_the_threads_of_a_block() {
    let values = noise(1024, 5);
    for seed in SEEDS {
        for threads in [1, 31, 32, 33, 256, 1024] {
            let device = device(seed);
            let (a, out) = (put(&device, &values[..threads]), room(&device, threads));
            let grid = Grid { shared: 4 * threads as u32, ..line(1, threads as u32) };
            run(&device, "reverse", grid, &[at(&a), at(&out)]).unwrap();
            let expected: Vec<u32> = values[..threads].iter().rev().copied().collect();
            assert_eq!(get(&device, &out), expected, "seed {seed}, {threads} threads");
        }
    }
}

#[test]
fn a_block_finds_no_number_in_its_shared_memory() {
    for (name, shared) in [("finds", 128), ("finds_static", 0)] {
        let device = device(0).with_threads(1);
        let out = room(&device, 96);
        run(&device, name, Grid { shared, ..line(3, 32) }, &[at(&out)]).unwrap();
        assert!(get(&device, &out).iter().all(|&word| f32::from_bits(word).is_nan()), "{name}");
    }
}

#[test]
fn a_barrier_counts_votes() {
    for seed in SEEDS {
        let device = device(seed);
        let values: Vec<u32> = (0..256).map(|i| i * 3 % 256).collect();
        let (a, out) = (put(&device, &values), room(&device, 3));
        run(&device, "votes", line(1, 256), &[at(&a), at(&out)]).unwrap();
        assert_eq!(get(&device, &out), [128, 1, 1], "seed {seed}");
        device.upload(a.at, &bytes(&vec![256; 256])).unwrap();
        run(&device, "votes", line(1, 256), &[at(&a), at(&out)]).unwrap();
        assert_eq!(get(&device, &out), [0, 0, 0], "seed {seed}");
    }
}

#[test]
fn a_barrier_does_not_wait_for_threads_that_have_ended() {
    for seed in SEEDS {
        let device = device(seed);
        let out = room(&device, 64);
        run(&device, "ends_early", line(1, 64), &[at(&out)]).unwrap();
        assert_eq!(get(&device, &out)[..32], (0..32).collect::<Vec<u32>>(), "seed {seed}");
    }
}

#[test]
fn whoever_comes_last_to_a_meeting_need_not_go_on_first() {
    let first_to_go = |seed| {
        let device = device(seed);
        let (counters, out) = (put(&device, &[0, 0]), room(&device, 64));
        run(&device, "meets", line(1, 32), &[at(&counters), at(&out)]).unwrap();
        let turns = get(&device, &out);
        turns[turns[32..].iter().position(|&turn| turn == 0).unwrap()]
    };
    assert_eq!(first_to_go(0), 31);
    let came: Vec<u32> = (1..20).map(first_to_go).collect();
    assert!(came.iter().filter(|&&turn| turn == 31).count() < 10, "{came:?}");
}

#[test]
fn a_warp_is_met_in_the_middle_of_its_work() {
    let seen = |seed| {
        let device = device(seed);
        let (steps, out) = (put(&device, &[0]), room(&device, 1));
        run(&device, "looks", line(1, 64), &[at(&steps), at(&out)]).unwrap();
        get(&device, &out)[0]
    };
    assert_eq!(seen(0), 2);
    let seen: Vec<u32> = (1..40).map(seen).collect();
    assert!((0..=2).all(|steps| seen.contains(&steps)), "{seen:?}");
}

#[test]
fn a_missing_barrier_shows_under_every_random_order() {
    let expected: Vec<u32> = (0..64).map(|i| (i + 63) % 64).collect();
    for name in ["misses_barrier", "misses_static_barrier"] {
        for seed in SEEDS[1..].iter().copied() {
            let device = device(seed);
            let out = room(&device, 64);
            run(&device, name, Grid { shared: 256, ..line(1, 64) }, &[at(&out)]).unwrap();
            let wrong = get(&device, &out).iter().zip(&expected).filter(|(a, b)| a != b).count();
            assert!(wrong > 8, "{name}, seed {seed}: {wrong} of 64 are wrong");
        }
    }
}

#[test]
fn blocks_run_in_order_or_in_another_that_leaves_none_out() {
    for seed in SEEDS {
        for blocks in [1, 2, 60, 64, 97] {
            let device = device(seed).with_threads(1);
            let (counter, out) = (put(&device, &[0]), room(&device, blocks));
            run(&device, "turns", line(blocks as u32, 32), &[at(&counter), at(&out)]).unwrap();
            let mut turns = get(&device, &out);
            let in_order = turns.is_sorted();
            turns.sort_unstable();
            assert_eq!(turns, (0..blocks as u32).collect::<Vec<_>>(), "seed {seed}");
            assert!(in_order || seed != 0, "seed {seed}");
            assert!(!in_order || seed == 0 || blocks < 60, "seed {seed}");
        }
    }
}
