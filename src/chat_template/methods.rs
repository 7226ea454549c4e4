//! Methods of Python's `str`, `list` and `dict` that templates call.
//!
//! What Python does differently from the engine's own compatibility layer, or what that layer lacks, is here; the rest
//! is passed on to it. Methods that change a list or a dict do not exist: the reference renderer forbids them too.

use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use super::python::{is_space, pay_for_bytes};

/// The callback for methods that the engine does not know by itself.
pub(super) fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let result = match (value.kind(), value.as_str()) {
        (_, Some(text)) => str_method(state, text, method, args)?,
        (ValueKind::Seq | ValueKind::Iterable, _) => list_method(value, method, args)?,
        (ValueKind::Map, _) if method == "copy" => {
            let () = from_args(args)?;
            Some(value.clone())
        }
        _ => None,
    };
    match result {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn invalid(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail.into())
}

fn list_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match method {
        "copy" => {
            let () = from_args(args)?;
            value.clone()
        }
        "count" => {
            let (what,): (&Value,) = from_args(args)?;
            let mut count = 0;
            for item in value.try_iter()?.checked() {
                count += usize::from(item? == *what);
            }
            Value::from(count)
        }
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            for (i, item) in value.try_iter()?.checked().enumerate() {
                if item? == *what {
                    return Ok(Some(Value::from(i)));
                }
            }
            return Err(invalid("list.index(x): x is not in the list"));
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

fn str_method(state: &State, text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match method {
        "strip" => strip(text, args, true, true)?.into(),
        "lstrip" => strip(text, args, true, false)?.into(),
        "rstrip" => strip(text, args, false, true)?.into(),
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "split" => Value::from_iter(split(text, args)?),
        "rsplit" => Value::from_iter(rsplit(text, args)?),
        "splitlines" => Value::from_iter(split_lines(text, args)?),
        "partition" | "rpartition" => partition(text, args, method == "rpartition")?,
        "find" | "rfind" | "index" | "rindex" => {
            let at = find(text, args, method.starts_with('r'))?;
            if at.is_none() && method.ends_with("index") {
                return Err(invalid(format!("str.{method}: the text is not there")));
            }
            Value::from(at.map_or(-1, |at| at as i64))
        }
        "ljust" | "rjust" | "center" | "zfill" => pad(state, text, method, args)?.into(),
        "isspace" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(is_space))
        }
        "title" => {
            let () = from_args(args)?;
            title(text).into()
        }
        "swapcase" => {
            let () = from_args(args)?;
            swap_case(text).into()
        }
        "join" => join(state, text, args)?.into(),
        // The engine's formatting fills to any width before anything is charged.
        "format" if !is_plain_format(text) => {
            return Err(invalid(
                "str.format: widths of more than 4 digits and nested fields are not supported",
            ));
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// Whether no field of a format text asks for a width of its arguments' choice or of more than four digits.
fn is_plain_format(text: &str) -> bool {
    let digits = text.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
    let nested = text.replace("{{", "").replace("}}", "").split('{').any(|field| {
        // A field that does not end before the next one begins.
        !field.contains('}') && field.contains([':', '!'])
    });
    digits.unwrap_or(0) <= 4 && !nested
}

/// `text` without white space, or without any of the characters of the argument, at the ends asked for.
fn strip<'a>(text: &'a str, args: &[Value], start: bool, end: bool) -> Result<&'a str, Error> {
    let (chars,): (Option<&str>,) = from_args(args)?;
    Ok(strip_chars(text, chars, start, end))
}

pub(super) fn strip_chars<'a>(text: &'a str, chars: Option<&str>, start: bool, end: bool) -> &'a str {
    let unwanted = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if start { text.trim_start_matches(unwanted) } else { text };
    if end { text.trim_end_matches(unwanted) } else { text }
}

/// The separator (`None`: white space) and the greatest number of splits.
fn split_args(args: &[Value]) -> Result<(Option<String>, usize), Error> {
    let (sep, max, named): (Option<String>, Option<i64>, Kwargs) = from_args(args)?;
    let sep = if sep.is_some() { sep } else { named.get("sep")? };
    let max = if max.is_some() { max } else { named.get("maxsplit")? };
    named.assert_all_used()?;
    if sep.as_deref() == Some("") {
        return Err(invalid("split: the separator is empty"));
    }
    Ok((sep, usize::try_from(max.unwrap_or(-1)).unwrap_or(usize::MAX)))
}

fn split<'a>(text: &'a str, args: &[Value]) -> Result<Vec<&'a str>, Error> {
    let (sep, max) = split_args(args)?;
    if let Some(sep) = sep {
        return Ok(text.splitn(max.saturating_add(1), &sep).collect());
    }
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = if parts.len() == max { None } else { rest.find(is_space) };
        let (part, tail) = rest.split_at(end.unwrap_or(rest.len()));
        parts.push(part);
        rest = tail.trim_start_matches(is_space);
    }
    Ok(parts)
}

fn rsplit<'a>(text: &'a str, args: &[Value]) -> Result<Vec<&'a str>, Error> {
    let (sep, max) = split_args(args)?;
    let mut parts: Vec<&str> = Vec::new();
    if let Some(sep) = sep {
        parts.extend(text.rsplitn(max.saturating_add(1), &sep));
    } else {
        let mut rest = text.trim_end_matches(is_space);
        while !rest.is_empty() {
            let head = if parts.len() == max { "" } else { rest.trim_end_matches(|c| !is_space(c)) };
            parts.push(&rest[head.len()..]);
            rest = head.trim_end_matches(is_space);
        }
    }
    parts.reverse();
    Ok(parts)
}

fn split_lines<'a>(text: &'a str, args: &[Value]) -> Result<Vec<&'a str>, Error> {
    const ENDS: [char; 10] =
        ['\n', '\r', '\x0b', '\x0c', '\x1c', '\x1d', '\x1e', '\u{85}', '\u{2028}', '\u{2029}'];
    let (keep, named): (Option<bool>, Kwargs) = from_args(args)?;
    let keep = keep.or(named.get("keepends")?).unwrap_or(false);
    named.assert_all_used()?;
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(ENDS).unwrap_or(rest.len());
        let tail = &rest[end..];
        let tail = tail.strip_prefix("\r\n").or_else(|| tail.strip_prefix(ENDS)).unwrap_or(tail);
        lines.push(if keep { &rest[..rest.len() - tail.len()] } else { &rest[..end] });
        rest = tail;
    }
    Ok(lines)
}

fn partition(text: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let (sep,): (&str,) = from_args(args)?;
    if sep.is_empty() {
        return Err(invalid("partition: the separator is empty"));
    }
    let parts = match if from_right { text.rsplit_once(sep) } else { text.split_once(sep) } {
        Some((head, tail)) => [head, sep, tail],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

/// Where the argument is in `text`, counted in characters, within the slice that the further arguments name.
fn find(text: &str, args: &[Value], from_right: bool) -> Result<Option<usize>, Error> {
    let (what, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
    let len = text.chars().count();
    let index = |i: i64| if i < 0 { len.saturating_sub(i.unsigned_abs() as usize) } else { i as usize };
    let (start, end) = (index(start.unwrap_or(0)), index(end.unwrap_or(i64::MAX)).min(len));
    if start > end {
        return Ok(None);
    }
    let byte = |i: usize| text.char_indices().nth(i).map_or(text.len(), |(at, _)| at);
    let slice = &text[byte(start)..byte(end)];
    let at = if from_right { slice.rfind(what) } else { slice.find(what) };
    Ok(at.map(|at| start + slice[..at].chars().count()))
}

/// `text` filled up to a width in characters.
fn pad(state: &State, text: &str, method: &str, args: &[Value]) -> Result<String, Error> {
    let (width, fill): (i64, Option<char>) = from_args(args)?;
    if method == "zfill" && fill.is_some() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars().count());
    state.consume_fuel(missing as u64)?;
    let (fill, left) = match method {
        "ljust" => (fill.unwrap_or(' '), 0),
        "rjust" => (fill.unwrap_or(' '), missing),
        "zfill" => ('0', missing),
        // Python puts the odd one to the left if the width is odd as well.
        _ => (fill.unwrap_or(' '), missing / 2 + (missing & width as usize & 1)),
    };
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) if method == "zfill" => text.split_at(text.len() - digits.len()),
        _ => ("", text),
    };
    let mut out = String::from(sign);
    out.extend(std::iter::repeat_n(fill, left));
    out.push_str(digits);
    out.extend(std::iter::repeat_n(fill, missing - left));
    Ok(out)
}

/// Upper case after anything that has no case, as `str.title` does it (so also after an apostrophe).
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_lowercase() || c.is_uppercase();
    }
    out
}

fn swap_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    }
    out
}

fn join(state: &State, separator: &str, args: &[Value]) -> Result<String, Error> {
    let (items,): (&Value,) = from_args(args)?;
    let mut out = String::new();
    for (i, item) in items.try_iter()?.checked().enumerate() {
        let item = item?;
        let Some(text) = item.as_str() else {
            return Err(invalid(format!("str.join: item {i} is a {}, not a string", item.kind())));
        };
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(text);
        state.consume_fuel(1)?;
        pay_for_bytes(state, separator.len() + text.len())?;
    }
    Ok(out)
}
