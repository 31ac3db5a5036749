//! Split models: one model in several files, `NAME-00001-of-00003.gguf` and so on.
//!
//! Owns: the names of the parts, the `split.*` keys, and the proof that the parts belong together.
//! Refuses to know: what is in a part beyond that.
//! In the names parts are counted from 1, under `split.no` from 0; `split.tensors.count` counts all parts' tensors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bytes::Bytes;
use super::metadata::Metadata;
use super::reader::{self, Layout};
use super::tensor::TensorInfo;
use crate::{Error, Result};

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// One file of a model.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// The file's path, or what the caller calls bytes that are in no file.
    pub path: PathBuf,
    pub bytes: Bytes,
    /// Where tensor data begins.
    pub data: usize,
}

/// All files of a model, in order.
pub(super) struct Whole {
    pub parts: Vec<Part>,
    /// Of the first part; the others repeat none of it.
    pub metadata: Metadata,
    /// Part by part, in each file's order.
    pub tensors: Vec<Arc<TensorInfo>>,
}

/// Reads a model that is in memory, and so in one piece; messages call it `name`.
pub(super) fn from_bytes(bytes: Bytes, name: &str) -> Result<Whole> {
    let path = PathBuf::from(name);
    let layout = reader::read(&bytes, 0).map_err(|e| e.at(&path))?;
    match count(&layout.metadata) {
        Ok(1) => Ok(whole(path, bytes, layout)),
        Ok(count) => {
            let message = format!("expected a whole model in memory, found a part of one that is split into {count}");
            Err(Error::new(message).about(COUNT).at(&path))
        }
        Err(e) => Err(e.at(&path)),
    }
}

/// Opens the file at `path`, and with it all parts of the model if it is one of several.
pub(super) fn open(path: &Path) -> Result<Whole> {
    let name = PartName::of(path);
    let bytes = Bytes::map(path)?;
    let layout = reader::read(&bytes, 0).map_err(|e| e.at(path))?;
    let count = count(&layout.metadata).map_err(|e| e.at(path))?;
    match name {
        None if count == 1 => Ok(whole(path.to_owned(), bytes, layout)),
        None => Err(unnamed(&layout.metadata, count).at(path)),
        Some(name) if name.count == count => join(&name),
        Some(name) => {
            let (no, of) = (name.no, name.count);
            let message = format!("expected {of}, as the file's name says part {no} of {of}, found {count}");
            Err(Error::new(message).about(COUNT).at(path))
        }
    }
}

/// How many parts the model has; 1 if the file does not say.
fn count(metadata: &Metadata) -> Result<usize> {
    Ok(metadata.usize(COUNT)?.unwrap_or(1).max(1))
}

fn whole(path: PathBuf, bytes: Bytes, layout: Layout) -> Whole {
    let data = layout.data;
    Whole { parts: vec![Part { path, bytes, data }], metadata: layout.metadata, tensors: layout.tensors }
}

/// The error for a part whose name does not lead to the others.
fn unnamed(metadata: &Metadata, count: usize) -> Error {
    let message = match metadata.usize(NO) {
        Ok(Some(no)) if no < count => format!(
            "this is part {} of a model in {count} files; name it NAME-{:05}-of-{count:05}.gguf, and put the others \
             beside it under the same NAME",
            no + 1,
            no + 1
        ),
        _ => format!(
            "this is a part of a model in {count} files; name them NAME-00001-of-{count:05}.gguf and so on, all in one \
             directory"
        ),
    };
    Error::new(message).about(COUNT)
}

/// Opens all parts that `name` counts.
fn join(name: &PartName) -> Result<Whole> {
    let mut parts = Vec::new();
    let mut first: Option<Metadata> = None;
    let mut tensors = Vec::new();
    for no in 1..=name.count {
        let path = name.path(no);
        if !path.exists() {
            let message = format!("missing: part {no} of a model in {} files", name.count);
            return Err(Error::new(message).at(&path));
        }
        let bytes = Bytes::map(&path)?;
        let layout = reader::read(&bytes, no - 1).map_err(|e| e.at(&path))?;
        belongs(&layout.metadata, no, name.count).map_err(|e| e.at(&path))?;
        match &first {
            Some(first) => same_total(first, &layout.metadata).map_err(|e| e.at(&path))?,
            None => first = Some(layout.metadata),
        }
        tensors.extend(layout.tensors);
        let data = layout.data;
        parts.push(Part { path, bytes, data });
    }
    let metadata = first.unwrap_or_default();
    complete(&metadata, tensors.len(), name.count).map_err(|e| e.at(&name.path(1)))?;
    Ok(Whole { parts, metadata, tensors })
}

/// Checks that the file called part `no` of `of` says so itself.
fn belongs(metadata: &Metadata, no: usize, of: usize) -> Result<()> {
    let found = count(metadata)?;
    if found != of {
        let message = format!("expected {of}, as the file's name says part {no} of {of}, found {found}");
        return Err(Error::new(message).about(COUNT));
    }
    match metadata.usize(NO)? {
        None if of == 1 => Ok(()),
        Some(found) if found == no - 1 => Ok(()),
        found => {
            let found = found.map_or("nothing".to_owned(), |found| found.to_string());
            let message = format!(
                "expected {}, counted from 0, as the file's name says part {no} of {of}, found {found}",
                no - 1
            );
            Err(Error::new(message).about(NO))
        }
    }
}

/// Checks that a part counts as many tensors in the whole model as the first part does.
fn same_total(first: &Metadata, other: &Metadata) -> Result<()> {
    match (first.usize(TENSORS)?, other.usize(TENSORS)?) {
        (Some(first), Some(other)) if first != other => {
            let message = format!("expected {first} tensors in all parts, as the first part says, found {other}");
            Err(Error::new(message).about(TENSORS))
        }
        _ => Ok(()),
    }
}

/// Checks that the `parts` hold `found` tensors together, as the first one's metadata says.
fn complete(metadata: &Metadata, found: usize, parts: usize) -> Result<()> {
    match metadata.usize(TENSORS)? {
        None if parts == 1 => Ok(()),
        Some(total) if total == found => Ok(()),
        None => Metadata::required(TENSORS, Ok(None)),
        Some(total) => {
            let message = format!("expected {total} tensors in all {parts} parts together, found {found}");
            Err(Error::new(message).about(TENSORS))
        }
    }
}

/// A path that ends in `-0000i-of-0000n.gguf`.
struct PartName {
    directory: PathBuf,
    /// The file's name before the counts.
    stem: String,
    /// From 1.
    no: usize,
    count: usize,
}

impl PartName {
    /// Reads the counts in the name of `path`; `None` if it has none, or none that make sense.
    fn of(path: &Path) -> Option<PartName> {
        let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = name.rsplit_once("-of-")?;
        let (stem, no) = rest.rsplit_once('-')?;
        let (no, count) = (digits(no)?, digits(count)?);
        let directory = path.with_file_name("");
        let stem = stem.to_owned();
        (1..=count).contains(&no).then_some(PartName { directory, stem, no, count })
    }

    /// The path of part `no`, beside this one.
    fn path(&self, no: usize) -> PathBuf {
        let name = format!("{}-{no:05}-of-{:05}.gguf", self.stem, self.count);
        self.directory.join(name)
    }
}

/// The number written in exactly five digits.
fn digits(text: &str) -> Option<usize> {
    let five = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    five.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_recognised_by_five_digits_twice() {
        let name = PartName::of(Path::new("a/b-c-00002-of-00003.gguf")).unwrap();
        assert_eq!((name.no, name.count), (2, 3));
        assert_eq!(name.path(1), Path::new("a/b-c-00001-of-00003.gguf"));
        let bare = PartName::of(Path::new("m-00001-of-00001.gguf")).unwrap();
        assert_eq!(bare.path(1), Path::new("m-00001-of-00001.gguf"));
        for other in [
            "m.gguf",
            "m-1-of-2.gguf",
            "m-00001-of-00002.bin",
            "m-00000-of-00002.gguf",
            "m-00003-of-00002.gguf",
            "m-00001-of-+0002.gguf",
            "m00001-of-00002.gguf",
            "/",
        ] {
            assert!(PartName::of(Path::new(other)).is_none(), "{other}");
        }
    }
}
