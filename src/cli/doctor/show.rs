//! Checks, for people and for programs.
//!
//! Owns: the lines and the object. Refuses to know: how checks are made.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{Check, Machine, Status};

fn word(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Warn => "warn",
        Status::Missing => "missing",
    }
}

/// What a command would run on by itself, and what else could be named.
fn runs_on(machine: &Machine) -> Vec<String> {
    let cards = machine.usable().map(|card| format!("cuda:{}", card.ordinal));
    cards.chain(["cpu".to_owned()]).collect()
}

/// What people read.
pub fn text(machine: &Machine, checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.what.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for check in checks {
        let _ = writeln!(out, "{:<8} {:<width$}  {}", word(check.status), check.what, check.found);
        if !check.advice.is_empty() {
            let _ = writeln!(out, "{:<8} {:<width$}  -> {}", "", "", check.advice);
        }
    }
    let _ = writeln!(out, "\nruns on  {}", runs_on(machine).join(", "));
    out
}

/// What programs read.
pub fn json(machine: &Machine, checks: &[Check]) -> Value {
    let each = |check: &Check| {
        json!({"what": check.what, "status": word(check.status), "found": check.found,
               "advice": Some(&check.advice).filter(|advice| !advice.is_empty())})
    };
    json!({"checks": checks.iter().map(each).collect::<Vec<_>>(), "runs_on": runs_on(machine)})
}
