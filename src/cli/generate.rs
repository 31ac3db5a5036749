//! `verbatim generate`: text as it comes, a summary at the end.
//!
//! Owns: the prompt's way in and the text's way out. Refuses to know: how tokens come about.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use draft::{Head, Token};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::args::GenerateArgs;
use super::corpus::Texts;
use super::device::{self, Open, Runs};
use super::drafters::Hired;
use super::profile;
use super::ranking;
use super::sampling;
use super::setup::{self, About, Loaded};
use super::terminal::{self, Interrupt, Printed};
use super::trace::{self, Trace};
use crate::backend::{Backend, profile::Profile};
use crate::engine::{Finish, Metrics, Sequence, Settings, Watch, logprobs};
use crate::text::{Specials, StopStrings, Utf8Stream};
use crate::{Error, Result, whole};

/// A prompt that takes longer to evaluate than this many tokens gets a progress bar.
const LONG_PROMPT: usize = 512;

/// Runs the command.
pub fn run(args: &GenerateArgs) -> Result<ExitCode> {
    let typed = Typed { args, stops: StopStrings::new(&args.stop)?, prompt: typed_prompt(args)? };
    for path in args.session.iter().chain(&args.trace) {
        // A file that cannot be kept is told before the work is done, not after.
        whole::probe(path)?;
    }
    distinct(args)?;
    device::run(&args.model, typed)
}

/// What is known before the model is loaded.
struct Typed<'a> {
    args: &'a GenerateArgs,
    stops: StopStrings,
    /// The prompt's text, unless token ids were given.
    prompt: Option<String>,
}

impl Runs for Typed<'_> {
    fn on<O: Open>(self, devices: &O) -> Result<ExitCode> {
        let loaded = setup::load(&self.args.model, devices)?;
        profile::begin(loaded.model.backend(), self.args.profile)?;
        let prompt = match (&self.args.prompt_ids, &self.prompt) {
            (Some(ids), _) => ids.clone(),
            (None, text) => encode(self.args, &loaded.about, text.as_deref().unwrap_or_default())?,
        };
        let mut texts = Texts::read(&self.args.draft.corpus, &loaded.about)?;
        let sequence = open_sequence(self.args, &loaded, texts.take(), devices)?;
        generate(self, &loaded, (prompt, texts), sequence)
    }
}

/// Generates with `sequence`, which is empty or resumed, behind the prompt.
fn generate<B: Backend>(
    typed: Typed,
    loaded: &Loaded<B>,
    (prompt, mut texts): (Vec<Token>, Texts),
    mut sequence: Sequence<B>,
) -> Result<ExitCode> {
    let args = typed.args;
    let interrupt = Interrupt::catch()?;
    let mut watch = PromptWatch { bar: None, top: args.top_logits, seen: Vec::new(), interrupt: interrupt.clone() };
    let clock = Instant::now();
    let evaluated = sequence.prompt(&prompt, &mut watch)?;
    watch.bar.inspect(ProgressBar::finish_and_clear);
    let prompt_time = clock.elapsed();
    let printer =
        Printer { text: Utf8Stream::new(), stops: typed.stops, quiet: args.json, all: String::new(), closed: false };
    let seed = choose_tokens(args, &loaded.about, &prompt, &mut sequence)?;
    let mut run =
        Run { args, about: &loaded.about, sequence, printer, interrupt, top: Vec::new(), logprobs: Vec::new() };
    let finish = trace::keep(args.trace.as_deref(), |trace| run.generate(trace))?;
    if let Some(error) = run.sequence.constraint_failure() {
        eprintln!("warning: the output ends early: {error}");
    }
    let summary = Summary {
        prompt: prompt.len(),
        evaluated,
        prompt_time,
        finish,
        metrics: run.sequence.metrics(),
        device: &loaded.about.device,
        seed,
        head: args.draft.draft.head(),
        profile: profile::end(loaded.model.backend(), args.profile),
    };
    if args.json {
        let object = run.json(&prompt, &watch.seen, &summary);
        terminal::print(&format!("{object}\n"))?;
    } else {
        eprintln!("{summary}");
        if let Some(profile) = &summary.profile {
            eprint!("{}", profile::text(profile));
        }
    }
    // Last of all: if a file cannot be kept, the output is not lost with it.
    texts.keep(run.output(prompt.len()))?;
    if let Some(path) = &args.session {
        run.sequence.save(path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses one file for two purposes: one would overwrite the other.
fn distinct(args: &GenerateArgs) -> Result<()> {
    let flags = args.session.iter().map(|path| ("--session", path));
    let flags = flags.chain(args.trace.iter().map(|path| ("--trace", path)));
    let all: Vec<_> = flags.chain(args.draft.corpus.iter().map(|path| ("--corpus", path))).collect();
    for (i, (flag, path)) in all.iter().enumerate() {
        if let Some((other, _)) = all[..i].iter().find(|(_, earlier)| earlier == path) {
            return Err(Error::new(format!("is given for {other} too")).about(*flag).at(path));
        }
    }
    Ok(())
}

/// The prompt's text as typed, unless token ids were given.
fn typed_prompt(args: &GenerateArgs) -> Result<Option<String>> {
    let stdin = || {
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut bytes);
        let path = Path::new("standard input");
        read.map_err(|e| Error::io(path, "read", &e))?;
        String::from_utf8(bytes).map_err(|_| Error::new("is not UTF-8").at(path))
    };
    match (&args.prompt, &args.file, &args.prompt_ids) {
        (_, _, Some(_)) => Ok(None),
        (Some(text), _, _) if text == "-" => stdin().map(Some),
        (Some(text), _, _) => Ok(Some(text.clone())),
        (None, Some(path), _) if path == Path::new("-") => stdin().map(Some),
        (None, Some(path), _) => {
            let bytes = fs::read(path).map_err(|e| Error::io(path, "read", &e))?;
            String::from_utf8(bytes).map(Some).map_err(|_| Error::new("is not UTF-8").at(path))
        }
        (None, None, None) => Err(Error::new("give a prompt, -f FILE, or `-` for standard input").about("prompt")),
    }
}

/// Text to tokens: through the chat template, unless the user wants it raw.
fn encode(args: &GenerateArgs, about: &About, text: &str) -> Result<Vec<Token>> {
    if args.raw {
        let specials = if args.special { Specials::Parse } else { Specials::AsText };
        return about.tokenizer()?.encode(text, specials);
    }
    let around = setup::Around { system: args.system.as_deref(), think: args.think };
    setup::encode_prompt(about, text, around)
}

fn open_sequence<O: Open>(
    args: &GenerateArgs,
    loaded: &Loaded<O::B>,
    texts: Vec<Token>,
    devices: &O,
) -> Result<Sequence<O::B>> {
    let checkpoints = if args.session.is_some() { setup::CHECKPOINTS } else { 0 };
    let settings = Settings { block: args.draft.block, checkpoints, ..loaded.about.settings };
    let hired = Hired::new(&args.draft.draft, loaded, &args.model, devices)?.warmed(texts);
    let mut sequence = Sequence::with_heads(loaded.model.clone(), settings, hired.crew.drafter(), &hired.wanted())?;
    if let Some(path) = args.session.as_deref().filter(|p| p.exists()) {
        sequence.resume(path)?;
    }
    Ok(sequence)
}

/// Sets how the tokens are chosen; the seed, where they are drawn.
fn choose_tokens<B: Backend>(
    args: &GenerateArgs,
    about: &About,
    prompt: &[Token],
    sequence: &mut Sequence<B>,
) -> Result<Option<u64>> {
    let sampling = sampling::sampling(&args.sampling, about.vocab, about.tokenizer.as_ref())?;
    let seed = (sampling.temperature > 0.0).then_some(sampling.seed);
    sequence.set_sampling(sampling)?;
    if let Some(grammar) = sampling::grammar(&args.grammar, about.tokenizer.as_ref())? {
        // While the model thinks it may say anything.
        let special = |text| about.tokenizer.as_ref().and_then(|tokenizer| tokenizer.special_id(text));
        let last = |text| special(text).and_then(|id| prompt.iter().rposition(|&token| token == id));
        let thinking = last("<think>") > last("</think>");
        let behind = special("</think>").filter(|_| thinking);
        sequence.set_constraint(Some(Box::new(grammar.start(behind))));
    }
    Ok(seed)
}

/// The `n` largest of `logits` with their tokens, for JSON.
fn top(logits: &[f32], n: usize) -> Value {
    ranking::top(logits, n).into_iter().map(|(token, logit)| json!([token, logit])).collect()
}

/// Shows progress through a long prompt, and keeps its top logits if they are wanted.
struct PromptWatch {
    bar: Option<ProgressBar>,
    top: Option<usize>,
    seen: Vec<Value>,
    interrupt: Interrupt,
}

impl Watch for PromptWatch {
    fn progress(&mut self, done: usize, total: usize) {
        if total >= LONG_PROMPT {
            self.bar.get_or_insert_with(|| terminal::bar("prompt", total)).set_position(done as u64);
        }
    }

    fn wants_logits(&self) -> bool {
        self.top.is_some()
    }

    fn logits(&mut self, _position: usize, logits: &[f32]) {
        self.seen.push(top(logits, self.top.unwrap_or(0)));
    }

    fn cancelled(&self) -> bool {
        self.interrupt.pressed()
    }
}

/// Tokens' bytes on their way out: stop strings held back, characters kept whole.
struct Printer {
    text: Utf8Stream,
    stops: StopStrings,
    quiet: bool,
    all: String,
    closed: bool,
}

impl Printer {
    fn release(&mut self, text: &str) -> Result<()> {
        self.all.push_str(text);
        if !self.quiet && !text.is_empty() && terminal::print(text)? == Printed::Closed {
            self.closed = true;
        }
        Ok(())
    }

    /// Prints what cannot be part of a stop string any more.
    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let text = self.text.push(bytes);
        self.release(&text)
    }

    /// Prints what was held back.
    fn finish(&mut self) -> Result<()> {
        let held = self.stops.finish();
        let text = self.text.push(&held) + &self.text.finish();
        self.release(&text)?;
        if !self.quiet && !self.closed {
            terminal::print("\n")?;
        }
        Ok(())
    }
}

/// A generation under way.
struct Run<'a, B: Backend> {
    args: &'a GenerateArgs,
    about: &'a About,
    sequence: Sequence<B>,
    printer: Printer,
    interrupt: Interrupt,
    /// The top logits behind each emitted token.
    top: Vec<Value>,
    /// The log-probabilities of each emitted token.
    logprobs: Vec<Value>,
}

impl<B: Backend> Run<'_, B> {
    /// Steps until an end; returns why.
    fn generate(&mut self, mut trace: Option<&mut Trace>) -> Result<Finish> {
        let mut left = self.args.tokens.unwrap_or(usize::MAX);
        let finish = loop {
            if self.interrupt.pressed() || self.printer.closed {
                break Finish::Interrupted;
            }
            let mut shown = Vec::new();
            let (about, stops) = (self.about, &mut self.printer.stops);
            let ignore_eos = self.args.ignore_eos;
            let step = self.sequence.step(left, &mut |token| {
                let end = about.is_eog(token);
                if !end || ignore_eos {
                    // Every token the model can choose has bytes, unless the file's output matrix is larger than its
                    // vocabulary; such a token has no text.
                    let bytes = about.tokenizer.as_ref().and_then(|t| t.token_bytes(token).ok());
                    let pushed = stops.push(bytes.unwrap_or_default());
                    shown.extend(pushed.release);
                    if pushed.stopped {
                        return Some(Finish::StopString);
                    }
                }
                (end && !ignore_eos).then_some(Finish::Stop)
            });
            left -= step.emitted.len();
            if let Some(trace) = &mut trace {
                trace.step(&self.sequence)?;
            }
            self.keep_logits(&step.emitted);
            self.printer.push(&shown)?;
            if let Some(finish) = step.finish {
                break finish;
            }
        };
        self.printer.finish()?;
        Ok(finish)
    }

    /// Keeps what is wanted of the logits behind the last step's tokens.
    fn keep_logits(&mut self, emitted: &[Token]) {
        if self.args.top_logits.is_none() && self.args.logprobs.is_none() {
            return;
        }
        let mut logits = Vec::new();
        for (row, &token) in emitted.iter().enumerate() {
            logits.clear();
            self.sequence.logits(row, &mut logits);
            self.top.extend(self.args.top_logits.map(|n| top(&logits, n)));
            self.logprobs.extend(self.args.logprobs.map(|n| {
                let found = logprobs(&logits, token, n);
                json!({"token": token, "logprob": found.chosen, "top": found.top})
            }));
        }
    }

    /// The tokens behind a prompt of `prompt` tokens, which may have been cut short by the user.
    fn output(&self, prompt: usize) -> &[Token] {
        self.sequence.tokens().get(prompt..).unwrap_or_default()
    }

    fn json(&self, prompt: &[Token], prompt_top: &[Value], summary: &Summary) -> Value {
        let generated = self.output(prompt.len());
        let mut object = json!({
            "text": self.printer.all,
            "finish": summary.finish,
            "prompt_ids": prompt,
            "ids": generated,
            "prompt_tokens": summary.prompt,
            "evaluated_prompt_tokens": summary.evaluated,
            "prompt_seconds": summary.prompt_time.as_secs_f64(),
            "tokens_per_second": summary.metrics.tokens_per_second(),
            "tokens_per_pass": summary.metrics.tokens_per_pass(),
            "acceptance": summary.metrics.acceptance(),
            "metrics": summary.metrics,
            "device": summary.device,
        });
        if let Some(seed) = summary.seed {
            object["seed"] = json!(seed);
        }
        if self.args.logprobs.is_some() {
            object["logprobs"] = json!(self.logprobs);
        }
        if self.args.top_logits.is_some() {
            // The first generated token's logits are those after the prompt's last token.
            object["top_logits"] = prompt_top.iter().chain(&self.top).cloned().collect();
        }
        if let Some(profile) = &summary.profile {
            object["profile"] = profile::json(profile);
        }
        object
    }
}

/// The end of a generation, for people.
struct Summary<'a> {
    prompt: usize,
    evaluated: usize,
    prompt_time: Duration,
    finish: Finish,
    metrics: &'a Metrics,
    device: &'a str,
    /// Where tokens were drawn.
    seed: Option<u64>,
    /// The head that was to draft alone.
    head: Option<Head>,
    /// Where the device's time went, if it was to be measured.
    profile: Option<Profile>,
}

impl std::fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let m = self.metrics;
        let prompt_rate = match self.prompt_time.as_secs_f64() {
            s if s > 0.0 => self.evaluated as f64 / s,
            _ => 0.0,
        };
        write!(
            f,
            "[{} tokens, {:.1} tok/s | {} passes, {:.2} tokens/pass, acceptance {:.0} % ({} of {}) | prompt {} tokens, {} \
             evaluated, {prompt_rate:.1} tok/s | {} | {}",
            m.emitted,
            m.tokens_per_second(),
            m.passes,
            m.tokens_per_pass(),
            100.0 * m.acceptance(),
            m.accepted,
            m.drafted,
            self.prompt,
            self.evaluated,
            self.finish.name(),
            self.device,
        )?;
        if let Some(head) = self.head {
            let drafted = m.drafters.iter().find(|(name, _)| *name == head.name()).map_or(0, |(_, share)| share.passes);
            let verdict = if 10 * drafted < m.passes { ": it does not pay here" } else { "" };
            write!(f, " | {} drafted in {drafted} of {} passes{verdict}", head.name(), m.passes)?;
        }
        match self.seed {
            Some(seed) => write!(f, " | seed {seed}]"),
            None => write!(f, "]"),
        }
    }
}
