//! `verbatim bench`: what drafting gains on this machine, and what a pass costs.
//!
//! Owns: which measurement runs, and how its result leaves. Refuses to know: how it is measured.

mod drafting;
mod made;
mod passes;
mod show;
mod sweep;
mod table;

use std::process::ExitCode;

use serde_json::{Value, json};

use super::args::BenchArgs;
use super::setup::{self, Loaded};
use super::{tasks, terminal};
use crate::backend::Backend;
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
    /// Whether every run gave the tokens of plain decoding.
    identical: bool,
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    if let Some(path) = &args.plot {
        // A drawing that cannot be kept is told before minutes of work, not after.
        whole::probe(path)?;
    }
    let prompts = match &args.prompts {
        Some(path) => tasks::from_file(path)?,
        None => tasks::builtin(),
    };
    let loaded = match &args.synthetic {
        Some(shape) => made::load(args, shape)?,
        None => setup::load(&args.model)?,
    };
    let mut report = match args.passes || args.synthetic.is_some() {
        true => passes(args, &loaded)?,
        false => drafting(args, &loaded, &prompts)?,
    };
    if let Some(path) = &args.plot {
        whole::write(path, report.svg.as_bytes())?;
    }
    let about = describe(args, &loaded);
    if args.json {
        for (key, value) in about {
            report.json[key] = value;
        }
        terminal::print(&format!("{}\n", report.json))?;
    } else if args.csv {
        terminal::print(&report.csv)?;
    } else {
        terminal::print(&report.text)?;
    }
    if !report.identical {
        eprintln!("verbatim: tokens differ from those of plain decoding; `verbatim check` tells where");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// What was measured, as JSON fields.
fn describe(args: &BenchArgs, loaded: &Loaded) -> [(&'static str, Value); 3] {
    [
        ("model", json!(loaded.name)),
        ("device", json!(loaded.model.backend().describe())),
        ("repeat", json!(args.repeat)),
    ]
}

fn drafting(args: &BenchArgs, loaded: &Loaded, prompts: &[tasks::Prompt]) -> Result<Report> {
    let jobs = drafting::jobs(loaded, prompts).map_err(|e| match &args.prompts {
        Some(path) => e.at(path),
        None => e,
    })?;
    let crews = drafting::crews(args, loaded)?;
    let plan = drafting::Plan { loaded, crews, block: args.block, tokens: args.tokens, repeat: args.repeat };
    let bar = terminal::bar("runs", plan.runs(&jobs));
    let measured = plan.measure(&jobs, &bar)?;
    bar.finish_and_clear();
    Ok(show::drafting(&plan, measured))
}

fn passes(args: &BenchArgs, loaded: &Loaded) -> Result<Report> {
    let plan = passes::Plan {
        loaded,
        threads: setup::threads(args.model.threads),
        repeat: args.repeat,
        rows: passes::lengths(&args.rows),
        context: args.context,
    };
    let bar = terminal::bar("passes", plan.rounds());
    let measured = plan.measure(&bar)?;
    bar.finish_and_clear();
    Ok(show::passes(&measured))
}
