//! Writing GGUF files, tensor by tensor.
//!
//! Owns: the same layout that `reader` reads. Refuses to know: where tensors come from; each is announced with its
//! shape first and its bytes follow, so that a file may be larger than memory.

use std::collections::BTreeSet;
use std::io::Write;

use super::array::Item;
use super::metadata::Metadata;
use super::reader::{self, MAGIC};
use super::tensor::{self, clip};
use crate::quant::Format;
use crate::{Error, Result};

/// The version of the file format. The two differ in the number alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// Version 2.
    V2,
    /// Version 3.
    #[default]
    V3,
}

/// A tensor that has been announced.
struct Announced {
    name: String,
    dims: Vec<usize>,
    format: Format,
    /// From the start of tensor data.
    start: usize,
    bytes: usize,
}

/// A file in the making: metadata and announced tensors.
pub struct Writer {
    version: Version,
    metadata: Metadata,
    alignment: usize,
    tensors: Vec<Announced>,
    names: BTreeSet<String>,
    /// Where the next tensor begins, from the start of tensor data.
    next: usize,
}

impl Writer {
    /// A file of version 3 with this metadata and no tensors yet. Tensor data is aligned as `general.alignment` says,
    /// to 32 bytes if that is missing; an error if it is no power of two or below 8.
    pub fn new(metadata: Metadata) -> Result<Writer> {
        Ok(Writer {
            version: Version::default(),
            alignment: reader::alignment(&metadata)?,
            metadata,
            tensors: Vec::new(),
            names: BTreeSet::new(),
            next: 0,
        })
    }

    /// Sets the version to write.
    #[must_use]
    pub fn version(mut self, version: Version) -> Writer {
        self.version = version;
        self
    }

    /// Announces a tensor of 1 to 4 `dims`, `dims[0]` being the width of a row.
    ///
    /// Errors if the name is taken or rows are not whole blocks of `format`.
    pub fn tensor(&mut self, name: &str, dims: &[usize], format: Format) -> Result<()> {
        let (start, about) = (self.next, || clip(name));
        let too_long = || Error::new("the file would be longer than this machine can count").about(about());
        let bytes = tensor::size(dims, Ok(format)).map_err(|e| e.about(about()))?;
        let bytes = bytes.ok_or_else(too_long)?;
        let end = start.checked_add(bytes);
        self.next = end.and_then(|end| reader::align_up(end, self.alignment)).ok_or_else(too_long)?;
        if !self.names.insert(name.to_owned()) {
            return Err(Error::new("expected each tensor once, found it twice").about(about()));
        }
        self.tensors.push(Announced { name: name.to_owned(), dims: dims.to_owned(), format, start, bytes });
        Ok(())
    }

    /// Writes everything but the tensors' data to `out`, which the [`Stream`] then takes in the order announced.
    pub fn start<W: Write>(self, out: W) -> Result<Stream<W>> {
        let mut stream = Stream { out, written: 0, alignment: self.alignment, tensors: Vec::new().into_iter() };
        let head = self.head()?;
        stream.put(&head)?;
        stream.pad()?;
        stream.tensors = self.tensors.into_iter();
        Ok(stream)
    }

    /// The whole file; `data` are the tensors' bytes in the order announced.
    pub fn into_vec(self, data: &[&[u8]]) -> Result<Vec<u8>> {
        let announced = self.tensors.len();
        if data.len() != announced {
            let message = format!("expected the data of {announced} tensors, found {}", data.len());
            return Err(Error::new(message));
        }
        let mut stream = self.start(Vec::new())?;
        for data in data {
            stream.tensor(data)?;
        }
        stream.finish()
    }

    /// Bytes of the whole file; an error if they are more than this machine can count.
    pub fn file_bytes(&self) -> Result<usize> {
        let head = reader::align_up(self.head()?.len(), self.alignment);
        let end = head.and_then(|head| head.checked_add(self.next));
        end.ok_or_else(|| Error::new("the file would be longer than this machine can count"))
    }

    /// The whole file, its tensors filled in place: `fill` gets each one's number, in the order announced, and its
    /// bytes, zeros so far. An error if there is no memory for the file.
    pub fn into_vec_with(self, mut fill: impl FnMut(usize, &mut [u8])) -> Result<Vec<u8>> {
        let (head, len) = (self.head()?, self.file_bytes()?);
        let data = len - self.next;
        // Asked for before it is taken, since taking what there is not would end the program.
        let refused = Vec::<u8>::new().try_reserve_exact(len).is_err();
        if refused {
            return Err(Error::new(format!("there is no memory for a file of {len} bytes")));
        }
        let mut bytes = vec![0; len];
        bytes[..head.len()].copy_from_slice(&head);
        for (i, tensor) in self.tensors.iter().enumerate() {
            fill(i, &mut bytes[data + tensor.start..][..tensor.bytes]);
        }
        Ok(bytes)
    }

    /// Header, metadata and tensor table.
    fn head(&self) -> Result<Vec<u8>> {
        let mut head = MAGIC.to_vec();
        let version = match self.version {
            Version::V2 => 2u32,
            Version::V3 => 3,
        };
        head.extend(version.to_le_bytes());
        head.extend((self.tensors.len() as u64).to_le_bytes());
        head.extend((self.metadata.iter().count() as u64).to_le_bytes());
        let failed = |e: std::io::Error| Error::new(format!("cannot write: {e}"));
        for (key, value) in self.metadata.iter() {
            Item::String(key).encode(&mut head).map_err(failed)?;
            head.extend(value.item().kind().number().to_le_bytes());
            value.item().encode(&mut head).map_err(failed)?;
        }
        for tensor in &self.tensors {
            Item::String(&tensor.name).encode(&mut head).map_err(failed)?;
            head.extend((tensor.dims.len() as u32).to_le_bytes());
            let dims = tensor.dims.iter().map(|&dim| dim as u64);
            head.extend(dims.flat_map(u64::to_le_bytes));
            head.extend(tensor.format.ggml().to_le_bytes());
            head.extend((tensor.start as u64).to_le_bytes());
        }
        Ok(head)
    }
}

/// A file whose head is written and whose tensors' data follows.
pub struct Stream<W> {
    out: W,
    /// Bytes so far.
    written: usize,
    alignment: usize,
    /// Those whose data has not come yet.
    tensors: std::vec::IntoIter<Announced>,
}

impl<W: Write> Stream<W> {
    /// Writes the data of the next tensor; an error if there is none or its size is another.
    pub fn tensor(&mut self, data: &[u8]) -> Result<()> {
        let Some(tensor) = self.tensors.next() else {
            return Err(Error::new("expected no more tensors, found one that was not announced"));
        };
        if data.len() != tensor.bytes {
            let message = format!("expected {} bytes of data, found {}", tensor.bytes, data.len());
            return Err(Error::new(message).about(clip(&tensor.name)));
        }
        self.put(data)?;
        self.pad()
    }

    /// The name of the tensor whose data is due.
    pub fn due(&self) -> Option<&str> {
        self.tensors.as_slice().first().map(|tensor| tensor.name.as_str())
    }

    /// Flushes and returns the output; an error if the data of a tensor has not come.
    pub fn finish(mut self) -> Result<W> {
        if let Some(name) = self.due() {
            return Err(Error::new("expected the tensor's data, found the end").about(clip(name)));
        }
        self.out.flush().map_err(|e| Error::new(format!("cannot write: {e}")))?;
        Ok(self.out)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let failed = |e| Error::new(format!("cannot write: {e}"));
        self.out.write_all(bytes).map_err(failed)?;
        self.written += bytes.len();
        Ok(())
    }

    fn pad(&mut self) -> Result<()> {
        let padding = self.written.next_multiple_of(self.alignment) - self.written;
        // In pieces, since an alignment may be absurdly large.
        const ZEROS: [u8; 256] = [0; 256];
        for at in (0..padding).step_by(ZEROS.len()) {
            self.put(&ZEROS[..(padding - at).min(ZEROS.len())])?;
        }
        Ok(())
    }
}
