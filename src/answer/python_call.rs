//! A call as an expression, `name.call(key="value", …)`: how Llama 3.1 calls the tools that it was trained with.

use serde_json::{Map, Value};

use super::Tools;
use super::json::Malformed;
use super::out::Out;

/// Longer ones are taken for text, bytes: they cannot be told from a program before their end.
const MAX: usize = 64 << 10;

/// Collects the expression up to its closing parenthesis.
#[derive(Debug, Default)]
pub(super) struct PythonCall {
    text: String,
    /// The quote of the string that is open.
    quote: Option<char>,
    escaped: bool,
}

impl PythonCall {
    /// Reads on, up to the expression's end. Gives the number of bytes read and whether it is complete.
    ///
    /// # Errors
    /// The text is no call of a known tool.
    pub(super) fn read(
        &mut self,
        text: &str,
        tools: &Tools,
        out: &mut Out,
    ) -> Result<(usize, bool), Malformed> {
        for (at, c) in text.char_indices() {
            self.text.push(c);
            match (self.quote, c) {
                (Some(_), _) if self.escaped => self.escaped = false,
                (Some(_), '\\') => self.escaped = true,
                (Some(quote), _) if c == quote => self.quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => self.quote = Some(c),
                (None, ')') => {
                    let (name, arguments) = parse(&self.text).ok_or(Malformed)?;
                    if !tools.has(name) {
                        return Err(Malformed);
                    }
                    out.announce(name, None);
                    out.arguments(&Value::Object(arguments).to_string());
                    out.complete();
                    return Ok((at + 1, true));
                }
                (None, '(') => {
                    if name_of(&self.text).is_none_or(|name| !tools.has(name)) {
                        return Err(Malformed);
                    }
                }
                (None, _) => {}
            }
            if self.text.len() > MAX {
                return Err(Malformed);
            }
        }
        Ok((text.len(), false))
    }
}

/// The name before `.call(`.
fn name_of(text: &str) -> Option<&str> {
    text.trim_start().strip_suffix(".call(")
}

/// Name and arguments of a whole expression.
fn parse(text: &str) -> Option<(&str, Map<String, Value>)> {
    let (head, rest) = text.split_at(text.find('(')? + 1);
    let mut rest = rest.strip_suffix(')')?.trim();
    let mut arguments = Map::new();
    while !rest.is_empty() {
        let (key, value) = rest.split_once('=')?;
        let (value, after) = literal(value.trim_start())?;
        arguments.insert(key.trim().to_owned(), value);
        rest = after.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    Some((name_of(head)?, arguments))
}

/// The literal at the beginning, and the text after it.
fn literal(text: &str) -> Option<(Value, &str)> {
    let quote = text.chars().next()?;
    if matches!(quote, '"' | '\'') {
        return string(&text[1..], quote);
    }
    let (word, after) = text.split_at(text.find(',').unwrap_or(text.len()));
    let value = match word.trim_end() {
        "True" => true.into(),
        "False" => false.into(),
        "None" => Value::Null,
        number => serde_json::from_str::<serde_json::Number>(number).ok()?.into(),
    };
    Some((value, after))
}

fn string(text: &str, quote: char) -> Option<(Value, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Some((value.into(), &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                'r' => value.push('\r'),
                c @ ('"' | '\'' | '\\') => value.push(c),
                other => value.extend(['\\', other]),
            },
            c => value.push(c),
        }
    }
    None
}
