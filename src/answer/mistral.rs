//! `[TOOL_CALLS]` with an array of objects, or with `NAME[CALL_ID]ID[ARGS]{…}`: the character that follows tells which.

use super::Tools;
use super::call_object::{Accept, CallObject};
use super::json::{Json, Malformed, push_escaped};
use super::markers::blank_prefix;
use super::notation::{Notation, Step};
use super::out::Out;

const OPEN: &str = "[TOOL_CALLS]";
const CALL_ID: &str = "[CALL_ID]";
const ARGS: &str = "[ARGS]";

/// A longer name with its id is no name, bytes.
const MAX_HEADER: usize = 256;

#[derive(Debug)]
pub(super) enum Mistral {
    Begin,
    /// After the marker.
    Opened,
    /// In the array, before an object.
    Item,
    Object(CallObject),
    /// After an object of the array.
    AfterItem,
    /// In the arguments of a call without an array.
    Arguments(Json),
}

impl Notation for Mistral {
    fn step(&mut self, text: &str, tools: &Tools, out: &mut Out) -> Result<Step, Malformed> {
        let blank = blank_prefix(text);
        let first = text[blank..].chars().next();
        match (&mut *self, first) {
            (Mistral::Begin, _) => {
                *self = Mistral::Opened;
                Ok(Step::Take(OPEN.len()))
            }
            (Mistral::Object(object), _) => match object.read(text, tools, out)? {
                (n, true) => {
                    *self = Mistral::AfterItem;
                    Ok(Step::Commit(n))
                }
                (n, false) => Ok(Step::Take(n)),
            },
            (Mistral::Arguments(json), _) => read_arguments(json, text, out),
            (_, None) => Ok(Step::Wait),
            (Mistral::Opened, Some('[')) => {
                *self = Mistral::Item;
                Ok(Step::Take(blank + 1))
            }
            (Mistral::Opened, Some(_)) => match header(text)? {
                Some((n, name, id)) => {
                    out.announce(name, id);
                    *self = Mistral::Arguments(Json::new());
                    Ok(Step::Take(n))
                }
                None => Ok(Step::Wait),
            },
            (Mistral::Item, Some('{')) => {
                *self = Mistral::Object(CallObject::new(Accept::AnyName));
                Ok(Step::Take(blank))
            }
            (Mistral::AfterItem, Some(',')) => {
                *self = Mistral::Item;
                Ok(Step::Take(blank + 1))
            }
            (Mistral::AfterItem, Some(']')) => Ok(Step::Leave(blank + 1)),
            (Mistral::Item | Mistral::AfterItem, Some(_)) => Err(Malformed),
        }
    }
}

/// Length of a header, the name in it, and the id if there is one.
type Header<'t> = (usize, &'t str, Option<&'t str>);

/// The header up to its `[ARGS]`; `None` if it is not complete.
fn header(text: &str) -> Result<Option<Header<'_>>, Malformed> {
    let Some(end) = text.find(ARGS) else {
        let hopeless = text.len() > MAX_HEADER + ARGS.len() || text.contains(['{', '\n']);
        return if hopeless { Err(Malformed) } else { Ok(None) };
    };
    let (name, id) = match text[..end].split_once(CALL_ID) {
        Some((name, id)) => (name, Some(id.trim())),
        None => (&text[..end], None),
    };
    let name = name.trim();
    let sound = !name.is_empty() && end <= MAX_HEADER && !text[..end].contains(['{', '\n']);
    let sound = sound && !name.contains(|c: char| c.is_whitespace() || "[]".contains(c));
    if sound { Ok(Some((end + ARGS.len(), name, id))) } else { Err(Malformed) }
}

fn read_arguments(json: &mut Json, text: &str, out: &mut Out) -> Result<Step, Malformed> {
    for (at, c) in text.char_indices() {
        let place = json.place();
        if json.depth() == 0 && c != '{' && !c.is_ascii_whitespace() {
            return Err(Malformed);
        }
        json.feed(c)?;
        if json.depth() > 0 || c == '}' {
            let mut piece = String::new();
            push_escaped(&mut piece, place, c);
            out.arguments(&piece);
        }
        if json.is_done() {
            out.complete();
            return Ok(Step::Leave(at + 1));
        }
    }
    Ok(Step::Take(text.len()))
}
