//! Writing GGUF files: for synthetic models and tests.
//!
//! Owns: the byte layout of version 3 (and 2, which differs by its number alone). Refuses to know: where data comes from.

use std::io::{self, Write};

use super::array::{Array, Kind};
use super::metadata::{Metadata, Value};
use crate::quant::Format;

const ALIGNMENT: usize = 32;

/// A tensor to be written: its data follows later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// Its dimensions, the fastest first.
    pub dims: Vec<usize>,
    /// Its format; a row is whole blocks.
    pub format: Format,
}

impl TensorSpec {
    /// Bytes of its data.
    pub fn bytes(&self) -> usize {
        let row = self.format.row_bytes(self.dims[0]);
        assert!(row.is_some(), "{}: a row is whole blocks", self.name);
        row.unwrap_or(0) * self.dims[1..].iter().product::<usize>()
    }
}

/// A file to be written: header first, then each tensor's data in order.
pub struct Writer<'a> {
    /// All keys.
    pub metadata: &'a Metadata,
    /// All tensors, in the order in which their data is written.
    pub tensors: &'a [TensorSpec],
    /// 2 or 3.
    pub version: u32,
}

fn string(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn array(out: &mut Vec<u8>, array: &Array) {
    out.extend(array.kind().code().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array.strs() {
        Some(strings) => strings.for_each(|s| string(out, s)),
        None => out.extend(array.bytes()),
    }
}

fn value(out: &mut Vec<u8>, v: &Value) {
    out.extend(v.kind().code().to_le_bytes());
    match v {
        Value::String(s) => string(out, s),
        Value::Array(a) => array(out, a),
        _ => v.write_scalar(out),
    }
}

impl Writer<'_> {
    /// Everything before the data, padded to the alignment.
    fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.iter().count() as u64).to_le_bytes());
        for (key, v) in self.metadata.iter() {
            string(&mut out, key);
            value(&mut out, v);
        }
        let mut offset = 0u64;
        for tensor in self.tensors {
            string(&mut out, &tensor.name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|&d| out.extend((d as u64).to_le_bytes()));
            out.extend(tensor.format.ggml().to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += tensor.bytes().next_multiple_of(ALIGNMENT) as u64;
        }
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        out
    }

    /// Writes the file to `to`; `data(i)` gives tensor `i`'s bytes when they are due.
    ///
    /// # Errors
    /// What `to` reports.
    pub fn write(&self, to: &mut dyn Write, mut data: impl FnMut(usize) -> Vec<u8>) -> io::Result<()> {
        let alignment = self.metadata.get("general.alignment").and_then(Value::as_u64);
        assert!(
            alignment.is_none_or(|a| a == ALIGNMENT as u64),
            "the writer aligns to {ALIGNMENT}"
        );
        to.write_all(&self.header())?;
        for (i, tensor) in self.tensors.iter().enumerate() {
            let bytes = data(i);
            assert_eq!(bytes.len(), tensor.bytes(), "{}: data fits its shape", tensor.name);
            to.write_all(&bytes)?;
            to.write_all(&[0; ALIGNMENT][..bytes.len().next_multiple_of(ALIGNMENT) - bytes.len()])?;
        }
        Ok(())
    }

    /// The file in memory.
    pub fn to_vec(&self, data: impl FnMut(usize) -> Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        let written = self.write(&mut out, data);
        assert!(written.is_ok(), "memory takes what is written to it");
        out
    }
}

impl From<Vec<u32>> for Array {
    fn from(values: Vec<u32>) -> Array {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Array::raw(Kind::U32, values.len(), bytes)
    }
}
