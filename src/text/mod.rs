//! Text: between characters and token ids, both ways, and the chat template.
//!
//! Owns: the tokenizer, chat templates, grammars, text that arrives in pieces. Refuses to know: models, logits, when to stop
//! generating; it tells which tokens end a text and whether a stop string is complete, and leaves the rest to the engine.

mod chat;
mod grammar;
mod jinja;
mod python;
mod stream;
mod tokenizer;
mod vocabulary;

pub use chat::ChatTemplate;
pub use grammar::{Grammar, Grammars, Matcher};
pub use stream::{Pushed, StopStrings, Utf8Stream};
pub use tokenizer::{Specials, Tokenizer};
