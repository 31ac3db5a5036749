//! Numbers: the device's against Rust's.

use super::*;

#[path = "../../../src/quant/canon/functions.rs"]
#[allow(dead_code)]
mod functions;

fn same(a: u32, b: f32) -> bool {
    a == b.to_bits() || f32::from_bits(a).is_nan() && b.is_nan()
}

#[test]
fn the_tree_the_largest_and_a_dot_product_have_the_bits_of_the_specification() {
    let x: Vec<f32> = noise(101, 3).iter().map(|&word| (word % 20_001) as f32 / 7.0 - 1400.0).collect();
    let mut lanes = [0.0f32; 32];
    x.iter().enumerate().for_each(|(i, &x)| lanes[i % 32] = x.mul_add(x, lanes[i % 32]));
    let tree = |mut sums: [f32; 32]| {
        for half in [16, 8, 4, 2, 1] {
            (0..half).for_each(|i| sums[i] += sums[i + half]);
        }
        sums[0]
    };
    let first: [f32; 32] = x[..32].try_into().unwrap();
    let highest = first.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for seed in SEEDS {
        let device = device(seed);
        let (a, out) = (put_floats(&device, &x), room(&device, 3));
        run(&device, "trees", line(1, 32), &[at(&a), Arg::Int(101), at(&out)]).unwrap();
        assert_eq!(get(&device, &out), [tree(first), highest, tree(lanes)].map(f32::to_bits), "seed {seed}");
    }
}

#[test]
fn every_half_widens_and_narrows_to_itself() {
    let device = device(0);
    let all: Vec<u32> = (0..32_768).map(|i| (2 * i) | ((2 * i + 1) << 16)).collect();
    let (a, wide, back) = (put(&device, &all), room(&device, 65_536), room(&device, 32_768));
    run(&device, "halves", line(256, 256), &[at(&a), at(&wide), at(&back)]).unwrap();
    let (wide, back) = (get(&device, &wide), get(&device, &back));
    for bits in 0..=u16::MAX {
        let half = half::f16::from_bits(bits);
        let again = (back[bits as usize / 2] >> (16 * (bits % 2))) as u16;
        assert!(same(wide[bits as usize], half.to_f32()), "{bits:#06x}");
        assert_eq!(again, if half.is_nan() { 0x7fff } else { bits });
    }
}

#[test]
fn singles_narrow_to_the_nearest_half_ties_to_even() {
    let device = device(0);
    let mut singles =
        vec![0.0, f32::MIN_POSITIVE, 1e-45, 65_504.0, 65_519.996, 65_520.0, 1e30, f32::INFINITY, f32::NAN];
    for bits in 0..0x7c00 {
        let (low, high) = (half::f16::from_bits(bits).to_f32(), half::f16::from_bits(bits + 1).to_f32());
        let middle = if high.is_finite() { low + (high - low) / 2.0 } else { 65_520.0 };
        singles.extend([low, middle, middle.next_down(), middle.next_up()]);
    }
    singles.extend(noise(20_000, 77).iter().map(|&bits| f32::from_bits(bits)));
    let negative: Vec<f32> = singles.iter().map(|x| -x).collect();
    singles.extend(negative);
    singles.extend(vec![0.0; singles.len() % 2]);
    let (a, out) = (put_floats(&device, &singles), room(&device, singles.len() / 2));
    let count = singles.len() as u32;
    run(&device, "narrow", line(count.div_ceil(256), 256), &[at(&a), Arg::Int(count as i32), at(&out)]).unwrap();
    let out = get(&device, &out);
    for (i, &single) in singles.iter().enumerate() {
        let found = (out[i / 2] >> (16 * (i % 2))) as u16;
        let expected = half::f16::from_f32(single);
        let expected = if expected.is_nan() { 0x7fff } else { expected.to_bits() };
        assert_eq!(found, expected, "{single:e} ({:#010x})", single.to_bits());
    }
}

#[test]
fn exponentials_have_the_bits_of_their_twins() {
    let device = device(0);
    let mut x: Vec<f32> = noise(20_000, 21).iter().map(|&bits| f32::from_bits(bits)).collect();
    x.extend((-2000..2000).map(|i| i as f32 * 0.05));
    x.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -87.336_54, 88.722_83, -87.34, 88.73]);
    let (a, out) = (put_floats(&device, &x), room(&device, 5 * x.len()));
    let count = x.len() as u32;
    run(&device, "functions", line(count.div_ceil(32), 32), &[at(&a), Arg::Int(count as i32), at(&out)]).unwrap();
    let out = get(&device, &out);
    for (x, found) in x.iter().zip(out.chunks(5)) {
        let twins: [fn(f32) -> f32; 5] =
            [functions::exp, functions::sigmoid, functions::silu, functions::softplus, |x| 1.0 / x.sqrt()];
        for (i, twin) in twins.iter().enumerate() {
            assert!(same(found[i], twin(*x)), "function {i} of {x:e}: {:e}, {:e}", f32::from_bits(found[i]), twin(*x));
        }
    }
}

fn signed(word: u32, byte: usize) -> i32 {
    i32::from(word.to_le_bytes()[byte] as i8)
}

#[test]
fn bytes_are_multiplied_and_chosen_as_the_manual_says() {
    let device = device(0);
    for seed in 1..50 {
        let [a, b, c] = [seed, seed + 100, seed + 200].map(|seed| noise(32, seed));
        let expected_sum = |l: usize| (0..4).map(|i| signed(a[l], i) * signed(b[l], i)).sum::<i32>();
        let chosen = |l: usize, i: usize| {
            let select = c[l] >> (4 * i);
            let byte = [a[l].to_le_bytes(), b[l].to_le_bytes()].concat()[(select & 7) as usize];
            if select & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 }
        };
        let mut expected: Vec<u32> = (0..32).map(|l| c[l].wrapping_add(expected_sum(l) as u32)).collect();
        expected.extend((0..32).map(|l| u32::from_le_bytes(std::array::from_fn(|i| chosen(l, i)))));
        let [a, b, c] = [&a, &b, &c].map(|words| put(&device, words));
        let out = room(&device, 64);
        run(&device, "bytes", line(1, 32), &[at(&a), at(&b), at(&c), at(&out)]).unwrap();
        assert_eq!(get(&device, &out), expected);
    }
}

#[test]
fn a_warp_multiplies_tiles_of_bytes() {
    for seed in SEEDS {
        let device = device(seed);
        let (a, b, d) = (noise(16 * 8, 31 + seed), noise(8 * 8, 41 + seed), noise(16 * 8, 51 + seed));
        let product = |row: usize, column: usize| -> i32 {
            (0..32).map(|k| signed(a[row * 8 + k / 4], k % 4) * signed(b[column * 8 + k / 4], k % 4)).sum()
        };
        let expected: Vec<u32> =
            (0..128).map(|i| d[i].wrapping_add(2u32.wrapping_mul(product(i / 8, i % 8) as u32))).collect();
        let [a, b, d] = [&a, &b, &d].map(|words| put(&device, words));
        run(&device, "tile", line(1, 32), &[at(&a), at(&b), at(&d)]).unwrap();
        assert_eq!(get(&device, &d), expected, "seed {seed}");
    }
}
