//! `verbatim generate --session`.

use std::fs;
use std::path::Path;

use crate::{PROMPT, object, refuse, succeed, utf8};

/// Comma-separated ids of a JSON array.
fn ids(array: &serde_json::Value) -> String {
    let ids: Vec<String> = array.as_array().unwrap().iter().map(ToString::to_string).collect();
    ids.join(",")
}

#[test]
fn a_resumed_prompt_that_goes_on_evaluates_only_what_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("session");
    let first = object(&["generate", PROMPT, "--json", "-n", "20", "--session", utf8(&file)]);
    let all = [ids(&first["prompt_ids"]), ids(&first["ids"])].join(",");
    let more = format!("{all},5,6,7");
    let fresh = object(&["generate", "--prompt-ids", &more, "--json", "-n", "12"]);
    let resumed = object(&["generate", "--prompt-ids", &more, "--json", "-n", "12", "--session", utf8(&file)]);
    assert_eq!(resumed["ids"], fresh["ids"]);
    // The last kept token was not evaluated yet, and the last new one is the first row of the next pass.
    assert_eq!(resumed["evaluated_prompt_tokens"], 3);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside the session");
}

#[test]
fn the_same_prompt_again_gives_the_same_text() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("session");
    let (plain, _) = succeed(&["generate", PROMPT]);
    for _ in 0..3 {
        assert_eq!(succeed(&["generate", PROMPT, "--session", utf8(&file)]).0, plain);
    }
}

/// Asserts that the session is refused by name and left as it is.
fn refused(file: &Path, bytes: &[u8], args: &[&str], naming: &[&str]) {
    fs::write(file, bytes).unwrap();
    let args = [&["generate", PROMPT, "-n", "2", "--session", utf8(file)], args].concat();
    refuse(&args, &[&[utf8(file)], naming].concat());
    assert_eq!(fs::read(file).unwrap(), bytes, "the file is left as it was");
}

#[test]
fn a_damaged_session_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("session");
    succeed(&["generate", PROMPT, "-n", "2", "--session", utf8(&file)]);
    let good = fs::read(&file).unwrap();
    for len in [0, 3, 7, 30, good.len() / 2, good.len() - 1] {
        refused(&file, &good[..len], &[], &[]);
    }
    for at in [0, 12, 200, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        refused(&file, &bad, &[], &[]);
    }
    let mut version = good.clone();
    version[4] = 77;
    refused(&file, &version, &[], &["version 77"]);
    refused(&file, &good, &["--kv", "f32"], &["f32"]);
    // The prompt has 36 tokens; two more were generated.
    refused(&file, &good, &["--ctx", "36"], &["38 tokens", "36"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_session_of_another_model_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (model, file) = (dir.path().join("model.gguf"), dir.path().join("session"));
    // The same file with one weight changed: the shapes agree, the numbers do not.
    let mut bytes = fs::read(crate::pocket()).unwrap();
    let last = bytes.len() - 200;
    bytes[last] ^= 1;
    fs::write(&model, bytes).unwrap();
    succeed(&["generate", PROMPT, "-n", "2", "--session", utf8(&file), "-m", utf8(&model)]);
    let good = fs::read(&file).unwrap();
    refused(&file, &good, &[], &["another model"]);
}

#[test]
fn a_place_that_takes_no_session_is_refused_before_anything_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing/session");
    for path in [missing.as_path(), dir.path()] {
        refuse(&["generate", PROMPT, "-n", "2", "--session", utf8(path)], &[utf8(path)]);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
