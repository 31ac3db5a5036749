//! A generation's passes, one by one, in a file: why each block was what it was, and what became of it.
//!
//! Owns: the fields of a line, and that the file is there whole or not at all. Refuses to know: how passes come about.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde_json::json;

use crate::backend::Backend;
use crate::engine::Sequence;
use crate::{Error, Result, whole};

/// The file of a generation under way.
pub struct Trace<'a> {
    path: &'a Path,
    file: &'a mut File,
    steps: usize,
}

/// Does `work`, which tells the trace of each step if one is wanted; the trace is then kept at `path`.
///
/// # Errors
/// `work`'s own, or if the trace cannot be kept.
pub fn keep<R>(path: Option<&Path>, work: impl FnOnce(Option<&mut Trace>) -> Result<R>) -> Result<R> {
    let Some(path) = path else {
        return work(None);
    };
    let mut done = None;
    let kept = whole::stream(path, |file| {
        let result = work(Some(&mut Trace { path, file, steps: 0 }));
        let outcome = result.as_ref().map(|_| ()).map_err(Error::clone);
        done = Some(result);
        outcome
    });
    match done {
        // What failed in the work is told as it is: it need not concern this file.
        Some(Err(error)) => Err(error),
        Some(Ok(result)) => kept.map(|()| result),
        None => kept.and(Err(Error::new("cannot write").at(path))),
    }
}

impl Trace<'_> {
    /// Writes down the last step of `sequence`: one line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn step<B: Backend>(&mut self, sequence: &Sequence<B>) -> Result<()> {
        let Some((pass, times)) = sequence.last_pass() else {
            return Ok(());
        };
        let decision = sequence.decision();
        let seconds = times.all.saturating_sub(times.draft);
        let line = json!({
            "step": self.steps,
            "position": sequence.tokens().len() - pass.emitted,
            "drafter": (pass.drafted > 0).then_some(pass.drafter),
            "matched": pass.matched.filter(|_| pass.drafted > 0).unwrap_or(0),
            "drafted": pass.drafted,
            "rows": pass.drafted + 1,
            "expected_tokens": decision.map(|_| sequence.expected()),
            "emitted": pass.emitted,
            "accepted": pass.accepted,
            "expected_seconds": decision.and_then(|d| d.seconds),
            "seconds": seconds.as_secs_f64(),
            "draft_seconds": times.draft.as_secs_f64(),
        });
        self.steps += 1;
        writeln!(self.file, "{line}").map_err(|e| Error::io(self.path, "write", &e))
    }
}
