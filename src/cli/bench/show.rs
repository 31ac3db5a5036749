//! Results as tables, comma-separated values, JSON and drawings.
//!
//! Owns: units, rounding, names of columns and fields. Refuses to know: how anything was measured.

use serde_json::{Value, json};

use super::Report;
use super::drafting::{Plan, Tally, Task, total};
use super::passes::Curve;
use super::table::{Align, Table, sparkline};
use crate::cli::{plot, terminal};

/// What drafting gains.
pub fn drafting(plan: &Plan, tasks: Vec<Task>) -> Report {
    let total = total(&tasks);
    let rows = || tasks.iter().chain(&total);
    let tallies = |task: &Task| -> Vec<Value> { task.tallies.iter().map(|t| tally_json(task, t)).collect() };
    let task_json = |task: &Task| json!({"task": task.name, "drafters": tallies(task)});
    Report {
        text: drafting_text(plan, rows()),
        csv: drafting_csv(rows()),
        json: json!({
            "block": plan.block,
            "tokens": plan.tokens,
            "tasks": tasks.iter().map(task_json).collect::<Vec<_>>(),
            "total": total.as_ref().map(tallies),
        }),
        svg: drafting_svg(rows()),
        identical: rows().all(|task| task.tallies.iter().all(|t| t.identical)),
    }
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "NO" }.to_owned()
}

fn drafting_text<'a>(plan: &Plan, tasks: impl Iterator<Item = &'a Task>) -> String {
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
    for task in tasks {
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
                yes_no(tally.identical),
                sparkline(&m.lengths),
            ]);
        }
    }
    format!(
        "at most {} tokens drafted for a pass and {} generated for a prompt; the fastest of {} runs counts\n\n{}",
        plan.block,
        plan.tokens,
        plan.repeat,
        table.aligned()
    )
}

fn drafting_csv<'a>(tasks: impl Iterator<Item = &'a Task>) -> String {
    let mut table = Table::plain(&[
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
    ]);
    for task in tasks {
        for tally in &task.tallies {
            let m = &tally.metrics;
            let lengths: Vec<String> = m.lengths.iter().map(usize::to_string).collect();
            table.push(vec![
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
                lengths.join(" "),
                tally.identical.to_string(),
            ]);
        }
    }
    table.csv()
}

fn tally_json(task: &Task, tally: &Tally) -> Value {
    json!({
        "drafter": tally.drafter,
        "tokens_per_second": tally.metrics.tokens_per_second(),
        "speedup": task.speedup(tally),
        "acceptance": tally.metrics.acceptance(),
        "tokens_per_pass": tally.metrics.tokens_per_pass(),
        "identical": tally.identical,
        "metrics": tally.metrics,
    })
}

fn drafting_svg<'a>(tasks: impl Iterator<Item = &'a Task>) -> String {
    let mut series = Vec::new();
    let mut groups = Vec::new();
    for task in tasks {
        let drafters = || task.tallies.iter().skip(1);
        series = drafters().map(|t| t.drafter.clone()).collect();
        groups.push((task.name.clone(), drafters().map(|t| task.speedup(t)).collect()));
    }
    let bars = plot::Bars {
        title: "Speed of drafting, plain decoding = 1",
        unit: "times as fast as plain decoding",
        series: &series,
        groups: &groups,
        mark: 1.0,
    };
    bars.svg()
}

/// What a pass costs.
pub fn passes(curve: &Curve) -> Report {
    Report {
        text: passes_text(curve),
        csv: passes_csv(curve),
        json: passes_json(curve),
        svg: passes_svg(curve),
        identical: true,
    }
}

/// A point's time relative to a pass of one row.
fn relative(curve: &Curve, seconds: f64) -> f64 {
    seconds / curve.points[0].fastest()
}

fn passes_text(curve: &Curve) -> String {
    let columns = ["rows", "ms/pass", "median", "T(n)/T(1)", "rows/s", "weights read", "GB/s", "% of memory"];
    let mut table = Table::new(&columns.map(|name| (name, Align::Right)));
    for p in &curve.points {
        table.push(vec![
            p.rows.to_string(),
            format!("{:.3}", 1e3 * p.fastest()),
            format!("{:.3}", 1e3 * p.median()),
            format!("{:.2}", relative(curve, p.fastest())),
            format!("{:.0}", p.rows as f64 / p.fastest()),
            terminal::bytes(p.bytes),
            format!("{:.2}", p.rate() / 1e9),
            format!("{:.1}", 100.0 * p.rate() / curve.bandwidth),
        ]);
    }
    format!(
        "passes of n rows after {} tokens, logits for every row; the fastest counts\n\
         this machine reads {:.1} GB/s of memory with the same threads\n\n{}",
        curve.context,
        curve.bandwidth / 1e9,
        table.aligned()
    )
}

fn passes_csv(curve: &Curve) -> String {
    let mut table = Table::plain(&[
        "rows",
        "seconds",
        "median_seconds",
        "passes",
        "relative",
        "rows_per_second",
        "bytes",
        "bytes_per_second",
        "memory_bytes_per_second",
    ]);
    for p in &curve.points {
        table.push(vec![
            p.rows.to_string(),
            p.fastest().to_string(),
            p.median().to_string(),
            p.passes().to_string(),
            relative(curve, p.fastest()).to_string(),
            (p.rows as f64 / p.fastest()).to_string(),
            p.bytes.to_string(),
            p.rate().to_string(),
            curve.bandwidth.to_string(),
        ]);
    }
    table.csv()
}

fn passes_json(curve: &Curve) -> Value {
    let point = |p: &super::passes::Point| {
        json!({
            "rows": p.rows,
            "seconds": p.fastest(),
            "median_seconds": p.median(),
            "passes": p.passes(),
            "relative": relative(curve, p.fastest()),
            "rows_per_second": p.rows as f64 / p.fastest(),
            "bytes": p.bytes,
            "bytes_per_second": p.rate(),
        })
    };
    json!({
        "context": curve.context,
        "tokens": curve.tokens,
        "memory_bytes_per_second": curve.bandwidth,
        "points": curve.points.iter().map(point).collect::<Vec<_>>(),
    })
}

fn passes_svg(curve: &Curve) -> String {
    let relative = |p: &super::passes::Point| (p.rows as f64, relative(curve, p.fastest()));
    let points: Vec<(f64, f64)> = curve.points.iter().map(relative).collect();
    let curve = plot::Curve {
        title: "Cost of a pass of n rows, T(n)/T(1)",
        x: "rows in the pass",
        y: "T(n)/T(1)",
        diagonal: "n passes of one row",
        points: &points,
    };
    curve.svg()
}
