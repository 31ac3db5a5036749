//! The program's kernels on the machine.
//!
//! Owns: compiling them, running cases and comparing. Refuses to know: which cases.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use kernels::cuda::Compiler;
use kernels::{Arg, Change, Driver, Emulator, Grid, Kernel, SOURCES};
use verbatim::backend::cpu::Cpu;
use verbatim::backend::cuda::Cuda;
use verbatim::backend::{Backend, Demand, Load};

use super::cases::{Case, all};
use super::driver::{Library, Machine};
use super::random::Random;

/// A file of the manifest, and one of its variants.
pub type Unit = (&'static str, &'static str);

/// The compiler that the tests were told of. What it makes is kept in the build's folder.
pub fn compiler() -> Option<Compiler> {
    let Some(nvrtc) = std::env::var_os("VERBATIM_NVRTC") else {
        println!("skipped: VERBATIM_NVRTC does not name NVIDIA's run-time compiler, the file libnvrtc.so of CUDA 11.8");
        return None;
    };
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ptx");
    Some(Compiler::new(Some(PathBuf::from(nvrtc)), Some(kept)))
}

/// The units whose kernels somebody launches on an architecture.
fn units(architecture: u32) -> Vec<Unit> {
    let is_launched = |file: &str| file != "product_float" || architecture < 61;
    let sources = SOURCES.iter().filter(|source| source.from <= architecture && is_launched(source.file));
    let variants = |variants: &'static [&'static str]| if variants.is_empty() { &[""][..] } else { variants };
    sources.flat_map(|source| variants(source.variants).iter().map(|variant| (source.file, *variant))).collect()
}

/// All kernels for an architecture; one unit of them with a change.
pub fn library(compiler: &Compiler, architecture: u32, change: Option<(Unit, Change)>) -> Arc<Library> {
    let mut library = Library::default();
    let mut units = units(architecture);
    if let Some((unit, change)) = change {
        units.retain(|other| *other != unit);
        let text = compiler.portable(architecture, &[unit], Some(change)).unwrap();
        library.add(unit, architecture, &text[0]).unwrap();
    }
    let texts = compiler.portable(architecture, &units, None).unwrap();
    for (unit, text) in units.iter().zip(texts) {
        library.add(*unit, architecture, &text).unwrap();
    }
    Arc::new(library)
}

/// Runs those of the cases that `wanted` takes, by number and name; tells what is wrong.
pub fn compare(
    library: &Arc<Library>,
    architecture: u32,
    dies: usize,
    wanted: impl Fn(usize, &str) -> bool + Sync,
) -> Vec<String> {
    let start = Instant::now();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let (cases, instructions) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let all = all();
        let mut cpu = Cpu::new(1).unwrap();
        plan(&mut cpu);
        let mut device = None;
        while let i = next.fetch_add(1, Ordering::Relaxed)
            && let Some(case) = all.get(i)
        {
            if !wanted(i, &case.name) {
                continue;
            }
            cases.fetch_add(1, Ordering::Relaxed);
            let (machines, cuda) = device.get_or_insert_with(|| open(library, architecture, dies));
            let before: u64 = machines.iter().map(|machine| machine.instructions()).sum();
            let failed = difference(case, &cpu, cuda);
            let after: u64 = machines.iter().map(|machine| machine.instructions()).sum();
            instructions.fetch_add((after - before) as usize, Ordering::Relaxed);
            if let Some(why) = failed {
                wrong.lock().unwrap().push(format!("{}: {why}", case.name));
                // The first failure stays the device's.
                device = None;
            }
        }
    };
    thread::scope(|scope| {
        (0..thread::available_parallelism().map_or(1, usize::from)).for_each(|_| drop(scope.spawn(work)));
    });
    let (cases, millions) = (cases.into_inner(), instructions.into_inner() / 1_000_000);
    let (wrong, seconds) = (wrong.into_inner().unwrap(), start.elapsed().as_secs_f64());
    println!("sm_{architecture}, {dies} dies: {cases} cases, {millions} million instructions, {seconds:.1} s");
    println!("cases that are wrong: {}", wrong.len());
    wrong
}

fn open(library: &Arc<Library>, architecture: u32, dies: usize) -> (Vec<Arc<Machine>>, Cuda) {
    let machines: Vec<_> = (0..dies).map(|_| Arc::new(Machine::new(architecture, library))).collect();
    let drivers = machines.iter().map(|machine| machine.clone() as Arc<dyn Driver>).collect();
    let mut cuda = Cuda::open(drivers, &[]).unwrap();
    plan(&mut cuda);
    (machines, cuda)
}

/// The plan of a model of two layers, one for each of two dies.
fn plan(backend: &mut impl Backend) {
    let load = Load { held: 1 << 20, read: 1 << 20 };
    backend.plan(&Demand { layers: vec![load, load, Load::default()], output: Load::default() }).unwrap();
}

/// The one kernel that is no part of the model's arithmetic, and so of no case: the weight of a guess, as emulation has it.
pub fn guess(library: &Arc<Library>, architecture: u32) {
    const KERNEL: Kernel = Kernel { file: "select", variant: "", name: "masses_of_parts" };
    let x: Vec<f32> = Random::new(1).activations(10_000);
    let masses = |device: &dyn Driver| {
        let (from, best, to) = (device.allocate(4 * x.len())?, device.allocate(4)?, device.allocate(12)?);
        device.upload(from.at, bytemuck::cast_slice(&x))?;
        device.upload(best.at, &7u32.to_le_bytes())?;
        let grid = Grid { blocks: [3, 1, 1], threads: [256, 1], shared: 0 };
        let args = [Arg::At(from.at), Arg::At(best.at), Arg::At(to.at), Arg::Int(x.len() as i32)];
        device.launch(&KERNEL, grid, &args)?;
        let mut bytes = [0; 12];
        device.download(to.at, &mut bytes)?;
        Ok::<_, kernels::Error>(bytes)
    };
    let expected = masses(&Emulator::new(architecture, 0).unwrap()).unwrap();
    assert_eq!(masses(&Machine::new(architecture, library)).unwrap(), expected);
}

/// What is wrong with a case.
fn difference(case: &Case, cpu: &Cpu, cuda: &Cuda) -> Option<String> {
    let expected = (case.on_cpu)(cpu);
    match catch_unwind(AssertUnwindSafe(|| (case.on_cuda)(cuda))) {
        Ok(found) => {
            let differ = expected.iter().zip(&found).filter(|(a, b)| a != b).count();
            let is_wrong = differ > 0 || expected.len() != found.len();
            is_wrong.then(|| format!("{differ} of {} differ ({} found)", expected.len(), found.len()))
        }
        // A device that fails unwinds with an error and without a word.
        Err(failure) => match failure.downcast::<verbatim::Error>() {
            Ok(error) => Some(error.to_string()),
            Err(other) => resume_unwind(other),
        },
    }
}
