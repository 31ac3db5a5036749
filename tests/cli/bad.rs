//! Bad input: one sentence that names it, exit code 2, nothing on standard output.

use std::fs;

use crate::{PROMPT, other_architecture, other_format, pocket, refuse, run, text, utf8};

#[test]
fn a_file_that_is_no_model_is_named_by_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("text"), "not a model at all, only some text").unwrap();
    fs::write(path("empty"), "").unwrap();
    let model = fs::read(pocket()).unwrap();
    fs::write(path("header"), &model[..1000]).unwrap();
    fs::write(path("half"), &model[..model.len() / 2]).unwrap();
    for name in ["absent", "text", "empty", "header", "half", "."] {
        let file = path(name);
        refuse(&["generate", PROMPT, "-m", utf8(&file)], &[utf8(&file)]);
        refuse(&["check", "-m", utf8(&file)], &[utf8(&file)]);
        refuse(&["inspect", "-m", utf8(&file)], &[utf8(&file)]);
    }
}

#[test]
fn an_unsupported_architecture_or_format_is_named_with_what_is_supported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.gguf");
    other_architecture(&file);
    refuse(&["generate", PROMPT, "-m", utf8(&file)], &[utf8(&file), "another99", "qwen35moe"]);
    other_format(&file, "output.weight");
    let names = [utf8(&file), "output.weight", "IQ2_XXS", "Q4_K"];
    refuse(&["generate", PROMPT, "-m", utf8(&file)], &names);
}

#[test]
fn a_prompt_that_cannot_be_run_is_told_what_is_wrong() {
    refuse(&["generate", PROMPT, "--ctx", "10"], &["prompt", "10", "--ctx"]);
    refuse(&["generate", "--raw", ""], &["prompt", "empty"]);
    refuse(&["generate"], &["prompt"]);
    refuse(&["generate", "--prompt-ids", "1,2,4096"], &["4096", "vocabulary"]);
    refuse(&["generate", PROMPT, "--stop", ""], &["stop"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompt");
    refuse(&["generate", "-f", utf8(&file)], &[utf8(&file)]);
    fs::write(&file, b"\xff\xfe").unwrap();
    refuse(&["generate", "-f", utf8(&file)], &[utf8(&file), "UTF-8"]);
    fs::write(&file, "{\"prompt\": \"a\"}\n{\"prompt\": 7}\n").unwrap();
    refuse(&["check", "--prompts", utf8(&file)], &[utf8(&file), "line 2"]);
    fs::write(&file, "{\"prompt_ids\": [1, 2, 9999]}\n").unwrap();
    refuse(&["check", "--prompts", utf8(&file)], &[utf8(&file), "9999"]);
}

#[test]
fn a_bad_flag_value_is_named() {
    let cases: [(&[&str], &str); 21] = [
        (&["generate", "x", "-t", "0"], "--threads"),
        (&["generate", "x", "-t", "1025"], "--threads"),
        (&["generate", "x", "--ctx", "0"], "--ctx"),
        (&["generate", "x", "-n", "-1"], "-1"),
        (&["generate", "x", "--block", "9999"], "--block"),
        (&["generate", "x", "--draft", "luck"], "--draft"),
        (&["generate", "x", "--kv", "q4"], "--kv"),
        (&["generate", "--prompt-ids", "1,two"], "--prompt-ids"),
        (&["generate", "x", "--top-logits", "3"], "--json"),
        (&["check", "-n", "0"], "--tokens"),
        (&["bench", "--passes", "--rows", "1,513"], "513"),
        (&["bench", "--passes", "--rows", ""], "--rows"),
        (&["bench", "--rows", "1,2"], "--passes"),
        (&["bench", "--passes", "--context", "0"], "--context"),
        (&["bench", "--synthetic", "qwen3.5-9b", "-m", "x"], "--model"),
        (&["bench", "--write", "x"], "--synthetic"),
        (&["generate", "x", "--device", "gpu"], "--device"),
        (&["check", "--device", "cuda:0,x"], "`x`"),
        (&["bench", "--device", "emu:2@3.7"], "`3.7`"),
        (&["inspect", "--split", "0"], "--split"),
        (&["conjure"], "conjure"),
    ];
    for (args, name) in cases {
        let output = run(args);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(err.contains(name), "{args:?} should name {name}: {err}");
    }
}

#[test]
fn a_device_that_is_not_there_is_named_by_every_command() {
    let nowhere = ["--device", "cuda:255"];
    for words in [&["generate", PROMPT][..], &["check"], &["bench"], &["inspect"]] {
        refuse(&[words, &nowhere].concat(), &["--device cuda:255: "]);
    }
}

#[test]
fn flags_that_the_processor_cannot_follow_are_refused() {
    let processor = ["--device", "cpu"];
    for words in [&["generate", PROMPT, "--profile"][..], &["bench", "--profile"], &["bench", "--passes", "--profile"]]
    {
        refuse(&[words, &processor].concat(), &["--profile", "CUDA", "emulated", "cpu"]);
    }
    refuse(&["inspect", "--split", "4", "--device", "cpu"], &["--split", "several dies", "processor"]);
    refuse(&["inspect", "--isa", "portable", "--device", "emu"], &["--isa", "emu:1@37#0"]);
}
