//! The kernels' text.
//!
//! Owns: the files, what each includes, what arguments each kernel takes. Refuses to know: compilers.

use std::collections::BTreeSet;

use crate::driver::Arg;

macro_rules! texts {
    ($($name:literal),* $(,)?) => {
        /// Every file in `kernels/` and its text.
        pub const TEXTS: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../../", $name)))),*];
    };
}

texts!["canon.cuh", "warp.cuh"];

/// Kinds of arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A pointer.
    At,
    /// A word of 32 bits.
    Int,
    /// A single.
    Float,
}

impl Kind {
    /// The kind of an argument.
    pub fn of(arg: &Arg) -> Kind {
        match arg {
            Arg::At(_) => Kind::At,
            Arg::Int(_) => Kind::Int,
            Arg::Float(_) => Kind::Float,
        }
    }
}

/// The text of a file.
pub fn text(name: &str) -> Option<&'static str> {
    TEXTS.iter().find(|(file, _)| *file == name).map(|(_, text)| *text)
}

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

/// The files that a text includes.
fn included(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix("#include")?.trim().strip_prefix('"')?.split('"').next())
}

/// What arguments the kernel `name` of a text takes; nothing if there is no such kernel.
pub fn parameters(text: &str, name: &str) -> Option<Vec<Kind>> {
    let declared = text.match_indices("KERNEL(").find_map(|(at, _)| {
        let (_bounds, rest) = text[at..].split_once(')')?;
        let (found, rest) = rest.split_once('(')?;
        (found.trim() == name).then_some(rest)
    })?;
    let (list, _) = declared.split_once(')')?;
    let kind = |parameter: &str| match parameter {
        p if p.contains('*') => Kind::At,
        p if p.split_whitespace().any(|word| word == "float") => Kind::Float,
        _ => Kind::Int,
    };
    Some(list.split(',').filter(|p| !p.trim().is_empty()).map(kind).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::manifest::SOURCES;

    #[test]
    fn every_file_of_the_folder_and_of_the_manifest_is_in_the_list() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".cu") || name.ends_with(".cuh"))
            .collect();
        names.sort();
        let mut listed: Vec<_> = TEXTS.iter().map(|(name, _)| *name).collect();
        listed.sort_unstable();
        assert_eq!(listed, names, "the list in sources.rs is that of the folder");
        for source in &SOURCES {
            assert!(text(&format!("{}.cu", source.file)).is_some(), "{} is in the list", source.file);
        }
    }

    #[test]
    fn a_file_comes_with_all_that_it_includes() {
        let names: Vec<_> = closure("canon.cuh").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["canon.cuh", "warp.cuh"]);
        assert_eq!(closure("absent.cu"), []);
    }

    #[test]
    fn parameters_are_read_from_the_text() {
        let text = "// KERNEL(\nKERNEL(256, 2) first(const float *__restrict__ x,\n    u32 n, float eps, i8* q) {\n}\n\
                    KERNEL(32, 1) first_of(int n) {}\nKERNEL(32, 1)\nnone() {}";
        assert_eq!(parameters(text, "first"), Some(vec![Kind::At, Kind::Int, Kind::Float, Kind::At]));
        assert_eq!(parameters(text, "first_of"), Some(vec![Kind::Int]));
        assert_eq!(parameters(text, "none"), Some(vec![]));
        assert_eq!(parameters(text, "second"), None);
    }
}
