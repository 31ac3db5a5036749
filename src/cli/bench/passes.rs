//! What a pass of n rows costs: the curve that says how long a block may be.
//!
//! Owns: which passes are timed, and how often. Refuses to know: drafters; a pass's rows are taken from ordinary text, or
//! drawn at random where the model has no tokenizer.
//!
//! Every pass starts from the same state, since dropping its guard rolls it back at no cost. Rounds over all lengths are
//! repeated, so that a machine that slows down for a while slows all lengths down.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::Result;
use crate::backend::Backend;
use crate::cli::setup::{About, Loaded};
use crate::cli::tasks;
use crate::synthetic::Random;
use crate::text::Specials;

/// The state is filled in passes of this many rows.
const CHUNK: usize = 256;

/// The longest pass that is measured as a block, of which any part could be kept; a longer one is part of a prompt.
const BLOCK: usize = 64;

/// In a round, passes of one length are timed at least this often...
const FEWEST: usize = 5;
/// ...and for at least this long...
const ENOUGH: Duration = Duration::from_millis(100);
/// ...unless they have taken this long already.
const TOO_LONG: Duration = Duration::from_secs(1);

/// How to measure.
pub struct Plan<'a, B: Backend> {
    /// The model.
    pub loaded: &'a Loaded<B>,
    /// Rounds.
    pub repeat: usize,
    /// Rows of the passes that are timed: see [`lengths`].
    pub rows: Vec<usize>,
    /// Tokens in the state before each pass.
    pub context: usize,
}

/// The passes that are timed if `wanted` are: ascending, each once, from one row, which the others are compared with.
pub fn lengths(wanted: &[usize]) -> Vec<usize> {
    let all: BTreeSet<usize> = wanted.iter().copied().chain([1]).collect();
    all.into_iter().collect()
}

/// One length.
pub struct Point {
    /// Rows of the pass.
    pub rows: usize,
    /// Seconds of each pass, fastest first; at least one.
    times: Vec<f64>,
    /// Bytes of weights that the pass reads.
    pub bytes: usize,
}

/// The curve.
pub struct Curve {
    /// By rows, ascending, from one row.
    pub points: Vec<Point>,
    /// Bytes per second that the device moves in its own memory.
    pub bandwidth: f64,
    /// The tokens: those in the state, then those of the longest pass.
    pub tokens: Vec<u32>,
    /// How many are in the state.
    pub context: usize,
}

impl Point {
    /// Seconds of the fastest pass.
    pub fn fastest(&self) -> f64 {
        self.times[0]
    }

    /// Seconds of the pass in the middle.
    pub fn median(&self) -> f64 {
        self.times[self.times.len() / 2]
    }

    /// Passes timed.
    pub fn passes(&self) -> usize {
        self.times.len()
    }

    /// Bytes of weights per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.fastest()
    }
}

impl<B: Backend> Plan<'_, B> {
    /// Measurements, in all.
    pub fn rounds(&self) -> usize {
        self.repeat * self.rows.len()
    }

    /// Measures the curve and the memory. `bar` advances with each length of each round.
    ///
    /// # Errors
    /// If the memory for the state does not suffice.
    pub fn measure(&self, bar: &ProgressBar) -> Result<Curve> {
        let (points, tokens) = self.points(bar)?;
        let bandwidth = self.loaded.model.backend().bandwidth();
        Ok(Curve { points, bandwidth, tokens, context: self.context })
    }

    /// Measures the curve alone, and tells the tokens.
    ///
    /// # Errors
    /// As for [`Plan::measure`].
    pub fn points(&self, bar: &ProgressBar) -> Result<(Vec<Point>, Vec<u32>)> {
        let model = &self.loaded.model;
        let most = self.rows.last().copied().unwrap_or(1);
        let tokens = tokens(&self.loaded.about, self.context + most)?;
        let (context, block) = tokens.split_at(self.context);
        let mut state = model.state(tokens.len(), self.loaded.about.settings.kv, most.min(BLOCK))?;
        let mut workspace = model.workspace();
        for chunk in context.chunks(CHUNK) {
            model.forward(&mut workspace, &mut state, chunk, chunk.len() - 1).guard.keep(chunk.len());
        }
        let mut points: Vec<Point> = Vec::new();
        for round in 0..self.repeat {
            for (i, &rows) in self.rows.iter().enumerate() {
                if round == 0 {
                    // The first pass of a length makes room in the workspace; it is not timed, but counted.
                    let before = model.bytes_read(&workspace);
                    drop(model.forward(&mut workspace, &mut state, &block[..rows], 0));
                    let bytes = model.bytes_read(&workspace) - before;
                    let times = Vec::new();
                    points.push(Point { rows, times, bytes });
                }
                let mut pass = || drop(model.forward(&mut workspace, &mut state, &block[..rows], 0));
                time(&mut pass, &mut points[i].times);
                bar.inc(1);
            }
        }
        points.iter_mut().for_each(|p| p.times.sort_by(f64::total_cmp));
        Ok((points, tokens))
    }
}

/// `n` tokens of ordinary text, or of none: then they are the same in every run.
fn tokens(about: &About, n: usize) -> Result<Vec<u32>> {
    let Some(tokenizer) = &about.tokenizer else {
        let mut random = Random::new("tokens", 0);
        return Ok((0..n).map(|_| random.below(about.vocab) as u32).collect());
    };
    let text: Vec<String> = tasks::builtin().into_iter().map(|p| p.text).collect();
    let tokens = tokenizer.encode(&text.join("\n\n"), Specials::AsText)?;
    Ok(tokens.into_iter().cycle().take(n).collect())
}

/// Times `pass` for one round.
fn time(pass: &mut dyn FnMut(), times: &mut Vec<f64>) {
    let round = Instant::now();
    let mut count = 0;
    while (count < FEWEST || round.elapsed() < ENOUGH) && (count == 0 || round.elapsed() < TOO_LONG) {
        let clock = Instant::now();
        pass();
        times.push(clock.elapsed().as_secs_f64());
        count += 1;
    }
}
