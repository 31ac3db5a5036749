//! The real program: what it prints, where, and how it ends.

mod bad;
mod check;
mod doctor;
mod drafting;
mod generate;
mod inspect;
mod session;
mod synthetic;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A prompt that the embedded model answers at some length.
const PROMPT: &str =
    "Write these words as a numbered list.\n\nwidth, height, depth, color, shape, owner, status, level";

/// The program with these arguments, not started yet.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What a successful run prints: standard output and standard error.
fn succeed(args: &[&str]) -> (String, String) {
    let output = run(args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{args:?}: {err}");
    (out, err)
}

/// The JSON object that a successful run prints.
fn object(args: &[&str]) -> Value {
    serde_json::from_str(&succeed(args).0).unwrap()
}

/// Asserts that a run ends with 2, prints nothing, and says in one line on standard error what is wrong with what.
fn refuse(args: &[&str], naming: &[&str]) {
    let output = run(args);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
    assert_eq!(text(&output.stdout), "", "{args:?}");
    assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
    assert!(err.starts_with("verbatim: "), "{err}");
    for name in naming {
        assert!(err.contains(name), "{args:?} should name {name}: {err}");
    }
}

/// The embedded model as a file.
fn pocket() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/pocket-Q4_K_M.gguf")
}

/// The embedded model as another architecture's file: nothing differs but the name.
fn other_architecture(to: &Path) {
    let mut bytes = std::fs::read(pocket()).unwrap();
    let (old, new) = (b"qwen35moe", b"another99");
    let mut at = 0;
    while let Some(found) = find(&bytes[at..], old) {
        bytes[at + found..][..new.len()].copy_from_slice(new);
        at += found + new.len();
    }
    std::fs::write(to, bytes).unwrap();
}

/// The embedded model with one tensor in a format that is not supported (IQ2_XXS, type 16).
fn other_format(to: &Path, tensor: &str) {
    let mut bytes = std::fs::read(pocket()).unwrap();
    // A tensor's entry: length of the name, name, number of dimensions, dimensions, type.
    let entry = [&(tensor.len() as u64).to_le_bytes()[..], tensor.as_bytes()].concat();
    let at = find(&bytes, &entry).unwrap() + entry.len();
    let dims = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let kind = at + 4 + 8 * dims;
    bytes[kind..kind + 4].copy_from_slice(&16u32.to_le_bytes());
    std::fs::write(to, bytes).unwrap();
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|w| w == what)
}

fn utf8(path: &Path) -> &str {
    path.to_str().unwrap()
}
