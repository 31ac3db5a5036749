//! Compiles every kernel file for this machine's processor, one translation unit for each file and variant.
//!
//! Owns: the table of all texts, the compiler's flags, which are left for the crate too. Refuses to know: what stands in a unit
//! (`units`). A unit whose text and flags did not change is not compiled again.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

include!("src/manifest.rs");

#[path = "src/units.rs"]
mod units;

use units::{PROBE, Unit, host_text, table, units_of, variants_of};

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo names the crate's folder"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo names the output folder"));
    inputs(&root);
    fs::write(out.join("texts.rs"), table_of_texts(&root)).expect("the output folder is writable");
    let texts = copy_texts(&root, &out.join("text"));
    let (mut units, mut depends) = (Vec::new(), Vec::new());
    for source in SOURCES.iter().chain([&PROBE]) {
        let text = texts.iter().find(|(name, _)| *name == format!("{}.cu", source.file));
        let (_, text) = text.unwrap_or_else(|| panic!("the manifest names {}.cu, which is not there", source.file));
        units.extend(units_of(source, variants_of(source), text));
        depends.resize(units.len(), text.as_str());
    }
    units.push(table(&units));
    depends.push("");
    let headers =
        texts.iter().filter(|(name, _)| !name.ends_with(".cu")).map(|(_, text)| text.as_str()).collect::<String>();
    let units: Vec<_> = units.into_iter().zip(depends).collect();
    compile(&root, &out, &units, &headers);
}

/// Copies kernels and headers to `to`, as the host's compiler shall see them; gives back name and text of each.
fn copy_texts(root: &Path, to: &Path) -> Vec<(String, String)> {
    fs::create_dir_all(to).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
    let mut texts = Vec::new();
    for path in files(root) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !path.extension().is_some_and(|e| e == "cu" || e == "cuh" || e == "h") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let text = host_text(&name, &text);
        fs::write(to.join(&name), &text).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
        texts.push((name, text));
    }
    texts
}

/// The kernels' files, those of the emulator, and their text as a table, for compilers at run time.
fn table_of_texts(root: &Path) -> String {
    let is_text = |path: &&PathBuf| path.extension().is_some_and(|e| e == "cu" || e == "cuh" || e == "h" || e == "cpp");
    let mut table = String::from("&[\n");
    for path in files(root).iter().filter(is_text) {
        let name = path.file_name().and_then(|name| name.to_str()).expect("kernel files have plain names");
        let _ = writeln!(table, "({name:?}, include_str!({path:?})),");
    }
    table + "]"
}

/// The compiler and what every unit needs: each operation rounded by itself, integers that wrap, no run-time library of
/// C++.
fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).debug(false).warnings(false).cpp_link_stdlib(None).cargo_metadata(false);
    let exact = ["-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing", "-fno-math-errno"];
    let bare = ["-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-ftls-model=initial-exec"];
    build.flags(exact.iter().chain(&bare));
    build.flag_if_supported("-fno-extern-tls-init");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        // The emulator asks the processor before it runs anything of this.
        build.flag("-mfma");
    }
    build
}

/// Compiles the units that changed, each given with the kernel file in it, and puts all of them into one library.
fn compile(root: &Path, out: &Path, units: &[(Unit, &str)], headers: &str) {
    let mut build = compiler();
    let command = build.get_compiler().to_command();
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    fs::write(out.join("compiler.rs"), format!("&{words:?}")).expect("the output folder is writable");
    build.include(out.join("text"));
    let flags = format!("{words:?}");
    let mut sources = Vec::new();
    for path in files(root).into_iter().filter(|path| path.extension().is_some_and(|e| e == "cpp")) {
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        sources.push((path, text));
    }
    for (unit, kernels) in units {
        let path = out.join(format!("{}.cpp", unit.name));
        fs::write(&path, &unit.text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        sources.push((path, unit.text.clone() + kernels));
    }
    let stamps: Vec<PathBuf> =
        sources.iter().map(|(path, _)| out.join(path.file_stem().expect("a file")).with_extension("stamp")).collect();
    let keys: Vec<String> = sources.iter().map(|(_, text)| key(&[text, headers, &flags])).collect();
    let fresh = |i: usize| -> Option<PathBuf> {
        let stamp = fs::read_to_string(&stamps[i]).ok()?;
        let (old, object) = stamp.split_once('\n')?;
        (old == keys[i] && Path::new(object).exists()).then(|| PathBuf::from(object))
    };
    let mut objects: Vec<PathBuf> = (0..sources.len()).filter_map(fresh).collect();
    let stale: Vec<usize> = (0..sources.len()).filter(|&i| fresh(i).is_none()).collect();
    let compiled = build.files(stale.iter().map(|&i| &sources[i].0)).compile_intermediates();
    for (&i, object) in stale.iter().zip(&compiled) {
        fs::write(&stamps[i], format!("{}\n{}", keys[i], object.display())).expect("the output folder is writable");
    }
    objects.extend(compiled);
    cc::Build::new().cargo_metadata(false).objects(objects).compile("emulated");
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=emulated");
}

/// Tells cargo which files the kernels are made of.
fn inputs(root: &Path) {
    println!("cargo:rerun-if-changed={}", root.join("build.rs").display());
    println!("cargo:rerun-if-changed={}", root.join("src/manifest.rs").display());
    println!("cargo:rerun-if-changed={}", root.join("src/units.rs").display());
    for path in files(root) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}

/// The files beside the crate's manifest and in `host/`, in order.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for folder in [root.to_owned(), root.join("host")] {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        paths.extend(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()));
    }
    paths.sort();
    paths
}

fn key(texts: &[&str]) -> String {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
