//! Kernels turned into code for a card.
//!
//! Owns: the options of the compiler, what is compiled already. Refuses to know: devices; how one compilation is done.

use std::collections::HashMap;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::cache::{Cache, Key};
use super::nvrtc::{Nvrtc, Target, choose};
use super::sources;
use crate::driver::{Error, Result};
use crate::emulator::Change;
use crate::manifest::SOURCES;

/// A file, and the variant of it.
pub type Unit = (&'static str, &'static str);

/// What the driver loads.
type Image = Arc<Vec<u8>>;

/// Compiles kernels, each once for all devices of an architecture that share it.
#[derive(Clone)]
pub struct Compiler(Arc<Shared>);

struct Shared {
    nvrtc: Option<PathBuf>,
    cache: Cache,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By architecture.
    chosen: HashMap<u32, Arc<(Nvrtc, Target)>>,
    images: HashMap<(u32, Unit), Image>,
}

impl Default for Compiler {
    /// The run-time compiler that is found, and nothing kept.
    fn default() -> Compiler {
        Compiler::new(None, None)
    }
}

impl Compiler {
    /// `nvrtc`: the run-time compiler's file or a folder that holds it; looked for if absent. `cache`: a folder that keeps
    /// what was compiled; made if it does not exist, and not used if absent or not writable. Nothing is opened yet.
    pub fn new(nvrtc: Option<PathBuf>, cache: Option<PathBuf>) -> Compiler {
        Compiler(Arc::new(Shared { nvrtc, cache: Cache::new(cache), state: Mutex::default() }))
    }

    /// The code of each unit for an architecture, whose driver runs CUDA up to `driver`.
    pub(super) fn images(&self, architecture: u32, driver: (u32, u32), units: &[Unit]) -> Result<Vec<Image>> {
        let Shared { nvrtc, cache, state } = &*self.0;
        // Held to the end: a second device that wants the same waits for it and finds it.
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing: Vec<Unit> = units.to_vec();
        missing.retain(|unit| !state.images.contains_key(&(architecture, *unit)));
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            let chosen = match state.chosen.get(&architecture) {
                Some(chosen) => chosen.clone(),
                None => Arc::new(choose(nvrtc.as_deref(), architecture, driver)?),
            };
            state.chosen.insert(architecture, chosen.clone());
            let (nvrtc, target) = &*chosen;
            let compiled = side_by_side(&missing, |unit| build(nvrtc, (architecture, *target), cache, *unit, None));
            for (unit, image) in missing.into_iter().zip(compiled) {
                state.images.insert((architecture, unit), Arc::new(image?));
            }
        }
        Ok(units.iter().map(|unit| state.images[&(architecture, *unit)].clone()).collect())
    }

    /// The PTX of each unit (a file of the manifest and one of its variants) for an architecture: what the compiler makes machine
    /// code of, with the options that machine code gets. With `change` of a file that they include.
    ///
    /// # Errors
    /// If no compiler knows the architecture, a unit does not exist or needs a newer card, the text to be changed does not stand
    /// there exactly once, or the compiler refuses.
    pub fn portable(&self, architecture: u32, units: &[Unit], change: Option<Change>) -> Result<Vec<String>> {
        let (nvrtc, _) = choose(self.0.nvrtc.as_deref(), architecture, (u32::MAX, 0))?;
        let target = (architecture, Target::Portable(architecture));
        let compiled = side_by_side(units, |unit| build(&nvrtc, target, &self.0.cache, *unit, change));
        compiled.into_iter().map(|text| Ok(String::from_utf8_lossy(&text?).into_owned())).collect()
    }
}

/// Compiles a unit for an architecture, or reads it from the cache.
fn build(
    nvrtc: &Nvrtc,
    (architecture, target): (u32, Target),
    cache: &Cache,
    (file, variant): Unit,
    change: Option<Change>,
) -> Result<Vec<u8>> {
    let name = format!("{file}.cu");
    let texts = sources::closure(&name);
    let changed = change.map(|change| sources::changed(&texts, change)).transpose()?;
    let texts = changed.as_ref().map_or(texts, |texts| texts.iter().map(|(name, text)| (*name, &**text)).collect());
    let source = SOURCES.iter().find(|source| source.file == file);
    let known = source
        .is_none_or(|source| source.variants.contains(&variant) || (source.variants.is_empty() && variant.is_empty()));
    let Some((_, text)) = texts.iter().find(|(found, _)| *found == name).filter(|_| known) else {
        return Err(Error(format!("{name}: there is no such kernel file or no variant `{variant}` of it")));
    };
    if let Some(from) = source.map(|source| source.from).filter(|from| *from > architecture) {
        return Err(Error(format!(
            "{name}: needs a card of architecture sm_{from} or newer, this is sm_{architecture}"
        )));
    }
    let mut options = vec!["--std=c++17".to_owned(), "--fmad=false".to_owned()];
    if !variant.is_empty() {
        options.push(format!("--define-macro=VARIANT={variant}"));
    }
    let (major, minor) = nvrtc.found.version;
    let identity = format!("{} by CUDA {major}.{minor}", target.name());
    let parts = texts.iter().flat_map(|(name, text)| [*name, *text]);
    let parts = parts.chain([name.as_str(), identity.as_str()]).chain(options.iter().map(String::as_str));
    let key = Key::of(parts.map(str::as_bytes));
    cache.get_or(key, || nvrtc.compile((&name, text), &texts, target, &options))
}

/// `work` for every item, on all processors; the results in the items' order.
fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        while let Some((i, item)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?))) {
            done.push((i, work(item)));
        }
        done
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    done.sort_unstable_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A real compiler: the one that the tests were told of, or what is installed.
    fn real() -> Option<PathBuf> {
        let told = std::env::var_os("VERBATIM_NVRTC").map(PathBuf::from);
        let found = choose(told.as_deref(), 37, (11, 8));
        found
            .map(|(nvrtc, _)| nvrtc.found.path)
            .map_err(|e| println!("skipped: {e}, or name it in VERBATIM_NVRTC"))
            .ok()
    }

    #[test]
    fn results_stand_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        assert_eq!(side_by_side(&items, |n| n * n), items.iter().map(|n| n * n).collect::<Vec<_>>());
        assert_eq!(side_by_side(&[] as &[usize], |n| *n), []);
    }

    #[test]
    fn a_real_compiler_makes_machine_code_once_and_variants_and_architectures_differ() {
        let Some(nvrtc) = real() else { return };
        let folder = tempfile::tempdir().unwrap();
        let compiler = || Compiler::new(Some(nvrtc.clone()), Some(folder.path().to_owned()));
        let units = [("probe", "1"), ("probe", "2")];
        let codes = compiler().images(37, (11, 4), &units).unwrap();
        assert!(codes.iter().all(|code| code.starts_with(b"\x7fELF")) && codes[0] != codes[1]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        // Kept code is believed, so that it can be seen that it is used.
        let mut kept: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
        kept.sort();
        let (a, b) = (fs::read(&kept[0]).unwrap(), fs::read(&kept[1]).unwrap());
        fs::write(&kept[0], b).unwrap();
        fs::write(&kept[1], a).unwrap();
        let again = compiler().images(37, (11, 4), &units).unwrap();
        assert!(again[0] == codes[1] && again[1] == codes[0]);
        let newer = compiler().images(61, (11, 4), &units).unwrap();
        assert!(newer[0] != codes[0]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn a_card_newer_than_the_compiler_gets_code_for_its_driver_to_compile() {
        let Some(nvrtc) = real() else { return };
        let code = Compiler::new(Some(nvrtc), None).images(999, (99, 0), &[("probe", "1")]).unwrap();
        let text = String::from_utf8_lossy(&code[0]);
        assert!(text.contains(".target sm_") && text.ends_with('\0'), "{text:.300}");
    }

    #[test]
    fn ptx_is_of_the_architecture_that_was_asked_for_and_of_the_changed_text() {
        let Some(nvrtc) = real() else { return };
        let compiler = Compiler::new(Some(nvrtc), None);
        let ptx = |change| compiler.portable(37, &[("select", "")], change);
        let (text, change) = (ptx(None).unwrap(), Change { file: "select.cu", from: "PART 4096", to: "PART 8192" });
        assert!(text[0].contains(".target sm_37") && text[0].contains(".entry best_of_row("));
        assert_ne!(ptx(Some(change)).unwrap(), text);
        assert!(ptx(Some(Change { from: "nowhere", ..change })).is_err());
    }

    #[test]
    fn an_error_in_a_kernel_is_told_in_the_compilers_words() {
        let Some(nvrtc) = real() else { return };
        let nvrtc = Nvrtc::open(&nvrtc).unwrap();
        let text = "#include \"warp.cuh\"\nKERNEL(32, 1) bad(int *x) { *x = unknown; }";
        let headers = sources::closure("canon.cuh");
        let Error(e) = nvrtc.compile(("bad.cu", text), &headers, Target::Machine(37), &[]).unwrap_err();
        assert!(e.contains("bad.cu for sm_37") && e.contains("bad.cu(2)") && e.contains("unknown"), "{e}");
    }
}
