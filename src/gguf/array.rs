//! Arrays in metadata, kept compact.
//!
//! Owns: their storage, never larger than in the file, so that an absurd count cannot make us allocate. Refuses to know:
//! what the elements mean.

use super::metadata::Value;

/// The type of an array's elements, or of a value: GGUF's `gguf_metadata_value_type`.
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

/// In the order of the format's numbers.
const KINDS: [(Kind, &str, usize); 13] = [
    (Kind::U8, "u8", 1),
    (Kind::I8, "i8", 1),
    (Kind::U16, "u16", 2),
    (Kind::I16, "i16", 2),
    (Kind::U32, "u32", 4),
    (Kind::I32, "i32", 4),
    (Kind::F32, "f32", 4),
    (Kind::Bool, "bool", 1),
    (Kind::String, "string", 0),
    (Kind::Array, "array", 0),
    (Kind::U64, "u64", 8),
    (Kind::I64, "i64", 8),
    (Kind::F64, "f64", 8),
];

impl Kind {
    /// The type that the format numbers `code`.
    pub fn from_code(code: u32) -> Option<Kind> {
        KINDS.get(code as usize).map(|k| k.0)
    }

    /// The number that the format gives it.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// Its name, for messages.
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// Bytes of a value; 0 for strings and arrays, which carry their length.
    pub fn size(self) -> usize {
        KINDS[self as usize].2
    }

    /// A scalar from its little-endian bytes, exactly as many as [`Kind::size`] says; `None` for strings and arrays.
    pub fn scalar(self, bytes: &[u8]) -> Option<Value> {
        fn le<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            bytes.try_into().ok()
        }
        Some(match self {
            Kind::U8 => Value::U8(u8::from_le_bytes(le(bytes)?)),
            Kind::I8 => Value::I8(i8::from_le_bytes(le(bytes)?)),
            Kind::U16 => Value::U16(u16::from_le_bytes(le(bytes)?)),
            Kind::I16 => Value::I16(i16::from_le_bytes(le(bytes)?)),
            Kind::U32 => Value::U32(u32::from_le_bytes(le(bytes)?)),
            Kind::I32 => Value::I32(i32::from_le_bytes(le(bytes)?)),
            Kind::F32 => Value::F32(f32::from_le_bytes(le(bytes)?)),
            Kind::Bool => Value::Bool(le::<1>(bytes)?[0] != 0),
            Kind::U64 => Value::U64(u64::from_le_bytes(le(bytes)?)),
            Kind::I64 => Value::I64(i64::from_le_bytes(le(bytes)?)),
            Kind::F64 => Value::F64(f64::from_le_bytes(le(bytes)?)),
            Kind::String | Kind::Array => return None,
        })
    }
}

/// An array of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    kind: Kind,
    len: usize,
    /// Scalars as in the file; strings end to end; nested arrays as in the file, unread.
    bytes: Vec<u8>,
    /// For strings: where each one ends in `bytes`.
    ends: Vec<u64>,
}

impl Array {
    /// Scalars, or nested arrays that were only checked, from their bytes in the file.
    pub(super) fn raw(kind: Kind, len: usize, bytes: Vec<u8>) -> Array {
        assert!(kind != Kind::String, "strings are not raw");
        Array {
            kind,
            len,
            bytes,
            ends: Vec::new(),
        }
    }

    /// Strings.
    pub fn strings<S: AsRef<str>>(strings: impl IntoIterator<Item = S>) -> Array {
        let mut array = Array {
            kind: Kind::String,
            len: 0,
            bytes: Vec::new(),
            ends: Vec::new(),
        };
        for s in strings {
            array.push_string(s.as_ref());
        }
        array
    }

    /// Scalars of one type; `None` if they are of several types or not scalars.
    pub fn scalars(values: &[Value]) -> Option<Array> {
        let kind = values.first().map_or(Kind::U32, Value::kind);
        let mut bytes = Vec::with_capacity(values.len() * kind.size());
        for value in values {
            if value.kind() != kind || kind.size() == 0 {
                return None;
            }
            value.write_scalar(&mut bytes);
        }
        Some(Array::raw(kind, values.len(), bytes))
    }

    /// No strings yet, with room for `strings` of them, `text` bytes in all.
    pub(super) fn with_room(strings: usize, text: usize) -> Array {
        let (bytes, ends) = (Vec::with_capacity(text), Vec::with_capacity(strings));
        Array {
            kind: Kind::String,
            len: 0,
            bytes,
            ends,
        }
    }

    /// Adds a string.
    pub(super) fn push_string(&mut self, s: &str) {
        self.bytes.extend_from_slice(s.as_bytes());
        self.ends.push(self.bytes.len() as u64);
        self.len += 1;
    }

    /// Type of the elements.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The scalar elements' bytes, as in the file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The string at `i`; `None` beyond the end or for other elements.
    pub fn str(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)? as usize;
        let start = i.checked_sub(1).map_or(0, |i| self.ends[i] as usize);
        std::str::from_utf8(&self.bytes[start..end]).ok()
    }

    /// The scalar at `i`; `None` beyond the end, or for strings and nested arrays.
    pub fn scalar(&self, i: usize) -> Option<Value> {
        let size = self.kind.size();
        self.kind.scalar(self.bytes.get(i.checked_mul(size)?..)?.get(..size)?)
    }

    /// All strings; `None` if the elements are not strings.
    pub fn strs(&self) -> Option<impl Iterator<Item = &str>> {
        (self.kind == Kind::String).then(|| (0..self.len).filter_map(|i| self.str(i)))
    }

    /// All scalars; `None` if the elements are strings or arrays.
    pub fn iter(&self) -> Option<impl Iterator<Item = Value>> {
        (self.kind.size() > 0).then(|| (0..self.len).filter_map(|i| self.scalar(i)))
    }
}
