//! The whole pocket model on emulated devices: the bits of the CPU, whoever drafts, on one die and on two.
//!
//! Owns: the runs that are compared: tokens, all logits of every emitted token, the state at the end. Refuses to know: operations;
//! those have a suite of their own.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use draft::{Block, Decision, Drafter, Guess, Head, Outcome, Target, Token};
use kernels::{Driver, Emulator};
use verbatim::backend::cpu::Cpu;
use verbatim::backend::cuda::Cuda;
use verbatim::backend::{Backend, KvFormat};
use verbatim::engine::{Sequence, Settings, Unwatched, Wanted};
use verbatim::gguf::Gguf;
use verbatim::model::Model;

/// Tokens that every run generates.
const TOKENS: usize = 200;

/// Tokens of the prompt: more than one segment of attention's keys, so that a prefill pass of many rows is among them.
const PROMPT: usize = 70;

/// Most drafted tokens.
const BLOCK: usize = 12;

fn pocket<B: Backend>(backend: B) -> Arc<Model<B>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/pocket-Q4_K_M.gguf");
    Arc::new(Model::load(&Gguf::open(&path).unwrap(), backend).unwrap())
}

fn cards(architecture: u32, seed: u32, dies: usize) -> Cuda {
    let die = |_| Arc::new(Emulator::new(architecture, seed).unwrap()) as Arc<dyn Driver>;
    Cuda::open((0..dies).map(die).collect(), &[]).unwrap()
}

fn emulated(architecture: u32, seed: u32, dies: usize) -> Arc<Model<Cuda>> {
    pocket(cards(architecture, seed, dies))
}

/// A prompt of every kind of token.
fn prompt() -> Vec<Token> {
    (0..PROMPT as u32).map(|i| i * 7919 % 4000).collect()
}

/// Drafts what is to come, now and then wrongly, in blocks of every length.
struct Knowing {
    all: Vec<Token>,
    passes: usize,
}

impl Drafter for Knowing {
    fn name(&self) -> &'static str {
        "knowing"
    }

    fn propose(&mut self, target: &mut dyn Target, block: &mut Block) {
        self.passes += 1;
        let from = target.history().len();
        let length = self.passes % (BLOCK + 1);
        for (i, &token) in self.all.iter().skip(from).take(length).enumerate() {
            let wrong = self.passes.is_multiple_of(3) && i == self.passes % 5;
            block.push(if wrong { token ^ 1 } else { token }, 0.9);
        }
    }

    fn observe(&mut self, _: &Outcome) {}

    fn prefilled(&mut self, _: usize, _: Duration) {}

    fn decision(&self) -> Decision {
        Decision::default()
    }

    fn reset(&mut self) {}
}

/// What a run gave.
#[derive(PartialEq)]
struct Run {
    tokens: Vec<Token>,
    /// For every emitted token the bits of the logits it was chosen from.
    logits: Vec<Vec<u32>>,
    state: Vec<u8>,
    accepted: usize,
}

fn run<B: Backend>(model: &Arc<Model<B>>, drafter: Option<Box<dyn Drafter>>) -> Run {
    let settings = Settings { context: PROMPT + TOKENS, block: BLOCK, kv: KvFormat::F16, checkpoints: 0 };
    let mut sequence = Sequence::new(model.clone(), settings, drafter).unwrap();
    sequence.prompt(&prompt(), &mut Unwatched).unwrap();
    let mut run = Run { tokens: Vec::new(), logits: Vec::new(), state: Vec::new(), accepted: 0 };
    while run.tokens.len() < TOKENS {
        let step = sequence.step(TOKENS - run.tokens.len(), &mut |_| None);
        for (row, &token) in step.emitted.iter().enumerate() {
            let mut logits = Vec::new();
            sequence.logits(row, &mut logits);
            run.tokens.push(token);
            run.logits.push(logits.iter().map(|v| v.to_bits()).collect());
        }
    }
    run.accepted = sequence.metrics().accepted;
    run.state = sequence.snapshot().body().to_vec();
    run
}

/// Compares a device with the CPU, plain and drafted.
fn compare(reference: &Run, model: &Arc<Model<Cuda>>, ways: &[bool], name: &str) {
    for &drafted in ways {
        let all = [prompt(), reference.tokens.clone()].concat();
        let drafter = drafted.then(|| Box::new(Knowing { all, passes: 0 }) as Box<dyn Drafter>);
        let found = run(model, drafter);
        let differ: usize = found
            .logits
            .iter()
            .zip(&reference.logits)
            .map(|(a, b)| a.iter().zip(b).filter(|(a, b)| a != b).count())
            .sum();
        let way = if drafted { "drafted" } else { "plain" };
        println!(
            "{name}, {way}: {} tokens, {} accepted, logits that differ: {differ}",
            found.tokens.len(),
            found.accepted
        );
        assert_eq!(found.tokens, reference.tokens, "{name}, {way}: tokens");
        assert_eq!(differ, 0, "{name}, {way}: logits");
        assert!(found.state == reference.state, "{name}, {way}: the state at the end");
        assert_eq!(drafted, found.accepted > TOKENS / 4, "{name}, {way}: drafts are accepted");
    }
}

#[test]
fn one_die_and_two_give_the_bits_of_the_cpu() {
    let reference = run(&pocket(Cpu::new(1).unwrap()), None);
    for dies in [1, 2] {
        compare(&reference, &emulated(37, 0, dies), &[false, true], &format!("emu:{dies}"));
    }
}

#[test]
fn whatever_order_threads_run_in_the_bits_are_those_of_the_cpu() {
    let reference = run(&pocket(Cpu::new(1).unwrap()), None);
    for seed in 1..=3 {
        compare(&reference, &emulated(37, seed, 2), &[false, true], &format!("emu:2#{seed}"));
    }
}

#[test]
fn newer_architectures_give_the_bits_of_the_cpu() {
    let reference = run(&pocket(Cpu::new(1).unwrap()), None);
    for architecture in [61, 80] {
        compare(&reference, &emulated(architecture, 0, 2), &[true], &format!("emu:2@{architecture}"));
    }
}

#[test]
fn however_a_pass_is_cut_the_bits_are_those_of_the_cpu() {
    let reference = run(&pocket(Cpu::new(1).unwrap()), None);
    for (blocks, seed) in [(2, 0), (8, 0), (4, 1)] {
        let model = pocket(cards(37, seed, 2).cut_into(blocks));
        compare(&reference, &model, &[true], &format!("emu:2#{seed} in {blocks} micro-blocks"));
    }
}

/// Asks a head for some guesses a step, and drafts none.
struct Asking {
    head: Head,
    seen: Arc<Mutex<Vec<Guess>>>,
}

impl Drafter for Asking {
    fn name(&self) -> &'static str {
        "asking"
    }

    fn propose(&mut self, target: &mut dyn Target, _: &mut Block) {
        let mut seen = self.seen.lock().unwrap();
        let wanted = seen.len() + 3;
        target.guess(self.head, &mut |guess| {
            seen.push(guess);
            seen.len() < wanted
        });
    }

    fn observe(&mut self, _: &Outcome) {}

    fn prefilled(&mut self, _: usize, _: Duration) {}

    fn decision(&self) -> Decision {
        Decision::default()
    }

    fn reset(&mut self) {}
}

/// What `head` guesses behind each of some tokens.
fn guesses<B: Backend>(model: &Arc<Model<B>>, head: Head) -> Vec<Guess> {
    let wanted = Wanted { shallow: Some(2), mtp: true, ..Wanted::nothing() };
    let settings = Settings { context: PROMPT + TOKENS, block: BLOCK, kv: KvFormat::F16, checkpoints: 0 };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let drafter = Asking { head, seen: seen.clone() };
    let mut sequence = Sequence::with_heads(model.clone(), settings, Some(Box::new(drafter)), &wanted).unwrap();
    sequence.prompt(&prompt(), &mut Unwatched).unwrap();
    for _ in 0..20 {
        sequence.step(1, &mut |_| None);
    }
    drop(sequence);
    Arc::into_inner(seen).unwrap().into_inner().unwrap()
}

#[test]
fn heads_guess_what_they_guess_on_the_cpu() {
    let cpu = pocket(Cpu::new(1).unwrap());
    for head in [Head::Mtp, Head::Shallow] {
        let expected = guesses(&cpu, head);
        assert_eq!(expected.len(), 60, "{head:?}: three guesses behind each of twenty tokens");
        for dies in [1, 2] {
            let found = guesses(&emulated(37, 0, dies), head);
            assert_eq!(found.len(), expected.len());
            let both = || found.iter().zip(&expected);
            let differ = both().filter(|(a, b)| a.token != b.token).count();
            // How sure a head is is no part of the arithmetic: the same only nearly.
            let furthest = both().map(|(a, b)| (a.confidence / b.confidence - 1.0).abs()).fold(0.0, f32::max);
            println!("emu:{dies}, {head:?}: {} guesses, {differ} differ; confidence by {furthest:e}", found.len());
            assert!(differ == 0 && furthest < 1e-5, "emu:{dies}, {head:?}: guesses differ");
        }
    }
}
