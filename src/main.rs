//! The `verbatim` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    verbatim::cli::main()
}
