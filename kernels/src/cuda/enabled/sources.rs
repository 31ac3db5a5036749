//! The kernels' text.
//!
//! Owns: the files, what each includes. Refuses to know: compilers.

use std::collections::BTreeSet;

use crate::driver::{Error, Result};
use crate::emulator::Change;

/// Every kernel file and its text, in the order of their names.
const TEXTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/texts.rs"));

/// A file and all that it includes, in the order of their names.
pub fn closure(file: &str) -> Vec<(&'static str, &'static str)> {
    let mut seen = BTreeSet::new();
    let mut open = vec![file.to_owned()];
    while let Some(name) = open.pop() {
        let Some((name, text)) = TEXTS.iter().find(|(file, _)| *file == name) else { continue };
        if seen.insert((*name, *text)) {
            open.extend(included(text).map(str::to_owned));
        }
    }
    seen.into_iter().collect()
}

/// The texts with a change in one of them.
pub fn changed(texts: &[(&'static str, &str)], change: Change) -> Result<Vec<(&'static str, String)>> {
    let Change { file, from, to } = change;
    let found =
        texts.iter().filter(|(name, _)| *name == file).map(|(_, text)| text.matches(from).count()).sum::<usize>();
    if found != 1 {
        return Err(Error(format!("{file}: expected once, found {found} times: {from}")));
    }
    let text =
        |(name, text): &(_, &str)| (*name, if *name == file { text.replace(from, to) } else { (*text).to_owned() });
    Ok(texts.iter().map(text).collect())
}

/// The files that a text includes.
fn included(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix("#include")?.trim().strip_prefix('"')?.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::SOURCES;

    #[test]
    fn every_file_of_the_manifest_has_a_text_and_all_that_it_includes() {
        for source in &SOURCES {
            let file = format!("{}.cu", source.file);
            let texts = closure(&file);
            assert!(texts.iter().any(|(name, _)| *name == file), "{file}");
            for (name, text) in texts {
                assert!(included(text).all(|file| TEXTS.iter().any(|(name, _)| *name == file)), "{name}");
            }
        }
    }

    #[test]
    fn a_file_comes_with_all_that_it_includes() {
        let names: Vec<_> = closure("canon.cuh").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["canon.cuh", "warp.cuh"]);
        assert_eq!(closure("absent.cu"), []);
    }

    #[test]
    fn what_shall_be_changed_must_stand_there_once() {
        let change =
            |from| changed(&[("a.cuh", "one two two"), ("b.cu", "one")], Change { file: "a.cuh", from, to: "" });
        assert_eq!(change("one ").unwrap(), [("a.cuh", "two two".to_owned()), ("b.cu", "one".to_owned())]);
        assert!(change("two").is_err() && change("three").is_err());
    }
}
