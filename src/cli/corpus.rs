//! Earlier texts that drafting copies from.
//!
//! Owns: the files behind `--corpus`: which are read, and which gets this run's output. Refuses to know: how copies are
//! found.
//!
//! A file that holds a corpus gets each output added and drops its oldest ones; any other file is a text to copy from and
//! is left as it is.

use std::path::{Path, PathBuf};

use draft::{Corpus, CorpusError, Token};

use super::setup::About;
use crate::text::Specials;
use crate::{Error, Result, whole};

/// Tokens of a text file that are copied from at most, the last ones: more would take seconds to index.
const TEXT: usize = 1 << 20;

/// What the files held, and where the output goes.
pub struct Texts {
    /// All their tokens, each document with an end.
    tokens: Vec<Token>,
    kept: Vec<(PathBuf, Corpus)>,
}

impl Texts {
    /// Reads the files; one that does not exist yet, or holds nothing, is an empty corpus.
    ///
    /// # Errors
    /// If a file cannot be read, is a damaged corpus or one of another vocabulary, or is no text; if a corpus could not be
    /// written when the output is there.
    pub fn read(paths: &[PathBuf], about: &About) -> Result<Texts> {
        let mut texts = Texts { tokens: Vec::new(), kept: Vec::new() };
        for path in paths {
            texts.add(path, about).map_err(|e| e.about("--corpus").at(path))?;
        }
        Ok(texts)
    }

    fn add(&mut self, path: &Path, about: &About) -> Result<()> {
        let vocabulary = about.vocabulary();
        let bytes = match path.exists() {
            true => std::fs::read(path).map_err(|e| Error::io(path, "read", &e))?,
            false => Vec::new(),
        };
        let bytes = if bytes.is_empty() { Corpus::new(vocabulary).to_bytes() } else { bytes };
        let corpus = match Corpus::from_bytes(&bytes, vocabulary) {
            Err(CorpusError::Foreign) => {
                let text = String::from_utf8(bytes).map_err(|_| Error::new("is neither a corpus nor UTF-8"))?;
                let mut corpus = Corpus::bounded(vocabulary, TEXT);
                corpus.add(&about.tokenizer()?.encode(&text, Specials::AsText)?);
                corpus
            }
            Err(e) => return Err(Error::new(e.to_string())),
            Ok(corpus) => {
                whole::probe(path)?;
                if !path.exists() {
                    eprintln!("verbatim: {}: a new corpus, which will hold this output", path.display());
                }
                self.kept.push((path.to_owned(), corpus.clone()));
                corpus
            }
        };
        self.tokens.extend_from_slice(corpus.tokens());
        Ok(())
    }

    /// All their tokens, each document with an end.
    pub fn take(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.tokens)
    }

    /// Adds an output to the corpora among the files and writes them, each whole or not at all.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn keep(&mut self, output: &[Token]) -> Result<()> {
        for (path, corpus) in &mut self.kept {
            corpus.add(output);
            whole::write(path, &corpus.to_bytes())?;
        }
        Ok(())
    }
}
