//! Loading: what a file may say in more than one way means the same, and what cannot run is refused by name.

mod support;

use draft::Token;
use support::random::Random;
use support::runs::{Reference, Runner};
use support::{Nextn, Spec, Synthetic};
use verbatim::backend::KvFormat;
use verbatim::backend::cpu::Cpu;
use verbatim::gguf::{Array, Gguf, Kind, Value};
use verbatim::model::{FeedForward, Model};
use verbatim::quant::Format;

const TOKENS: usize = 20;

fn tokens() -> Vec<Token> {
    Random::new(31).tokens(TOKENS, 512)
}

/// The two files are one model: same logits, same state.
fn same(a: &Synthetic, b: &Synthetic, what: &str) {
    let reference = Reference::run(&a.model(), &tokens(), KvFormat::F16, |i| i == TOKENS);
    let model = b.model();
    let mut runner = Runner::new(&model, TOKENS, KvFormat::F16, 0);
    reference.compare_rows(&runner.all(&tokens()), 0, what);
    assert!(runner.snapshot().body() == reference.state(TOKENS).body(), "{what}: state");
}

/// Small formats, so that a change of one tensor is cheap.
fn spec() -> Spec {
    Spec { format: Format::Q8_0, ..Spec::default() }
}

#[test]
fn fused_gate_and_up_experts_are_the_separate_ones() {
    for format in [Format::Q8_0, Format::Q3_K, Format::BF16] {
        let separate = Spec { format, ..spec() };
        let fused = Spec { fused: true, ..separate.clone() };
        let (separate, fused) = (separate.build(), fused.build());
        assert_eq!(separate.tensors.len(), fused.tensors.len() + 4);
        same(&separate, &fused, "fused experts");
    }
}

#[test]
fn an_explicit_list_of_recurrent_layers_is_the_interval() {
    for interval in [1, 2, 3, 4, 9] {
        let every = Spec { interval, ..spec() };
        let listed = Spec { explicit_layers: true, ..every.clone() };
        same(&every.build(), &listed.build(), "listed layers");
    }
}

#[test]
fn tied_embeddings_are_an_output_matrix_of_the_same_bytes() {
    let tied = Spec { tied: true, ..spec() }.build();
    let mut untied = tied.clone();
    let (embedding, data) = tied.tensors[tied.at("token_embd.weight")].clone();
    untied.push("output.weight", &embedding.dims, embedding.format, data);
    same(&tied, &untied, "tied embeddings");
    assert!(tied.model().tied() && !untied.model().tied());
}

#[test]
fn next_token_prediction_layers_are_not_part_of_the_trunk() {
    let plain = spec().build();
    let held = Spec { nextn: Nextn::Held, ..spec() };
    same(&plain, &held.build(), "a held layer");
    let model = held.model();
    assert_eq!((model.config().layers.len(), model.config().nextn.is_some()), (4, true));
    assert!(model.warnings().is_empty());
}

#[test]
fn announced_next_token_prediction_layers_that_are_absent_are_a_warning() {
    let absent = Spec { nextn: Nextn::Absent, ..spec() };
    same(&spec().build(), &absent.build(), "an absent layer");
    let model = absent.model();
    assert_eq!(model.config().layers.len(), 4);
    let warnings = model.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("next-token-prediction"), "{warnings:?}");
}

#[test]
fn a_model_without_a_shared_expert_loads_with_and_without_the_key() {
    let spec = Spec { shared_ff: 0, ..spec() };
    let zero = spec.build();
    let mut silent = zero.clone();
    silent.metadata.remove("qwen35moe.expert_shared_feed_forward_length").unwrap();
    same(&zero, &silent, "no shared expert");
}

#[test]
fn small_tensors_may_have_any_format_and_counts_any_integer_type() {
    let mut file = spec().build();
    let at = file.at("blk.0.attn_norm.weight");
    let values: Vec<f32> = (0..256).map(|i| 0.5 + i as f32 / 256.0).collect();
    let f32 = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let f16 = values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect();
    file.tensors[at].1 = f32;
    let mut other = file.clone();
    (other.tensors[at].0.format, other.tensors[at].1) = (Format::F16, f16);
    other.metadata.insert("qwen35moe.block_count", Value::U64(4));
    other.metadata.insert("qwen35moe.embedding_length", Value::I32(256));
    let heads = Array::from(&[4u32; 4][..]);
    other.metadata.insert("qwen35moe.attention.head_count", Value::Array(heads));
    same(&file, &other, "other types");
}

#[test]
fn the_dense_sibling_has_one_swiglu_a_layer() {
    let model = Spec::dense().model();
    assert_eq!(model.config().feed_forward, FeedForward::Dense { ff: 256 });
    assert_eq!(model.config().architecture, "qwen35");
    let reference = Reference::run(&model, &tokens(), KvFormat::F16, |i| i == TOKENS);
    let mut runner = Runner::new(&model, TOKENS, KvFormat::F16, 0);
    reference.compare_rows(&runner.all(&tokens()), 0, "dense");
}

#[test]
fn absent_optional_keys_have_the_architectures_defaults() {
    let mut file = spec().build();
    for key in ["full_attention_interval", "attention.layer_norm_rms_epsilon", "rope.freq_base"] {
        file.metadata.remove(&format!("qwen35moe.{key}")).unwrap();
    }
    same(&spec().build(), &file, "defaults");
}

/// Loading fails with a sentence that names the file and holds each of `says`.
fn refused(file: &Synthetic, says: &[&str]) {
    let load = |gguf: Gguf| Model::load(&gguf, Cpu::new(1).unwrap()).map(|_| ());
    let error =
        Gguf::from_vec(file.bytes(), "synthetic").and_then(load).expect_err(&format!("refused: {says:?}")).to_string();
    for part in says.iter().chain(&["synthetic"]) {
        assert!(error.contains(part), "`{error}` does not say `{part}`");
    }
}

#[test]
fn every_tensor_that_is_missing_is_named() {
    for spec in [spec(), Spec::dense(), Spec { fused: true, ..spec() }] {
        let whole = spec.build();
        for i in 0..whole.tensors.len() {
            let mut file = whole.clone();
            let name = file.tensors.remove(i).0.name;
            // Without an output matrix the embedding is it.
            if name == "output.weight" {
                assert!(file.model().tied());
                continue;
            }
            let said = name.replace("ffn_gate_up_exps", "ffn_gate_exps");
            refused(&file, &[&said, "missing"]);
        }
    }
}

#[test]
fn every_tensor_of_other_dimensions_is_named() {
    let whole = spec().build();
    for i in 0..whole.tensors.len() {
        let mut file = whole.clone();
        let (spec, data) = &mut file.tensors[i];
        // One row, or one element, too many.
        let last = spec.dims.len() - 1;
        spec.dims[last] += 1;
        let rows: usize = spec.dims[1..].iter().product();
        data.resize(spec.format.row_bytes(spec.dims[0]).unwrap() * rows, 0);
        let name = spec.name.clone();
        if name == "token_embd.weight" {
            // The vocabulary is the embedding's, so it is the output matrix that does not fit.
            refused(&file, &["output.weight", "expected dimensions [256, 513]"]);
        } else {
            refused(&file, &[&name, "expected dimensions"]);
        }
    }
}

#[test]
fn a_tensor_in_an_unsupported_format_is_named_with_it() {
    for (code, name) in [(16u32, "IQ2_XXS"), (28, "F64"), (9, "Q8_1"), (777, "777")] {
        let file = spec().build();
        let mut bytes = file.bytes();
        // The tensor's entry: name, number of dimensions, dimensions, format.
        let tensor = b"blk.1.attn_gate.weight";
        let at = bytes.windows(tensor.len()).position(|w| w == tensor).unwrap() + tensor.len() + 4 + 16;
        assert_eq!(bytes[at..at + 4], 8u32.to_le_bytes());
        bytes[at..at + 4].copy_from_slice(&code.to_le_bytes());
        let load = |gguf: Gguf| Model::load(&gguf, Cpu::new(1).unwrap()).map(|_| ());
        let error = Gguf::from_vec(bytes, "synthetic").and_then(load).unwrap_err().to_string();
        assert!(error.contains("blk.1.attn_gate.weight") && error.contains(name), "{error}");
    }
}

#[test]
fn another_architecture_is_refused_with_the_supported_ones() {
    for arch in ["llama", "qwen3moe", "QWEN35MOE", ""] {
        let mut file = spec().build();
        file.metadata.insert("general.architecture", Value::String(arch.into()));
        refused(&file, &["general.architecture", arch, "qwen35moe, qwen35"]);
    }
    let mut file = spec().build();
    file.metadata.remove("general.architecture");
    refused(&file, &["general.architecture", "missing"]);
    file.metadata.insert("general.architecture", Value::U32(1));
    refused(&file, &["general.architecture", "string"]);
}

#[test]
fn every_required_key_that_is_missing_or_of_another_type_is_named() {
    const OPTIONAL: [&str; 6] = [
        "full_attention_interval",
        "attention.layer_norm_rms_epsilon",
        "rope.freq_base",
        "rope.dimension_count",
        "expert_shared_feed_forward_length",
        "general.architecture",
    ];
    for spec in [spec(), Spec::dense()] {
        let whole = spec.build();
        let keys: Vec<String> = whole.metadata.iter().map(|(k, _)| k.to_owned()).collect();
        for key in &keys {
            if OPTIONAL.iter().any(|o| key.ends_with(o)) {
                continue;
            }
            let mut file = whole.clone();
            file.metadata.remove(key);
            refused(&file, &[key, "missing"]);
            file.metadata.insert(key.as_str(), Value::String("four".into()));
            refused(&file, &[key]);
            file.metadata.insert(key.as_str(), Value::I32(-1));
            refused(&file, &[key]);
        }
    }
}

#[test]
fn absurd_and_contradictory_counts_are_refused_by_key() {
    let cases: [(&str, u64, &str); 27] = [
        ("block_count", 0, "block_count"),
        ("block_count", 5000, "block_count"),
        ("block_count", 1 << 40, "block_count"),
        ("block_count", u64::MAX, "block_count"),
        ("block_count", 5, "blk.4."),
        ("nextn_predict_layers", 4, "nextn_predict_layers"),
        ("nextn_predict_layers", u64::MAX, "nextn_predict_layers"),
        ("embedding_length", 0, "embedding_length"),
        ("embedding_length", 1 << 50, "embedding_length"),
        ("embedding_length", 128, "expected dimensions"),
        ("context_length", 0, "context_length"),
        ("attention.head_count", 3, "head_count"),
        ("attention.head_count", 1 << 30, "head_count"),
        ("attention.head_count_kv", 3, "head_count_kv"),
        ("attention.key_length", 1 << 24, "attention."),
        ("attention.value_length", 32, "value_length"),
        ("rope.dimension_count", 66, "rope.dimension_count"),
        ("rope.dimension_count", 15, "rope.dimension_count"),
        ("ssm.group_count", 3, "ssm.group_count"),
        ("ssm.time_step_rank", 5, "ssm."),
        ("ssm.state_size", 30, "ssm.state_size"),
        ("ssm.inner_size", 255, "ssm.inner_size"),
        ("ssm.conv_kernel", 1, "ssm.conv_kernel"),
        ("ssm.conv_kernel", 1000, "ssm.conv_kernel"),
        ("expert_used_count", 5, "expert_used_count"),
        ("expert_count", 1 << 24, "expected dimensions"),
        ("expert_shared_feed_forward_length", u64::MAX, "ffn_gate_shexp"),
    ];
    for (key, value, says) in cases {
        let mut file = spec().build();
        file.metadata.insert(format!("qwen35moe.{key}"), Value::U64(value));
        refused(&file, &[says]);
    }
}

#[test]
fn a_list_of_layers_that_is_short_or_of_another_type_is_refused() {
    let key = "qwen35moe.attention.recurrent_layers";
    let listed = Spec { explicit_layers: true, ..spec() };
    for array in [
        Array::new(Kind::Bool, [true; 3].map(Value::Bool)).unwrap(),
        Array::from(&[1u32, 1, 1, 0][..]),
        Array::strings(["yes"; 4]),
        Array::from(&[0u32; 0][..]),
    ] {
        let mut file = listed.build();
        file.metadata.insert(key, Value::Array(array));
        refused(&file, &[key]);
    }
    let mut file = listed.build();
    let scaled = Value::String("yarn".into());
    file.metadata.insert("qwen35moe.rope.scaling.type", scaled);
    refused(&file, &["rope.scaling.type", "yarn"]);
}
