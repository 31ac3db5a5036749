//! `verbatim bench --synthetic`, and files without a tokenizer.

use std::fs;

use serde_json::Value;

use crate::{object, pocket, refuse, succeed, utf8};

#[test]
fn a_synthetic_model_is_measured_written_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made.gguf");
    let file = utf8(&path);
    let short = ["--rows", "2", "--context", "3", "--repeat", "1", "--json"];
    let made = object(&[&["bench", "--synthetic", "qwen3.5-0.8b:1", "--write", file][..], &short].concat());
    let read = object(&[&["bench", "--passes", "-m", file][..], &short].concat());
    for o in [&made, &read] {
        assert_eq!((o["model"].as_str(), &o["context"]), (Some(file), &Value::from(3)));
        let rows: Vec<_> = o["points"].as_array().unwrap().iter().map(|p| p["rows"].as_u64().unwrap()).collect();
        assert_eq!(rows, [1, 2]);
    }
    assert_eq!(made["tokens"], read["tokens"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let (out, _) = succeed(&["inspect", "-m", file]);
    assert!(out.contains("synthetic qwen3.5-0.8b:1") && out.contains("248320 tokens"), "{out}");
    assert!(out.contains("has no tokenizer") && out.ends_with("runs here       yes\n"), "{out}");
    let ids = object(&["generate", "-m", file, "--prompt-ids", "5,6,7", "-n", "3", "--json"]);
    assert_eq!((ids["ids"].as_array().unwrap().len(), &ids["text"]), (3, &Value::from("")));
    refuse(&["generate", "-m", file, "text"], &[file, "no tokenizer", "--prompt-ids"]);
    refuse(&["check", "-m", file], &[file, "no tokenizer", "prompt_ids"]);
    refuse(&["bench", "-m", file], &[file, "no tokenizer"]);
    refuse(&["bench", "--synthetic", "qwen3.5-0.8b:1", "--write", file], &[file, "exists already"]);
}

#[test]
fn a_shape_that_does_not_exist_or_fit_is_refused() {
    refuse(&["bench", "--synthetic", "qwen3.5-1t"], &["--synthetic", "qwen3.5-1t", "qwen3.5-35b-a3b"]);
    refuse(&["bench", "--synthetic", "qwen3.5-0.8b:25"], &["--synthetic", "1 to 24 layers", "25"]);
    let missing = "missing/made.gguf";
    refuse(&["bench", "--synthetic", "qwen3.5-0.8b:1", "--write", missing], &[missing, "cannot write"]);
}

#[test]
fn the_instruction_set_is_shown_and_can_be_chosen() {
    let all = object(&["inspect", "--json"]);
    let isas: Vec<&str> = all["isas"].as_array().unwrap().iter().map(|isa| isa.as_str().unwrap()).collect();
    assert_eq!((isas[0], all["isa"].as_str()), ("portable", isas.last().copied()));
    for isa in &isas {
        let o = object(&["inspect", "--json", "--isa", isa]);
        assert_eq!(o["isa"], *isa);
        assert!(o["device"].as_str().unwrap().contains(isa));
    }
    assert!(
        succeed(&["inspect"]).0.contains(&format!("instructions    {}; available: portable", isas[isas.len() - 1]))
    );
    let naming = ["--isa", "`sse9`", &isas.join(", ")];
    refuse(&["inspect", "--isa", "sse9"], &naming);
    refuse(&["generate", "text", "--isa", "sse9"], &naming);
    refuse(&["bench", "--synthetic", "qwen3.5-0.8b:1", "--isa", "sse9"], &naming);
}

#[test]
fn every_instruction_set_gives_the_bits_of_the_portable_one() {
    let dir = tempfile::tempdir().unwrap();
    let (prompts, record) = (dir.path().join("prompts.jsonl"), dir.path().join("run.json"));
    let lines = [r#"{"prompt": "Sort these numbers.\n\n3, 1, 2"}"#, r#"{"prompt_ids": [1, 2, 3, 400, 500]}"#];
    fs::write(&prompts, lines.join("\n")).unwrap();
    let recorded = ["check", "--prompts", utf8(&prompts), "-n", "6", "--isa", "portable", "--record", utf8(&record)];
    succeed(&recorded);
    let all = object(&["inspect", "--json", "-m", utf8(&pocket())]);
    for isa in all["isas"].as_array().unwrap() {
        let isa = isa.as_str().unwrap();
        let o = object(&["check", "--against", utf8(&record), "--isa", isa, "-t", "2", "--json"]);
        assert_eq!((&o["same"], &o["rows_differing"]), (&Value::Bool(true), &Value::from(0)), "{isa}");
        assert!(o["now"]["device"].as_str().unwrap().contains(isa) && o["rows"].as_u64() > Some(6), "{o}");
    }
}
