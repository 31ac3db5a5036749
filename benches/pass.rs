//! A pass of the embedded model over 1, 8 and 32 rows.
//!
//! Owns: the state that every pass starts from. Refuses to know: what becomes of the rows; each pass is rolled back.
//! Throughput counts the bytes of the weights that a pass reads.

use std::path::Path;
use std::thread::available_parallelism;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use verbatim::backend::{KvFormat, cpu::Cpu};
use verbatim::gguf::Gguf;
use verbatim::model::Model;

/// Tokens in the state, and the longest pass after them.
const CONTEXT: usize = 128;
const MOST: usize = 32;

fn pass(c: &mut Criterion) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/pocket-Q4_K_M.gguf");
    let threads = available_parallelism().map_or(1, usize::from);
    let gguf = Gguf::open(&path).expect("the embedded model can be opened");
    let cpu = Cpu::new(threads).expect("threads can be started");
    let model = Model::load(&gguf, cpu).expect("the embedded model can be loaded");
    let mut state = model.state(CONTEXT + MOST, KvFormat::F16, MOST).expect("there is memory for a state");
    let mut workspace = model.workspace();
    // Any tokens do, as long as they choose different experts.
    let tokens: Vec<u32> = (0..(CONTEXT + MOST) as u32).map(|i| 300 + i * 37 % (model.vocab() as u32 - 300)).collect();
    let (context, block) = tokens.split_at(CONTEXT);
    model.forward(&mut workspace, &mut state, context, CONTEXT - 1).guard.keep(CONTEXT);
    let mut group = c.benchmark_group("pass");
    for rows in [1, 8, MOST] {
        let before = model.bytes_read(&workspace);
        drop(model.forward(&mut workspace, &mut state, &block[..rows], 0));
        group.throughput(Throughput::Bytes((model.bytes_read(&workspace) - before) as u64));
        group.bench_function(format!("{rows} rows"), |b| {
            b.iter(|| model.forward(&mut workspace, &mut state, &block[..rows], 0).choices);
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    targets = pass
}
criterion_main!(benches);
