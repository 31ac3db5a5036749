//! Faults planted in the kernels: each is noticed by the case list, or by the emulated device itself.
//!
//! Owns: how a fault is compiled, run in a process of its own and judged. Refuses to know: which faults there are (planted/), what
//! the cases do. A fault that nobody notices means that the cases are too weak.

#[path = "operations/cases.rs"]
mod cases;
#[path = "planted/faults.rs"]
mod faults;
#[path = "planted/products.rs"]
mod products;
#[allow(dead_code)]
#[path = "support/random.rs"]
mod random;

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kernels::{Change, Driver, Emulator, Rebuilt};
use verbatim::backend::cpu::Cpu;
use verbatim::backend::cuda::Cuda;
use verbatim::backend::{Backend, Demand, Load};

use cases::{Case, all};

/// In a process that shall run one fault: its number and the folder for what is compiled.
const PLANTED: [&str; 2] = ["PLANTED_FAULT", "PLANTED_FOLDER"];
/// What stands in front of what such a process has noticed.
const NOTICED: &str = "noticed in order ";
/// What it says if it came to its end.
const THROUGH: &str = "all cases were run";
/// What a process says whose kernel faults.
const FAULTED: &str = "emulated device: kernel ";

/// A text of a kernel file that is exchanged for a wrong one.
struct Fault {
    what: &'static str,
    change: Change<'static>,
    on: On,
}

/// What must notice a fault.
#[derive(Clone, Copy)]
struct On {
    /// What is compiled with the fault: files and variants.
    units: &'static [(&'static str, &'static str)],
    architecture: u32,
    /// What the names of the cases begin with.
    cases: &'static [&'static str],
    /// The orders of threads.
    seeds: &'static [u32],
}

impl On {
    const fn plain(units: &'static [(&'static str, &'static str)], cases: &'static [&'static str]) -> On {
        On { units, architecture: 37, cases, seeds: &[0] }
    }

    const fn on(self, architecture: u32) -> On {
        On { architecture, ..self }
    }

    /// Three random orders, in one of which at least a missing barrier shows.
    const fn shuffled(self) -> On {
        On { seeds: &[1, 2, 3], ..self }
    }
}

const fn fault(what: &'static str, on: On, file: &'static str, [from, to]: [&'static str; 2]) -> Fault {
    Fault { what, change: Change { file, from, to }, on }
}

fn every_fault() -> impl Iterator<Item = &'static Fault> {
    faults::FAULTS.iter().chain(products::FAULTS)
}

/// What of a run's numbers is wrong, a line each; nothing if the device gives the bits of the CPU.
fn differences(rebuilt: &Rebuilt, on: On, seed: u32, cases: &[Case]) -> Vec<String> {
    let emulator = Emulator::new(on.architecture, seed).unwrap().with_rebuilt(rebuilt);
    let load = Load { held: 1 << 20, read: 1 << 20 };
    let demand = Demand { layers: vec![load; 2], output: Load::default() };
    let (mut cpu, mut device) =
        (Cpu::new(1).unwrap(), Cuda::open(vec![Arc::new(emulator) as Arc<dyn Driver>], &[]).unwrap());
    cpu.plan(&demand).unwrap();
    device.plan(&demand).unwrap();
    let mut said = Vec::new();
    let run = |case: &Case| {
        let expected = (case.on_cpu)(&cpu);
        match catch_unwind(AssertUnwindSafe(|| (case.on_cuda)(&device))) {
            Ok(found) => {
                let differ = expected.iter().zip(&found).filter(|(a, b)| a != b).count();
                if differ > 0 || expected.len() != found.len() {
                    said.push(format!("{}: {differ} of {} numbers", case.name, expected.len()));
                }
                ControlFlow::Continue(())
            }
            // The first failure stays the device's.
            Err(failure) => {
                let error = failure.downcast::<verbatim::Error>().unwrap_or_else(|other| resume_unwind(other));
                said.push(format!("{}: {error}", case.name));
                ControlFlow::Break(())
            }
        }
    };
    let _ = cases.iter().try_for_each(run);
    said
}

/// Compiles a fault and says what notices it; `None`: the kernels as they are, and every case that some fault asks for.
fn plant(fault: Option<&Fault>, folder: &Path) {
    let as_they_are = || every_fault().map(|fault| fault.on).collect();
    let asked: Vec<On> = fault.map_or_else(as_they_are, |fault| vec![fault.on]);
    let mut units: Vec<_> = asked.iter().flat_map(|on| on.units).copied().collect();
    units.sort_unstable();
    units.dedup();
    let rebuilt = Rebuilt::new(folder, &units, fault.map(|fault| fault.change)).unwrap();
    let mut done = Vec::new();
    for on in asked {
        let wanted = |case: &Case| on.cases.iter().any(|&begin| case.name.starts_with(begin));
        let cases: Vec<Case> = all().into_iter().filter(wanted).collect();
        assert!(cases.len() >= on.cases.len(), "{:?} name no cases", on.cases);
        for &seed in on.seeds {
            let run = (on.architecture, seed, on.cases);
            if !done.contains(&run) {
                differences(&rebuilt, on, seed, &cases).iter().for_each(|line| println!("{NOTICED}{seed}: {line}"));
                done.push(run);
            }
        }
    }
    println!("{THROUGH}");
}

/// Runs a fault in a process of its own, for it may kill it; gives back what noticed it, a line each.
fn noticed(number: usize, folder: &Path) -> Vec<String> {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", "every_planted_fault_is_noticed", "--nocapture"]);
    let [fault, place] = PLANTED;
    let output = command.env(fault, number.to_string()).env(place, folder).output().unwrap();
    let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let line = |line: &str| line.split_once(NOTICED).map(|(_, what)| what.to_owned());
    let mut noticed: Vec<String> = said.lines().filter_map(line).collect();
    match failed.lines().find(|line| line.starts_with(FAULTED)) {
        Some(line) => noticed.push(line.to_owned()),
        None => assert!(output.status.success() && said.contains(THROUGH), "fault {number}: {said}{failed}"),
    }
    noticed
}

#[test]
fn every_planted_fault_is_noticed() {
    if let [Some(fault), Some(folder)] = PLANTED.map(std::env::var_os) {
        let number: usize = fault.to_str().unwrap().parse().unwrap();
        return plant(number.checked_sub(1).and_then(|i| every_fault().nth(i)), Path::new(&folder));
    }
    if let Err(why) = Rebuilt::compiler() {
        return println!("skipped: {why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let unchanged = noticed(0, folder.path());
    assert!(unchanged.is_empty(), "kernels compiled anew without a change differ: {unchanged:?}");
    let (next, lines) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let i = next.fetch_add(1, Ordering::Relaxed)
            && let Some(fault) = every_fault().nth(i)
        {
            let noticed = noticed(i + 1, folder.path());
            lines.lock().unwrap().push((i, fault, noticed));
        }
    };
    std::thread::scope(|scope| {
        (0..std::thread::available_parallelism().map_or(1, usize::from)).for_each(|_| drop(scope.spawn(work)));
    });
    let mut lines = lines.into_inner().unwrap();
    lines.sort_by_key(|&(i, ..)| i);
    for (_, fault, noticed) in &lines {
        let (first, more) = (noticed.first().map_or("NOTHING", String::as_str), noticed.len().saturating_sub(1));
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        println!("{} | {} | {first}{more}", fault.change.file, fault.what);
    }
    let missed: Vec<_> = lines.iter().filter(|(.., noticed)| noticed.is_empty()).map(|(_, f, _)| f.what).collect();
    println!("{} faults, {} unnoticed", lines.len(), missed.len());
    assert!(missed.is_empty(), "nobody notices: {missed:?}");
}
