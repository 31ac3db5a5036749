//! One case list for all devices: every operation gives the bits that the CPU gives.
//!
//! Owns: the cases, and the comparison of a device with the CPU. Refuses to know: models. A case is written once, over any
//! backend; its result is bits.

#[path = "operations/cases.rs"]
mod cases;
#[path = "support/random.rs"]
mod random;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use kernels::{Driver, Emulator};
use verbatim::backend::cpu::Cpu;
use verbatim::backend::cuda::Cuda;
use verbatim::backend::{Backend, Demand, Load};

use cases::{Case, all};

/// `dies` emulated dies.
fn emulated(architecture: u32, seed: u32, dies: usize) -> Cuda {
    let die = |_| Arc::new(Emulator::new(architecture, seed).unwrap()) as Arc<dyn Driver>;
    Cuda::open((0..dies).map(die).collect(), &[]).unwrap()
}

/// The plan of a model of two layers, one for each of two dies.
fn planned<B: Backend>(mut backend: B) -> B {
    let load = Load { held: 1 << 20, read: 1 << 20 };
    backend.plan(&Demand { layers: vec![load, load, Load::default()], output: Load::default() }).unwrap();
    backend
}

/// Runs those of the cases that `wanted` takes, by number and name, on `device` and on the CPU; tells all that differ.
fn compare(device: &Cuda, name: &str, wanted: impl Fn(usize, &str) -> bool) {
    let cpu = planned(Cpu::new(1).unwrap());
    let mut wrong = Vec::new();
    let (mut cases, mut words) = (0, 0);
    for (_, Case { name: case, on_cpu, on_cuda }) in all().into_iter().enumerate().filter(|(i, c)| wanted(*i, &c.name))
    {
        let expected = on_cpu(&cpu);
        // A device that fails unwinds with an error and without a word.
        let found = match catch_unwind(AssertUnwindSafe(|| on_cuda(device))) {
            Ok(found) => found,
            Err(failure) => match failure.downcast::<verbatim::Error>() {
                Ok(error) => panic!("{name}, {case}: {error}"),
                Err(other) => resume_unwind(other),
            },
        };
        cases += 1;
        words += expected.len();
        let differ = expected.iter().zip(&found).filter(|(a, b)| a != b).count();
        if differ > 0 || expected.len() != found.len() {
            wrong.push(format!("{case}: {differ} of {} differ ({} found)", expected.len(), found.len()));
        }
    }
    println!("{name}: {cases} cases, {words} numbers, cases that differ: {}", wrong.len());
    assert!(wrong.is_empty(), "{name}\n{}", wrong.join("\n"));
}

fn compare_emulated(dies: usize, architecture: u32, seed: u32, wanted: impl Fn(usize, &str) -> bool) {
    let name = format!("emu:{dies}@{architecture}#{seed}");
    compare(&planned(emulated(architecture, seed, dies)), &name, wanted);
}

#[test]
fn emulated_devices_give_the_bits_of_the_cpu() {
    compare_emulated(1, 37, 0, |_, _| true);
    compare_emulated(2, 37, 0, |i, _| i % 3 == 0);
}

#[test]
fn newer_architectures_give_the_bits_of_the_cpu() {
    // They have products of their own; the rest is the same.
    for architecture in [61, 80] {
        compare_emulated(1, architecture, 0, |_, case| case.contains("product") || case.contains("experts"));
    }
}

#[test]
fn whatever_order_threads_run_in_the_bits_are_those_of_the_cpu() {
    for (architecture, seed) in [(37, 1), (37, 2), (37, 3), (61, 1), (80, 1)] {
        compare_emulated(2, architecture, seed, |i, _| i % 4 == seed as usize % 4);
    }
}

#[test]
fn cuda_cards_give_the_bits_of_the_cpu() {
    let cards = match kernels::cuda::count() {
        Ok(cards) => cards,
        Err(why) => return println!("skipped: {why}"),
    };
    for card in 0..cards {
        for dies in [1, 2] {
            let open = |_| {
                Arc::new(kernels::cuda::open(card, &kernels::cuda::Compiler::new(None, None)).unwrap())
                    as Arc<dyn Driver>
            };
            let device = planned(Cuda::open((0..dies).map(open).collect(), &[]).unwrap());
            compare(&device, &format!("cuda:{card}, {dies} dies"), |_, _| true);
        }
    }
}
