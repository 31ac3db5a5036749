//! The forward pass: one function for prefill, decoding and verification.
//!
//! Owns: the order of operations, and the activations of a pass. Refuses to know: devices, and what becomes of the rows.

use std::time::{Duration, Instant};

use super::config::{Config, FeedForward};
use super::weights::{Attention, Delta, Ffn, Layer, Mixer, Moe, SwiGlu, Weights};
use crate::backend::{Backend, DeltaInput, DeltaWeights, Experts, HeadNorms, Pass, Qkv};
use crate::state::{Cache, LayerShape};

/// The activations of a pass; kept from pass to pass, so that nothing is allocated in the loop.
pub struct Workspace<B: Backend> {
    /// The residual stream.
    pub(super) x: B::Rows,
    /// Its normed form, what a block reads.
    pub(super) h: B::Rows,
    /// What a block adds to the stream.
    pub(super) y: B::Rows,
    /// Cosines and sines of the rows' positions.
    pub(super) rope: B::Rows,
    attention: Option<AttentionRows<B>>,
    delta: Option<DeltaRows<B>>,
    ffn: FfnRows<B>,
    /// The rows whose logits are wanted, normed.
    pub(super) last: B::Rows,
    /// Their logits.
    pub(super) logits: B::Rows,
    /// Passes run so far.
    passes: usize,
    /// What the last pass took behind its last layer.
    head_time: Duration,
}

struct AttentionRows<B: Backend> {
    q: B::Rows,
    k: B::Rows,
    v: B::Rows,
    out: B::Rows,
}

struct DeltaRows<B: Backend> {
    qkv: B::Rows,
    conv: B::Rows,
    z: B::Rows,
    alpha: B::Rows,
    beta: B::Rows,
    out: B::Rows,
}

struct FfnRows<B: Backend> {
    routes: B::Routes,
    /// Hidden rows of the dense or the shared SwiGLU, and its output.
    gate: B::Rows,
    up: B::Rows,
    shared: B::Rows,
}

impl<B: Backend> Workspace<B> {
    /// Room for passes of this model.
    pub fn new(backend: &B, config: &Config, vocab: usize) -> Workspace<B> {
        let rows = |width| backend.rows(width);
        let attention = config.layers.iter().find_map(|layer| match layer {
            LayerShape::Attention(a) => Some(AttentionRows {
                q: rows(2 * a.out_width()),
                k: rows(a.kv_width()),
                v: rows(a.kv_width()),
                out: rows(a.out_width()),
            }),
            LayerShape::Delta(_) => None,
        });
        let delta = config.layers.iter().find_map(|layer| match layer {
            LayerShape::Attention(_) => None,
            LayerShape::Delta(d) => Some(DeltaRows {
                qkv: rows(d.channels()),
                conv: rows(d.channels()),
                z: rows(d.value_width()),
                alpha: rows(d.value_heads),
                beta: rows(d.value_heads),
                out: rows(d.value_width()),
            }),
        });
        let hidden = match config.feed_forward {
            FeedForward::Dense { ff } => ff,
            FeedForward::Moe { shared_ff, .. } => shared_ff.max(1),
        };
        let width = config.width;
        Workspace {
            x: rows(width),
            h: rows(width),
            y: rows(width),
            rope: rows(config.rope_dim),
            attention,
            delta,
            ffn: FfnRows { routes: backend.routes(), gate: rows(hidden), up: rows(hidden), shared: rows(width) },
            last: rows(width),
            logits: rows(vocab),
            passes: 0,
            head_time: Duration::ZERO,
        }
    }

    /// What the last pass took behind its last layer: output norm, output matrix and best tokens. Nothing where a device
    /// works on while the host goes ahead: there only the whole pass has a time.
    pub fn head_time(&self) -> Duration {
        self.head_time
    }

    /// Bytes of weights read by all passes so far: `each` in every pass, and the experts that the rows chose.
    pub(super) fn bytes_read(&self, backend: &B, each: usize) -> usize {
        self.passes * each + backend.expert_bytes(&self.ffn.routes)
    }
}

/// Cosines, then sines, of `rows` positions from `start`: computed in f64 on the host, for all devices alike.
pub(super) fn rope_table(config: &Config, start: usize, rows: usize) -> Vec<f32> {
    let half = config.rope_dim / 2;
    let frequency = |i: usize| libm::pow(f64::from(config.rope_base), -2.0 * i as f64 / config.rope_dim as f64);
    let frequencies: Vec<f64> = (0..half).map(frequency).collect();
    let mut table = Vec::with_capacity(rows * config.rope_dim);
    for position in start..start + rows {
        let angles = frequencies.iter().map(|f| position as f64 * f);
        table.extend(angles.clone().map(|a| libm::cos(a) as f32));
        table.extend(angles.map(|a| libm::sin(a) as f32));
    }
    table
}

/// How much of the model a pass computes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Layers, from the first on.
    pub layers: usize,
    /// The first row whose logits are wanted.
    pub logits_from: usize,
}

/// The model's numbers and tensors, as a pass reads them.
pub(super) struct Trunk<'m, B: Backend> {
    pub config: &'m Config,
    pub weights: &'m Weights<B>,
}

impl<B: Backend> Trunk<'_, B> {
    /// Runs `tokens` at positions `start..` through the first `layers` layers and leaves the logits of rows
    /// `logits_from..` in the workspace; returns each such row's best token.
    pub fn forward(
        &self,
        b: &B::Pass<'_>,
        w: &mut Workspace<B>,
        (caches, start): (&mut [Cache<B>], usize),
        tokens: &[u32],
        Extent { layers, logits_from }: Extent,
    ) -> Vec<u32> {
        w.passes += 1;
        b.load(&rope_table(self.config, start, tokens.len()), &mut w.rope);
        b.embed(&self.weights.token_embd, tokens, &mut w.x);
        for (layer, cache) in self.weights.blk.iter().zip(caches).take(layers) {
            self.layer(b, layer, w, (cache, start));
        }
        let clock = Instant::now();
        b.tail(&w.x, logits_from, &mut w.h);
        b.rms_norm(&w.h, &self.weights.output_norm, self.config.eps, &mut w.last);
        b.project(&mut w.last, &mut [(&self.weights.output, &mut w.logits)]);
        let best = b.argmax(&w.logits);
        w.head_time = if B::IMMEDIATE { clock.elapsed() } else { Duration::ZERO };
        best
    }

    /// `x += mixer(norm(x)); x += ffn(norm(x))`, the cache holding `start` positions.
    pub fn layer(
        &self,
        b: &B::Pass<'_>,
        layer: &Layer<B>,
        w: &mut Workspace<B>,
        (cache, start): (&mut Cache<B>, usize),
    ) {
        let eps = self.config.eps;
        b.rms_norm(&w.x, &layer.attn_norm, eps, &mut w.h);
        match (&layer.mixer, cache) {
            (Mixer::Attention(attn), Cache::Kv(kv)) => attention(b, attn, w, (kv, start)),
            (Mixer::Delta(ssm), Cache::Recurrent(state)) => delta(b, ssm, w, state),
            _ => unreachable!("caches follow the layers"),
        }
        b.add(&mut w.x, &w.y);
        b.rms_norm(&w.x, &layer.post_attention_norm, eps, &mut w.h);
        match &layer.ffn {
            Ffn::Moe(experts) => moe(b, experts, self.config, w),
            Ffn::Dense(dense) => swiglu(b, dense, &mut w.h, (&mut w.ffn.gate, &mut w.ffn.up), &mut w.y),
        }
        b.add(&mut w.x, &w.y);
    }
}

/// `y = attn_output · attention(h)`.
fn attention<B: Backend>(b: &B::Pass<'_>, attn: &Attention<B>, w: &mut Workspace<B>, cache: (&mut B::Kv, usize)) {
    let Some(a) = &mut w.attention else { unreachable!("the workspace fits the layers") };
    b.project(&mut w.h, &mut [(&attn.attn_q, &mut a.q), (&attn.attn_k, &mut a.k), (&attn.attn_v, &mut a.v)]);
    let norms = HeadNorms { q: &attn.attn_q_norm, k: &attn.attn_k_norm };
    let qkv = Qkv { q: &mut a.q, k: &mut a.k, v: &a.v };
    b.attention(&attn.shape, norms, &w.rope, qkv, cache, &mut a.out);
    b.project(&mut a.out, &mut [(&attn.attn_output, &mut w.y)]);
}

/// `y = ssm_out · delta_net(h)`.
fn delta<B: Backend>(b: &B::Pass<'_>, ssm: &Delta<B>, w: &mut Workspace<B>, state: &mut B::Recurrent) {
    let Some(d) = &mut w.delta else { unreachable!("the workspace fits the layers") };
    b.project(
        &mut w.h,
        &mut [
            (&ssm.attn_qkv, &mut d.qkv),
            (&ssm.attn_gate, &mut d.z),
            (&ssm.ssm_alpha, &mut d.alpha),
            (&ssm.ssm_beta, &mut d.beta),
        ],
    );
    b.conv(&ssm.shape, &ssm.ssm_conv1d, &d.qkv, state, &mut d.conv);
    let weights = DeltaWeights { a: &ssm.ssm_a, dt: &ssm.ssm_dt, norm: &ssm.ssm_norm };
    let input = DeltaInput { qkv: &d.conv, alpha: &d.alpha, beta: &d.beta, z: &d.z };
    b.delta(&ssm.shape, weights, input, state, &mut d.out);
    b.project(&mut d.out, &mut [(&ssm.ssm_out, &mut w.y)]);
}

/// `y = experts(h) + sigmoid(gate · h) * shared(h)`.
fn moe<B: Backend>(b: &B::Pass<'_>, moe: &Moe<B>, config: &Config, w: &mut Workspace<B>) {
    let FeedForward::Moe { routing, .. } = config.feed_forward else { unreachable!("the weights follow the config") };
    let f = &mut w.ffn;
    b.route(&mut w.h, &moe.ffn_gate_inp, routing, &mut f.routes);
    let experts = Experts { gate: &moe.ffn_gate_exps, up: &moe.ffn_up_exps, down: &moe.ffn_down_exps };
    b.experts(&mut w.h, experts, &mut f.routes, &mut w.y);
    if let Some((shared, gate)) = &moe.shared {
        swiglu(b, shared, &mut w.h, (&mut f.gate, &mut f.up), &mut f.shared);
        b.add_gated(&w.h, gate, &f.shared, &mut w.y);
    }
}

/// `out = down · (silu(gate · x) * (up · x))`.
fn swiglu<B: Backend>(
    b: &B::Pass<'_>,
    ffn: &SwiGlu<B>,
    x: &mut B::Rows,
    (gate, up): (&mut B::Rows, &mut B::Rows),
    out: &mut B::Rows,
) {
    b.project(x, &mut [(&ffn.gate, gate), (&ffn.up, up)]);
    b.swiglu(gate, up);
    b.project(gate, &mut [(&ffn.down, out)]);
}
