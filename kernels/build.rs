//! Compiles every kernel file for this machine's processor, one translation unit for each file and variant.
//!
//! Owns: the translation units, the tables of kernels and of their text, the compiler's flags. Refuses to know: what the
//! kernels do; their names are found by a scan for `KERNEL(`, and `__shared__`, which no macro can turn into memory of a
//! block, is written anew in a copy of each file. A unit whose text and flags did not change is not compiled again.

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
    /// What it is made of, headers left out.
    depends: String,
}

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo names the crate's folder"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo names the output folder"));
    inputs(&root);
    fs::write(out.join("texts.rs"), table_of_texts(&root)).expect("the output folder is writable");
    let texts = copy_texts(&root, &out.join("text"));
    let mut units = Vec::new();
    for source in SOURCES.iter().chain([&PROBE]) {
        let text = texts.iter().find(|(name, _)| *name == format!("{}.cu", source.file));
        let (_, text) = text.unwrap_or_else(|| panic!("the manifest names {}.cu, which is not there", source.file));
        let kernels = kernels_of(text);
        assert!(!kernels.is_empty(), "{}.cu has no KERNEL(threads, blocks) name(..)", source.file);
        let variants = if source.variants.is_empty() { &[""] } else { source.variants };
        units.extend(variants.iter().map(|variant| unit(source, variant, &kernels, text)));
    }
    let table = table(&units);
    units.push(table);
    let headers =
        texts.iter().filter(|(name, _)| !name.ends_with(".cu")).map(|(_, text)| text.as_str()).collect::<String>();
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
        let text = format!("#line 1 \"{name}\"\n{}", with_shared_variables(&text, &name));
        fs::write(to.join(&name), &text).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
        texts.push((name, text));
    }
    texts
}

/// The text with every `__shared__ type name[n], ..;` as `HOST_SHARED(type, name, [n]) ..;`, lines kept.
fn with_shared_variables(text: &str, file: &str) -> String {
    const WORD: &str = "__shared__ ";
    let mut out = String::new();
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or("");
        match code.find(WORD) {
            Some(at) if !code.trim_start().starts_with('#') => {
                let declared = code[at + WORD.len()..].trim().strip_suffix(';');
                let variables = declared.and_then(shared_variables);
                let expected = "expected on one line: __shared__ type name[n], ..;";
                out += &code[..at];
                out += &variables.unwrap_or_else(|| panic!("{file}: {expected}, found: {line}"));
            }
            _ => out += line,
        }
        out.push('\n');
    }
    out
}

/// `type name[n], ..` as macro calls; `None` if it is something else.
fn shared_variables(declared: &str) -> Option<String> {
    let mut calls = String::new();
    let mut kind = "";
    for (i, declarator) in declared.split(',').enumerate() {
        let (name, dimensions) = declarator.split_at(declarator.find('[').unwrap_or(declarator.len()));
        let mut name = name.trim();
        if i == 0 {
            (kind, name) = name.rsplit_once(' ')?;
        }
        let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ' ');
        if name.is_empty() || !is_word(name) || !is_word(kind) {
            return None;
        }
        let _ = write!(calls, "HOST_SHARED({kind}, {name}, {}) ", dimensions.trim());
    }
    Some(calls)
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
fn unit(source: &Source, variant: &str, kernels: &[(String, String)], kernel_text: &str) -> Unit {
    let name = format!("{}_{variant}", source.file);
    let mut text = String::from("#include \"emulate.h\"\n");
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
    let depends = text.clone() + kernel_text;
    Unit { name, text, depends }
}

/// The kernels' files and their text as a table, for the compiler of a graphics card.
fn table_of_texts(root: &Path) -> String {
    let mut table = String::from("&[\n");
    for path in files(root).iter().filter(|path| path.extension().is_some_and(|e| e == "cu" || e == "cuh")) {
        let name = path.file_name().and_then(|name| name.to_str()).expect("kernel files have plain names");
        let _ = writeln!(table, "({name:?}, include_str!({path:?})),");
    }
    table + "]"
}

/// The unit that lists the entries of all others.
fn table(units: &[Unit]) -> Unit {
    let mut text = String::from("#include \"emulate.h\"\n");
    for unit in units {
        let _ = writeln!(text, "namespace kernels_{} {{ extern const ::emulated::Entry entries[]; }}", unit.name);
    }
    let _ =
        writeln!(text, "namespace emulated {{\nextern const Entry *const tables[];\nconst Entry *const tables[] = {{");
    for unit in units {
        let _ = writeln!(text, "::kernels_{}::entries,", unit.name);
    }
    text.push_str("nullptr};\n}\n");
    Unit { name: "table".into(), depends: text.clone(), text }
}

/// The compiler and what every unit needs: each operation rounded by itself, integers that wrap, no run-time library of
/// C++.
fn compiler(texts: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).debug(false).warnings(false).cpp_link_stdlib(None).cargo_metadata(false);
    let exact = ["-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing", "-fno-math-errno"];
    let bare = ["-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-ftls-model=initial-exec"];
    build.flags(exact.iter().chain(&bare));
    build.flag_if_supported("-fno-extern-tls-init").include(texts);
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        // The emulator asks the processor before it runs anything of this.
        build.flag("-mfma");
    }
    build
}

/// Compiles the units that changed, and puts all of them into one library.
fn compile(root: &Path, out: &Path, units: &[Unit], headers: &str) {
    let mut build = compiler(&out.join("text"));
    let flags = format!("{:?}", build.get_compiler().to_command());
    let mut sources = Vec::new();
    for path in files(root).into_iter().filter(|path| path.extension().is_some_and(|e| e == "cpp")) {
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        sources.push((path, text));
    }
    for unit in units {
        let path = out.join(format!("{}.cpp", unit.name));
        fs::write(&path, &unit.text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        sources.push((path, unit.depends.clone()));
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
