//! Grammars: texts that fit a JSON schema or a regular expression.
//!
//! Owns: grammars over a tokenizer's tokens (the `llguidance` crate does the parsing). Refuses to know: logits, and how a
//! token is chosen among those that are allowed.

mod matcher;
mod trie;

use std::fmt;
use std::sync::Arc;

use draft::Token;
use llguidance::api::TopLevelGrammar;
use llguidance::derivre::RegexBuilder;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{JsonCompileOptions, ParserFactory};
use serde_json::Value;

use self::trie::Trie;
use super::Tokenizer;
use crate::{Error, Result};

pub use matcher::Matcher;

/// What makes grammars over one tokenizer's tokens. Preparing it takes longer than making a grammar.
pub struct Grammars {
    factory: ParserFactory,
    vocabulary: Arc<Vocabulary>,
}

/// What a matcher needs to know of the vocabulary.
#[derive(Debug)]
struct Vocabulary {
    size: usize,
    /// Tokens that end a text, ascending.
    ends: Vec<Token>,
}

impl Grammars {
    /// Prepares the tokenizer's tokens.
    ///
    /// # Errors
    /// If no token of the vocabulary ends a text: no text could ever be complete.
    pub fn new(tokenizer: &Tokenizer) -> Result<Grammars> {
        let vocabulary = Vocabulary { size: tokenizer.vocab_size(), ends: tokenizer.eog().to_vec() };
        let trie = Trie::env(tokenizer)?;
        // With `ff_tokens`, bytes that must come are forced as the tokens that the tokenizer makes of them.
        let can = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&trie, can, &slices).map_err(|e| Error::new(sentence(&e.to_string())))?;
        factory.quiet();
        // An error is one sentence, not the whole grammar.
        factory.limits_mut().verbose_errors = false;
        Ok(Grammars { factory, vocabulary: Arc::new(vocabulary) })
    }

    /// Texts that are JSON and fit the schema, on one line, with one space behind each comma and colon, properties in the
    /// schema's order. References may point into the schema itself (`#/...`).
    ///
    /// # Errors
    /// If it is no schema, says something that is not supported, or fits no text.
    pub fn json_schema(&self, schema: &Value) -> Result<Grammar> {
        let mut schema = schema.clone();
        let own_layout = schema.get("x-guidance").is_some();
        if schema.is_object() && !own_layout {
            // White space that may be anything is where small models get lost, and it leaves nothing to be forced.
            let layout = JsonCompileOptions {
                item_separator: ", ".to_owned(),
                key_separator: ": ".to_owned(),
                whitespace_flexible: false,
                ..JsonCompileOptions::default()
            };
            layout.apply_to(&mut schema);
        }
        self.grammar(TopLevelGrammar::from_json_schema(schema), "JSON schema")
    }

    /// Texts that the regular expression matches from their beginning to their end (the syntax of the `regex` crate,
    /// without anchors and look-around).
    ///
    /// # Errors
    /// If it is no regular expression.
    pub fn regex(&self, regex: &str) -> Result<Grammar> {
        // Parsed alone first: inside a grammar its faults are told less clearly, and some are passed over.
        if let Err(e) = RegexBuilder::new().mk_regex(regex) {
            return Err(unfollowed("regular expression", &e));
        }
        if regex.is_empty() {
            return Err(unfollowed("regular expression", &"it is empty"));
        }
        self.grammar(TopLevelGrammar::from_regex(regex), "regular expression")
    }

    fn grammar(&self, grammar: TopLevelGrammar, kind: &str) -> Result<Grammar> {
        let mut start = llguidance::Matcher::new(self.factory.create_parser(grammar));
        // A grammar that fits no text is found out by its first mask.
        start.compute_mask_or_eos().map_err(|e| unfollowed(kind, &e))?;
        Ok(Grammar { start, vocabulary: Arc::clone(&self.vocabulary) })
    }
}

/// A grammar, from which any number of texts can be started.
pub struct Grammar {
    start: llguidance::Matcher,
    vocabulary: Arc<Vocabulary>,
}

impl Grammar {
    /// Starts a text. It follows the grammar from its first token on or, where a token is given (the one that ends the
    /// model's thinking), from behind the first one of that kind; until then everything is allowed.
    pub fn start(&self, behind: Option<Token>) -> Matcher {
        Matcher::new(self.start.deep_clone(), Arc::clone(&self.vocabulary), behind)
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").field("vocabulary", &self.vocabulary).finish_non_exhaustive()
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").field("vocabulary", &self.vocabulary).finish_non_exhaustive()
    }
}

/// What is said of a grammar that cannot be used.
fn unfollowed(kind: &str, reason: &dyn fmt::Display) -> Error {
    Error::new(format!("expected a {kind} that can be followed; {}", sentence(&reason.to_string())))
}

/// What the parser said, on one line: the error alone, where it has shown the place as well.
fn sentence(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let error = lines.iter().find_map(|line| line.strip_prefix("error: "));
    error.map_or_else(|| lines.join(" "), str::to_owned)
}
