//! The layout of one file: header, metadata, tensor table, data.
//!
//! Owns: GGUF versions 2 and 3, and the proof that every tensor's data lies inside the file and apart from the others.
//! Refuses to know: split files, and where the bytes come from.
//! Layout: the GGUF specification (`ggml/docs/gguf.md`). A damaged or hostile file is an ordinary case: an error, never
//! a panic, never an allocation larger than the file.

use std::sync::Arc;

use super::cursor::Cursor;
use super::metadata::Metadata;
use super::tensor::{self, MAX_DIMS, TensorInfo, clip};
use crate::quant::Format;
use crate::{Error, Result};

/// The first four bytes of every file.
pub(super) const MAGIC: &[u8; 4] = b"GGUF";
/// The key that sets the alignment of tensor data.
pub(super) const ALIGNMENT: &str = "general.alignment";
/// The alignment of files that set none.
const DEFAULT_ALIGNMENT: usize = 32;
/// Smaller alignments would leave f32 data at odd addresses.
const LEAST_ALIGNMENT: usize = 8;

/// Least bytes of a metadata entry (empty key, its type, one byte) and of a tensor's (empty name, one dimension).
const LEAST_ENTRY: usize = 8 + 4 + 1;
const LEAST_TENSOR: usize = 8 + 4 + 8 + 4 + 8;

/// What one file says, its data checked to be there.
pub(super) struct Layout {
    pub metadata: Metadata,
    /// In the file's order. Pointers, since a small tensor's entry takes less room in the file than in memory.
    pub tensors: Vec<Arc<TensorInfo>>,
    /// Where tensor data begins: what the tensors' starts are relative to.
    pub data: usize,
}

/// Reads the layout of the file that is the model's part number `part`. Errors do not name the file.
pub(super) fn read(bytes: &[u8], part: usize) -> Result<Layout> {
    let header = |e: Error| e.about("header");
    let mut cursor = Cursor::new(bytes);
    version(&mut cursor).map_err(header)?;
    let tensor_count = cursor.count("tensors", LEAST_TENSOR).map_err(header)?;
    let entry_count = cursor.count("metadata entries", LEAST_ENTRY).map_err(header)?;
    let metadata = entries(&mut cursor, entry_count)?;
    let alignment = alignment(&metadata)?;
    let mut tensors = Vec::with_capacity(tensor_count);
    for i in 0..tensor_count {
        tensors.push(Arc::new(tensor(&mut cursor, i, part)?));
    }
    let end = cursor.at();
    let data = align_up(end, alignment)
        .ok_or_else(|| Error::new(format!("no data can begin at a multiple of {alignment}")).about(ALIGNMENT))?;
    for tensor in &tensors {
        inside(tensor, bytes.len(), data, alignment).map_err(|e| e.about(clip(&tensor.name)))?;
    }
    let end = disjoint(&tensors)?.map_or(end, |end| data + end);
    nothing_joined(bytes, end, alignment)?;
    Ok(Layout { metadata, tensors, data })
}

/// Reads magic and version; whatever is not a little-endian version 2 or 3 is told apart by name.
fn version(cursor: &mut Cursor) -> Result<()> {
    let magic = cursor.take(MAGIC.len())?;
    if magic != MAGIC {
        let hint = match magic {
            b"vers" => ": this looks like a Git LFS pointer, not the file it stands for",
            b"ggml" | b"lmgg" | b"tjgg" | b"fmgg" => ": this is a format from before GGUF; convert it",
            _ => "",
        };
        let found = magic.escape_ascii();
        return Err(Error::new(format!("expected a GGUF file, found one that begins with \"{found}\"{hint}")));
    }
    match cursor.u32()? {
        2 | 3 => Ok(()),
        1 => Err(Error::new("GGUF version 1 is not supported, versions 2 and 3 are; convert it")),
        version if (1..=3).contains(&version.swap_bytes()) => {
            Err(Error::new("big-endian files are not supported; convert it to little endian"))
        }
        version => Err(Error::new(format!("expected GGUF version 2 or 3, found {version}"))),
    }
}

fn entries(cursor: &mut Cursor, count: usize) -> Result<Metadata> {
    let mut metadata = Metadata::default();
    for i in 0..count {
        let key = cursor.str().map_err(|e| e.about(format!("key of metadata entry {i}")))?;
        let value = cursor.kind().and_then(|kind| cursor.value(kind));
        let value = value.map_err(|e| e.about(clip(key)))?;
        if metadata.insert(key, value).is_some() {
            return Err(Error::new("expected each metadata key once, found it twice").about(clip(key)));
        }
    }
    Ok(metadata)
}

/// The alignment that `metadata` asks for: a power of two, 8 or more.
pub(super) fn alignment(metadata: &Metadata) -> Result<usize> {
    let alignment = metadata.usize(ALIGNMENT)?.unwrap_or(DEFAULT_ALIGNMENT);
    if alignment.is_power_of_two() && alignment >= LEAST_ALIGNMENT {
        return Ok(alignment);
    }
    let message = format!("expected a power of two, {LEAST_ALIGNMENT} or more, found {alignment}");
    Err(Error::new(message).about(ALIGNMENT))
}

/// `n`, rounded up to a multiple of `alignment`.
pub(super) fn align_up(n: usize, alignment: usize) -> Option<usize> {
    n.checked_next_multiple_of(alignment)
}

fn tensor(cursor: &mut Cursor, i: usize, part: usize) -> Result<TensorInfo> {
    let name = cursor.str().map_err(|e| e.about(format!("name of tensor {i}")))?;
    let read = |cursor: &mut Cursor| {
        let rank = cursor.u32()? as usize;
        if rank == 0 || rank > MAX_DIMS {
            return Err(Error::new(format!("expected 1 to {MAX_DIMS} dimensions, found {rank}")));
        }
        let mut dims = Vec::with_capacity(rank);
        for _ in 0..rank {
            dims.push(in_memory("dimension", cursor.u64()?)?);
        }
        let number = cursor.u32()?;
        let format = Format::from_ggml(number).ok_or(number);
        Ok(TensorInfo {
            name: name.to_owned(),
            bytes: tensor::size(&dims, format)?,
            start: in_memory("offset", cursor.u64()?)?,
            dims,
            format,
            part,
        })
    };
    read(cursor).map_err(|e| e.about(clip(name)))
}

fn in_memory(what: &str, n: u64) -> Result<usize> {
    n.try_into().map_err(|_| Error::new(format!("expected a {what} that fits this machine, found {n}")))
}

/// Proves that a tensor's data lies in a file of `len` bytes whose data begins at `data`.
fn inside(tensor: &TensorInfo, len: usize, data: usize, alignment: usize) -> Result<()> {
    let start = tensor.start;
    if !start.is_multiple_of(alignment) {
        return Err(Error::new(format!("expected data at a multiple of {alignment}, found it at offset {start}")));
    }
    // An unsupported format's size is unknown, but there is at least one byte.
    let bytes = tensor.bytes.unwrap_or(1);
    let room = len.saturating_sub(data);
    if start.checked_add(bytes).is_some_and(|end| end <= room) {
        return Ok(());
    }
    Err(Error::new(format!(
        "the file is truncated or damaged: expected {bytes} bytes of data at offset {start}, found {room} bytes of data \
         in all"
    )))
}

/// Proves that no two tensors share a byte; returns where the last one's data ends, relative to the data's start,
/// `None` without tensors.
fn disjoint(tensors: &[Arc<TensorInfo>]) -> Result<Option<usize>> {
    let range = |tensor: &TensorInfo| tensor.start..tensor.start + tensor.bytes.unwrap_or(1);
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_unstable_by_key(|&i| (tensors[i].start, i));
    for pair in order.windows(2) {
        let (first, second) = (&tensors[pair[0]], &tensors[pair[1]]);
        let (a, b) = (range(first), range(second));
        if b.start < a.end {
            let message = format!("its data at {b:?} overlaps that of {} at {a:?}", clip(&first.name));
            return Err(Error::new(message).about(clip(&second.name)));
        }
    }
    Ok(order.last().map(|&i| range(&tensors[i]).end))
}

/// Refuses files that were joined end to end: a second header right after the first one's data.
fn nothing_joined(bytes: &[u8], end: usize, alignment: usize) -> Result<()> {
    for at in [Some(end), align_up(end, alignment)].into_iter().flatten() {
        if bytes.get(at..).is_some_and(|rest| rest.starts_with(MAGIC)) {
            return Err(Error::new(format!(
                "expected one GGUF file, found a second one at offset {at}, joined to the first; the parts of a split \
                 model stay separate files, named like model-00001-of-00002.gguf"
            )));
        }
    }
    Ok(())
}
