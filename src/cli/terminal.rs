//! The terminal: progress, interruption, and output that may be cut off.
//!
//! Owns: what is shown while one waits (on a terminal only), Ctrl-C, the broken pipe. Refuses to know: what is generated.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{Error, Result};

/// Appears only if the wait is long enough to be noticed.
const STEADY: Duration = Duration::from_millis(120);

fn hidden_or(bar: ProgressBar) -> ProgressBar {
    if !io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}

/// A spinner on standard error, on a terminal only.
pub fn spinner(what: &'static str) -> ProgressBar {
    let bar = hidden_or(ProgressBar::new_spinner().with_message(what));
    bar.enable_steady_tick(STEADY);
    bar
}

/// A bar of `total` steps on standard error, on a terminal only.
pub fn bar(what: &'static str, total: usize) -> ProgressBar {
    let bar = hidden_or(ProgressBar::new(total as u64).with_message(what));
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} ({eta})") {
        bar.set_style(style);
    }
    bar
}

/// Set once the user has pressed Ctrl-C; pressing it again ends the process at once.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes Ctrl-C over.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn catch() -> Result<Interrupt> {
        let flag = Arc::new(AtomicBool::new(false));
        let seen = flag.clone();
        ctrlc::set_handler(move || {
            if seen.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        })
        .map_err(|e| Error::new(format!("cannot watch for Ctrl-C: {e}")))?;
        Ok(Interrupt(flag))
    }

    /// Whether it was pressed.
    pub fn pressed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What became of an attempt to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Printed {
    /// It was printed.
    Yes,
    /// Nobody reads any more; that is no error.
    Closed,
}

/// Prints and flushes.
///
/// # Errors
/// If standard output cannot be written for another reason than that its reader is gone.
pub fn print(text: &str) -> Result<Printed> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Printed::Yes),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(Printed::Closed),
        Err(e) => Err(Error::io(Path::new("standard output"), "write", &e)),
    }
}

/// A number of bytes for people.
pub fn bytes(n: usize) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
