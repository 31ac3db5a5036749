//! `verbatim bench`: what drafting gains on this machine, and what a pass costs.
//!
//! Owns: which measurement runs, and how its result leaves. Refuses to know: how it is measured.

mod ceiling;
mod drafting;
mod made;
mod page;
mod passes;
mod shares;
mod show;

use std::process::ExitCode;

use serde_json::{Value, json};

use ceiling::Ceiling;

use super::args::BenchArgs;
use super::device::{self, Open, Runs};
use super::setup::{self, About, Loaded};
use super::{profile, tasks, terminal};
use crate::backend::{Backend, profile::Profile};
use crate::{Result, whole};

/// A result in each form in which it may be wanted.
pub struct Report {
    /// For people.
    text: String,
    /// Comma-separated values, the same columns in each line.
    csv: String,
    /// The fields of one JSON object.
    json: Value,
    /// A drawing.
    svg: String,
    /// All of it on a page.
    page: page::Page,
    /// Whether every run gave the tokens of plain decoding.
    identical: bool,
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    for path in args.plot.iter().chain(&args.html) {
        // What cannot be kept is told before minutes of work, not after.
        whole::probe(path)?;
    }
    let prompts = match &args.prompts {
        Some(path) => tasks::from_file(path)?,
        None => tasks::builtin(),
    };
    device::run(&args.model, Typed { args, prompts })
}

/// What is known before the model is loaded.
struct Typed<'a> {
    args: &'a BenchArgs,
    prompts: Vec<tasks::Prompt>,
}

impl Runs for Typed<'_> {
    fn on<O: Open>(self, devices: &O) -> Result<ExitCode> {
        let args = self.args;
        let loaded = match &args.synthetic {
            Some(shape) => made::load(args, shape, devices)?,
            None => setup::load(&args.model, devices)?,
        };
        profile::begin(loaded.model.backend(), args.profile)?;
        let report = match args.passes || args.synthetic.is_some() {
            true => passes(args, &loaded)?,
            false => drafting(args, &loaded, &self.prompts, devices)?,
        };
        let profile = profile::end(loaded.model.backend(), args.profile);
        deliver(args, &loaded.about, report, profile)
    }
}

/// Prints and writes the result.
fn deliver(args: &BenchArgs, about: &About, mut report: Report, profile: Option<Profile>) -> Result<ExitCode> {
    if let Some(path) = &args.plot {
        whole::write(path, report.svg.as_bytes())?;
    }
    if let Some(path) = &args.html {
        whole::write(path, report.page.html(&facts(args, about)).as_bytes())?;
    }
    let table = profile.as_ref().map(profile::text);
    if args.json {
        for (key, value) in describe(args, about) {
            report.json[key] = value;
        }
        if let Some(profile) = &profile {
            report.json["profile"] = profile::json(profile);
        }
        terminal::print(&format!("{}\n", report.json))?;
    } else if args.csv {
        terminal::print(&report.csv)?;
        if let Some(table) = table {
            eprint!("{table}");
        }
    } else {
        let table = table.map(|table| format!("\n{table}"));
        terminal::print(&(report.text + &table.unwrap_or_default()))?;
    }
    if !report.identical {
        eprintln!("verbatim: tokens differ from those of plain decoding; `verbatim check` tells where");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// What was measured, as JSON fields.
fn describe(args: &BenchArgs, about: &About) -> [(&'static str, Value); 3] {
    [("model", json!(about.name)), ("device", json!(about.device)), ("repeat", json!(args.repeat))]
}

/// How it was measured, for people.
fn facts(args: &BenchArgs, about: &About) -> Vec<(&'static str, String)> {
    let curve = args.passes || args.synthetic.is_some();
    let mut facts = vec![
        ("model", about.name.clone()),
        ("device", about.device.clone()),
        ("repeat", format!("{}, of which the fastest counts", args.repeat)),
        ("context of passes", format!("{} tokens", args.context)),
    ];
    if !curve {
        let prompts = args.prompts.as_ref().map_or("the built-in ones".to_owned(), |path| path.display().to_string());
        facts.push(("block", format!("at most {} drafted tokens for a pass", args.block)));
        facts.push(("tokens", format!("at most {} for a prompt", args.tokens)));
        facts.push(("prompts", prompts));
    }
    facts.push(("program", format!("verbatim {}", env!("CARGO_PKG_VERSION"))));
    facts.push(("command", page::typed(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()))));
    facts
}

fn drafting<O: Open>(
    args: &BenchArgs,
    loaded: &Loaded<O::B>,
    prompts: &[tasks::Prompt],
    devices: &O,
) -> Result<Report> {
    let jobs = drafting::jobs(&loaded.about, prompts).map_err(|e| match &args.prompts {
        Some(path) => e.at(path),
        None => e,
    })?;
    let crews = drafting::crews(args, loaded, devices)?;
    let effort = drafting::Effort { block: args.block, tokens: args.tokens, repeat: args.repeat };
    let plan = drafting::Plan { loaded, crews, effort };
    let bar = terminal::bar("runs", plan.runs(&jobs));
    let measured = plan.measure(&jobs, &bar)?;
    bar.finish_and_clear();
    Ok(show::drafting(&plan.effort, measured, ceiling(args, loaded)?))
}

/// What drafting could gain at most, from passes of up to as many rows as the block allows.
fn ceiling<B: Backend>(args: &BenchArgs, loaded: &Loaded<B>) -> Result<Ceiling> {
    let longest = args.block + 1;
    let rows: Vec<usize> = [2, 4, 8, 16, longest].into_iter().filter(|&rows| rows <= longest).collect();
    let plan = curve(args, loaded, &rows);
    let bar = terminal::bar("passes", plan.rounds());
    let (points, _) = plan.points(&bar)?;
    bar.finish_and_clear();
    Ok(Ceiling::new(&points))
}

/// How passes of `rows` rows are measured.
fn curve<'a, B: Backend>(args: &BenchArgs, loaded: &'a Loaded<B>, rows: &[usize]) -> passes::Plan<'a, B> {
    passes::Plan { loaded, repeat: args.repeat, rows: passes::lengths(rows), context: args.context }
}

fn passes<B: Backend>(args: &BenchArgs, loaded: &Loaded<B>) -> Result<Report> {
    let plan = curve(args, loaded, &args.rows);
    let bar = terminal::bar("passes", plan.rounds());
    let measured = plan.measure(&bar)?;
    bar.finish_and_clear();
    Ok(show::passes(&measured))
}
