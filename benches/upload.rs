//! Weights on their way to a device, in every format: packed, then copied. The floats are copied alone.
//!
//! Owns: the size. Refuses to know: how weights are packed. The device is emulated, so its memory is this machine's. Throughput
//! counts the bytes of the file.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kernels::{Driver, Emulator};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use verbatim::backend::cuda::Cuda;
use verbatim::backend::{Backend, MatrixShape, Place};
use verbatim::gguf::Bytes;
use verbatim::quant::{Format, synthetic};

const SHAPE: MatrixShape = MatrixShape { cols: 2048, rows: 4096, count: 1 };

fn upload(c: &mut Criterion) {
    let device: Arc<dyn Driver> = Arc::new(Emulator::new(37, 0).unwrap());
    let cuda = Cuda::open(vec![device], &[]).unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut group = c.benchmark_group("upload");
    for format in Format::all() {
        let blocks = SHAPE.cols * SHAPE.rows / format.block_weights();
        let weights = Bytes::from_vec(synthetic::random_blocks(format, &mut rng, blocks, 0.02));
        group.throughput(Throughput::Bytes(weights.len() as u64));
        group.bench_function(format.name(), |b| {
            b.iter(|| black_box(cuda.matrix(Place::Layer(0), SHAPE, format, weights.clone()).unwrap()));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = upload
}
criterion_main!(benches);
