//! The template engine set up as the reference renderer sets up Jinja: its options, filters, tests and functions.

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior};
use minijinja_contrib::globals;

use super::clock::LocalTime;
use super::program::{add_operators, float};
use super::python::{JsonStyle, json_of, pay_for_bytes, str_of};
use super::{Raised, methods};

/// The environment in which templates run. Each rendering sets its own budget.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_debug(false);
    env.set_unknown_method_callback(methods::call);
    env.set_formatter(|out, state, value| {
        // Plain text is the common case and needs no copy.
        match value.as_str() {
            Some(text) => out.write_str(text)?,
            None => out.write_str(&str_of(state, value)?)?,
        }
        Ok(())
    });
    add_operators(&mut env);
    env.add_filter("tojson", tojson);
    env.add_filter("string", string);
    env.add_filter("trim", trim);
    env.add_filter("join", join);
    env.add_filter("int", to_int);
    env.add_filter("float", to_float);
    env.add_filter("escape", escape);
    env.add_filter("e", escape);
    env.add_test("sequence", is_sequence);
    env.add_test("iterable", is_iterable);
    env.add_function("raise_exception", raise_exception);
    env.add_function("cycler", |items: Rest<Value>| globals::cycler(items.to_vec()));
    env.add_function("joiner", globals::joiner);
    // Helpers of the engine that Jinja does not have: a template that uses them would fail there.
    env.remove_global("debug");
    env
}

/// The function `strftime_now` at a given time.
pub(super) fn strftime_now(now: LocalTime) -> Value {
    Value::from_function(move |format: &str| -> Result<String, Error> {
        now.format(format).map_err(|detail| Error::new(ErrorKind::InvalidOperation, detail))
    })
}

fn raise_exception(state: &State, message: &Value) -> Result<Value, Error> {
    let message = str_of(state, message)?;
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn tojson(
    state: &State,
    value: &Value,
    ensure_ascii: Option<bool>,
    indent: Option<Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let indent = match indent {
        None => named.get::<Option<Value>>("indent")?,
        indent => indent,
    };
    let indent = indent_text(indent)?;
    let separators = named.get::<Option<Vec<String>>>("separators")?;
    let (item_separator, key_separator) = match separators.as_deref() {
        None => (if indent.is_some() { "," } else { ", " }, ": "),
        Some([item, key]) => (item.as_str(), key.as_str()),
        Some(_) => {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two strings"));
        }
    };
    let style = JsonStyle {
        ensure_ascii: ensure_ascii.or(named.get("ensure_ascii")?).unwrap_or(false),
        sort_keys: named.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        item_separator: item_separator.to_owned(),
        key_separator: key_separator.to_owned(),
        indent,
    };
    named.assert_all_used()?;
    json_of(state, value, &style)
}

/// What one level is indented by; `None` keeps everything on one line.
fn indent_text(indent: Option<Value>) -> Result<Option<String>, Error> {
    const MAX_INDENT: usize = 64;
    let Some(indent) = indent.filter(|indent| !indent.is_none()) else {
        return Ok(None);
    };
    let text = match (indent.as_str(), indent.as_i64()) {
        (Some(text), _) => text.to_owned(),
        (_, Some(width)) => " ".repeat(usize::try_from(width).unwrap_or(0).min(MAX_INDENT + 1)),
        _ => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "tojson: indent must be an integer or a string",
            ));
        }
    };
    if text.len() > MAX_INDENT {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the indent is wider than 64"));
    }
    Ok(Some(text))
}

fn string(state: &State, value: &Value) -> Result<String, Error> {
    str_of(state, value)
}

fn trim(state: &State, value: &Value, chars: Option<&str>) -> Result<String, Error> {
    let text = str_of(state, value)?;
    Ok(methods::strip_chars(&text, chars, true, true).to_owned())
}

fn join(
    state: &State,
    value: &Value,
    separator: Option<&Value>,
    attribute: Option<Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let separator = match separator {
        Some(separator) => str_of(state, separator)?,
        None => named.get::<Option<String>>("d")?.unwrap_or_default(),
    };
    let attribute = match attribute {
        None => named.get::<Option<Value>>("attribute")?,
        attribute => attribute,
    };
    named.assert_all_used()?;
    let mut out = String::new();
    for (i, item) in value.try_iter()?.checked().enumerate() {
        let mut item = item?;
        if let Some(attribute) = &attribute {
            item = attribute_of(&item, attribute)?;
        }
        let text = str_of(state, &item)?;
        if i > 0 {
            out.push_str(&separator);
        }
        out.push_str(&text);
        pay_for_bytes(state, separator.len())?;
    }
    Ok(out)
}

/// The integer in a number or a text, or the default: Jinja's filter never fails.
fn to_int(value: &Value, default: Option<Value>, base: Option<u32>) -> Value {
    let default = default.unwrap_or_else(|| Value::from(0));
    let Some(text) = value.as_str() else {
        return match float(value) {
            Some(_) if value.is_integer() => value.clone(),
            Some(x) if x.is_finite() => Value::from(x.trunc() as i128),
            _ => default,
        };
    };
    let text = methods::strip_chars(text, None, true, true).replace('_', "");
    let base = base.filter(|base| (2..=36).contains(base)).unwrap_or(10);
    match (i128::from_str_radix(&text, base), text.parse::<f64>()) {
        (Ok(n), _) => Value::from(n),
        (_, Ok(x)) if x.is_finite() => Value::from(x.trunc() as i128),
        _ => default,
    }
}

/// The float in a number or a text, or the default: Jinja's filter never fails.
fn to_float(value: &Value, default: Option<Value>) -> Value {
    let number = match value.as_str() {
        Some(text) => methods::strip_chars(text, None, true, true).replace('_', "").parse().ok(),
        None => float(value),
    };
    number.map_or_else(|| default.unwrap_or_else(|| Value::from(0.0)), Value::from)
}

/// HTML's five special characters, in the notation of Python's MarkupSafe.
fn escape(state: &State, value: &Value) -> Result<Value, Error> {
    let text = str_of(state, value)?;
    if value.is_safe() {
        return Ok(value.clone());
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    pay_for_bytes(state, out.len())?;
    Ok(Value::from_safe_string(out))
}

/// The attribute, item or dotted path of either that Jinja's filters take.
fn attribute_of(value: &Value, attribute: &Value) -> Result<Value, Error> {
    let Some(path) = attribute.as_str() else {
        return value.get_item(attribute);
    };
    path.split('.').try_fold(value.clone(), |value, part| match part.parse::<usize>() {
        Ok(index) => value.get_item_by_index(index),
        Err(_) => value.get_attr(part),
    })
}

/// Jinja counts whatever has a length and items, so also strings, mappings and undefined values. What `+` and slices
/// make of lists is a lazy iterable here and a list there.
fn is_sequence(value: &Value) -> bool {
    use ValueKind::{Bytes, Iterable, Map, Seq, String, Undefined};
    matches!(value.kind(), String | Seq | Iterable | Map | Undefined | Bytes)
}

/// The engine also iterates over none, as over nothing.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}
