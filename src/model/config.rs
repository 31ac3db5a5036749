//! What the file says about the model: every number of the architecture.
//!
//! Owns: the metadata keys and their rules. Refuses to know: tensors.

use crate::backend::{AttentionShape, DeltaShape, KvFormat, Routing};
use crate::gguf::Metadata;
use crate::state::{LayerShape, StateShape};
use crate::{Error, Result};

/// The architectures that run here, as `general.architecture` names them.
pub const ARCHITECTURES: [&str; 2] = ["qwen35moe", "qwen35"];

/// The key of the number of first layers that were trained to guess by themselves, through the output norm and matrix.
pub const EXIT: &str = "verbatim.exit_layers";

/// A layer's feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FeedForward {
    /// Routed experts and a shared one.
    Moe {
        /// Routed experts in the layer.
        experts: usize,
        /// Elements of a routed expert's hidden row.
        ff: usize,
        /// Elements of the shared expert's hidden row; 0 if there is none.
        shared_ff: usize,
        /// How rows choose their experts.
        routing: Routing,
    },
    /// One SwiGLU.
    Dense {
        /// Elements of the hidden row.
        ff: usize,
    },
}

/// The model's numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `general.architecture`.
    pub architecture: String,
    /// `general.name`, if the file has one.
    pub name: Option<String>,
    /// Width of the residual stream.
    pub width: usize,
    /// The longest context that the model was trained for.
    pub context: usize,
    /// One entry per layer of the trunk.
    pub layers: Vec<LayerShape>,
    /// Every layer's feed-forward part.
    pub feed_forward: FeedForward,
    /// The attention of the next-token-prediction layer after the trunk, which plain decoding does not run, if the file
    /// announces one.
    pub nextn: Option<AttentionShape>,
    /// How many of the first layers were trained to guess by themselves, if any were.
    pub exit: Option<usize>,
    /// Added to the mean square in norms.
    pub eps: f32,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Elements of a head that are rotated.
    pub rope_dim: usize,
    /// Rotary sections of multi-modal positions; for text all sections share one position.
    pub rope_sections: Vec<usize>,
}

/// Reads keys under the architecture's prefix.
struct Keys<'m> {
    metadata: &'m Metadata,
    arch: &'m str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    fn usize(&self, name: &str) -> Result<Option<usize>> {
        self.metadata.usize(&self.key(name))
    }

    /// A required count of at least 1.
    fn count(&self, name: &str) -> Result<usize> {
        match Metadata::required(&self.key(name), self.usize(name))? {
            0 => Err(Error::new("expected at least 1, found 0").about(self.key(name))),
            // Far above any model, far below what could overflow a product of a few.
            n if n > 1 << 24 => Err(Error::new(format!("{n} is absurd")).about(self.key(name))),
            n => Ok(n),
        }
    }

    fn f32(&self, name: &str) -> Result<Option<f32>> {
        self.metadata.f32(&self.key(name))
    }

    /// A count given once, or per layer; `layer` picks.
    fn per_layer(&self, name: &str, layer: usize) -> Result<usize> {
        let key = self.key(name);
        let Some(list) = self.metadata.get(&key).and_then(|v| v.as_array()) else {
            return self.count(name);
        };
        let value = list.get(layer).and_then(|v| v.as_u64()).filter(|&v| v > 0 && v <= 1 << 24);
        value.map(|v| v as usize).ok_or_else(|| Error::new(format!("no count for layer {layer}")).about(key))
    }
}

impl Config {
    /// Reads the metadata of a supported architecture.
    ///
    /// # Errors
    /// If the architecture is another one, a key is missing or of another type, or counts contradict each other.
    pub fn from_metadata(metadata: &Metadata) -> Result<Config> {
        let arch = Metadata::required("general.architecture", metadata.str("general.architecture"))?;
        if !ARCHITECTURES.contains(&arch) {
            let supported = ARCHITECTURES.join(", ");
            let text = format!("`{arch}` is not supported; supported architectures: {supported}");
            return Err(Error::new(text).about("general.architecture"));
        }
        let keys = Keys { metadata, arch };
        let nextn = keys.usize("nextn_predict_layers")?.unwrap_or(0);
        let blocks = keys.count("block_count")?;
        let trunk = blocks.checked_sub(nextn).filter(|&t| t > 0).ok_or_else(|| {
            let text = format!("{nextn} next-token-prediction layers leave nothing of {blocks} blocks");
            Error::new(text).about(keys.key("nextn_predict_layers"))
        })?;
        if trunk > 4096 {
            return Err(Error::new(format!("{trunk} layers are absurd")).about(keys.key("block_count")));
        }
        let eps = keys.f32("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-6);
        let rope_dim = rope_dim(&keys)?;
        let recurrent = recurrent_layers(&keys, trunk)?;
        let layers = (0..trunk)
            .map(|i| match recurrent[i] {
                true => Ok(LayerShape::Delta(delta_shape(&keys, eps)?)),
                false => Ok(LayerShape::Attention(attention_shape(&keys, i, rope_dim, eps)?)),
            })
            .collect::<Result<_>>()?;
        Ok(Config {
            architecture: arch.to_owned(),
            name: metadata.str("general.name")?.map(str::to_owned),
            width: keys.count("embedding_length")?,
            context: keys.count("context_length")?,
            layers,
            feed_forward: feed_forward(&keys)?,
            nextn: (nextn > 0).then(|| attention_shape(&keys, trunk, rope_dim, eps)).transpose()?,
            exit: exit(metadata, trunk)?,
            eps,
            rope_base: keys.f32("rope.freq_base")?.unwrap_or(10_000.0),
            rope_dim,
            rope_sections: rope_sections(&keys)?,
        })
    }

    /// The sizes of a sequence's state.
    pub fn state_shape(&self, positions: usize, kv: KvFormat, log_rows: usize) -> StateShape {
        StateShape { layers: self.layers.clone(), positions, kv, log_rows }
    }
}

/// The layer count that the key [`EXIT`] names.
fn exit(metadata: &Metadata, trunk: usize) -> Result<Option<usize>> {
    match metadata.usize(EXIT)? {
        Some(depth) if depth == 0 || depth >= trunk => {
            Err(Error::new(format!("expected 1 to {} layers, found {depth}", trunk - 1)).about(EXIT))
        }
        depth => Ok(depth),
    }
}

/// Which layers are recurrent: an explicit array, or every `full_attention_interval`-th layer is not.
fn recurrent_layers(keys: &Keys, trunk: usize) -> Result<Vec<bool>> {
    let key = keys.key("attention.recurrent_layers");
    if let Some(list) = keys.metadata.array(&key)? {
        let list: Option<Vec<bool>> = (0..trunk).map(|i| list.get(i)?.as_bool()).collect();
        return list.ok_or_else(|| Error::new(format!("expected {trunk} bools, one for each layer")).about(key));
    }
    let interval = keys.usize("full_attention_interval")?.unwrap_or(4).max(1);
    Ok((1..=trunk).map(|i| !i.is_multiple_of(interval)).collect())
}

fn rope_sections(keys: &Keys) -> Result<Vec<usize>> {
    let key = keys.key("rope.dimension_sections");
    let Some(list) = keys.metadata.array(&key)? else {
        return Ok(Vec::new());
    };
    let sections: Option<Vec<usize>> = list.iter().map(|v| v.as_u64().map(|v| v as usize)).collect();
    sections.ok_or_else(|| Error::new("expected an array of unsigned integers").about(key))
}

fn rope_dim(keys: &Keys) -> Result<usize> {
    let scaling = keys.key("rope.scaling.type");
    if let Some(kind) = keys.metadata.str(&scaling)?.filter(|&k| k != "none") {
        return Err(Error::new(format!("rotary scaling `{kind}` is not supported; supported: none")).about(scaling));
    }
    let dim = match keys.usize("rope.dimension_count")? {
        Some(_) => keys.count("rope.dimension_count")?,
        None => keys.count("attention.key_length")?,
    };
    if !dim.is_multiple_of(2) {
        return Err(Error::new(format!("expected an even count, found {dim}")).about(keys.key("rope.dimension_count")));
    }
    Ok(dim)
}

fn attention_shape(keys: &Keys, layer: usize, rope_dim: usize, eps: f32) -> Result<AttentionShape> {
    let heads = keys.per_layer("attention.head_count", layer)?;
    let kv_heads = keys.per_layer("attention.head_count_kv", layer)?;
    let head_dim = keys.count("attention.key_length")?;
    let value_dim = keys.count("attention.value_length")?;
    let about = |text: String, key: &str| Err(Error::new(text).about(keys.key(key)));
    if !heads.is_multiple_of(kv_heads) {
        return about(format!("{heads} heads do not share {kv_heads} evenly"), "attention.head_count_kv");
    }
    if head_dim != value_dim {
        return about(format!("expected {head_dim}, the key length, found {value_dim}"), "attention.value_length");
    }
    if rope_dim > head_dim {
        return about(format!("{rope_dim} rotated of {head_dim} elements of a head"), "rope.dimension_count");
    }
    Ok(AttentionShape { heads, kv_heads, head_dim, rope_dim, eps })
}

fn delta_shape(keys: &Keys, eps: f32) -> Result<DeltaShape> {
    let (key_heads, value_heads) = (keys.count("ssm.group_count")?, keys.count("ssm.time_step_rank")?);
    let (key_dim, inner) = (keys.count("ssm.state_size")?, keys.count("ssm.inner_size")?);
    let taps = keys.count("ssm.conv_kernel")?;
    let about = |text: String, key: &str| Err(Error::new(text).about(keys.key(key)));
    if !value_heads.is_multiple_of(key_heads) {
        return about(format!("{value_heads} value heads do not share {key_heads} evenly"), "ssm.group_count");
    }
    if !inner.is_multiple_of(value_heads) {
        return about(format!("{inner} elements do not fall into {value_heads} heads"), "ssm.inner_size");
    }
    if !key_dim.is_multiple_of(4) {
        return about(format!("expected a multiple of 4, found {key_dim}"), "ssm.state_size");
    }
    if !(2..=16).contains(&taps) {
        return about(format!("expected 2 to 16 taps, found {taps}"), "ssm.conv_kernel");
    }
    Ok(DeltaShape { key_heads, value_heads, key_dim, value_dim: inner / value_heads, taps, eps })
}

fn feed_forward(keys: &Keys) -> Result<FeedForward> {
    if keys.arch == "qwen35" {
        return Ok(FeedForward::Dense { ff: keys.count("feed_forward_length")? });
    }
    let (experts, used) = (keys.count("expert_count")?, keys.count("expert_used_count")?);
    if used > experts {
        let text = format!("{used} experts used of {experts}");
        return Err(Error::new(text).about(keys.key("expert_used_count")));
    }
    let renormalize = keys.metadata.bool(&keys.key("expert_weights_norm"))?.unwrap_or(true);
    let scale = keys.f32("expert_weights_scale")?.filter(|&s| s != 0.0).unwrap_or(1.0);
    Ok(FeedForward::Moe {
        experts,
        ff: keys.count("expert_feed_forward_length")?,
        shared_ff: keys.usize("expert_shared_feed_forward_length")?.unwrap_or(0),
        routing: Routing { used, renormalize, scale },
    })
}
