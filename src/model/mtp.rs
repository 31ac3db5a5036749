//! The next-token-prediction block as a guesser.
//!
//! Owns: its cache of K and V, and the hidden states that enter it. Refuses to know: what becomes of its guesses.
//!
//! A row of the block is a token and the trunk's hidden state before it, behind the output norm; it guesses the token
//! after that token. Before the first token of a text the hidden state is zero. To guess further, the block follows its
//! own guess, with its own hidden state in place of the trunk's (the multi-token prediction of DeepSeek-V3, 2024,
//! section 2.2, as Qwen3-Next uses it).
//!
//! Rows that enter the cache for good are those of kept tokens and true hidden states. They are computed when a guess is
//! wanted, not before: a text on which nothing is guessed pays nothing but the copy of its hidden states. Asked for the
//! first time or after a long silence, the block sees the last tokens only, which costs no more than asking it often; once
//! it is asked regularly it gets the whole text.

use draft::{Guess, Token};

use super::Model;
use super::forward::{Trunk, Workspace, rope_table};
use super::weights::Nextn;
use crate::Result;
use crate::backend::{Backend, KvFormat, Pass, Place};
use crate::state::Cache;

/// Where more rows than this wait, the cache begins anew with the last ones.
const WINDOW: usize = 16;

/// Questions in a row after which the whole text enters the cache.
const REGULAR: usize = 16;

/// Hidden states that are kept, at most twice as many for a while; older ones are forgotten.
const KEPT: usize = 2048;

/// Rows of one pass through the block.
const ROWS: usize = 256;

/// Guesses with the next-token-prediction block.
pub struct Mtp<B: Backend> {
    cache: Cache<B>,
    /// The position of the token of the cache's first row.
    base: usize,
    /// Rows in the cache.
    rows: usize,
    /// Hidden states, one after another: the first enters with the token at position `first`, at most `base`.
    hidden: Vec<f32>,
    first: usize,
    /// Questions since the cache was begun with the last tokens only.
    asked: usize,
    width: usize,
    workspace: Workspace<B>,
    joined: B::Rows,
    positions: usize,
}

/// Hidden states on their way into the block.
#[derive(Clone, Copy)]
enum Hidden<'a> {
    /// The trunk's residual stream.
    Trunk(&'a [f32]),
    /// The block's own output, normed already.
    Own(&'a [f32]),
}

impl<B: Backend> Mtp<B> {
    /// A guesser for sequences of up to `positions` tokens; nothing if the model has no such block.
    ///
    /// # Errors
    /// If the device's memory does not suffice.
    pub fn new(model: &Model<B>, positions: usize, kv: KvFormat) -> Result<Option<Mtp<B>>> {
        let (Some(shape), Some(_)) = (model.config.nextn, &model.weights.nextn) else {
            return Ok(None);
        };
        let width = model.config.width;
        Ok(Some(Mtp {
            cache: Cache::Kv(model.backend.kv(Place::Layer(model.config.layers.len()), &shape, positions, kv)?),
            base: 0,
            rows: 0,
            hidden: vec![0.0; width],
            first: 0,
            asked: 0,
            width,
            workspace: model.workspace(),
            joined: model.backend.rows(2 * width),
            positions,
        }))
    }

    /// Takes the hidden states of the first `rows` rows of the trunk's last pass, whose first token stood at `position`.
    pub fn follow(&mut self, model: &Model<B>, trunk: &Workspace<B>, position: usize, rows: usize) {
        if self.end() != position + 1 {
            self.restart(position);
        }
        (0..rows).for_each(|row| model.hidden(trunk, row, &mut self.hidden));
        let held = self.hidden.len() / self.width;
        if held > 2 * KEPT {
            let dropped = held - KEPT;
            self.hidden.drain(..dropped * self.width);
            self.first += dropped;
            if self.base < self.first {
                self.begin(self.first);
            }
        }
    }

    /// The position of the token that the next hidden state enters with.
    fn end(&self) -> usize {
        self.first + self.hidden.len() / self.width
    }

    /// Begins the cache anew with the token at `base`.
    fn begin(&mut self, base: usize) {
        (self.base, self.rows) = (base, 0);
    }

    /// Forgets everything: the next hidden state is that of the token at `position`.
    fn restart(&mut self, position: usize) {
        self.hidden.clear();
        self.first = position + 1;
        if position == 0 {
            self.first = 0;
            self.hidden.resize(self.width, 0.0);
        }
        self.begin(self.first);
        self.asked = 0;
    }

    /// Guesses token after token behind `history`, each time following its own guess, while `more` says so and there is
    /// room. Without the hidden state before the last token there is nothing to guess from.
    pub fn guess(&mut self, model: &Model<B>, history: &[Token], more: &mut dyn FnMut(Guess) -> bool) {
        if self.hidden.is_empty() || self.end() != history.len() || history.len() >= self.positions {
            return;
        }
        let mut token = self.catch_up(model, history);
        let kept = self.rows;
        let mut own = Vec::with_capacity(self.width);
        while more(Guess { token, confidence: model.confidence(&self.workspace) })
            && self.base + self.rows < self.positions
        {
            own.clear();
            model.backend.read(&self.workspace.last, 0, &mut own);
            token = self.run(model, &[token], Hidden::Own(&own));
            self.rows += 1;
        }
        self.rows = kept;
    }

    /// Lets the rows that wait enter the cache; the best token after the last of them.
    fn catch_up(&mut self, model: &Model<B>, history: &[Token]) -> Token {
        self.asked += 1;
        let end = self.end();
        if end - (self.base + self.rows) > WINDOW {
            self.begin(end - WINDOW);
            self.asked = 1;
        } else if self.asked == REGULAR && self.base > self.first {
            self.begin(self.first);
        }
        // Asked twice at one place, the last row is computed again.
        self.rows = self.rows.min(end - self.base - 1);
        let hidden = std::mem::take(&mut self.hidden);
        let from = self.base + self.rows;
        let mut token = 0;
        let waiting = hidden[(from - self.first) * self.width..].chunks(ROWS * self.width);
        for (tokens, hidden) in history[from..].chunks(ROWS).zip(waiting) {
            token = self.run(model, tokens, Hidden::Trunk(hidden));
            self.rows += tokens.len();
        }
        self.hidden = hidden;
        token
    }

    /// One pass over rows behind those in the cache; the best token after the last.
    fn run(&mut self, model: &Model<B>, tokens: &[Token], hidden: Hidden) -> Token {
        let Some(nextn) = &model.weights.nextn else { unreachable!("the block was there when this was made") };
        model.backend.pass(|b| self.rows(b, &model.trunk(), nextn, tokens, hidden))
    }

    fn rows(&mut self, b: &B::Pass<'_>, trunk: &Trunk<B>, nextn: &Nextn<B>, tokens: &[Token], hidden: Hidden) -> Token {
        let (weights, eps) = (trunk.weights, trunk.config.eps);
        let w = &mut self.workspace;
        b.load(&rope_table(trunk.config, self.base + self.rows, tokens.len()), &mut w.rope);
        b.embed(nextn.embed_tokens.as_ref().unwrap_or(&weights.token_embd), tokens, &mut w.x);
        b.rms_norm(&w.x, &nextn.enorm, eps, &mut w.y);
        match hidden {
            Hidden::Own(values) => b.load(values, &mut w.h),
            Hidden::Trunk(values) => {
                b.load(values, &mut w.x);
                b.rms_norm(&w.x, &weights.output_norm, eps, &mut w.h);
            }
        }
        b.rms_norm(&w.h, &nextn.hnorm, eps, &mut w.x);
        b.join(&w.y, &w.x, &mut self.joined);
        b.project(&mut self.joined, &mut [(&nextn.eh_proj, &mut w.x)]);
        trunk.layer(b, &nextn.layer, w, (&mut self.cache, self.rows));
        b.tail(&w.x, tokens.len() - 1, &mut w.h);
        b.rms_norm(&w.h, nextn.shared_head_norm.as_ref().unwrap_or(&weights.output_norm), eps, &mut w.last);
        b.project(&mut w.last, &mut [(nextn.shared_head_head.as_ref().unwrap_or(&weights.output), &mut w.logits)]);
        b.argmax(&w.logits)[0]
    }
}
