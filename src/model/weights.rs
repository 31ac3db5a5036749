//! The model's tensors, under their names in the file.
//!
//! Owns: which tensors a model has and what shape each must have. Refuses to know: how they are used (`forward`).

use super::config::{Config, FeedForward};
use crate::backend::{AttentionShape, Backend, DeltaShape, Demand, Load, MatrixShape, Place};
use crate::gguf::Gguf;
use crate::quant::{Format, canon};
use crate::state::LayerShape;
use crate::{Error, Result};

/// All tensors of the trunk.
pub struct Weights<B: Backend> {
    /// `[vocab][width]`.
    pub token_embd: B::Matrix,
    /// One entry per layer.
    pub blk: Vec<Layer<B>>,
    /// `[width]`.
    pub output_norm: B::Vector,
    /// `[vocab][width]`; the embedding itself where the file ties them.
    pub output: B::Matrix,
    /// The next-token-prediction block, if the file holds one; plain decoding does not run it.
    pub nextn: Option<Nextn<B>>,
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// Whether the file has no output matrix of its own.
    pub tied: bool,
}

/// A next-token-prediction block: it guesses the token after the next one.
pub struct Nextn<B: Backend> {
    /// `[width]`: norm of the token's embedding.
    pub enorm: B::Vector,
    /// `[width]`: norm of the hidden state before the token.
    pub hnorm: B::Vector,
    /// `[width][2 * width]`: embedding, then hidden state.
    pub eh_proj: B::Matrix,
    /// The layer behind it; its mixer is attention.
    pub layer: Layer<B>,
    /// `[width]`; without it the trunk's `output_norm`.
    pub shared_head_norm: Option<B::Vector>,
    /// `[vocab][width]`; without it the trunk's `token_embd`.
    pub embed_tokens: Option<B::Matrix>,
    /// `[vocab][width]`; without it the trunk's `output`.
    pub shared_head_head: Option<B::Matrix>,
}

/// One layer.
pub struct Layer<B: Backend> {
    /// `[width]`.
    pub attn_norm: B::Vector,
    /// What mixes positions.
    pub mixer: Mixer<B>,
    /// `[width]`.
    pub post_attention_norm: B::Vector,
    /// What mixes channels.
    pub ffn: Ffn<B>,
}

/// Attention or a gated delta net.
pub enum Mixer<B: Backend> {
    /// Every n-th layer.
    Attention(Attention<B>),
    /// The others.
    Delta(Delta<B>),
}

/// Gated attention.
pub struct Attention<B: Backend> {
    /// Head counts and sizes.
    pub shape: AttentionShape,
    /// `[heads · 2 · head_dim][width]`: each head's query, then its gate.
    pub attn_q: B::Matrix,
    /// `[kv_heads · head_dim][width]`.
    pub attn_k: B::Matrix,
    /// `[kv_heads · head_dim][width]`.
    pub attn_v: B::Matrix,
    /// `[head_dim]`.
    pub attn_q_norm: B::Vector,
    /// `[head_dim]`.
    pub attn_k_norm: B::Vector,
    /// `[width][heads · head_dim]`.
    pub attn_output: B::Matrix,
}

/// A gated delta net.
pub struct Delta<B: Backend> {
    /// Head counts and sizes.
    pub shape: DeltaShape,
    /// `[channels][width]`: q, k, v.
    pub attn_qkv: B::Matrix,
    /// `[value_width][width]`: z.
    pub attn_gate: B::Matrix,
    /// `[value_heads][width]`.
    pub ssm_beta: B::Matrix,
    /// `[value_heads][width]`.
    pub ssm_alpha: B::Matrix,
    /// `[taps][channels]`, turned from the file's `[channels][taps]`.
    pub ssm_conv1d: B::Vector,
    /// `[value_heads]`: minus exp(A).
    pub ssm_a: B::Vector,
    /// `[value_heads]`.
    pub ssm_dt: B::Vector,
    /// `[value_dim]`.
    pub ssm_norm: B::Vector,
    /// `[width][value_width]`.
    pub ssm_out: B::Matrix,
}

/// The feed-forward part.
pub enum Ffn<B: Backend> {
    /// Routed experts, and a shared one if the model has it.
    Moe(Moe<B>),
    /// One SwiGLU.
    Dense(SwiGlu<B>),
}

/// Routed experts.
pub struct Moe<B: Backend> {
    /// `[experts][width]`.
    pub ffn_gate_inp: B::Matrix,
    /// `[experts][ff][width]`.
    pub ffn_gate_exps: B::Matrix,
    /// `[experts][ff][width]`.
    pub ffn_up_exps: B::Matrix,
    /// `[experts][width][ff]`.
    pub ffn_down_exps: B::Matrix,
    /// The shared expert and its gate, `[width]`.
    pub shared: Option<(SwiGlu<B>, B::Vector)>,
}

/// `down · (silu(gate · x) * (up · x))`.
pub struct SwiGlu<B: Backend> {
    /// `[ff][width]`.
    pub gate: B::Matrix,
    /// `[ff][width]`.
    pub up: B::Matrix,
    /// `[width][ff]`.
    pub down: B::Matrix,
}

/// Takes tensors out of the file, checking shapes.
struct Loader<'a, B: Backend> {
    gguf: &'a Gguf,
    backend: &'a B,
    prefix: String,
    place: Place,
}

impl<B: Backend> Loader<'_, B> {
    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The tensor's format and bytes, after its dimensions (fastest first, trailing ones dropped) are those wanted.
    fn tensor(&self, name: &str, want: &[usize]) -> Result<(Format, crate::gguf::Bytes)> {
        let name = self.name(name);
        let info = self.gguf.tensor(&name).ok_or_else(|| Error::new("missing from the file").about(&name))?;
        let trim = |d: &[usize]| d[..d.iter().rposition(|&n| n != 1).map_or(1, |i| i + 1)].to_vec();
        if trim(&info.dims) != trim(want) {
            let text = format!("expected dimensions {:?}, found {:?}", trim(want), info.dims);
            return Err(Error::new(text).about(&name));
        }
        let data = self.gguf.data(&name)?;
        let format = info.format.map_err(|_| Error::new("its format is not supported").about(&name))?;
        Ok((format, data))
    }

    fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<B::Matrix> {
        self.stack(name, MatrixShape { cols, rows, count: 1 })
    }

    fn stack(&self, name: &str, shape: MatrixShape) -> Result<B::Matrix> {
        let (format, data) = self.tensor(name, &[shape.cols, shape.rows, shape.count])?;
        self.backend.matrix(self.place, shape, format, data).map_err(|e| e.about(self.name(name)))
    }

    /// A small tensor as f32.
    fn values(&self, name: &str, dims: &[usize]) -> Result<Vec<f32>> {
        let (format, data) = self.tensor(name, dims)?;
        let mut values = vec![0.0; dims.iter().product()];
        canon::dequantize_row(format, &data, &mut values);
        Ok(values)
    }

    fn vector(&self, name: &str, len: usize) -> Result<B::Vector> {
        self.to_device(name, &self.values(name, &[len])?)
    }

    fn to_device(&self, name: &str, values: &[f32]) -> Result<B::Vector> {
        self.backend.vector(self.place, values).map_err(|e| e.about(self.name(name)))
    }

    fn has(&self, name: &str) -> bool {
        self.gguf.tensor(&self.name(name)).is_some()
    }

    fn layer(&self, config: &Config, shape: &LayerShape) -> Result<Layer<B>> {
        let width = config.width;
        Ok(Layer {
            attn_norm: self.vector("attn_norm.weight", width)?,
            mixer: match shape {
                LayerShape::Attention(shape) => Mixer::Attention(self.attention(*shape, width)?),
                LayerShape::Delta(shape) => Mixer::Delta(self.delta(*shape, width)?),
            },
            post_attention_norm: self.vector("post_attention_norm.weight", width)?,
            ffn: match config.feed_forward {
                FeedForward::Dense { ff } => Ffn::Dense(self.swiglu("", ff, width)?),
                FeedForward::Moe { experts, ff, shared_ff, .. } => {
                    Ffn::Moe(self.moe((experts, ff), shared_ff, width)?)
                }
            },
        })
    }

    fn attention(&self, shape: AttentionShape, width: usize) -> Result<Attention<B>> {
        Ok(Attention {
            shape,
            attn_q: self.matrix("attn_q.weight", 2 * shape.out_width(), width)?,
            attn_k: self.matrix("attn_k.weight", shape.kv_width(), width)?,
            attn_v: self.matrix("attn_v.weight", shape.kv_width(), width)?,
            attn_q_norm: self.vector("attn_q_norm.weight", shape.head_dim)?,
            attn_k_norm: self.vector("attn_k_norm.weight", shape.head_dim)?,
            attn_output: self.matrix("attn_output.weight", width, shape.out_width())?,
        })
    }

    fn delta(&self, shape: DeltaShape, width: usize) -> Result<Delta<B>> {
        let (channels, taps) = (shape.channels(), shape.taps);
        let by_channel = self.values("ssm_conv1d.weight", &[taps, channels])?;
        let by_tap: Vec<f32> = (0..taps * channels).map(|i| by_channel[i % channels * taps + i / channels]).collect();
        Ok(Delta {
            shape,
            attn_qkv: self.matrix("attn_qkv.weight", channels, width)?,
            attn_gate: self.matrix("attn_gate.weight", shape.value_width(), width)?,
            ssm_beta: self.matrix("ssm_beta.weight", shape.value_heads, width)?,
            ssm_alpha: self.matrix("ssm_alpha.weight", shape.value_heads, width)?,
            ssm_conv1d: self.to_device("ssm_conv1d.weight", &by_tap)?,
            ssm_a: self.vector("ssm_a", shape.value_heads)?,
            ssm_dt: self.vector("ssm_dt.bias", shape.value_heads)?,
            ssm_norm: self.vector("ssm_norm.weight", shape.value_dim)?,
            ssm_out: self.matrix("ssm_out.weight", width, shape.value_width())?,
        })
    }

    /// The next-token-prediction block behind the trunk, if it is there.
    fn nextn(&self, config: &Config, shape: AttentionShape, vocab: usize) -> Result<Option<Nextn<B>>> {
        if !self.has("nextn.eh_proj.weight") {
            return Ok(None);
        }
        let width = config.width;
        let table = |name: &str| self.has(name).then(|| self.matrix(name, vocab, width)).transpose();
        let norm = "nextn.shared_head_norm.weight";
        Ok(Some(Nextn {
            enorm: self.vector("nextn.enorm.weight", width)?,
            hnorm: self.vector("nextn.hnorm.weight", width)?,
            eh_proj: self.matrix("nextn.eh_proj.weight", width, 2 * width)?,
            layer: self.layer(config, &LayerShape::Attention(shape))?,
            shared_head_norm: self.has(norm).then(|| self.vector(norm, width)).transpose()?,
            embed_tokens: table("nextn.embed_tokens.weight")?,
            shared_head_head: table("nextn.shared_head_head.weight")?,
        }))
    }

    fn swiglu(&self, suffix: &str, ff: usize, width: usize) -> Result<SwiGlu<B>> {
        Ok(SwiGlu {
            gate: self.matrix(&format!("ffn_gate{suffix}.weight"), ff, width)?,
            up: self.matrix(&format!("ffn_up{suffix}.weight"), ff, width)?,
            down: self.matrix(&format!("ffn_down{suffix}.weight"), width, ff)?,
        })
    }

    fn moe(&self, (experts, ff): (usize, usize), shared_ff: usize, width: usize) -> Result<Moe<B>> {
        let stack = |rows, cols| MatrixShape { cols, rows, count: experts };
        let (ffn_gate_exps, ffn_up_exps) = if self.has("ffn_gate_up_exps.weight") {
            let fused = self.stack("ffn_gate_up_exps.weight", stack(2 * ff, width))?;
            (self.backend.part(&fused, 0..ff), self.backend.part(&fused, ff..2 * ff))
        } else {
            (self.stack("ffn_gate_exps.weight", stack(ff, width))?, self.stack("ffn_up_exps.weight", stack(ff, width))?)
        };
        let shared = match shared_ff {
            0 => None,
            ff => Some((self.swiglu("_shexp", ff, width)?, self.vector("ffn_gate_inp_shexp.weight", width)?)),
        };
        Ok(Moe {
            ffn_gate_inp: self.matrix("ffn_gate_inp.weight", experts, width)?,
            ffn_gate_exps,
            ffn_up_exps,
            ffn_down_exps: self.stack("ffn_down_exps.weight", stack(width, ff))?,
            shared,
        })
    }
}

/// The tensor behind the layers, and whether it is the embedding.
fn output(gguf: &Gguf) -> (&'static str, bool) {
    match gguf.tensor("output.weight") {
        Some(_) => ("output.weight", false),
        None => ("token_embd.weight", true),
    }
}

/// What the model in `gguf` asks of a device, by the names of its tensors: those that no pass reads whole count where they
/// are held.
pub fn demand(gguf: &Gguf, config: &Config) -> Demand {
    let (output, _) = output(gguf);
    let mut demand = Demand { layers: vec![Load::default(); config.layers.len() + 1], output: Load::default() };
    for tensor in gguf.tensors() {
        let name = tensor.name.as_str();
        let bytes = gguf.data(name).map_or(0, |data| data.len());
        if name == output {
            demand.output = Load { held: bytes, read: bytes };
        }
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        let Some(load) = layer.and_then(|layer| demand.layers.get_mut(layer)) else { continue };
        load.held += bytes;
        load.read += match config.feed_forward {
            FeedForward::Moe { experts, routing, .. } if name.ends_with("_exps.weight") => {
                bytes / experts * routing.used
            }
            _ => bytes,
        };
    }
    // What only drafts is read when it drafts.
    demand.layers[config.layers.len()].read = 0;
    demand
}

impl<B: Backend> Weights<B> {
    /// Takes all tensors of the trunk out of `gguf`.
    ///
    /// # Errors
    /// If a tensor is missing, has other dimensions or an unsupported format.
    pub fn load(gguf: &Gguf, config: &Config, backend: &mut B) -> Result<Weights<B>> {
        let layers = config.layers.len();
        let (output, tied) = output(gguf);
        backend.plan(&demand(gguf, config))?;
        let backend = &*backend;
        let at = |prefix: String, place| Loader { gguf, backend, prefix, place };
        let (input, top) = (at(String::new(), Place::Input), at(String::new(), Place::Output));
        let missing = || Error::new("missing from the file").about("token_embd.weight");
        let vocab = gguf.tensor("token_embd.weight").and_then(|t| t.dims.get(1).copied()).ok_or_else(missing)?;
        let layer = |i: usize| at(format!("blk.{i}."), Place::Layer(i));
        let blk = (0..layers).map(|i| layer(i).layer(config, &config.layers[i])).collect::<Result<_>>()?;
        let after = layer(layers);
        let nextn = config.nextn.map(|shape| after.nextn(config, shape, vocab)).transpose()?.flatten();
        Ok(Weights {
            token_embd: input.matrix("token_embd.weight", vocab, config.width)?,
            blk,
            output_norm: top.vector("output_norm.weight", config.width)?,
            output: top.matrix(output, vocab, config.width)?,
            nextn,
            vocab,
            tied,
        })
    }
}

impl<B: Backend> Weights<B> {
    /// Bytes of the matrices that a pass reads whatever its rows: all but the embedding and the experts.
    pub fn bytes_each_pass(&self, backend: &B) -> usize {
        let layers = self.blk.iter().flat_map(Layer::matrices);
        layers.chain([&self.output]).map(|m| backend.matrix_bytes(m)).sum()
    }
}

impl<B: Backend> Layer<B> {
    /// The matrices that every row is multiplied with.
    fn matrices(&self) -> Vec<&B::Matrix> {
        let mut all = match &self.mixer {
            Mixer::Attention(a) => vec![&a.attn_q, &a.attn_k, &a.attn_v, &a.attn_output],
            Mixer::Delta(d) => vec![&d.attn_qkv, &d.attn_gate, &d.ssm_beta, &d.ssm_alpha, &d.ssm_out],
        };
        let dense = match &self.ffn {
            Ffn::Moe(moe) => {
                all.push(&moe.ffn_gate_inp);
                moe.shared.as_ref().map(|(shared, _)| shared)
            }
            Ffn::Dense(dense) => Some(dense),
        };
        all.extend(dense.into_iter().flat_map(|f| [&f.gate, &f.up, &f.down]));
        all
    }
}
