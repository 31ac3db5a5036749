//! The device that a command runs on.
//!
//! Owns: the words of `--device`, what `auto` means here, and the one place where devices are looked for and opened.
//! Refuses to know: commands and models.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use kernels::{Driver, Emulator, cuda};

use super::args::ModelArgs;
use super::setup;
use crate::backend::{Backend, cpu::Cpu, cuda::Cuda};
use crate::model::{self, Config};
use crate::{Error, Result};

/// A device, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// The cards, if there are any that can be used; else the processor.
    Auto,
    /// The processor.
    Cpu,
    /// Cards by number, one die each; all if none is named. One named twice is used as two.
    Cuda(Vec<usize>),
    /// The processor in place of cards.
    Emulated(Emulated),
}

/// Emulated cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulated {
    /// How many.
    pub dies: usize,
    /// Compute capability: ten times the major number plus the minor one.
    pub architecture: u32,
    /// Of the order in which threads run; 0 for a fixed one.
    pub seed: u32,
}

/// The oldest architecture of cards that kernels are made and proved for.
pub const OLDEST: u32 = 37;

/// There wherever the system has found a card and loaded its driver.
const CONTROL: &str = "/dev/nvidiactl";

/// What may be typed.
const CHOICES: &str = "auto, cpu, cuda, cuda:N (a card), cuda:N,N... (several) or emu[:DIES][@ARCHITECTURE][#SEED]";

/// More dies than any model is cut for.
const MOST: usize = 16;

/// Compute capabilities that kernels are written for: from the first with shuffles and read-only loads as they are used, to
/// beyond the newest.
const ARCHITECTURES: std::ops::RangeInclusive<u32> = 35..=199;

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Device, String> {
        let (name, rest) = text.split_at(text.find([':', '@', '#']).unwrap_or(text.len()));
        match (name, rest) {
            ("auto", "") => Ok(Device::Auto),
            ("cpu", "") => Ok(Device::Cpu),
            ("cuda", "") => Ok(Device::Cuda(Vec::new())),
            ("cuda", rest) => match rest.strip_prefix(':') {
                Some(list) => numbers(list).map(Device::Cuda),
                None => Err(format!("expected `:` and the numbers of cards behind `cuda`, found `{rest}`")),
            },
            ("emu", rest) => emulated(rest).map(Device::Emulated),
            _ => Err(format!("expected {CHOICES}")),
        }
    }
}

/// The numbers of cards behind `cuda:`.
fn numbers(list: &str) -> std::result::Result<Vec<usize>, String> {
    let number = |text: &str| {
        let found = || format!("expected numbers of cards from 0, comma separated, behind `cuda:`, found `{text}`");
        text.parse::<u8>().map(usize::from).map_err(|_| found())
    };
    let all: Vec<usize> = list.split(',').map(number).collect::<std::result::Result<_, _>>()?;
    match all.len() {
        ..=MOST => Ok(all),
        count => Err(format!("expected at most {MOST} cards, found {count}")),
    }
}

/// What may stand behind `emu`.
fn emulated(text: &str) -> std::result::Result<Emulated, String> {
    let (rest, seed) = text.split_once('#').unwrap_or((text, "0"));
    let (dies, architecture) = rest.split_once('@').unwrap_or((rest, "37"));
    let dies = match dies.strip_prefix(':') {
        Some(dies) => dies,
        None if dies.is_empty() => "1",
        None => return Err(format!("expected a number of dies behind `emu:`, found `{dies}`")),
    };
    let bad = |what: &str, found: &str| format!("expected {what}, found `{found}`");
    let (first, last) = ARCHITECTURES.into_inner();
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| digits(text));
    Ok(Emulated {
        dies: number(dies)
            .map(|n| n as usize)
            .filter(|n| (1..=MOST).contains(n))
            .ok_or_else(|| bad(&format!("1 to {MOST} dies behind `emu:`"), dies))?,
        architecture: number(architecture).filter(|n| ARCHITECTURES.contains(n)).ok_or_else(|| {
            bad(&format!("a compute capability without its point ({first} to {last}) behind `@`"), architecture)
        })?,
        seed: number(seed).ok_or_else(|| bad("a seed from 0 to 4294967295 behind `#`", seed))?,
    })
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Auto => f.write_str("auto"),
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(cards) if cards.is_empty() => f.write_str("cuda"),
            Device::Cuda(cards) => {
                let cards: Vec<String> = cards.iter().map(usize::to_string).collect();
                write!(f, "cuda:{}", cards.join(","))
            }
            Device::Emulated(Emulated { dies, architecture, seed }) => write!(f, "emu:{dies}@{architecture}#{seed}"),
        }
    }
}

/// Opens devices of one kind: one for each model that a command loads.
pub trait Open {
    /// The kind.
    type B: Backend;

    /// Whether it is anything but the processor.
    fn elsewhere(&self) -> bool;

    /// A device. `split` holds the layers of each die but the last; where it is empty, the device chooses.
    ///
    /// # Errors
    /// If the device cannot be used, or is not to be split like this.
    fn open(&self, split: &[usize]) -> Result<Self::B>;
}

/// A command that runs on any device.
pub trait Runs {
    /// Runs it.
    ///
    /// # Errors
    /// The command's own, and the device's.
    fn on<O: Open>(self, devices: &O) -> Result<ExitCode>;
}

/// Runs `command` on the device that was asked for. What `auto` found is said on standard error, unless it is nothing.
///
/// # Errors
/// If the device is not there or cannot be used, flags contradict it, or the command fails.
pub fn run(args: &ModelArgs, command: impl Runs) -> Result<ExitCode> {
    match dies(args)? {
        Some(dies) => {
            divided(args, dies.count())?;
            command.on(&dies)
        }
        None => {
            undivided(args)?;
            command.on(&Processor { args })
        }
    }
}

/// The dies to run on; none for the processor.
fn dies(args: &ModelArgs) -> Result<Option<Dies>> {
    match (&args.device, &args.isa) {
        (Device::Cpu, _) => Ok(None),
        // Instruction sets are the processor's: who names one means it.
        (Device::Auto, Some(_)) => Ok(None),
        (Device::Auto, None) => Ok(cards_here().filter(|dies| takes(dies, args))),
        (device, None) => Dies::find(device).map(Some),
        (device, Some(_)) => {
            let text = format!("chooses among the processor's instruction sets, and --device is {device}");
            Err(Error::new(text).about("--isa"))
        }
    }
}

/// The cards that can be used, if there are any. Where there is none at all, nothing is said.
fn cards_here() -> Option<Dies> {
    let count = match cuda::count() {
        Ok(count) => count,
        Err(e) => {
            if Path::new(CONTROL).exists() {
                eprintln!("verbatim: running on the processor, for the graphics card cannot be used: {e}");
            }
            return None;
        }
    };
    let compiler = cuda::Compiler::new(None, cache());
    let (mut numbers, mut drivers) = (Vec::new(), Vec::new());
    for number in 0..count {
        match usable(number, &compiler) {
            Ok(driver) => {
                numbers.push(number);
                drivers.push(driver);
            }
            Err(e) => eprintln!("verbatim: not running on {e}"),
        }
    }
    if drivers.is_empty() {
        eprintln!("verbatim: running on the processor, for no graphics card can be used");
        return None;
    }
    Some(Dies { device: Device::Cuda(numbers), drivers })
}

/// Whether the cards take the model; says what it runs on. A file that cannot be read is left to whoever loads it.
fn takes(dies: &Dies, args: &ModelArgs) -> bool {
    let demand = || {
        let gguf = setup::open(args.model.as_deref()).ok()?;
        Some(model::demand(&gguf, &Config::from_metadata(gguf.metadata()).ok()?))
    };
    // Who says what stands where means the cards.
    let fits = match demand().filter(|_| args.split.is_empty()) {
        Some(demand) => dies.open(&[]).and_then(|mut cuda| cuda.plan(&demand)),
        None => Ok(()),
    };
    match &fits {
        Ok(()) => eprintln!("verbatim: running on {dies} (`--device cpu` for the processor)"),
        Err(e) => eprintln!("verbatim: running on the processor, for the graphics cards do not take the model: {e}"),
    }
    fits.is_ok()
}

/// A card for which kernels can be compiled.
fn usable(number: usize, compiler: &cuda::Compiler) -> kernels::Result<Arc<dyn Driver>> {
    let card = cuda::open(number, compiler)?;
    if card.architecture() < OLDEST {
        return Err(kernels::Error(format!("{}: kernels need sm_{OLDEST} or newer", card.describe())));
    }
    Cuda::prepare(&card)?;
    Ok(Arc::new(card))
}

/// Refuses `--split` for the processor.
fn undivided(args: &ModelArgs) -> Result<()> {
    match args.split.is_empty() {
        true => Ok(()),
        false => Err(Error::new("needs a device of several dies, found the processor (--device)").about("--split")),
    }
}

/// Makes sure that `--split`, if given, is one for `dies` dies.
fn divided(args: &ModelArgs, dies: usize) -> Result<()> {
    let found = args.split.len();
    if found == 0 || found + 1 == dies {
        return Ok(());
    }
    let text = match dies {
        1 => "needs a device of several dies, found one (--device)".to_owned(),
        _ => format!("expected the layers of the first {} of {dies} dies, found {found} numbers", dies - 1),
    };
    Err(Error::new(text).about("--split"))
}

/// This machine's processor.
pub struct Processor<'a> {
    /// Threads and instruction set.
    pub args: &'a ModelArgs,
}

impl Open for Processor<'_> {
    type B = Cpu;

    fn elsewhere(&self) -> bool {
        false
    }

    fn open(&self, _: &[usize]) -> Result<Cpu> {
        Cpu::with_isa(setup::threads(self.args.threads), setup::isa(self.args.isa.as_deref())?)
    }
}

/// Cards, or what emulates them.
struct Dies {
    device: Device,
    drivers: Vec<Arc<dyn Driver>>,
}

impl Dies {
    /// Those of `device`, which is not the processor.
    ///
    /// # Errors
    /// If one is not there or cannot be used: what is missing, and how to get it.
    fn find(device: &Device) -> Result<Dies> {
        let drivers = match device {
            Device::Emulated(emulated) => emulators(*emulated),
            Device::Cuda(named) => cards(named),
            Device::Auto | Device::Cpu => unreachable!("the processor has no dies"),
        };
        let drivers = drivers.map_err(|e| Error::new(e.0).about(format!("--device {device}")))?;
        Ok(Dies { device: device.clone(), drivers })
    }

    /// How many.
    fn count(&self) -> usize {
        self.drivers.len()
    }
}

fn emulators(Emulated { dies, architecture, seed }: Emulated) -> kernels::Result<Vec<Arc<dyn Driver>>> {
    let one = |_| Ok(Arc::new(Emulator::new(architecture, seed)?) as Arc<dyn Driver>);
    (0..dies).map(one).collect()
}

/// The cards of these numbers, all if there is none.
fn cards(named: &[usize]) -> kernels::Result<Vec<Arc<dyn Driver>>> {
    let all: Vec<usize> = (0..cuda::count()?).collect();
    let compiler = cuda::Compiler::new(None, cache());
    let one = |&card: &usize| Ok(Arc::new(cuda::open(card, &compiler)?) as Arc<dyn Driver>);
    if named.is_empty() { &all } else { named }.iter().map(one).collect()
}

/// Where compiled kernels are kept: the user's folder for what can be made again.
pub fn cache() -> Option<PathBuf> {
    Some(dirs::cache_dir()?.join("verbatim"))
}

impl fmt::Display for Dies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.drivers.iter().map(|driver| driver.describe()).collect();
        f.write_str(&names.join(", "))
    }
}

impl Open for Dies {
    type B = Cuda;

    fn elsewhere(&self) -> bool {
        true
    }

    fn open(&self, split: &[usize]) -> Result<Cuda> {
        Cuda::open(self.drivers.clone(), split).map_err(|e| e.about(format!("--device {}", self.device)))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::args::{Cli, Command};
    use super::*;

    fn emulated(dies: usize, architecture: u32, seed: u32) -> Device {
        Device::Emulated(Emulated { dies, architecture, seed })
    }

    #[test]
    fn every_device_is_understood_and_written_as_it_is_read() {
        let right = [
            ("auto", Device::Auto, "auto"),
            ("cpu", Device::Cpu, "cpu"),
            ("cuda", Device::Cuda(vec![]), "cuda"),
            ("cuda:0", Device::Cuda(vec![0]), "cuda:0"),
            ("cuda:1,0", Device::Cuda(vec![1, 0]), "cuda:1,0"),
            ("cuda:0,0", Device::Cuda(vec![0, 0]), "cuda:0,0"),
            ("emu", emulated(1, 37, 0), "emu:1@37#0"),
            ("emu:2", emulated(2, 37, 0), "emu:2@37#0"),
            ("emu@80", emulated(1, 80, 0), "emu:1@80#0"),
            ("emu#3", emulated(1, 37, 3), "emu:1@37#3"),
            ("emu:2@61", emulated(2, 61, 0), "emu:2@61#0"),
            ("emu:2#9", emulated(2, 37, 9), "emu:2@37#9"),
            ("emu:16@90#4294967295", emulated(16, 90, u32::MAX), "emu:16@90#4294967295"),
        ];
        for (text, device, written) in right {
            assert_eq!(text.parse(), Ok(device.clone()), "{text}");
            assert_eq!(device.to_string(), written);
            assert_eq!(written.parse(), Ok(device));
        }
    }

    #[test]
    fn what_is_no_device_is_told_what_was_expected() {
        let wrong = [
            ("", "expected auto, cpu"),
            ("gpu", "expected auto, cpu"),
            ("CPU", "expected auto, cpu"),
            ("cpu:2", "expected auto, cpu"),
            ("auto#1", "expected auto, cpu"),
            ("cuda:", "behind `cuda:`, found ``"),
            ("cuda:0,", "behind `cuda:`, found ``"),
            ("cuda:-1", "behind `cuda:`, found `-1`"),
            ("cuda:0,x", "behind `cuda:`, found `x`"),
            ("cuda:256", "behind `cuda:`, found `256`"),
            ("cuda:0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0", "at most 16 cards, found 17"),
            ("cuda@37", "behind `cuda`, found `@37`"),
            ("emulate", "expected auto, cpu"),
            ("emu:", "1 to 16 dies behind `emu:`, found ``"),
            ("emu:0", "1 to 16 dies behind `emu:`, found `0`"),
            ("emu:17", "found `17`"),
            ("emu:+2", "found `+2`"),
            ("emu:2:2", "found `2:2`"),
            ("emu:2@", "(35 to 199) behind `@`, found ``"),
            ("emu:2@3.7", "behind `@`, found `3.7`"),
            ("emu:2@20", "behind `@`, found `20`"),
            ("emu#", "behind `#`, found ``"),
            ("emu#4294967296", "behind `#`, found `4294967296`"),
            ("emu#7@37", "behind `#`, found `7@37`"),
        ];
        for (text, naming) in wrong {
            let error = text.parse::<Device>().unwrap_err();
            assert!(error.contains(naming), "{text}: {error}");
        }
    }

    /// The flags of a model behind `words`.
    fn typed(words: &[&str]) -> ModelArgs {
        let words = ["verbatim", "inspect"].iter().chain(words);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Inspect(args) => args.model,
            _ => panic!("inspect was typed"),
        }
    }

    #[test]
    fn flags_carry_the_device_and_its_split() {
        let plain = typed(&[]);
        assert_eq!((plain.device, plain.split), (Device::Auto, vec![]));
        let three = typed(&["--device", "cuda:0,1,2", "--split", "10,12"]);
        assert_eq!((three.device, three.split), (Device::Cuda(vec![0, 1, 2]), vec![10, 12]));
    }

    #[test]
    fn a_split_has_a_number_for_each_die_but_the_last() {
        let split = |text: &str| typed(&["--split", text]);
        for (args, dies) in [(typed(&[]), 1), (typed(&[]), 2), (split("5"), 2), (split("5,5"), 3)] {
            divided(&args, dies).unwrap();
        }
        for (args, dies, naming) in [
            (split("5"), 1, "several dies, found one"),
            (split("5"), 3, "first 2 of 3 dies, found 1"),
            (split("5,5"), 2, "first 1 of 2 dies, found 2"),
        ] {
            let error = divided(&args, dies).unwrap_err().to_string();
            assert!(error.starts_with("--split: ") && error.contains(naming), "{error}");
        }
        undivided(&typed(&[])).unwrap();
        assert!(undivided(&split("5")).unwrap_err().to_string().contains("found the processor"));
    }

    /// A command that tells what it was run on.
    struct Describe<'a>(&'a mut String);

    impl Runs for Describe<'_> {
        fn on<O: Open>(self, devices: &O) -> Result<ExitCode> {
            *self.0 = devices.open(&[])?.describe();
            Ok(ExitCode::SUCCESS)
        }
    }

    #[test]
    fn the_processor_runs_where_it_is_asked_for_and_where_its_instructions_are() {
        for words in [&["--device", "cpu", "-t", "1"][..], &["--isa", "portable", "-t", "1"]] {
            let mut device = String::new();
            run(&typed(words), Describe(&mut device)).unwrap();
            assert!(device.starts_with("cpu, ") && device.ends_with(", 1 thread"), "{device}");
        }
        let contradiction = typed(&["--device", "emu", "--isa", "portable"]);
        let error = run(&contradiction, Describe(&mut String::new())).unwrap_err().to_string();
        assert_eq!(error, "--isa: chooses among the processor's instruction sets, and --device is emu:1@37#0");
    }
}
