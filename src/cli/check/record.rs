//! A plain run kept in a file, and a later one compared with it.
//!
//! Owns: the file's form and what its comparison reports. Refuses to know: drafters.
//!
//! The file is JSON: what made it, and for each prompt its tokens, the tokens generated, for each of them a hash of the
//! logits' bits (xxh3, 64 bits, little endian) and the largest logits, and a hash of the state at the end.

use std::fs;
use std::path::Path;

use draft::Token;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::compare::margin;
use super::plain::{Limits, Plain};
use crate::cli::setup::About;
use crate::engine::Finish;
use crate::{Error, Result, whole};

/// The form of the file that this program writes and reads.
const VERSION: u32 = 1;

/// Largest logits kept of each row.
const TOP: usize = 8;

/// More positions than any run has.
const ABSURD: usize = 1 << 24;

/// A kept run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The form of the file.
    pub record: u32,
    /// The version of the program that made it.
    pub program: String,
    /// What it ran on.
    pub device: String,
    /// The model's fingerprint, in hexadecimal.
    pub model: String,
    /// How K and V were stored.
    pub kv: String,
    /// Most tokens generated for a prompt.
    pub tokens: usize,
    /// Positions that a prompt and its output had at most.
    pub context: usize,
    /// The prompts' runs.
    pub prompts: Vec<Kept>,
}

/// One prompt's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// What kind of work the prompt is.
    pub task: String,
    /// The prompt.
    pub prompt_ids: Vec<Token>,
    /// The tokens generated.
    pub ids: Vec<Token>,
    /// Why they end.
    pub finish: Finish,
    /// The logits behind each of them.
    pub rows: Vec<Row>,
    /// A hash of the state at the end, in hexadecimal.
    pub state: String,
}

/// The logits of one position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// A hash of all of them, in hexadecimal.
    pub hash: String,
    /// The largest with their tokens, as bits.
    pub top: Vec<(Token, u32)>,
}

fn hash(logits: &[f32]) -> String {
    let bytes: Vec<u8> = logits.iter().flat_map(|l| l.to_bits().to_le_bytes()).collect();
    format!("{:016x}", xxh3_64(&bytes))
}

fn fingerprint(about: &About) -> String {
    about.fingerprint.iter().map(|b| format!("{b:02x}")).collect()
}

impl Kept {
    /// What is kept of `plain` within `limits`.
    pub fn new(task: &str, plain: &Plain, limits: Limits) -> Kept {
        let (tokens, finish) = plain.expected(limits);
        let row = |i| Row {
            hash: hash(plain.logits(i)),
            top: plain.top(i, TOP).into_iter().map(|(t, l)| (t, l.to_bits())).collect(),
        };
        Kept {
            task: task.to_owned(),
            prompt_ids: plain.prompt.clone(),
            ids: plain.tokens[..tokens].to_vec(),
            finish,
            rows: (0..tokens).map(row).collect(),
            state: format!("{:032x}", plain.state(tokens)),
        }
    }
}

impl Record {
    /// An empty record of runs of up to `tokens` tokens.
    pub fn new(about: &About, tokens: usize) -> Record {
        Record {
            record: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            device: about.device.clone(),
            model: fingerprint(about),
            kv: about.settings.kv.name().to_owned(),
            tokens,
            context: about.settings.context,
            prompts: Vec::new(),
        }
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self).map_err(|e| Error::new(e.to_string()).at(path))?;
        whole::write(path, (text + "\n").as_bytes())
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If the file cannot be read or is not a record of this form, cut short or damaged.
    pub fn read(path: &Path) -> Result<Record> {
        let bytes = fs::read(path).map_err(|e| Error::io(path, "read", &e))?;
        let damaged = |text: String| Error::new(format!("is not a record of `check`, or damaged: {text}")).at(path);
        let record: Record = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        if record.record != VERSION {
            let text = format!("record of form {}; this program reads form {VERSION}", record.record);
            return Err(Error::new(text).at(path));
        }
        if record.tokens == 0 || record.tokens.max(record.context) > ABSURD {
            let text = format!("{} tokens in a context of {}", record.tokens, record.context);
            return Err(damaged(text));
        }
        for (i, kept) in record.prompts.iter().enumerate() {
            if kept.rows.len() != kept.ids.len() || kept.ids.len() > record.tokens {
                return Err(damaged(format!("prompt {} has not one row for each token", i + 1)));
            }
        }
        Ok(record)
    }

    /// How far the run of `kept` was allowed to go.
    pub fn limits(&self, kept: &Kept) -> Limits {
        Limits { context: (kept.prompt_ids.len() + self.tokens).min(self.context), tokens: self.tokens, stop_at: None }
    }

    /// Makes sure that the model is what the record was made with.
    ///
    /// # Errors
    /// If it is another model or stores K and V otherwise.
    pub fn fits(&self, about: &About) -> Result<()> {
        let kv = about.settings.kv.name();
        if self.model != fingerprint(about) {
            return Err(Error::new("was recorded with another model"));
        }
        if self.kv != kv {
            return Err(Error::new(format!("was recorded with K and V as {}, not {kv} (--kv)", self.kv)));
        }
        Ok(())
    }
}

/// A token and the largest logits of its row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    /// The token, if the run had come that far.
    pub token: Option<Token>,
    /// The largest logits with their tokens.
    pub top: Vec<(Token, f32)>,
    /// Distance between the two largest.
    pub margin: f32,
}

impl Side {
    fn new(token: Option<Token>, top: Vec<(Token, f32)>) -> Side {
        let margin = margin(&top);
        Side { token, top, margin }
    }

    fn kept(kept: &Kept, i: usize) -> Side {
        let top = kept
            .rows
            .get(i)
            .map_or_else(Vec::new, |row| row.top.iter().map(|&(t, bits)| (t, f32::from_bits(bits))).collect());
        Side::new(kept.ids.get(i).copied(), top)
    }
}

/// The first difference between a record and a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The prompt's number, from 1.
    pub prompt: usize,
    /// Its task.
    pub task: String,
    /// What differs: "row", "finish" or "state".
    pub differs: &'static str,
    /// The number of the generated token, from 0.
    pub generated: usize,
    /// Its position in prompt and output together.
    pub position: usize,
    /// As recorded.
    pub recorded: Side,
    /// As now.
    pub now: Side,
}

/// Counts over prompts, and the first difference among them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Compared {
    /// Prompts compared.
    pub prompts: usize,
    /// Rows of logits compared.
    pub rows: usize,
    /// Rows that differ.
    pub rows_differing: usize,
    /// Prompts whose end or state differs.
    pub ends_differing: usize,
    /// What differed first.
    pub first: Option<Difference>,
}

impl Compared {
    /// Compares a prompt's run with what was kept. After the first token that differs nothing can be compared.
    pub fn prompt(&mut self, kept: &Kept, now: &Kept) {
        self.prompts += 1;
        for (i, (then, row)) in kept.rows.iter().zip(&now.rows).enumerate() {
            self.rows += 1;
            if then != row || kept.ids[i] != now.ids[i] {
                self.rows_differing += 1;
                self.found("row", i, kept, now);
            }
            if kept.ids[i] != now.ids[i] {
                self.ends_differing += 1;
                return;
            }
        }
        let end = kept.ids.len().min(now.ids.len());
        if kept.ids.len() != now.ids.len() || kept.finish != now.finish {
            self.ends_differing += 1;
            self.found("finish", end, kept, now);
        } else if kept.state != now.state {
            self.ends_differing += 1;
            self.found("state", end, kept, now);
        }
    }

    fn found(&mut self, differs: &'static str, generated: usize, kept: &Kept, now: &Kept) {
        let prompt = self.prompts;
        self.first.get_or_insert_with(|| Difference {
            prompt,
            task: kept.task.clone(),
            differs,
            generated,
            position: kept.prompt_ids.len() + generated,
            recorded: Side::kept(kept, generated),
            now: Side::kept(now, generated),
        });
    }

    /// Whether nothing differed.
    pub fn same(&self) -> bool {
        self.rows_differing == 0 && self.ends_differing == 0
    }
}
