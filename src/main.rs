//! The `verbatim` binary.
//!
//! Owns: the process. Refuses to know: everything that `cli` does.

use std::process::ExitCode;

fn main() -> ExitCode {
    verbatim::cli::main()
}
