//! Text: the tokenizer, chat templates and streaming, against what other implementations give.
//!
//! `tests/data/pocket_texts.py` and `tests/data/more_chats.py` made the expectations that were not supplied.

mod chat;
mod grammar;
mod stream;
mod tokenizer;

use std::path::PathBuf;

use serde_json::Value;
use verbatim::gguf::{Gguf, Metadata};

/// A file of `tests/data`.
fn data(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The list of cases in a JSON file of `tests/data`.
fn cases(name: &str) -> Vec<Value> {
    serde_json::from_str(&data(name)).unwrap()
}

/// The metadata of a GGUF file under the repository's root; `None`, with the reason printed, where it is absent.
fn metadata(path: &str) -> Option<Metadata> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    if !path.exists() {
        println!("skipped: {} is absent", path.display());
        return None;
    }
    Some(Gguf::open(&path).unwrap().metadata().clone())
}

/// The metadata of the embedded model.
fn pocket() -> Metadata {
    metadata("models/pocket-Q4_K_M.gguf").expect("the embedded model lies in the repository")
}
