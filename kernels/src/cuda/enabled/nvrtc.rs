//! NVIDIA's run-time compiler, loaded when it is needed.
//!
//! Owns: where it is looked for, which of several is taken, one compilation. Refuses to know: kernels, the cache.
//!
//! The library's name changes with every version, each version knows other cards, and the part of it that holds the
//! built-in headers is not always found by itself: so every candidate is asked what it knows, and its headers are opened
//! with it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::Library;

use crate::cuda::FoundCompiler;
use crate::driver::{Error, Result};

/// What to compile for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Machine code of this architecture.
    Machine(u32),
    /// Code that the driver compiles for its card, from what this architecture can do.
    Portable(u32),
}

impl Target {
    /// As the compiler calls it.
    pub fn name(self) -> String {
        match self {
            Target::Machine(architecture) => format!("sm_{architecture}"),
            Target::Portable(architecture) => format!("compute_{architecture}"),
        }
    }
}

type Program = *mut c_void;

/// The library's functions that are used.
struct Functions {
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    log: Part,
    machine: Part,
    portable: Part,
}

/// A function that gives the size of something, and one that writes it.
struct Part(unsafe extern "C" fn(Program, *mut usize) -> c_int, unsafe extern "C" fn(Program, *mut c_char) -> c_int);

/// A compiler.
pub struct Nvrtc {
    functions: Functions,
    /// What it is.
    pub found: FoundCompiler,
    /// Closed last: first the functions' own, then its built-in headers.
    _libraries: Vec<Library>,
}

impl Nvrtc {
    /// Opens a library by its file or by the name that the system's loader knows.
    pub fn open(path: &Path) -> std::result::Result<Nvrtc, String> {
        // SAFETY: the compiler's library runs no code of ours when it is opened.
        let library = unsafe { Library::new(path) }.map_err(|_| "not found".to_owned())?;
        let too_old = |_| "it cannot say which architectures it knows: older than CUDA 11.2".to_owned();
        // SAFETY: these are the types of the functions in every version that has them.
        let (functions, found) = unsafe { (functions(&library), about(&library, path)) };
        let (functions, found) = (functions.map_err(too_old)?, found.map_err(too_old)?);
        let mut libraries = vec![library];
        libraries.extend(built_in(path));
        Ok(Nvrtc { functions, found, _libraries: libraries })
    }

    /// Compiles a text. `headers` are the files that it may include. The error is the compiler's own words.
    pub fn compile(
        &self,
        (name, text): (&str, &str),
        headers: &[(&str, &str)],
        target: Target,
        options: &[String],
    ) -> Result<Vec<u8>> {
        let (text, name_c) = (terminated(text), terminated(name));
        let texts = Strings::of(headers.iter().map(|(_, text)| *text));
        let names = Strings::of(headers.iter().map(|(name, _)| *name));
        let architecture = format!("--gpu-architecture={}", target.name());
        let options = Strings::of(std::iter::once(architecture.as_str()).chain(options.iter().map(String::as_str)));
        let f = &self.functions;
        let mut program = ptr::null_mut();
        // SAFETY: all texts end in 0 and live to the end of this function; the lists are as long as said.
        let made = unsafe {
            let (texts, names) = (&texts, &names);
            (f.create)(&mut program, text.as_ptr(), name_c.as_ptr(), texts.len(), texts.as_ptr(), names.as_ptr())
        };
        self.check("nvrtcCreateProgram", made)?;
        // SAFETY: as above; the program was made.
        let compiled = unsafe { (f.compile)(program, options.len(), options.as_ptr()) };
        let done = match (self.check("nvrtcCompileProgram", compiled), target) {
            (Ok(()), Target::Machine(_)) => self.part(program, &f.machine),
            (Ok(()), Target::Portable(_)) => self.part(program, &f.portable),
            (Err(e), _) => {
                let log = self.part(program, &f.log).unwrap_or_default();
                let log = String::from_utf8_lossy(&log);
                Err(Error(format!("{name} for {}: {e}\n{}", target.name(), log.trim_end_matches(['\0', '\n']))))
            }
        };
        // SAFETY: the program was made and is not used any more.
        unsafe { (f.destroy)(&mut program) };
        done
    }

    fn part(&self, program: Program, Part(size, write): &Part) -> Result<Vec<u8>> {
        let mut len = 0;
        // SAFETY: `len` is written.
        self.check("its result", unsafe { size(program, &mut len) })?;
        let mut bytes = vec![0; len];
        // SAFETY: as many bytes are written as was said.
        self.check("its result", unsafe { write(program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn check(&self, call: &str, result: c_int) -> Result<()> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: the function returns a text that lives as long as the library.
        let words = unsafe { CStr::from_ptr((self.functions.error)(result)) }.to_string_lossy();
        Err(Error(format!("{}: {call}: {words}", self.found.path.display())))
    }
}

/// Finds the functions.
///
/// # Safety
/// The library is the compiler's.
unsafe fn functions(library: &Library) -> std::result::Result<Functions, libloading::Error> {
    // SAFETY: the types are those of the compiler's header.
    unsafe {
        Ok(Functions {
            error: *library.get(b"nvrtcGetErrorString")?,
            create: *library.get(b"nvrtcCreateProgram")?,
            compile: *library.get(b"nvrtcCompileProgram")?,
            destroy: *library.get(b"nvrtcDestroyProgram")?,
            log: Part(*library.get(b"nvrtcGetProgramLogSize")?, *library.get(b"nvrtcGetProgramLog")?),
            machine: Part(*library.get(b"nvrtcGetCUBINSize")?, *library.get(b"nvrtcGetCUBIN")?),
            portable: Part(*library.get(b"nvrtcGetPTXSize")?, *library.get(b"nvrtcGetPTX")?),
        })
    }
}

/// Asks a library what it is.
///
/// # Safety
/// The library is the compiler's.
unsafe fn about(library: &Library, path: &Path) -> std::result::Result<FoundCompiler, libloading::Error> {
    type Ask = unsafe extern "C" fn(*mut c_int) -> c_int;
    let (mut major, mut minor, mut count) = (0, 0, 0);
    // SAFETY: the types are those of the compiler's header, and as many architectures are written as it said there are.
    let known = unsafe {
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = *library.get(b"nvrtcVersion")?;
        let number: Ask = *library.get(b"nvrtcGetNumSupportedArchs")?;
        let list: Ask = *library.get(b"nvrtcGetSupportedArchs")?;
        version(&mut major, &mut minor);
        number(&mut count);
        let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
        list(known.as_mut_ptr());
        known
    };
    let number = |n: c_int| u32::try_from(n).unwrap_or(0);
    let mut architectures: Vec<_> = known.into_iter().map(number).collect();
    architectures.sort_unstable();
    Ok(FoundCompiler { path: path.to_owned(), version: (number(major), number(minor)), architectures })
}

/// Opens what holds a compiler's built-in headers beside it: the compiler looks for it by name alone, and a library that is
/// open already is found.
fn built_in(path: &Path) -> Vec<Library> {
    let Some(folder) = fs::canonicalize(path).ok().and_then(|path| path.parent().map(Path::to_owned)) else {
        return Vec::new();
    };
    let files = names(&folder, "libnvrtc-builtins.so");
    // SAFETY: the library runs no code of ours when it is opened.
    files.iter().filter_map(|file| unsafe { Library::new(file) }.ok()).collect()
}

/// Files of a folder whose names are `name`, or it and a version; sorted.
fn names(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_meant = |path: &PathBuf| {
        let file = path.file_name().and_then(|file| file.to_str());
        file.and_then(|file| file.strip_prefix(name)).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let mut files: Vec<_> = entries.map(|entry| entry.path()).filter(is_meant).collect();
    files.sort();
    files
}

/// Where the compiler may be, the likeliest first. A file or folder that was given is the only one.
pub fn candidates(given: Option<&Path>) -> Vec<PathBuf> {
    if let Some(path) = given {
        return match path.is_dir() {
            true => names(path, "libnvrtc.so"),
            false => vec![path.to_owned()],
        };
    }
    let sonames = ["", ".13", ".12", ".11.2", ".11"].map(|version| PathBuf::from(format!("libnvrtc.so{version}")));
    let mut toolkits: Vec<_> = fs::read_dir("/usr/local").into_iter().flatten().flatten().map(|e| e.path()).collect();
    toolkits.retain(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"cuda")));
    toolkits.sort();
    toolkits.push("/opt/cuda".into());
    let mut folders: Vec<_> = toolkits.iter().map(|toolkit| toolkit.join("lib64")).collect();
    if let Some(folder) = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned)) {
        folders.extend([folder.join("../lib"), folder]);
    }
    sonames.into_iter().chain(folders.iter().flat_map(|folder| names(folder, "libnvrtc.so"))).collect()
}

/// How well a compiler suits a card and its driver (the more the better), and what it would compile for.
fn suits(found: &FoundCompiler, architecture: u32, driver: (u32, u32)) -> Option<((u32, u32), Target)> {
    if found.architectures.contains(&architecture) {
        // Machine code runs on every driver of the same major version, and on later ones.
        let rank = if found.version.0 <= driver.0 { 3 } else { 1 };
        return Some(((rank, 0), Target::Machine(architecture)));
    }
    let newest = found.architectures.iter().copied().rfind(|known| *known < architecture)?;
    let rank = if found.version <= driver { 2 } else { 0 };
    Some(((rank, newest), Target::Portable(newest)))
}

/// Opens the compiler that suits a card best: of those that know it, the first that is not newer than the driver; if none
/// knows it, the one that knows the newest older card.
pub fn choose(given: Option<&Path>, architecture: u32, driver: (u32, u32)) -> Result<(Nvrtc, Target)> {
    let mut best: Option<((u32, u32), Target, Nvrtc)> = None;
    let mut tried = Vec::new();
    for path in candidates(given) {
        match Nvrtc::open(&path) {
            Err(why) => tried.push(format!("{} ({why})", path.display())),
            Ok(nvrtc) => {
                tried.push(told(&nvrtc.found));
                if let Some((rank, target)) = suits(&nvrtc.found, architecture, driver)
                    && best.as_ref().is_none_or(|(other, ..)| rank > *other)
                {
                    best = Some((rank, target, nvrtc));
                }
            }
        }
        if best.as_ref().is_some_and(|((rank, _), ..)| *rank == 3) {
            break;
        }
    }
    let none = || {
        let last = match architecture {
            0..50 => "CUDA 11.8's, the last that does (package cuda-nvrtc-11-8, or nvidia-cuda-nvrtc-cu11 of Python)",
            50..75 => "CUDA 12's, the last that does (package cuda-nvrtc-12-9, or nvidia-cuda-nvrtc-cu12 of Python)",
            _ => "that of the driver's CUDA version (package cuda-nvrtc, or nvidia-cuda-nvrtc of Python)",
        };
        let looked = if tried.is_empty() { "no file".to_owned() } else { tried.join(", ") };
        Error(format!(
            "no CUDA run-time compiler (libnvrtc) knows the card's architecture sm_{architecture}; looked at: {looked}; install \
             {last}, or put its files beside this program"
        ))
    };
    best.map(|(_, target, nvrtc)| (nvrtc, target)).ok_or_else(none)
}

/// `libnvrtc.so (CUDA 12.9: sm_50 to sm_121)`.
fn told(found: &FoundCompiler) -> String {
    let FoundCompiler { path, version: (major, minor), architectures } = found;
    let (first, last) = (architectures.first().unwrap_or(&0), architectures.last().unwrap_or(&0));
    format!("{} (CUDA {major}.{minor}: sm_{first} to sm_{last})", path.display())
}

/// Texts as the compiler takes them.
struct Strings {
    pointers: Vec<*const c_char>,
    /// What the pointers point to.
    _owned: Vec<CString>,
}

impl Strings {
    fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Strings {
        let owned: Vec<_> = texts.map(terminated).collect();
        Strings { pointers: owned.iter().map(|text| text.as_ptr()).collect(), _owned: owned }
    }

    fn len(&self) -> c_int {
        self.pointers.len() as c_int
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

fn terminated(text: &str) -> CString {
    let Ok(text) = CString::new(text) else { panic!("kernels and options hold no NUL") };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiler(version: (u32, u32), architectures: &[u32]) -> FoundCompiler {
        FoundCompiler { path: "x".into(), version, architectures: architectures.to_vec() }
    }

    #[test]
    fn the_compiler_that_knows_the_card_and_is_not_newer_than_the_driver_suits_best() {
        let old = compiler((11, 8), &[35, 37, 61, 80, 90]);
        let new = compiler((12, 9), &[50, 61, 80, 90, 120]);
        let rank = |found, architecture, driver| suits(found, architecture, driver).map(|(rank, _)| rank);
        assert_eq!(suits(&old, 37, (11, 4)), Some(((3, 0), Target::Machine(37))));
        assert_eq!(suits(&new, 37, (11, 4)), None);
        assert!(rank(&old, 61, (11, 4)) > rank(&new, 61, (11, 4)));
        assert_eq!(suits(&old, 103, (12, 9)), Some(((2, 90), Target::Portable(90))));
        assert!(rank(&new, 121, (12, 9)) > rank(&old, 121, (12, 9)));
        // A driver of 12.4 does not read what 12.9 writes for it to compile; that of 11.8 it does.
        assert!(rank(&new, 121, (12, 4)) < rank(&old, 121, (12, 4)));
    }

    #[test]
    fn a_file_that_was_given_is_the_only_candidate() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libnvrtc.so.11.2");
        assert_eq!(candidates(Some(&file)), std::slice::from_ref(&file));
        for name in ["libnvrtc.so.11.2", "libnvrtc-builtins.so.11.8", "libnvrtcx.so", "libnvrtc.so"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(candidates(Some(folder.path())), [folder.path().join("libnvrtc.so"), file]);
    }

    #[test]
    fn that_no_compiler_knows_the_card_is_said_with_where_it_was_looked_for() {
        let Err(Error(e)) = choose(Some(Path::new("/nowhere/libnvrtc.so")), 37, (11, 4)) else { panic!("not there") };
        assert!(e.contains("sm_37") && e.contains("/nowhere/libnvrtc.so (not found)") && e.contains("11.8"), "{e}");
    }
}
