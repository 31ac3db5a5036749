//! The kernels as NVIDIA's compiler makes them, run without a card: bits of the CPU, and no races.
//!
//! Owns: which cases run on which architecture. Refuses to know: PTX (the other files), what the cases do.
//!
//! PTX is what the compiler makes machine code of: the last form that is documented. It is executed by the document, with a record of
//! every access to memory, so that a barrier that is missing is noticed whether or not it did harm.

mod arithmetic;
#[path = "../operations/cases.rs"]
mod cases;
mod code;
mod compiled;
mod decode;
mod driver;
mod faults;
mod launch;
mod memory;
mod opcodes;
mod planted;
mod races;
// Every suite uses its own part of it.
#[allow(dead_code)]
#[path = "../support/random.rs"]
mod random;
mod reach;
mod text;
mod warp;

use compiled::{compare, compiler, guess, library};

/// Cases that take longest, hundreds of experts, and show the machine nothing more than those of fewer.
fn is_long(case: &str) -> bool {
    case.contains("290 of 300")
        || case.contains("256 experts, 17 rows")
        || (case.contains("40 rows") && case.contains("BF16"))
}

/// Cases of many rows or experts through kernels that are the same on all architectures.
fn is_long_of_all(case: &str) -> bool {
    is_long(case) || ["[255, ", "[520, ", "of 256 experts", "of 300 experts"].iter().any(|part| case.contains(part))
}

/// Runs cases on the kernels for an architecture; `complete`: every kernel must have been launched.
fn run(architecture: u32, dies: usize, wanted: impl Fn(usize, &str) -> bool + Sync, complete: bool) {
    let Some(compiler) = compiler() else { return };
    let library = library(&compiler, architecture, None);
    let wrong = compare(&library, architecture, dies, wanted);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    guess(&library, architecture);
    let (kernels, idle) = library.idle();
    println!("sm_{architecture}: {kernels} kernels, {} of them not launched", idle.len());
    assert!(!complete || idle.is_empty(), "no case launches {idle:?}");
}

#[test]
fn compiled_kernels_give_the_bits_of_the_cpu_without_races() {
    run(37, 1, |_, case| !is_long(case), true);
}

#[test]
fn compiled_kernels_with_byte_products_give_the_bits_of_the_cpu_without_races() {
    run(61, 1, |_, case| !is_long_of_all(case), true);
}

#[test]
fn compiled_kernels_with_tensor_products_give_the_bits_of_the_cpu_without_races() {
    run(80, 1, |_, case| !is_long_of_all(case), true);
}

#[test]
fn two_devices_give_the_bits_of_the_cpu() {
    run(37, 2, |i, case| i % 16 == 0 && !is_long_of_all(case), false);
}

#[test]
fn what_newer_cards_get_is_understood() {
    let Some(compiler) = compiler() else { return };
    println!("sm_90: {} kernels", library(&compiler, 90, None).idle().0);
}
