//! GGUF files: metadata and tensors, read in place.
//!
//! Owns: the file format, split files, the memory map. Refuses to know: models; a tensor is a name, a shape and bytes.

mod metadata;

pub use metadata::{Metadata, Value};
