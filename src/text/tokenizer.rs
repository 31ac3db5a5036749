//! Text to token ids and back.
//!
//! Owns: normalisation, the pre-tokenizer, byte-pair merging (the `tokenizers` crate, set up from a file's metadata) and
//! each token's bytes. Refuses to know: what the ids are used for.

use std::fmt;
use std::sync::Arc;

use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    AddedToken, AddedVocabulary, Model, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
    SplitDelimiterBehavior,
};

use super::vocabulary::{Kind, MODEL, Vocabulary, byte_alphabet};
use crate::gguf::Metadata;
use xxhash_rust::xxh3::xxh3_128;

use crate::{Error, Result};

/// The pre-tokenizer `qwen35`: one match is one word, merged on its own. Unlike its elders it keeps combining marks
/// (`\p{M}`) with their letters.
const QWEN35: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
    r"|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+",
    r"|\s+(?!\S)",
    r"|\s+",
);

/// Longest text that is encoded, in bytes. The regex engine gives up (by a panic) after ten million steps back inside one
/// match, which only white space that long can cause.
const MAX_TEXT: usize = 8 << 20;

/// How text that spells a special token is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specials {
    /// As that token: for rendered chat templates.
    Parse,
    /// As ordinary text: for what a user typed. Holds for control tokens and user-defined ones (`<think>`) alike.
    AsText,
}

/// A byte-level BPE tokenizer built from GGUF metadata. A clone shares its tables.
#[derive(Clone)]
pub struct Tokenizer {
    model: Arc<BPE>,
    words: Arc<Split>,
    bytes: ByteLevel,
    specials: Arc<AddedVocabulary>,
    spellings: Arc<Spellings>,
    eog: Vec<u32>,
}

impl Tokenizer {
    /// Builds the tokenizer from the `tokenizer.ggml.*` keys: `model` must be `gpt2`, `pre` must be `qwen35`; `tokens`,
    /// `token_type` and `merges` are needed. Errors name the key, what was expected and what was found.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let vocabulary = Vocabulary::from_metadata(metadata)?;
        let spellings = Spellings::new(&vocabulary);
        let special = |(token, kind): (&&str, &Kind)| kind.is_special().then(|| AddedToken::from(*token, true));
        let added: Vec<AddedToken> = vocabulary.tokens.iter().zip(&vocabulary.kinds).filter_map(special).collect();
        let model = BPE::builder()
            .vocab_and_merges(vocabulary.ids, vocabulary.merges)
            .build()
            .map_err(|e| inner("tokenizer.ggml.merges", &*e))?;
        let mut specials = AddedVocabulary::new();
        specials.add_tokens(&added, &model, Some(&NFC));
        let words = Split::new(SplitPattern::Regex(QWEN35.into()), SplitDelimiterBehavior::Isolated, false)
            .map_err(|e| inner("tokenizer.ggml.pre", &*e))?;
        Ok(Tokenizer {
            model: Arc::new(model),
            words: Arc::new(words),
            bytes: ByteLevel::new(false, false, false),
            specials: Arc::new(specials),
            spellings: Arc::new(spellings),
            eog: vocabulary.eog,
        })
    }

    /// The same; `None` if the file says that it has no tokenizer (`tokenizer.ggml.model` is `none`).
    pub fn optional(metadata: &Metadata) -> Result<Option<Self>> {
        match metadata.str(MODEL)? {
            Some("none") => Ok(None),
            _ => Tokenizer::from_metadata(metadata).map(Some),
        }
    }

    /// Token ids of `text`, which is first brought to Unicode's composed form (NFC), as in training. Nothing is added in
    /// front or behind. An [`Error`] for a text of more than 8 MiB.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<u32>> {
        if text.len() > MAX_TEXT {
            return Err(Error::new(format!("expected at most {MAX_TEXT} bytes, found {}", text.len())).about("text"));
        }
        self.split_and_merge(text, specials).map_err(|e| inner("text", &*e))
    }

    fn split_and_merge(&self, text: &str, specials: Specials) -> tokenizers::Result<Vec<u32>> {
        let mut pieces = match specials {
            Specials::Parse => self.specials.extract_and_normalize(Some(&NFC), text),
            Specials::AsText => {
                let mut pieces = PreTokenizedString::from(text);
                pieces.normalize(|piece| NFC.normalize(piece))?;
                pieces
            }
        };
        self.words.pre_tokenize(&mut pieces)?;
        self.bytes.pre_tokenize(&mut pieces)?;
        pieces.tokenize(|word| self.model.tokenize(word.get()))?;
        let words = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
        let tokens = words.into_iter().filter_map(|(_, _, tokens)| tokens.as_ref());
        Ok(tokens.flatten().map(|token| token.id).collect())
    }

    /// Token ids of `text`, in which special tokens count, except those that are broken by a `mark` behind their first
    /// character: the marks are taken out, and what they stood in is ordinary text.
    pub(super) fn encode_marked(&self, text: &str, mark: char) -> Result<Vec<u32>> {
        let plain = |piece: &str| self.encode(&piece.replace(mark, ""), Specials::AsText);
        let (mut ids, mut done, mut at) = (Vec::new(), 0, 0);
        while let Some(c) = text[at..].chars().next() {
            match self.special_at(&text[at..]) {
                Some((id, len)) => {
                    ids.extend(plain(&text[done..at])?);
                    ids.push(id);
                    at += len;
                    done = at;
                }
                None => at += c.len_utf8(),
            }
        }
        ids.extend(plain(&text[done..])?);
        Ok(ids)
    }

    /// The longest special token that `text` starts with: its id and its length in bytes.
    fn special_at(&self, text: &str) -> Option<(u32, usize)> {
        let specials = self.specials.get_vocab().iter();
        let fitting = specials.filter(|(spelling, _)| text.starts_with(spelling.as_str()));
        fitting.map(|(spelling, &id)| (id, spelling.len())).max_by_key(|&(_, len)| len)
    }

    /// `text` with a `mark` behind the first character of everything in it that spells a special token; `None` if
    /// nothing does.
    pub(super) fn mark_specials(&self, text: &str, mark: char) -> Option<String> {
        let starts = |at: usize| self.special_at(&text[at..]).is_some();
        let marks: Vec<usize> = text.char_indices().map(|(at, _)| at).filter(|&at| starts(at)).collect();
        let mut marked = text.to_owned();
        for at in marks.iter().rev() {
            let first = text[*at..].chars().next().map_or(0, char::len_utf8);
            marked.insert(at + first, mark);
        }
        (!marks.is_empty()).then_some(marked)
    }

    /// The bytes that `ids` stand for, special tokens as they are spelt. The bytes need not be UTF-8: a token may be part
    /// of a character. An id outside the vocabulary is an [`Error`].
    pub fn decode(&self, ids: &[u32]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend_from_slice(self.token_bytes(id)?);
        }
        Ok(bytes)
    }

    /// The bytes of one token. An id outside the vocabulary is an [`Error`].
    pub fn token_bytes(&self, id: u32) -> Result<&[u8]> {
        self.spellings.get(id).ok_or_else(|| {
            let size = self.vocab_size();
            Error::new(format!("{id} is outside the vocabulary of {size} tokens")).about("token id")
        })
    }

    /// The id of the special token that is spelt `text`, if there is one.
    pub fn special_id(&self, text: &str) -> Option<u32> {
        self.specials.get_vocab().get(text).copied()
    }

    /// Whether `id` is a special token: matched whole, never made of ordinary text.
    pub fn is_special(&self, id: u32) -> bool {
        let spelling = self.spellings.get(id).and_then(|bytes| std::str::from_utf8(bytes).ok());
        spelling.is_some_and(|spelling| self.special_id(spelling) == Some(id))
    }

    /// Whether `id` ends a generation.
    pub fn is_eog(&self, id: u32) -> bool {
        self.eog.binary_search(&id).is_ok()
    }

    /// All ids that end a generation, ascending: the file's end-of-text and end-of-turn tokens, and the control tokens
    /// `<|im_end|>` and `<|endoftext|>`. Empty for a vocabulary without any.
    pub fn eog(&self) -> &[u32] {
        &self.eog
    }

    /// The first token that is not the same in `other`, in words; nothing if the vocabularies are one.
    pub fn first_difference(&self, other: &Tokenizer) -> Option<String> {
        let spelt = |tokenizer: &Tokenizer, id| {
            let text = tokenizer.token_bytes(id).map(|bytes| format!("{:?}", String::from_utf8_lossy(bytes)));
            text.unwrap_or_else(|_| "absent".to_owned())
        };
        let (ours, theirs) = (self.vocab_size(), other.vocab_size());
        let differs = |&id: &u32| self.token_bytes(id).ok() != other.token_bytes(id).ok();
        let id = (0..ours.max(theirs) as u32).find(differs)?;
        Some(format!("token {id} is {} here, {} there", spelt(other, id), spelt(self, id)))
    }

    /// A hash of all tokens in their order.
    pub fn fingerprint(&self) -> [u8; 16] {
        let ends = self.spellings.starts.iter().flat_map(|start| (*start as u64).to_le_bytes());
        xxh3_128(&self.spellings.bytes.iter().copied().chain(ends).collect::<Vec<_>>()).to_le_bytes()
    }

    /// Number of tokens: ids are `0..vocab_size()`.
    pub fn vocab_size(&self) -> usize {
        self.spellings.len()
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).field("eog", &self.eog).finish()
    }
}

fn inner(subject: &str, error: &(dyn std::error::Error + 'static)) -> Error {
    Error::new(error.to_string()).about(subject)
}

/// The bytes of every token, one after another.
struct Spellings {
    bytes: Vec<u8>,
    /// Token `i` is `bytes[starts[i]..starts[i + 1]]`.
    starts: Vec<usize>,
}

impl Spellings {
    fn new(vocabulary: &Vocabulary) -> Self {
        let mut byte_of = [None; 0x200];
        for (byte, c) in byte_alphabet().into_iter().enumerate() {
            byte_of[c as usize] = Some(byte as u8);
        }
        let byte_of = |c: char| byte_of.get(c as usize).copied().flatten();
        let mut bytes = Vec::new();
        let mut starts = vec![0];
        for (token, kind) in vocabulary.tokens.iter().zip(&vocabulary.kinds) {
            let start = bytes.len();
            let spelt_in_bytes =
                !kind.is_special() && token.chars().all(|c| byte_of(c).map(|b| bytes.push(b)).is_some());
            if !spelt_in_bytes {
                bytes.truncate(start);
                bytes.extend_from_slice(token.as_bytes());
            }
            starts.push(bytes.len());
        }
        Spellings { bytes, starts }
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn get(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.starts.get(id + 1)?;
        Some(&self.bytes[self.starts[id]..end])
    }
}
