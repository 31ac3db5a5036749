//! What drafting gains, as drawings and as a page.
//!
//! Owns: which drawings there are, and their words. Refuses to know: layout, and how anything was measured.

use super::super::drafting::Tally;
use super::super::page::{Figure, Page, Section};
use super::super::shares::{self, Banded};
use super::drafting::{Findings, table};
use super::rates;
use crate::cli::plot::{Bars, Drawing, Lines, Mark, Series, Stacks};
use crate::engine::{BANDS, Metrics};

/// A rate of fewer tokens says nothing.
const FEW: usize = 5;

/// The speed of every drafter on every task.
pub fn speedups(findings: &Findings) -> Drawing {
    let drafters = findings.totals().iter().skip(1);
    let series: Vec<_> = drafters.enumerate().map(|(i, tally)| (tally.drafter.clone(), i)).collect();
    let heights = |task: &super::super::drafting::Task| -> Vec<f64> {
        task.tallies.iter().skip(1).map(|t| task.speedup(t)).collect()
    };
    let groups: Vec<_> = findings.rows().map(|task| (task.name.clone(), heights(task))).collect();
    let (_, ceiling) = findings.ceiling.best();
    let bars = Bars {
        title: "Speed of drafting, plain decoding = 1",
        x: "",
        unit: "times as fast as plain decoding",
        digits: 2,
        series: &series,
        groups: &groups,
        marks: &[Mark { height: 1.0, name: "plain" }, Mark { height: ceiling, name: "ceiling" }],
    };
    bars.draw()
}

/// All of it.
pub fn page(findings: &Findings) -> Page {
    let drafters = findings.totals().get(1..).unwrap_or_default();
    let mut sections = Vec::new();
    let mut add = |heading, note: &str, markup: String| {
        sections.push(Section { heading, note: note.to_owned(), markup });
    };
    if !drafters.is_empty() {
        add("Speed by task", &rates::ceiling(findings), speedups(findings).inline());
    }
    let cost = "The further below the dashed line, the more a block of drafted tokens can gain.";
    add("What a pass of n rows costs", cost, curve(findings).inline());
    if drafters.iter().any(|tally| tally.metrics.drafted > 0) {
        let note = "Of the tokens drafted at each place of a block, how many were right. Far places are drafted only where \
                    the drafter is sure; those drafted fewer than five times are left out.";
        add("Acceptance by position", note, positions(drafters).inline());
        let note = "How many tokens of a block were right.";
        add("Accepted lengths", note, lengths(drafters).inline());
    }
    if drafters.iter().any(|tally| has(tally, shares::matches)) {
        let note = "For copies: the longer the match that was copied from, the surer the copy. 0 is a copy resumed behind \
                    a changed token.";
        add("Acceptance by match", note, matches(drafters).inline());
    }
    if !drafters.is_empty() {
        let note = format!("{} {}", rates::ceiling(findings), rates::PERFECT_CUTS);
        add("Against the ceiling", &note, rates::gains(findings, drafters).html());
    }
    if drafters.iter().any(|tally| tally.metrics.drafted > 0) {
        add("Who drafted", rates::WHO, rates::who(drafters).html());
    }
    add("Where the time goes", rates::SPLIT, split(findings).inline());
    add("Every figure", &format!("Counted: {}.", findings.preamble()), table(findings).html());
    Page { title: "What drafting gains on this machine", figures: figures(findings), sections }
}

/// The choice among drafters if it was measured, else the fastest drafter, else plain decoding.
fn headline<'a>(findings: &'a Findings) -> Option<&'a Tally> {
    let totals = findings.totals();
    let drafters = totals.get(1..).unwrap_or_default();
    let fastest = || drafters.iter().max_by(|a, b| findings.speedup(a).total_cmp(&findings.speedup(b)));
    drafters.iter().find(|t| t.drafter == "auto").or_else(fastest).or_else(|| totals.first())
}

fn figures(findings: &Findings) -> Vec<Figure> {
    let Some(tally) = headline(findings) else {
        return Vec::new();
    };
    let m = &tally.metrics;
    let (_, ceiling) = findings.ceiling.best();
    let figure = |value: String, name: String| Figure { value, name };
    vec![
        figure(format!("{:.2}×", findings.speedup(tally)), format!("plain decoding, by {}", tally.drafter)),
        figure(format!("{:.2}×", ceiling), "the ceiling of this machine".to_owned()),
        figure(format!("{:.0}", m.tokens_per_second()), "tokens a second".to_owned()),
        figure(format!("{:.2}", m.tokens_per_pass()), "tokens a pass".to_owned()),
        match findings.identical() {
            true => figure("identical".to_owned(), "every token that of plain decoding".to_owned()),
            false => figure("NOT identical".to_owned(), "tokens differ from plain decoding".to_owned()),
        },
    ]
}

fn curve(findings: &Findings) -> Drawing {
    let points = findings.ceiling.costs.iter().map(|&(rows, cost)| (rows as f64, cost)).collect();
    let lines = Lines {
        title: "Cost of a pass of n rows, T(n)/T(1)",
        x: "rows in the pass",
        y: "T(n)/T(1)",
        most: 1.0,
        diagonal: Some("n passes of one row"),
        series: &[Series { name: "rows".to_owned(), points }],
    };
    lines.draw()
}

fn positions(drafters: &[Tally]) -> Drawing {
    let series = |tally: &Tally| {
        let rates = shares::by_position(&tally.metrics);
        let told = rates.iter().zip(&tally.metrics.drafted_at).take_while(|(_, drafted)| **drafted >= FEW);
        let points = told.enumerate().map(|(i, (rate, _))| ((i + 1) as f64, 100.0 * rate));
        Series { name: tally.drafter.clone(), points: points.collect() }
    };
    let lines = Lines {
        title: "Acceptance by position",
        x: "position in the block",
        y: "% of drafted tokens accepted",
        most: 100.0,
        diagonal: None,
        series: &drafters.iter().map(series).collect::<Vec<_>>(),
    };
    lines.draw()
}

fn matches(drafters: &[Tally]) -> Drawing {
    let axes = ["tokens of the match", "% of drafted tokens accepted"];
    by_band(drafters, "Acceptance by match", axes, shares::matches)
}

fn lengths(drafters: &[Tally]) -> Drawing {
    by_band(drafters, "Accepted lengths", ["tokens accepted", "% of passes with a block"], shares::lengths)
}

/// Whether a drafter has a rate in any band.
fn has(tally: &Tally, rates: fn(&Metrics) -> Banded) -> bool {
    rates(&tally.metrics).iter().any(Option::is_some)
}

/// A group of bars for each band in which any drafter has a rate.
fn by_band(drafters: &[Tally], title: &str, [x, unit]: [&str; 2], rates: fn(&Metrics) -> Banded) -> Drawing {
    let shown = || drafters.iter().enumerate().filter(|(_, tally)| has(tally, rates));
    // A drafter has the same colour in every drawing, whoever else is in it.
    let series: Vec<_> = shown().map(|(i, tally)| (tally.drafter.clone(), i)).collect();
    let rates: Vec<Banded> = shown().map(|(_, tally)| rates(&tally.metrics)).collect();
    let some = (0..BANDS.len()).filter(|&i| rates.iter().any(|rates| rates[i].is_some()));
    let heights = |i: usize| rates.iter().map(|rates| 100.0 * rates[i].unwrap_or(f64::NAN)).collect();
    let groups: Vec<(String, Vec<f64>)> = some.map(|i| (BANDS[i].to_owned(), heights(i))).collect();
    Bars { title, x, unit, digits: 0, series: &series, groups: &groups, marks: &[] }.draw()
}

/// Where a token's time goes, that of plain decoding being 100.
fn split(findings: &Findings) -> Drawing {
    let totals = findings.totals();
    let each = |m: &Metrics, seconds: f64| if m.emitted == 0 { 0.0 } else { seconds / m.emitted as f64 };
    let whole = totals.first().map_or(0.0, |plain| each(&plain.metrics, plain.metrics.time.as_secs_f64()));
    let percent = |seconds: f64| if whole > 0.0 { 100.0 * seconds / whole } else { 0.0 };
    let row = |tally: &Tally| {
        let parts = tally.metrics.time_split().map(|(_, seconds)| percent(each(&tally.metrics, seconds)));
        (tally.drafter.clone(), parts.to_vec())
    };
    let stacks = Stacks {
        title: "Time of a token by part",
        unit: "time of a token, plain decoding = 100",
        parts: &Metrics::default().time_split().map(|(part, _)| part),
        rows: &totals.iter().map(row).collect::<Vec<_>>(),
    };
    stacks.draw()
}
