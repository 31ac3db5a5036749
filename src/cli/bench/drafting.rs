//! What drafting gains: plain decoding and every drafter on the same prompts.
//!
//! Owns: the order of the runs, which of them counts, and the comparison of their tokens. Refuses to know: how drafters
//! guess, and how results are shown.
//!
//! Runs are interleaved (plain, first drafter, second, plain again...), so that a machine that slows down for a while
//! slows all of them down. Of the repeated runs of a prompt the fastest counts.

use draft::Token;
use indicatif::ProgressBar;

use crate::backend::Backend;
use crate::cli::args::{BenchArgs, Drafts};
use crate::cli::device::Open;
use crate::cli::drafters::{Crew, Hired, Who};
use crate::cli::setup::{self, About, Loaded};
use crate::cli::tasks::Prompt;
use crate::engine::{Finish, Metrics, Sequence, Settings, Unwatched};
use crate::{Error, Result};

/// A prompt ready to run.
pub struct Job {
    /// Its task.
    pub task: String,
    /// Its tokens.
    pub ids: Vec<Token>,
}

/// How to measure.
pub struct Plan<'a, B: Backend> {
    /// The model.
    pub loaded: &'a Loaded<B>,
    /// Plain decoding, then the drafters.
    pub crews: Vec<Hired<B>>,
    /// How much is run.
    pub effort: Effort,
}

/// How much is run.
pub struct Effort {
    /// Most tokens drafted for one pass.
    pub block: usize,
    /// Most tokens generated for each prompt.
    pub tokens: usize,
    /// Runs of each prompt with each drafter.
    pub repeat: usize,
}

/// One drafter on one task (or on all).
#[derive(Debug, Clone)]
pub struct Tally {
    /// What users call the drafter; `plain` for none.
    pub drafter: String,
    /// The fastest runs of all prompts, summed.
    pub metrics: Metrics,
    /// Whether every run of every prompt gave the tokens of plain decoding.
    pub identical: bool,
}

/// One task: plain decoding first, then the drafters.
pub struct Task {
    /// Its name.
    pub name: String,
    /// One for each of [`Plan::crews`].
    pub tallies: Vec<Tally>,
}

/// The drafters that were asked for, plain decoding first.
///
/// # Errors
/// If the model does not have one of them.
pub fn crews<O: Open>(args: &BenchArgs, loaded: &Loaded<O::B>, devices: &O) -> Result<Vec<Hired<O::B>>> {
    let mut crews = vec![Hired::from(Crew::plain())];
    for drafts in if args.drafts.is_empty() { &[Drafts::One(Who::Auto)][..] } else { &args.drafts } {
        let more = match drafts {
            Drafts::All => Crew::all(&loaded.model).into_iter().map(Hired::from).collect(),
            Drafts::One(who) => vec![Hired::new(who, loaded, &args.model, devices)?],
        };
        crews.extend(more.into_iter().filter(|hired| hired.crew.drafts()));
    }
    Ok(crews)
}

/// The prompts' tokens. What does not fit the context is told here, before anything runs.
///
/// # Errors
/// If a prompt cannot be encoded, is empty or too long.
pub fn jobs(about: &About, prompts: &[Prompt]) -> Result<Vec<Job>> {
    let job = |(i, prompt): (usize, &Prompt)| {
        let number = |e: Error| e.about(format!("prompt {}", i + 1));
        let ids = setup::chat_prompt(about, &prompt.text).map_err(number)?;
        let context = about.settings.context;
        if ids.is_empty() || ids.len() >= context {
            let text = format!("expected 1 to {} tokens, found {} (--ctx)", context.saturating_sub(1), ids.len());
            return Err(number(Error::new(text)));
        }
        let task = prompt.task.clone();
        Ok(Job { task, ids })
    };
    prompts.iter().enumerate().map(job).collect()
}

/// One run of one prompt.
struct Run {
    tokens: Vec<Token>,
    metrics: Metrics,
}

impl<B: Backend> Plan<'_, B> {
    /// Runs, in all, for `jobs`.
    pub fn runs(&self, jobs: &[Job]) -> usize {
        jobs.len() * self.effort.repeat * self.crews.len()
    }

    /// Runs all of `jobs`; the tasks come in the order in which they first appear. `bar` advances with each run.
    ///
    /// # Errors
    /// If the memory for a sequence does not suffice.
    pub fn measure(&self, jobs: &[Job], bar: &ProgressBar) -> Result<Vec<Task>> {
        let mut tasks: Vec<Task> = Vec::new();
        let longest = jobs.iter().map(|job| job.ids.len()).max().unwrap_or(0);
        let mut sequences: Vec<_> =
            self.crews.iter().map(|hired| self.sequence(hired, longest)).collect::<Result<_>>()?;
        for job in jobs {
            let tallies = self.prompt(&job.ids, &mut sequences, bar)?;
            match tasks.iter_mut().find(|t| t.name == job.task) {
                Some(task) => add(&mut task.tallies, &tallies),
                None => tasks.push(Task { name: job.task.clone(), tallies }),
            }
        }
        Ok(tasks)
    }

    /// All runs of one prompt.
    fn prompt(&self, prompt: &[Token], sequences: &mut [Sequence<B>], bar: &ProgressBar) -> Result<Vec<Tally>> {
        let mut tallies: Vec<Tally> = Vec::new();
        let mut plain: Option<Vec<Token>> = None;
        for repeat in 0..self.effort.repeat {
            for (i, (hired, sequence)) in self.crews.iter().zip(&mut *sequences).enumerate() {
                let run = self.run(prompt, sequence)?;
                bar.inc(1);
                let identical = run.tokens == *plain.get_or_insert_with(|| run.tokens.clone());
                if repeat == 0 {
                    tallies.push(Tally { drafter: hired.crew.name.to_owned(), metrics: run.metrics, identical });
                    continue;
                }
                let tally = &mut tallies[i];
                tally.identical &= identical;
                if run.metrics.time < tally.metrics.time {
                    tally.metrics = run.metrics;
                }
            }
        }
        Ok(tallies)
    }

    /// A sequence for all runs of a drafter: what it has learnt of the machine stays, what of the text goes.
    fn sequence(&self, hired: &Hired<B>, longest: usize) -> Result<Sequence<B>> {
        let settings = self.loaded.about.settings;
        let context = settings.context.min(longest + self.effort.tokens);
        let settings = Settings { context, block: self.effort.block, ..settings };
        Sequence::with_heads(self.loaded.model.clone(), settings, hired.crew.drafter(), &hired.wanted())
    }

    /// One run, from an empty state.
    fn run(&self, prompt: &[Token], sequence: &mut Sequence<B>) -> Result<Run> {
        sequence.prompt(prompt, &mut Unwatched)?;
        let mut left = self.effort.tokens;
        let mut ends = |token| self.loaded.about.is_eog(token).then_some(Finish::Stop);
        loop {
            let step = sequence.step(left, &mut ends);
            left -= step.emitted.len();
            if step.finish.is_some() {
                break;
            }
        }
        Ok(Run { tokens: sequence.tokens().to_vec(), metrics: sequence.metrics().clone() })
    }
}

/// Adds `more` to `sums`, drafter by drafter.
fn add(sums: &mut [Tally], more: &[Tally]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        sum.metrics.merge(&more.metrics);
        sum.identical &= more.identical;
    }
}

/// All tasks together.
pub fn total(tasks: &[Task]) -> Option<Task> {
    let (first, rest) = tasks.split_first()?;
    let mut tallies = first.tallies.clone();
    rest.iter().for_each(|task| add(&mut tallies, &task.tallies));
    let name = "total".to_owned();
    Some(Task { name, tallies })
}

impl Task {
    /// How many times as fast as plain decoding `tally` is; 0 if plain decoding has no speed.
    pub fn speedup(&self, tally: &Tally) -> f64 {
        match self.tallies[0].metrics.tokens_per_second() {
            plain if plain > 0.0 => tally.metrics.tokens_per_second() / plain,
            _ => 0.0,
        }
    }
}
