//! The one error of the library: where it happened, what it concerns, what is wrong.
//!
//! Owns: the wording's shape, `place: subject: message`. Refuses to know: who raises it.
//! Everything that can go wrong *outside* (files, flags, devices) is an [`Error`]; everything that
//! cannot happen is an `assert!` at an operation's entry.

use std::fmt;
use std::path::{Path, PathBuf};

/// Result of everything that touches the outside world.
pub type Result<T> = std::result::Result<T, Error>;

/// One clear sentence about one thing: the file it lies in, the tensor, key or flag it concerns,
/// and what was expected and found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    path: Option<PathBuf>,
    subject: Option<String>,
    message: String,
}

impl Error {
    /// An error that says `message`; add the place with [`Error::at`] and the subject with [`Error::about`].
    pub fn new(message: impl Into<String>) -> Self {
        Error { path: None, subject: None, message: message.into() }
    }

    /// An operating-system error on `path`, told as `cannot <verb>: <reason>`.
    pub fn io(path: &Path, verb: &str, source: &std::io::Error) -> Self {
        Error::new(format!("cannot {verb}: {source}")).at(path)
    }

    /// Names the file, unless an inner layer has already named one.
    #[must_use]
    pub fn at(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// Names the tensor, metadata key or flag, unless an inner layer has already named one.
    #[must_use]
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject.get_or_insert_with(|| subject.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        if let Some(subject) = &self.subject {
            write!(f, "{subject}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
