//! Tiny models made from random numbers, and ways to run them: what the exactness suites share.
//!
//! Owns: the synthetic file and the bits a run is compared by. Refuses to know: what a suite tests.
// Every suite compiles this module for itself and uses its own part of it.
#![allow(dead_code)]

pub mod random;
pub mod runs;

use std::sync::Arc;

use verbatim::backend::cpu::Cpu;
use verbatim::gguf::{Array, Gguf, Kind, Metadata, Value, Writer};
use verbatim::model::Model;
use verbatim::quant::{Format, Isa};

use random::Random;

/// What a file says about its next-token-prediction layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nextn {
    /// Nothing.
    None,
    /// Announced, counted in `block_count`, and there.
    Held,
    /// Announced and counted, but its tensors are not in the file.
    Absent,
}

/// The numbers of a synthetic model. The defaults fit K-quants (every row is 256 wide) and are as small as that allows.
#[derive(Debug, Clone)]
pub struct Spec {
    pub arch: &'static str,
    pub width: usize,
    pub layers: usize,
    pub vocab: usize,
    /// Every `interval`-th layer is attention, written as a count or as an explicit array.
    pub interval: usize,
    pub explicit_layers: bool,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub rope_dim: usize,
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    pub taps: usize,
    pub experts: usize,
    pub used: usize,
    pub ff: usize,
    /// 0: no shared expert.
    pub shared_ff: usize,
    /// Format of the matrices, but for those whose name contains one of `formats`' strings (the first that fits).
    pub format: Format,
    pub formats: Vec<(&'static str, Format)>,
    /// Whether gate and up projections of the experts are one tensor.
    pub fused: bool,
    pub tied: bool,
    pub nextn: Nextn,
    pub seed: u64,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            arch: "qwen35moe",
            width: 256,
            layers: 4,
            vocab: 512,
            interval: 4,
            explicit_layers: false,
            heads: 4,
            kv_heads: 2,
            head_dim: 64,
            rope_dim: 16,
            key_heads: 2,
            value_heads: 4,
            key_dim: 32,
            value_dim: 64,
            taps: 4,
            experts: 4,
            used: 2,
            ff: 256,
            shared_ff: 256,
            format: Format::Q4_K,
            formats: Vec::new(),
            fused: false,
            tied: false,
            nextn: Nextn::None,
            seed: 1,
        }
    }
}

impl Spec {
    /// The dense sibling.
    pub fn dense() -> Spec {
        Spec { arch: "qwen35", ..Spec::default() }
    }

    /// A model of many formats at once, as quantised files are.
    pub fn mixed() -> Spec {
        Spec {
            formats: vec![
                ("attn_q.", Format::Q5_K),
                ("attn_k.", Format::Q8_0),
                ("attn_v.", Format::Q6_K),
                ("attn_gate", Format::BF16),
                ("ssm_out", Format::Q5_1),
                ("ssm_alpha", Format::F16),
                ("ffn_down", Format::Q3_K),
                ("ffn_up", Format::IQ4_XS),
                ("output.weight", Format::Q6_K),
            ],
            ..Spec::default()
        }
    }

    /// Whether layer `i` of the trunk is recurrent.
    pub fn recurrent(&self, i: usize) -> bool {
        !(i + 1).is_multiple_of(self.interval)
    }

    /// Channels of the convolution.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    fn format_of(&self, name: &str) -> Format {
        let special = self.formats.iter().find(|(part, _)| name.contains(part));
        special.map_or(self.format, |(_, format)| *format)
    }

    fn metadata(&self) -> Metadata {
        let mut m = Metadata::default();
        m.insert("general.architecture", Value::String(self.arch.into()));
        let nextn = usize::from(self.nextn != Nextn::None);
        let counts = [
            ("block_count", self.layers + nextn),
            ("context_length", 4096),
            ("embedding_length", self.width),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
            ("rope.dimension_count", self.rope_dim),
            ("ssm.group_count", self.key_heads),
            ("ssm.time_step_rank", self.value_heads),
            ("ssm.state_size", self.key_dim),
            ("ssm.inner_size", self.value_heads * self.value_dim),
            ("ssm.conv_kernel", self.taps),
        ];
        let mut put = |name: &str, value: usize| {
            m.insert(format!("{}.{name}", self.arch), Value::U32(value as u32));
        };
        counts.into_iter().for_each(|(name, value)| put(name, value));
        if nextn > 0 {
            put("nextn_predict_layers", nextn);
        }
        if self.arch == "qwen35" {
            put("feed_forward_length", self.ff);
        } else {
            put("expert_count", self.experts);
            put("expert_used_count", self.used);
            put("expert_feed_forward_length", self.ff);
            put("expert_shared_feed_forward_length", self.shared_ff);
        }
        if self.explicit_layers {
            let flags = (0..self.layers).map(|i| Value::Bool(self.recurrent(i)));
            let array = Array::new(Kind::Bool, flags).unwrap();
            m.insert(format!("{}.attention.recurrent_layers", self.arch), Value::Array(array));
        } else {
            put("full_attention_interval", self.interval);
        }
        m.insert(format!("{}.attention.layer_norm_rms_epsilon", self.arch), Value::F32(1e-6));
        m.insert(format!("{}.rope.freq_base", self.arch), Value::F32(10_000.0));
        m
    }

    /// The file, from the seed.
    pub fn build(&self) -> Synthetic {
        let mut file = Synthetic { metadata: self.metadata(), tensors: Vec::new() };
        let (width, vocab) = (self.width, self.vocab);
        self.matrix(&mut file, "token_embd.weight", &[width, vocab]);
        if !self.tied {
            self.matrix(&mut file, "output.weight", &[width, vocab]);
        }
        self.vector(&mut file, "output_norm.weight", &[width], (0.8, 1.2));
        for i in 0..self.layers {
            self.layer(&mut file, &format!("blk.{i}."), self.recurrent(i));
        }
        if self.nextn == Nextn::Held {
            let p = format!("blk.{}.", self.layers);
            self.layer(&mut file, &p, false);
            self.matrix(&mut file, &format!("{p}nextn.eh_proj.weight"), &[2 * width, width]);
            for name in ["enorm", "hnorm", "shared_head_norm"] {
                self.vector(&mut file, &format!("{p}nextn.{name}.weight"), &[width], (0.8, 1.2));
            }
        }
        file
    }

    fn layer(&self, file: &mut Synthetic, p: &str, recurrent: bool) {
        let width = self.width;
        for norm in ["attn_norm", "post_attention_norm"] {
            self.vector(file, &format!("{p}{norm}.weight"), &[width], (0.8, 1.2));
        }
        let inner = self.value_heads * self.value_dim;
        let matrices = if recurrent {
            vec![
                ("attn_qkv", width, self.channels()),
                ("attn_gate", width, inner),
                ("ssm_beta", width, self.value_heads),
                ("ssm_alpha", width, self.value_heads),
                ("ssm_out", inner, width),
            ]
        } else {
            vec![
                ("attn_q", width, 2 * self.heads * self.head_dim),
                ("attn_k", width, self.kv_heads * self.head_dim),
                ("attn_v", width, self.kv_heads * self.head_dim),
                ("attn_output", self.heads * self.head_dim, width),
            ]
        };
        for (name, cols, rows) in matrices {
            self.matrix(file, &format!("{p}{name}.weight"), &[cols, rows]);
        }
        let vectors: &[(&str, &[usize], (f32, f32))] = if recurrent {
            &[
                ("ssm_conv1d.weight", &[self.taps, self.channels()], (-0.6, 0.6)),
                ("ssm_a", &[self.value_heads], (-1.5, -0.05)),
                ("ssm_dt.bias", &[self.value_heads], (-3.0, 0.5)),
                ("ssm_norm.weight", &[self.value_dim], (0.8, 1.2)),
            ]
        } else {
            &[
                ("attn_q_norm.weight", &[self.head_dim], (0.8, 1.2)),
                ("attn_k_norm.weight", &[self.head_dim], (0.8, 1.2)),
            ]
        };
        for (name, dims, range) in vectors {
            self.vector(file, &format!("{p}{name}"), dims, *range);
        }
        self.feed_forward(file, p);
    }

    fn feed_forward(&self, file: &mut Synthetic, p: &str) {
        let (width, ff, n) = (self.width, self.ff, self.experts);
        let mut add = |name: &str, dims: &[usize]| self.matrix(file, &format!("{p}{name}.weight"), dims);
        if self.arch == "qwen35" {
            add("ffn_gate", &[width, ff]);
            add("ffn_up", &[width, ff]);
            add("ffn_down", &[ff, width]);
            return;
        }
        add("ffn_gate_inp", &[width, n]);
        add("ffn_gate_exps", &[width, ff, n]);
        add("ffn_up_exps", &[width, ff, n]);
        add("ffn_down_exps", &[ff, width, n]);
        if self.shared_ff > 0 {
            add("ffn_gate_shexp", &[width, self.shared_ff]);
            add("ffn_up_shexp", &[width, self.shared_ff]);
            add("ffn_down_shexp", &[self.shared_ff, width]);
            self.vector(file, &format!("{p}ffn_gate_inp_shexp.weight"), &[width], (-0.1, 0.1));
        }
        if self.fused {
            file.fuse(&format!("{p}ffn_gate_exps.weight"), &format!("{p}ffn_up_exps.weight"));
        }
    }

    /// A matrix whose products keep the scale of their input; the embedding has elements of about 1.
    fn matrix(&self, file: &mut Synthetic, name: &str, dims: &[usize]) {
        let format = self.format_of(name);
        let rms = if name == "token_embd.weight" && !self.tied { 1.0 } else { 1.0 / (dims[0] as f32).sqrt() };
        // Each tensor has its own stream of numbers, so that leaving one out does not change the others.
        let mut random = Random::named(self.seed, name);
        let data = random.weights(format, dims.iter().product(), rms);
        file.push(name, dims, format, data);
    }

    fn vector(&self, file: &mut Synthetic, name: &str, dims: &[usize], (low, high): (f32, f32)) {
        let mut random = Random::named(self.seed, name);
        let values = (0..dims.iter().product()).map(|_| random.between(low, high));
        let data = values.flat_map(f32::to_le_bytes).collect();
        file.push(name, dims, Format::F32, data);
    }

    /// The model on one thread in the machine's best instruction set.
    pub fn model(&self) -> Arc<Model<Cpu>> {
        self.build().model()
    }
}

/// A tensor to be written.
#[derive(Clone)]
pub struct TensorSpec {
    pub name: String,
    pub dims: Vec<usize>,
    pub format: Format,
}

/// A synthetic file, still open to changes.
#[derive(Clone)]
pub struct Synthetic {
    pub metadata: Metadata,
    pub tensors: Vec<(TensorSpec, Vec<u8>)>,
}

impl Synthetic {
    pub fn push(&mut self, name: &str, dims: &[usize], format: Format, data: Vec<u8>) {
        let (name, dims) = (name.to_owned(), dims.to_vec());
        self.tensors.push((TensorSpec { name, dims, format }, data));
    }

    /// Where the tensor called `name` stands.
    pub fn at(&self, name: &str) -> usize {
        let at = self.tensors.iter().position(|(spec, _)| spec.name == name);
        at.unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// Makes one tensor of the experts' gate and up projections: each expert's gate rows, then its up rows.
    fn fuse(&mut self, gate: &str, up: &str) {
        let (up, up_data) = self.tensors.remove(self.at(up));
        let (_, gate_data) = self.tensors.remove(self.at(gate));
        let half = up_data.len() / up.dims[2];
        let pairs = gate_data.chunks(half).zip(up_data.chunks(half));
        let data = pairs.flat_map(|(gate, up)| [gate, up].concat()).collect();
        let name = up.name.replace("ffn_up_exps", "ffn_gate_up_exps");
        self.push(&name, &[up.dims[0], 2 * up.dims[1], up.dims[2]], up.format, data);
    }

    /// Row `row` of a matrix.
    pub fn row_mut(&mut self, name: &str, row: usize) -> &mut [u8] {
        let at = self.at(name);
        let (spec, data) = &mut self.tensors[at];
        let bytes = spec.format.row_bytes(spec.dims[0]).unwrap();
        &mut data[row * bytes..(row + 1) * bytes]
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new(self.metadata.clone()).unwrap();
        for (spec, _) in &self.tensors {
            writer.tensor(&spec.name, &spec.dims, spec.format).unwrap();
        }
        let data: Vec<&[u8]> = self.tensors.iter().map(|(_, data)| data.as_slice()).collect();
        writer.into_vec(&data).unwrap()
    }

    pub fn gguf(&self) -> Gguf {
        Gguf::from_vec(self.bytes(), "synthetic").unwrap()
    }

    /// The model on one thread in the machine's best instruction set.
    pub fn model(&self) -> Arc<Model<Cpu>> {
        self.model_on(1, Isa::best())
    }

    pub fn model_on(&self, threads: usize, isa: Isa) -> Arc<Model<Cpu>> {
        let backend = Cpu::with_isa(threads, isa).unwrap();
        Arc::new(Model::load(&self.gguf(), backend).unwrap())
    }
}
