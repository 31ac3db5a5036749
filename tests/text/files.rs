//! The metadata of a GGUF file, read without the library's reader.

use verbatim::gguf::{Metadata, Value};

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (first, rest) = self.0.split_first_chunk().unwrap();
        self.0 = rest;
        *first
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn string(&mut self) -> String {
        let len = self.u64() as usize;
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        String::from_utf8(text.to_vec()).unwrap()
    }

    fn value(&mut self, kind: u32) -> Value {
        match kind {
            4 => Value::U32(self.u32()),
            5 => Value::I32(self.u32() as i32),
            6 => Value::F32(f32::from_bits(self.u32())),
            7 => Value::Bool(self.take() == [1]),
            8 => Value::String(self.string()),
            9 => {
                let kind = self.u32();
                let len = self.u64();
                Value::Array((0..len).map(|_| self.value(kind)).collect())
            }
            other => panic!("value type {other}"),
        }
    }
}

/// The metadata of a file.
pub fn metadata(file: &[u8]) -> Metadata {
    let mut bytes = Bytes(&file[16..]);
    let mut metadata = Metadata::default();
    for _ in 0..bytes.u64() {
        let key = bytes.string();
        let kind = bytes.u32();
        metadata.insert(key, bytes.value(kind));
    }
    metadata
}
