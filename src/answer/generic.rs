//! `{"tool_call": {…}}`, `{"tool_calls": [{…}, …]}` or `{"response": …}` as the whole answer.

use super::Tools;
use super::call_object::{Accept, CallObject};
use super::json::{Escape, Json, Malformed, Place};
use super::markers::{Begins, begins, blank_prefix};
use super::notation::{Notation, Step};
use super::out::Out;

#[derive(Debug)]
pub(super) enum Generic {
    Begin,
    Key,
    Colon(Wrapped),
    /// Before the array of calls.
    Array,
    /// Before a call, which an array may hold.
    Item {
        in_array: bool,
    },
    Call {
        object: CallObject,
        in_array: bool,
    },
    AfterItem,
    Response(Response),
    /// Before the closing brace.
    Close,
}

/// What the wrapping object holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wrapped {
    Call,
    Calls,
    Response,
}

const KEYS: [(&str, Wrapped); 3] = [
    ("\"tool_call\"", Wrapped::Call),
    ("\"tool_calls\"", Wrapped::Calls),
    ("\"response\"", Wrapped::Response),
];

impl Notation for Generic {
    fn step(&mut self, text: &str, tools: &Tools, out: &mut Out) -> Result<Step, Malformed> {
        match self {
            Generic::Call { object, in_array } => {
                let (n, done) = object.read(text, tools, out)?;
                if !done {
                    return Ok(Step::Take(n));
                }
                *self = if *in_array { Generic::AfterItem } else { Generic::Close };
                return Ok(Step::Commit(n));
            }
            Generic::Response(response) => {
                let (n, done) = response.read(text, out)?;
                if done {
                    *self = Generic::Close;
                }
                return Ok(Step::Commit(n));
            }
            _ => {}
        }
        let blank = blank_prefix(text);
        match text[blank..].chars().next() {
            None => Ok(Step::Wait),
            Some(c) => self.between(c, blank, text),
        }
    }
}

impl Generic {
    /// A step in the wrapping itself, at the character `c` after white space.
    fn between(&mut self, c: char, blank: usize, text: &str) -> Result<Step, Malformed> {
        let (next, n) = match (&*self, c) {
            (Generic::Begin, '{') => (Generic::Key, 1),
            (Generic::Key, '"') => match key(&text[blank..])? {
                Some((key, wrapped)) => (Generic::Colon(wrapped), key.len()),
                None => return Ok(Step::Wait),
            },
            (Generic::Colon(Wrapped::Call), ':') => (Generic::Item { in_array: false }, 1),
            (Generic::Colon(Wrapped::Calls), ':') => (Generic::Array, 1),
            (Generic::Colon(Wrapped::Response), ':') => (Generic::Response(Response::new()), 1),
            (Generic::Array, '[') => (Generic::Item { in_array: true }, 1),
            (Generic::Item { in_array }, '{') => {
                (Generic::Call { object: CallObject::new(Accept::KnownName), in_array: *in_array }, 0)
            }
            (Generic::AfterItem, ',') => (Generic::Item { in_array: true }, 1),
            (Generic::AfterItem, ']') => (Generic::Close, 1),
            (Generic::Close, '}') => return Ok(Step::Leave(blank + 1)),
            _ => return Err(Malformed),
        };
        *self = next;
        Ok(Step::Take(blank + n))
    }
}

/// The key at the beginning of the text; `None` if more text is needed.
fn key(text: &str) -> Result<Option<(&'static str, Wrapped)>, Malformed> {
    let mut unclear = false;
    for (key, wrapped) in KEYS {
        match begins(text, key) {
            Begins::Yes => return Ok(Some((key, wrapped))),
            Begins::Unclear => unclear = true,
            Begins::No => {}
        }
    }
    if unclear { Ok(None) } else { Err(Malformed) }
}

/// The text of a response: a string's characters, or the JSON text of anything else.
#[derive(Debug)]
pub(super) struct Response {
    json: Json,
    is_string: bool,
    /// An escape sequence that is not complete.
    escape: String,
}

impl Response {
    fn new() -> Response {
        Response { json: Json::new(), is_string: false, escape: String::new() }
    }

    /// Reads on, up to the value's end. Gives the number of bytes read and whether the value is complete.
    fn read(&mut self, text: &str, out: &mut Out) -> Result<(usize, bool), Malformed> {
        let mut content = String::new();
        for (at, c) in text.char_indices() {
            let place = self.json.place();
            // A number ends with what follows it.
            if self.json.depth() == 0 && matches!(place, Place::Number(_)) && matches!(c, '}' | ' ' | '\n') {
                out.content(&content);
                return Ok((at, true));
            }
            if self.json.feed(c).is_err() {
                out.content(&content);
                return if at == 0 { Err(Malformed) } else { Ok((at, false)) };
            }
            match place {
                Place::Value if self.json.depth() == 0 && c == '"' => self.is_string = true,
                Place::Value if self.json.depth() == 0 && c.is_ascii_whitespace() => {}
                Place::String { escape, .. } if self.is_string => self.unescape(escape, c, &mut content),
                _ => content.push(c),
            }
            if self.json.is_done() {
                out.content(&content);
                return Ok((at + c.len_utf8(), true));
            }
        }
        out.content(&content);
        Ok((text.len(), false))
    }

    fn unescape(&mut self, escape: Escape, c: char, content: &mut String) {
        if escape == Escape::None && c != '\\' {
            if !self.json.is_done() {
                content.push(c);
            }
            return;
        }
        self.escape.push(c);
        if let Place::String { escape: Escape::None, high: false, .. } = self.json.place() {
            let text: Option<String> = serde_json::from_str(&format!("\"{}\"", self.escape)).ok();
            content.push_str(text.as_deref().unwrap_or("\u{fffd}"));
            self.escape.clear();
        }
    }
}
