//! `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

use super::Tools;
use super::call_object::{Accept, CallObject};
use super::json::Malformed;
use super::markers::{Begins, begins, blank_prefix};
use super::notation::{Notation, Step};
use super::out::Out;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

#[derive(Debug)]
pub(super) enum Hermes {
    Open,
    Object(CallObject),
    Close,
}

impl Notation for Hermes {
    fn step(&mut self, text: &str, tools: &Tools, out: &mut Out) -> Result<Step, Malformed> {
        Ok(match self {
            Hermes::Open => {
                *self = Hermes::Object(CallObject::new(Accept::AnyName));
                Step::Take(OPEN.len())
            }
            Hermes::Object(object) => match object.read(text, tools, out)? {
                (n, true) => {
                    *self = Hermes::Close;
                    Step::Commit(n)
                }
                (n, false) => Step::Take(n),
            },
            // Models forget the end marker, or write a second object before it.
            Hermes::Close => {
                let blank = blank_prefix(text);
                match begins(&text[blank..], CLOSE) {
                    Begins::Unclear => Step::Wait,
                    Begins::Yes => Step::Leave(blank + CLOSE.len()),
                    Begins::No if text[blank..].starts_with('{') => {
                        *self = Hermes::Object(CallObject::new(Accept::AnyName));
                        Step::Take(blank)
                    }
                    Begins::No => Step::Leave(0),
                }
            }
        })
    }
}
