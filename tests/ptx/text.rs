//! PTX as text: a module's kernels, what they declare, their statements.
//!
//! Owns: the grammar as far as NVIDIA's run-time compiler uses it; whatever else stands in a text is an error that names its line.
//! Refuses to know: what instructions mean (decode).

use std::collections::HashMap;

/// A kernel as it is written.
pub struct Entry {
    pub name: String,
    /// Type and name of every parameter.
    pub parameters: Vec<(String, String)>,
    /// The most threads of a block.
    pub threads: u32,
    /// By prefix, `%r`: type and number.
    pub registers: HashMap<String, (String, u32)>,
    pub shared: Vec<Variable>,
    pub statements: Vec<Statement>,
    /// By name, the statement that it stands before.
    pub labels: HashMap<String, usize>,
}

/// A variable in shared memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    pub name: String,
    pub align: u64,
    /// Bytes; `None` if the launch says how many.
    pub len: Option<u64>,
}

/// An instruction.
pub struct Statement {
    pub line: u32,
    /// A predicate, and whether it must be false.
    pub guard: Option<(String, bool)>,
    pub opcode: String,
    pub operands: Vec<Operand>,
    /// All of it, for messages.
    pub text: String,
}

/// What an instruction is given.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A register, a number or a name.
    Plain(String),
    /// `[base + offset]`.
    At(String, i64),
    /// `{a, b, ..}`.
    Several(Vec<String>),
    /// `a|p`.
    Both(String, String),
}

/// What is being read.
struct Reader<'a> {
    lines: Vec<(u32, &'a str)>,
    next: usize,
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> Result<(u32, &'a str), String> {
        let line = self.lines.get(self.next).copied().ok_or("the text ends too early")?;
        self.next += 1;
        Ok(line)
    }
}

/// The architecture that a text is for, and its kernels.
///
/// # Errors
/// What is not understood, with its line.
pub fn parse(text: &str) -> Result<(u32, Vec<Entry>), String> {
    let code = text.trim_end_matches('\0').lines().zip(1..).map(|(line, number)| {
        let line = line.split("//").next().unwrap_or("");
        (number, line.trim())
    });
    let mut reader = Reader { lines: code.filter(|(_, line)| !line.is_empty()).collect(), next: 0 };
    let (mut architecture, mut shared, mut entries) = (0, Vec::new(), Vec::new());
    while reader.next < reader.lines.len() {
        let (number, line) = reader.line()?;
        let told = |why: String| format!("line {number}: {why}: {line}");
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match word {
            ".version" => {}
            ".address_size" if rest == "64" => {}
            ".target" => {
                let number = rest.strip_prefix("sm_").and_then(|number| number.parse().ok());
                architecture = number.ok_or_else(|| told("expected sm_ and a number".into()))?;
            }
            // Constants that the compiler has put where they are used: nothing may name them.
            ".global" if line.ends_with(';') => {}
            ".extern" | ".shared" => shared.push(variable(line).map_err(told)?),
            ".visible" => entries.push(entry(&mut reader, rest, &shared).map_err(|why| format!("{line}: {why}"))?),
            _ => return Err(told("not understood".into())),
        }
    }
    Ok((architecture, entries))
}

/// `[.extern] .shared .align n .type name[n];`
fn variable(line: &str) -> Result<Variable, String> {
    let words: Vec<&str> = line.strip_suffix(';').ok_or("expected ;")?.split_whitespace().collect();
    let (is_extern, words) = match words.strip_prefix(&[".extern"]) {
        Some(words) => (true, words),
        None => (false, &words[..]),
    };
    let [".shared", ".align", align, kind, name] = words else { return Err("not understood".into()) };
    let align = align.parse().map_err(|_| "not an alignment")?;
    let unit = match *kind {
        ".b8" => 1,
        ".f32" | ".u32" | ".b32" => 4,
        _ => return Err("a type that is not understood".into()),
    };
    let (name, count) = match name.split_once('[') {
        Some((name, count)) => (name, count.strip_suffix(']').ok_or("expected ]")?),
        None => (*name, "1"),
    };
    let len = match (is_extern, count) {
        (true, "") => None,
        (false, count) => Some(unit * count.parse::<u64>().map_err(|_| "not a number of elements")?),
        _ => return Err("only memory that the launch measures may be extern".into()),
    };
    Ok(Variable { name: name.to_owned(), align, len })
}

/// From behind `.visible` to the closing brace.
fn entry(reader: &mut Reader, head: &str, shared: &[Variable]) -> Result<Entry, String> {
    let name =
        head.strip_prefix(".entry ").and_then(|rest| rest.trim().strip_suffix('(')).ok_or("expected an entry")?;
    let mut entry = Entry {
        name: name.trim().to_owned(),
        parameters: Vec::new(),
        threads: 1024,
        registers: HashMap::new(),
        shared: shared.to_vec(),
        statements: Vec::new(),
        labels: HashMap::new(),
    };
    loop {
        let (number, line) = reader.line()?;
        let words: Vec<&str> = line.trim_end_matches(',').split_whitespace().collect();
        match words[..] {
            [".param", kind, name] => entry.parameters.push((kind.to_owned(), name.to_owned())),
            [")"] => break,
            _ => return Err(format!("line {number}: expected a parameter, found: {line}")),
        }
    }
    loop {
        let (number, line) = reader.line()?;
        let told = || format!("line {number}: not understood: {line}");
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            ".maxntid" => {
                let sizes: Result<Vec<u32>, _> = rest.split(',').map(|n| n.trim().parse::<u32>()).collect();
                entry.threads = sizes.map_err(|_| told())?.iter().product();
            }
            ".minnctapersm" => {}
            "{" => break,
            _ => return Err(told()),
        }
    }
    while body(reader, &mut entry)? {}
    Ok(entry)
}

/// A line of a kernel's body; false if it is the closing brace.
fn body(reader: &mut Reader, entry: &mut Entry) -> Result<bool, String> {
    let (number, line) = reader.line()?;
    let told = |why: &str| format!("line {number}: {why}: {line}");
    if line == "}" {
        return Ok(false);
    }
    if let Some(label) = line.strip_suffix(':') {
        let known = entry.labels.insert(label.to_owned(), entry.statements.len());
        return if known.is_none() { Ok(true) } else { Err(told("a second label of this name")) };
    }
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match word {
        ".reg" => {
            let words: Vec<&str> = rest.trim_end_matches(';').split_whitespace().collect();
            let [kind, range] = words[..] else { return Err(told("not understood")) };
            let (prefix, count) = range.split_once('<').ok_or_else(|| told("expected a number of registers"))?;
            let count = count.trim_end_matches('>').parse().map_err(|_| told("expected a number of registers"))?;
            entry.registers.insert(prefix.to_owned(), (kind.to_owned(), count));
        }
        ".shared" => entry.shared.push(variable(line).map_err(|why| told(&why))?),
        ".pragma" if rest == "\"nounroll\";" => {}
        _ if word.starts_with('.') => return Err(told("not understood")),
        _ => entry.statements.push(statement(number, line).map_err(|why| told(&why))?),
    }
    Ok(true)
}

fn statement(line: u32, text: &str) -> Result<Statement, String> {
    let code = text.strip_suffix(';').ok_or("expected one instruction and ;")?;
    if code.contains(';') {
        return Err("expected one instruction on a line".into());
    }
    let (guard, code) = match code.strip_prefix('@') {
        Some(guarded) => {
            let (guard, code) = guarded.split_once(char::is_whitespace).ok_or("expected an instruction")?;
            let name = guard.trim_start_matches('!');
            (Some((name.to_owned(), guard.starts_with('!'))), code.trim_start())
        }
        None => (None, code),
    };
    let (opcode, rest) = code.split_once(char::is_whitespace).unwrap_or((code, ""));
    let operands = pieces(rest)?.iter().map(|piece| operand(piece)).collect::<Result<_, _>>()?;
    Ok(Statement { line, guard, opcode: opcode.to_owned(), operands, text: text.replace('\t', " ") })
}

/// What stands between the commas outside of braces.
fn pieces(text: &str) -> Result<Vec<&str>, String> {
    let (mut pieces, mut from, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '{' if !inside => inside = true,
            '}' if inside => inside = false,
            '{' | '}' => return Err("braces that do not match".into()),
            ',' if !inside => {
                pieces.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    let last = text[from..].trim();
    pieces.extend((!last.is_empty() || from > 0).then_some(last));
    if inside || pieces.iter().any(|piece| piece.is_empty()) { Err("an operand is missing".into()) } else { Ok(pieces) }
}

fn operand(text: &str) -> Result<Operand, String> {
    if let Some(inner) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        return Ok(Operand::Several(inner.split(',').map(|name| name.trim().to_owned()).collect()));
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let (base, offset) = match inner.split_once('+') {
            Some((base, offset)) => (base, offset.parse().map_err(|_| format!("not an offset: {offset}"))?),
            None => (inner, 0),
        };
        return Ok(Operand::At(base.trim().to_owned(), offset));
    }
    if let Some((value, predicate)) = text.split_once('|') {
        return Ok(Operand::Both(value.to_owned(), predicate.to_owned()));
    }
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "%_$.-".contains(c));
    if plain { Ok(Operand::Plain(text.to_owned())) } else { Err(format!("an operand that is not understood: {text}")) }
}
