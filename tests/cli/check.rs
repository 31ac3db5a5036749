//! `verbatim check`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{PROMPT, object, pocket, refuse, run, succeed, text, utf8};

/// A prompt file with one short prompt, so that a check takes a moment.
fn prompts(dir: &Path) -> String {
    let path = dir.join("prompts.jsonl");
    let lines = [serde_json::json!({"prompt": PROMPT, "task": "list"}), serde_json::json!({"prompt_ids": [1, 2, 3]})];
    fs::write(&path, lines.map(|l| l.to_string()).join("\n")).unwrap();
    utf8(&path).to_owned()
}

#[test]
fn a_check_compares_rows_and_finds_no_difference() {
    let dir = tempfile::tempdir().unwrap();
    let prompts = prompts(dir.path());
    let (out, _) = succeed(&["check", "--prompts", &prompts, "-n", "6"]);
    let last = out.lines().last().unwrap();
    assert!(last.starts_with("rows compared ") && last.ends_with(", bits that differ 0"), "{last}");
    for name in [
        "suffix",
        "mtp",
        "shallow",
        "auto",
        "auto, sampled",
        "auto, grammar",
        "oracle",
        "wrong",
        "empty",
        "random",
        "overrun",
        "context end",
        "prefix reuse",
    ] {
        assert!(out.lines().any(|l| l.starts_with(name) && l.ends_with("yes")), "{name}: {out}");
    }
    let o = object(&["check", "--prompts", &prompts, "-n", "3", "--json"]);
    assert_eq!((&o["same"], &o["bits_differing"]), (&Value::Bool(true), &Value::from(0)));
    let rows = |g: &Value| g["rows"].as_u64().unwrap();
    assert_eq!(o["groups"].as_array().unwrap().iter().map(rows).sum::<u64>(), o["rows"].as_u64().unwrap());
}

#[test]
fn a_context_that_ends_early_is_checked_too() {
    let dir = tempfile::tempdir().unwrap();
    let prompts = prompts(dir.path());
    let length = object(&["generate", PROMPT, "--json", "-n", "0"])["prompt_tokens"].as_u64().unwrap();
    for room in [0, 1, 4] {
        let ctx = (length + room).to_string();
        succeed(&["check", "--prompts", &prompts, "-n", "6", "--ctx", &ctx]);
    }
}

#[test]
fn a_kept_run_agrees_with_any_number_of_threads_and_with_nothing_that_was_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (prompts, file) = (prompts(dir.path()), dir.path().join("run.json"));
    succeed(&["check", "--prompts", &prompts, "-n", "5", "--record", utf8(&file), "-t", "1"]);
    let (out, _) = succeed(&["check", "--against", utf8(&file), "-t", "2"]);
    assert!(out.contains(", rows that differ 0\n"), "{out}");
    let good: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let mut hash = good.clone();
    hash["prompts"][0]["rows"][2]["hash"] = "0123456789abcdef".into();
    let mut token = good.clone();
    token["prompts"][0]["ids"][1] = 9.into();
    let mut state = good.clone();
    state["prompts"][1]["state"] = "00".into();
    for (changed, naming) in [(hash, "generated token 2: row"), (token, "token 9"), (state, "prompt 2 (prompts)")] {
        fs::write(&file, changed.to_string()).unwrap();
        let output = run(&["check", "--against", utf8(&file)]);
        let out = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{out}");
        assert!(out.contains("first difference: ") && out.contains(naming), "{naming}: {out}");
        let json = run(&["check", "--against", utf8(&file), "--json"]);
        assert_eq!(json.status.code(), Some(1));
        let object: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(object["same"], Value::Bool(false));
    }
}

#[test]
fn a_record_that_cannot_be_used_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (prompts, file) = (prompts(dir.path()), dir.path().join("run.json"));
    let against = ["check", "--against", utf8(&file)];
    refuse(&against, &[utf8(&file)]);
    succeed(&["check", "--prompts", &prompts, "-n", "2", "--record", utf8(&file)]);
    let good = fs::read(&file).unwrap();
    for damaged in [&good[..good.len() / 2], b"{}", b"", b"\xff"] {
        fs::write(&file, damaged).unwrap();
        refuse(&against, &[utf8(&file), "damaged"]);
    }
    let parsed: Value = serde_json::from_slice(&good).unwrap();
    let absurd = [("tokens", 0u64), ("tokens", 1 << 60), ("context", u64::MAX)];
    for (key, value) in absurd {
        let mut bad = parsed.clone();
        bad[key] = value.into();
        fs::write(&file, bad.to_string()).unwrap();
        refuse(&against, &[utf8(&file), "damaged"]);
    }
    fs::write(&file, &good).unwrap();
    refuse(&["check", "--against", utf8(&file), "--kv", "f32"], &[utf8(&file), "--kv"]);
    let model = dir.path().join("model.gguf");
    let mut bytes = fs::read(pocket()).unwrap();
    let last = bytes.len() - 200;
    bytes[last] ^= 1;
    fs::write(&model, bytes).unwrap();
    refuse(&["check", "--against", utf8(&file), "-m", utf8(&model)], &[utf8(&file), "another model"]);
    let missing = dir.path().join("missing/run.json");
    refuse(&["check", "--record", utf8(&missing)], &[utf8(&missing)]);
}
