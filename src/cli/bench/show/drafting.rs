//! What drafting gains, as tables, comma-separated values, JSON, drawing and page.
//!
//! Owns: units, rounding, names of columns and fields. Refuses to know: how anything was measured.

use serde_json::{Value, json};

use super::super::Report;
use super::super::ceiling::Ceiling;
use super::super::drafting::{Effort, Tally, Task, total};
use super::super::shares;
use super::{pictures, rates};
use crate::cli::table::{Align, Table, sparkline};
use crate::engine::{BANDS, Share};

/// All that was found out.
pub struct Findings<'a> {
    /// How much was run.
    pub effort: &'a Effort,
    /// By task.
    pub tasks: Vec<Task>,
    /// All tasks together, if there are any.
    pub total: Option<Task>,
    /// What could be gained at most.
    pub ceiling: Ceiling,
}

impl Findings<'_> {
    /// The tasks, then all together.
    pub fn rows(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter().chain(&self.total)
    }

    /// The drafters on all tasks together, plain decoding first.
    pub fn totals(&self) -> &[Tally] {
        self.total.as_ref().map_or(&[], |total| &total.tallies)
    }

    /// How many times as fast as plain decoding a drafter was on all tasks together.
    pub fn speedup(&self, tally: &Tally) -> f64 {
        self.total.as_ref().map_or(0.0, |total| total.speedup(tally))
    }

    /// Whether every run gave the tokens of plain decoding.
    pub fn identical(&self) -> bool {
        self.rows().all(|task| task.tallies.iter().all(|t| t.identical))
    }

    /// How the tokens came about.
    pub fn preamble(&self) -> String {
        let Effort { block, tokens, repeat } = self.effort;
        format!(
            "at most {block} tokens drafted for a pass and {tokens} generated for a prompt; the fastest of {repeat} runs \
             counts"
        )
    }
}

/// What drafting gains.
pub fn drafting(effort: &Effort, tasks: Vec<Task>, ceiling: Ceiling) -> Report {
    let total = total(&tasks);
    let findings = Findings { effort, tasks, total, ceiling };
    Report {
        text: format!("{}\n\n{}{}", findings.preamble(), table(&findings).aligned(), rates::text(&findings)),
        csv: csv(&findings),
        json: json(&findings),
        svg: pictures::speedups(&findings).file(),
        page: pictures::page(&findings),
        identical: findings.identical(),
    }
}

/// Every drafter on every task.
pub fn table(findings: &Findings) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("task", Left),
        ("drafter", Left),
        ("tokens", Right),
        ("tok/s", Right),
        ("speedup", Right),
        ("acceptance", Right),
        ("tokens/pass", Right),
        ("passes", Right),
        ("identical", Left),
        ("accepted 0, 1, 2...", Left),
    ]);
    for task in findings.rows() {
        for (i, tally) in task.tallies.iter().enumerate() {
            let m = &tally.metrics;
            let drafted = |text: String| if m.drafted == 0 { "-".to_owned() } else { text };
            table.push(vec![
                if i == 0 { task.name.clone() } else { String::new() },
                tally.drafter.clone(),
                m.emitted.to_string(),
                format!("{:.1}", m.tokens_per_second()),
                format!("{:.2}", task.speedup(tally)),
                drafted(format!("{:.0} %", 100.0 * m.acceptance())),
                format!("{:.2}", m.tokens_per_pass()),
                m.passes.to_string(),
                if tally.identical { "yes" } else { "NO" }.to_owned(),
                sparkline(&m.lengths),
            ]);
        }
    }
    table
}

/// The columns of comma-separated values. Lists are separated by spaces.
const COLUMNS: [&str; 23] = [
    "task",
    "drafter",
    "tokens",
    "seconds",
    "tokens_per_second",
    "speedup",
    "passes",
    "tokens_per_pass",
    "drafted",
    "accepted",
    "acceptance",
    "accepted_lengths",
    "identical",
    "drafted_at",
    "accepted_at",
    "accepted_by_drafter",
    "accepted_by_match",
    "draft_seconds",
    "verify_seconds",
    "head_seconds",
    "rollback_seconds",
    "perfect_cuts",
    "ceiling",
];

fn csv(findings: &Findings) -> String {
    let mut table = Table::plain(&COLUMNS);
    let (_, ceiling) = findings.ceiling.best();
    for task in findings.rows() {
        for tally in &task.tallies {
            let m = &tally.metrics;
            let mut row = vec![
                task.name.clone(),
                tally.drafter.clone(),
                m.emitted.to_string(),
                m.time.as_secs_f64().to_string(),
                m.tokens_per_second().to_string(),
                task.speedup(tally).to_string(),
                m.passes.to_string(),
                m.tokens_per_pass().to_string(),
                m.drafted.to_string(),
                m.accepted.to_string(),
                m.acceptance().to_string(),
                list(&m.lengths),
                tally.identical.to_string(),
                list(&m.drafted_at),
                list(&m.accepted_at),
                shared(m.drafters.iter().map(|(name, share)| (*name, share))),
                shared(BANDS.into_iter().zip(&m.matches)),
            ];
            row.extend(
                [m.draft_time, m.verify_time, m.head_time, m.rollback_time].map(|t| t.as_secs_f64().to_string()),
            );
            row.extend([findings.ceiling.perfect_cuts(m), ceiling].map(|gain| gain.to_string()));
            table.push(row);
        }
    }
    table.csv()
}

fn list(counts: &[usize]) -> String {
    let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
    counts.join(" ")
}

/// `name=accepted/drafted` for each share that has passes.
fn shared<'a>(shares: impl Iterator<Item = (&'a str, &'a Share)>) -> String {
    let some = shares.filter(|(_, share)| share.passes > 0);
    let parts: Vec<String> = some.map(|(name, s)| format!("{name}={}/{}", s.accepted, s.drafted)).collect();
    parts.join(" ")
}

fn json(findings: &Findings) -> Value {
    let ceiling = &findings.ceiling;
    let tallies = |task: &Task| -> Vec<Value> { task.tallies.iter().map(|t| tally_json(ceiling, task, t)).collect() };
    let task_json = |task: &Task| json!({"task": task.name, "drafters": tallies(task)});
    let (rows, speedup) = ceiling.best();
    let curve = ceiling.costs.iter().map(|(rows, relative)| json!({"rows": rows, "relative": relative}));
    json!({
        "block": findings.effort.block,
        "tokens": findings.effort.tokens,
        "curve": curve.collect::<Vec<_>>(),
        "ceiling": {"rows": rows, "speedup": speedup},
        "tasks": findings.tasks.iter().map(task_json).collect::<Vec<_>>(),
        "total": findings.total.as_ref().map(tallies),
    })
}

fn tally_json(ceiling: &Ceiling, task: &Task, tally: &Tally) -> Value {
    let m = &tally.metrics;
    let by_match: serde_json::Map<String, Value> =
        BANDS.iter().zip(shares::matches(m)).map(|(band, rate)| ((*band).to_owned(), json!(rate))).collect();
    let split: serde_json::Map<String, Value> =
        shares::times(m).into_iter().map(|(part, share)| (part.to_owned(), json!(share))).collect();
    json!({
        "drafter": tally.drafter,
        "tokens_per_second": m.tokens_per_second(),
        "speedup": task.speedup(tally),
        "perfect_cuts": ceiling.perfect_cuts(m),
        "acceptance": m.acceptance(),
        "acceptance_by_position": shares::by_position(m),
        "acceptance_by_match": by_match,
        "tokens_per_pass": m.tokens_per_pass(),
        "time_split": split,
        "identical": tally.identical,
        "metrics": m,
    })
}
