//! A pass of n rows gives every row the bits it would get alone: for every format, instruction set, number of threads,
//! context and way of cutting a prompt into passes. And the fast products equal the definition.

mod support;

use std::sync::Arc;

use draft::Token;
use support::Spec;
use support::random::Random;
use support::runs::{Reference, Runner, bits};
use verbatim::backend::KvFormat;
use verbatim::backend::cpu::{Cpu, SEGMENT};
use verbatim::model::Model;
use verbatim::quant::{Activations, Format, Input, Isa, Output, TileDot, canon};
use verbatim::with_block;

/// Pass lengths around what kernels take at once.
const LENGTHS: [usize; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33];

/// Contexts around every boundary of an attention segment.
const CONTEXTS: [usize; 9] =
    [0, 1, SEGMENT - 2, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT - 1, 2 * SEGMENT, 2 * SEGMENT + 1];

fn tokens(n: usize, model: &Model<Cpu>) -> Vec<Token> {
    Random::new(n as u64).tokens(n, model.vocab())
}

/// Compares passes of every length at `starts` with the reference.
fn compare_all(reference: &Reference, runner: &mut Runner, starts: &[usize], what: &str) {
    for &start in starts {
        for n in LENGTHS {
            reference.compare(runner, start, n, what);
        }
    }
}

/// Every length at one start in one model against one row at a time on one thread.
fn rows_equal_single_rows(spec: &Spec, what: &str) {
    const START: usize = 3;
    let file = spec.build();
    let model = file.model();
    let tokens = tokens(START + 33, &model);
    let reference = Reference::run(&model, &tokens, KvFormat::F16, |i| i >= START);
    assert!(reference.choices.iter().any(|&c| c != reference.choices[0]), "{what}: the model says more than one thing");
    let finite = |row: &Vec<u32>| row.iter().all(|&b| f32::from_bits(b).is_finite());
    assert!(reference.logits.iter().all(finite), "{what}: logits are finite");
    let model = file.model_on(2, Isa::best());
    let mut runner = Runner::new(&model, tokens.len(), KvFormat::F16, 0);
    compare_all(&reference, &mut runner, &[START], what);
}

#[test]
fn rows_equal_single_rows_in_every_format_with_experts() {
    for format in Format::all() {
        let spec = Spec { format, ..Spec::default() };
        rows_equal_single_rows(&spec, &format!("experts in {format}"));
    }
}

#[test]
fn rows_equal_single_rows_in_every_format_of_a_dense_model() {
    for format in Format::all() {
        let spec = Spec { format, ..Spec::dense() };
        rows_equal_single_rows(&spec, &format!("dense in {format}"));
    }
}

#[test]
fn rows_equal_single_rows_in_models_of_odd_shapes() {
    let shapes = [
        // Widths that are not whole tiles, one key head for all, many small experts.
        Spec {
            format: Format::Q8_0,
            width: 96,
            heads: 3,
            kv_heads: 1,
            head_dim: 32,
            rope_dim: 32,
            key_heads: 1,
            value_heads: 3,
            key_dim: 20,
            value_dim: 32,
            taps: 2,
            experts: 19,
            used: 7,
            ff: 32,
            shared_ff: 64,
            vocab: 77,
            ..Spec::default()
        },
        // No shared expert, one expert a row, fused, tied, attention every second layer.
        Spec { interval: 2, used: 1, shared_ff: 0, fused: true, tied: true, taps: 6, ..Spec::default() },
        // Attention alone, and recurrence alone.
        Spec { interval: 1, layers: 2, ..Spec::dense() },
        Spec { interval: 9, layers: 2, ..Spec::dense() },
        Spec::mixed(),
    ];
    for (i, spec) in shapes.iter().enumerate() {
        rows_equal_single_rows(spec, &format!("shape {i}"));
    }
}

#[test]
fn instruction_set_and_threads_change_no_bit() {
    const START: usize = 2;
    let file = Spec::mixed().build();
    let portable = file.model_on(1, Isa::PORTABLE);
    let tokens = tokens(START + 33, &portable);
    let reference = Reference::run(&portable, &tokens, KvFormat::F16, |i| i >= START);
    for isa in Isa::available() {
        for threads in 1..=3 {
            let what = format!("{}, {threads} threads", isa.name());
            let model = file.model_on(threads, isa);
            let mut runner = Runner::new(&model, tokens.len(), KvFormat::F16, 0);
            compare_all(&reference, &mut runner, &[START], &what);
        }
    }
}

fn rows_equal_single_rows_around_segments(kv: KvFormat) {
    let file = Spec::mixed().build();
    let model = file.model();
    let tokens = tokens(2 * SEGMENT + 1 + 33, &model);
    let passes = |start: usize| LENGTHS.iter().map(move |n| (start, start + n));
    let whole = [0, 1, SEGMENT].into_iter().flat_map(|s| (SEGMENT - 1..=SEGMENT + 1).map(move |n| (s, s + n)));
    let ends: Vec<(usize, usize)> = CONTEXTS.into_iter().flat_map(passes).chain(whole).collect();
    let reference = Reference::run(&model, &tokens, kv, |i| ends.iter().any(|&(a, b)| a == i || b == i));
    let model = file.model_on(2, Isa::best());
    let mut runner = Runner::new(&model, tokens.len(), kv, 0);
    compare_all(&reference, &mut runner, &CONTEXTS, kv.name());
    for n in SEGMENT - 1..=SEGMENT + 1 {
        for start in [0, 1, SEGMENT] {
            reference.compare(&mut runner, start, n, kv.name());
        }
    }
}

#[test]
fn rows_equal_single_rows_around_attention_segments_with_f16_keys() {
    rows_equal_single_rows_around_segments(KvFormat::F16);
}

#[test]
fn rows_equal_single_rows_around_attention_segments_with_f32_keys() {
    rows_equal_single_rows_around_segments(KvFormat::F32);
}

/// Evaluates all tokens in passes of the given lengths and compares logits and state.
fn in_passes(reference: &Reference, model: &Arc<Model<Cpu>>, lengths: &[usize]) {
    let mut runner = Runner::new(model, reference.tokens.len(), KvFormat::F16, 0);
    let what = format!("passes of {lengths:?}");
    let mut start = 0;
    for &n in lengths {
        let rows = runner.all(&reference.tokens[start..start + n]);
        reference.compare_rows(&rows, start, &what);
        start += n;
    }
    assert_eq!(start, reference.tokens.len());
    assert!(runner.snapshot().body() == reference.state(start).body(), "{what}: state");
}

#[test]
fn a_prompt_cut_into_passes_any_way_gives_the_same_bits() {
    const TOTAL: usize = SEGMENT + 40;
    let model = Spec::mixed().build().model_on(2, Isa::best());
    let reference = Reference::run(&model, &tokens(TOTAL, &model), KvFormat::F16, |i| i == TOTAL);
    in_passes(&reference, &model, &[TOTAL]);
    in_passes(&reference, &model, &[1, TOTAL - 1]);
    in_passes(&reference, &model, &[TOTAL - 1, 1]);
    in_passes(&reference, &model, &[SEGMENT, 40]);
    in_passes(&reference, &model, &[SEGMENT - 1, 2, 39]);
    let mut random = Random::new(5);
    for most in [3, 16, 70, 200] {
        let mut lengths = Vec::new();
        let mut left = TOTAL;
        while left > 0 {
            lengths.push(1 + random.below(most.min(left)));
            left -= lengths[lengths.len() - 1];
        }
        in_passes(&reference, &model, &lengths);
    }
}

#[test]
fn wanting_fewer_logits_changes_none_and_not_the_state() {
    const START: usize = 4;
    let model = Spec::mixed().build().model_on(2, Isa::best());
    let tokens = tokens(START + 33, &model);
    let reference = Reference::run(&model, &tokens, KvFormat::F16, |i| i >= START);
    let mut runner = Runner::new(&model, tokens.len(), KvFormat::F16, 0);
    for n in [1, 2, 5, 9, 33] {
        for from in 0..n {
            runner.restore(reference.state(START));
            let rows = runner.pass(&tokens[START..START + n], from, n);
            assert_eq!(rows.logits.len(), n - from);
            reference.compare_rows(&rows, START + from, "wanted rows");
            assert!(runner.snapshot().body() == reference.state(START + n).body());
        }
    }
}

/// Columns `0..width` of output rows in one buffer.
struct Buffer {
    width: usize,
    values: Vec<f32>,
}

impl Output for Buffer {
    fn row(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.width..][..self.width]
    }
}

/// `weights` (rows of `width`) times each of `x`'s rows, by the fast product.
fn fast(isa: Isa, format: Format, weights: &[u8], x: &[Vec<f32>], width: usize) -> Vec<u32> {
    let rows = weights.len() / format.row_bytes(width).unwrap();
    // NaN, so that a place that is not written shows.
    let mut out = Buffer { width: rows, values: vec![f32::NAN; rows * x.len()] };
    // Inputs backwards: pairs need not run in step.
    let last = x.len() as u32 - 1;
    let pairs: Vec<(u32, u32)> = (0..=last).map(|o| (last - o, o)).collect();
    let values = x.concat();
    let int8 = format.activation_block().map(|block| {
        let mut int8 = Activations::new(block);
        let (q, d, sums) = int8.write(x.len(), width);
        for (i, row) in x.iter().enumerate() {
            let (per_d, per_sum) = (width / block, width / Activations::SUM);
            let parts =
                (&mut q[i * width..][..width], &mut d[i * per_d..][..per_d], &mut sums[i * per_sum..][..per_sum]);
            Activations::quantize(isa, block, row, parts);
        }
        int8
    });
    let input = match &int8 {
        Some(int8) => Input::Int8(int8),
        None => Input::Float { values: &values, width },
    };
    TileDot { format, weights, ahead: &[], input, pairs: &pairs, out: &mut out }.run(isa);
    bits(&out.values)
}

/// The same by the definition, in the same order.
fn defined(format: Format, weights: &[u8], x: &[Vec<f32>], width: usize) -> Vec<u32> {
    let row_bytes = format.row_bytes(width).unwrap();
    let dot = |w: &[u8], x: &[f32]| match format.activation_block() {
        Some(len) => {
            let (mut q, mut d, mut sums) = (vec![0; width], vec![0.0; width / len], vec![0; width / canon::SUM]);
            canon::quantize_row(x, len, &mut q, &mut d, &mut sums);
            let x = canon::Activations { q: &q, d: &d, sums: &sums };
            with_block!(format, B => canon::dot_row::<B>(bytemuck::cast_slice(w), x), else => unreachable!())
        }
        None => {
            let mut row = vec![0.0; width];
            canon::dequantize_row(format, w, &mut row);
            canon::dot_f32(&row, x)
        }
    };
    let rows = x.iter().rev();
    bits(&rows.flat_map(|x| weights.chunks(row_bytes).map(|w| dot(w, x)).collect::<Vec<f32>>()).collect::<Vec<f32>>())
}

#[test]
fn the_fast_product_equals_the_definition_at_every_tile_edge() {
    let mut random = Random::new(7);
    for format in Format::all() {
        let widths: &[usize] = match format.block_weights() {
            1 => &[1, 31, 32, 33, 256],
            block => &[block, 3 * block],
        };
        for &width in widths {
            for rows in [0, 1, 3, 4, 5, 15, 16, 17] {
                let weights = random.weights(format, rows * width, 1.0);
                let many: &[usize] = if rows == 17 { &[63, 64, 65] } else { &[] };
                for &inputs in [1, 2, 3, 4, 5, 8, 15].iter().chain(many) {
                    let x: Vec<Vec<f32>> = (0..inputs).map(|_| random.activations(width)).collect();
                    let want = defined(format, &weights, &x, width);
                    for isa in Isa::available() {
                        let got = fast(isa, format, &weights, &x, width);
                        let name = isa.name();
                        assert!(got == want, "{format}, {name}: {rows} rows of {width} by {inputs}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_fast_product_equals_the_definition_on_any_bits() {
    let mut random = Random::new(8);
    for format in Format::all().filter(|f| f.activation_block().is_some()) {
        let width = 2 * format.block_weights();
        let bytes = format.row_bytes(width).unwrap();
        for _ in 0..40 {
            // Also scales that are infinite or no number, and activations at the ends of their range.
            let weights: Vec<u8> = (0..5 * bytes).map(|_| random.next() as u8).collect();
            let size = [1e-40, 1.0, 1e30][random.below(3)];
            let inputs = [1, 3, 4, 15][random.below(4)];
            let mut row = |_| (0..width).map(|_| size * random.between(-1.0, 1.0)).collect::<Vec<f32>>();
            let x: Vec<Vec<f32>> = (0..inputs).map(&mut row).collect();
            let want = defined(format, &weights, &x, width);
            for isa in Isa::available() {
                let got = fast(isa, format, &weights, &x, width);
                // The sign and payload of a NaN are the machine's own; that it is one is ours.
                let same = |(a, b): (&u32, &u32)| a == b || f32::from_bits(*a).is_nan() && f32::from_bits(*b).is_nan();
                assert!(got.iter().zip(&want).all(same), "{format}, {}", isa.name());
            }
        }
    }
}

fn quantized_as_defined<const N: usize>(isa: Isa, x: &[f32]) {
    let (mut q, mut d, mut sums) = (vec![0; x.len()], vec![0.0; x.len() / N], vec![0; x.len() / 16]);
    Activations::quantize(isa, N, x, (&mut q, &mut d, &mut sums));
    let (mut want, mut scales, mut groups) = (vec![0; x.len()], vec![0.0; x.len() / N], vec![0; x.len() / 16]);
    canon::quantize_row(x, N, &mut want, &mut scales, &mut groups);
    let name = isa.name();
    assert_eq!(q, want, "{name}: blocks of {N}");
    // The sign and payload of a NaN are the machine's own.
    let scale = |d: &f32| if d.is_nan() { f32::NAN.to_bits() } else { d.to_bits() };
    assert!(d.iter().map(scale).eq(scales.iter().map(scale)), "{name}: scales of {N}");
    assert_eq!(sums, groups, "{name}: sums of {N}");
}

#[test]
fn activations_are_quantised_as_defined() {
    let mut random = Random::new(9);
    let mut x = random.activations(4 * 256);
    // Zeros, ties, the smallest and largest numbers, a lone spike.
    x.extend([0.0; 256]);
    x.extend((0..256).map(|i| (i as f32 - 127.5) / 2.0));
    x.extend((0..256).map(f32::from_bits));
    x.extend((0..256).map(|i| if i % 2 == 0 { f32::MAX } else { -f32::MAX }));
    x.extend((0..256).map(|i| if i == 77 { -3.0 } else { 1e-9 }));
    for isa in Isa::available() {
        quantized_as_defined::<32>(isa, &x);
        quantized_as_defined::<256>(isa, &x);
    }
}
