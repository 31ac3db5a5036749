//! The cost of passes as table, comma-separated values, JSON, drawing and page.
//!
//! Owns: units, rounding, names of columns and fields. Refuses to know: how anything was measured.

use serde_json::{Value, json};

use super::super::Report;
use super::super::page::{Figure, Page, Section};
use super::super::passes::{Curve, Point};
use crate::cli::table::{Align, Table};
use crate::cli::{plot, terminal};

/// What a pass costs.
pub fn passes(curve: &Curve) -> Report {
    Report {
        text: text(curve),
        csv: csv(curve),
        json: json(curve),
        svg: drawing(curve).file(),
        page: page(curve),
        identical: true,
    }
}

/// A point's time relative to a pass of one row.
fn relative(curve: &Curve, seconds: f64) -> f64 {
    seconds / curve.points[0].fastest()
}

fn table(curve: &Curve) -> Table {
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
    table
}

fn preamble(curve: &Curve) -> String {
    format!(
        "passes of n rows after {} tokens, logits for every row; the fastest counts\n\
         the device's memory gives {:.1} GB/s",
        curve.context,
        curve.bandwidth / 1e9
    )
}

fn text(curve: &Curve) -> String {
    format!("{}\n\n{}", preamble(curve), table(curve).aligned())
}

fn csv(curve: &Curve) -> String {
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

fn json(curve: &Curve) -> Value {
    let point = |p: &Point| {
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

fn drawing(curve: &Curve) -> plot::Drawing {
    let points = curve.points.iter().map(|p| (p.rows as f64, relative(curve, p.fastest())));
    let series = [plot::Series { name: "rows".to_owned(), points: points.collect() }];
    let lines = plot::Lines {
        title: "Cost of a pass of n rows, T(n)/T(1)",
        x: "rows in the pass",
        y: "T(n)/T(1)",
        most: 1.0,
        diagonal: Some("n passes of one row"),
        series: &series,
    };
    lines.draw()
}

fn page(curve: &Curve) -> Page {
    let one = &curve.points[0];
    let figure = |value: String, name: &str| Figure { value, name: name.to_owned() };
    Page {
        title: "What a pass of n rows costs",
        figures: vec![
            figure(format!("{:.2} ms", 1e3 * one.fastest()), "a pass of one row"),
            figure(format!("{:.1} GB/s", one.rate() / 1e9), "of weights read in it"),
            figure(format!("{:.0} %", 100.0 * one.rate() / curve.bandwidth), "of what the memory gives"),
        ],
        sections: vec![
            Section {
                heading: "T(n)/T(1)",
                note: "The further below the dashed line, the more a block of drafted tokens can gain.".to_owned(),
                markup: drawing(curve).inline(),
            },
            Section { heading: "All of it", note: preamble(curve), markup: table(curve).html() },
        ],
    }
}
