//! `verbatim inspect`: what a file holds, what it needs, what is unsupported.
//!
//! Owns: the facts about a file, gathered as far as it is understood. Refuses to know: how they are shown (`show`).
//!
//! No weight is read. A file that cannot run is no error here: that it cannot, and why, is what one wants to know.

mod show;

use std::collections::BTreeMap;
use std::process::ExitCode;

use super::args::InspectArgs;
use super::device::{self, Open, Runs};
use super::{setup, terminal};
use crate::Result;
use crate::backend::{Backend, cpu::Cpu};
use crate::engine::DEFAULT_BLOCK;
use crate::gguf::{Gguf, Value};
use crate::model::{Config, Model, demand};
use crate::quant::{Format, Isa};
use crate::state::StateShape;
use crate::text::{ChatTemplate, Tokenizer};

/// Runs the command.
///
/// # Errors
/// If the device cannot be used, or the file cannot be read, is no GGUF or is damaged.
pub fn run(args: &InspectArgs) -> Result<ExitCode> {
    device::run(&args.model, args)
}

impl Runs for &InspectArgs {
    fn on<O: Open>(self, devices: &O) -> Result<ExitCode> {
        let gguf = setup::open(self.model.model.as_deref())?;
        let mut backend = devices.open(&self.model.split)?;
        let mut facts = Facts::gather(self, &gguf, backend.describe())?;
        facts.judge()?;
        if let Some(config) = facts.config.as_ref().filter(|_| facts.unsupported.is_empty()) {
            match backend.plan(&demand(&gguf, config)) {
                Ok(()) => facts.device = backend.describe(),
                Err(e) => facts.unsupported.push(e.to_string()),
            }
        }
        show(self, &facts)
    }
}

fn show(args: &InspectArgs, facts: &Facts) -> Result<ExitCode> {
    let text = match args.json {
        true => format!("{}\n", show::json(facts, args.tensors)),
        false => show::text(facts, args.tensors),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Tensors of one format.
struct FormatUse {
    /// The format's name.
    name: &'static str,
    /// Whether it runs here.
    supported: bool,
    /// Tensors in it.
    tensors: usize,
    /// Their bytes; 0 for an unsupported format, whose size is not known.
    bytes: usize,
}

/// What is known about a file.
struct Facts<'g> {
    gguf: &'g Gguf,
    /// What messages call the file.
    file: String,
    /// What it would run on.
    device: String,
    /// The instruction set that the processor would run it in.
    isa: &'static str,
    /// All that this machine has, slowest first.
    isas: Vec<&'static str>,
    /// `general.architecture`, if it is text.
    architecture: Option<String>,
    /// `general.name`, if it is text.
    name: Option<String>,
    /// The model's numbers, if the architecture is supported.
    config: Option<Config>,
    /// The sizes of a sequence of the default context.
    shape: Option<StateShape>,
    /// Tokens in the embedding matrix.
    vocabulary: Option<usize>,
    /// Whether the output matrix is the embedding.
    tied: bool,
    /// Tensors by format, most bytes first.
    formats: Vec<FormatUse>,
    /// The kind of tokenizer, as the file names it.
    tokenizer: Option<String>,
    /// How it cuts text before it looks for tokens, as the file names it.
    pre_tokenizer: Option<String>,
    /// Entries of the tokenizer's vocabulary.
    tokenizer_size: Option<usize>,
    /// The chat template's text.
    template: Option<String>,
    /// Why the file does not run here; empty if it does.
    unsupported: Vec<String>,
    /// What its user should know although it runs.
    warnings: Vec<String>,
}

/// Text under `key`, if there is any; a value of another type is not text.
fn text(gguf: &Gguf, key: &str) -> Option<String> {
    gguf.metadata().get(key).and_then(Value::as_str).map(str::to_owned)
}

impl<'g> Facts<'g> {
    /// What the file says, for `device`.
    fn gather(args: &InspectArgs, gguf: &'g Gguf, device: String) -> Result<Facts<'g>> {
        let embedding = gguf.tensor("token_embd.weight");
        let tokens = gguf.metadata().get("tokenizer.ggml.tokens").and_then(Value::as_array);
        let mut facts = Facts {
            gguf,
            file: setup::model_name(&args.model),
            device,
            isa: setup::isa(args.model.isa.as_deref())?.name(),
            isas: Isa::available().into_iter().map(Isa::name).collect(),
            architecture: text(gguf, "general.architecture"),
            name: text(gguf, "general.name"),
            config: None,
            shape: None,
            vocabulary: embedding.and_then(|t| t.dims.get(1).copied()),
            tied: gguf.tensor("output.weight").is_none(),
            formats: formats(gguf),
            tokenizer: text(gguf, "tokenizer.ggml.model"),
            pre_tokenizer: text(gguf, "tokenizer.ggml.pre"),
            tokenizer_size: tokens.map(|t| t.len()),
            template: text(gguf, "tokenizer.chat_template"),
            unsupported: Vec::new(),
            warnings: Vec::new(),
        };
        match Config::from_metadata(gguf.metadata()) {
            Ok(config) => {
                let positions = setup::context(args.model.ctx, config.context);
                facts.shape = Some(config.state_shape(positions, setup::kv(args.model.kv), DEFAULT_BLOCK + 1));
                facts.config = Some(config);
            }
            Err(e) => facts.unsupported.push(e.to_string()),
        }
        Ok(facts)
    }

    /// Finds out what keeps the file from running on any device.
    fn judge(&mut self) -> Result<()> {
        let supported: Vec<&str> = Format::all().map(Format::name).collect();
        for format in self.formats.iter().filter(|f| !f.supported) {
            let first = self.gguf.tensors().find(|t| t.format_name() == format.name);
            let first = first.map_or("", |t| &t.name);
            self.unsupported.push(format!(
                "{first}: {} of {} tensors have the format {}; supported: {}",
                format.tensors,
                self.gguf.tensors().len(),
                format.name,
                supported.join(", ")
            ));
        }
        let tokenizer = Tokenizer::optional(self.gguf.metadata());
        let template = ChatTemplate::from_metadata(self.gguf.metadata());
        let texts = [tokenizer.err(), template.err()];
        // Only a file whose parts are all understood is laid out as a model: this looks at every tensor's shape. The
        // processor takes the weights where they are in the file, so none is read.
        if self.unsupported.is_empty() {
            match Model::load(self.gguf, Cpu::new(1)?) {
                Ok(model) => self.warnings.extend_from_slice(model.warnings()),
                Err(e) => self.unsupported.push(e.to_string()),
            }
        }
        self.unsupported.extend(texts.iter().flatten().map(ToString::to_string));
        if self.tokenizer.as_deref() == Some("none") {
            self.warnings.push("the file has no tokenizer; prompts are token ids".to_owned());
        } else if self.template.is_none() {
            let text = "the file has no chat template; prompts are taken as they are";
            self.warnings.push(text.to_owned());
        }
        Ok(())
    }
}

/// Tensors by format, most bytes first.
fn formats(gguf: &Gguf) -> Vec<FormatUse> {
    let mut uses: BTreeMap<&str, FormatUse> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let entry = uses.entry(tensor.format_name()).or_insert(FormatUse {
            name: tensor.format_name(),
            supported: tensor.format.is_ok(),
            tensors: 0,
            bytes: 0,
        });
        entry.tensors += 1;
        entry.bytes += tensor.bytes().unwrap_or(0);
    }
    let mut uses: Vec<FormatUse> = uses.into_values().collect();
    uses.sort_by_key(|u| std::cmp::Reverse(u.bytes));
    uses
}
