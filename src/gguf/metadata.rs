//! Metadata: typed values under dotted keys.
//!
//! Owns: the value types and the wording of "missing" and "of another type". Refuses to know: which keys a model needs.

use std::collections::BTreeMap;

use super::array::{Array, Item};
use crate::{Error, Result};

/// A metadata value. Arrays hold values of one type, as the format demands.
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
    /// The value by reference, as an array's elements are seen too.
    pub fn item(&self) -> Item<'_> {
        match self {
            Value::U8(v) => Item::U8(*v),
            Value::I8(v) => Item::I8(*v),
            Value::U16(v) => Item::U16(*v),
            Value::I16(v) => Item::I16(*v),
            Value::U32(v) => Item::U32(*v),
            Value::I32(v) => Item::I32(*v),
            Value::F32(v) => Item::F32(*v),
            Value::Bool(v) => Item::Bool(*v),
            Value::String(v) => Item::String(v),
            Value::Array(v) => Item::Array(v),
            Value::U64(v) => Item::U64(*v),
            Value::I64(v) => Item::I64(*v),
            Value::F64(v) => Item::F64(*v),
        }
    }

    /// The value as an unsigned integer, whatever integer type the file chose.
    pub fn as_u64(&self) -> Option<u64> {
        self.item().as_u64()
    }

    /// The value as a number, widened to f64.
    pub fn as_f64(&self) -> Option<f64> {
        self.item().as_f64()
    }

    /// The value as a truth value.
    pub fn as_bool(&self) -> Option<bool> {
        self.item().as_bool()
    }

    /// The value as text.
    pub fn as_str(&self) -> Option<&str> {
        self.item().as_str()
    }

    /// The value as a list.
    pub fn as_array(&self) -> Option<&Array> {
        self.item().as_array()
    }

    /// The type's name, for messages.
    pub fn kind(&self) -> &'static str {
        self.item().kind().name()
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
            None => Err(Error::new(format!("expected {wanted}, found {}", value.kind())).about(key)),
        }
    }

    /// An integer that fits a `usize`.
    pub fn usize(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "an unsigned integer", |v| v.as_u64().and_then(|v| v.try_into().ok()))
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
