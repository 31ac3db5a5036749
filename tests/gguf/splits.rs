//! Split models: parts that belong together open as one, all others are refused by name.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use verbatim::gguf::{Gguf, Metadata, Value, Version, Writer};

use crate::fixtures::{TENSORS, data, file, metadata};

/// What to write into one part.
#[derive(Clone)]
struct Piece {
    metadata: Metadata,
    /// Indices into `TENSORS`.
    tensors: Vec<usize>,
}

impl Piece {
    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.metadata.insert(key, value.into());
    }

    fn bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new(self.metadata.clone()).unwrap();
        for &i in &self.tensors {
            let (name, dims, format, _) = TENSORS[i];
            writer.tensor(name, dims, format).unwrap();
        }
        let data: Vec<_> = self.tensors.iter().map(|&i| data(i)).collect();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        writer.into_vec(&data).unwrap()
    }
}

/// The three parts of the small file.
fn pieces() -> Vec<Piece> {
    let piece = |no: u16, tensors: &[usize]| {
        let mut piece =
            Piece { metadata: if no == 0 { metadata() } else { Metadata::default() }, tensors: tensors.to_vec() };
        piece.set("split.no", no);
        piece.set("split.count", 3u16);
        piece.set("split.tensors.count", TENSORS.len() as i32);
        piece
    };
    vec![piece(0, &[0]), piece(1, &[1, 2]), piece(2, &[3])]
}

fn name(no: usize) -> String {
    format!("m-{no:05}-of-00003.gguf")
}

fn written(pieces: &[Piece]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (i, piece) in pieces.iter().enumerate() {
        std::fs::write(directory.path().join(name(i + 1)), piece.bytes()).unwrap();
    }
    directory
}

fn open(directory: &TempDir, name: &str) -> Result<Gguf, String> {
    Gguf::open(&directory.path().join(name)).map_err(|e| e.to_string())
}

/// Asserts that opening any of the parts is an error about the file `at`, which says all of `said`.
fn refused(directory: &TempDir, at: &str, said: &[&str]) {
    for no in 1..=3 {
        let path = directory.path().join(name(no));
        if path.exists() {
            refused_at(&path, &directory.path().join(at), said);
        }
    }
}

fn refused_at(path: &Path, at: &Path, said: &[&str]) {
    let message = Gguf::open(path).expect_err("should be refused").to_string();
    let start = format!("{}: ", at.display());
    assert!(message.starts_with(&start), "{} is not blamed for: {message}", at.display());
    for said in said {
        assert!(message.contains(said), "`{said}` is not in: {message}");
    }
}

#[test]
fn any_part_opens_the_whole_model() {
    let directory = written(&pieces());
    let whole = directory.path().join("whole.gguf");
    std::fs::write(&whole, file(metadata(), Version::V3)).unwrap();
    let whole = Gguf::open(&whole).unwrap();
    assert_eq!(whole.parts(), 1);
    for no in 1..=3 {
        let gguf = open(&directory, &name(no)).unwrap();
        assert_eq!(gguf.parts(), 3);
        assert_eq!(gguf.path(), Some(&*directory.path().join(name(1))));
        assert_eq!(gguf.metadata().str("general.architecture").unwrap(), Some("test"));
        assert_eq!(gguf.tensors().len(), TENSORS.len());
        for (i, (tensor, (name, ..))) in gguf.tensors().zip(TENSORS).enumerate() {
            assert_eq!(tensor.name, name);
            assert_eq!(&*gguf.data(name).unwrap(), data(i));
        }
        assert_eq!(gguf.fingerprint(), whole.fingerprint());
        let sizes = pieces().iter().map(|piece| piece.bytes().len()).sum::<usize>();
        assert_eq!(gguf.file_bytes(), sizes);
    }
}

#[test]
fn a_first_part_may_hold_metadata_alone_and_parts_their_own_alignment() {
    let mut pieces = pieces();
    pieces[0].tensors = vec![];
    pieces[1].tensors = vec![0, 1, 2];
    pieces[0].set("general.alignment", 64u32);
    pieces[1].set("general.alignment", 8u32);
    pieces[1].set("general.architecture", "ignored");
    let gguf = open(&written(&pieces), &name(3)).unwrap();
    assert_eq!(gguf.metadata().str("general.architecture").unwrap(), Some("test"));
    for (i, (name, ..)) in TENSORS.iter().enumerate() {
        assert_eq!(&*gguf.data(name).unwrap(), data(i));
    }
}

#[test]
fn a_model_in_one_part_opens_under_any_name() {
    let directory = tempfile::tempdir().unwrap();
    let mut metadata = metadata();
    for with_keys in [false, true] {
        if with_keys {
            metadata.insert("split.no", 0u16.into());
            metadata.insert("split.count", 1u16.into());
            metadata.insert("split.tensors.count", 4i32.into());
        }
        for name in ["m.gguf", "m-00001-of-00001.gguf"] {
            std::fs::write(directory.path().join(name), file(metadata.clone(), Version::V3)).unwrap();
            assert_eq!(open(&directory, name).unwrap().parts(), 1);
        }
    }
}

#[test]
fn a_missing_part_is_named() {
    for missing in 1..=3 {
        let directory = written(&pieces());
        std::fs::remove_file(directory.path().join(name(missing))).unwrap();
        let said = format!("missing: part {missing} of a model in 3 files");
        refused(&directory, &name(missing), &[&said]);
    }
}

#[test]
fn a_damaged_part_is_named() {
    let directory = written(&pieces());
    let path = directory.path().join(name(2));
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 100]).unwrap();
    refused(&directory, &name(2), &["blk.0.exps.weight: ", "truncated"]);
}

#[test]
fn counts_that_disagree_are_refused() {
    for (part, count) in [(0, 2u16), (1, 4), (2, 0), (1, 1)] {
        let mut pieces = pieces();
        pieces[part].set("split.count", count);
        let found = format!("found {}", count.max(1));
        refused(&written(&pieces), &name(part + 1), &["split.count: expected 3, as the file's name says", &found]);
    }
    let mut pieces = pieces();
    pieces[1].metadata.remove("split.count");
    refused(&written(&pieces), &name(2), &["split.count: "]);
}

#[test]
fn a_file_that_is_only_called_a_part_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name(1));
    std::fs::write(&path, file(metadata(), Version::V3)).unwrap();
    refused_at(&path, &path, &["split.count: expected 3", "part 1 of 3", "found 1"]);
}

#[test]
fn a_part_in_another_ones_place_is_refused() {
    let mut swapped = pieces();
    swapped.swap(1, 2);
    refused(&written(&swapped), &name(2), &["split.no: expected 1, counted from 0", "found 2"]);
    let mut repeated = pieces();
    repeated[2] = repeated[0].clone();
    refused(&written(&repeated), &name(3), &["split.no: expected 2", "found 0"]);
    let mut from_one = pieces();
    for (i, piece) in from_one.iter_mut().enumerate() {
        piece.set("split.no", i as u16 + 1);
    }
    refused(&written(&from_one), &name(1), &["split.no: expected 0", "found 1"]);
    let mut silent = pieces();
    silent[1].metadata.remove("split.no");
    refused(&written(&silent), &name(2), &["split.no: expected 1", "found nothing"]);
}

#[cfg(unix)]
#[test]
fn parts_that_lead_back_to_themselves_are_refused() {
    let directory = written(&pieces());
    let second = directory.path().join(name(2));
    std::fs::remove_file(&second).unwrap();
    std::os::unix::fs::symlink(directory.path().join(name(1)), &second).unwrap();
    refused(&directory, &name(2), &["split.no: expected 1"]);
    std::fs::remove_file(&second).unwrap();
    std::os::unix::fs::symlink(&second, &second).unwrap();
    refused_at(&directory.path().join(name(1)), &second, &["missing: part 2 of a model in 3 files"]);
}

#[test]
fn a_tensor_in_two_parts_is_refused() {
    let mut pieces = pieces();
    pieces[2].tensors = vec![1];
    let first = name(2);
    refused(&written(&pieces), &name(3), &["blk.0.up.weight: ", "found it twice", &first]);
}

#[test]
fn the_tensors_of_all_parts_are_counted() {
    let mut fewer = pieces();
    fewer[1].tensors.pop();
    refused(&written(&fewer), &name(1), &["split.tensors.count: expected 4 tensors in all 3 parts together, found 3"]);
    let mut disagree = pieces();
    disagree[2].set("split.tensors.count", 1i32);
    refused(&written(&disagree), &name(3), &["split.tensors.count: expected 4", "found 1"]);
    let mut silent = pieces();
    silent[0].metadata.remove("split.tensors.count");
    refused(&written(&silent), &name(1), &["split.tensors.count: missing"]);
}

#[test]
fn a_part_under_a_name_without_its_number_is_told_how_it_should_be_named() {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("renamed.gguf");
    std::fs::write(&path, pieces()[1].bytes()).unwrap();
    refused_at(&path, &path, &["split.count: ", "part 2 of a model", "NAME-00002-of-00003.gguf"]);
    let mut odd = pieces()[1].clone();
    odd.set("split.no", 7u16);
    std::fs::write(&path, odd.bytes()).unwrap();
    refused_at(&path, &path, &["split.count: ", "NAME-00001-of-00003.gguf"]);
}

#[test]
fn parts_joined_into_one_file_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("joined.gguf");
    let joined: Vec<u8> = pieces().iter().flat_map(|piece| piece.bytes()).collect();
    std::fs::write(&path, joined).unwrap();
    refused_at(&path, &path, &["joined", "stay separate files"]);
}
