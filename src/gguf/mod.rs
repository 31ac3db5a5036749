//! GGUF files: metadata and tensors, read in place.
//!
//! Owns: the file format, split files, the memory map. Refuses to know: models; a tensor is a name, a shape and bytes.

mod array;
mod bytes;
mod metadata;
mod reader;
mod split;
mod write;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::{Error, Result};

pub use array::{Array, Kind};
pub use bytes::Bytes;
pub use metadata::{Metadata, Value};
pub use reader::TensorInfo;
pub use write::{TensorSpec, Writer};

/// An open file, all parts of it if it is split.
pub struct Gguf {
    path: PathBuf,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    parts: Vec<Bytes>,
}

impl Gguf {
    /// Opens a file, or all parts of a split one by the path of any.
    ///
    /// # Errors
    /// If a file cannot be read, is no GGUF, is damaged, or parts do not belong together.
    pub fn open(path: &Path) -> Result<Gguf> {
        Ok(Gguf::join(path, split::open(path)?.into_iter().map(|(_, part)| part)))
    }

    /// Reads a file that is part of the program; `name` stands for its path in messages.
    ///
    /// # Errors
    /// As [`Gguf::open`].
    pub fn from_static(bytes: &'static [u8], name: &str) -> Result<Gguf> {
        Gguf::from_bytes(Bytes::from_static(bytes), name)
    }

    /// Reads a file in memory; `name` stands for its path in messages.
    ///
    /// # Errors
    /// As [`Gguf::open`].
    pub fn from_vec(bytes: Vec<u8>, name: &str) -> Result<Gguf> {
        Gguf::from_bytes(Bytes::from(bytes), name)
    }

    fn from_bytes(bytes: Bytes, name: &str) -> Result<Gguf> {
        let path = Path::new(name);
        Ok(Gguf::join(path, std::iter::once(reader::read(bytes, path)?)))
    }

    fn join(path: &Path, all: impl Iterator<Item = reader::Part>) -> Gguf {
        let (mut metadata, mut tensors, mut parts) = (Metadata::default(), Vec::new(), Vec::new());
        for (no, part) in all.enumerate() {
            if no == 0 {
                metadata = part.metadata;
            }
            tensors.extend(part.tensors.into_iter().map(|t| TensorInfo { part: no, ..t }));
            parts.push(part.bytes);
        }
        let index = tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        Gguf {
            path: path.to_owned(),
            metadata,
            tensors,
            index,
            parts,
        }
    }

    /// The path it was opened by, or the name it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The metadata; that of the first part if the file is split.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.tensors.iter()
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// The bytes of the tensor called `name`, in place.
    ///
    /// # Errors
    /// If there is no such tensor, or its format is not supported.
    pub fn data(&self, name: &str) -> Result<Bytes> {
        let missing = || Error::new("missing from the file").about(name).at(&self.path);
        let tensor = self.tensor(name).ok_or_else(missing)?;
        tensor.format().map_err(|e| e.at(&self.path))?;
        Ok(self.parts[tensor.part].slice(tensor.offset..tensor.offset + tensor.bytes))
    }

    /// Bytes of all parts.
    pub fn file_bytes(&self) -> usize {
        self.parts.iter().map(|p| p.len()).sum()
    }

    /// Number of files it is split into; 1 if it is not.
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// A hash that tells models apart without reading all of their weights: names, shapes and types of all tensors,
    /// and the first and last 4 KiB of each one's data (xxh3, 128 bits).
    pub fn fingerprint(&self) -> [u8; 16] {
        const EDGE: usize = 4096;
        let mut hash = Xxh3::new();
        for tensor in &self.tensors {
            hash.update(tensor.name.as_bytes());
            hash.update(&[0]);
            hash.update(&tensor.ggml.to_le_bytes());
            for dim in &tensor.dims {
                hash.update(&(*dim as u64).to_le_bytes());
            }
            let data = &self.parts[tensor.part][tensor.offset..tensor.offset + tensor.bytes];
            hash.update(&data[..data.len().min(EDGE)]);
            hash.update(&data[data.len().saturating_sub(EDGE)..]);
        }
        hash.digest128().to_le_bytes()
    }
}
