//! What a check prints.
//!
//! Owns: the table, the sentences about a difference, the JSON object. Refuses to know: how runs are made.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Value, json};

use super::compare::{Tally, What};
use super::record::{Compared, Record, Side};
use crate::cli::setup::About;

/// Where a difference was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The prompt's number, from 1.
    pub prompt: usize,
    /// Its task.
    pub task: String,
    /// The group of runs.
    pub group: String,
    /// Most tokens drafted for one pass.
    pub block: usize,
    /// Positions of the context.
    pub context: usize,
}

/// One line of the table.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Block lengths.
    pub blocks: BTreeSet<usize>,
    /// Counts.
    pub tally: Tally,
}

/// All lines, and the first difference.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The lines, in the order of the runs.
    pub groups: Vec<Group>,
    /// Where the first difference is.
    pub place: Option<Place>,
    /// The first difference.
    pub first: Option<What>,
}

impl Report {
    /// Adds one run's counts.
    pub fn add(&mut self, place: Place, tally: Tally) {
        let at = self.groups.iter().position(|g| g.name == place.group);
        let at = at.unwrap_or_else(|| {
            let name = place.group.clone();
            self.groups.push(Group { name, ..Group::default() });
            self.groups.len() - 1
        });
        let group = &mut self.groups[at];
        group.blocks.insert(place.block);
        group.tally.runs += tally.runs;
        group.tally.rows += tally.rows;
        group.tally.bits += tally.bits;
        group.tally.states += tally.states;
        if let Some(what) = tally.first.filter(|_| self.first.is_none()) {
            self.first = Some(what);
            self.place = Some(place);
        }
    }

    /// Whether nothing differed.
    pub fn same(&self) -> bool {
        self.first.is_none()
    }

    fn rows(&self) -> usize {
        self.groups.iter().map(|g| g.tally.rows).sum()
    }

    fn bits(&self) -> u64 {
        self.groups.iter().map(|g| g.tally.bits).sum()
    }

    /// The table and the total, for people.
    pub fn text(&self, about: &About) -> String {
        let mut out = format!(
            "{:<26} {:<24} {:>5} {:>7} {:>14}  state same\n",
            "drafter", "blocks", "runs", "rows", "bits differing"
        );
        for group in &self.groups {
            let blocks: Vec<String> = group.blocks.iter().map(usize::to_string).collect();
            let (t, blocks) = (&group.tally, blocks.join(" "));
            let same = if t.states == 0 { "yes" } else { "NO" };
            let line = format!("{:<26} {blocks:<24} {:>5} {:>7} {:>14}  {same}", group.name, t.runs, t.rows, t.bits);
            out += &(line + "\n");
        }
        let _ = writeln!(out, "rows compared {}, bits that differ {}", self.rows(), self.bits());
        if let (Some(place), Some(what)) = (&self.place, &self.first) {
            out += &difference(place, what, about);
        }
        out
    }

    /// The same as an object's fields.
    pub fn fields(&self) -> [(&'static str, Value); 6] {
        let group = |g: &Group| {
            json!({
                "drafter": g.name, "blocks": g.blocks, "runs": g.tally.runs, "rows": g.tally.rows,
                "bits_differing": g.tally.bits, "state_same": g.tally.states == 0,
            })
        };
        let place = self.place.as_ref().map(
            |p| json!({"prompt": p.prompt, "task": p.task, "drafter": p.group, "block": p.block, "context": p.context}),
        );
        [
            ("groups", self.groups.iter().map(group).collect()),
            ("rows", json!(self.rows())),
            ("bits_differing", json!(self.bits())),
            ("same", json!(self.same())),
            ("place", json!(place)),
            ("difference", json!(self.first)),
        ]
    }
}

/// A token for people: its number, and its text if it has any.
fn token(about: &About, id: u32) -> String {
    match about.tokenizer.as_ref().and_then(|t| t.token_bytes(id).ok()) {
        Some(bytes) => format!("{id} {:?}", String::from_utf8_lossy(bytes)),
        None => id.to_string(),
    }
}

fn difference(place: &Place, what: &What, about: &About) -> String {
    let Place { prompt, task, group, block, context } = place;
    let mut out =
        format!("first difference: prompt {prompt} ({task}), drafter {group}, block {block}, context {context}\n");
    match what {
        What::Row { generated, position, plain, other, bits, margin } => {
            let (a, b) = (token(about, plain.token), token(about, other.token));
            let _ = writeln!(
                out,
                "  at position {position}, generated token {generated}: {bits} bits of its logits differ"
            );
            let _ = writeln!(out, "  plain:   token {a}, logit {}, {margin} above the next", plain.logit);
            let _ = writeln!(out, "  drafted: token {b}, logit {}", other.logit);
        }
        What::Finish { plain_tokens, plain, other_tokens, other } => {
            let _ = writeln!(out, "  plain:   {plain_tokens} tokens, then {}", plain.name());
            let _ = writeln!(out, "  drafted: {other_tokens} tokens, then {}", other.name());
        }
        What::State { generated } => {
            let _ = writeln!(out, "  after {generated} tokens the states differ; tokens and logits are the same");
        }
    }
    out
}

fn side(name: &str, side: &Side, about: &About) -> String {
    let chosen = side.token.map_or("no token".to_owned(), |t| format!("token {}", token(about, t)));
    let mut out = format!("  {name} {chosen}, margin of the two largest logits {}\n", side.margin);
    for &(id, logit) in &side.top {
        let _ = writeln!(out, "    {:>12}  {}", logit, token(about, id));
    }
    out
}

/// A comparison with a record, for people.
pub fn against(record: &Record, compared: &Compared, about: &About) -> String {
    let mut out = format!(
        "recorded by {} on {}; now {} on {}\nrows compared {}, rows that differ {}\n",
        record.program,
        record.device,
        env!("CARGO_PKG_VERSION"),
        about.device,
        compared.rows,
        compared.rows_differing,
    );
    if let Some(d) = &compared.first {
        let (prompt, task, position) = (d.prompt, &d.task, d.position);
        let _ = writeln!(
            out,
            "first difference: prompt {prompt} ({task}), position {position}, generated token {}: {}",
            d.generated, d.differs
        );
        out += &side("recorded:", &d.recorded, about);
        out += &side("now:     ", &d.now, about);
    }
    out
}

/// The same as an object.
pub fn against_json(record: &Record, compared: &Compared, about: &About) -> Value {
    json!({
        "recorded": {"program": record.program, "device": record.device},
        "now": {"program": env!("CARGO_PKG_VERSION"), "device": about.device},
        "kv": record.kv,
        "prompts": compared.prompts,
        "rows": compared.rows,
        "rows_differing": compared.rows_differing,
        "ends_differing": compared.ends_differing,
        "same": compared.same(),
        "difference": compared.first,
    })
}
