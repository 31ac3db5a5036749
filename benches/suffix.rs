//! What copying costs: one step of the suffix drafter behind a long history, and the bytes that its index holds.
//!
//! A step indexes the tokens of the last pass, finds the match and fills a block. Texts: random tokens (no match is longer
//! than a few), and pages that repeat with changes (long matches everywhere).

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use draft::{Block, Drafter, Guess, Head, Suffix, Target, Token};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Tokens of history.
const HISTORY: usize = 100_000;

struct Text<'a>(&'a [Token]);

impl Target for Text<'_> {
    fn history(&self) -> &[Token] {
        self.0
    }
    fn now(&self) -> Duration {
        Duration::ZERO
    }
    fn guess(&mut self, _head: Head, _more: &mut dyn FnMut(Guess) -> bool) {}
}

/// Pages of 500 tokens, each a copy of an earlier one in which one token of `changed` is another.
fn pages(random: &mut StdRng, len: usize, changed: usize) -> Vec<Token> {
    let mut text: Vec<Token> = (0..500).map(|_| random.random_range(0..20_000)).collect();
    while text.len() < len {
        let from = random.random_range(0..text.len() / 500) * 500;
        for i in from..from + 500 {
            let token = if random.random_range(0..changed) == 0 { random.random_range(0..20_000) } else { text[i] };
            text.push(token);
        }
    }
    text.truncate(len);
    text
}

fn step(c: &mut Criterion) {
    let mut random = StdRng::seed_from_u64(1);
    let most = HISTORY + 4 * 4096;
    let texts = [
        ("random", (0..most).map(|_| random.random_range(0..20_000)).collect()),
        ("changed pages", pages(&mut random, most, 20)),
        ("one page", pages(&mut random, most, usize::MAX)),
    ];
    let mut group = c.benchmark_group("suffix, 4 tokens behind 100000");
    for (name, text) in &texts {
        let mut ready = Suffix::new();
        ready.propose(&mut Text(&text[..HISTORY]), &mut Block::new(0));
        println!("{name}: {:.1} bytes a token", ready.bytes() as f64 / HISTORY as f64);
        let (mut suffix, mut at) = (ready.clone(), HISTORY);
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter(|| {
                if at + 4 > text.len() {
                    (suffix, at) = (ready.clone(), HISTORY);
                }
                at += 4;
                let mut block = Block::new(16);
                suffix.propose(&mut Text(&text[..at]), &mut block);
                black_box(block.len())
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = step
}
criterion_main!(benches);
