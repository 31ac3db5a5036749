//! One GGUF file: header, metadata, tensor table.
//!
//! Owns: the byte layout (versions 2 and 3) and its checks; nothing here trusts a length. Refuses to know: other parts of
//! a split file, and what keys and tensors mean.

use std::collections::HashSet;
use std::path::Path;

use super::array::{Array, Kind};
use super::bytes::Bytes;
use super::metadata::{Metadata, Value};
use crate::quant::Format;
use crate::{Error, Result};

/// Alignment of tensor data, unless the file says otherwise.
const ALIGNMENT: usize = 32;

/// More tensors than any model has; a table's entry in memory is larger than in a hostile file.
const MAX_TENSORS: usize = 10_000;

/// Arrays inside arrays inside arrays: as deep as anyone goes.
const DEPTH: usize = 4;

/// A tensor's entry in the file's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Its dimensions, the fastest first: `dims[0]` is the length of a row.
    pub dims: Vec<usize>,
    /// The number of its type; it may be one that is not supported.
    pub ggml: u32,
    /// Bytes of its data; 0 if the type is not supported.
    pub bytes: usize,
    /// Where its data starts in its file.
    pub(super) offset: usize,
    /// Which part of a split file holds it.
    pub(super) part: usize,
}

impl TensorInfo {
    /// Its number format.
    ///
    /// # Errors
    /// If the format is not supported: names it and the ones that are.
    pub fn format(&self) -> Result<Format> {
        Format::from_ggml(self.ggml).ok_or_else(|| {
            let names: Vec<_> = Format::all().map(Format::name).collect();
            let (name, supported) = (Format::ggml_name(self.ggml), names.join(", "));
            let text = format!(
                "format {name} (type {}) is not supported; supported: {supported}",
                self.ggml
            );
            Error::new(text).about(&self.name)
        })
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }
}

/// What one file holds.
pub(super) struct Part {
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
    pub bytes: Bytes,
}

/// Reads from the front of a file, never past its end.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8]> {
        if len > self.left() {
            let text = format!(
                "file ends inside {what}: {len} bytes wanted at {}, {} left",
                self.at,
                self.left()
            );
            return Err(Error::new(text));
        }
        let bytes = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        let b = self.take(4, what)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        let mut b = [0; 8];
        b.copy_from_slice(self.take(8, what)?);
        Ok(u64::from_le_bytes(b))
    }

    /// A count of things that take at least `each` bytes of what is left.
    fn count(&mut self, each: usize, what: &str) -> Result<usize> {
        let count = self.u64(what)?;
        match usize::try_from(count)
            .ok()
            .filter(|&n| n.checked_mul(each).is_some_and(|b| b <= self.left()))
        {
            Some(n) => Ok(n),
            None => Err(Error::new(format!(
                "{count} {what} cannot be in the {} bytes that are left",
                self.left()
            ))),
        }
    }

    fn string(&mut self, what: &str) -> Result<&'a str> {
        let len = self.count(1, what)?;
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map_err(|_| Error::new(format!("{what} is not UTF-8")))
    }

    fn kind(&mut self) -> Result<Kind> {
        let code = self.u32("a value's type")?;
        Kind::from_code(code).ok_or_else(|| Error::new(format!("value of unknown type {code}")))
    }

    fn value(&mut self) -> Result<Value> {
        let kind = self.kind()?;
        match kind {
            Kind::String => Ok(Value::String(self.string("a string's bytes")?.to_owned())),
            Kind::Array => Ok(Value::Array(self.array()?)),
            _ => {
                let bytes = self.take(kind.size(), "a value")?;
                kind.scalar(bytes).ok_or_else(|| Error::new("value is not a scalar"))
            }
        }
    }

    fn array(&mut self) -> Result<Array> {
        let kind = self.kind()?;
        match kind {
            Kind::String => {
                let len = self.count(8, "strings")?;
                let mut array = Array::with_room(len, self.text_len(len)?);
                for _ in 0..len {
                    array.push_string(self.string("a string's bytes")?);
                }
                Ok(array)
            }
            Kind::Array => {
                let len = self.count(12, "arrays")?;
                let from = self.at;
                for _ in 0..len {
                    self.skip_array(1)?;
                }
                Ok(Array::raw(kind, len, self.bytes[from..self.at].to_vec()))
            }
            _ => {
                let len = self.count(kind.size(), "array elements")?;
                Ok(Array::raw(
                    kind,
                    len,
                    self.take(len * kind.size(), "an array")?.to_vec(),
                ))
            }
        }
    }

    /// Bytes of the next `count` strings' text, without moving on.
    fn text_len(&mut self, count: usize) -> Result<usize> {
        let from = self.at;
        let mut text = 0;
        for _ in 0..count {
            text += self.string("a string's bytes")?.len();
        }
        self.at = from;
        Ok(text)
    }

    /// Checks a nested array without keeping it.
    fn skip_array(&mut self, depth: usize) -> Result<()> {
        if depth == DEPTH {
            return Err(Error::new(format!("arrays nested more than {DEPTH} deep")));
        }
        let kind = self.kind()?;
        match kind {
            Kind::String => {
                for _ in 0..self.count(8, "strings")? {
                    self.string("a string's bytes")?;
                }
            }
            Kind::Array => {
                for _ in 0..self.count(12, "arrays")? {
                    self.skip_array(depth + 1)?;
                }
            }
            _ => {
                let len = self.count(kind.size(), "array elements")?;
                self.take(len * kind.size(), "an array")?;
            }
        }
        Ok(())
    }

    fn metadata(&mut self, pairs: usize) -> Result<Metadata> {
        let mut metadata = Metadata::default();
        for _ in 0..pairs {
            let key = self.string("a metadata key")?;
            let value = self.value().map_err(|e| e.about(key))?;
            if metadata.insert(key, value).is_some() {
                return Err(Error::new("metadata key given twice").about(key));
            }
        }
        Ok(metadata)
    }

    fn tensor(&mut self) -> Result<TensorInfo> {
        let name = self.string("a tensor's name")?;
        self.tensor_entry(name).map_err(|e| e.about(name))
    }

    fn tensor_entry(&mut self, name: &str) -> Result<TensorInfo> {
        let count = self.u32("a tensor's number of dimensions")?;
        if !(1..=4).contains(&count) {
            return Err(Error::new(format!("expected 1 to 4 dimensions, found {count}")));
        }
        let mut dims = Vec::with_capacity(4);
        for _ in 0..count {
            let dim = self.u64("a tensor's dimensions")?;
            let dim = usize::try_from(dim).ok().filter(|&d| d > 0);
            dims.push(dim.ok_or_else(|| Error::new("a dimension is 0 or does not fit this machine"))?);
        }
        let (ggml, offset) = (self.u32("a tensor's type")?, self.u64("a tensor's offset")?);
        let offset = usize::try_from(offset).map_err(|_| Error::new("offset does not fit this machine"))?;
        let bytes = match Format::from_ggml(ggml) {
            None => 0,
            Some(format) => tensor_bytes(format, &dims)?,
        };
        Ok(TensorInfo {
            name: name.to_owned(),
            dims,
            ggml,
            bytes,
            offset,
            part: 0,
        })
    }
}

fn tensor_bytes(format: Format, dims: &[usize]) -> Result<usize> {
    let block = format.block_weights();
    if !dims[0].is_multiple_of(block) {
        return Err(Error::new(format!(
            "rows of {} elements are not whole blocks of {block} ({format})",
            dims[0]
        )));
    }
    let row = format.row_bytes(dims[0]);
    let all = dims[1..]
        .iter()
        .try_fold(row, |n, &d| Some(n?.checked_mul(d)))
        .flatten();
    all.ok_or_else(|| Error::new(format!("dimensions {dims:?} overflow")))
}

/// Reads one file.
pub(super) fn read(bytes: Bytes, path: &Path) -> Result<Part> {
    parse(&bytes)
        .map(|(metadata, tensors)| Part {
            metadata,
            tensors,
            bytes: bytes.clone(),
        })
        .map_err(|e| e.at(path))
}

fn parse(bytes: &[u8]) -> Result<(Metadata, Vec<TensorInfo>)> {
    let mut cursor = Cursor { bytes, at: 0 };
    if bytes.len() < 8 || &bytes[..4] != b"GGUF" {
        return Err(Error::new("is not a GGUF file (it does not start with `GGUF`)"));
    }
    cursor.take(4, "the magic")?;
    let version = cursor.u32("the version")?;
    match version {
        2 | 3 => {}
        v if v.swap_bytes() <= 3 => {
            return Err(Error::new(
                "is a big-endian GGUF file; only little-endian ones run here",
            ));
        }
        v => {
            return Err(Error::new(format!(
                "is GGUF version {v}; versions 2 and 3 are supported"
            )));
        }
    }
    // The smallest tensor entry: name length, one dimension, type, offset. The smallest pair: key length, type, a byte.
    let tensors = cursor.u64("the number of tensors")?;
    let pairs = cursor.count(13, "metadata pairs")?;
    let metadata = cursor.metadata(pairs)?;
    let fits = usize::try_from(tensors)
        .ok()
        .filter(|&n| n.checked_mul(32).is_some_and(|b| b <= cursor.left()));
    let count = fits.ok_or_else(|| {
        Error::new(format!(
            "{tensors} tensors cannot be in the {} bytes that are left",
            cursor.left()
        ))
    })?;
    if count > MAX_TENSORS {
        return Err(Error::new(format!(
            "{count} tensors are absurd; at most {MAX_TENSORS} are read"
        )));
    }
    let mut list = Vec::with_capacity(count);
    for _ in 0..count {
        list.push(cursor.tensor()?);
    }
    place(&mut list, alignment(&metadata)?, cursor.at, bytes)?;
    Ok((metadata, list))
}

fn alignment(metadata: &Metadata) -> Result<usize> {
    const KEY: &str = "general.alignment";
    match metadata.usize(KEY)? {
        None => Ok(ALIGNMENT),
        Some(a) if a >= 8 && a.is_power_of_two() && a <= 1 << 20 => Ok(a),
        Some(a) => Err(Error::new(format!("expected a power of two from 8 to 1048576, found {a}")).about(KEY)),
    }
}

/// Turns offsets into places in the file, and checks that tensors lie inside it and apart from each other.
fn place(tensors: &mut [TensorInfo], alignment: usize, header: usize, bytes: &[u8]) -> Result<()> {
    let data = header.next_multiple_of(alignment);
    let mut names = HashSet::new();
    for tensor in tensors.iter_mut() {
        let about = |text: String| Err(Error::new(text).about(&tensor.name));
        if !names.insert(tensor.name.as_str()) {
            return about("tensor given twice".to_owned());
        }
        if !tensor.offset.is_multiple_of(alignment) {
            return about(format!("offset {} is not a multiple of {alignment}", tensor.offset));
        }
        let end = tensor
            .offset
            .checked_add(data)
            .and_then(|start| start.checked_add(tensor.bytes));
        let len = bytes.len();
        match end {
            Some(end) if end <= len => tensor.offset += data,
            _ => {
                let (at, size) = (tensor.offset, tensor.bytes);
                return about(format!(
                    "{size} bytes at data offset {at} end past the file's {len} bytes (cut short?)"
                ));
            }
        }
    }
    let mut order: Vec<&TensorInfo> = tensors.iter().filter(|t| t.bytes > 0).collect();
    order.sort_by_key(|t| t.offset);
    for pair in order.windows(2) {
        if pair[0].offset + pair[0].bytes > pair[1].offset {
            return Err(Error::new(format!("overlaps tensor {}", pair[1].name)).about(&pair[0].name));
        }
    }
    let end = order
        .last()
        .map_or(data, |t| t.offset + t.bytes)
        .next_multiple_of(alignment);
    if order.len() == tensors.len() && bytes.get(end..).is_some_and(|rest| rest.starts_with(b"GGUF")) {
        let text = "another GGUF file follows after the last tensor: parts of a split file are not to be joined";
        return Err(Error::new(text));
    }
    Ok(())
}
