//! A pass over 1 to 32 rows: of the embedded model, and of synthetic ones in which one operation takes most of the time.
//!
//! Owns: the models, and the state that every pass starts from. Refuses to know: what becomes of the rows; each pass is
//! rolled back. Throughput counts the bytes of the weights that a pass reads.

use std::path::Path;
use std::thread::available_parallelism;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use verbatim::backend::{KvFormat, cpu::Cpu};
use verbatim::gguf::Gguf;
use verbatim::model::Model;
use verbatim::synthetic::{FeedForward, Recipe, Shape};

/// Tokens in the state, and the longest pass after them.
const CONTEXT: usize = 128;
const MOST: usize = 32;

/// Rows of the passes.
const ROWS: [usize; 6] = [1, 2, 4, 8, 16, MOST];

/// Two gated delta nets between feed-forward parts too small to matter.
const DELTA: Shape = Shape {
    name: "delta",
    layers: 2,
    interval: 4,
    width: 1024,
    heads: 8,
    kv_heads: 2,
    head_dim: 256,
    rope_dim: 64,
    key_heads: 16,
    value_heads: 16,
    state_dim: 128,
    taps: 4,
    feed_forward: FeedForward::Dense { ff: 256 },
    vocab: 1024,
    tied: true,
};

const SHAPES: [Shape; 5] = [
    DELTA,
    Shape { name: "attention", interval: 1, ..DELTA },
    Shape { name: "dense", key_heads: 1, value_heads: 1, feed_forward: FeedForward::Dense { ff: 8192 }, ..DELTA },
    Shape {
        name: "experts",
        key_heads: 1,
        value_heads: 1,
        feed_forward: FeedForward::Moe { experts: 64, used: 8, ff: 512, shared_ff: 512 },
        ..DELTA
    },
    Shape { name: "head", layers: 1, key_heads: 1, value_heads: 1, vocab: 32_768, ..DELTA },
];

fn pass(c: &mut Criterion, name: &str, gguf: &Gguf) {
    let threads = available_parallelism().map_or(1, usize::from);
    let cpu = Cpu::new(threads).expect("threads can be started");
    let model = Model::load(gguf, cpu).expect("the model can be loaded");
    let mut state = model.state(CONTEXT + MOST, KvFormat::F16, MOST).expect("there is memory for a state");
    let mut workspace = model.workspace();
    // Any tokens do, as long as they choose different experts.
    let tokens: Vec<u32> = (0..(CONTEXT + MOST) as u32).map(|i| 300 + i * 37 % (model.vocab() as u32 - 300)).collect();
    let (context, block) = tokens.split_at(CONTEXT);
    model.forward(&mut workspace, &mut state, context, CONTEXT - 1).guard.keep(CONTEXT);
    let mut group = c.benchmark_group(format!("pass/{name}"));
    for rows in ROWS {
        let before = model.bytes_read(&workspace);
        drop(model.forward(&mut workspace, &mut state, &block[..rows], 0));
        group.throughput(Throughput::Bytes((model.bytes_read(&workspace) - before) as u64));
        group.bench_function(format!("{rows} rows"), |b| {
            b.iter(|| model.forward(&mut workspace, &mut state, &block[..rows], 0).choices);
        });
    }
    group.finish();
}

fn passes(c: &mut Criterion) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/pocket-Q4_K_M.gguf");
    pass(c, "pocket", &Gguf::open(&path).expect("the embedded model can be opened"));
    for shape in SHAPES {
        let gguf = Recipe::new(shape).make(&mut |_| {}).expect("there is memory for a small model");
        pass(c, shape.name, &gguf);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = passes
}
criterion_main!(benches);
