//! Machine code kept on disk.
//!
//! Owns: a folder of checksummed files, each named by a hash of all that went into it. Refuses to know: how code is made.
//!
//! A cache is a convenience: what cannot be read or written is compiled again, and nobody is told.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// What a file begins with; the checksum follows, then the code.
const MAGIC: &[u8; 16] = b"verbatim kernel\n";

/// Bytes before the code.
const HEADER: usize = 32;

/// What code was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u128);

impl Key {
    /// The key of these parts, in this order.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Key {
        let mut hash = Xxh3::new();
        for part in parts {
            // Lengths keep ("ab", "c") apart from ("a", "bc").
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Key(hash.digest128())
    }
}

/// A folder, or none.
pub struct Cache(Option<PathBuf>);

impl Cache {
    /// A cache in `folder`, which is made when something is first kept.
    pub fn new(folder: Option<PathBuf>) -> Cache {
        Cache(folder)
    }

    /// What is kept under a key, or what `make` makes, which is then kept.
    pub fn get_or<E>(&self, key: Key, make: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
        let Some(folder) = &self.0 else {
            return make();
        };
        let path = folder.join(format!("{:032x}.kernel", key.0));
        if let Some(code) = read(&path) {
            return Ok(code);
        }
        let code = make()?;
        write(folder, &path, &code);
        Ok(code)
    }
}

/// The code in a file, if the file is whole.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(path).ok()?;
    let (header, code) = bytes.split_at_checked(HEADER)?;
    if header[..16] != *MAGIC || header[16..] != xxh3_128(code).to_le_bytes() {
        return None;
    }
    bytes.drain(..HEADER);
    Some(bytes)
}

/// Writes a file whole or not at all: others may read or write the same one now.
fn write(folder: &Path, path: &Path, code: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let unique = format!("{}-{}.part", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let part = folder.join(unique);
    let bytes = [MAGIC.as_slice(), &xxh3_128(code).to_le_bytes(), code].concat();
    let written =
        fs::create_dir_all(folder).and_then(|()| fs::write(&part, bytes)).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // What is left of it, if anything, is of no use; that it may stay does no harm.
        let _ = fs::remove_file(&part);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn ask(cache: &Cache, key: Key, answer: &[u8]) -> (Vec<u8>, bool) {
        let mut made = false;
        let make = || {
            made = true;
            Ok::<_, Infallible>(answer.to_vec())
        };
        let Ok(code) = cache.get_or(key, make);
        (code, made)
    }

    #[test]
    fn code_is_made_once_and_read_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path().join("a/b")));
        let (a, b) = (Key::of([b"a".as_slice()]), Key::of([b"b".as_slice()]));
        assert_eq!(ask(&cache, a, b"code"), (b"code".to_vec(), true));
        assert_eq!(ask(&cache, a, b"other"), (b"code".to_vec(), false));
        assert_eq!(ask(&cache, b, b""), (vec![], true));
        assert_eq!(ask(&cache, b, b"other"), (vec![], false));
        let names: Vec<_> = fs::read_dir(folder.path().join("a/b")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(names.len() == 2 && names.iter().all(|n| n.to_string_lossy().ends_with(".kernel")), "{names:?}");
    }

    #[test]
    fn a_damaged_file_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path().to_owned()));
        let key = Key::of([]);
        ask(&cache, key, b"code");
        let path = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let whole = fs::read(&path).unwrap();
        for cut in [0, 1, HEADER - 1, HEADER, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(ask(&cache, key, b"code"), (b"code".to_vec(), true), "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            assert_eq!(ask(&cache, key, b"code"), (b"code".to_vec(), true), "changed at {at}");
        }
        assert_eq!(ask(&cache, key, b"other"), (b"code".to_vec(), false));
    }

    #[test]
    fn without_a_folder_that_can_be_written_everything_is_made() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for cache in [Cache::new(None), Cache::new(Some(file.path().join("below a file")))] {
            for _ in 0..2 {
                assert_eq!(ask(&cache, Key::of([]), b"code"), (b"code".to_vec(), true));
            }
        }
    }

    #[test]
    fn an_error_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path().to_owned()));
        assert_eq!(cache.get_or(Key::of([]), || Err("no")), Err("no"));
        assert_eq!(ask(&cache, Key::of([]), b"code"), (b"code".to_vec(), true));
    }

    #[test]
    fn keys_tell_parts_apart() {
        let key = |parts: &[&str]| Key::of(parts.iter().map(|p| p.as_bytes()));
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["a"]), key(&["a", ""]));
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
    }
}
