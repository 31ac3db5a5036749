//! What a synthetic file holds: its metadata, its tensors, each one's format and the size of its weights.
//!
//! Owns: names and dimensions as published files have them, and a mix of formats like that of ordinary 4-bit files.
//! Refuses to know: bytes.

use crate::gguf::{Array, Metadata, Value};
use crate::quant::Format;

use super::fill::Content;
use super::shape::{FeedForward, Shape};

/// A tensor of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Its name in the file.
    pub name: String,
    /// Width of a row first.
    pub dims: Vec<usize>,
    /// Its format.
    pub format: Format,
    /// What it is filled with.
    pub content: Content,
}

impl Tensor {
    /// Bytes of data.
    pub fn bytes(&self) -> usize {
        let weights: usize = self.dims.iter().product();
        weights / self.format.block_weights() * self.format.block_bytes()
    }
}

/// Everything but the tensors. There is no tokenizer; the number of tokens stands alone.
pub fn metadata(shape: &Shape) -> Metadata {
    let arch = shape.architecture();
    let mut m = Metadata::default();
    m.insert("general.architecture", Value::from(arch));
    m.insert("general.name", Value::from(format!("synthetic {shape}").as_str()));
    m.insert("tokenizer.ggml.model", Value::from("none"));
    let mut put = |name: &str, value: Value| {
        m.insert(format!("{arch}.{name}"), value);
    };
    let counts = [
        ("block_count", shape.layers),
        ("context_length", 262_144),
        ("embedding_length", shape.width),
        ("vocab_size", shape.vocab),
        ("attention.head_count", shape.heads),
        ("attention.head_count_kv", shape.kv_heads),
        ("attention.key_length", shape.head_dim),
        ("attention.value_length", shape.head_dim),
        ("full_attention_interval", shape.interval),
        ("rope.dimension_count", shape.rope_dim),
        ("ssm.conv_kernel", shape.taps),
        ("ssm.group_count", shape.key_heads),
        ("ssm.inner_size", shape.value_heads * shape.state_dim),
        ("ssm.state_size", shape.state_dim),
        ("ssm.time_step_rank", shape.value_heads),
    ];
    let feed_forward = match shape.feed_forward {
        FeedForward::Dense { ff } => vec![("feed_forward_length", ff)],
        FeedForward::Moe { experts, used, ff, shared_ff } => vec![
            ("expert_count", experts),
            ("expert_used_count", used),
            ("expert_feed_forward_length", ff),
            ("expert_shared_feed_forward_length", shared_ff),
        ],
    };
    for (name, count) in counts.into_iter().chain(feed_forward) {
        put(name, Value::U32(count as u32));
    }
    put("attention.layer_norm_rms_epsilon", Value::F32(1e-6));
    put("rope.freq_base", Value::F32(1e7));
    put("rope.dimension_sections", Value::from(Array::from(&rope_sections(shape)[..])));
    m
}

/// How the rotated pairs are shared out among time, height, width and nothing: 11, 11 and 10 of 32.
fn rope_sections(shape: &Shape) -> [i32; 4] {
    let pairs = shape.rope_dim as i32 / 2;
    let third = (pairs + 2) / 3;
    [third, third, pairs - 2 * third, 0]
}

/// Formats by part of the name, the first that fits; mixers come last.
const MOE: [(&str, Format); 9] = [
    ("token_embd", Format::Q4_K),
    ("ffn_gate_exps", Format::Q3_K),
    ("ffn_up_exps", Format::Q3_K),
    ("ffn_down_exps", Format::Q4_K),
    ("ffn_gate_inp", Format::F32),
    ("_shexp", Format::Q8_0),
    ("ssm_alpha", Format::Q8_0),
    ("ssm_beta", Format::Q8_0),
    ("", Format::Q5_K),
];
const DENSE: [(&str, Format); 7] = [
    ("token_embd", Format::Q6_K),
    ("ffn_down", Format::Q6_K),
    ("ffn_", Format::Q4_K),
    ("ssm_alpha", Format::Q8_0),
    ("ssm_beta", Format::Q8_0),
    ("attn_v", Format::Q6_K),
    ("", Format::Q5_K),
];

/// The format of a matrix with rows of `cols` weights. What does not fill blocks of 256 takes the nearest of 32.
fn format(shape: &Shape, name: &str, cols: usize) -> Format {
    let table: &[_] = match shape.feed_forward {
        FeedForward::Moe { .. } => &MOE,
        FeedForward::Dense { .. } => &DENSE,
    };
    let listed = match name {
        "output.weight" => Format::Q6_K,
        _ => table.iter().find(|(part, _)| name.contains(part)).map_or(Format::Q5_K, |&(_, format)| format),
    };
    if cols.is_multiple_of(listed.block_weights()) {
        return listed;
    }
    let short = match listed {
        Format::Q3_K | Format::Q4_K => Format::Q4_0,
        Format::Q5_K => Format::Q5_0,
        _ => Format::Q8_0,
    };
    if cols.is_multiple_of(short.block_weights()) { short } else { Format::F16 }
}

/// Collects tensors under a prefix.
struct List<'s> {
    shape: &'s Shape,
    prefix: String,
    tensors: Vec<Tensor>,
}

impl List<'_> {
    /// A matrix whose products have `gain` times the size of their input.
    fn matrix(&mut self, name: &str, dims: &[usize], gain: f32) {
        let name = format!("{}{name}.weight", self.prefix);
        let format = format(self.shape, &name, dims[0]);
        let content = Content::Weights { std: gain / (dims[0] as f32).sqrt() };
        self.tensors.push(Tensor { name, dims: dims.to_vec(), format, content });
    }

    fn vector(&mut self, name: &str, dims: &[usize], content: Content) {
        let name = format!("{}{name}", self.prefix);
        self.tensors.push(Tensor { name, dims: dims.to_vec(), format: Format::F32, content });
    }

    fn ones(&mut self, name: &str, len: usize) {
        self.vector(&format!("{name}.weight"), &[len], Content::Ones);
    }
}

/// All tensors of the file, in its order.
pub fn tensors(shape: &Shape) -> Vec<Tensor> {
    let mut list = List { shape, prefix: String::new(), tensors: Vec::new() };
    // Logits of about 3. An embedding that is no output matrix has elements of about 1.
    let logits = 3.0;
    let embedding = if shape.tied { logits } else { (shape.width as f32).sqrt() };
    list.matrix("token_embd", &[shape.width, shape.vocab], embedding);
    if !shape.tied {
        list.matrix("output", &[shape.width, shape.vocab], logits);
    }
    list.ones("output_norm", shape.width);
    for i in 0..shape.layers {
        list.prefix = format!("blk.{i}.");
        list.ones("attn_norm", shape.width);
        match shape.recurrent(i) {
            true => delta(&mut list, shape),
            false => attention(&mut list, shape),
        }
        list.ones("post_attention_norm", shape.width);
        feed_forward(&mut list, shape);
    }
    list.tensors
}

fn attention(list: &mut List, shape: &Shape) {
    let (out, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    list.matrix("attn_q", &[shape.width, 2 * out], 1.0);
    list.matrix("attn_k", &[shape.width, kv], 1.0);
    list.matrix("attn_v", &[shape.width, kv], 1.0);
    list.ones("attn_q_norm", shape.head_dim);
    list.ones("attn_k_norm", shape.head_dim);
    list.matrix("attn_output", &[out, shape.width], 1.0);
}

fn delta(list: &mut List, shape: &Shape) {
    let (keys, values) = (shape.key_heads * shape.state_dim, shape.value_heads * shape.state_dim);
    let channels = 2 * keys + values;
    list.matrix("attn_qkv", &[shape.width, channels], 1.0);
    list.matrix("attn_gate", &[shape.width, values], 1.0);
    list.matrix("ssm_beta", &[shape.width, shape.value_heads], 1.0);
    list.matrix("ssm_alpha", &[shape.width, shape.value_heads], 1.0);
    list.vector("ssm_conv1d.weight", &[shape.taps, channels], Content::Between(-0.6, 0.6));
    // From heads that forget within a token or two to heads that remember for a hundred.
    list.vector("ssm_a", &[shape.value_heads], Content::Between(-1.5, -0.05));
    list.vector("ssm_dt.bias", &[shape.value_heads], Content::Between(-3.0, 0.5));
    list.ones("ssm_norm", shape.state_dim);
    list.matrix("ssm_out", &[values, shape.width], 1.0);
}

fn feed_forward(list: &mut List, shape: &Shape) {
    let width = shape.width;
    match shape.feed_forward {
        FeedForward::Dense { ff } => {
            list.matrix("ffn_gate", &[width, ff], 1.0);
            list.matrix("ffn_up", &[width, ff], 1.0);
            list.matrix("ffn_down", &[ff, width], 1.0);
        }
        FeedForward::Moe { experts, ff, shared_ff, .. } => {
            list.matrix("ffn_gate_inp", &[width, experts], 1.0);
            list.matrix("ffn_gate_exps", &[width, ff, experts], 1.0);
            list.matrix("ffn_up_exps", &[width, ff, experts], 1.0);
            list.matrix("ffn_down_exps", &[ff, width, experts], 1.0);
            list.matrix("ffn_gate_shexp", &[width, shared_ff], 1.0);
            list.matrix("ffn_up_shexp", &[width, shared_ff], 1.0);
            list.matrix("ffn_down_shexp", &[shared_ff, width], 1.0);
            list.vector("ffn_gate_inp_shexp.weight", &[width], Content::Between(-0.1, 0.1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_shapes_have_the_weights_that_their_names_promise() {
        // In billions, without vision and next-token prediction.
        for (name, expected) in [
            ("qwen3.5-122b-a10b", 122.1),
            ("qwen3.5-35b-a3b", 34.7),
            ("qwen3.5-27b", 26.9),
            ("qwen3.5-9b", 8.95),
            ("qwen3.5-0.8b", 0.75),
        ] {
            let tensors = tensors(&Shape::parse(name).unwrap());
            let weights: usize = tensors.iter().flat_map(|t| t.dims.iter().copied().reduce(|a, b| a * b)).sum();
            let ratio = weights as f64 / 1e9 / expected;
            assert!((0.99..1.01).contains(&ratio), "{name}: {weights} weights");
        }
    }

    #[test]
    fn rows_that_are_no_blocks_of_256_take_a_format_that_fits() {
        let shape = Shape::parse("qwen3.5-35b-a3b").unwrap();
        let name = "blk.0.ffn_up_exps.weight";
        let formats = [512, 96, 40].map(|cols| format(&shape, name, cols));
        assert_eq!(formats, [Format::Q3_K, Format::Q4_0, Format::F16]);
    }
}
