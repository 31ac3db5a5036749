//! A file's facts, for people and for programs.
//!
//! Owns: the lines and the object. Refuses to know: where facts come from.

use std::fmt::Write;

use serde_json::{Value, json};

use super::Facts;
use crate::cli::terminal::bytes;
use crate::gguf::{Kind, TensorInfo};
use crate::model::{Config, FeedForward};
use crate::state::{LayerShape, StateShape};

/// Equal layers together, in the order in which their kinds first come.
fn kinds(config: &Config) -> Vec<(LayerShape, usize)> {
    let mut kinds: Vec<(LayerShape, usize)> = Vec::new();
    for layer in &config.layers {
        match kinds.iter_mut().find(|(shape, _)| shape == layer) {
            Some((_, count)) => *count += 1,
            None => kinds.push((*layer, 1)),
        }
    }
    kinds
}

/// Scalars under the architecture's prefix: all that is known of an architecture that is not supported.
fn numbers<'f>(facts: &'f Facts) -> impl Iterator<Item = (&'f str, String)> {
    let prefix = facts.architecture.as_ref().map(|a| format!("{a}."));
    let all = facts.gguf.metadata().iter();
    let known = all.filter(move |(key, _)| prefix.as_ref().is_some_and(|p| key.starts_with(p.as_str())));
    known.filter_map(|(key, value)| match value.item().kind() {
        Kind::Array => None,
        Kind::String => value.as_str().map(|text| (key, text.to_owned())),
        Kind::Bool => value.as_bool().map(|b| (key, b.to_string())),
        _ => value.as_f64().map(|n| (key, n.to_string())),
    })
}

/// A line of the upper part.
fn line(out: &mut String, name: &str, text: &str) {
    let _ = writeln!(out, "{name:<15} {text}");
}

/// What people read.
pub fn text(facts: &Facts, tensors: bool) -> String {
    let mut out = String::new();
    let unnamed = || "not named in the file".to_owned();
    let (count, parts) = (facts.gguf.tensors().len(), facts.gguf.parts());
    let split = if parts > 1 { format!(", in {parts} files") } else { String::new() };
    let size = bytes(facts.gguf.file_bytes());
    line(&mut out, "file", &format!("{}, {size}{split}, {count} tensors", facts.file));
    line(&mut out, "architecture", &facts.architecture.clone().unwrap_or_else(unnamed));
    line(&mut out, "name", &facts.name.clone().unwrap_or_else(unnamed));
    match &facts.config {
        Some(config) => model(&mut out, config),
        None => numbers(facts).for_each(|(key, value)| {
            let _ = writeln!(out, "{key} = {value}");
        }),
    }
    vocabulary(&mut out, facts);
    line(&mut out, "device", &facts.device);
    line(&mut out, "instructions", &format!("{}; available: {}", facts.isa, facts.isas.join(", ")));
    formats(&mut out, facts);
    if let Some(shape) = &facts.shape {
        memory(&mut out, shape);
    }
    if tensors {
        let _ = writeln!(out, "\n{:<44} {:<10} {:>12}  dimensions", "tensor", "format", "bytes");
        for t in facts.gguf.tensors() {
            let (name, format, bytes) = (&t.name, t.format_name(), t.bytes().unwrap_or(0));
            let _ = writeln!(out, "{name:<44} {format:<10} {bytes:>12}  {}", dims(t));
        }
    }
    out.push('\n');
    facts.warnings.iter().for_each(|w| line(&mut out, "warning", w));
    facts.unsupported.iter().for_each(|u| line(&mut out, "unsupported", u));
    let runs = if facts.unsupported.is_empty() { "yes" } else { "no" };
    line(&mut out, "runs here", runs);
    out
}

fn dims(tensor: &TensorInfo) -> String {
    let dims: Vec<String> = tensor.dims.iter().map(usize::to_string).collect();
    dims.join(" x ")
}

fn model(out: &mut String, config: &Config) {
    let delta = config.layers.iter().filter(|l| matches!(l, LayerShape::Delta(_))).count();
    let attention = config.layers.len() - delta;
    let nextn = match config.nextn {
        None => String::new(),
        Some(_) => "; a next-token-prediction block, which only drafts".to_owned(),
    };
    let layers = config.layers.len();
    line(out, "layers", &format!("{layers}: {attention} attention, {delta} gated delta{nextn}"));
    line(out, "width", &config.width.to_string());
    for (shape, count) in kinds(config) {
        match shape {
            LayerShape::Attention(a) => {
                let (q, kv, d) = (a.heads, a.kv_heads, a.head_dim);
                line(out, "attention", &format!("{count} x {q} heads, {kv} of K and V, {d} wide"));
            }
            LayerShape::Delta(d) => {
                let text = format!(
                    "{count} x {} heads of q and k, {} of v, {} and {} wide; convolution over {}",
                    d.key_heads, d.value_heads, d.key_dim, d.value_dim, d.taps
                );
                line(out, "gated delta", &text);
            }
        }
    }
    let feed_forward = match config.feed_forward {
        FeedForward::Dense { ff } => format!("{ff} wide"),
        FeedForward::Moe { experts, ff, shared_ff, routing } => {
            format!("{} of {experts} experts, {ff} wide; shared expert {shared_ff} wide", routing.used)
        }
    };
    line(out, "feed-forward", &feed_forward);
    let sections: Vec<String> = config.rope_sections.iter().map(usize::to_string).collect();
    let sections = if sections.is_empty() { "none".to_owned() } else { sections.join(" ") };
    let rope = format!("{} elements of a head, base {}, sections {sections}", config.rope_dim, config.rope_base);
    line(out, "rotary", &rope);
    line(out, "trained for", &format!("{} positions", config.context));
}

fn vocabulary(out: &mut String, facts: &Facts) {
    let tied = if facts.tied { "is the embedding" } else { "is its own" };
    match facts.vocabulary {
        Some(n) => line(out, "vocabulary", &format!("{n} tokens; the output matrix {tied}")),
        None => line(out, "vocabulary", "no embedding in the file"),
    }
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let (kind, pre) = (or_none(&facts.tokenizer), or_none(&facts.pre_tokenizer));
    let size = facts.tokenizer_size.unwrap_or(0);
    line(out, "tokenizer", &format!("{kind}, pre-tokenizer {pre}, {size} tokens"));
    let template = match &facts.template {
        Some(t) => format!("{} bytes: {}", t.len(), t.lines().next().unwrap_or_default()),
        None => "none".to_owned(),
    };
    line(out, "chat template", &template);
}

/// Bytes of all tensors whose size is known.
fn total(facts: &Facts) -> usize {
    facts.formats.iter().map(|f| f.bytes).sum()
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn formats(out: &mut String, facts: &Facts) {
    let whole = total(facts);
    let _ = writeln!(out, "\n{:<10} {:>8} {:>12} {:>8}", "format", "tensors", "bytes", "share");
    for f in &facts.formats {
        let note = if f.supported { "" } else { "  unsupported" };
        let share = share(f.bytes, whole);
        let _ = writeln!(out, "{:<10} {:>8} {:>12} {share:>6.1} %{note}", f.name, f.tensors, bytes(f.bytes));
    }
}

fn memory(out: &mut String, shape: &StateShape) {
    let (position, positions) = (shape.kv_bytes_per_position(), shape.positions);
    let rows: [(&str, String); 5] = [
        ("recurrent state", format!("{}, kept and tentative", bytes(shape.recurrent_bytes()))),
        (
            "K and V",
            format!(
                "{} a position as {}, {} for a context of {positions}",
                bytes(position),
                shape.kv.name(),
                bytes(position * positions)
            ),
        ),
        ("log", format!("{} a drafted row", bytes(shape.log_bytes_per_row()))),
        ("bytes of S copied per pass", "0".to_owned()),
        ("copying S would take", format!("{} a drafted row", bytes(shape.s_bytes()))),
    ];
    out.push_str("\nmemory of a sequence\n");
    for (name, text) in rows {
        let _ = writeln!(out, "  {name}: {text}");
    }
}

/// What programs read.
pub fn json(facts: &Facts, tensors: bool) -> Value {
    let whole = total(facts);
    let formats: Vec<Value> = facts
        .formats
        .iter()
        .map(|f| {
            json!({"format": f.name, "supported": f.supported, "tensors": f.tensors, "bytes": f.bytes,
                   "share": share(f.bytes, whole) / 100.0})
        })
        .collect();
    let mut object = json!({
        "file": facts.file,
        "file_bytes": facts.gguf.file_bytes(),
        "files": facts.gguf.parts(),
        "tensors": facts.gguf.tensors().len(),
        "architecture": facts.architecture,
        "name": facts.name,
        "model": facts.config.as_ref().map(model_json),
        "vocabulary": facts.vocabulary,
        "tied_embeddings": facts.tied,
        "formats": formats,
        "memory": facts.shape.as_ref().map(memory_json),
        "tokenizer": {"kind": facts.tokenizer, "pre": facts.pre_tokenizer, "tokens": facts.tokenizer_size},
        "chat_template": facts.template,
        "device": facts.device,
        "isa": facts.isa,
        "isas": facts.isas,
        "runs": facts.unsupported.is_empty(),
        "unsupported": facts.unsupported,
        "warnings": facts.warnings,
    });
    if facts.config.is_none() {
        object["numbers"] = numbers(facts).map(|(k, v)| (k.to_owned(), Value::String(v))).collect();
    }
    if tensors {
        let each = |t: &TensorInfo| json!({"name": t.name, "dimensions": t.dims, "format": t.format_name(), "bytes": t.bytes()});
        object["tensor_list"] = facts.gguf.tensors().map(each).collect();
    }
    object
}

fn model_json(config: &Config) -> Value {
    let layers: Vec<Value> = kinds(config)
        .into_iter()
        .map(|(shape, count)| match shape {
            LayerShape::Attention(a) => {
                json!({"kind": "attention", "layers": count, "heads": a.heads, "kv_heads": a.kv_heads,
                       "head_width": a.head_dim})
            }
            LayerShape::Delta(d) => {
                json!({"kind": "delta", "layers": count, "key_heads": d.key_heads, "value_heads": d.value_heads,
                       "key_width": d.key_dim, "value_width": d.value_dim, "taps": d.taps})
            }
        })
        .collect();
    let feed_forward = match config.feed_forward {
        FeedForward::Dense { ff } => json!({"kind": "dense", "width": ff}),
        FeedForward::Moe { experts, ff, shared_ff, routing } => {
            json!({"kind": "experts", "experts": experts, "used": routing.used, "width": ff, "shared_width": shared_ff})
        }
    };
    json!({
        "layers": config.layers.len(),
        "layer_kinds": layers,
        "next_token_prediction": config.nextn.is_some(),
        "exit_layers": config.exit,
        "width": config.width,
        "context": config.context,
        "feed_forward": feed_forward,
        "rope": {"elements": config.rope_dim, "base": config.rope_base, "sections": config.rope_sections},
    })
}

fn memory_json(shape: &StateShape) -> Value {
    let position = shape.kv_bytes_per_position();
    json!({
        "recurrent_bytes": shape.recurrent_bytes(),
        "kv_format": shape.kv.name(),
        "kv_bytes_per_position": position,
        "context": shape.positions,
        "kv_bytes": position * shape.positions,
        "log_bytes_per_drafted_row": shape.log_bytes_per_row(),
        "s_bytes_copied_per_pass": 0,
        "s_bytes_per_drafted_row_if_copied": shape.s_bytes(),
    })
}
