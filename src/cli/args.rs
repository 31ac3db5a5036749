//! What was typed.
//!
//! Owns: commands, flags, their help. Refuses to know: models; what is built from the flags is in `setup`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use super::device::Device;
use super::drafters::Who;
use super::sampling::{GrammarArgs, SamplingArgs};

/// Fast text generation that provably changes nothing.
#[derive(Debug, Parser)]
#[command(
    name = "verbatim",
    version,
    about,
    after_help = "Without -m, every command runs the small model inside this program.\n\
                  Start with:  verbatim generate \"Convert this CSV to JSON.\n\n\
                  name,city,age,id\n\
                  Ada,Oslo,36,412\n\
                  Linus,Kyoto,54,730\"\n\
                  Then prove:  verbatim check     And measure:  verbatim bench"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Generate text from a prompt, as fast as drafting allows and exactly as plain decoding would
    Generate(GenerateArgs),
    /// Prove that drafting changes nothing: compare with plain decoding, bit by bit
    Check(CheckArgs),
    /// Measure speed, acceptance and the cost of a pass
    Bench(BenchArgs),
    /// Show what a model file holds, what it needs, and what is unsupported
    Inspect(InspectArgs),
    /// Look whether graphics cards can be used here, and say what to do if not
    Doctor(DoctorArgs),
}

/// Which model, and on what.
#[derive(Debug, Clone, Args)]
pub struct ModelArgs {
    /// GGUF file (any part of a split one); the embedded pocket model if absent
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// What to run on: auto (graphics cards, if there are any that can be used; else the processor), cpu, cuda (all cards),
    /// cuda:N or cuda:N,N... (those cards), emu[:DIES][@ARCHITECTURE][#SEED] (the processor in place of cards, slowly:
    /// emu:2@61#7 is two cards of compute capability 6.1 whose threads run in a random order)
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: Device,
    /// On several dies: the layers of each die but the last, comma separated [default: by memory and measured time]
    #[arg(long, value_name = "LAYERS", value_delimiter = ',', value_parser = positive)]
    pub split: Vec<usize>,
    /// Threads of the processor to compute with [default: one for each that it runs at once]
    #[arg(short, long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// Positions in the context, prompt and output together [default: the model's own, at most 8192]
    #[arg(short, long, value_name = "N", value_parser = positions)]
    pub ctx: Option<usize>,
    /// How K and V are stored
    #[arg(long, value_enum, default_value_t = KvArg::F16)]
    pub kv: KvArg,
    /// Compute in this instruction set of the processor, for tests; `inspect` lists them [default: the fastest here]
    #[arg(long, value_name = "NAME")]
    pub isa: Option<String>,
}

/// K/V formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KvArg {
    /// Half precision
    F16,
    /// Single precision
    F32,
}

/// Drafters to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drafts {
    /// All that the model has.
    All,
    /// This one.
    One(Who),
}

impl FromStr for Drafts {
    type Err = String;

    fn from_str(text: &str) -> Result<Drafts, String> {
        if text == "all" {
            Ok(Drafts::All)
        } else {
            text.parse().map(Drafts::One).map_err(|e: String| format!("{e}; or all"))
        }
    }
}

/// How blocks are drafted.
#[derive(Debug, Clone, Args)]
pub struct DraftArgs {
    /// Who drafts; the text is the same whoever does: auto (whoever pays), off, suffix (copies), shallow[:LAYERS] (the
    /// first layers), mtp (the next-token-prediction block), model:FILE (a smaller model of the same vocabulary)
    #[arg(long, value_name = "WHO", default_value = "auto")]
    pub draft: Who,
    /// Copy from earlier texts too: a file in which outputs are kept from run to run (made if it does not exist, bounded),
    /// or any text file; may be given more than once
    #[arg(long, value_name = "FILE")]
    pub corpus: Vec<PathBuf>,
    /// Most tokens drafted for one pass
    #[arg(long, value_name = "N", default_value_t = crate::engine::DEFAULT_BLOCK, value_parser = block)]
    pub block: usize,
}

/// `verbatim generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// The prompt; `-` reads it from standard input
    #[arg(value_name = "PROMPT", conflicts_with_all = ["file", "prompt_ids"])]
    pub prompt: Option<String>,
    /// Read the prompt from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt_ids")]
    pub file: Option<PathBuf>,
    /// Feed these token ids as they are, comma separated
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub prompt_ids: Option<Vec<u32>>,
    /// Which model, and on what
    #[command(flatten)]
    pub model: ModelArgs,
    /// How blocks are drafted
    #[command(flatten)]
    pub draft: DraftArgs,
    /// How tokens are chosen
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// What the output must fit
    #[command(flatten)]
    pub grammar: GrammarArgs,
    /// Take the prompt as it is, without the model's chat template
    #[arg(long)]
    pub raw: bool,
    /// Read special tokens written in a raw prompt as such, not as text
    #[arg(long, requires = "raw")]
    pub special: bool,
    /// System message
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub system: Option<String>,
    /// Tell the chat template to let the model think first, or not [default: as the template has it]
    #[arg(long, value_name = "BOOL", conflicts_with = "raw")]
    pub think: Option<bool>,
    /// Most tokens to generate [default: until the model ends or the context is full]
    #[arg(short = 'n', long, value_name = "N")]
    pub tokens: Option<usize>,
    /// End the output before this text; may be given more than once
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Go on after the model's end-of-text token
    #[arg(long)]
    pub ignore_eos: bool,
    /// Save the sequence here, and continue from it if it exists: what prompt and file share is not evaluated again
    #[arg(long, value_name = "FILE", conflicts_with = "top_logits")]
    pub session: Option<PathBuf>,
    /// Keep one JSON object a pass in a file: who drafted and why, what was expected, what came of it, and the time
    #[arg(long, value_name = "FILE.jsonl")]
    pub trace: Option<PathBuf>,
    /// Also tell where the device's time went: by die, stage and kernel; slows passes down a little
    #[arg(long)]
    pub profile: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// With --json: the N largest logits at every prompt and generated position
    #[arg(long, value_name = "N", requires = "json", value_parser = positive)]
    pub top_logits: Option<usize>,
    /// With --json: the log-probability of every generated token, and the N best in its place
    #[arg(long, value_name = "N", requires = "json")]
    pub logprobs: Option<usize>,
}

/// `verbatim check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Which model, and on what
    #[command(flatten)]
    pub model: ModelArgs,
    /// Prompts, one JSON object with a "prompt" (or "prompt_ids") a line [default: the built-in ones]
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<PathBuf>,
    /// Most tokens generated for each prompt
    #[arg(short = 'n', long, value_name = "N", default_value_t = 96, value_parser = positive)]
    pub tokens: usize,
    /// Keep the plain run in a file, to compare another version, machine or thread count against
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Compare the plain run with one kept by --record
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    pub against: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `verbatim bench`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("curve").args(["passes", "synthetic"]).multiple(true)))]
pub struct BenchArgs {
    /// Which model, and on what
    #[command(flatten)]
    pub model: ModelArgs,
    /// Prompts, one JSON object with a "prompt" and perhaps a "task" a line [default: the built-in ones]
    #[arg(long, value_name = "FILE", conflicts_with = "curve")]
    pub prompts: Option<PathBuf>,
    /// Drafters to measure, comma separated, or all that the model has [default: auto]
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "curve")]
    pub drafts: Vec<Drafts>,
    /// Most tokens drafted for one pass
    #[arg(long, value_name = "N", default_value_t = crate::engine::DEFAULT_BLOCK, value_parser = block)]
    pub block: usize,
    /// Most tokens generated for each prompt
    #[arg(short = 'n', long, value_name = "N", default_value_t = 256, value_parser = positive)]
    pub tokens: usize,
    /// Measure what a pass of n rows costs, T(n)/T(1), instead of generating
    #[arg(long)]
    pub passes: bool,
    /// Measure the passes of a model of random weights in a published model's dimensions, without a download:
    /// qwen3.5-122b-a10b, qwen3.5-35b-a3b, qwen3.5-27b, qwen3.5-9b or qwen3.5-0.8b, behind a colon perhaps the number
    /// of layers to cut it to
    #[arg(long, value_name = "SHAPE[:LAYERS]", conflicts_with = "model")]
    pub synthetic: Option<String>,
    /// Write the synthetic model to a file first and measure it there; a file that exists is never overwritten
    #[arg(long, value_name = "FILE.gguf", requires = "synthetic")]
    pub write: Option<PathBuf>,
    /// Rows of the measured passes, 1 to 512, comma separated; one row is always measured
    #[arg(long, value_name = "LIST", requires = "curve", value_delimiter = ',', value_parser = rows,
          default_values_t = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64])]
    pub rows: Vec<usize>,
    /// Tokens in the state before each measured pass
    #[arg(long, value_name = "N", requires = "curve", default_value_t = 128, value_parser = positions)]
    pub context: usize,
    /// Runs of each measurement; the fastest counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = positive)]
    pub repeat: usize,
    /// Also tell where the device's time went: by die, stage and kernel; slows passes down a little
    #[arg(long)]
    pub profile: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print comma-separated values
    #[arg(long)]
    pub csv: bool,
    /// Also draw the result
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Also make a page of it that needs no other file: drawings, tables, and how it was measured
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
}

/// `verbatim inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Which model, and on what
    #[command(flatten)]
    pub model: ModelArgs,
    /// List every tensor
    #[arg(long)]
    pub tensors: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `verbatim doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a whole number of at least 1".to_owned()),
        Ok(n) => Ok(n),
    }
}

fn positions(text: &str) -> Result<usize, String> {
    let n = positive(text)?;
    if n <= 1 << 24 { Ok(n) } else { Err(format!("expected at most {} positions", 1 << 24)) }
}

fn threads(text: &str) -> Result<usize, String> {
    let n = positive(text)?;
    if n <= 1024 { Ok(n) } else { Err("expected at most 1024 threads".to_owned()) }
}

fn rows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=512) => Ok(n),
        _ => Err("expected whole numbers from 1 to 512".to_owned()),
    }
}

fn block(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 0..=1024) => Ok(n),
        _ => Err("expected a whole number from 0 to 1024".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }
}
