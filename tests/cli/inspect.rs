//! `verbatim inspect`.

use std::fs;

use serde_json::Value;

use crate::{object, other_architecture, other_format, pocket, succeed, utf8};

#[test]
fn the_embedded_model_is_described() {
    let (out, err) = succeed(&["inspect"]);
    assert_eq!(err, "");
    for fact in [
        "qwen35moe",
        "8: 2 attention, 6 gated delta; a next-token-prediction block",
        "2 of 8 experts",
        "4096 tokens",
        "pre-tokenizer qwen35",
        "Q4_K",
        "bytes of S copied per pass: 0",
        "<|im_start|>",
    ] {
        assert!(out.contains(fact), "{fact}: {out}");
    }
    assert!(out.ends_with("runs here       yes\n"), "{out}");
}

#[test]
fn the_object_agrees_with_the_file() {
    let o = object(&["inspect", "--json", "--tensors", "--ctx", "100", "--kv", "f32"]);
    assert_eq!(o["file_bytes"], fs::metadata(pocket()).unwrap().len());
    assert_eq!(o["tensor_list"].as_array().unwrap().len(), o["tensors"].as_u64().unwrap() as usize);
    let formats = o["formats"].as_array().unwrap();
    assert_eq!(formats.iter().map(|f| f["tensors"].as_u64().unwrap()).sum::<u64>(), o["tensors"]);
    // Two attention layers of two heads of 64, K and V, 4 bytes each.
    assert_eq!(o["memory"]["kv_bytes_per_position"], 2 * 2 * 64 * 2 * 4);
    assert_eq!(o["memory"]["kv_bytes"], 100 * 2 * 2 * 64 * 2 * 4);
    // Six layers of eight heads of 64 by 64, 4 bytes each.
    assert_eq!(o["memory"]["s_bytes_per_drafted_row_if_copied"], 6 * 8 * 64 * 64 * 4);
    assert_eq!(o["memory"]["s_bytes_copied_per_pass"], 0);
    assert_eq!((&o["runs"], &o["unsupported"]), (&Value::Bool(true), &Value::Array(Vec::new())));
}

#[test]
fn what_is_unsupported_is_said_and_the_rest_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.gguf");
    other_architecture(&file);
    let (out, _) = succeed(&["inspect", "-m", utf8(&file)]);
    assert!(out.contains("unsupported     general.architecture: `another99`"), "{out}");
    assert!(out.contains("another99.block_count = 9") && out.contains("Q4_K") && out.contains("<|im_start|>"), "{out}");
    assert!(out.ends_with("runs here       no\n"));
    other_format(&file, "output.weight");
    let o = object(&["inspect", "-m", utf8(&file), "--json"]);
    assert_eq!(o["runs"], Value::Bool(false));
    let why = o["unsupported"][0].as_str().unwrap();
    assert!(why.contains("output.weight") && why.contains("IQ2_XXS"), "{why}");
    assert_eq!(o["model"]["layers"], 8);
}
