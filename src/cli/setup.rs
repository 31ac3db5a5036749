//! What is built from what was typed.
//!
//! Owns: opening and loading, the defaults that depend on the model. Refuses to know: what the command does with them.

use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use draft::Token;
use serde_json::{Map, Value, json};

use super::args::{KvArg, ModelArgs};
use super::device::Open;
use super::{pocket, terminal};
use crate::backend::{Backend, KvFormat};
use crate::engine::Settings;
use crate::gguf::Gguf;
use crate::model::Model;
use crate::quant::Isa;
use crate::text::{ChatTemplate, Specials, Tokenizer};
use crate::{Error, Result};

/// The context, unless the user says otherwise: K and V of a longer one would take memory that few texts need.
const CONTEXT: usize = 8192;

/// Checkpoints for commands that continue a sequence.
pub const CHECKPOINTS: usize = 3;

/// A model ready to run.
pub struct Loaded<B: Backend> {
    /// What is known of it whatever it runs on.
    pub about: About,
    /// The model.
    pub model: Arc<Model<B>>,
}

/// What is known of a loaded model whatever it runs on, and the text around it.
pub struct About {
    /// What messages and results call it.
    pub name: String,
    /// What it runs on.
    pub device: String,
    /// Tokens in the model's vocabulary.
    pub vocab: usize,
    /// Ties saved states to the model.
    pub fingerprint: [u8; 16],
    /// Its tokenizer; models made for measuring have none.
    pub tokenizer: Option<Tokenizer>,
    /// Its chat template, if the file has one.
    pub template: Option<ChatTemplate>,
    /// Positions, K/V format; a plain sequence without checkpoints.
    pub settings: Settings,
}

impl About {
    /// Its tokenizer.
    ///
    /// # Errors
    /// If it has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        let none = || {
            Error::new("has no tokenizer: it takes token ids (`--prompt-ids`, \"prompt_ids\" in a file), no text")
                .at(Path::new(&self.name))
        };
        self.tokenizer.as_ref().ok_or_else(none)
    }

    /// A hash of its vocabulary.
    pub fn vocabulary(&self) -> [u8; 16] {
        self.tokenizer.as_ref().map_or([0; 16], Tokenizer::fingerprint)
    }

    /// Whether `token` ends a text.
    pub fn is_eog(&self, token: Token) -> bool {
        self.tokenizer.as_ref().is_some_and(|t| t.is_eog(token))
    }
}

/// Opens the file that was asked for, or the embedded one.
///
/// # Errors
/// If it cannot be read or is damaged.
pub fn open(model: Option<&Path>) -> Result<Gguf> {
    match model {
        Some(path) => Gguf::open(path),
        None => pocket::open(),
    }
}

/// What messages and results call the model that was asked for.
pub fn model_name(args: &ModelArgs) -> String {
    match &args.model {
        Some(path) => path.display().to_string(),
        None => pocket::NAME.to_owned(),
    }
}

/// K/V format by flag.
pub fn kv(arg: KvArg) -> KvFormat {
    match arg {
        KvArg::F16 => KvFormat::F16,
        KvArg::F32 => KvFormat::F32,
    }
}

/// Threads by flag, or one for each processor.
pub fn threads(arg: Option<usize>) -> usize {
    arg.unwrap_or_else(|| available_parallelism().map_or(1, usize::from))
}

/// The instruction set by flag, or the fastest.
///
/// # Errors
/// If this machine does not have it.
pub fn isa(arg: Option<&str>) -> Result<Isa> {
    let Some(name) = arg else {
        return Ok(Isa::best());
    };
    let available = Isa::available();
    available.iter().find(|isa| isa.name() == name).copied().ok_or_else(|| {
        let names: Vec<_> = available.iter().map(|isa| isa.name()).collect();
        Error::new(format!("`{name}` is not available here; available: {}", names.join(", "))).about("--isa")
    })
}

/// The context by flag, or by what the model was trained for.
pub fn context(arg: Option<usize>, trained: usize) -> usize {
    arg.unwrap_or(trained.min(CONTEXT))
}

/// Loads the model that was asked for, with a spinner on a terminal, and passes on its warnings.
///
/// # Errors
/// If the device cannot be used, or the file cannot be read, is damaged, or is not a supported model.
pub fn load<O: Open>(args: &ModelArgs, devices: &O) -> Result<Loaded<O::B>> {
    let backend = devices.open(&args.split)?;
    load_file(args, backend, &open(args.model.as_deref())?)
}

/// The same for a file that is open already.
///
/// # Errors
/// If it is damaged or not a supported model.
pub fn load_file<B: Backend>(args: &ModelArgs, backend: B, gguf: &Gguf) -> Result<Loaded<B>> {
    let spinner = terminal::spinner("loading the model");
    let model = Model::load(gguf, backend)?;
    let (tokenizer, template) = texts(gguf)?;
    spinner.finish_and_clear();
    for warning in model.warnings() {
        eprintln!("warning: {warning}");
    }
    let settings =
        Settings { context: context(args.ctx, model.config().context), block: 0, kv: kv(args.kv), checkpoints: 0 };
    let about = About {
        name: gguf.name(),
        device: model.backend().describe(),
        vocab: model.vocab(),
        fingerprint: model.fingerprint(),
        tokenizer,
        template,
        settings,
    };
    Ok(Loaded { about, model: Arc::new(model) })
}

/// The text around the model in `gguf`.
fn texts(gguf: &Gguf) -> Result<(Option<Tokenizer>, Option<ChatTemplate>)> {
    let name = gguf.name();
    let at = |e: Error| e.at(Path::new(&name));
    let tokenizer = Tokenizer::optional(gguf.metadata()).map_err(at)?;
    Ok((tokenizer, ChatTemplate::from_metadata(gguf.metadata()).map_err(at)?))
}

/// What stands around a user's message in a conversation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Around<'a> {
    /// The system message before it.
    pub system: Option<&'a str>,
    /// Whether the model is to think first; as the template has it if absent.
    pub think: Option<bool>,
}

/// A user's message alone to tokens: [`encode_prompt`] with nothing around it.
///
/// # Errors
/// If the template refuses the conversation.
pub fn chat_prompt(about: &About, text: &str) -> Result<Vec<Token>> {
    encode_prompt(about, text, Around::default())
}

/// A user's message to tokens, through the model's chat template, up to where the model's answer begins. Without a
/// template the text stands alone.
///
/// # Errors
/// If the template refuses the conversation.
pub fn encode_prompt(about: &About, text: &str, around: Around) -> Result<Vec<Token>> {
    let tokenizer = about.tokenizer()?;
    let Some(template) = &about.template else {
        return tokenizer.encode(text, Specials::AsText);
    };
    let system = around.system.map(|text| json!({"role": "system", "content": text}));
    let user = json!({"role": "user", "content": text});
    let messages = Value::Array(system.into_iter().chain([user]).collect());
    let mut options = Map::new();
    options.insert("add_generation_prompt".to_owned(), Value::Bool(true));
    if let Some(think) = around.think {
        options.insert("enable_thinking".to_owned(), Value::Bool(think));
    }
    template.encode(tokenizer, &messages, &options)
}
