//! The fast product, one tile of weights in every format, against 1 to 32 rows.
//!
//! Owns: the sizes. Refuses to know: the bits of a format. Throughput counts the bytes of the weights.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use verbatim::quant::{Activations, Format, Input, Isa, Output, TileDot, synthetic};

/// Weight rows of the tile, and their length.
const TILE: usize = 16;
const WIDTH: usize = 2048;

/// Rows of activations.
const ROWS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// `[rows][TILE]`.
struct Columns(Vec<f32>);

impl Output for Columns {
    fn row(&mut self, row: usize) -> &mut [f32] {
        &mut self.0[row * TILE..][..TILE]
    }
}

/// `rows` rows of `values` in int8, one scale per `block`.
fn quantized(isa: Isa, block: usize, values: &[f32], rows: usize) -> Activations {
    let mut int8 = Activations::new(block);
    let (q, d, sums) = int8.write(rows, WIDTH);
    let parts = q.chunks_mut(WIDTH).zip(d.chunks_mut(WIDTH / block));
    let parts = parts.zip(sums.chunks_mut(WIDTH / Activations::SUM));
    for (x, ((q, d), sums)) in values.chunks(WIDTH).zip(parts) {
        Activations::quantize(isa, block, x, (q, d, sums));
    }
    int8
}

fn dot(c: &mut Criterion) {
    let isa = Isa::best();
    let mut rng = SmallRng::seed_from_u64(1);
    for format in Format::all() {
        let blocks = TILE * WIDTH / format.block_weights();
        let weights = synthetic::random_blocks(format, &mut rng, blocks, 0.02);
        let mut group = c.benchmark_group(format!("dot/{format}"));
        group.throughput(Throughput::Bytes(weights.len() as u64));
        for rows in ROWS {
            let values: Vec<f32> = (0..rows * WIDTH).map(|_| rng.random_range(-1.0..1.0)).collect();
            let int8 = format.activation_block().map(|block| quantized(isa, block, &values, rows));
            let width = WIDTH;
            let input = int8.as_ref().map_or(Input::Float { values: &values, width }, Input::Int8);
            let pairs: Vec<(u32, u32)> = (0..rows as u32).map(|r| (r, r)).collect();
            let mut out = Columns(vec![0.0; rows * TILE]);
            group.bench_function(format!("{rows} rows"), |b| {
                b.iter(|| {
                    TileDot { format, weights: black_box(&weights), ahead: &[], input, pairs: &pairs, out: &mut out }
                        .run(isa);
                    black_box(out.row(0)[0])
                });
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600));
    targets = dot
}
criterion_main!(benches);
