//! Chat templates: a conversation becomes the text that the model was trained on.
//!
//! Owns: rendering a file's Jinja template as `transformers` renders it, within bounds, since templates come with
//! downloaded files. Refuses to know: tokens, and what any template says.

use std::io;

use minijinja::ErrorKind;
use minijinja::value::Value;
use serde_json::Map;

use super::jinja::{Raised, environment};
use super::tokenizer::{Specials, Tokenizer};
use crate::gguf::Metadata;
use crate::{Error, Result};

const KEY: &str = "tokenizer.chat_template";

/// Instructions a template may execute. Qwen3.5's needs fewer than 500 for a message.
const FUEL: u64 = 4_000_000;
/// Most bytes a conversation may be rendered to: no longer text is encoded.
const MAX_RENDERED: usize = 8 << 20;
/// Stack of the rendering thread, in bytes. It is address space, not memory: a template can nest values about as deep as it
/// has fuel, and freeing them recurses.
const STACK: usize = 256 << 20;

/// The Jinja template of a model file.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: String,
    /// Spelling of the tokens that templates may name: `bos_token`, `eos_token`.
    tokens: Vec<(&'static str, String)>,
}

impl ChatTemplate {
    /// The template under `tokenizer.chat_template`; `None` where the file has none. An [`Error`] that names the key for a
    /// template that cannot be parsed.
    pub fn from_metadata(metadata: &Metadata) -> Result<Option<Self>> {
        let Some(source) = metadata.str(KEY)? else {
            return Ok(None);
        };
        let mut template = ChatTemplate::new(source)?;
        let named = [("bos_token", "tokenizer.ggml.bos_token_id"), ("eos_token", "tokenizer.ggml.eos_token_id")];
        for (name, key) in named {
            template.tokens.extend(token(metadata, key)?.map(|text| (name, text)));
        }
        Ok(Some(template))
    }

    /// A template of one's own. An [`Error`] if it cannot be parsed.
    pub fn new(source: &str) -> Result<Self> {
        let env = environment();
        env.template_from_str(source).map_err(|e| error(&e))?;
        Ok(ChatTemplate { source: source.to_owned(), tokens: Vec::new() })
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders `messages`, a list of mappings with `role` and `content`. `options` are variables of the template
    /// (`add_generation_prompt`, `enable_thinking`, `tools`, ...). An [`Error`] with the template's own words where it
    /// refuses a conversation, and one for a template that fails, runs for too long or writes too much.
    pub fn render(&self, messages: &serde_json::Value, options: &Map<String, serde_json::Value>) -> Result<String> {
        if messages.as_array().is_none_or(|messages| messages.is_empty()) {
            return Err(Error::new("expected a list of at least one message").about("messages"));
        }
        let render = || self.render_here(messages, options);
        let cannot_start = |e: io::Error| Error::new(format!("cannot start a thread to render it: {e}")).about(KEY);
        std::thread::scope(|scope| {
            let thread =
                std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, render).map_err(cannot_start)?;
            thread.join().unwrap_or_else(|_| Err(Error::new("the template engine failed").about(KEY)))
        })
    }

    /// Token ids of the rendered conversation. Special tokens are the template's own; what a user, the system message or a
    /// tool wrote stays text, also where it spells one. (An assistant's turn may hold special tokens: it wrote them.)
    ///
    /// # Errors
    /// As [`ChatTemplate::render`], and for more than 8 MiB of text.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        messages: &serde_json::Value,
        options: &Map<String, serde_json::Value>,
    ) -> Result<Vec<u32>> {
        /// A noncharacter: valid in a string, and in nobody's text.
        const MARK: char = '\u{FDD0}';
        let mut marked = messages.clone();
        let mut any = false;
        for message in marked.as_array_mut().into_iter().flatten() {
            if message["role"] != "assistant" {
                any |= mark(&mut message["content"], &|text| tokenizer.mark_specials(text, MARK));
            }
        }
        match any {
            true => tokenizer.encode_marked(&self.render(&marked, options)?, MARK),
            false => tokenizer.encode(&self.render(messages, options)?, Specials::Parse),
        }
    }

    fn render_here(&self, messages: &serde_json::Value, options: &Map<String, serde_json::Value>) -> Result<String> {
        let mut env = environment();
        env.set_fuel(Some(FUEL));
        let template = env.template_from_str(&self.source).map_err(|e| error(&e))?;
        let conversation = self.variables(messages, options);
        let mut out = Bounded(Vec::new());
        template.render_captured_to(conversation, &mut out).map_err(|e| error(&e))?;
        String::from_utf8(out.0).map_err(|_| Error::new("the template wrote invalid UTF-8").about(KEY))
    }

    /// What the template sees. The options come last, so that they win over what is always there.
    fn variables(&self, messages: &serde_json::Value, options: &Map<String, serde_json::Value>) -> Value {
        // `transformers` always defines these: templates ask whether `tools` is none, not whether it is defined.
        let always =
            [("tools", Value::from(())), ("documents", Value::from(())), ("add_generation_prompt", false.into())];
        let named = self.tokens.iter().map(|(name, text)| (*name, Value::from(text.as_str())));
        let given = options.iter().map(|(name, value)| (name.as_str(), Value::from_serialize(value)));
        let conversation = [("messages", Value::from_serialize(messages))];
        let variables = always.into_iter().chain(named).chain(given).chain(conversation);
        variables.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Replaces every string in `content` (text, or a list of parts) for which `change` has another; tells whether it did.
fn mark(content: &mut serde_json::Value, change: &dyn Fn(&str) -> Option<String>) -> bool {
    match content {
        serde_json::Value::String(text) => match change(text) {
            Some(changed) => {
                *text = changed;
                true
            }
            None => false,
        },
        serde_json::Value::Array(parts) => parts.iter_mut().fold(false, |any, part| mark(part, change) | any),
        serde_json::Value::Object(part) => part.get_mut("text").is_some_and(|text| mark(text, change)),
        _ => false,
    }
}

/// The spelling of the token whose id lies under `key`.
fn token(metadata: &Metadata, key: &str) -> Result<Option<String>> {
    let id = metadata.usize(key)?;
    let tokens = metadata.array("tokenizer.ggml.tokens")?;
    let text = tokens.zip(id).and_then(|(tokens, id)| tokens.get(id)?.as_str());
    Ok(text.map(str::to_owned))
}

/// Tells what went wrong: a template's own message as it is, anything else with the line.
fn error(error: &minijinja::Error) -> Error {
    let mut inner: &(dyn std::error::Error + 'static) = error;
    let mut message = None;
    while message.is_none() {
        let Some(source) = inner.source() else { break };
        if source.is::<Raised>() {
            message = inner.downcast_ref::<minijinja::Error>().and_then(|e| e.detail()).map(str::to_owned);
        }
        inner = source;
    }
    let line = error.line().unwrap_or(1);
    let message = message.unwrap_or_else(|| match (error.kind(), error.detail()) {
        (ErrorKind::WriteFailure, _) => format!("it renders the conversation to more than {MAX_RENDERED} bytes"),
        (ErrorKind::OutOfFuel, _) => format!("line {line}: the template runs for too long"),
        (kind, Some(detail)) => format!("line {line}: {kind}: {detail}"),
        (kind, None) => format!("line {line}: {kind}"),
    });
    Error::new(message).about(KEY)
}

/// Collects what a template writes, up to [`MAX_RENDERED`].
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_RENDERED {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
