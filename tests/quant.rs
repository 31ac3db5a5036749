//! Formats and the canonical arithmetic: weights against the `gguf` package (fixtures by `scripts/fixtures/quant.py`),
//! rounding against exact references, and the bits of the functions pinned.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::path::Path;
use verbatim::quant::blocks::{BF16, Block, F16, F32};
use verbatim::quant::canon::{self, Activations};
use verbatim::quant::{Format, synthetic};
use verbatim::with_block;

const ROW: usize = 1024;

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/quant").join(name)).unwrap()
}

fn normal_row(rng: &mut SmallRng, n: usize) -> Vec<f32> {
    (0..n).map(|_| (0..12).map(|_| rng.random::<f32>()).sum::<f32>() - 6.0).collect()
}

/// A row of activations that owns its parts.
struct Quantised {
    len: usize,
    q: Vec<i8>,
    d: Vec<f32>,
    sums: Vec<i16>,
}

impl Quantised {
    fn of(x: &[f32], len: usize) -> Self {
        let (mut q, mut d, mut sums) = (vec![99; x.len()], vec![9.0; x.len() / len], vec![99; x.len() / 16]);
        canon::quantize_row(x, len, &mut q, &mut d, &mut sums);
        Quantised { len, q, d, sums }
    }

    fn view(&self) -> Activations<'_> {
        Activations { q: &self.q, d: &self.d, sums: &self.sums }
    }

    fn value(&self, i: usize) -> f64 {
        f64::from(self.d[i / self.len]) * f64::from(self.q[i])
    }
}

fn quantised_formats() -> impl Iterator<Item = Format> {
    Format::all().filter(|f| f.activation_block().is_some())
}

fn dot_row(format: Format, w: &[u8], x: &Quantised) -> f32 {
    with_block!(format, B => canon::dot_row::<B>(bytemuck::cast_slice(w), x.view()), else => unreachable!())
}

#[test]
fn weights_are_those_of_the_gguf_package_bit_for_bit() {
    for format in Format::all() {
        let raw = fixture(&format!("{format}.raw"));
        let expected: Vec<u32> =
            fixture(&format!("{format}.f32")).as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect();
        let mut weights = vec![0.0; raw.len() / format.block_bytes() * format.block_weights()];
        canon::dequantize_row(format, &raw, &mut weights);
        assert_eq!(weights.len(), expected.len(), "{format}");
        for (i, (w, e)) in weights.iter().zip(&expected).enumerate() {
            assert_eq!(w.to_bits(), *e, "{format}: weight {i} is {w}, not {}", f32::from_bits(*e));
        }
    }
}

#[test]
fn weights_are_read_at_any_alignment() {
    for format in Format::all() {
        let raw = fixture(&format!("{format}.raw"));
        let shifted: Vec<u8> = [&[0], raw.as_slice()].concat();
        let mut weights = [vec![0.0; raw.len() / format.block_bytes() * format.block_weights()], vec![]];
        weights[1] = weights[0].clone();
        canon::dequantize_row(format, &raw, &mut weights[0]);
        canon::dequantize_row(format, &shifted[1..], &mut weights[1]);
        assert!(weights[0].iter().zip(&weights[1]).all(|(a, b)| a.to_bits() == b.to_bits()), "{format}");
    }
}

#[test]
fn the_integer_part_of_a_block_does_not_depend_on_the_order() {
    fn check<B: Block>(rng: &mut SmallRng) {
        let (mut q, mut scale, mut min) = (vec![0; B::LEN], vec![0; B::LEN / B::SUB], vec![0; B::LEN / B::SUB]);
        let x: Vec<i8> = (0..B::LEN).map(|_| rng.random_range(-127..=127)).collect();
        let sums: Vec<i16> = x.chunks(16).map(|x| x.iter().map(|&x| i16::from(x)).sum()).collect();
        let bytes = synthetic::random_blocks(B::FORMAT, rng, 1, 1.0);
        let block: &B = bytemuck::from_bytes(&bytes);
        block.unpack(&mut q, &mut scale, &mut min);
        let mut order: Vec<usize> = (0..B::LEN).collect();
        order.shuffle(rng);
        let (mut i, mut m) = (0i64, 0i64);
        for at in order {
            let sub = at / B::SUB;
            i += i64::from(scale[sub]) * i64::from(q[at]) * i64::from(x[at]);
            m += if B::HAS_MIN { i64::from(min[sub]) * i64::from(x[at]) } else { 0 };
        }
        let (exact_i, exact_m) = canon::dot_block(block, &x, &sums);
        assert_eq!((i64::from(exact_i), i64::from(exact_m)), (i, m), "{}", B::FORMAT);
    }
    let mut rng = SmallRng::seed_from_u64(1);
    for format in quantised_formats() {
        for _ in 0..20 {
            with_block!(format, B => check::<B>(&mut rng), else => unreachable!());
        }
    }
}

#[test]
fn the_integer_part_of_a_block_stays_in_its_bounds_at_the_extremes() {
    fn check<B: Block>(byte: u8, x: i8) {
        let bytes = vec![byte; B::FORMAT.block_bytes()];
        let sums = vec![16 * i16::from(x); B::LEN / 16];
        let (i, m) = canon::dot_block::<B>(bytemuck::from_bytes(&bytes), &vec![x; B::LEN], &sums);
        assert!(i.abs() < 1 << 28 && m.abs() < 1 << 22, "{}: {i} {m}", B::FORMAT);
    }
    for format in quantised_formats() {
        for byte in 0..=255 {
            with_block!(format, B => { check::<B>(byte, 127); check::<B>(byte, -127) }, else => unreachable!());
        }
    }
}

#[test]
fn a_quantised_dot_product_is_that_of_its_dequantised_parts() {
    let mut rng = SmallRng::seed_from_u64(2);
    for format in quantised_formats() {
        let w = synthetic::random_blocks(format, &mut rng, ROW / format.block_weights(), 0.02);
        let x = normal_row(&mut rng, ROW);
        let quantised = Quantised::of(&x, format.activation_block().unwrap());
        let mut weights = vec![0.0; ROW];
        canon::dequantize_row(format, &w, &mut weights);
        let dot = f64::from(dot_row(format, &w, &quantised));
        let terms = || weights.iter().enumerate();
        let exact: f64 = terms().map(|(i, w)| f64::from(*w) * quantised.value(i)).sum();
        let size: f64 = terms().map(|(i, w)| (f64::from(*w) * quantised.value(i)).abs()).sum();
        assert!((dot - exact).abs() <= 1e-6 * size, "{format}: {dot} against {exact}");
        let unrounded: f64 = terms().map(|(i, w)| f64::from(*w) * f64::from(x[i])).sum();
        assert!((dot - unrounded).abs() <= 0.01 * size, "{format}: {dot} against {unrounded} in floats");
    }
}

#[test]
fn blocks_are_chained_in_ascending_order_from_zero() {
    let mut rng = SmallRng::seed_from_u64(3);
    for format in quantised_formats() {
        let len = format.block_weights();
        let w = synthetic::random_blocks(format, &mut rng, ROW / len, 0.02);
        let x = Quantised::of(&normal_row(&mut rng, ROW), len);
        let mut acc = 0.0;
        for (b, w) in w.chunks(format.block_bytes()).enumerate() {
            let (q, sums) = (&x.q[b * len..(b + 1) * len], &x.sums[b * len / 16..(b + 1) * len / 16]);
            acc = with_block!(format, B => {
                let w: &B = bytemuck::from_bytes(w);
                let scales = w.unpack(&mut [0; 256][..len], &mut [0; 16][..len / B::SUB], &mut [0; 16][..len / B::SUB]);
                canon::chain::<B>(acc, scales, x.d[b], canon::dot_block(w, q, sums))
            }, else => unreachable!());
        }
        assert_eq!(dot_row(format, &w, &x).to_bits(), acc.to_bits(), "{format}");
        assert_eq!(dot_row(format, &[], &Quantised::of(&[], len)).to_bits(), 0, "{format}");
    }
}

#[test]
fn activations_round_to_nearest_with_ties_to_even() {
    let mut x = [0.0; 32];
    x[..8].copy_from_slice(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, -126.5]);
    let row = Quantised::of(&x, 32);
    assert_eq!(row.q[..8], [127, 0, 2, 2, 0, -2, -2, -126]);
    assert_eq!((row.d[0], row.sums[0], row.sums[1]), (1.0, 1, 0));

    let mut rng = SmallRng::seed_from_u64(4);
    for len in [32, 256] {
        let x = normal_row(&mut rng, ROW);
        let row = Quantised::of(&x, len);
        for (b, x) in x.chunks(len).enumerate() {
            let amax = x.iter().fold(0f32, |max, x| max.max(x.abs()));
            assert_eq!(row.d[b], amax / 127.0);
            let expected = x.iter().map(|x| libm::rintf(x * (127.0 / amax)) as i8);
            assert!(expected.eq(row.q[b * len..(b + 1) * len].iter().copied()));
        }
        let sums = row.q.chunks(16).map(|q| q.iter().map(|&q| i16::from(q)).sum::<i16>());
        assert!(sums.eq(row.sums.iter().copied()));
    }
}

#[test]
fn a_block_of_zeros_is_zeros_and_what_is_not_finite_shows_in_every_dot_product() {
    let block = |value: f32| {
        let mut x = [1.0; 64];
        x[..32].fill(0.0);
        x[40] = value;
        Quantised::of(&x, 32)
    };
    let row = block(1.0);
    assert!(row.d[0] == 0.0 && row.q[..32].iter().all(|&q| q == 0));
    for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let row = block(value);
        assert!(row.q.iter().all(|&q| q == 0) && row.sums.iter().all(|&s| s == 0), "{value}");
        assert!(row.d[0] == 0.0 && !row.d[1].is_finite(), "{value}");
        let w = synthetic::random_blocks(Format::Q8_0, &mut SmallRng::seed_from_u64(5), 2, 1.0);
        assert!(dot_row(Format::Q8_0, &w, &row).is_nan(), "{value}");
    }
    let tiny = f32::from_bits(3);
    let row = Quantised::of(&[[tiny; 16], [-tiny; 16]].concat(), 32);
    assert!(row.q[..16].iter().all(|&q| q == 127) && row.q[16..].iter().all(|&q| q == -127));
    assert_eq!(row.sums, [16 * 127, -16 * 127]);
}

#[test]
fn a_float_dot_product_is_32_chains_and_a_tree() {
    fn tree(lanes: &[f32]) -> f32 {
        match lanes {
            [one] => *one,
            _ => {
                let (low, high) = lanes.split_at(lanes.len() / 2);
                tree(&low.iter().zip(high).map(|(a, b)| a + b).collect::<Vec<_>>())
            }
        }
    }
    let mut rng = SmallRng::seed_from_u64(6);
    for n in [0, 1, 31, 32, 33, 64, 100, 1000] {
        let (a, b) = (normal_row(&mut rng, n), normal_row(&mut rng, n));
        let lane = |l: usize| (l..n).step_by(32).fold(0f32, |acc, i| a[i].mul_add(b[i], acc));
        let dot = tree(&(0..32).map(lane).collect::<Vec<_>>());
        assert_eq!(canon::dot_f32(&a, &b).to_bits(), dot.to_bits(), "{n}");
        let lane = |l: usize| (l..n).step_by(32).fold(0f32, |acc, i| acc + a[i]);
        let sum = tree(&(0..32).map(lane).collect::<Vec<_>>());
        assert_eq!(canon::sum_f32(&a).to_bits(), sum.to_bits(), "{n}");
    }
}

#[test]
fn float_weights_widen_exactly_before_their_dot_product() {
    let mut rng = SmallRng::seed_from_u64(7);
    let x = normal_row(&mut rng, 100);
    for format in [Format::F32, Format::F16, Format::BF16] {
        let w = synthetic::random_blocks(format, &mut rng, x.len(), 0.5);
        let mut weights = vec![0.0; x.len()];
        canon::dequantize_row(format, &w, &mut weights);
        let dot = match format {
            Format::F16 => canon::dot_float::<F16>(bytemuck::cast_slice(&w), &x),
            Format::BF16 => canon::dot_float::<BF16>(bytemuck::cast_slice(&w), &x),
            _ => canon::dot_float::<F32>(bytemuck::cast_slice(&w), &x),
        };
        assert_eq!(dot.to_bits(), canon::dot_f32(&weights, &x).to_bits(), "{format}");
    }
}

#[test]
fn synthetic_weights_have_the_wanted_deviation() {
    let mut rng = SmallRng::seed_from_u64(8);
    for format in Format::all() {
        let n = 8192;
        let w = synthetic::random_blocks(format, &mut rng, n / format.block_weights(), 0.02);
        let mut weights = vec![0.0; n];
        canon::dequantize_row(format, &w, &mut weights);
        let mean = weights.iter().sum::<f32>() / n as f32;
        let std = (weights.iter().map(|w| w * w).sum::<f32>() / n as f32).sqrt();
        let bounds = if format == Format::MXFP4 { 0.01..0.021 } else { 0.0195..0.0205 };
        assert!(bounds.contains(&std) && mean.abs() < 0.001, "{format}: {std} around {mean}");
    }
}
