//! The vocabulary as the file's metadata states it, checked as a whole.
//!
//! Owns: the `tokenizer.ggml.*` keys and what must hold between them. Refuses to know: how text is cut into tokens.

use tokenizers::models::bpe::{Merges, Vocab};

use crate::gguf::{Array, Metadata};
use crate::{Error, Result};

pub(super) const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";

/// Keys that name one end-of-generation token each.
const EOG_KEYS: [&str; 2] = ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"];
/// Control tokens that end a generation wherever a vocabulary has them, whatever the keys say.
const EOG_NAMES: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// What a token is for (the values of `tokenizer.ggml.token_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text: the token is spelt in the byte alphabet.
    Text,
    /// A marker of the chat format, matched whole, never made of ordinary text.
    Control,
    /// Added after training, matched whole like a marker.
    UserDefined,
}

impl Kind {
    fn from_code(code: u64) -> Option<Kind> {
        match code {
            1 | 2 | 5 | 6 => Some(Kind::Text),
            3 => Some(Kind::Control),
            4 => Some(Kind::UserDefined),
            _ => None,
        }
    }

    /// Whether the token is matched whole where special tokens are parsed; such a token is spelt as it is.
    pub(super) fn is_special(self) -> bool {
        self != Kind::Text
    }
}

/// A checked vocabulary: tokens are distinct, every byte has a token, every merge gives a known token that text may hold.
pub(super) struct Vocabulary<'a> {
    /// Spelling of each token, by id.
    pub(super) tokens: Vec<&'a str>,
    /// What each token is for, by id.
    pub(super) kinds: Vec<Kind>,
    /// Id of each spelling.
    pub(super) ids: Vocab,
    /// Pairs to merge, first one first.
    pub(super) merges: Merges,
    /// Ids that end a generation, ascending.
    pub(super) eog: Vec<u32>,
}

impl<'a> Vocabulary<'a> {
    /// Reads and checks the `tokenizer.ggml.*` keys. Errors name the key.
    pub(super) fn from_metadata(metadata: &'a Metadata) -> Result<Self> {
        supported(metadata, MODEL, "gpt2")?;
        supported(metadata, PRE, "qwen35")?;
        if metadata.bool(ADD_BOS)? == Some(true) {
            return Err(Error::new("true is not supported: no token is put in front of a text").about(ADD_BOS));
        }
        let tokens = strings(metadata, TOKENS)?;
        if u32::try_from(tokens.len()).is_err() {
            return Err(Error::new(format!("{} tokens do not fit 32-bit ids", tokens.len())).about(TOKENS));
        }
        let kinds = kinds(metadata, tokens.len())?;
        let ids = ids(&tokens)?;
        check_bytes(&ids, &kinds)?;
        let merges = merges(metadata, &ids, &kinds)?;
        let eog = end_of_generation(metadata, &ids, &kinds)?;
        Ok(Vocabulary { tokens, kinds, ids, merges, eog })
    }
}

/// The character that stands for each byte in a token's spelling (GPT-2's byte-level alphabet): printable Latin-1
/// characters stand for themselves, the other 68 bytes follow from U+0100 in order.
pub(super) fn byte_alphabet() -> [char; 256] {
    let mut next = '\u{100}'..;
    std::array::from_fn(|byte| {
        let own = byte as u8 as char;
        match own {
            '!'..='~' | '¡'..='¬' | '®'..='ÿ' => own,
            _ => next.next().unwrap_or(own),
        }
    })
}

/// What is said of an array under `key` whose elements are not `wanted`.
fn wrong_elements(key: &str, wanted: &str, found: &Array) -> Error {
    Error::new(format!("elements should be {wanted}, found {}", found.kind().name())).about(key)
}

fn strings<'a>(metadata: &'a Metadata, key: &str) -> Result<Vec<&'a str>> {
    let array = Metadata::required(key, metadata.array(key))?;
    let strings: Option<Vec<&str>> = array.iter().map(|item| item.as_str()).collect();
    strings.ok_or_else(|| wrong_elements(key, "strings", array))
}

fn unsigned(metadata: &Metadata, key: &str) -> Result<Vec<u64>> {
    let array = Metadata::required(key, metadata.array(key))?;
    let values: Option<Vec<u64>> = array.iter().map(|item| item.as_u64()).collect();
    values.ok_or_else(|| wrong_elements(key, "unsigned integers", array))
}

fn supported(metadata: &Metadata, key: &str, wanted: &str) -> Result<()> {
    let found = Metadata::required(key, metadata.str(key))?;
    if found == wanted {
        return Ok(());
    }
    Err(Error::new(format!("`{found}` is not supported; supported: `{wanted}`")).about(key))
}

fn kinds(metadata: &Metadata, tokens: usize) -> Result<Vec<Kind>> {
    let codes = unsigned(metadata, TYPES)?;
    if codes.len() != tokens {
        return Err(Error::new(format!("{} types for {tokens} tokens of {TOKENS}", codes.len())).about(TYPES));
    }
    let kind = |(id, code): (usize, u64)| {
        Kind::from_code(code)
            .ok_or_else(|| Error::new(format!("token {id} is of type {code}; types are 1 to 6")).about(TYPES))
    };
    codes.into_iter().enumerate().map(kind).collect()
}

fn ids(tokens: &[&str]) -> Result<Vocab> {
    let mut ids = Vocab::with_capacity(tokens.len());
    for (id, token) in tokens.iter().enumerate() {
        if let Some(first) = ids.insert((*token).to_owned(), id as u32) {
            return Err(Error::new(format!("tokens {first} and {id} are both {token:?}")).about(TOKENS));
        }
    }
    Ok(ids)
}

/// Every byte needs a token of its own, so that any text has ids, and ordinary text never becomes a control token.
fn check_bytes(ids: &Vocab, kinds: &[Kind]) -> Result<()> {
    for (byte, c) in byte_alphabet().into_iter().enumerate() {
        let message = match ids.get(c.encode_utf8(&mut [0; 4]) as &str) {
            None => format!("no token {c:?} for byte 0x{byte:02X}"),
            Some(&id) if kinds[id as usize] == Kind::Control => {
                format!("token {id}, {c:?} for byte 0x{byte:02X}, is a control token")
            }
            Some(_) => continue,
        };
        return Err(Error::new(message).about(TOKENS));
    }
    Ok(())
}

fn merges(metadata: &Metadata, ids: &Vocab, kinds: &[Kind]) -> Result<Merges> {
    let wrong = |i: usize, what: String| Error::new(format!("merge {i} {what}")).about(MERGES);
    let mut joined = String::new();
    let mut merges = Merges::new();
    for (i, merge) in strings(metadata, MERGES)?.into_iter().enumerate() {
        let Some((left, right)) = merge.split_once(' ').filter(|(_, right)| !right.contains(' ')) else {
            return Err(wrong(i, format!("should be two tokens and a space between them, found {merge:?}")));
        };
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        for part in [left, right, joined.as_str()] {
            match ids.get(part) {
                None => return Err(wrong(i, format!("names {part:?}, which is no token of {TOKENS}"))),
                Some(&id) if kinds[id as usize] == Kind::Control => {
                    return Err(wrong(i, format!("names the control token {part:?}")));
                }
                Some(_) => {}
            }
        }
        merges.push((left.to_owned(), right.to_owned()));
    }
    Ok(merges)
}

fn end_of_generation(metadata: &Metadata, ids: &Vocab, kinds: &[Kind]) -> Result<Vec<u32>> {
    let mut eog = Vec::new();
    for key in EOG_KEYS {
        let Some(id) = metadata.usize(key)? else {
            continue;
        };
        if id >= kinds.len() {
            return Err(Error::new(format!("token {id} is out of range: {} tokens", kinds.len())).about(key));
        }
        eog.push(id as u32);
    }
    let named = EOG_NAMES.iter().filter_map(|name| ids.get(*name).copied());
    eog.extend(named.filter(|&id| kinds[id as usize] == Kind::Control));
    eog.sort_unstable();
    eog.dedup();
    Ok(eog)
}
