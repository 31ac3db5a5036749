//! How Python writes values: chat templates are made for it, and models are trained on what it prints.
//!
//! Owns: the text of `json.dumps`, of `str` and `repr`, and of `strftime`. Refuses to know: templates.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Most bytes that one value may be written as. A list that holds itself twice, forty times over, is a short template.
const MAX_BYTES: usize = 8 << 20;
/// Deepest nesting of lists and mappings that is written.
const MAX_DEPTH: usize = 500;

/// The arguments of `json.dumps` that templates use.
#[derive(Debug, Clone, Default)]
pub(super) struct JsonStyle {
    /// Spaces per level; `None` writes all on one line.
    pub(super) indent: Option<usize>,
    /// What stands between items and after a key; `None` is Python's choice.
    pub(super) separators: Option<(String, String)>,
    /// Whether keys are sorted.
    pub(super) sort_keys: bool,
    /// Whether characters outside ASCII are written as `\u` escapes.
    pub(super) ensure_ascii: bool,
}

/// `json.dumps(value)` in the given style.
pub(super) fn json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let (item, key) = match &style.separators {
        Some((item, key)) => (item.as_str(), key.as_str()),
        None if style.indent.is_some() => (",", ": "),
        None => (", ", ": "),
    };
    let mut writer = Writer { out: String::new(), item, key, style: Some(style) };
    writer.value(value, 0)?;
    Ok(writer.out)
}

/// `str(value)`: text as it is, `True`, `None`, `1.0`; an undefined value is empty, as in Jinja.
pub(super) fn str(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    if value.is_undefined() {
        return Ok(String::new());
    }
    let mut writer = Writer { out: String::new(), item: ", ", key: ": ", style: None };
    writer.value(value, 0)?;
    Ok(writer.out)
}

/// Writes nested values, as JSON where it has a style and as `repr` where it has none.
struct Writer<'a> {
    out: String,
    item: &'a str,
    key: &'a str,
    style: Option<&'a JsonStyle>,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH || self.out.len() > MAX_BYTES {
            return Err(invalid("a value is too large or too deeply nested to be written"));
        }
        match value.kind() {
            ValueKind::Undefined if self.style.is_some() => return Err(invalid("an undefined value is not JSON")),
            ValueKind::Undefined => self.out.push_str("Undefined"),
            ValueKind::None => self.out.push_str(self.word("null", "None")),
            ValueKind::Bool if value.is_true() => self.out.push_str(self.word("true", "True")),
            ValueKind::Bool => self.out.push_str(self.word("false", "False")),
            ValueKind::Number => self.out.push_str(&self.number(value)?),
            ValueKind::Map => self.map(value, depth)?,
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.bracketed(('[', ']'), depth, &items, |writer, item| writer.value(item, depth + 1))?;
            }
            _ => match (value.as_str(), self.style) {
                (Some(text), Some(style)) => json_string(&mut self.out, text, style.ensure_ascii),
                (Some(text), None) => repr_string(&mut self.out, text),
                (None, Some(_)) => return Err(invalid(format!("a value of type {} is not JSON", value.kind()))),
                (None, None) => self.out.push_str(&value.to_string()),
            },
        }
        Ok(())
    }

    fn map(&mut self, map: &Value, depth: usize) -> Result<(), Error> {
        let mut entries = Vec::new();
        for key in map.try_iter()? {
            let value = map.get_item(&key)?;
            entries.push((key, value));
        }
        if self.style.is_some_and(|style| style.sort_keys) {
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        self.bracketed(('{', '}'), depth, &entries, |writer, (key, value)| {
            if let (Some(style), None) = (writer.style, key.as_str()) {
                let key = json(key, style)?;
                json_string(&mut writer.out, &key, false);
            } else {
                writer.value(key, depth + 1)?;
            }
            writer.out.push_str(writer.key);
            writer.value(value, depth + 1)
        })
    }

    fn bracketed<T>(
        &mut self,
        (open, close): (char, char),
        depth: usize,
        items: &[T],
        mut write: impl FnMut(&mut Self, &T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(self.item);
            }
            self.new_line(depth + 1);
            write(self, item)?;
        }
        if !items.is_empty() {
            self.new_line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = self.style.and_then(|style| style.indent) {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent.saturating_mul(depth).min(MAX_BYTES)));
        }
    }

    fn word(&self, json: &'static str, python: &'static str) -> &'static str {
        if self.style.is_some() { json } else { python }
    }

    fn number(&self, value: &Value) -> Result<String, Error> {
        if value.is_integer() {
            return Ok(value.to_string());
        }
        let number = f64::try_from(value.clone())?;
        Ok(match (number.is_finite(), self.style) {
            (true, _) => float(number),
            (false, Some(_)) if number.is_nan() => "NaN".into(),
            (false, Some(_)) if number > 0.0 => "Infinity".into(),
            (false, Some(_)) => "-Infinity".into(),
            (false, None) if number.is_nan() => "nan".into(),
            (false, None) => number.to_string(),
        })
    }
}

/// `repr` of a finite float: shortest digits, an exponent from 1e16 up and below 1e-4, always with a sign and two digits.
fn float(number: f64) -> String {
    let shortest = format!("{number:e}");
    match shortest.split_once('e').map(|(digits, exponent)| (digits, exponent.parse::<i32>())) {
        Some((digits, Ok(exponent))) if number != 0.0 && !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => {
            let plain = number.to_string();
            if plain.contains('.') { plain } else { plain + ".0" }
        }
    }
}

fn json_string(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (ensure_ascii && c > '~') => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// `repr` of text: single quotes unless only those occur in it. Of the characters that Python takes for unprintable, the
/// control characters and white space other than the blank are escaped.
fn repr_string(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        let code = c as u32;
        let _ = match c {
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            '\\' => write!(out, "\\\\"),
            c if c == quote => write!(out, "\\{c}"),
            c if (c.is_control() || c.is_whitespace()) && c != ' ' && code < 0x100 => write!(out, "\\x{code:02x}"),
            c if c.is_whitespace() && c != ' ' => write!(out, "\\u{code:04x}"),
            c => write!(out, "{c}"),
        };
    }
    out.push(quote);
}

/// `time.strftime(format)` of a moment in UTC, in English. Unknown directives are copied.
pub(super) fn strftime(moment: SystemTime, format: &str) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let date = Date::of_day(seconds / 86_400);
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = rest.next();
        let unpadded = directive == Some('-');
        if unpadded {
            directive = rest.next();
        }
        match directive {
            Some(directive) => date.write(&mut out, directive, unpadded, seconds % 86_400),
            None => out.push('%'),
        }
    }
    out
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A day of the Gregorian calendar.
struct Date {
    year: u64,
    /// 0 is January.
    month: usize,
    /// 1 is the first of the month.
    day: u64,
    /// 1 is the first of January.
    day_of_year: u64,
    /// 0 is Sunday.
    weekday: usize,
}

impl Date {
    /// The date `days` days after 1 January 1970.
    fn of_day(days: u64) -> Date {
        let weekday = ((days + 4) % 7) as usize;
        let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        // The calendar repeats after 400 years of 146,097 days: the walk over years stays short.
        let mut year = 1970 + days / 146_097 * 400;
        let mut rest = days % 146_097;
        while rest >= 365 + u64::from(leap(year)) {
            rest -= 365 + u64::from(leap(year));
            year += 1;
        }
        let day_of_year = rest + 1;
        let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut month = 0;
        while rest >= lengths[month] {
            rest -= lengths[month];
            month += 1;
        }
        Date { year, month, day: rest + 1, day_of_year, weekday }
    }

    fn write(&self, out: &mut String, directive: char, unpadded: bool, second: u64) {
        let (hour, minute) = (second / 3600, second / 60 % 60);
        let mut number = |value: u64, width: usize| {
            let width = if unpadded { 0 } else { width };
            let _ = write!(out, "{value:0width$}");
        };
        match directive {
            'Y' => number(self.year, 4),
            'y' => number(self.year % 100, 2),
            'm' => number(self.month as u64 + 1, 2),
            'd' => number(self.day, 2),
            'j' => number(self.day_of_year, 3),
            'H' => number(hour, 2),
            'I' => number((hour + 11) % 12 + 1, 2),
            'M' => number(minute, 2),
            'S' => number(second % 60, 2),
            'B' => out.push_str(MONTHS[self.month]),
            'b' | 'h' => out.push_str(&MONTHS[self.month][..3]),
            'A' => out.push_str(WEEKDAYS[self.weekday]),
            'a' => out.push_str(&WEEKDAYS[self.weekday][..3]),
            'p' => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            'Z' => out.push_str("UTC"),
            'z' => out.push_str("+0000"),
            '%' => out.push('%'),
            'e' if unpadded => number(self.day, 0),
            'e' => {
                let _ = write!(out, "{:2}", self.day);
            }
            'F' => {
                let _ = write!(out, "{:04}-{:02}-{:02}", self.year, self.month + 1, self.day);
            }
            'T' => {
                let _ = write!(out, "{hour:02}:{minute:02}:{:02}", second % 60);
            }
            other => {
                let _ = write!(out, "%{other}");
            }
        }
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn floats_are_written_as_repr_does() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-1.25e-7, "-1.25e-07"),
            (123456.789, "123456.789"),
        ];
        for (number, text) in cases {
            assert_eq!(float(number), text);
        }
    }

    #[test]
    fn repr_chooses_quotes_and_escapes() {
        let value =
            Value::from_serialize(serde_json::json!(["a", "it's", "\"'", "x\n\u{7f}é", true, null, {"k": 1.0}]));
        let text = r#"['a', "it's", '"\'', 'x\n\x7fé', True, None, {'k': 1.0}]"#;
        assert_eq!(str(&value).unwrap(), text);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds: u64, format: &str| strftime(UNIX_EPOCH + Duration::from_secs(seconds), format);
        assert_eq!(at(0, "%A %d %B %Y %H:%M:%S %j"), "Thursday 01 January 1970 00:00:00 001");
        assert_eq!(at(951_782_400, "%F %a %j"), "2000-02-29 Tue 060");
        assert_eq!(at(1_735_689_599, "%-d %b %y %I:%M %p %T"), "31 Dec 24 11:59 PM 23:59:59");
        assert_eq!(at(4_107_542_400, "%F"), "2100-03-01");
        assert_eq!(at(0, "%e|%-e|%-m|%%|%Q|%"), " 1|1|1|%|%Q|%");
    }
}
