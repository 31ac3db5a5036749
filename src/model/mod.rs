//! Qwen3.5-family models: configuration, weights, forward pass.
//!
//! Owns: the architecture. Refuses to know: devices, drafts, text.

mod config;
mod forward;
mod mtp;
mod shallow;
mod weights;

use std::path::Path;

use crate::backend::{Backend, KvFormat, Pass};
use crate::gguf::Gguf;
use crate::state::{State, Tentative};
use crate::{Error, Result};

pub use config::{ARCHITECTURES, Config, EXIT, FeedForward};
pub use forward::Workspace;
use forward::{Extent, Trunk};
pub use mtp::Mtp;
pub use shallow::Shallow;
use weights::Weights;
pub use weights::demand;

/// A loaded model on a device.
pub struct Model<B: Backend> {
    backend: B,
    config: Config,
    weights: Weights<B>,
    fingerprint: [u8; 16],
    warnings: Vec<String>,
}

/// What a pass leaves behind: a guard on the state and the best token after each row whose logits were wanted.
pub struct Verdict<'s, B: Backend> {
    /// Keep rows with it, or drop it.
    pub guard: Tentative<'s, B>,
    /// One per wanted row.
    pub choices: Vec<u32>,
}

impl<B: Backend> Model<B> {
    /// Loads the trunk of `gguf` onto `backend`.
    ///
    /// # Errors
    /// If the file is not a supported model, or the device's memory does not suffice.
    pub fn load(gguf: &Gguf, mut backend: B) -> Result<Model<B>> {
        let mut load = || {
            let config = Config::from_metadata(gguf.metadata())?;
            let weights = Weights::load(gguf, &config, &mut backend)?;
            Ok((config, weights))
        };
        let (config, weights) = load().map_err(|e: Error| e.at(Path::new(&gguf.name())))?;
        let mut warnings = Vec::new();
        if config.nextn.is_some() && weights.nextn.is_none() {
            let text = "the file announces next-token-prediction layers but does not hold them; going on without";
            warnings.push(format!("{}: {text}", gguf.name()));
        }
        Ok(Model { backend, config, weights, fingerprint: gguf.fingerprint(), warnings })
    }

    /// The device.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The model's numbers.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Tokens in the vocabulary.
    pub fn vocab(&self) -> usize {
        self.weights.vocab
    }

    /// Whether the output matrix is the embedding.
    pub fn tied(&self) -> bool {
        self.weights.tied
    }

    /// Whether it holds a next-token-prediction block.
    pub fn has_nextn(&self) -> bool {
        self.weights.nextn.is_some()
    }

    /// A hash that ties saved states to this model.
    pub fn fingerprint(&self) -> [u8; 16] {
        self.fingerprint
    }

    /// What the user should know about the file although it loads.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// An empty sequence: see [`crate::state::StateShape`] for the sizes.
    ///
    /// # Errors
    /// If the device's memory does not suffice.
    pub fn state(&self, positions: usize, kv: KvFormat, log_rows: usize) -> Result<State<B>> {
        State::new(&self.backend, self.config.state_shape(positions, kv, log_rows))
    }

    /// Activations for passes on this model.
    pub fn workspace(&self) -> Workspace<B> {
        Workspace::new(&self.backend, &self.config, self.weights.vocab)
    }

    /// Bytes of weight matrices that all passes on `workspace` have read: in each pass every matrix once, of the experts
    /// the distinct ones that the rows chose, and of the embedding nothing, since a few rows of it are looked up.
    pub fn bytes_read(&self, workspace: &Workspace<B>) -> usize {
        workspace.bytes_read(&self.backend, self.weights.bytes_each_pass(&self.backend))
    }

    /// One pass: evaluates `tokens` after the kept positions. The logits of rows `logits_from..` stay in `workspace`.
    /// Every token is in the vocabulary and the state has room for all of them.
    pub fn forward<'s>(
        &'s self,
        workspace: &mut Workspace<B>,
        state: &'s mut State<B>,
        tokens: &[u32],
        logits_from: usize,
    ) -> Verdict<'s, B> {
        self.run(workspace, state, tokens, Extent { layers: self.config.layers.len(), logits_from })
    }

    /// The same through some of the layers.
    fn run<'s>(
        &'s self,
        workspace: &mut Workspace<B>,
        state: &'s mut State<B>,
        tokens: &[u32],
        extent: Extent,
    ) -> Verdict<'s, B> {
        assert!(extent.logits_from < tokens.len(), "the logits of at least one row are wanted");
        assert!(tokens.iter().all(|&t| (t as usize) < self.weights.vocab), "tokens are in the vocabulary");
        let opened = state.open(tokens.len());
        let choices = self.backend.pass(|pass| self.trunk().forward(pass, workspace, opened, tokens, extent));
        Verdict { guard: state.tentative(&self.backend, extent.layers, tokens.len()), choices }
    }

    fn trunk(&self) -> Trunk<'_, B> {
        Trunk { config: &self.config, weights: &self.weights }
    }

    /// The probability that the last pass's only row of logits gives to its largest.
    pub fn confidence(&self, workspace: &Workspace<B>) -> f32 {
        self.backend.pass(|pass| pass.confidence(&workspace.logits))
    }

    /// Appends the residual stream behind row `row` of the last pass to `out`.
    pub fn hidden(&self, workspace: &Workspace<B>, row: usize, out: &mut Vec<f32>) {
        self.backend.read(&workspace.x, row, out);
    }

    /// Appends the logits of the `row`-th row that the last pass was asked for to `out`.
    pub fn logits(&self, workspace: &Workspace<B>, row: usize, out: &mut Vec<f32>) {
        self.backend.read(&workspace.logits, row, out);
    }
}
