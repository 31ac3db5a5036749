//! Files that are written whole or not at all.
//!
//! Owns: the partial file beside the real one, and its removal. Refuses to know: what is in it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Writes beside `path` and renames: a reader sees the old file or the new one, never half of one. What is no file (a
/// device, a pipe) is written to as it is; a link is followed.
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
    let failed = |e: io::Error| Error::io(path, "write", &e);
    let target = target(path)?;
    if is_special(&target) {
        let mut file = File::options().write(true).open(&target).map_err(failed)?;
        return fill(&mut file).map_err(|e| e.at(path));
    }
    let mut partial = Partial::beside(&target).map_err(failed)?;
    fill(&mut partial.file).map_err(|e| e.at(path))?;
    partial.file.sync_all().map_err(failed)?;
    fs::rename(&partial.path, &target).map_err(failed)
}

/// Finds out whether [`write()`] would find its place, before the work whose result it keeps is done.
///
/// # Errors
/// If no file can be made there.
pub fn probe(path: &Path) -> Result<()> {
    let failed = |e: io::Error| Error::io(path, "write", &e);
    let target = target(path)?;
    if target.is_dir() {
        return Err(Error::new("cannot write: is a directory").at(path));
    }
    if !is_special(&target) {
        Partial::beside(&target).map_err(failed)?;
    }
    Ok(())
}

/// Where `path` leads, if it is a link.
fn target(path: &Path) -> Result<PathBuf> {
    if path.file_name().is_none() {
        return Err(Error::new("is not a file name").at(path));
    }
    Ok(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
}

/// Whether something is there that is neither a file nor a folder.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// A new file beside another, of a name that no other has. What is still there in the end is not left lying about.
struct Partial {
    path: PathBuf,
    file: File,
}

impl Partial {
    fn beside(path: &Path) -> io::Result<Partial> {
        let mut number = 0;
        loop {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".partial-{}-{number}", std::process::id()));
            let partial = path.with_file_name(name);
            match File::options().write(true).create_new(true).open(&partial) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
                file => return file.map(|file| Partial { path: partial, file }),
            }
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After the rename there is nothing to be removed.
        let _ = fs::remove_file(&self.path);
    }
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
    fn files_of_others_beside_it_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("kept"), dir.path().join("kept.partial"));
        fs::write(&other, "precious").unwrap();
        let both = stream(&path, |file| {
            // A second writer while the first is at it.
            write(&path, b"second").unwrap();
            file.write_all(b"first").map_err(|e| Error::io(&path, "write", &e))
        });
        both.unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&other).unwrap()), (b"first".to_vec(), b"precious".to_vec()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
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
