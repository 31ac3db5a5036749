//! One sequence: prompt, output, state, drafter; and the step that everything is made of.
//!
//! Owns: the tokens, and that state and tokens always agree. Refuses to know: tensors, text, devices.
//!
//! Between steps the state holds every token but the last: the last one is the first row of the next pass. Plain
//! decoding is the step with an empty block.

use std::sync::Arc;
use std::time::{Duration, Instant};

use draft::{Block, Decision, Drafter, Outcome, Suffix, Token};

use super::accept::{Accepted, Finish, accept};
use super::choice::Choice;
use super::heads::{Heads, View, Wanted};
use super::metrics::{Metrics, Pass, Times};
use super::sample::Sampling;
use crate::backend::{Backend, KvFormat};
use crate::constraint::Constraint;
use crate::model::{Model, Workspace};
use crate::state::{Checkpoint, Snapshot, State, StateShape};
use crate::{Error, Result};

/// Sizes of a sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Positions: prompt and output together.
    pub context: usize,
    /// Most tokens that are drafted for one pass; 0 is plain decoding.
    pub block: usize,
    /// How K and V are stored.
    pub kv: KvFormat,
    /// Checkpoints of the recurrent state that are kept for prompts that differ from the last one only at their end.
    pub checkpoints: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { context: 4096, block: DEFAULT_BLOCK, kv: KvFormat::default(), checkpoints: 0 }
    }
}

/// Most tokens drafted for one pass, unless the user says otherwise.
pub const DEFAULT_BLOCK: usize = 16;

/// The chance that a token forced by a constraint is the one the model chooses.
const FORCED: f64 = 0.9;

/// Who drafts what a constraint forces.
const CONSTRAINT: &str = "constraint";

/// Most rows of a prefill pass.
pub const PREFILL: usize = 256;

/// Rows before a prompt's end at which a checkpoint is taken: chat templates rewrite the end of the last turn.
const TAIL: usize = 32;

/// Told what happens while a prompt is evaluated.
pub trait Watch {
    /// `done` of `total` prompt tokens are evaluated.
    fn progress(&mut self, done: usize, total: usize);
    /// Whether the logits of every row are wanted.
    fn wants_logits(&self) -> bool;
    /// The logits after the token at `position`.
    fn logits(&mut self, position: usize, logits: &[f32]);
    /// Whether to stop early (the user interrupted); the sequence stays consistent.
    fn cancelled(&self) -> bool;
}

/// A watch that looks away.
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _done: usize, _total: usize) {}
    fn wants_logits(&self) -> bool {
        false
    }
    fn logits(&mut self, _position: usize, _logits: &[f32]) {}
    fn cancelled(&self) -> bool {
        false
    }
}

/// Says after each emitted token, in order, whether the output ends with it.
pub trait Ends {
    /// The reason to end after `token`, if there is one.
    fn ends(&mut self, token: Token) -> Option<Finish>;
}

impl<F: FnMut(Token) -> Option<Finish>> Ends for F {
    fn ends(&mut self, token: Token) -> Option<Finish> {
        self(token)
    }
}

/// What a step gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Tokens emitted, in order. Token `i` was chosen from row `i` of the step's pass ([`Sequence::logits`]).
    pub emitted: Vec<Token>,
    /// Why the output ends here, if it does.
    pub finish: Option<Finish>,
}

/// A sequence being generated.
pub struct Sequence<B: Backend> {
    model: Arc<Model<B>>,
    state: State<B>,
    workspace: Workspace<B>,
    settings: Settings,
    /// Prompt and output; all but the last are in the state.
    tokens: Vec<Token>,
    checkpoints: Vec<Checkpoint>,
    drafter: Option<Box<dyn Drafter>>,
    heads: Heads<B>,
    choice: Choice,
    block: Block,
    metrics: Metrics,
    /// The last step's pass.
    last: Option<(Pass, Times)>,
    /// Where its clock begins.
    since: Instant,
}

impl<B: Backend> Sequence<B> {
    /// An empty sequence. Without a drafter every block is empty.
    ///
    /// # Errors
    /// If the memory does not suffice.
    pub fn new(model: Arc<Model<B>>, settings: Settings, drafter: Option<Box<dyn Drafter>>) -> Result<Sequence<B>> {
        Sequence::with_heads(model, settings, drafter, &Wanted::nothing())
    }

    /// An empty sequence with heads that its drafter may ask.
    ///
    /// # Errors
    /// If the memory does not suffice.
    pub fn with_heads(
        model: Arc<Model<B>>,
        settings: Settings,
        drafter: Option<Box<dyn Drafter>>,
        wanted: &Wanted<B>,
    ) -> Result<Sequence<B>> {
        let log_rows = if drafter.is_some() { settings.block + 1 } else { 0 };
        let state = model.state(settings.context, settings.kv, log_rows)?;
        let workspace = model.workspace();
        let heads = Heads::new(&model, &state, settings, wanted)?;
        let block = Block::new(settings.block);
        let metrics = Metrics::default();
        Ok(Sequence {
            model,
            state,
            workspace,
            settings,
            tokens: Vec::new(),
            checkpoints: Vec::new(),
            drafter,
            heads,
            choice: Choice::greedy(),
            block,
            metrics,
            last: None,
            since: Instant::now(),
        })
    }

    /// Prompt and output so far.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Counts since the last [`Sequence::prompt`].
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The last step's pass and its time; nothing if there was no room for one, or no step since the last prompt.
    pub fn last_pass(&self) -> Option<(Pass, Times)> {
        self.last
    }

    /// Samples the tokens to come; the best ones are chosen unless this says otherwise.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn set_sampling(&mut self, sampling: Sampling) -> Result<()> {
        self.choice.set_sampling(sampling)
    }

    /// Constrains the tokens to come, until the next prompt.
    pub fn set_constraint(&mut self, constraint: Option<Box<dyn Constraint>>) {
        self.choice.set_constraint(constraint);
    }

    /// What made the constraint give up, if it did: then the output ends early.
    pub fn constraint_failure(&self) -> Option<&Error> {
        self.choice.failure()
    }

    /// The model.
    pub fn model(&self) -> &Model<B> {
        &self.model
    }

    /// The sizes it was made with.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The kept state, as bytes.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(self.model.backend(), &self.state, self.model.fingerprint())
    }

    /// Appends the logits of row `row` of the last pass to `out`.
    pub fn logits(&self, row: usize, out: &mut Vec<f32>) {
        self.model.logits(&self.workspace, row, out);
    }

    /// Makes `prompt` the sequence's tokens, evaluating what the state does not hold yet (and never the last token:
    /// that is the next step's first row). Returns the number of tokens evaluated.
    ///
    /// # Errors
    /// If the prompt is empty, longer than the context, or holds a token that is not in the vocabulary. The sequence is
    /// unchanged then.
    pub fn prompt(&mut self, prompt: &[Token], watch: &mut dyn Watch) -> Result<usize> {
        self.admit(prompt)?;
        let start = self.rewind(prompt, watch.wants_logits());
        self.metrics = Metrics::default();
        self.last = None;
        self.choice.set_constraint(None);
        if let Some(drafter) = &mut self.drafter {
            drafter.reset();
        }
        let end = prompt.len() - 1;
        self.tokens.truncate(start);
        while self.state.len() < end && !watch.cancelled() {
            let from = self.state.len();
            let to = self.chunk_end(from, end);
            self.prefill(&prompt[from..to], watch);
            watch.progress(to - start, end - start);
            if self.settings.checkpoints > 0 {
                self.checkpoint();
            }
        }
        let evaluated = self.state.len() - start;
        self.tokens.push(prompt[self.state.len()]);
        Ok(evaluated)
    }

    fn admit(&self, prompt: &[Token]) -> Result<()> {
        let (context, vocab) = (self.settings.context, self.model.vocab());
        if prompt.is_empty() {
            return Err(Error::new("is empty: there is nothing to continue").about("prompt"));
        }
        if prompt.len() > context {
            let text = format!("{} tokens do not fit the context of {context} (--ctx)", prompt.len());
            return Err(Error::new(text).about("prompt"));
        }
        match prompt.iter().find(|&&t| t as usize >= vocab) {
            Some(t) => Err(Error::new(format!("token {t} is not in the vocabulary of {vocab}")).about("prompt")),
            None => Ok(()),
        }
    }

    /// Rewinds the state to the longest usable prefix that it shares with `prompt`, and returns its length.
    fn rewind(&mut self, prompt: &[Token], from_scratch: bool) -> usize {
        let limit = prompt.len() - 1;
        let common = self.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count().min(limit);
        let common = if from_scratch { 0 } else { common };
        self.checkpoints.retain(|c| c.positions() <= common);
        if self.state.len() > common {
            match self.checkpoints.last() {
                Some(checkpoint) => self.state.rewind(self.model.backend(), checkpoint),
                None => self.state.clear(self.model.backend()),
            }
        }
        self.state.len()
    }

    /// Where the prefill pass that starts at `from` ends: after [`PREFILL`] rows, or where a checkpoint is due.
    fn chunk_end(&self, from: usize, end: usize) -> usize {
        let to = end.min(from + PREFILL);
        let tail = end.saturating_sub(TAIL);
        if self.settings.checkpoints > 0 && from < tail && tail < to { tail } else { to }
    }

    fn prefill(&mut self, tokens: &[Token], watch: &mut dyn Watch) {
        let from = self.state.len();
        let all = watch.wants_logits();
        let logits_from = if all { 0 } else { tokens.len() - 1 };
        let clock = Instant::now();
        let verdict = self.model.forward(&mut self.workspace, &mut self.state, tokens, logits_from);
        verdict.guard.keep(tokens.len());
        self.tokens.extend_from_slice(tokens);
        self.heads.follow(&self.model, &self.workspace, from, tokens.len());
        if let Some(drafter) = &mut self.drafter {
            drafter.prefilled(tokens.len(), clock.elapsed());
        }
        if all {
            let mut logits = Vec::with_capacity(self.model.vocab());
            for row in 0..tokens.len() {
                logits.clear();
                self.model.logits(&self.workspace, row, &mut logits);
                watch.logits(from + row, &logits);
            }
        }
    }

    /// Remembers the recurrent state here, dropping the oldest checkpoint when there are too many.
    fn checkpoint(&mut self) {
        if self.checkpoints.last().is_some_and(|c| c.positions() == self.state.len()) {
            return;
        }
        if self.checkpoints.len() == self.settings.checkpoints {
            self.checkpoints.remove(0);
        }
        self.checkpoints.push(self.state.checkpoint(self.model.backend()));
    }

    /// One step: draft a block, verify it in one pass, accept, keep, observe. At most `budget` tokens are emitted.
    pub fn step(&mut self, budget: usize, ends: &mut dyn Ends) -> Step {
        let room = budget.min(self.settings.context - self.tokens.len());
        self.last = None;
        if room == 0 {
            return Step { emitted: Vec::new(), finish: Some(Finish::Length) };
        }
        let clock = Instant::now();
        self.propose(room - 1);
        let mut times = Times { draft: clock.elapsed(), ..Times::default() };
        let (mut step, accepted) = self.verify_and_keep(room, ends, &mut times);
        self.observe(&step, accepted, clock.elapsed() - times.draft);
        times.all = clock.elapsed();
        let pass = self.pass(accepted, step.emitted.len());
        self.metrics.record(pass, times);
        self.last = Some((pass, times));
        let full = step.emitted.len() == room;
        step.finish = step.finish.or(full.then_some(Finish::Length));
        step
    }

    /// Asks the constraint and the drafter for at most `most` tokens. Tokens that are not in the vocabulary, or cannot
    /// come next, end the block.
    fn propose(&mut self, most: usize) {
        self.block.clear(most.min(self.settings.block));
        if self.drafter.is_some() {
            // A constraint is sure of a text, not of the tokens it is spelt in.
            for token in self.choice.forced() {
                self.block.push(token, FORCED);
            }
        }
        if let Some(drafter) = &mut self.drafter {
            let (tokens, model, state, heads) = (&self.tokens[..], &*self.model, &mut self.state, &mut self.heads);
            drafter.propose(&mut View { tokens, since: self.since, model, state, heads }, &mut self.block);
        }
        let vocab = self.model.vocab();
        let valid = self.block.tokens().iter().take_while(|&&t| (t as usize) < vocab).count();
        self.block.truncate(valid);
        let valid = self.choice.valid_prefix(self.block.tokens());
        self.block.truncate(valid);
    }

    /// One pass over the last token and the block; keeps the rows whose tokens were emitted before the last one.
    /// Returns the step and how many drafted tokens were accepted, and says where the time went.
    fn verify_and_keep(&mut self, room: usize, ends: &mut dyn Ends, times: &mut Times) -> (Step, usize) {
        let mut rows = Vec::with_capacity(self.block.len() + 1);
        rows.extend_from_slice(&self.tokens[self.state.len()..]);
        rows.extend_from_slice(self.block.tokens());
        let position = self.state.len();
        let clock = Instant::now();
        let verdict = self.model.forward(&mut self.workspace, &mut self.state, &rows, 0);
        let passed = clock.elapsed();
        times.head = self.workspace.head_time();
        times.verify = passed.saturating_sub(times.head);
        let (tokens, choice, pass) = (&mut self.tokens, &mut self.choice, (&*self.model, &self.workspace));
        let choose = &mut |row: usize| {
            let token = choice.token(pass, row, verdict.choices[row], tokens);
            tokens.push(token);
            token
        };
        let Accepted { emitted, drafted, finish } =
            accept(self.block.tokens(), room, choose, &mut |token| ends.ends(token));
        let clock = Instant::now();
        verdict.guard.keep(emitted.len());
        times.rollback = clock.elapsed();
        self.heads.follow(&self.model, &self.workspace, position, emitted.len());
        (Step { emitted, finish }, drafted)
    }

    /// The pass over the block, and what became of it.
    fn pass(&self, accepted: usize, emitted: usize) -> Pass {
        let decision = self.decision().unwrap_or_default();
        // A block that no drafter filled is what the constraint forced.
        let drafter = if decision.drafter.is_empty() { CONSTRAINT } else { decision.drafter };
        let matched = (drafter == Suffix::NAME).then_some(decision.matched);
        Pass { drafter, matched, drafted: self.block.len(), accepted, emitted }
    }

    fn observe(&mut self, step: &Step, accepted: usize, time: Duration) {
        if let Some(drafter) = &mut self.drafter {
            drafter.observe(&Outcome { drafted: self.block.tokens(), accepted, emitted: &step.emitted, time });
        }
    }

    /// Why the last block was what it was; nothing without a drafter.
    pub fn decision(&self) -> Option<Decision> {
        self.drafter.as_ref().map(|drafter| drafter.decision())
    }

    /// Tokens that the last pass was expected to emit.
    pub fn expected(&self) -> f64 {
        1.0 + self.block.expected()
    }

    /// The sizes of the state.
    pub fn state_shape(&self) -> &StateShape {
        self.state.shape()
    }

    /// Tokens and state for a session file.
    pub(super) fn parts(&self) -> (&[Token], &[Checkpoint]) {
        (&self.tokens, &self.checkpoints)
    }

    /// Makes `tokens` the sequence's tokens without evaluating them: `snapshot` is the state of a sequence of the same
    /// model that holds all of them but the last.
    ///
    /// # Errors
    /// If the two do not agree, or the snapshot does not fit this sequence. Nothing is changed then.
    pub fn restore(&mut self, tokens: &[Token], snapshot: &Snapshot) -> Result<()> {
        self.adopt(tokens.to_vec(), snapshot, Vec::new())
    }

    /// Takes a saved sequence over. Nothing is changed on an error.
    pub(super) fn adopt(
        &mut self,
        tokens: Vec<Token>,
        snapshot: &Snapshot,
        checkpoints: Vec<Checkpoint>,
    ) -> Result<()> {
        let vocab = self.model.vocab();
        if tokens.len() != snapshot.positions() + 1 || tokens.iter().any(|&t| t as usize >= vocab) {
            return Err(Error::new("saved tokens and state do not agree"));
        }
        let positions = checkpoints.iter().map(Checkpoint::positions);
        if !positions.clone().is_sorted() || positions.max().is_some_and(|last| last > snapshot.positions()) {
            return Err(Error::new("saved checkpoints and state do not agree"));
        }
        let (have, context) = (tokens.len(), self.settings.context);
        if have > context {
            let text = format!("saved sequence has {have} tokens; the context has room for {context}");
            return Err(Error::new(text));
        }
        snapshot.restore(self.model.backend(), &mut self.state)?;
        self.tokens = tokens;
        self.checkpoints = checkpoints;
        Ok(())
    }
}
