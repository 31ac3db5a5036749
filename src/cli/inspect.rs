//! `verbatim inspect`.
//!
//! Owns: nothing yet. Refuses to know: nothing yet.

use std::process::ExitCode;

use super::args::InspectArgs;
use crate::Result;

pub fn run(_args: &InspectArgs) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
