//! Kernel files compiled anew, with a change, while the program runs: for tests that want to see a fault noticed.
//!
//! Owns: the changed copy of the files, the compiler's call. Refuses to know: which changes are faults, and who notices. What
//! is compiled is a whole emulator with a few units: its lanes meet in a runtime of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::host::Core;
use crate::driver::{Error, Result};
use crate::manifest::{SOURCES, Source};
use crate::units::{PROBE, Unit, host_text, table, units_of, variants_of};

/// Kernel files and the emulator's own, and their text.
const TEXTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/texts.rs"));
/// The compiler that the program was built with, and its flags.
const COMPILER: &[&str] = include!(concat!(env!("OUT_DIR"), "/compiler.rs"));

/// A change of a kernel file or of a header of theirs.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The file, with its ending: `cu` or `cuh`.
    pub file: &'a str,
    /// What stands there exactly once.
    pub from: &'a str,
    /// What shall stand there instead.
    pub to: &'a str,
}

/// A library of kernels for [`super::Emulator::with_rebuilt`]. It stays in the process.
pub struct Rebuilt(&'static Core);

impl Rebuilt {
    /// Whether there is a compiler.
    ///
    /// # Errors
    /// If there is none: which was looked for.
    pub fn compiler() -> Result<()> {
        let asked = Command::new(COMPILER[0]).arg("--version").output();
        match asked.map(|output| output.status.success()) {
            Ok(true) => Ok(()),
            _ => Err(Error(format!("there is no C++ compiler {}", COMPILER[0]))),
        }
    }

    /// Compiles `units`, each a file of the manifest and one of its variants, with the change. `folder` takes the files; objects
    /// that do not depend on the change are kept there for the next.
    ///
    /// # Errors
    /// If the text to be changed does not stand there exactly once, the manifest has no such unit, a file cannot be written, or
    /// the compiler refuses.
    pub fn new(folder: &Path, units: &[(&str, &str)], change: Option<Change>) -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let place = folder.join(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&place).map_err(|e| about(&place, &e))?;
        let texts = changed(change)?;
        for (name, text) in &texts {
            write(&place.join(name), text)?;
        }
        let mut made = Vec::new();
        for &(file, variant) in units {
            made.push(unit(&texts, file, variant)?);
        }
        made.push(table(&made));
        let library = place.join("kernels.so");
        let mut compiler = compiler(&place);
        compiler.arg("-shared").arg("-o").arg(&library);
        for unit in &made {
            let path = place.join(format!("{}.cpp", unit.name));
            write(&path, &unit.text)?;
            compiler.arg(path);
        }
        for name in ["emulate", "guard"] {
            compiler.arg(object(folder, &place, name)?);
        }
        run(compiler)?;
        Core::open(&library).map(Rebuilt)
    }

    pub(super) fn core(&self) -> &'static Core {
        self.0
    }
}

/// All texts as the compiler shall see them.
fn changed(change: Option<Change>) -> Result<Vec<(&'static str, String)>> {
    let mut found = change.map_or(1, |_| 0);
    let mut texts = Vec::new();
    for &(name, text) in TEXTS {
        let mut text = text.to_owned();
        if let Some(change) = change.filter(|change| change.file == name) {
            found = text.matches(change.from).count();
            text = text.replace(change.from, change.to);
        }
        let is_kernel = !name.ends_with(".cpp");
        texts.push((name, if is_kernel { host_text(name, &text) } else { text }));
    }
    match (change, found) {
        (Some(Change { file, from, .. }), found) if found != 1 => {
            Err(Error(format!("{file}: expected once, found {found} times: {from}")))
        }
        _ => Ok(texts),
    }
}

fn unit(texts: &[(&str, String)], file: &str, variant: &str) -> Result<Unit> {
    let sources = || SOURCES.iter().chain([&PROBE]);
    let fits = |source: &&Source| source.file == file && variants_of(source).contains(&variant);
    let name = format!("{file}.cu");
    let text = texts.iter().find(|(text, _)| *text == name);
    let unit = sources().find(fits).zip(text).and_then(|(source, (_, text))| units_of(source, &[variant], text).pop());
    unit.ok_or_else(|| Error(format!("the manifest has no {name} as '{variant}'")))
}

fn compiler(texts: &Path) -> Command {
    let mut command = Command::new(COMPILER[0]);
    command.args(&COMPILER[1..]).arg("-I").arg(texts);
    command
}

/// The object of one of the emulator's own files, compiled if it is not there yet.
fn object(folder: &Path, texts: &Path, name: &str) -> Result<PathBuf> {
    let object = folder.join(format!("{name}.o"));
    if !object.exists() {
        let new = texts.join(format!("{name}.o"));
        let mut compiler = compiler(texts);
        compiler.arg("-c").arg(texts.join(format!("{name}.cpp"))).arg("-o").arg(&new);
        run(compiler)?;
        fs::rename(&new, &object).map_err(|e| about(&object, &e))?;
    }
    Ok(object)
}

fn run(mut command: Command) -> Result<()> {
    let output = command.output().map_err(|e| Error(format!("{}: {e}", COMPILER[0])))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error(format!("{} refuses the changed kernels: {}", COMPILER[0], said.trim())))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| about(path, &e))
}

fn about(path: &Path, e: &std::io::Error) -> Error {
    Error(format!("{}: {e}", path.display()))
}
