//! Text that arrives token by token.
//!
//! Owns: characters cut by token borders, and stop strings. Refuses to know: tokens; it sees bytes.

use std::sync::Arc;

use crate::{Error, Result};

/// Turns bytes that come in pieces into text, never cutting a character. The pieces that come out, joined, are
/// `String::from_utf8_lossy` of all bytes that went in, however they were cut.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    /// Start of a character whose rest has not come yet: at most 3 bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// A stream that has seen nothing.
    pub fn new() -> Self {
        Utf8Stream::default()
    }

    /// Takes the next bytes and gives all text that is now certain: invalid bytes as U+FFFD, an unfinished character not
    /// yet.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        let mut done = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            if chunk.invalid().is_empty() || is_unfinished(&self.pending[done..]) {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            done += chunk.invalid().len();
        }
        self.pending.drain(..done);
        text
    }

    /// Ends the text: a character that never came to its end is one U+FFFD.
    pub fn finish(&mut self) -> String {
        let cut = !std::mem::take(&mut self.pending).is_empty();
        cut.then_some(char::REPLACEMENT_CHARACTER).into_iter().collect()
    }
}

/// Whether further bytes could still make `bytes`, which are not valid as they stand, one character.
fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
}

/// What [`StopStrings::push`] gives back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Bytes that can be shown now: they belong to no stop string, whatever comes.
    pub release: Vec<u8>,
    /// Whether a stop string is complete. Its text, and all that follows, is never released.
    pub stopped: bool,
}

/// Finds the first stop string to be completed in a text that comes in pieces, and holds back what may become one.
///
/// Where two are completed by the same byte the longer one counts. Cloning copies only what is held back and one number
/// for each stop string, so that a decoder can try a block of tokens and go back.
#[derive(Debug, Clone)]
pub struct StopStrings {
    patterns: Arc<[Pattern]>,
    /// For each pattern, how many of its first bytes the text ends with.
    matched: Vec<usize>,
    /// The end of the text that is a beginning of some pattern.
    held: Vec<u8>,
    stopped: bool,
}

impl StopStrings {
    /// A search for `stops`; none at all is fine and never stops. An empty string is an [`Error`] that names `--stop`.
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Result<Self> {
        if stops.iter().any(|stop| stop.as_ref().is_empty()) {
            return Err(Error::new("expected text, found an empty string").about("--stop"));
        }
        Ok(StopStrings {
            patterns: stops.iter().map(|stop| Pattern::new(stop.as_ref())).collect(),
            matched: vec![0; stops.len()],
            held: Vec::new(),
            stopped: false,
        })
    }

    /// Takes the next bytes of the text. After a stop nothing is released any more.
    pub fn push(&mut self, bytes: &[u8]) -> Pushed {
        for &byte in bytes {
            if self.stopped {
                break;
            }
            self.held.push(byte);
            if let Some(len) = self.advance(byte) {
                self.held.truncate(self.held.len() - len);
                self.stopped = true;
            }
        }
        let keep = if self.stopped { 0 } else { self.matched.iter().copied().max().unwrap_or(0) };
        let release = self.held.drain(..self.held.len() - keep).collect();
        Pushed { release, stopped: self.stopped }
    }

    /// Ends the text: what was held back, since no stop string came of it.
    pub fn finish(&mut self) -> Vec<u8> {
        self.matched.fill(0);
        std::mem::take(&mut self.held)
    }

    /// Whether a stop string is complete.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Lets every pattern see `byte`; the length of the longest that it completes.
    fn advance(&mut self, byte: u8) -> Option<usize> {
        let mut longest = None;
        for (pattern, matched) in self.patterns.iter().zip(&mut self.matched) {
            *matched = pattern.advance(*matched, byte);
            if *matched == pattern.bytes.len() {
                longest = longest.max(Some(*matched));
            }
        }
        longest
    }
}

/// One stop string, prepared for a search that looks at each byte once (Knuth, Morris and Pratt).
#[derive(Debug)]
struct Pattern {
    bytes: Vec<u8>,
    /// `border[i]`: how long the longest proper prefix of `bytes[..=i]` is that also ends it.
    border: Vec<usize>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let mut pattern = Pattern { bytes: text.as_bytes().to_vec(), border: vec![0] };
        for i in 1..pattern.bytes.len() {
            let next = pattern.advance(pattern.border[i - 1], pattern.bytes[i]);
            pattern.border.push(next);
        }
        pattern
    }

    /// How many first bytes the text ends with after `byte`, if it ended with `matched` (not yet all) before.
    fn advance(&self, mut matched: usize, byte: u8) -> usize {
        loop {
            if self.bytes[matched] == byte {
                return matched + 1;
            }
            if matched == 0 {
                return 0;
            }
            matched = self.border[matched - 1];
        }
    }
}
