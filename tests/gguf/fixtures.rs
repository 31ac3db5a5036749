//! Files for the tests: valid ones by the writer, all others byte by byte.

use std::path::PathBuf;

use verbatim::Result;
use verbatim::gguf::{Array, Gguf, Kind, Metadata, Value, Version, Writer};
use verbatim::quant::Format;

use crate::measure::memory;

/// Room beyond the file's size for an allocation of fixed size: a node of the metadata's tree, a message.
pub const SLACK: usize = 2048;

/// What messages call the files of these tests.
pub const NAME: &str = "some.gguf";

/// A file that the repository's neighbour `shared` holds; `None`, with the reason printed, where it is absent.
pub fn shared(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared").join(path);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is absent", path.display());
    None
}

pub fn embedded() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/pocket-Q4_K_M.gguf")
}

/// Reads `bytes`, and all that a model would read of them, and asserts that memory stays within bounds.
pub fn read(bytes: Vec<u8>) -> Result<Gguf> {
    let size = bytes.len();
    let (answer, memory) = memory(|| {
        let gguf = Gguf::from_vec(bytes, NAME)?;
        gguf.fingerprint();
        for tensor in gguf.tensors() {
            let data = gguf.data(&tensor.name);
            assert_eq!(data.is_ok(), tensor.bytes().is_some());
            assert_eq!(data.ok().map(|d| d.len()), tensor.bytes());
        }
        Ok(gguf)
    });
    assert!(memory.largest <= size + SLACK, "a file of {size} bytes took {} at once", memory.largest);
    assert!(memory.peak <= 16 * (size + SLACK) as isize, "a file of {size} bytes held {} bytes", memory.peak);
    answer
}

/// Reads `bytes` and asserts that the error names the file and says all of `parts`.
pub fn refused(bytes: Vec<u8>, parts: &[&str]) {
    let message = read(bytes).expect_err("should be refused").to_string();
    assert!(message.starts_with(NAME), "{message}");
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

/// Metadata with a key of every kind, and an array of every kind.
pub fn metadata() -> Metadata {
    let mut metadata = Metadata::default();
    let nested = Array::new(
        Kind::Array,
        [
            Value::Array(Array::from(&[1u8, 2, 3][..])),
            Value::Array(Array::strings(["a", "", "ü"])),
            Value::Array(Array::new(Kind::Array, []).unwrap()),
        ],
    );
    let entries: Vec<(&str, Value)> = vec![
        ("general.architecture", "test".into()),
        ("scalar.u8", 200u8.into()),
        ("scalar.i8", (-5i8).into()),
        ("scalar.u16", 60_000u16.into()),
        ("scalar.i16", (-30_000i16).into()),
        ("scalar.u32", 4_000_000_000u32.into()),
        ("scalar.i32", (-2_000_000_000i32).into()),
        ("scalar.f32", 1.5f32.into()),
        ("scalar.bool", true.into()),
        ("scalar.string", "naïve \0 text".into()),
        ("scalar.u64", u64::MAX.into()),
        ("scalar.i64", i64::MIN.into()),
        ("scalar.f64", (-0.1f64).into()),
        ("array.u8", Array::from(&[0u8, 255][..]).into()),
        ("array.i8", Array::from(&[-128i8][..]).into()),
        ("array.u16", Array::from(&[1u16, 2][..]).into()),
        ("array.i16", Array::from(&[-1i16][..]).into()),
        ("array.u32", Array::from(&[7u32; 5][..]).into()),
        ("array.i32", Array::from(&[-7i32; 3][..]).into()),
        ("array.f32", Array::from(&[0.5f32, -0.0][..]).into()),
        ("array.bool", Array::new(Kind::Bool, [true.into(), false.into()]).unwrap().into()),
        ("array.string", Array::strings(["one", "", "three"]).into()),
        ("array.empty", Array::from(&[0u64; 0][..]).into()),
        ("array.u64", Array::from(&[u64::MAX][..]).into()),
        ("array.i64", Array::from(&[i64::MIN][..]).into()),
        ("array.f64", Array::from(&[1e300f64][..]).into()),
        ("array.nested", nested.unwrap().into()),
    ];
    for (key, value) in entries {
        assert_eq!(metadata.insert(key, value), None);
    }
    metadata
}

/// The tensors of [`small`]: name, dimensions, format, bytes.
pub const TENSORS: [(&str, &[usize], Format, usize); 4] = [
    ("blk.0.norm.weight", &[5], Format::F32, 20),
    ("blk.0.up.weight", &[32, 3], Format::Q8_0, 102),
    ("blk.0.exps.weight", &[256, 2, 2, 1], Format::Q4_K, 576),
    ("output.weight", &[3, 1], Format::F16, 6),
];

/// The data of tensor `i`: bytes that differ from place to place and tensor to tensor.
pub fn data(i: usize) -> Vec<u8> {
    (0..TENSORS[i].3).map(|at| (at * 7 + i * 50 + 1) as u8).collect()
}

/// A whole file with `metadata` and [`TENSORS`].
pub fn file(metadata: Metadata, version: Version) -> Vec<u8> {
    let mut writer = Writer::new(metadata).unwrap().version(version);
    for (name, dims, format, _) in TENSORS {
        writer.tensor(name, dims, format).unwrap();
    }
    let data: Vec<_> = (0..TENSORS.len()).map(data).collect();
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    writer.into_vec(&data).unwrap()
}

/// A small file that has everything.
pub fn small() -> Vec<u8> {
    file(metadata(), Version::V3)
}

/// A file built byte by byte, which may lie about anything.
#[derive(Clone)]
pub struct Raw {
    pub version: u32,
    pub tensor_count: Option<u64>,
    pub entry_count: Option<u64>,
    pub entries: Vec<Vec<u8>>,
    pub tensors: Vec<Vec<u8>>,
    pub data: usize,
}

impl Raw {
    pub fn new() -> Raw {
        Raw { version: 3, tensor_count: None, entry_count: None, entries: Vec::new(), tensors: Vec::new(), data: 0 }
    }

    /// Adds a metadata entry: `kind` and the bytes of its value.
    pub fn entry(mut self, key: &[u8], kind: u32, value: &[u8]) -> Raw {
        self.entries.push([&text(key), &kind.to_le_bytes()[..], value].concat());
        self
    }

    /// Adds an entry that is an array: the elements' kind, their count, their bytes.
    pub fn array(self, key: &[u8], kind: u32, count: u64, elements: &[u8]) -> Raw {
        let value = [&kind.to_le_bytes()[..], &count.to_le_bytes(), elements].concat();
        self.entry(key, Kind::Array.number(), &value)
    }

    pub fn tensor(mut self, name: &[u8], dims: &[u64], format: u32, offset: u64) -> Raw {
        let mut tensor = text(name);
        tensor.extend((dims.len() as u32).to_le_bytes());
        tensor.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
        tensor.extend(format.to_le_bytes());
        tensor.extend(offset.to_le_bytes());
        self.tensors.push(tensor);
        self
    }

    /// Sets how many bytes of data there are.
    pub fn data(mut self, bytes: usize) -> Raw {
        self.data = bytes;
        self
    }

    /// The file, its data aligned to 32 bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        bytes.extend(self.entry_count.unwrap_or(self.entries.len() as u64).to_le_bytes());
        bytes.extend(self.entries.concat());
        bytes.extend(self.tensors.concat());
        if self.data > 0 {
            bytes.resize(bytes.len().next_multiple_of(32) + self.data, 0);
        }
        bytes
    }
}

/// Text as the format lays it out.
pub fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}
