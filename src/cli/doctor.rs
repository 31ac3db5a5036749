//! `verbatim doctor`: whether this machine can run on its graphics cards, and what to do if not.
//!
//! Owns: the machine as it is found, the order of the checks. Refuses to know: how each is judged (`system`, `cards`) and
//! shown (`show`).
//!
//! No card is opened, and nothing is changed but that the folder for compiled kernels is made. The processor always does, so
//! that this never fails.

mod cards;
mod show;
mod system;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kernels::cuda::{self, Card, FoundCompiler, Reading};

use super::args::DoctorArgs;
use super::{device, setup, terminal};
use crate::Result;
use crate::quant::Isa;

/// Runs the command.
///
/// # Errors
/// If standard output cannot be written.
pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let machine = Machine::here();
    let checks = machine.checks();
    let text = match args.json {
        true => format!("{}\n", show::json(&machine, &checks)),
        false => show::text(&machine, &checks),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    /// As it should be.
    Ok,
    /// It runs, but not well or not for long.
    Warn,
    /// What is needed to run on a card is not there.
    Missing,
}

/// A check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    /// What was looked at.
    what: String,
    /// How it ended.
    status: Status,
    /// What was found.
    found: String,
    /// What to do; empty if nothing.
    advice: String,
}

impl Check {
    fn new(status: Status, what: impl Into<String>, found: impl Into<String>, advice: &str) -> Check {
        Check { what: what.into(), status, found: found.into(), advice: advice.to_owned() }
    }

    fn ok(what: impl Into<String>, found: impl Into<String>) -> Check {
        Check::new(Status::Ok, what, found, "")
    }
}

/// What is asked about cards: the newest CUDA of their driver, and each of them.
type Found = kernels::Result<((u32, u32), Vec<Card>)>;

/// The machine, as far as it was asked.
struct Machine<'a> {
    /// What its files stand under: `/`.
    root: PathBuf,
    /// What it computes with when no card does.
    processor: String,
    /// What the driver says.
    cards: Found,
    /// What the management library says.
    readings: kernels::Result<Vec<Reading>>,
    /// The compiler for an architecture and a driver.
    compiler: &'a dyn Fn(u32, (u32, u32)) -> kernels::Result<FoundCompiler>,
    /// Whether the first card can read the second one's memory.
    peers: &'a dyn Fn(usize, usize) -> kernels::Result<bool>,
    /// Where compiled kernels are kept.
    cache: Option<PathBuf>,
}

impl Machine<'_> {
    /// This one.
    fn here() -> Machine<'static> {
        Machine {
            root: "/".into(),
            processor: format!("{} threads, {}", setup::threads(None), Isa::best().name()),
            cards: cuda::version().and_then(|version| Ok((version, cuda::cards()?))),
            readings: cuda::readings(),
            compiler: &|architecture, driver| cuda::compiler_for(None, architecture, driver),
            peers: &cuda::peers,
            cache: device::cache(),
        }
    }

    /// All checks that make sense here.
    fn checks(&self) -> Vec<Check> {
        let mut checks = vec![Check::ok("processor", &*self.processor)];
        let bus = system::on_the_bus(&self.root);
        match (&self.cards, bus.is_empty()) {
            (Err(_), true) => checks.push(system::nothing()),
            _ => {
                checks.extend(system::checks(&self.root, &bus, &self.cards));
                checks.extend(cards::checks(self, &bus));
            }
        }
        checks
    }

    /// The cards for which there is all that running on them needs.
    fn usable(&self) -> impl Iterator<Item = &Card> {
        let each = self.cards.iter().flat_map(|(driver, cards)| cards.iter().map(move |card| (*driver, card)));
        each.filter(|(driver, card)| {
            card.architecture >= device::OLDEST && (self.compiler)(card.architecture, *driver).is_ok()
        })
        .map(|(_, card)| card)
    }
}

/// The text of a file of the system, without white space around it; nothing if there is none.
fn read(root: &Path, path: &str) -> Option<String> {
    std::fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_owned())
}
