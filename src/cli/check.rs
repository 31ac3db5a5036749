//! `verbatim check`: drafting changes nothing, shown on the user's own model and prompts.
//!
//! Owns: the order of runs and the exit code. Refuses to know: how a run is compared (`compare`) or kept (`record`).

mod compare;
mod manner;
mod plain;
mod plans;
mod prompts;
mod record;
mod report;

use std::path::Path;
use std::process::ExitCode;

use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::args::CheckArgs;
use super::device::{self, Open, Runs};
use super::drafters::Crew;
use super::setup::{self, About, Loaded};
use super::terminal;
use crate::backend::Backend;
use crate::engine::{DEFAULT_BLOCK, Sequence, Settings, Unwatched};
use crate::{Result, whole};
use compare::{Course, Tally, compare};
use manner::Manner;
use plain::{Limits, Plain};
use plans::{Config, REACH};
use prompts::Prompt;
use record::{Compared, Kept, Record};
use report::{Place, Report};

/// Runs the command.
///
/// # Errors
/// If the model, the prompts or a record cannot be read, do not fit together, or a record cannot be written.
pub fn run(args: &CheckArgs) -> Result<ExitCode> {
    if let Some(path) = &args.against {
        return device::run(&args.model, Against { args, path, record: Record::read(path)? });
    }
    if let Some(path) = &args.record {
        whole::probe(path)?;
    }
    device::run(&args.model, args)
}

impl Runs for &CheckArgs {
    fn on<O: Open>(self, devices: &O) -> Result<ExitCode> {
        check(self, &setup::load(&self.model, devices)?)
    }
}

/// Compares drafted runs with plain ones.
fn check<B: Backend>(args: &CheckArgs, loaded: &Loaded<B>) -> Result<ExitCode> {
    let about = &loaded.about;
    let prompts = prompts::load(args.prompts.as_deref(), about)?;
    let mut check = Check {
        loaded,
        crews: Crew::all(&loaded.model),
        report: Report::default(),
        record: Record::new(about, args.tokens),
        bar: terminal::bar("checking", 0),
    };
    for (i, prompt) in prompts.iter().enumerate() {
        check.prompt(i + 1, prompt, prompts.len()).map_err(|e| match &args.prompts {
            Some(path) => e.at(path),
            None => e,
        })?;
    }
    check.bar.finish_and_clear();
    if let Some(path) = &args.record {
        check.record.write(path)?;
    }
    let report = &check.report;
    let text = match args.json {
        true => format!("{}\n", json(args, about, prompts.len(), report)),
        false => heading(args, about, prompts.len()) + &report.text(about),
    };
    terminal::print(&text)?;
    Ok(verdict(report.same()))
}

fn heading(args: &CheckArgs, about: &About, prompts: usize) -> String {
    let (model, device) = (setup::model_name(&args.model), &about.device);
    let (kv, tokens) = (about.settings.kv.name(), args.tokens);
    format!(
        "{model} on {device}, K and V as {kv}\n\
         {prompts} prompts, up to {tokens} tokens each, every run against plain decoding\n\n"
    )
}

fn json(args: &CheckArgs, about: &About, prompts: usize, report: &Report) -> Value {
    let mut object = json!({
        "program": env!("CARGO_PKG_VERSION"),
        "model": setup::model_name(&args.model),
        "device": about.device,
        "kv": about.settings.kv.name(),
        "prompts": prompts,
        "tokens": args.tokens,
    });
    for (key, value) in report.fields() {
        object[key] = value;
    }
    object
}

fn verdict(same: bool) -> ExitCode {
    if same { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A check under way.
struct Check<'a, B: Backend> {
    loaded: &'a Loaded<B>,
    crews: Vec<Crew>,
    report: Report,
    record: Record,
    bar: ProgressBar,
}

impl<B: Backend> Check<'_, B> {
    /// All runs of the `number`-th of `count` prompts.
    fn prompt(&mut self, number: usize, prompt: &Prompt, count: usize) -> Result<()> {
        let context = self.loaded.about.settings.context;
        let limits = self.limits(prompt);
        let run = |manner: &Manner| Plain::run(self.loaded, &prompt.ids, limits.context, limits.tokens + REACH, manner);
        let plain = run(&Manner::greedy())?;
        self.record.prompts.push(Kept::new(&prompt.task, &plain, limits));
        let configs = plans::all(&self.crews, &plain, limits, context);
        self.bar.set_length((count * configs.len()) as u64);
        for config in &configs {
            let tally = self.drafted(&plain, config)?;
            self.report.add(place(number, prompt, config), tally);
            self.bar.inc(1);
        }
        for crew in self.crews.clone() {
            let (group, who) = ("prefix reuse".to_owned(), plans::Who::Real(Box::new(crew)));
            let config = Config { group, who, block: DEFAULT_BLOCK, limits };
            let tally = self.reused(&plain, &config)?;
            self.report.add(place(number, prompt, &config), tally);
        }
        for manner in Manner::others(self.loaded.about.tokenizer.as_ref(), number)? {
            let plain = run(&manner)?;
            for config in plans::few(&self.crews, manner.name, limits) {
                let tally = self.drafted(&plain, &config)?;
                self.report.add(place(number, prompt, &config), tally);
            }
        }
        Ok(())
    }

    /// Limits of an ordinary run: room for what is asked for and for every run that goes beyond it.
    fn limits(&self, prompt: &Prompt) -> Limits {
        let tokens = self.record.tokens;
        Limits {
            context: (prompt.ids.len() + tokens + REACH).min(self.loaded.about.settings.context),
            tokens,
            stop_at: None,
        }
    }

    /// One run from the prompt's state, which no draft has touched.
    fn drafted(&self, plain: &Plain, config: &Config) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut sequence = self.sequence(plain, config, 0)?;
        sequence.restore(&plain.prompt, &plain.start)?;
        plain.choose_alike(&mut sequence)?;
        let course = Course { limits: config.limits, from: 0 };
        compare(&self.loaded.about, plain, course, &mut sequence, &mut tally);
        Ok(tally)
    }

    /// A sequence prompted anew: with the same prompt, and with half of the output added to it. What was evaluated
    /// before is used again, so the state comes about in another way than in a run from nothing.
    fn reused(&self, plain: &Plain, config: &Config) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut sequence = self.sequence(plain, config, setup::CHECKPOINTS)?;
        let half = plain.expected(config.limits).0 / 2;
        let longer = [&plain.prompt[..], &plain.tokens[..half]].concat();
        for (prompt, from) in [(&plain.prompt, 0), (&plain.prompt, 0), (&longer, half), (&plain.prompt, 0)] {
            sequence.prompt(prompt, &mut Unwatched)?;
            let limits = config.limits;
            compare(&self.loaded.about, plain, Course { limits, from }, &mut sequence, &mut tally);
        }
        Ok(tally)
    }

    fn sequence(&self, plain: &Plain, config: &Config, checkpoints: usize) -> Result<Sequence<B>> {
        let model = &self.loaded.model;
        let settings =
            Settings { context: config.limits.context, block: config.block, checkpoints, ..self.loaded.about.settings };
        let drafter = config.who.drafter(plain, self.loaded.about.vocab);
        Sequence::with_heads(model.clone(), settings, drafter, &config.who.wanted())
    }
}

fn place(number: usize, prompt: &Prompt, config: &Config) -> Place {
    Place {
        prompt: number,
        task: prompt.task.clone(),
        group: config.group.clone(),
        block: config.block,
        context: config.limits.context,
    }
}

/// A kept run that is to be compared with one on this device.
struct Against<'a> {
    args: &'a CheckArgs,
    path: &'a Path,
    record: Record,
}

impl Runs for Against<'_> {
    fn on<O: Open>(self, devices: &O) -> Result<ExitCode> {
        against(&self, &setup::load(&self.args.model, devices)?)
    }
}

/// Compares the plain run with a kept one.
fn against<B: Backend>(Against { args, path, record }: &Against, loaded: &Loaded<B>) -> Result<ExitCode> {
    let about = &loaded.about;
    record.fits(about).map_err(|e| e.at(path))?;
    let bar = terminal::bar("checking", record.prompts.len());
    let mut compared = Compared::default();
    for kept in &record.prompts {
        let limits = record.limits(kept);
        let plain = Plain::run(loaded, &kept.prompt_ids, limits.context, limits.tokens, &Manner::greedy());
        let plain = plain.map_err(|e| e.at(path))?;
        compared.prompt(kept, &Kept::new(&kept.task, &plain, limits));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let text = match args.json {
        true => format!("{}\n", report::against_json(record, &compared, about)),
        false => report::against(record, &compared, about),
    };
    terminal::print(&text)?;
    Ok(verdict(compared.same()))
}
