//! Jinja as `transformers` sets it up.
//!
//! Owns: the options, filters and functions that chat templates expect beyond Jinja's own. Refuses to know: conversations.

use std::time::SystemTime;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};

use super::python::{self, JsonStyle};

/// An environment with everything set, and no fuel limit.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_keep_trailing_newline(false);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_formatter(|out, _, value| match value.as_str() {
        Some(text) => out.write_str(text).map_err(Into::into),
        None => out.write_str(&python::str(value)?).map_err(Into::into),
    });
    env.set_unknown_method_callback(method);
    env.add_filter("tojson", tojson);
    env.add_filter("string", |value: &Value| python::str(value));
    env.add_filter("items", items);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", |format: &str| python::strftime(SystemTime::now(), format));
    env
}

/// The pairs of a mapping; an undefined value has none.
fn items(value: &Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    minijinja::filters::items(&parsed(value)?)
}

/// Python's methods; `arguments.items()` works on a mapping that came as JSON text, like `arguments|items`.
fn method(state: &State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let value = if name == "items" { &parsed(value)? } else { value };
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// Clients send the arguments of a tool call as JSON text, templates expect a mapping: text is parsed, the rest is kept.
fn parsed(value: &Value) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return Ok(value.clone());
    };
    let parsed: serde_json::Value = serde_json::from_str(text).map_err(|e| {
        let message = format!("`items` needs a mapping or a JSON object in text, found text that is no JSON: {e}");
        Error::new(ErrorKind::InvalidOperation, message)
    })?;
    Ok(Value::from_serialize(parsed))
}

fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let style = JsonStyle {
        indent: match indent.filter(|indent| !indent.is_none()) {
            Some(indent) => Some(usize::try_from(indent)?),
            None => None,
        },
        separators: separators(options.get("separators")?)?,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    python::json(value, &style)
}

fn separators(value: Option<Value>) -> Result<Option<(String, String)>, Error> {
    let Some(pair) = value.filter(|value| value.kind() == ValueKind::Seq) else {
        return Ok(None);
    };
    Ok(Some((python::str(&pair.get_item_by_index(0)?)?, python::str(&pair.get_item_by_index(1)?)?)))
}

/// Marks an error that the template raised itself.
#[derive(Debug)]
pub(super) struct Raised;

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("raised by the template")
    }
}

impl std::error::Error for Raised {}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message).with_source(Raised))
}
