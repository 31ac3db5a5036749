//! Source files as the house rules read them: text, code without comments and literals, code without tests.

use std::fs;
use std::ops::Range;
use std::path::Path;

/// One source file, as written and as the compiler sees it.
pub struct Source {
    /// Relative to the repository, with `/`.
    pub path: String,
    pub text: String,
    /// `text` with comments and literals blanked, for Rust; every byte stays at its place.
    pub code: String,
    /// `code` with `#[cfg(test)]` items blanked as well.
    pub product: String,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let code = match path.ends_with(".rs") {
            true => blank_comments_and_literals(text),
            false => text.to_owned(),
        };
        Source { path: path.to_owned(), text: text.to_owned(), product: blank_test_items(&code), code }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub fn is_product(&self) -> bool {
        let product = ["src/", "draft/src/", "kernels/src/"];
        // A module's tests may have a file of their own.
        let tests = self.path.ends_with("/tests.rs");
        self.is_rust() && !tests && product.iter().any(|folder| self.path.starts_with(folder))
    }

    pub fn fault(&self, at: usize, what: &str) -> String {
        let line = self.text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1;
        format!("{}:{line}: {what}", self.path)
    }
}

/// All source files of the repository, by path.
pub fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "draft", "tests", "benches", "kernels", "scripts"] {
        collect(root, &root.join(folder), &mut files);
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("an entry of a source folder").path();
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if path.is_dir() && !path.ends_with("target") {
            collect(root, &path, files);
        } else if ["rs", "py", "cu", "cuh", "h", "cpp"].contains(&extension) {
            let text = fs::read_to_string(&path).expect("a source file in UTF-8");
            let relative = path.strip_prefix(root).expect("a path below the repository");
            files.push(Source::new(&relative.to_string_lossy().replace('\\', "/"), &text));
        }
    }
}

fn blank_comments_and_literals(text: &str) -> String {
    let mut out = text.as_bytes().to_vec();
    let mut at = 0;
    while at < out.len() {
        let inside = literal_or_comment(text.as_bytes(), at);
        at = inside.end.max(at + 1);
        let blanked = out[inside].iter_mut().filter(|byte| **byte != b'\n');
        blanked.for_each(|byte| *byte = b' ');
    }
    String::from_utf8(out).expect("whole characters were blanked")
}

fn blank_test_items(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(start) = out.find("#[cfg(test)]") {
        let body = out[start..].find(['{', ';']).map_or(out.len(), |at| start + at);
        let end = closing(&out, body).unwrap_or(body);
        let keep_lines = |c: char| if c == '\n' { '\n' } else { ' ' };
        let blank: String = out[start..end].chars().map(keep_lines).collect();
        out.replace_range(start..end, &blank);
    }
    out
}

/// The comment or literal that starts at `at`; empty if none does.
fn literal_or_comment(text: &[u8], at: usize) -> Range<usize> {
    let rest = &text[at..];
    let starts_word = at == 0 || !is_word(text[at - 1]);
    let raw = raw_opening(rest).filter(|_| starts_word);
    let length = if rest.starts_with(b"//") {
        find(rest, b"\n").unwrap_or(rest.len())
    } else if rest.starts_with(b"/*") {
        block_comment(rest)
    } else if let Some((opening, hashes)) = raw {
        let closing = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
        find(&rest[opening..], &closing).map_or(rest.len(), |end| opening + end + closing.len())
    } else if rest[0] == b'"' || is_character(rest) {
        quoted(rest)
    } else {
        0
    };
    at..at + length
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Length of the literal between two quotes of the kind that it starts with.
fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != rest[0] {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// For `r"`, `r#"`, `br##"` and the like: the opening's length and its number of hashes.
fn raw_opening(rest: &[u8]) -> Option<(usize, usize)> {
    let letters = match rest {
        [b'r', ..] => 1,
        [b'b' | b'c', b'r', ..] => 2,
        _ => return None,
    };
    let hashes = rest[letters..].iter().take_while(|&&byte| byte == b'#').count();
    (rest.get(letters + hashes) == Some(&b'"')).then_some((letters + hashes + 1, hashes))
}

/// Whether a character literal starts here; a lifetime has no second quote.
fn is_character(rest: &[u8]) -> bool {
    let width = match rest {
        [b'\'', b'\\', ..] => return true,
        [b'\'', 0xF0..=0xFF, ..] => 4,
        [b'\'', 0xE0..=0xEF, ..] => 3,
        [b'\'', 0xC0..=0xDF, ..] => 2,
        [b'\'', ..] => 1,
        _ => return false,
    };
    rest.get(1 + width) == Some(&b'\'')
}

/// Index behind the bracket that closes the one at `open`; `open + 1` if no bracket stands there.
pub fn closing(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Index behind the `>` that closes the `<` at `open`; an arrow's `>` closes nothing.
pub fn closing_angle(code: &str, open: usize) -> Option<usize> {
    let bytes = code.as_bytes();
    let mut depth = 0;
    for at in open..code.len() {
        match bytes[at] {
            b'<' => depth += 1,
            b'>' if bytes[at - 1] != b'-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Parts of `list` between commas outside brackets of all kinds.
pub fn split_at_commas(list: &str) -> Vec<&str> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    while at < list.len() {
        at = match list.as_bytes()[at] {
            b'{' | b'(' | b'[' => closing(list, at).unwrap_or(list.len()),
            b'<' => closing_angle(list, at).unwrap_or(list.len()),
            b',' => {
                parts.push(&list[start..at]);
                start = at + 1;
                start
            }
            _ => at + 1,
        };
    }
    parts.push(&list[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Where `needle` stands alone: no letter, digit or underscore continues it on either side.
pub fn words(code: &str, needle: &str) -> Vec<usize> {
    let bytes = code.as_bytes();
    let apart = |at: usize| at == 0 || at == bytes.len() || !is_word(bytes[at - 1]) || !is_word(bytes[at]);
    let found = code.match_indices(needle).map(|(at, _)| at);
    found.filter(|&at| apart(at) && apart(at + needle.len())).collect()
}

/// The letters, digits and underscores from `at` on.
pub fn word_at(code: &str, at: usize) -> &str {
    let length = code.bytes().skip(at).take_while(|&byte| is_word(byte)).count();
    &code[at..at + length]
}

fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
