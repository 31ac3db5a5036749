//! The command line.
//!
//! Owns: commands, what they print, exit codes. Refuses to know: tensors and devices; it speaks to engine and text.
//!
//! Exit codes: 0 success; 1 `check` or `bench` found a difference; 2 bad input, with one sentence on standard error.

mod args;
mod bench;
mod check;
mod corpus;
mod drafters;
mod generate;
mod inspect;
mod plot;
mod pocket;
mod ranking;
pub mod sampling;
mod setup;
mod tasks;
mod terminal;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

/// Runs what was typed.
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Generate(args) => generate::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Inspect(args) => inspect::run(&args),
    };
    done.unwrap_or_else(|e| {
        eprintln!("verbatim: {e}");
        ExitCode::from(2)
    })
}
