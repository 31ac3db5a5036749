//! What the table of tasks does not tell: tables of rates over all tasks, one line of explanation each.
//!
//! Owns: their order and words. Refuses to know: how anything was measured.

use super::super::drafting::Tally;
use super::super::shares::{self, Banded};
use super::drafting::Findings;
use crate::cli::table::{Align, Table};
use crate::engine::{BANDS, Metrics};

/// What it means to be at the ceiling.
pub fn ceiling(findings: &Findings) -> String {
    let (rows, speedup) = findings.ceiling.best();
    let cost = findings.ceiling.cost(rows);
    format!(
        "The ceiling is {speedup:.2}: every drafted token right, in passes of {rows} rows, the best here (T({rows}) = \
         {cost:.2} T(1))."
    )
}

/// What perfect cuts are.
pub const PERFECT_CUTS: &str = "Perfect cuts: the same passes, had just the accepted tokens been drafted, at no cost.";

/// Who is named for a block. Copies behind a head's guesses count as the head's.
pub const WHO: &str = "Every pass with a block was filled by one of these.";

/// What the time is split into.
pub const SPLIT: &str = "Verify is the pass up to its last layer, head what is behind it (output norm and matrix), \
                         rollback keeping the rows that were right.";

/// All of it, behind the table of tasks.
pub fn text(findings: &Findings) -> String {
    let drafters = findings.totals().get(1..).unwrap_or_default();
    let split = section("Time, % of the drafter's own", SPLIT, &times(findings.totals()));
    if drafters.is_empty() {
        return split;
    }
    let about = format!("{}\n{PERFECT_CUTS}", ceiling(findings));
    let banded = |rates: fn(&Metrics) -> Banded| by_band(drafters, rates);
    [
        section("Against the ceiling, all tasks", &about, &gains(findings, drafters)),
        section(
            "Acceptance by position, %",
            "Of the tokens drafted at the 1st, 2nd... place of a block, how many were right.",
            &banded(shares::positions),
        ),
        section(
            "Acceptance by match, %",
            "The same for copies, by the length of the match that was copied from (0: a copy resumed).",
            &banded(shares::matches),
        ),
        section(
            "Accepted lengths, % of passes with a block",
            "How many tokens of a block were right.",
            &banded(shares::lengths),
        ),
        section("Who drafted", WHO, &who(drafters)),
        split,
    ]
    .concat()
}

/// A heading, a line, a table; nothing without rows.
fn section(heading: &str, about: &str, table: &Table) -> String {
    if table.is_empty() { String::new() } else { format!("\n{heading}\n{about}\n\n{}", table.aligned()) }
}

/// Each drafter's speedup beside what perfect cuts and the ceiling would give.
pub fn gains(findings: &Findings, drafters: &[Tally]) -> Table {
    let columns = ["speedup", "perfect cuts", "ceiling", "% of ceiling"];
    let mut table = headed(&columns);
    let (_, ceiling) = findings.ceiling.best();
    for tally in drafters {
        let speedup = findings.speedup(tally);
        let gains = [speedup, findings.ceiling.perfect_cuts(&tally.metrics), ceiling].map(|gain| format!("{gain:.2}"));
        let share = format!("{:.0}", 100.0 * speedup / ceiling);
        table.push([tally.drafter.clone()].into_iter().chain(gains).chain([share]).collect());
    }
    table
}

/// A row for each drafter, a column for each band in which any has a rate; no rows if none has.
fn by_band(drafters: &[Tally], rates: fn(&Metrics) -> Banded) -> Table {
    let rows: Vec<(&Tally, Banded)> = drafters.iter().map(|tally| (tally, rates(&tally.metrics))).collect();
    let some: Vec<usize> = (0..BANDS.len()).filter(|&i| rows.iter().any(|row| row.1[i].is_some())).collect();
    let mut table = headed(&some.iter().map(|&i| BANDS[i]).collect::<Vec<_>>());
    for (tally, rates) in rows.iter().filter(|row| row.1.iter().any(Option::is_some)) {
        let cell = |&i: &usize| rates[i].map_or("-".to_owned(), |rate| format!("{:.0}", 100.0 * rate));
        table.push([tally.drafter.clone()].into_iter().chain(some.iter().map(cell)).collect());
    }
    table
}

/// By drafter: who filled how many blocks, and how many of their tokens were right.
pub fn who(drafters: &[Tally]) -> Table {
    use Align::{Left, Right};
    let columns =
        [("", Left), ("drafted by", Left), ("passes", Right), ("drafted", Right), ("accepted", Right), ("%", Right)];
    let mut table = Table::new(&columns);
    for tally in drafters {
        for (i, (name, share)) in tally.metrics.drafters.iter().enumerate() {
            let counts = [share.passes, share.drafted, share.accepted].map(|n| n.to_string());
            let first = if i == 0 { tally.drafter.clone() } else { String::new() };
            let rate = format!("{:.0}", 100.0 * share.acceptance());
            table.push([first, (*name).to_owned()].into_iter().chain(counts).chain([rate]).collect());
        }
    }
    table
}

fn times(tallies: &[Tally]) -> Table {
    let mut table = headed(&shares::times(&Metrics::default()).map(|(part, _)| part));
    for tally in tallies {
        let shares = shares::times(&tally.metrics).map(|(_, share)| format!("{:.1}", 100.0 * share));
        table.push([tally.drafter.clone()].into_iter().chain(shares).collect());
    }
    table
}

/// A column of drafters, then `columns` of numbers.
fn headed(columns: &[&str]) -> Table {
    let numbers = columns.iter().map(|&name| (name, Align::Right));
    Table::new(&[("", Align::Left)].into_iter().chain(numbers).collect::<Vec<_>>())
}
