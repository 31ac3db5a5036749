//! The house rules, checked on the source itself: headers, sizes, directions, and what must not be written.
//!
//! Every rule reads every file, and all faults are reported at once.

#[path = "layout/source.rs"]
mod source;

use source::{Source, closing, closing_angle, sources, split_at_commas, word_at, words};

/// A file and a function have fewer lines than this, a function at most so many parameters beside `self`.
const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 60;
const PARAMETERS: usize = 6;
/// The longest line of a kernel file; Rust's lines are rustfmt's business.
const COLUMNS: usize = 120;

/// Where `unsafe` may be written.
const UNSAFE: [&str; 7] = [
    "src/quant/x86/",
    "src/quant/arm/",
    "src/gguf/bytes.rs",
    "src/backend/cpu/team.rs",
    "kernels/src/",
    // A driver made up for its tests.
    "kernels/tests/cuda.rs",
    // A counting allocator.
    "tests/gguf/measure.rs",
];

/// The modules from the bottom up. One may name those of a lower rank, and itself.
const RANKS: [(&str, usize); 13] = [
    ("error", 0),
    ("constraint", 1),
    ("whole", 1),
    ("quant", 1),
    ("gguf", 2),
    ("text", 3),
    ("backend", 3),
    ("synthetic", 3),
    ("state", 4),
    ("model", 5),
    ("engine", 6),
    ("server", 7),
    ("cli", 7),
];

/// What the crate's root re-exports, and from where.
const ROOT_NAMES: [(&str, &str); 3] = [("Error", "error"), ("Result", "error"), ("with_block", "quant")];

/// What the build script includes cannot have a module's header.
const INCLUDED: [&str; 2] = ["kernels/src/manifest.rs", "kernels/src/units.rs"];

fn header(file: &Source) -> Vec<String> {
    if !file.is_product() || INCLUDED.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let header: String = file.text.lines().take_while(|line| line.starts_with("//!")).collect();
    let header = header.to_lowercase();
    let missing = ["owns", "refuses"].into_iter().filter(|word| !header.contains(word));
    missing.map(|word| file.fault(0, &format!("the header does not say what the module {word}"))).collect()
}

fn file_length(file: &Source) -> Vec<String> {
    let lines = file.text.lines().count();
    let long = lines >= FILE_LINES;
    Vec::from_iter(long.then(|| file.fault(0, &format!("{lines} lines, not under {FILE_LINES}"))))
}

fn line_length(file: &Source) -> Vec<String> {
    if ![".cu", ".cuh", ".h", ".cpp"].iter().any(|end| file.path.ends_with(end)) {
        return Vec::new();
    }
    let start = |line: &str| line.as_ptr() as usize - file.text.as_ptr() as usize;
    let long = file.text.lines().filter(|line| line.chars().count() > COLUMNS);
    long.map(|line| file.fault(start(line), &format!("a line of more than {COLUMNS} columns"))).collect()
}

fn unsafe_code(file: &Source) -> Vec<String> {
    if !file.is_rust() || UNSAFE.iter().any(|allowed| file.path.starts_with(allowed)) {
        return Vec::new();
    }
    let found = words(&file.code, "unsafe").into_iter();
    found.map(|at| file.fault(at, "unsafe outside its few files")).collect()
}

fn environment(file: &Source) -> Vec<String> {
    if !file.is_product() {
        return Vec::new();
    }
    let names = ["env::var", "env::vars", "env::var_os", "env::vars_os"];
    let found = names.iter().flat_map(|name| words(&file.product, name));
    found.map(|at| file.fault(at, "reads the environment")).collect()
}

fn unfinished(file: &Source) -> Vec<String> {
    // Spelt in halves, since this file is checked as well.
    let marks = [
        concat!("to", "do!"),
        concat!("unimple", "mented!"),
        concat!("FIX", "ME"),
        concat!("TO", "DO"),
        concat!("#[ig", "nore"),
    ];
    let found = marks.iter().flat_map(|mark| words(&file.text, mark));
    found.map(|at| file.fault(at, "says that it is unfinished")).collect()
}

fn panics_on_input(file: &Source) -> Vec<String> {
    if !file.is_product() {
        return Vec::new();
    }
    let found = [".unwrap()", ".expect("].iter().flat_map(|call| file.product.match_indices(call));
    found.map(|(at, _)| file.fault(at, "unwraps outside tests")).collect()
}

fn rank(module: &str) -> Option<usize> {
    RANKS.iter().find(|(name, _)| *name == module).map(|&(_, rank)| rank)
}

fn direction(file: &Source) -> Vec<String> {
    let own = file.path.strip_prefix("src/").and_then(|path| path.split(['/', '.']).next());
    let Some(own) = own.filter(|own| file.is_product() && !["lib", "main"].contains(own)) else {
        return Vec::new();
    };
    let Some(own_rank) = rank(own) else {
        return vec![file.fault(0, "a module without a place in the order")];
    };
    let mut faults = Vec::new();
    for (at, name) in crate_names(&file.product) {
        let module = ROOT_NAMES.iter().find(|(root, _)| *root == name).map_or(name, |&(_, from)| from);
        match rank(module) {
            Some(rank) if module == own || rank < own_rank => {}
            Some(_) => faults.push(file.fault(at, &format!("{own} may not see {module}"))),
            None => faults.push(file.fault(at, &format!("`crate::{name}` has no place in the order"))),
        }
    }
    if own == "model" {
        let found = words(&file.product, "backend::cuda").into_iter();
        faults.extend(found.map(|at| file.fault(at, "model may not see CUDA")));
    }
    // The root reached by climbing would pass unseen above.
    let below_root = file.path.trim_end_matches("/mod.rs").matches('/').count();
    let climbs = words(&file.product, &"super::".repeat(below_root)).into_iter();
    faults.extend(climbs.map(|at| file.fault(at, "names the crate's root by `super`")));
    faults
}

/// First names behind `crate::`, those in braces included.
fn crate_names(code: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        let start = at + prefix.len();
        if code[start..].starts_with('{') {
            let end = closing(code, start).unwrap_or(code.len());
            let parts = split_at_commas(&code[start + 1..end - 1]).into_iter();
            names.extend(parts.map(|part| (at, word_at(part.trim_start(), 0))));
        } else {
            names.push((at, word_at(code, start)));
        }
    }
    names
}

fn conditional(file: &Source) -> Vec<String> {
    let parts: Vec<&str> = file.path.split('/').collect();
    let allowed = matches!(
        parts[..],
        ["src", "quant", ..] | ["kernels", "src", "cuda", "mod.rs"] | ["kernels", "src", "emulator", "host.rs"]
    );
    if !file.is_product() || allowed {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for opening in ["cfg(", "cfg!(", "cfg_attr("] {
        let found = file.code.match_indices(opening).map(|(at, _)| at);
        for at in found.filter(|&at| word_at(&file.code, at).starts_with("cfg")) {
            let end = closing(&file.code, at + opening.len() - 1).unwrap_or(at);
            let kinds = ["feature", "target_arch", "target_feature"];
            if kinds.iter().any(|kind| !words(&file.code[at..end], kind).is_empty()) {
                faults.push(file.fault(at, "compiles conditionally outside its few files"));
            }
        }
    }
    faults
}

fn functions(file: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let found = if file.is_rust() { words(&file.code, "fn") } else { Vec::new() };
    for at in found {
        let name = word_at(&file.code, at + 3);
        let Some((parameters, end)) = signature(&file.code, at + 3 + name.len()) else {
            continue;
        };
        let lines = file.code[at..end].lines().count();
        if lines >= FUNCTION_LINES {
            faults.push(file.fault(at, &format!("{name} has {lines} lines, not under {FUNCTION_LINES}")));
        }
        if parameters > PARAMETERS {
            faults.push(file.fault(at, &format!("{name} has {parameters} parameters, more than {PARAMETERS}")));
        }
    }
    faults
}

/// From behind a function's name: how many parameters it has beside `self`, and where its body ends.
fn signature(code: &str, at: usize) -> Option<(usize, usize)> {
    let open = match code[at..].starts_with('<') {
        true => closing_angle(code, at)?,
        false => at,
    };
    let mut body = closing(code, open).filter(|_| code[open..].starts_with('('))?;
    let parameters = split_at_commas(&code[open + 1..body - 1]);
    let beside_self = parameters.iter().filter(|part| words(part, "self").is_empty()).count();
    loop {
        match code.as_bytes().get(body)? {
            b'{' => return Some((beside_self, closing(code, body)?)),
            b';' => return Some((beside_self, body)),
            b'[' | b'(' => body = closing(code, body)?,
            _ => body += 1,
        }
    }
}

fn all_faults(file: &Source) -> Vec<String> {
    let rules = [
        header,
        file_length,
        line_length,
        unsafe_code,
        environment,
        unfinished,
        panics_on_input,
        direction,
        conditional,
        functions,
    ];
    rules.iter().flat_map(|rule| rule(file)).collect()
}

#[test]
fn the_repository_keeps_the_house_rules() {
    let files = sources();
    assert!(files.len() > 5, "only {} source files were found", files.len());
    let faults: Vec<String> = files.iter().flat_map(all_faults).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// `text` as the file `path`, under a header that is as it should be, has `expected` faults.
#[track_caller]
fn expect_faults(path: &str, text: &str, expected: usize) {
    let header = "//! Owns: x. Refuses to know: y.\n";
    let found = all_faults(&Source::new(path, &format!("{header}{text}")));
    assert_eq!(found.len(), expected, "{path}: {text}\n{found:#?}");
}

#[test]
fn the_direction_of_modules_is_seen() {
    expect_faults("src/model/a.rs", "use crate::backend::Rows;\nuse crate::{Error, gguf::File};", 0);
    expect_faults("src/model/a.rs", "use crate::{engine, cli::{A, B}, quant, model::C};", 2);
    expect_faults("src/text/a.rs", "use crate::backend::cpu;", 1);
    expect_faults("src/backend/cpu/a.rs", "use super::super::x; use crate::model::y;", 1);
    expect_faults("src/backend/cpu/a.rs", "use super::super::super::x;", 1);
    expect_faults("src/backend/mod.rs", "use super::quant;", 1);
    expect_faults("src/model/a.rs", "use crate::backend::cuda::Die;", 1);
    expect_faults("src/model/a.rs", "#[cfg(test)]\nmod tests { use crate::engine::x; }", 0);
    expect_faults("src/other.rs", "", 1);
}

#[test]
fn forbidden_words_are_seen_in_code_alone() {
    expect_faults("src/text/a.rs", "fn f() { x.unwrap(); y.unwrap_or(0); }", 1);
    let tested = "#[cfg(test)]\nmod tests { fn f() { x.expect(\"}\"); } }\nfn g() { x.expect(\"\"); }";
    expect_faults("src/text/a.rs", tested, 1);
    expect_faults("src/text/a.rs", "// x.unwrap() unsafe env::var\nconst A: &str = r#\"unsafe \"{\" \"#;", 0);
    expect_faults("src/text/a.rs", "unsafe fn f() { std::env::var(\"A\"); }\n#![allow(unsafe_code)]", 2);
    expect_faults("tests/a.rs", "fn f() { unsafe { x.unwrap() } }", 1);
    expect_faults("kernels/src/cuda/enabled.rs", "fn f() { unsafe {} }", 0);
    expect_faults("src/text/a.rs", concat!("// FIX", "ME: later\n#[ig", "nore]"), 2);
}

#[test]
fn conditional_compilation_is_seen_outside_its_files() {
    expect_faults("src/quant/x86/", "#[cfg(target_arch = \"x86_64\")] fn f() {}", 0);
    expect_faults("kernels/src/cuda/mod.rs", "#[cfg(all(unix, feature = \"cuda\"))] mod enabled;", 0);
    expect_faults("kernels/src/cuda/enabled.rs", "#[cfg(feature = \"cuda\")] fn f() {}", 1);
    expect_faults("src/text/a.rs", "fn f() { if cfg!(target_feature = \"avx2\") {} }", 1);
    expect_faults("src/text/a.rs", "#[cfg(test)] mod a; #[cfg(unix)] mod b;", 0);
}

#[test]
fn sizes_are_seen() {
    let function = |lines: usize| format!("fn f() {{\n{}}}", "    work();\n".repeat(lines - 2));
    expect_faults("src/text/a.rs", &function(59), 0);
    expect_faults("src/text/a.rs", &function(60), 1);
    let six = "fn f<F: Fn(u8) -> u8>(&self, a: A<B, C>, b: (u8, u8), c: F, d: [u8; 2], e: u8, f: u8,) {}";
    expect_faults("src/text/a.rs", six, 0);
    expect_faults("src/text/a.rs", "fn f(a: A, b: A, c: A, d: A, e: A, f: A, g: A) -> [u8; 2];", 1);
    expect_faults("src/text/a.rs", "fn f<'a>(c: &'a str) -> bool { c == '{' || c == '\\'' || c == 'é' }", 0);
    expect_faults("scripts/a.py", &"x\n".repeat(498), 0);
    expect_faults("scripts/a.py", &"x\n".repeat(499), 1);
    expect_faults("kernels/a.cu", &"·".repeat(120), 0);
    expect_faults("kernels/a.cuh", &format!("x\n{}\nx", "·".repeat(121)), 1);
}

#[test]
fn a_header_without_its_words_is_seen() {
    assert_eq!(all_faults(&Source::new("src/text/a.rs", "//! Owns: x.\nfn f() {}")).len(), 1);
    assert_eq!(all_faults(&Source::new("src/text/a.rs", "fn f() {}\n//! Owns. Refuses.")).len(), 2);
    assert_eq!(all_faults(&Source::new("tests/a.rs", "fn f() {}")).len(), 0);
}
