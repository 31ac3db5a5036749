//! `verbatim generate`.

use std::io::{Read, Write};
use std::process::Stdio;

use serde_json::Value;

use crate::{PROMPT, command, object, refuse, succeed, text, utf8};

#[test]
fn text_goes_to_standard_output_and_a_summary_to_standard_error() {
    let (out, err) = succeed(&["generate", PROMPT]);
    assert!(out.starts_with("1. width\n2. height\n"), "{out}");
    assert!(out.ends_with('\n'));
    assert_eq!(err.lines().count(), 1, "{err}");
    for word in ["tok/s", "passes", "tokens/pass", "acceptance", "| stop |"] {
        assert!(err.contains(word), "{word}: {err}");
    }
}

#[test]
fn the_text_is_the_same_whoever_drafts_and_however_much() {
    let (plain, _) = succeed(&["generate", PROMPT, "--draft", "off"]);
    for block in ["0", "1", "3", "16", "31"] {
        assert_eq!(succeed(&["generate", PROMPT, "--block", block]).0, plain, "block {block}");
    }
    assert_eq!(succeed(&["generate", PROMPT, "--draft", "suffix", "-t", "1"]).0, plain);
}

#[test]
fn json_holds_text_ids_and_counts() {
    let o = object(&["generate", PROMPT, "--json"]);
    assert!(o["text"].as_str().unwrap().starts_with("1. width\n"));
    assert_eq!(o["finish"], "stop");
    assert_eq!(o["prompt_ids"].as_array().unwrap().len(), o["prompt_tokens"].as_u64().unwrap() as usize);
    assert_eq!(o["ids"].as_array().unwrap().len(), o["metrics"]["emitted"].as_u64().unwrap() as usize);
    assert!(o["metrics"]["accepted"].as_u64() <= o["metrics"]["drafted"].as_u64());
}

#[test]
fn token_ids_are_fed_as_they_are() {
    let chat = object(&["generate", PROMPT, "--json"]);
    let ids: Vec<String> = chat["prompt_ids"].as_array().unwrap().iter().map(ToString::to_string).collect();
    let fed = object(&["generate", "--prompt-ids", &ids.join(","), "--json"]);
    assert_eq!((&fed["ids"], &fed["prompt_ids"]), (&chat["ids"], &chat["prompt_ids"]));
}

#[test]
fn top_logits_come_for_each_position_and_the_largest_is_the_token_chosen() {
    let o = object(&["generate", PROMPT, "--json", "--top-logits", "3", "-n", "9"]);
    let rows = o["top_logits"].as_array().unwrap();
    let (prompt, ids) = (o["prompt_ids"].as_array().unwrap(), o["ids"].as_array().unwrap());
    assert_eq!(ids.len(), 9);
    // One for each row evaluated: the prompt's but for its last token, then one for each generated token.
    assert_eq!(rows.len(), prompt.len() - 1 + ids.len());
    for row in rows {
        let logits: Vec<f64> = row.as_array().unwrap().iter().map(|p| p[1].as_f64().unwrap()).collect();
        assert_eq!(logits.len(), 3);
        assert!(logits[0] >= logits[1] && logits[1] >= logits[2]);
    }
    for (row, id) in rows[prompt.len() - 1..].iter().zip(ids) {
        assert_eq!(&row[0][0], id);
    }
}

#[test]
fn the_number_of_tokens_is_kept_to() {
    for n in ["0", "1", "5"] {
        let o = object(&["generate", PROMPT, "--json", "-n", n]);
        assert_eq!(o["ids"].as_array().unwrap().len().to_string(), n);
        assert_eq!(o["finish"], "length");
    }
    let (out, err) = succeed(&["generate", PROMPT, "-n", "0"]);
    assert_eq!(out, "\n");
    assert!(err.contains("[0 tokens, 0.0 tok/s") && !err.contains("NaN"), "{err}");
}

#[test]
fn the_context_ends_a_generation() {
    let prompt = object(&["generate", PROMPT, "--json", "-n", "0"])["prompt_tokens"].as_u64().unwrap();
    for room in 0..3 {
        let ctx = (prompt + room).to_string();
        let o = object(&["generate", PROMPT, "--json", "--ctx", &ctx]);
        assert_eq!((o["ids"].as_array().unwrap().len() as u64, &o["finish"]), (room, &"length".into()));
    }
}

#[test]
fn output_ends_before_a_stop_text() {
    let (out, err) = succeed(&["generate", PROMPT, "--stop", "never", "--stop", "3. de"]);
    assert_eq!(out, "1. width\n2. height\n\n");
    assert!(err.contains("| stop string |"), "{err}");
}

#[test]
fn a_prompt_comes_from_a_file_or_standard_input_too() {
    let (typed, _) = succeed(&["generate", PROMPT]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompt");
    std::fs::write(&file, PROMPT).unwrap();
    assert_eq!(succeed(&["generate", "-f", file.to_str().unwrap()]).0, typed);
    let mut child = command(&["generate", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(PROMPT.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), typed));
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let args = ["generate", PROMPT, "--ignore-eos", "-n", "3000", "--draft", "off"];
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 4]).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("| interrupted |"), "{err}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_cleanly_with_the_summary() {
    let args = ["generate", PROMPT, "--ignore-eos", "-n", "8000", "--draft", "off"];
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The first text shows that the program is under way.
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("| interrupted |"), "{err}");
    assert!(output.stdout.ends_with(b"\n"));
}

#[test]
fn a_trace_has_a_line_for_each_pass_and_its_sums_are_those_of_the_summary() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.jsonl");
    for (draft, n) in [("auto", "400"), ("suffix", "30"), ("off", "5"), ("auto", "0")] {
        let args = ["generate", PROMPT, "--json", "-n", n, "--draft", draft, "--trace", utf8(&path)];
        let o = object(&args);
        let trace = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (metrics, mut position) = (&o["metrics"], o["prompt_tokens"].as_u64().unwrap());
        assert_eq!(lines.len() as u64, metrics["passes"].as_u64().unwrap());
        for field in ["emitted", "accepted", "drafted", "rows"] {
            let sum: u64 = lines.iter().map(|line| line[field].as_u64().unwrap()).sum();
            assert_eq!(sum, metrics[field].as_u64().unwrap(), "{draft}: {field}");
        }
        let seconds = |line: &Value| line["seconds"].as_f64().unwrap() + line["draft_seconds"].as_f64().unwrap();
        let sum: f64 = lines.iter().map(seconds).sum();
        assert!((sum - metrics["time"].as_f64().unwrap()).abs() < 1e-6, "{sum}: {metrics}");
        for (i, line) in lines.iter().enumerate() {
            assert_eq!((&line["step"], &line["position"]), (&i.into(), &position.into()));
            position += line["emitted"].as_u64().unwrap();
            assert_eq!(line["drafter"].is_string(), line["drafted"] != 0, "{line}");
            assert_eq!(line["expected_tokens"].is_null(), draft == "off", "{line}");
        }
        for (drafter, share) in metrics["drafters"].as_object().unwrap() {
            let passes = lines.iter().filter(|line| line["drafter"] == **drafter).count();
            assert_eq!(share["passes"], passes, "{drafter}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_trace_that_cannot_be_kept_is_refused_before_anything_is_generated() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("missing").join("trace.jsonl"), dir.path().to_owned()] {
        refuse(&["generate", PROMPT, "--trace", utf8(&path)], &[utf8(&path)]);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
