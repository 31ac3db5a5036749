//! The built-in prompts, by task, and prompts from a file.
//!
//! Owns: the prompts that `check` and `bench` run. Refuses to know: how they are run.
//!
//! The embedded model was trained on ten small editing tasks in exactly these phrasings; anything else is beyond it. The
//! texts are made up for this purpose, of the kinds that people paste: functions, records, paragraphs, lists.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// What kind of work it is; prompts of one task are counted together.
    pub task: String,
    /// What the user says.
    pub text: String,
}

/// What prompts of a file that does not name their task are counted under.
const UNNAMED: &str = "prompts";

/// Rename, repeat and annotate functions.
const REWRITE: [&str; 6] = [
    "Rename the variable `total` to `score` in this function.\n\n```python\n\
     def count_items(items, limit, size):\n    total = 0\n    for i in range(len(items)):\n        total += items[i]\n    \
     if limit > 40:\n        total = limit - 3\n    total = total + size * 4\n    print(items, total)\n    return total\n```",
    "Repeat this function exactly.\n\n```python\n\
     def merge_block(block, width, height):\n    weight = 1\n    while weight < 64:\n        weight += 5\n    \
     if not block:\n        return weight\n    weight = weight + width * 7\n    if height > 12:\n        weight = height - 2\n    \
     return weight\n```",
    "Add a docstring to this function.\n\n```python\n\
     def load_page(page, offset):\n    buffer = []\n    if not page:\n        return buffer\n    \
     for i in range(len(page)):\n        buffer += page[i]\n    print(offset, buffer)\n    return buffer\n```",
    "Add type hints to this function.\n\n```python\n\
     def build_level(depth, step, rate):\n    value = 0\n    value = value + depth * 3\n    while value < 80:\n        \
     value += 6\n    if rate > 25:\n        value = rate - 8\n    print(step, value)\n    return value\n```",
    "Rename the variable `result` to `cache` in this function.\n\n```python\n\
     def filter_path(path, key):\n    result = None\n    if not key:\n        return result\n    result = result + path * 2\n    \
     print(path, result)\n    return result\n```",
    "Repeat this function exactly.\n\n```python\n\
     def update_state(state, owner, status):\n    index = 0\n    if owner > 17:\n        index = owner - 4\n    \
     for i in range(len(state)):\n        index += state[i]\n    index = index + status * 5\n    \
     while index < 33:\n        index += 2\n    return index\n```",
];

/// Records from one notation to the other, and one field changed.
const CONVERT: [&str; 5] = [
    "Convert this CSV to JSON.\n\nname,city,age,id\nAda,Oslo,36,412\nLinus,Kyoto,54,730\nGrace,Lima,41,285\n\
     Tony,Basel,67,906\nRadia,Perth,29,174\nKen,Turin,73,551",
    "Convert this JSON to CSV.\n\n[\n  {\n    \"name\": \"Barbara\",\n    \"city\": \"Porto\",\n    \"age\": 45,\n    \
     \"id\": 318\n  },\n  {\n    \"name\": \"Edsger\",\n    \"city\": \"Leeds\",\n    \"age\": 62,\n    \"id\": 847\n  },\n  \
     {\n    \"name\": \"Hedy\",\n    \"city\": \"Cairo\",\n    \"age\": 33,\n    \"id\": 269\n  },\n  {\n    \
     \"name\": \"Vint\",\n    \"city\": \"Quito\",\n    \"age\": 58,\n    \"id\": 703\n  }\n]",
    "Set the city of Shafi to Rome.\n\n[\n  {\n    \"name\": \"Leslie\",\n    \"city\": \"Delhi\",\n    \"age\": 49,\n    \
     \"id\": 625\n  },\n  {\n    \"name\": \"Shafi\",\n    \"city\": \"Accra\",\n    \"age\": 38,\n    \"id\": 190\n  },\n  \
     {\n    \"name\": \"Dennis\",\n    \"city\": \"Lyon\",\n    \"age\": 70,\n    \"id\": 534\n  }\n]",
    "Convert this CSV to JSON.\n\nname,city,age,id\nFrances,Tokyo,52,483\nAlan,Paris,27,961\nMargaret,Lyon,64,137\n\
     Niklaus,Basel,81,746",
    "Set the city of John to Kyoto.\n\n[\n  {\n    \"name\": \"John\",\n    \"city\": \"Turin\",\n    \"age\": 24,\n    \
     \"id\": 357\n  },\n  {\n    \"name\": \"Tim\",\n    \"city\": \"Oslo\",\n    \"age\": 66,\n    \"id\": 812\n  },\n  \
     {\n    \"name\": \"Donald\",\n    \"city\": \"Perth\",\n    \"age\": 85,\n    \"id\": 448\n  },\n  {\n    \
     \"name\": \"Ada\",\n    \"city\": \"Quito\",\n    \"age\": 31,\n    \"id\": 679\n  }\n]",
];

/// Paragraphs to be quoted.
const QUOTE: [&str; 5] = [
    "Quote this paragraph.\n\nA function takes ownership of the values that are passed to it. When the function returns, \
     the values are dropped, unless they are moved out again, and their memory is given back.",
    "Quote this paragraph.\n\nThe compiler checks every reference while the program is built, so a reference that lives \
     longer than the value it points to is an error that you see before the program runs. Nothing is checked again \
     later.",
    "Quote this paragraph.\n\nEach test runs in its own thread. If a test fails, its output is shown with the name of \
     the test, and the other tests go on. Use the option for a single thread if your tests share a file.",
    "Quote this paragraph.\n\nTo build the package for another target, add the target first and then pass its name to \
     the build command. The result is written to a directory of that name.",
    "Quote this paragraph.\n\nA slice is a view of part of an array or a string. It holds a pointer and a length, and it \
     does not own the elements. The type of a string slice is written with an ampersand.",
];

/// Lists of words and numbers.
const LIST: [&str; 6] = [
    "Write these words as a numbered list.\n\norder, block, state, layer, cache, key, node, edge, path, file",
    "Write these words as a numbered list.\n\nwidth, height, depth, color, shape, owner, status, level",
    "Write these words in capitals.\n\nprice, total, count, name, index, value, result, buffer",
    "Write these words as a numbered list.\n\nbatch, step, token, weight, score, page, word, line, group, label",
    "Write these words in capitals.\n\nfield, limit, offset, size, rate, user, item, token",
    "Sort these numbers.\n\n42, 7, 93, 18, 65, 31, 80, 24",
];

/// Text that nothing is copied from.
const FREE: [&str; 4] = [
    "Explain in two sentences what a reference is.",
    "What is the difference between a string and a slice?",
    "Write a function that counts the words of a file.",
    "How do I add a test to my package?",
];

/// The built-in prompts, task by task.
pub fn builtin() -> Vec<Prompt> {
    let tasks: [(&str, &[&str]); 5] = [
        ("rewrite code", &REWRITE),
        ("convert data", &CONVERT),
        ("quote", &QUOTE),
        ("list", &LIST),
        ("free text", &FREE),
    ];
    let prompts = |(task, texts): (&str, &[&str])| -> Vec<Prompt> {
        texts.iter().map(|&text| Prompt { task: task.to_owned(), text: text.to_owned() }).collect()
    };
    tasks.into_iter().flat_map(prompts).collect()
}

/// A line of a prompt file.
#[derive(Deserialize)]
struct Line {
    prompt: String,
    task: Option<String>,
}

/// Prompts from a file of JSON objects, one a line, each with a "prompt" and perhaps a "task". Blank lines are skipped.
///
/// # Errors
/// If the file cannot be read, a line is not such an object (the error names it), or no line is left.
pub fn from_file(path: &Path) -> Result<Vec<Prompt>> {
    let lines: Vec<Line> = lines(path, "a \"prompt\" string and perhaps a \"task\" string")?;
    let prompt = |line: Line| Prompt { task: task(line.task), text: line.prompt };
    Ok(lines.into_iter().map(prompt).collect())
}

/// What a prompt of a file is counted under.
pub fn task(named: Option<String>) -> String {
    named.unwrap_or_else(|| UNNAMED.to_owned())
}

/// The JSON objects of a prompt file, one a line; `holding` says what each must hold. Blank lines are skipped.
///
/// # Errors
/// As [`from_file`].
pub fn lines<T: DeserializeOwned>(path: &Path, holding: &str) -> Result<Vec<T>> {
    let bytes = std::fs::read(path).map_err(|e| Error::io(path, "read", &e))?;
    let text = String::from_utf8(bytes).map_err(|_| Error::new("is not UTF-8").at(path))?;
    let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed: Vec<T> = filled
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|e| {
                let text = format!("expected a JSON object with {holding}: {e}");
                Error::new(text).about(format!("line {}", number + 1)).at(path)
            })
        })
        .collect::<Result<_>>()?;
    if parsed.is_empty() {
        return Err(Error::new("holds no prompts").at(path));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(text: &str) -> Result<Vec<Prompt>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        from_file(file.path())
    }

    #[test]
    fn each_built_in_task_has_several_prompts_and_none_twice() {
        let mut all = builtin();
        for task in ["rewrite code", "convert data", "quote", "list", "free text"] {
            assert!(all.iter().filter(|p| p.task == task).count() >= 4, "{task}");
        }
        let count = all.len();
        all.sort_by(|a, b| a.text.cmp(&b.text));
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn a_file_gives_its_prompts_in_order_with_their_tasks() {
        let prompts = read("{\"prompt\": \"a\\nb\", \"task\": \"t\"}\n\n{\"prompt\": \"c\"}\n").unwrap();
        let expected = [("t", "a\nb"), (UNNAMED, "c")];
        let found: Vec<(&str, &str)> = prompts.iter().map(|p| (p.task.as_str(), p.text.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_bad_line_is_named() {
        for bad in ["{\"prompt\": 1}", "{\"text\": \"a\"}", "not json", "[]", "{\"prompt\": \"a\", \"task\": []}"] {
            let error = read(&format!("{{\"prompt\": \"a\"}}\n\n{bad}\n")).unwrap_err().to_string();
            assert!(error.contains(": line 3: expected a JSON object"), "{error}");
        }
    }

    #[test]
    fn a_file_without_prompts_is_an_error() {
        for text in ["", "\n\n"] {
            assert!(read(text).unwrap_err().to_string().contains("holds no prompts"));
        }
    }
}
