//! Arrays of metadata: values of one kind, kept as compactly as in the file.
//!
//! Owns: the thirteen kinds of value and how an array of each lies in memory: never larger than in the file, so that
//! a hostile count costs nothing. Refuses to know: keys.

use std::io::{self, Write};

use super::metadata::Value;
use crate::{Error, Result};

/// The kinds of metadata value, in the order of their numbers in the file format (`gguf_metadata_value_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

/// Name, and bytes of one value where that is fixed, in the order of the enum.
const KINDS: [(Kind, &str, Option<usize>); 13] = [
    (Kind::U8, "u8", Some(1)),
    (Kind::I8, "i8", Some(1)),
    (Kind::U16, "u16", Some(2)),
    (Kind::I16, "i16", Some(2)),
    (Kind::U32, "u32", Some(4)),
    (Kind::I32, "i32", Some(4)),
    (Kind::F32, "f32", Some(4)),
    (Kind::Bool, "bool", Some(1)),
    (Kind::String, "string", None),
    (Kind::Array, "array", None),
    (Kind::U64, "u64", Some(8)),
    (Kind::I64, "i64", Some(8)),
    (Kind::F64, "f64", Some(8)),
];

impl Kind {
    /// The kind that GGUF numbers `number`.
    pub fn from_number(number: u32) -> Option<Kind> {
        KINDS.get(usize::try_from(number).ok()?).map(|k| k.0)
    }

    /// The number that GGUF gives the kind.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The kind's name, for messages.
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// Bytes of one value; `None` for strings and arrays.
    pub fn bytes(self) -> Option<usize> {
        KINDS[self as usize].2
    }
}

/// A metadata value by reference: an element of an [`Array`], or a [`Value`] seen from outside.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Item<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(&'a str),
    Array(&'a Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Item<'a> {
    /// The number or bool of `kind` that lies in `raw`, little endian; `None` if `raw` is no such value.
    pub(super) fn decode(kind: Kind, raw: &[u8]) -> Option<Item<'a>> {
        Some(match kind {
            Kind::U8 => Item::U8(u8::from_le_bytes(raw.try_into().ok()?)),
            Kind::I8 => Item::I8(i8::from_le_bytes(raw.try_into().ok()?)),
            Kind::U16 => Item::U16(u16::from_le_bytes(raw.try_into().ok()?)),
            Kind::I16 => Item::I16(i16::from_le_bytes(raw.try_into().ok()?)),
            Kind::U32 => Item::U32(u32::from_le_bytes(raw.try_into().ok()?)),
            Kind::I32 => Item::I32(i32::from_le_bytes(raw.try_into().ok()?)),
            Kind::F32 => Item::F32(f32::from_le_bytes(raw.try_into().ok()?)),
            Kind::U64 => Item::U64(u64::from_le_bytes(raw.try_into().ok()?)),
            Kind::I64 => Item::I64(i64::from_le_bytes(raw.try_into().ok()?)),
            Kind::F64 => Item::F64(f64::from_le_bytes(raw.try_into().ok()?)),
            Kind::Bool => match raw {
                [0] => Item::Bool(false),
                [1] => Item::Bool(true),
                _ => return None,
            },
            Kind::String | Kind::Array => return None,
        })
    }

    /// Writes the value as the file format lays it out, without its kind.
    pub(super) fn encode(self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Item::U8(v) => out.write_all(&v.to_le_bytes()),
            Item::I8(v) => out.write_all(&v.to_le_bytes()),
            Item::U16(v) => out.write_all(&v.to_le_bytes()),
            Item::I16(v) => out.write_all(&v.to_le_bytes()),
            Item::U32(v) => out.write_all(&v.to_le_bytes()),
            Item::I32(v) => out.write_all(&v.to_le_bytes()),
            Item::F32(v) => out.write_all(&v.to_le_bytes()),
            Item::Bool(v) => out.write_all(&[v.into()]),
            Item::U64(v) => out.write_all(&v.to_le_bytes()),
            Item::I64(v) => out.write_all(&v.to_le_bytes()),
            Item::F64(v) => out.write_all(&v.to_le_bytes()),
            Item::String(v) => {
                out.write_all(&(v.len() as u64).to_le_bytes())?;
                out.write_all(v.as_bytes())
            }
            Item::Array(v) => {
                out.write_all(&v.kind.number().to_le_bytes())?;
                out.write_all(&(v.len() as u64).to_le_bytes())?;
                match &v.elements {
                    Elements::Numbers(raw) => out.write_all(raw),
                    _ => v.iter().try_for_each(|item| item.encode(out)),
                }
            }
        }
    }

    /// The value's kind.
    pub fn kind(self) -> Kind {
        match self {
            Item::U8(_) => Kind::U8,
            Item::I8(_) => Kind::I8,
            Item::U16(_) => Kind::U16,
            Item::I16(_) => Kind::I16,
            Item::U32(_) => Kind::U32,
            Item::I32(_) => Kind::I32,
            Item::F32(_) => Kind::F32,
            Item::Bool(_) => Kind::Bool,
            Item::String(_) => Kind::String,
            Item::Array(_) => Kind::Array,
            Item::U64(_) => Kind::U64,
            Item::I64(_) => Kind::I64,
            Item::F64(_) => Kind::F64,
        }
    }

    /// The value as an unsigned integer, whatever integer type the file chose.
    pub fn as_u64(self) -> Option<u64> {
        match self {
            Item::U8(v) => Some(v.into()),
            Item::U16(v) => Some(v.into()),
            Item::U32(v) => Some(v.into()),
            Item::U64(v) => Some(v),
            Item::I8(v) => v.try_into().ok(),
            Item::I16(v) => v.try_into().ok(),
            Item::I32(v) => v.try_into().ok(),
            Item::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// The value as a number, widened to f64.
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Item::F32(v) => Some(v.into()),
            Item::F64(v) => Some(v),
            Item::I8(v) => Some(v.into()),
            Item::I16(v) => Some(v.into()),
            Item::I32(v) => Some(v.into()),
            Item::I64(v) => Some(v as f64),
            _ => self.as_u64().map(|v| v as f64),
        }
    }

    /// The value as a truth value.
    pub fn as_bool(self) -> Option<bool> {
        match self {
            Item::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// The value as text.
    pub fn as_str(self) -> Option<&'a str> {
        match self {
            Item::String(v) => Some(v),
            _ => None,
        }
    }

    /// The value as a list.
    pub fn as_array(self) -> Option<&'a Array> {
        match self {
            Item::Array(v) => Some(v),
            _ => None,
        }
    }

    /// A copy that owns its text.
    pub fn to_value(self) -> Value {
        match self {
            Item::U8(v) => Value::U8(v),
            Item::I8(v) => Value::I8(v),
            Item::U16(v) => Value::U16(v),
            Item::I16(v) => Value::I16(v),
            Item::U32(v) => Value::U32(v),
            Item::I32(v) => Value::I32(v),
            Item::F32(v) => Value::F32(v),
            Item::Bool(v) => Value::Bool(v),
            Item::String(v) => Value::String(v.to_owned()),
            Item::Array(v) => Value::Array(v.clone()),
            Item::U64(v) => Value::U64(v),
            Item::I64(v) => Value::I64(v),
            Item::F64(v) => Value::F64(v),
        }
    }
}

/// Values of one kind, at most as large as they are in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    kind: Kind,
    elements: Elements,
}

#[derive(Debug, Clone, PartialEq)]
enum Elements {
    /// Numbers and bools, little endian, one after another.
    Numbers(Box<[u8]>),
    /// All strings joined, and where each ends.
    Strings { text: Box<str>, ends: Box<[u64]> },
    /// A pointer each, since an array's head takes less room in the file than in memory.
    #[allow(clippy::vec_box)]
    Arrays(Vec<Box<Array>>),
}

impl Array {
    /// An array of `kind`; an error names the first of `values` that is of another kind.
    pub fn new(kind: Kind, values: impl IntoIterator<Item = Value>) -> Result<Array> {
        let mut raw = Vec::new();
        let mut strings = Vec::new();
        let mut arrays = Vec::new();
        for (i, value) in values.into_iter().enumerate() {
            let found = value.item().kind();
            if found != kind {
                let (wanted, found) = (kind.name(), found.name());
                return Err(Error::new(format!("element {i} should be {wanted}, found {found}")));
            }
            match value {
                Value::String(text) => strings.push(text),
                Value::Array(array) => arrays.push(Box::new(array)),
                number => (number.item().encode(&mut raw)).map_err(|e| Error::new(e.to_string()))?,
            }
        }
        Ok(match kind {
            Kind::String => Array::strings(&strings),
            Kind::Array => Array::arrays(arrays),
            _ => Array::numbers(kind, raw.into()),
        })
    }

    /// An array of strings.
    pub fn strings<S: AsRef<str>>(strings: impl IntoIterator<Item = S>) -> Array {
        let mut text = String::new();
        let mut ends = Vec::new();
        for string in strings {
            text.push_str(string.as_ref());
            ends.push(text.len() as u64);
        }
        Array::joined(text.into(), ends.into())
    }

    /// Numbers or bools of `kind` that have been checked.
    pub(super) fn numbers(kind: Kind, raw: Box<[u8]>) -> Array {
        debug_assert!(kind.bytes().is_some_and(|size| raw.len().is_multiple_of(size)));
        let elements = Elements::Numbers(raw);
        Array { kind, elements }
    }

    /// Strings that lie one after another in `text`; each of `ends` is where one ends.
    pub(super) fn joined(text: Box<str>, ends: Box<[u64]>) -> Array {
        Array { kind: Kind::String, elements: Elements::Strings { text, ends } }
    }

    /// An array of arrays.
    #[allow(clippy::vec_box)]
    pub(super) fn arrays(arrays: Vec<Box<Array>>) -> Array {
        Array { kind: Kind::Array, elements: Elements::Arrays(arrays) }
    }

    /// The kind of every element.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        match &self.elements {
            Elements::Numbers(raw) => raw.len() / self.kind.bytes().unwrap_or(1),
            Elements::Strings { ends, .. } => ends.len(),
            Elements::Arrays(arrays) => arrays.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `i`.
    pub fn get(&self, i: usize) -> Option<Item<'_>> {
        match &self.elements {
            Elements::Numbers(raw) => {
                let size = self.kind.bytes()?;
                Item::decode(self.kind, raw.chunks_exact(size).nth(i)?)
            }
            Elements::Strings { text, ends } => {
                let end = *ends.get(i)? as usize;
                let start = if i == 0 { 0 } else { ends[i - 1] as usize };
                Some(Item::String(&text[start..end]))
            }
            Elements::Arrays(arrays) => arrays.get(i).map(|array| Item::Array(array)),
        }
    }

    /// The elements in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Item<'_>> {
        (0..self.len()).map(|i| match self.get(i) {
            Some(item) => item,
            None => unreachable!("element {i} of {}", self.len()),
        })
    }
}

/// Scalars and lists of each number type, for those who build metadata.
macro_rules! numbers {
    ($($number:ty => $kind:ident),*) => {$(
        impl From<$number> for Value {
            fn from(value: $number) -> Value {
                Value::$kind(value)
            }
        }

        impl From<&[$number]> for Array {
            fn from(values: &[$number]) -> Array {
                Array::numbers(Kind::$kind, values.iter().flat_map(|v| v.to_le_bytes()).collect())
            }
        }
    )*};
}

numbers!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
         f32 => F32, f64 => F64);

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::String(value.to_owned())
    }
}

impl From<Array> for Value {
    fn from(value: Array) -> Value {
        Value::Array(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_are_numbered_in_the_order_of_the_enum() {
        for (i, (kind, ..)) in KINDS.iter().enumerate() {
            assert_eq!(kind.number() as usize, i);
            assert_eq!(Kind::from_number(i as u32), Some(*kind));
        }
        assert_eq!(Kind::from_number(13), None);
    }

    #[test]
    fn an_element_of_another_kind_is_refused() {
        let mixed = Array::new(Kind::I32, [Value::I32(1), Value::U8(1)]);
        assert_eq!(mixed.unwrap_err().to_string(), "element 1 should be i32, found u8");
    }

    #[test]
    fn elements_come_back_as_they_went_in() {
        let strings = Array::strings(["", "a", "", "né"]);
        assert_eq!(strings.iter().filter_map(Item::as_str).collect::<Vec<_>>(), ["", "a", "", "né"]);
        assert_eq!(strings.get(4), None);
        let numbers = Array::from(&[1i16, -2][..]);
        assert_eq!(numbers.get(1), Some(Item::I16(-2)));
        assert_eq!(numbers.len(), 2);
        let nested = Array::new(Kind::Array, [Value::Array(strings.clone()), Value::Array(numbers)]).unwrap();
        assert_eq!(nested.get(0), Some(Item::Array(&strings)));
        assert_eq!(nested.iter().len(), 2);
    }
}
