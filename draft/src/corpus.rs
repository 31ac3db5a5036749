//! Earlier texts to draft from, as they are kept between runs.
//!
//! Owns: the documents, their bound, and their bytes. Refuses to know: files, and what is drafted from them.
//!
//! The bytes: `b"DRAFTCRP"`, the version, the vocabulary's fingerprint, the number of tokens, the tokens, and the 64-bit
//! xxh3 of all before; numbers are little-endian, u32 but for the checksum. Each document ends in [`SEPARATOR`].

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::Token;
use crate::suffix::SEPARATOR;

const MAGIC: [u8; 8] = *b"DRAFTCRP";
const VERSION: u32 = 1;
/// Magic, version, fingerprint, count.
const HEADER: usize = 8 + 4 + 16 + 4;
const CHECKSUM: usize = 8;
/// Tokens kept unless told otherwise: 1 MiB.
const BOUND: usize = 1 << 18;

/// Documents of one vocabulary, oldest first, of a bounded total.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corpus {
    vocabulary: [u8; 16],
    bound: usize,
    tokens: Vec<Token>,
}

/// Why bytes are not a corpus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorpusError {
    /// They begin otherwise.
    Foreign,
    /// They are of this version, which is not the supported one.
    Version(u32),
    /// Their tokens are of another vocabulary.
    Vocabulary,
    /// They should be so many, and are so many.
    Length(u64, u64),
    /// Their checksum is another one.
    Checksum,
    /// Their last document has no end.
    Unfinished,
}

impl fmt::Display for CorpusError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            CorpusError::Foreign => write!(f, "is not a corpus of drafted texts"),
            CorpusError::Version(found) => write!(f, "is a corpus of version {found}; supported is version {VERSION}"),
            CorpusError::Vocabulary => write!(f, "is a corpus of another vocabulary than the model's"),
            CorpusError::Length(expected, found) => {
                write!(f, "is a corpus that should have {expected} bytes and has {found}")
            }
            CorpusError::Checksum => write!(f, "is a damaged corpus: its checksum does not fit its content"),
            CorpusError::Unfinished => write!(f, "is a corpus whose last document has no end"),
        }
    }
}

impl std::error::Error for CorpusError {}

impl Corpus {
    /// An empty corpus of a vocabulary, named by a fingerprint of the caller's making.
    pub fn new(vocabulary: [u8; 16]) -> Corpus {
        Corpus::bounded(vocabulary, BOUND)
    }

    /// One that keeps at most `bound` tokens, a separator for each document included.
    pub fn bounded(vocabulary: [u8; 16], bound: usize) -> Corpus {
        Corpus { vocabulary, bound, tokens: Vec::new() }
    }

    /// The corpus that [`Corpus::to_bytes`] made these bytes of.
    ///
    /// # Errors
    /// If they were not made so, not by this version, not for this vocabulary, or are not whole.
    pub fn from_bytes(bytes: &[u8], vocabulary: [u8; 16]) -> Result<Corpus, CorpusError> {
        let missing = CorpusError::Length((HEADER + CHECKSUM) as u64, bytes.len() as u64);
        let body = bytes.strip_prefix(&MAGIC).ok_or(CorpusError::Foreign)?;
        let (version, body) = number(body).ok_or(missing.clone())?;
        if version != VERSION {
            return Err(CorpusError::Version(version));
        }
        let (fingerprint, body) = body.split_at_checked(vocabulary.len()).ok_or(missing.clone())?;
        let (count, body) = number(body).ok_or(missing)?;
        let expected = HEADER as u64 + 4 * u64::from(count) + CHECKSUM as u64;
        if bytes.len() as u64 != expected {
            return Err(CorpusError::Length(expected, bytes.len() as u64));
        }
        let (content, sum) = bytes.split_at(bytes.len() - CHECKSUM);
        if xxh3_64(content).to_le_bytes() != *sum {
            return Err(CorpusError::Checksum);
        }
        if *fingerprint != vocabulary {
            return Err(CorpusError::Vocabulary);
        }
        let (words, _) = body[..body.len() - CHECKSUM].as_chunks::<4>();
        let tokens: Vec<Token> = words.iter().map(|&word| Token::from_le_bytes(word)).collect();
        if tokens.last().is_some_and(|&last| last != SEPARATOR) {
            return Err(CorpusError::Unfinished);
        }
        let mut corpus = Corpus { tokens, ..Corpus::new(vocabulary) };
        corpus.drop_oldest();
        Ok(corpus)
    }

    /// The corpus as bytes: the same corpus, the same bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + 4 * self.tokens.len() + CHECKSUM);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.vocabulary);
        bytes.extend((self.tokens.len() as u32).to_le_bytes());
        self.tokens.iter().for_each(|token| bytes.extend(token.to_le_bytes()));
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// Adds a document as the newest one; if the same is there already, it is moved. The oldest documents go, whole,
    /// when the bound is passed; of a document beyond the bound the end is kept.
    pub fn add(&mut self, document: &[Token]) {
        assert!(!document.contains(&SEPARATOR), "token {SEPARATOR} separates documents and is part of none");
        let document = &document[document.len().saturating_sub(self.bound.saturating_sub(1))..];
        if document.is_empty() {
            return;
        }
        let mut start = 0;
        for known in self.tokens.split_inclusive(|&token| token == SEPARATOR) {
            if known[..known.len() - 1] == *document {
                self.tokens.drain(start..start + known.len());
                break;
            }
            start += known.len();
        }
        self.tokens.extend_from_slice(document);
        self.tokens.push(SEPARATOR);
        self.drop_oldest();
    }

    /// The documents, each followed by `u32::MAX`: what [`crate::Suffix::warmed`] reads.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    fn drop_oldest(&mut self) {
        let surplus = self.tokens.len().saturating_sub(self.bound);
        if surplus > 0 {
            let ends = self.tokens[surplus - 1..].iter().position(|&token| token == SEPARATOR);
            self.tokens.drain(..ends.map_or(self.tokens.len(), |end| surplus + end));
        }
    }
}

/// The number that bytes begin with, and the rest.
fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*first), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Token = SEPARATOR;
    const OURS: [u8; 16] = [7; 16];

    fn sample() -> Corpus {
        let mut corpus = Corpus::new(OURS);
        corpus.add(&[1, 2, 3]);
        corpus.add(&[4, 5]);
        corpus
    }

    #[test]
    fn bytes_give_the_corpus_back() {
        for corpus in [Corpus::new(OURS), sample()] {
            assert_eq!(Corpus::from_bytes(&corpus.to_bytes(), OURS), Ok(corpus));
        }
    }

    #[test]
    fn the_oldest_documents_go_first_and_whole() {
        let mut corpus = Corpus::bounded(OURS, 8);
        corpus.add(&[1, 2, 3]);
        corpus.add(&[4, 5, 6]);
        assert_eq!(corpus.tokens(), [1, 2, 3, END, 4, 5, 6, END]);
        corpus.add(&[7]);
        assert_eq!(corpus.tokens(), [4, 5, 6, END, 7, END]);
        corpus.add(&[8, 9, 10, 11, 12, 13]);
        assert_eq!(corpus.tokens(), [8, 9, 10, 11, 12, 13, END]);
        corpus.add(&(0..20).collect::<Vec<_>>());
        assert_eq!(corpus.tokens(), [13, 14, 15, 16, 17, 18, 19, END]);
    }

    #[test]
    fn a_document_that_is_there_already_becomes_the_newest() {
        let mut corpus = sample();
        corpus.add(&[]);
        corpus.add(&[1, 2, 3]);
        assert_eq!(corpus.tokens(), [4, 5, END, 1, 2, 3, END]);
    }

    #[test]
    fn cut_bytes_are_refused() {
        let bytes = sample().to_bytes();
        for length in 0..bytes.len() {
            let error = Corpus::from_bytes(&bytes[..length], OURS).unwrap_err();
            let expected = if length < MAGIC.len() { "not a corpus" } else { "should have" };
            assert!(error.to_string().contains(expected), "{length}: {error}");
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed_wherever_it_is() {
        let bytes = sample().to_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Corpus::from_bytes(&bytes, OURS).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_vocabulary_or_version_is_named() {
        let mut bytes = sample().to_bytes();
        assert_eq!(Corpus::from_bytes(&bytes, [8; 16]), Err(CorpusError::Vocabulary));
        bytes[8] = 9;
        assert_eq!(Corpus::from_bytes(&bytes, OURS), Err(CorpusError::Version(9)));
        assert_eq!(CorpusError::Version(9).to_string(), "is a corpus of version 9; supported is version 1");
    }

    #[test]
    fn a_count_beyond_all_memory_and_a_missing_end_are_refused() {
        let mut bytes = sample().to_bytes();
        bytes[28..32].fill(0xFF);
        assert!(matches!(Corpus::from_bytes(&bytes, OURS), Err(CorpusError::Length(..))));
        let open = Corpus { tokens: vec![1, 2], ..Corpus::new(OURS) };
        assert_eq!(Corpus::from_bytes(&open.to_bytes(), OURS), Err(CorpusError::Unfinished));
    }
}
