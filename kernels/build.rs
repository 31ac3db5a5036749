//! Compiles every kernel file for this machine's processor, one translation unit for each file and variant.
//!
//! Owns: the translation units, the table of kernels, the compiler's flags. Refuses to know: what the kernels do; their names
//! are found by a scan for `KERNEL(`. A unit whose text and flags did not change is not compiled again.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

include!("src/manifest.rs");

/// The kernels of the emulator's own tests.
const PROBE: Source = Source { file: "probe", variants: &["1", "2"], from: 30 };

/// One translation unit.
struct Unit {
    name: String,
    text: String,
}

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo names the crate's folder"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo names the output folder"));
    inputs(&root);
    let mut units = Vec::new();
    for source in SOURCES.iter().chain([&PROBE]) {
        let folder = if source.file == PROBE.file { root.join("host") } else { root.clone() };
        let path = folder.join(format!("{}.cu", source.file));
        let text =
            fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}, named in the manifest: {e}", path.display()));
        let kernels = kernels_of(&text);
        assert!(!kernels.is_empty(), "{} has no KERNEL(threads, blocks) name(..)", path.display());
        let variants = if source.variants.is_empty() { &[""] } else { source.variants };
        units.extend(variants.iter().map(|variant| unit(source, variant, &kernels)));
    }
    let table = table(&units);
    units.push(table);
    compile(&root, &out, &units);
}

/// Launch bound and name of every kernel in the text, comments left out.
fn kernels_of(text: &str) -> Vec<(String, String)> {
    let code: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .fold(String::new(), |all, line| all + line + "\n");
    let mut found = Vec::new();
    for part in code.split("KERNEL(").skip(1) {
        let Some((bounds, rest)) = part.split_once(')') else { continue };
        let name: String = rest.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let threads = bounds.split(',').next().unwrap_or("").trim();
        assert!(
            !name.is_empty() && !threads.is_empty(),
            "KERNEL(threads, blocks) name(..) expected, found KERNEL({bounds}){rest:.20}"
        );
        found.push((threads.to_owned(), name));
    }
    found
}

/// The file in a namespace of its own, and its kernels as table entries.
fn unit(source: &Source, variant: &str, kernels: &[(String, String)]) -> Unit {
    let name = format!("{}_{variant}", source.file);
    let mut text = String::from("#include \"host/emulate.h\"\n");
    if !variant.is_empty() {
        let _ = writeln!(text, "#define VARIANT {variant}");
    }
    let _ = writeln!(text, "namespace kernels_{name} {{\n#include \"{}.cu\"\n", source.file);
    let _ = writeln!(text, "extern const ::emulated::Entry entries[];\nconst ::emulated::Entry entries[] = {{");
    for (threads, kernel) in kernels {
        let _ =
            writeln!(text, "HOST_ENTRY(\"{}\", \"{variant}\", {kernel}, ({threads}), {})", source.file, source.from);
    }
    let _ = writeln!(text, "{{}}}};\n}}");
    Unit { name, text }
}

/// The unit that lists the entries of all others.
fn table(units: &[Unit]) -> Unit {
    let mut text = String::from("#include \"host/emulate.h\"\n");
    for unit in units {
        let _ = writeln!(text, "namespace kernels_{} {{ extern const ::emulated::Entry entries[]; }}", unit.name);
    }
    let _ =
        writeln!(text, "namespace emulated {{\nextern const Entry *const tables[];\nconst Entry *const tables[] = {{");
    for unit in units {
        let _ = writeln!(text, "::kernels_{}::entries,", unit.name);
    }
    text.push_str("nullptr};\n}\n");
    Unit { name: "table".into(), text }
}

/// The compiler and what every unit needs: each operation rounded by itself, integers that wrap, no run-time library of C++.
fn compiler(root: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).debug(false).warnings(false).cpp_link_stdlib(None).cargo_metadata(false);
    for flag in ["contract=off", "wrapv", "no-strict-aliasing", "no-exceptions", "no-rtti", "no-math-errno"] {
        let flag = if flag.starts_with("contract") { format!("-ffp-{flag}") } else { format!("-f{flag}") };
        build.flag(flag);
    }
    build.flag("-fno-threadsafe-statics").flag("-ftls-model=initial-exec");
    build
        .flag_if_supported("-fno-extern-tls-init")
        .flag_if_supported(format!("-fmacro-prefix-map={}/=", root.display()));
    build.include(root).include(root.join("host"));
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        // The emulator asks the processor before it runs anything of this.
        build.flag("-mfma");
    }
    build
}

/// Compiles the units that changed, and puts all of them into one library.
fn compile(root: &Path, out: &Path, units: &[Unit]) {
    let mut build = compiler(root);
    let flags = format!("{:?}", build.get_compiler().to_command());
    let shared = headers(root) + &flags;
    let host = fs::read_to_string(root.join("host/emulate.cpp")).expect("the emulator's text");
    let mut sources = vec![(root.join("host/emulate.cpp"), host)];
    for unit in units {
        let path = out.join(format!("{}.cpp", unit.name));
        fs::write(&path, &unit.text).expect("the output folder is writable");
        let file = unit.text.lines().find_map(|line| line.strip_prefix("#include \"")?.strip_suffix(".cu\""));
        let kernel = file.map(|file| if file == PROBE.file { format!("host/{file}.cu") } else { format!("{file}.cu") });
        let kernel = kernel.map_or(String::new(), |file| fs::read_to_string(root.join(file)).expect("read before"));
        sources.push((path, unit.text.clone() + &kernel));
    }
    let stamps: Vec<PathBuf> =
        sources.iter().map(|(path, _)| out.join(path.file_stem().expect("a file")).with_extension("stamp")).collect();
    let keys: Vec<String> = sources.iter().map(|(_, text)| key(&[text, &shared])).collect();
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

/// All headers, one after the other.
fn headers(root: &Path) -> String {
    let is_header = |path: &&PathBuf| path.extension().is_some_and(|e| e == "cuh" || e == "h");
    let text = |path: &PathBuf| fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    files(root).iter().filter(is_header).map(text).collect()
}

fn key(texts: &[&str]) -> String {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
