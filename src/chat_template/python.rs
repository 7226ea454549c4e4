//! How Python writes values: `str`, `repr`, `json.dumps`, and what it takes for white space.
//!
//! Templates are written for Jinja on Python, so a number or a list that one prints has to look as Python prints it.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Containers nested deeper than this are refused (Python's recursion limit refuses them as well).
const MAX_DEPTH: usize = 500;

/// White space as `str.isspace` has it: Unicode's, and the four ASCII separators.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// `str(value)`; an undefined value is the empty text. What is written is paid for from the rendering's budget.
pub(super) fn str_of(state: &State, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => write_repr(state, &mut out, value, 0)?,
    }
    pay_for_bytes(state, out.len())?;
    Ok(out)
}

/// Takes the price of some text out of the budget: one unit for 64 bytes, as inside the engine.
pub(super) fn pay_for_bytes(state: &State, bytes: usize) -> Result<(), Error> {
    state.consume_fuel(bytes as u64 / 64)
}

/// The shortest decimal that reads back as `x`, in Python's notation: an exponent below 1e-4 and from 1e16 on.
pub(super) fn float_repr(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{x:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let fixed = x.to_string();
        return if fixed.contains('.') { fixed } else { fixed + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// The float in `value`, if it is one (and no integer).
fn as_float(value: &Value) -> Option<f64> {
    (value.kind() == ValueKind::Number && !value.is_integer()).then(|| f64::try_from(value.clone()).ok())?
}

/// Every value costs one unit, so that one that holds another many times over cannot grow without bound.
fn enter(state: &State, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        let detail = format!("a value nested more than {MAX_DEPTH} deep cannot be written");
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    state.consume_fuel(1)
}

fn write_repr(state: &State, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    enter(state, depth)?;
    match value.kind() {
        ValueKind::String => write_str_repr(out, value.as_str().unwrap_or_default()),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number => match as_float(value) {
            Some(x) => out.push_str(&float_repr(x)),
            None => out.push_str(&value.to_string()),
        },
        ValueKind::Seq | ValueKind::Iterable => {
            let is_tuple = value.is_tuple();
            out.push(if is_tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()?.checked() {
                if count > 0 {
                    out.push_str(", ");
                }
                write_repr(state, out, &item?, depth + 1)?;
                count += 1;
            }
            if is_tuple && count == 1 {
                out.push(',');
            }
            out.push(if is_tuple { ')' } else { ']' });
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.checked().enumerate() {
                let key = key?;
                if i > 0 {
                    out.push_str(", ");
                }
                write_repr(state, out, &key, depth + 1)?;
                out.push_str(": ");
                write_repr(state, out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push('}');
        }
        ValueKind::Invalid => return Err(Error::new(ErrorKind::InvalidOperation, value.to_string())),
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn write_str_repr(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => out.push_str(&match c as u32 {
                code @ ..=0xff => format!("\\x{code:02x}"),
                code @ ..=0xffff => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            }),
        }
    }
    out.push(quote);
}

/// `str.isprintable` for assigned characters: not a control, a format character, a separator other than the space, or
/// of private use.
fn is_printable(c: char) -> bool {
    const HIDDEN: [(u32, u32); 26] = [
        (0xa0, 0xa0),
        (0xad, 0xad),
        (0x600, 0x605),
        (0x61c, 0x61c),
        (0x6dd, 0x6dd),
        (0x70f, 0x70f),
        (0x890, 0x891),
        (0x8e2, 0x8e2),
        (0x1680, 0x1680),
        (0x180e, 0x180e),
        (0x2000, 0x200f),
        (0x2028, 0x202f),
        (0x205f, 0x2064),
        (0x2066, 0x206f),
        (0x3000, 0x3000),
        (0xe000, 0xf8ff),
        (0xfeff, 0xfeff),
        (0xfff9, 0xfffb),
        (0x110bd, 0x110bd),
        (0x110cd, 0x110cd),
        (0x13430, 0x1343f),
        (0x1bca0, 0x1bca3),
        (0x1d173, 0x1d17a),
        (0xe0001, 0xe0001),
        (0xe0020, 0xe007f),
        (0xf0000, 0x10ffff),
    ];
    let code = c as u32;
    !c.is_control() && !HIDDEN.iter().any(|&(first, last)| (first..=last).contains(&code))
}

/// The options of `json.dumps` that templates set.
pub(super) struct JsonStyle {
    pub(super) ensure_ascii: bool,
    pub(super) sort_keys: bool,
    /// One item a line, indented by this text per level.
    pub(super) indent: Option<String>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
}

/// `json.dumps(value)`.
pub(super) fn json_of(state: &State, value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    write_json(state, &mut out, value, style, 0)?;
    pay_for_bytes(state, out.len())?;
    Ok(out)
}

fn not_serializable(value: &Value) -> Error {
    Error::new(
        ErrorKind::BadSerialization,
        format!("tojson: a value of type {} has no JSON form", value.kind()),
    )
}

fn write_json(
    state: &State,
    out: &mut String,
    value: &Value,
    style: &JsonStyle,
    depth: usize,
) -> Result<(), Error> {
    enter(state, depth)?;
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&json_number(value)),
        ValueKind::String => write_json_str(out, value.as_str().unwrap_or_default(), style.ensure_ascii),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut empty = true;
            for item in value.try_iter()?.checked() {
                begin_item(out, style, &mut empty, depth + 1);
                write_json(state, out, &item?, style, depth + 1)?;
            }
            end_items(out, style, empty, depth);
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            let mut keys = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
            if style.sort_keys {
                keys.sort();
            }
            let mut empty = true;
            for key in keys {
                begin_item(out, style, &mut empty, depth + 1);
                write_json_key(out, &key, style)?;
                out.push_str(&style.key_separator);
                write_json(state, out, &value.get_item(&key)?, style, depth + 1)?;
            }
            end_items(out, style, empty, depth);
            out.push('}');
        }
        _ => return Err(not_serializable(value)),
    }
    Ok(())
}

fn begin_item(out: &mut String, style: &JsonStyle, empty: &mut bool, depth: usize) {
    if !std::mem::take(empty) {
        out.push_str(&style.item_separator);
    }
    break_line(out, style, depth);
}

fn end_items(out: &mut String, style: &JsonStyle, empty: bool, depth: usize) {
    if !empty {
        break_line(out, style, depth);
    }
}

fn break_line(out: &mut String, style: &JsonStyle, depth: usize) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn json_number(value: &Value) -> String {
    match as_float(value) {
        Some(x) if x.is_nan() => "NaN".into(),
        Some(x) if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        Some(x) => float_repr(x),
        None => value.to_string(),
    }
}

fn write_json_key(out: &mut String, key: &Value, style: &JsonStyle) -> Result<(), Error> {
    let text = match key.kind() {
        ValueKind::String => {
            write_json_str(out, key.as_str().unwrap_or_default(), style.ensure_ascii);
            return Ok(());
        }
        ValueKind::None => "null".into(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.into(),
        ValueKind::Number => json_number(key),
        _ => return Err(not_serializable(key)),
    };
    out.extend(["\"", &text, "\""]);
    Ok(())
}

fn write_json_str(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            c if c < ' ' || (ensure_ascii && !(' '..='~').contains(&c)) => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_look_as_python_prints_them() {
        for (x, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (123456.789, "123456.789"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (-2.5e-7, "-2.5e-07"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(float_repr(x), text);
        }
    }

    #[test]
    fn strings_are_quoted_as_python_quotes_them() {
        for (text, expected) in [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("'\"", "'\\'\"'"),
            ("a\\b\n\t\r", "'a\\\\b\\n\\t\\r'"),
            ("\x01\x7f\u{a0}\u{200b}\u{feff}", "'\\x01\\x7f\\xa0\\u200b\\ufeff'"),
            ("\u{e0001}", "'\\U000e0001'"),
            ("Привет 你好 🙂 é", "'Привет 你好 🙂 é'"),
        ] {
            let mut out = String::new();
            write_str_repr(&mut out, text);
            assert_eq!(out, expected);
        }
    }
}
