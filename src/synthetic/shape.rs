//! The shapes of the published models.
//!
//! Owns: their dimensions, as each model's `config.json` states them, and the notation `NAME[:LAYERS]`. Refuses to
//! know: tensors and formats.

use std::fmt;

use crate::{Error, Result};

/// A layer's feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedForward {
    /// One SwiGLU with a hidden row of `ff` elements.
    #[allow(missing_docs)]
    Dense { ff: usize },
    /// `used` of `experts` SwiGLUs with hidden rows of `ff` elements, and a shared one of `shared_ff`.
    #[allow(missing_docs)]
    Moe { experts: usize, used: usize, ff: usize, shared_ff: usize },
}

/// The dimensions of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// What the command line calls it.
    pub name: &'static str,
    /// Layers; every `interval`-th of them is attention, the others are gated delta nets.
    pub layers: usize,
    /// See `layers`.
    pub interval: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Query heads of attention.
    pub heads: usize,
    /// Heads of K and V.
    pub kv_heads: usize,
    /// Elements of an attention head.
    pub head_dim: usize,
    /// Elements of it that are rotated.
    pub rope_dim: usize,
    /// Heads of q and k in a gated delta net.
    pub key_heads: usize,
    /// Heads of v in a gated delta net.
    pub value_heads: usize,
    /// Elements of each of both kinds of heads.
    pub state_dim: usize,
    /// Taps of the convolution.
    pub taps: usize,
    /// What mixes channels.
    pub feed_forward: FeedForward,
    /// Tokens.
    pub vocab: usize,
    /// Whether the output matrix is the embedding.
    pub tied: bool,
}

/// What the published models have in common.
const FAMILY: Shape = Shape {
    name: "",
    layers: 0,
    interval: 4,
    width: 0,
    heads: 16,
    kv_heads: 4,
    head_dim: 256,
    rope_dim: 64,
    key_heads: 16,
    value_heads: 32,
    state_dim: 128,
    taps: 4,
    feed_forward: FeedForward::Dense { ff: 0 },
    vocab: 248_320,
    tied: false,
};

/// The published models, largest first.
const SHAPES: [Shape; 5] = [
    Shape {
        name: "qwen3.5-122b-a10b",
        layers: 48,
        width: 3072,
        heads: 32,
        kv_heads: 2,
        value_heads: 64,
        feed_forward: FeedForward::Moe { experts: 256, used: 8, ff: 1024, shared_ff: 1024 },
        ..FAMILY
    },
    Shape {
        name: "qwen3.5-35b-a3b",
        layers: 40,
        width: 2048,
        kv_heads: 2,
        feed_forward: FeedForward::Moe { experts: 256, used: 8, ff: 512, shared_ff: 512 },
        ..FAMILY
    },
    Shape {
        name: "qwen3.5-27b",
        layers: 64,
        width: 5120,
        heads: 24,
        value_heads: 48,
        feed_forward: FeedForward::Dense { ff: 17_408 },
        ..FAMILY
    },
    Shape { name: "qwen3.5-9b", layers: 32, width: 4096, feed_forward: FeedForward::Dense { ff: 12_288 }, ..FAMILY },
    Shape {
        name: "qwen3.5-0.8b",
        layers: 24,
        width: 1024,
        heads: 8,
        kv_heads: 2,
        value_heads: 16,
        feed_forward: FeedForward::Dense { ff: 3584 },
        tied: true,
        ..FAMILY
    },
];

impl Shape {
    /// The published models' shapes.
    pub fn all() -> &'static [Shape] {
        &SHAPES
    }

    /// The shape that `NAME` or `NAME:LAYERS` stands for.
    ///
    /// # Errors
    /// If no model has that name, or it has fewer layers.
    pub fn parse(text: &str) -> Result<Shape> {
        let (name, cut) = match text.split_once(':') {
            Some((name, layers)) => (name, Some(layers)),
            None => (text, None),
        };
        let named = SHAPES.iter().find(|shape| shape.name == name).ok_or_else(|| {
            let names: Vec<_> = SHAPES.iter().map(|shape| shape.name).collect();
            Error::new(format!("expected one of {}, found `{name}`", names.join(", ")))
        })?;
        let Some(cut) = cut else {
            return Ok(*named);
        };
        match cut.parse() {
            Ok(layers) if (1..=named.layers).contains(&layers) => Ok(Shape { layers, ..*named }),
            _ => Err(Error::new(format!("expected 1 to {} layers behind `{name}:`, found `{cut}`", named.layers))),
        }
    }

    /// Whether layer `i` is a gated delta net.
    pub fn recurrent(&self, i: usize) -> bool {
        !(i + 1).is_multiple_of(self.interval)
    }

    /// What GGUF files call the architecture.
    pub fn architecture(&self) -> &'static str {
        match self.feed_forward {
            FeedForward::Dense { .. } => "qwen35",
            FeedForward::Moe { .. } => "qwen35moe",
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SHAPES.iter().any(|shape| shape == self) {
            true => f.write_str(self.name),
            false => write!(f, "{}:{}", self.name, self.layers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_is_the_whole_model_and_a_number_cuts_it() {
        for shape in Shape::all() {
            assert_eq!(Shape::parse(shape.name).unwrap(), *shape);
            assert_eq!(shape.to_string(), shape.name);
            let cut = Shape::parse(&format!("{}:3", shape.name)).unwrap();
            assert_eq!((cut.layers, cut.width), (3, shape.width));
            assert_eq!(cut.to_string(), format!("{}:3", shape.name));
        }
    }

    #[test]
    fn unknown_names_and_numbers_of_layers_are_refused_with_what_there_is() {
        for (text, says) in [
            ("qwen3.5", "qwen3.5-35b-a3b, qwen3.5-27b"),
            ("", "qwen3.5-0.8b, found ``"),
            ("qwen3.5-9b:0", "1 to 32 layers"),
            ("qwen3.5-9b:33", "1 to 32 layers"),
            ("qwen3.5-9b:", "found ``"),
            ("qwen3.5-9b:two", "found `two`"),
        ] {
            let error = Shape::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
