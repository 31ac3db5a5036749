//! `verbatim bench`.
//!
//! Owns: nothing yet. Refuses to know: nothing yet.

use std::process::ExitCode;

use super::args::BenchArgs;
use crate::Result;

pub fn run(_args: &BenchArgs) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
