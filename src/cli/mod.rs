//! The command line.
//!
//! Owns: commands, what they print, exit codes. Refuses to know: tensors; devices too, but for `device`, which opens them.
//! It speaks to engine and text.
//!
//! Exit codes: 0 success; 1 `check` or `bench` found a difference; 2 bad input, with one sentence on standard error.

mod args;
mod bench;
mod check;
mod corpus;
mod device;
mod doctor;
mod drafters;
mod generate;
mod inspect;
mod plot;
mod pocket;
mod profile;
mod ranking;
pub mod sampling;
mod setup;
mod table;
mod tasks;
mod terminal;
mod trace;

use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use clap::Parser;

use crate::{Error, Result};
use args::{Cli, Command};

/// Runs what was typed.
pub fn main() -> ExitCode {
    let done = settled(|| match Cli::parse().command {
        Command::Generate(args) => generate::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    });
    done.unwrap_or_else(|e| {
        eprintln!("verbatim: {e}");
        ExitCode::from(2)
    })
}

/// What `work` came to. A device that fails in the middle of a pass unwinds with an [`Error`]; that is an error like any
/// other. Panics go on.
fn settled<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    // Nothing that the work has touched is used again.
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| match payload.downcast::<Error>() {
        Ok(error) => Err(*error),
        Err(panic) => panic::resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_fails_in_a_pass_is_an_error_and_a_panic_stays_one() {
        assert_eq!(settled(|| Ok(7)), Ok(7));
        let lost = Error::new("lost in the middle of a pass").about("cuda:1");
        assert_eq!(settled(|| Err::<(), _>(lost.clone())), Err(lost.clone()));
        assert_eq!(settled::<()>(|| panic::resume_unwind(Box::new(lost.clone()))), Err(lost));
        let panic = panic::catch_unwind(|| settled::<()>(|| panic::resume_unwind(Box::new("impossible"))));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"impossible"));
    }
}
