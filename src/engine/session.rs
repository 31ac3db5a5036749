//! Session files: a sequence saved to disk, to be continued without evaluating its tokens again.
//!
//! Owns: the file's layout. Refuses to know: the state's layout (`state::Snapshot`).
//!
//! Layout, little endian: magic `VBSE`, version u32, number of tokens u64, tokens u32 each, number of checkpoints u64,
//! each as positions u64, length u64 and bytes, then the snapshot's length u64 and the snapshot, then xxh3-128 of all.

use std::fs;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use super::Sequence;
use crate::backend::Backend;
use crate::state::{Checkpoint, Snapshot};
use crate::{Error, Result, whole};

const MAGIC: &[u8; 4] = b"VBSE";
const VERSION: u32 = 1;
const CHECKSUM: usize = 16;

/// Reads little-endian fields off the front of a byte string.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len).ok_or_else(|| Error::new("session file is cut short"))?;
        self.0 = rest;
        Ok(head)
    }

    fn number(&mut self) -> Result<usize> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(8)?);
        usize::try_from(u64::from_le_bytes(bytes)).map_err(|_| Error::new("session file is damaged"))
    }
}

impl<B: Backend> Sequence<B> {
    /// Writes tokens, state and checkpoints to `path`; an existing file is replaced only by a complete new one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let (tokens, checkpoints) = self.parts();
        let snapshot = self.snapshot();
        let mut bytes = Vec::with_capacity(snapshot.as_bytes().len() + 4 * tokens.len() + 64);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((tokens.len() as u64).to_le_bytes());
        bytes.extend(tokens.iter().flat_map(|t| t.to_le_bytes()));
        bytes.extend((checkpoints.len() as u64).to_le_bytes());
        for checkpoint in checkpoints {
            bytes.extend((checkpoint.positions() as u64).to_le_bytes());
            bytes.extend((checkpoint.as_bytes().len() as u64).to_le_bytes());
            bytes.extend(checkpoint.as_bytes());
        }
        bytes.extend((snapshot.as_bytes().len() as u64).to_le_bytes());
        bytes.extend(snapshot.as_bytes());
        bytes.extend(xxh3_128(&bytes).to_le_bytes());
        whole::write(path, &bytes)
    }

    /// Takes over what [`Sequence::save`] wrote. The sequence is unchanged on an error.
    ///
    /// # Errors
    /// If the file cannot be read, is not a session, damaged, of another version or model, or does not fit the context.
    pub fn resume(&mut self, path: &Path) -> Result<()> {
        let bytes = fs::read(path).map_err(|e| Error::io(path, "read", &e))?;
        self.adopt_bytes(&bytes).map_err(|e| e.at(path))
    }

    fn adopt_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() < 8 + CHECKSUM || &bytes[..4] != MAGIC {
            return Err(Error::new("is not a session file"));
        }
        let version = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if version != VERSION {
            let text = format!("session file of version {version}; this program reads version {VERSION}");
            return Err(Error::new(text));
        }
        let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
        if xxh3_128(content).to_le_bytes() != checksum {
            return Err(Error::new("session file is cut short or damaged (checksum differs)"));
        }
        let mut fields = Fields(&content[8..]);
        let count = fields.number()?;
        let tokens = fields.take(count.saturating_mul(4))?.as_chunks::<4>().0;
        let tokens: Vec<u32> = tokens.iter().map(|b| u32::from_le_bytes(*b)).collect();
        let shape = self.state_shape().clone();
        let mut checkpoints = Vec::new();
        for _ in 0..fields.number()? {
            let (positions, len) = (fields.number()?, fields.number()?);
            checkpoints.push(Checkpoint::from_bytes(&shape, positions, fields.take(len)?.to_vec())?);
        }
        let len = fields.number()?;
        let snapshot = Snapshot::from_bytes(fields.take(len)?.to_vec(), self.model().fingerprint())?;
        self.adopt(tokens, &snapshot, checkpoints)
    }
}
