//! Bytes of a file, shared without a copy.
//!
//! Owns: the memory map, and views into it. Refuses to know: what the bytes mean.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use crate::{Error, Result};

/// Where bytes live.
enum Source {
    Map(memmap2::Mmap),
    Owned(Vec<u8>),
    Static(&'static [u8]),
}

/// A view of part of a file; cloning it copies no byte.
#[derive(Clone)]
pub struct Bytes {
    source: Arc<Source>,
    range: Range<usize>,
}

impl Bytes {
    /// Maps a file into memory.
    ///
    /// # Errors
    /// If it cannot be opened or mapped.
    pub fn map(path: &Path) -> Result<Bytes> {
        let file = File::open(path).map_err(|e| Error::io(path, "open", &e))?;
        let len = file.metadata().map_err(|e| Error::io(path, "read", &e))?;
        if len.is_dir() {
            return Err(Error::new("is a directory, not a GGUF file").at(path));
        }
        if len.len() == 0 {
            return Ok(Bytes::from(Vec::new()));
        }
        // SAFETY: the map is read-only. As with every memory map, a file that another process cuts short while it is
        // mapped ends this process with a bus error; no reader of mapped models can rule that out.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| Error::io(path, "map", &e))?;
        let range = 0..map.len();
        Ok(Bytes {
            source: Arc::new(Source::Map(map)),
            range,
        })
    }

    /// Bytes that are part of the program.
    pub fn from_static(bytes: &'static [u8]) -> Bytes {
        Bytes {
            source: Arc::new(Source::Static(bytes)),
            range: 0..bytes.len(),
        }
    }

    /// A view of part of this view.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "a slice lies inside its bytes"
        );
        let start = self.range.start + range.start;
        Bytes {
            source: self.source.clone(),
            range: start..self.range.start + range.end,
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        let range = 0..bytes.len();
        Bytes {
            source: Arc::new(Source::Owned(bytes)),
            range,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &*self.source {
            Source::Map(map) => map,
            Source::Owned(bytes) => bytes,
            Source::Static(bytes) => bytes,
        };
        &all[self.range.clone()]
    }
}
