//! Split files: `NAME-0000i-of-0000n.gguf`.
//!
//! Owns: the naming rule and the checks that the parts belong together. Refuses to know: what the parts hold.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::bytes::Bytes;
use super::metadata::Metadata;
use super::reader::{Part, read};
use crate::{Error, Result};

/// Part numbers count from 0 in metadata and from 1 in names.
const NO: &str = "split.no";
const COUNT: &str = "split.count";
/// The number of tensors in all parts together.
const TENSORS: &str = "split.tensors.count";

/// A file name that follows the rule.
struct Name {
    stem: String,
    no: usize,
    count: usize,
}

impl Name {
    /// Takes `STEM-0000i-of-0000n.gguf` apart.
    fn parse(path: &Path) -> Option<Name> {
        let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = name.rsplit_once("-of-")?;
        let (stem, no) = rest.rsplit_once('-')?;
        let number = |s: &str| {
            (s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit()))
                .then(|| s.parse().ok())
                .flatten()
        };
        let (no, count) = (number(no)?, number(count)?);
        (1..=count).contains(&no).then(|| Name {
            stem: stem.to_owned(),
            no,
            count,
        })
    }

    /// The path of part `no` (from 1) beside `path`.
    fn part(&self, path: &Path, no: usize) -> PathBuf {
        path.with_file_name(format!("{}-{no:05}-of-{:05}.gguf", self.stem, self.count))
    }
}

/// Opens a file and, if it is a part of a split one, all the others. The first part comes first.
pub(super) fn open(path: &Path) -> Result<Vec<(PathBuf, Part)>> {
    let named = read(Bytes::map(path)?, path)?;
    let count = split_count(&named.metadata).map_err(|e| e.at(path))?;
    let Some(name) = Name::parse(path).filter(|_| count > 1) else {
        if count > 1 {
            let text = format!("is one of {count} parts, but is not named like one (NAME-00001-of-{count:05}.gguf)");
            return Err(Error::new(text).at(path));
        }
        return Ok(vec![(path.to_owned(), named)]);
    };
    let mut parts = Vec::new();
    let mut opened = Some(named);
    for no in 1..=name.count {
        let at = name.part(path, no);
        let part = match opened.take_if(|_| no == name.no) {
            Some(part) => part,
            None if at.exists() => read(Bytes::map(&at)?, &at)?,
            None => return Err(Error::new(format!("part {no} of {} is missing", name.count)).at(&at)),
        };
        check_part(&part, &name, no).map_err(|e| e.at(&at))?;
        parts.push((at, part));
    }
    check_tensors(&parts)?;
    Ok(parts)
}

fn split_count(metadata: &Metadata) -> Result<usize> {
    Ok(metadata.usize(COUNT)?.unwrap_or(1))
}

fn check_part(part: &Part, name: &Name, no: usize) -> Result<()> {
    let count = split_count(&part.metadata)?;
    if count != name.count {
        let text = format!("says {count} parts where the name says {}", name.count);
        return Err(Error::new(text).about(COUNT));
    }
    match part.metadata.usize(NO)? {
        Some(found) if found + 1 == no => Ok(()),
        found => {
            let found = found.map_or("nothing".to_owned(), |n| n.to_string());
            Err(Error::new(format!("expected {} (parts count from 0 here), found {found}", no - 1)).about(NO))
        }
    }
}

fn check_tensors(parts: &[(PathBuf, Part)]) -> Result<()> {
    let mut names = HashSet::new();
    for (path, part) in parts {
        for tensor in &part.tensors {
            if !names.insert(tensor.name.as_str()) {
                return Err(Error::new("is in two parts").about(&tensor.name).at(path));
            }
        }
    }
    for (path, part) in parts {
        let expected = part.metadata.usize(TENSORS).map_err(|e| e.at(path))?;
        if let Some(expected) = expected.filter(|&n| n != names.len()) {
            let text = format!("says {expected} tensors; all parts together hold {}", names.len());
            return Err(Error::new(text).about(TENSORS).at(path));
        }
    }
    Ok(())
}
