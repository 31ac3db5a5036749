//! Metadata: typed values under dotted keys.
//!
//! Owns: the value types and the wording of "missing" and "of another type". Refuses to know: which keys a model needs.

use std::collections::BTreeMap;

use super::array::{Array, Kind};
use crate::{Error, Result};

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    /// The value as an unsigned integer, whatever integer type the file chose.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::U64(v) => Some(v),
            Value::I8(v) => v.try_into().ok(),
            Value::I16(v) => v.try_into().ok(),
            Value::I32(v) => v.try_into().ok(),
            Value::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// The value as a number, widened to f64.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::F32(v) => Some(v.into()),
            Value::F64(v) => Some(v),
            Value::I8(v) => Some(v.into()),
            Value::I16(v) => Some(v.into()),
            Value::I32(v) => Some(v.into()),
            Value::I64(v) => Some(v as f64),
            _ => self.as_u64().map(|v| v as f64),
        }
    }

    /// The value as a truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// The value as text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(v) => Some(v),
            _ => None,
        }
    }

    /// The value as a list.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Value::Array(v) => Some(v),
            _ => None,
        }
    }

    /// Its type.
    pub fn kind(&self) -> Kind {
        match self {
            Value::U8(_) => Kind::U8,
            Value::I8(_) => Kind::I8,
            Value::U16(_) => Kind::U16,
            Value::I16(_) => Kind::I16,
            Value::U32(_) => Kind::U32,
            Value::I32(_) => Kind::I32,
            Value::F32(_) => Kind::F32,
            Value::Bool(_) => Kind::Bool,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::Array,
            Value::U64(_) => Kind::U64,
            Value::I64(_) => Kind::I64,
            Value::F64(_) => Kind::F64,
        }
    }

    /// Appends a scalar's little-endian bytes; strings and arrays append nothing.
    pub(super) fn write_scalar(&self, out: &mut Vec<u8>) {
        match self {
            Value::U8(v) => out.extend(v.to_le_bytes()),
            Value::I8(v) => out.extend(v.to_le_bytes()),
            Value::U16(v) => out.extend(v.to_le_bytes()),
            Value::I16(v) => out.extend(v.to_le_bytes()),
            Value::U32(v) => out.extend(v.to_le_bytes()),
            Value::I32(v) => out.extend(v.to_le_bytes()),
            Value::F32(v) => out.extend(v.to_le_bytes()),
            Value::U64(v) => out.extend(v.to_le_bytes()),
            Value::I64(v) => out.extend(v.to_le_bytes()),
            Value::F64(v) => out.extend(v.to_le_bytes()),
            Value::Bool(v) => out.push(u8::from(*v)),
            Value::String(_) | Value::Array(_) => {}
        }
    }
}

/// All keys of a file, in alphabetical order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    values: BTreeMap<String, Value>,
}

impl Metadata {
    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Sets `key`; returns the value it had.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) -> Option<Value> {
        self.values.insert(key.into(), value)
    }

    /// Removes `key`; returns the value it had.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.values.remove(key)
    }

    /// Keys and values in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// `key` read by `read`, which answers `None` for a value of another type; a missing key is `Ok(None)`.
    fn typed<'a, T>(&'a self, key: &str, wanted: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match read(value) {
            Some(v) => Ok(Some(v)),
            None => Err(Error::new(format!("expected {wanted}, found {}", value.kind().name())).about(key)),
        }
    }

    /// An integer that fits a `usize`.
    pub fn usize(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "an unsigned integer", |v| {
            v.as_u64().and_then(|v| v.try_into().ok())
        })
    }

    /// A number.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a number", |v| v.as_f64().map(|v| v as f32))
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", Value::as_bool)
    }

    /// Text.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", Value::as_str)
    }

    /// A list.
    pub fn array(&self, key: &str) -> Result<Option<&Array>> {
        self.typed(key, "an array", Value::as_array)
    }

    /// A key that must be there: `required("k", m.usize("k"))`.
    pub fn required<T>(key: &str, value: Result<Option<T>>) -> Result<T> {
        value?.ok_or_else(|| Error::new("missing from the file's metadata").about(key))
    }
}
