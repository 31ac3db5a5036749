//! Files that are written whole or not at all.
//!
//! Owns: the partial file beside the real one, and its removal. Refuses to know: what is in it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The file beside `path` that is written first.
fn partial(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| Error::new("is not a file name").at(path))?;
    let mut name: OsString = name.to_owned();
    name.push(".partial");
    Ok(path.with_file_name(name))
}

/// Writes beside `path` and renames: a reader sees the old file or the new one, never half of one.
///
/// # Errors
/// If the file cannot be written; what stood at `path` still stands there then.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    stream(path, |file| file.write_all(bytes).map_err(|e| Error::io(path, "write", &e)))
}

/// The same for a file that is too large to be in memory: `fill` writes it piece by piece.
///
/// # Errors
/// `fill`'s own, or if the file cannot be written; what stood at `path` still stands there then.
pub fn stream(path: &Path, fill: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let partial = partial(path)?;
    let mut file = File::create(&partial).map_err(|e| failed(path, &partial, &e))?;
    fill(&mut file).map_err(|e| {
        remove(&partial);
        e.at(path)
    })?;
    let finish = || {
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    finish().map_err(|e| failed(path, &partial, &e))
}

/// Finds out whether [`write()`] would find its place, before the work whose result it keeps is done.
///
/// # Errors
/// If no file can be made there.
pub fn probe(path: &Path) -> Result<()> {
    let partial = partial(path)?;
    if path.is_dir() {
        return Err(Error::new("cannot write: is a directory").at(path));
    }
    let probe = || {
        File::create(&partial)?;
        fs::remove_file(&partial)
    };
    probe().map_err(|e| failed(path, &partial, &e))
}

/// What could not be finished is not left lying about; that it may not exist at all is no news.
fn remove(partial: &Path) {
    let _ = fs::remove_file(partial);
}

fn failed(path: &Path, partial: &Path, error: &io::Error) -> Error {
    remove(partial);
    Error::io(path, "write", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept");
        for text in ["one", "another"] {
            probe(&path).unwrap();
            write(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_file_that_fails_half_way_leaves_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept");
        write(&path, b"old").unwrap();
        let error = stream(&path, |file| {
            file.write_all(b"half").unwrap();
            Err(Error::new("stopped"))
        });
        assert_eq!(error.unwrap_err().to_string(), format!("{}: stopped", path.display()));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_place_that_takes_no_file_is_named_before_and_after() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().join("missing/file"), dir.path().to_owned()] {
            for error in [probe(&path).unwrap_err(), write(&path, b"x").unwrap_err()] {
                assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
            }
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
