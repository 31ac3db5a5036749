//! GGUF files: metadata and tensors, read in place.
//!
//! Owns: the file format, split files, the memory map. Refuses to know: models; a tensor is a name, a shape and bytes.

mod array;
mod bytes;
mod cursor;
mod metadata;
mod reader;
mod split;
mod tensor;
mod write;

use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

pub use array::{Array, Item, Kind};
pub use bytes::Bytes;
pub use metadata::{Metadata, Value};
pub use tensor::TensorInfo;
pub use write::{Stream, Version, Writer};

use crate::{Error, Result};
use split::{Part, Whole};
use tensor::clip;

/// A model file, or all files of a split model: metadata, and tensors whose data is used where it lies.
#[derive(Debug, Clone)]
pub struct Gguf {
    /// The file, or the files of a split model in order.
    parts: Vec<Part>,
    /// Of the first part.
    metadata: Metadata,
    /// Part by part, in each file's order.
    tensors: Vec<Arc<TensorInfo>>,
    /// Indices into `tensors`, sorted by name.
    by_name: Vec<usize>,
    /// Whether `parts` lie on disk.
    on_disk: bool,
}

impl Gguf {
    /// Maps the file at `path`; a part of a split model opens all of them.
    ///
    /// Errors name the file and what is wrong with it. Tensors of formats that are not supported are no error until
    /// their data is asked for.
    pub fn open(path: &Path) -> Result<Gguf> {
        Gguf::new(split::open(path)?, true)
    }

    /// Reads a file that is embedded in the program; messages call it `name`.
    ///
    /// `bytes` are used in place if they begin at a multiple of 8 bytes, else copied once.
    pub fn from_static(bytes: &'static [u8], name: &str) -> Result<Gguf> {
        Gguf::new(split::from_bytes(Bytes::from_static(bytes), name)?, false)
    }

    /// Reads a file that is in memory; messages call it `name`.
    pub fn from_vec(bytes: Vec<u8>, name: &str) -> Result<Gguf> {
        Gguf::new(split::from_bytes(Bytes::from_vec(bytes), name)?, false)
    }

    /// Puts the tensors of all parts under their names; an error names the one that occurs twice.
    fn new(whole: Whole, on_disk: bool) -> Result<Gguf> {
        let Whole { parts, metadata, tensors } = whole;
        let mut by_name: Vec<usize> = (0..tensors.len()).collect();
        by_name.sort_unstable_by(|&a, &b| (&tensors[a].name, a).cmp(&(&tensors[b].name, b)));
        for pair in by_name.windows(2) {
            let (first, second) = (&tensors[pair[0]], &tensors[pair[1]]);
            if first.name == second.name {
                let elsewhere = match first.part == second.part {
                    true => String::new(),
                    false => format!(", first in {}", parts[first.part].path.display()),
                };
                let message = format!("expected each tensor once, found it twice{elsewhere}");
                return Err(Error::new(message).about(clip(&second.name)).at(&parts[second.part].path));
            }
        }
        Ok(Gguf { parts, metadata, tensors, by_name, on_disk })
    }

    /// What messages call the model: the path of its first file, or the name it was given.
    pub fn name(&self) -> String {
        self.parts[0].path.display().to_string()
    }

    /// The path of the model's first file; `None` if it is in memory only.
    pub fn path(&self) -> Option<&Path> {
        self.on_disk.then_some(&self.parts[0].path)
    }

    /// How many files the model is split into, 1 if it is not.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The metadata; of a split model, that of its first file.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in the order of the file, or of the files.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.tensors.iter().map(|tensor| &**tensor)
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let found = self.by_name.binary_search_by(|&i| (*self.tensors[i].name).cmp(name));
        found.ok().map(|at| &*self.tensors[self.by_name[at]])
    }

    /// The data of the tensor called `name`, in place, at an address that is a multiple of 8.
    ///
    /// Errors if there is no such tensor or its format is not supported.
    pub fn data(&self, name: &str) -> Result<Bytes> {
        let missing = || Error::new("no such tensor in the file").about(name).at(&self.parts[0].path);
        self.bytes_of(self.tensor(name).ok_or_else(missing)?)
    }

    fn bytes_of(&self, tensor: &TensorInfo) -> Result<Bytes> {
        let part = &self.parts[tensor.part];
        let range = tensor.range().map_err(|e| e.at(&part.path))?;
        Ok(part.bytes.slice(part.data + range.start..part.data + range.end))
    }

    /// The size of all files together, in bytes.
    pub fn file_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }

    /// A hash (XXH3, 128 bits) that tells models apart without reading all of them: over the metadata, and every
    /// tensor's name, dimensions, format and the first and last 4 KiB of its data.
    ///
    /// It does not depend on how a model is laid out in files: merging a split model keeps it.
    pub fn fingerprint(&self) -> [u8; 16] {
        const EDGE: usize = 4096;
        let mut hash = Xxh3::new();
        for (key, value) in self.metadata.iter().filter(|(key, _)| !is_layout(key)) {
            hash_item(&mut hash, Item::String(key));
            hash.update(&value.item().kind().number().to_le_bytes());
            hash_item(&mut hash, value.item());
        }
        for &i in &self.by_name {
            let tensor = &self.tensors[i];
            hash_item(&mut hash, Item::String(&tensor.name));
            hash.update(&(tensor.dims.len() as u64).to_le_bytes());
            tensor.dims.iter().for_each(|&dim| hash.update(&(dim as u64).to_le_bytes()));
            let number = tensor.format.map_or_else(|number| number, |format| format.ggml());
            hash.update(&number.to_le_bytes());
            if let Ok(data) = self.bytes_of(tensor) {
                hash.update(&data[..data.len().min(EDGE)]);
                hash.update(&data[data.len().saturating_sub(EDGE)..]);
            }
        }
        hash.digest128().to_le_bytes()
    }
}

/// Whether a key says how the model lies in files, rather than what it is.
fn is_layout(key: &str) -> bool {
    key == reader::ALIGNMENT || key.starts_with("split.")
}

fn hash_item(hash: &mut Xxh3, item: Item) {
    let written = item.encode(hash);
    debug_assert!(written.is_ok(), "hashing cannot fail");
}
