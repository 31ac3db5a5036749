//! A cursor over untrusted bytes.
//!
//! Owns: that nothing is read beyond the end and no count is believed before the bytes for it are there.
//! Refuses to know: what it reads, beyond numbers, strings and metadata values.

use super::array::{Array, Item, Kind};
use super::metadata::Value;
use crate::{Error, Result};

/// How deep arrays of arrays may be nested.
const MAX_DEPTH: usize = 8;

/// The least bytes of an element in the file: of a string its length, of an array its kind and count.
fn least_bytes(kind: Kind) -> usize {
    match kind {
        Kind::String => 8,
        Kind::Array => 12,
        _ => kind.bytes().unwrap_or(1),
    }
}

/// Where reading has got to.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub fn at(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    fn truncated(&self, wanted: impl std::fmt::Display) -> Error {
        let (at, found) = (self.at, self.rest().len());
        Error::new(format!("the file ends too early: expected {wanted} bytes at offset {at}, found {found}"))
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let taken = self.rest().get(..n).ok_or_else(|| self.truncated(n))?;
        self.at += n;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some(taken) = self.rest().first_chunk() else {
            return Err(self.truncated(N));
        };
        self.at += N;
        Ok(*taken)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.fixed().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.fixed().map(u64::from_le_bytes)
    }

    /// A count of `things` that take at least `least` bytes each: an error unless that many bytes remain.
    pub fn count(&mut self, things: &str, least: usize) -> Result<usize> {
        let count = self.u64()?;
        let most = self.rest().len() / least;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(Error::new(format!(
                "the file is truncated or damaged: {count} {things} announced at offset {}, but the rest of the file \
                 has room for {most} at most",
                self.at
            ))),
        }
    }

    /// Text: its length, then UTF-8.
    pub fn str(&mut self) -> Result<&'a str> {
        let len = self.count("bytes of text", 1)?;
        let start = self.at;
        let text = self.take(len)?;
        std::str::from_utf8(text).map_err(|e| {
            let at = start + e.valid_up_to();
            Error::new(format!("expected UTF-8 text, found an invalid byte at offset {at}"))
        })
    }

    /// The number of a kind of value.
    pub fn kind(&mut self) -> Result<Kind> {
        let number = self.u32()?;
        Kind::from_number(number)
            .ok_or_else(|| Error::new(format!("expected a value type from 0 to 12, found {number}")))
    }

    /// A value of `kind`.
    pub fn value(&mut self, kind: Kind) -> Result<Value> {
        match kind {
            Kind::String => self.str().map(|text| Value::String(text.to_owned())),
            Kind::Array => self.array(1).map(Value::Array),
            _ => {
                let raw = self.take(least_bytes(kind))?;
                Ok(self.number(kind, raw)?.to_value())
            }
        }
    }

    fn number(&self, kind: Kind, raw: &[u8]) -> Result<Item<'static>> {
        // Every pattern of bits is a number; only a bool can be wrong.
        Item::decode(kind, raw).ok_or_else(|| {
            let (at, kind) = (self.at, kind.name());
            Error::new(format!("expected a {kind}, 0 or 1, found {raw:?} before offset {at}"))
        })
    }

    /// An array that lies `depth` arrays deep, itself included.
    fn array(&mut self, depth: usize) -> Result<Array> {
        if depth > MAX_DEPTH {
            return Err(Error::new(format!("arrays are nested more than {MAX_DEPTH} deep")));
        }
        let kind = self.kind()?;
        let count = self.count("array elements", least_bytes(kind))?;
        match kind {
            Kind::String => self.strings(count),
            Kind::Array => {
                let mut arrays = Vec::with_capacity(count);
                for _ in 0..count {
                    arrays.push(Box::new(self.array(depth + 1)?));
                }
                Ok(Array::arrays(arrays))
            }
            _ => {
                let raw = self.take(count * least_bytes(kind))?;
                if kind == Kind::Bool {
                    raw.chunks(1).try_for_each(|raw| self.number(kind, raw).map(drop))?;
                }
                Ok(Array::numbers(kind, raw.into()))
            }
        }
    }

    /// `count` strings, measured before they are copied, so that not a byte too much is reserved.
    fn strings(&mut self, count: usize) -> Result<Array> {
        let element = |i: usize| move |e: Error| Error::new(format!("element {i}: {e}"));
        let start = self.at;
        let mut len = 0;
        for i in 0..count {
            len += self.str().map_err(element(i))?.len();
        }
        self.at = start;
        let mut text = String::with_capacity(len);
        let mut ends = Vec::with_capacity(count);
        for i in 0..count {
            text.push_str(self.str().map_err(element(i))?);
            ends.push(text.len() as u64);
        }
        Ok(Array::joined(text.into(), ends.into()))
    }
}
