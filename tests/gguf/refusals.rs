//! What is wrong with a file is said in one sentence that names the file and the key or tensor.

use std::path::Path;

use verbatim::gguf::Gguf;

use crate::fixtures::{Raw, file, metadata, read, refused, small, text};
use verbatim::gguf::{Metadata, Version};

const U8: u32 = 0;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
const F32: u32 = 0;
const Q8_0: u32 = 8;

#[test]
fn what_is_no_gguf_file_is_told_apart() {
    let with = |magic: &[u8], version: u32| [magic, &version.to_le_bytes(), &[0; 16]].concat();
    refused(vec![], &["header", "expected 4 bytes", "found 0"]);
    refused(b"PK\x03\x04 zip".to_vec(), &["expected a GGUF file", r"PK\x03\x04"]);
    refused(b"version https://git-lfs.github.com/spec/v1".to_vec(), &["Git LFS pointer"]);
    refused(with(b"tjgg", 3), &["before GGUF"]);
    refused(with(b"GGUF", 1), &["version 1 is not supported"]);
    refused(with(b"GGUF", 3u32.swap_bytes()), &["big-endian"]);
    refused(with(b"GGUF", 2u32.swap_bytes()), &["big-endian"]);
    refused(with(b"GGUF", 4), &["version 2 or 3", "found 4"]);
    refused(with(b"GGUF", 0), &["version 2 or 3", "found 0"]);
    assert!(read(with(b"GGUF", 3)).is_ok());
}

#[test]
fn a_path_without_a_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing.gguf");
    let message = Gguf::open(&missing).unwrap_err().to_string();
    assert!(message.starts_with(&format!("{}: cannot open", missing.display())), "{message}");
    let message = Gguf::open(directory.path()).unwrap_err().to_string();
    assert!(message.contains("expected a regular file"), "{message}");
    let empty = directory.path().join("empty.gguf");
    std::fs::write(&empty, []).unwrap();
    let message = Gguf::open(&empty).unwrap_err().to_string();
    assert!(message.contains("empty.gguf: header"), "{message}");
    assert!(Gguf::open(Path::new("")).is_err());
}

#[test]
fn bad_metadata_is_named_by_its_key() {
    let raw = Raw::new;
    let twice = raw().entry(b"twice", U8, &[1]).entry(b"twice", U8, &[1]);
    refused(twice.bytes(), &["twice: ", "found it twice"]);
    refused(raw().entry(b"odd", 13, &[0; 8]).bytes(), &["odd: ", "0 to 12", "found 13"]);
    refused(raw().entry(b"truth", BOOL, &[2]).bytes(), &["truth: ", "bool", "[2]"]);
    refused(raw().array(b"truths", BOOL, 2, &[1, 3]).bytes(), &["truths: ", "bool", "[3]"]);
    refused(raw().array(b"list", 99, 2, &[1, 3]).bytes(), &["list: ", "found 99"]);
    refused(
        raw().entry(b"bytes", STRING, &text(b"ab\xFFcd")).bytes(),
        &["bytes: ", "UTF-8", "invalid byte at offset 51"],
    );
    let strings = [text(b"fine"), text(b"\xC3")].concat();
    refused(raw().array(b"words", STRING, 2, &strings).bytes(), &["words: ", "element 1", "UTF-8"]);
    refused(raw().entry(b"good", U8, &[1]).entry(b"k\xE9y", U8, &[1]).bytes(), &["key of metadata entry 1", "UTF-8"]);
    let long = [b'k'; 10_000];
    let message = read(raw().entry(&long, 13, &[]).bytes()).unwrap_err().to_string();
    assert!(message.len() < 300, "{} bytes of message", message.len());
}

#[test]
fn a_bad_alignment_is_refused() {
    for alignment in [0u32, 1, 4, 7, 24, 33, u32::MAX] {
        let raw = Raw::new().entry(b"general.alignment", U32, &alignment.to_le_bytes());
        refused(raw.bytes(), &["general.alignment: expected a power of two", &format!("found {alignment}")]);
    }
    let raw = Raw::new().entry(b"general.alignment", STRING, &text(b"32"));
    refused(raw.bytes(), &["general.alignment: expected an unsigned integer, found string"]);
    let huge = Raw::new().entry(b"general.alignment", 10, &(1u64 << 63).to_le_bytes());
    refused(huge.clone().tensor(b"t", &[1], F32, 0).data(64).bytes(), &["t: ", "truncated"]);
    assert!(read(huge.bytes()).is_ok());
}

#[test]
fn arrays_nest_eight_deep_and_no_deeper() {
    let nested = |depth: usize| {
        let one = [&ARRAY.to_le_bytes()[..], &1u64.to_le_bytes()].concat();
        let mut value = one.repeat(depth - 1);
        value.extend([&U8.to_le_bytes()[..], &1u64.to_le_bytes(), &[7]].concat());
        Raw::new().entry(b"deep", ARRAY, &value).bytes()
    };
    assert!(read(nested(8)).is_ok());
    refused(nested(9), &["deep: ", "nested more than 8 deep"]);
    refused(nested(100_000), &["deep: ", "nested"]);
}

#[test]
fn bad_dimensions_are_named_by_their_tensor() {
    let one = |dims: &[u64], format| Raw::new().tensor(b"t", dims, format, 0).data(64).bytes();
    assert!(read(one(&[4, 1, 1, 1], F32)).is_ok());
    refused(one(&[], F32), &["t: ", "1 to 4 dimensions", "found 0"]);
    refused(one(&[1, 1, 1, 1, 1], F32), &["t: ", "1 to 4 dimensions", "found 5"]);
    refused(one(&[4, 0], F32), &["t: ", "dimension 1 of 0"]);
    refused(one(&[1 << 32, 1 << 32], F32), &["t: ", "4294967296", "count"]);
    refused(one(&[1 << 63], F32), &["t: ", "count"]);
    refused(one(&[u64::MAX, u64::MAX], 19), &["t: ", "count"]);
    refused(one(&[40, 1], Q8_0), &["t: ", "multiple of 32", "Q8_0", "found 40"]);
    refused(one(&[300], 12), &["t: ", "multiple of 256", "Q4_K", "found 300"]);
}

#[test]
fn data_that_is_not_where_it_should_be_is_named_by_its_tensor() {
    let at = |offset| Raw::new().tensor(b"t", &[8], F32, offset).data(64).bytes();
    assert!(read(at(32)).is_ok());
    refused(at(4), &["t: ", "multiple of 32", "offset 4"]);
    refused(at(64), &["t: ", "truncated", "32 bytes of data at offset 64", "found 64"]);
    refused(at(u64::MAX - 31), &["t: ", "truncated"]);
    let long = Raw::new().tensor(b"t", &[17], F32, 0).data(64).bytes();
    refused(long, &["t: ", "expected 68 bytes", "found 64"]);
    let none = Raw::new().tensor(b"t", &[1], F32, 0).bytes();
    refused(none, &["t: ", "found 0"]);
    refused(Raw::new().tensor(b"\x80", &[1], F32, 0).data(32).bytes(), &["name of tensor 0", "UTF-8"]);
}

#[test]
fn tensors_that_share_a_byte_are_both_named() {
    let two = |width, offset| {
        Raw::new().tensor(b"late", &[8], F32, 64).tensor(b"early", &[width], F32, offset).data(128).bytes()
    };
    assert!(read(two(8, 32)).is_ok());
    assert!(read(two(16, 0)).is_ok());
    refused(two(17, 0), &["late: ", "64..96", "overlaps that of early at 0..68"]);
    refused(two(9, 32), &["late: ", "overlaps that of early"]);
    refused(two(1, 64), &["early: ", "overlaps that of late"]);
    let unsupported = Raw::new().tensor(b"a", &[8], 19, 0).tensor(b"b", &[8], 16, 0).data(32);
    refused(unsupported.bytes(), &["b: ", "overlaps that of a"]);
}

#[test]
fn a_tensor_name_may_occur_once() {
    let raw = Raw::new().tensor(b"t", &[8], F32, 0).tensor(b"u", &[8], F32, 32).tensor(b"t", &[8], F32, 64);
    refused(raw.data(96).bytes(), &["t: ", "expected each tensor once, found it twice"]);
}

#[test]
fn an_unsupported_format_is_an_error_only_when_its_data_is_wanted() {
    let raw =
        Raw::new().tensor(b"odd", &[256, 2], 16, 0).tensor(b"unheard", &[7], 1000, 32).tensor(b"fine", &[8], F32, 64);
    let gguf = read(raw.data(96).bytes()).unwrap();
    let odd = gguf.tensor("odd").unwrap();
    assert_eq!((odd.format, odd.bytes(), odd.format_name()), (Err(16), None, "IQ2_XXS"));
    assert_eq!(gguf.tensor("unheard").unwrap().format_name(), "unknown");
    assert_eq!(gguf.data("fine").unwrap().len(), 32);
    let message = gguf.data("odd").unwrap_err().to_string();
    assert_eq!(
        message,
        "some.gguf: odd: its format IQ2_XXS (type 16) is not supported; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1, \
         Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4"
    );
    let message = gguf.data("unheard").unwrap_err().to_string();
    assert!(message.contains("unheard: its format unknown (type 1000)"), "{message}");
}

#[test]
fn files_joined_end_to_end_are_refused() {
    let padded = small();
    let mut unpadded = small();
    unpadded.truncate(unpadded.len() - 26);
    for first in [padded, unpadded] {
        assert!(read(first.clone()).is_ok());
        let at = format!("second one at offset {}", first.len());
        refused([first, small()].concat(), &["joined", &at, "-00001-of-00002.gguf"]);
    }
    let no_tensors = Raw::new().entry(b"key", U8, &[1]).bytes();
    refused([no_tensors, small()].concat(), &["joined"]);
    let other = [small(), b"some notes".to_vec()].concat();
    assert!(read(other).is_ok());
}

#[test]
fn a_part_of_a_split_model_in_memory_is_refused() {
    let mut part: Metadata = metadata();
    part.insert("split.count", 2u16.into());
    refused(file(part.clone(), Version::V3), &["split.count: ", "split into 2"]);
    part.insert("split.count", 1u16.into());
    assert!(read(file(part.clone(), Version::V3)).is_ok());
    part.insert("split.count", "two".into());
    refused(file(part, Version::V3), &["split.count: ", "found string"]);
}
