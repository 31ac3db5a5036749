//! Translation units of the kernels for the host's compiler.
//!
//! Owns: what stands around a kernel file, the tables of kernels, the copy of a file in which `__shared__`, which no macro can turn
//! into memory of a block, is written anew. Refuses to know: what the kernels do; their names are found by a scan for `KERNEL(`.
//! Where units lie and who compiles them is the business of the build script and of `emulator::rebuilt`.

use std::fmt::Write as _;

use crate::Source;

/// The kernels of the emulator's own tests.
pub(crate) const PROBE: Source = Source { file: "probe", variants: &["1", "2"], from: 30 };

/// One translation unit.
pub(crate) struct Unit {
    /// Its file's name, without an ending.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A kernel file or header as the host's compiler shall see it.
pub(crate) fn host_text(name: &str, text: &str) -> String {
    format!("#line 1 \"{name}\"\n{}", with_shared_variables(text, name))
}

/// The units of a file, one for each of `variants`; `text` is the file's [`host_text`].
pub(crate) fn units_of(source: &Source, variants: &[&str], text: &str) -> Vec<Unit> {
    let kernels = kernels_of(text);
    assert!(!kernels.is_empty(), "{}.cu has no KERNEL(threads, blocks) name(..)", source.file);
    variants.iter().map(|variant| unit(source, variant, &kernels)).collect()
}

/// The variants of a file: the empty one where it has none.
pub(crate) fn variants_of(source: &Source) -> &'static [&'static str] {
    if source.variants.is_empty() { &[""] } else { source.variants }
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
fn unit(source: &Source, variant: &str, kernels: &[(String, String)]) -> Unit {
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
    Unit { name, text }
}

/// The unit that lists the entries of all others.
pub(crate) fn table(units: &[Unit]) -> Unit {
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
    Unit { name: "table".into(), text }
}
