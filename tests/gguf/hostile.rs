//! Damage of every kind: never a panic, never an allocation larger than the file (`fixtures::read` asserts both).

use verbatim::gguf::Gguf;

use crate::fixtures::{Raw, SLACK, embedded, read, refused, small, text};
use crate::measure::memory;

/// Counts that no file has room for.
const ABSURD: [u64; 9] = [
    u64::MAX,
    u64::MAX - 7,
    1 << 63,
    (1 << 63) - 1,
    u64::MAX / 8,
    u64::MAX / 12 + 1,
    1 << 40,
    u32::MAX as u64,
    100_000,
];

/// A fixed sequence of numbers that look random (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

#[test]
fn a_small_file_cut_anywhere_is_refused() {
    let whole = small();
    // The last tensor has 6 bytes, and the padding after them may be missing.
    let needed = whole.len() - 26;
    for len in 0..needed {
        let message = read(whole[..len].to_vec()).expect_err(&format!("cut at {len}")).to_string();
        assert!(message.contains("too early") || message.contains("truncated"), "cut at {len}: {message}");
    }
    for len in needed..=whole.len() {
        assert!(read(whole[..len].to_vec()).is_ok(), "cut at {len}");
    }
}

#[test]
fn a_model_cut_at_any_length_up_to_4_kib_and_at_many_beyond_is_refused() {
    let whole: &'static [u8] = std::fs::read(embedded()).unwrap().leak();
    let mut numbers = Numbers(1);
    let beyond = (0..100).map(|_| numbers.below(whole.len() - 4096));
    for len in (0..=4096).chain(beyond) {
        let (answer, memory) = memory(|| Gguf::from_static(&whole[..len], "cut.gguf"));
        let message = answer.expect_err(&format!("cut at {len}")).to_string();
        assert!(message.starts_with("cut.gguf: "), "cut at {len}: {message}");
        assert!(memory.largest <= len + SLACK, "cut at {len}: {}", memory.largest);
    }
}

#[test]
fn any_flipped_bit_of_the_header_is_survived() {
    let whole = small();
    let header = whole.len() - (32 + 128 + 576 + 32);
    let mut refused = 0;
    for bit in 0..header * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        refused += usize::from(read(bytes).is_err());
    }
    // Most of the header is text and numbers, whose change is another valid file.
    assert!(refused > header, "{refused} of {} bits", header * 8);
}

#[test]
fn many_flipped_bits_at_once_are_survived() {
    let whole = small();
    let mut numbers = Numbers(2);
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=numbers.below(8) {
            let at = numbers.below(bytes.len());
            bytes[at] ^= 1 << numbers.below(8);
        }
        let _ = read(bytes);
    }
}

#[test]
fn numbers_overwritten_and_pieces_moved_are_survived() {
    let whole = small();
    let mut numbers = Numbers(3);
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=numbers.below(3) {
            let at = numbers.below(bytes.len() - 8);
            match numbers.below(4) {
                0 => bytes[at..at + 8].copy_from_slice(&ABSURD[numbers.below(ABSURD.len())].to_le_bytes()),
                1 => bytes[at..at + 4].copy_from_slice(&(numbers.below(40) as u32).to_le_bytes()),
                2 => {
                    let from = numbers.below(bytes.len());
                    let len = numbers.below(64).min(bytes.len() - from.max(at));
                    bytes.copy_within(from..from + len, at);
                }
                _ => {
                    let len = numbers.below(64).min(bytes.len() - at - 8);
                    bytes.drain(at..at + len);
                    bytes.resize(bytes.len().max(16), 0);
                }
            }
        }
        let _ = read(bytes);
    }
}

#[test]
fn absurd_counts_are_refused_before_anything_is_reserved() {
    for count in ABSURD {
        let said = count.to_string();
        let mut raw = Raw::new().entry(b"key", 0, &[1]).tensor(b"t", &[8], 0, 0).data(64);
        raw.tensor_count = Some(count);
        refused(raw.bytes(), &["header: ", &said, "tensors"]);
        raw.tensor_count = None;
        raw.entry_count = Some(count);
        refused(raw.bytes(), &["header: ", &said, "metadata entries"]);
        for kind in 0..13 {
            let raw = Raw::new().array(b"list", kind, count, &[0; 64]);
            refused(raw.bytes(), &["list: ", &said, "array elements"]);
        }
        let string = [&count.to_le_bytes()[..], b"text"].concat();
        refused(Raw::new().entry(b"s", 8, &string).bytes(), &["s: ", &said]);
        refused(Raw::new().array(b"l", 8, 1, &string).bytes(), &["l: ", "element 0", &said]);
        let inner = [&0u32.to_le_bytes()[..], &count.to_le_bytes(), &[0; 16]].concat();
        refused(Raw::new().array(b"l", 9, 1, &inner).bytes(), &["l: ", &said]);
        let mut key = Raw::new().entry(b"k", 0, &[1]);
        key.entries[0][..8].copy_from_slice(&count.to_le_bytes());
        refused(key.bytes(), &["key of metadata entry 0", &said]);
        let mut name = Raw::new().tensor(b"t", &[1], 0, 0);
        name.tensors[0][..8].copy_from_slice(&count.to_le_bytes());
        refused(name.bytes(), &["name of tensor 0", &said]);
    }
    let mut fewer = Raw::new().entry(b"a", 0, &[1]).entry(b"b", 0, &[1]);
    fewer.entry_count = Some(3);
    assert!(read(fewer.bytes()).is_err());
}

#[test]
fn many_tiny_things_take_no_more_room_than_the_file() {
    const MANY: usize = 20_000;
    let strings = Raw::new().array(b"empty", 8, MANY as u64, &text(b"").repeat(MANY));
    let gguf = read(strings.bytes()).unwrap();
    assert_eq!(gguf.metadata().array("empty").unwrap().unwrap().len(), MANY);
    let bytes = Raw::new().array(b"bytes", 0, MANY as u64, &vec![7; MANY]);
    assert_eq!(read(bytes.bytes()).unwrap().metadata().array("bytes").unwrap().unwrap().len(), MANY);
    let none = [&0u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat();
    let arrays = Raw::new().array(b"arrays", 9, MANY as u64, &none.repeat(MANY));
    assert_eq!(read(arrays.bytes()).unwrap().metadata().array("arrays").unwrap().unwrap().len(), MANY);
    let mut entries = Raw::new();
    let mut tensors = Raw::new();
    for i in 0..MANY {
        let name = format!("{i}");
        entries = entries.entry(name.as_bytes(), 0, &[1]);
        tensors = tensors.tensor(name.as_bytes(), &[1], 1000, 32 * i as u64);
    }
    assert_eq!(read(entries.bytes()).unwrap().metadata().iter().count(), MANY);
    assert_eq!(read(tensors.data(32 * MANY).bytes()).unwrap().tensors().len(), MANY);
}
