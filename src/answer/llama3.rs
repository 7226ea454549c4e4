//! `{"name": …, "parameters": {…}}` as the whole answer, or after `<|python_tag|>`; there also `name.call(k="v")`.

use super::Tools;
use super::call_object::{Accept, CallObject};
use super::json::Malformed;
use super::markers::{Begins, begins, blank_prefix};
use super::notation::{Notation, Step};
use super::out::Out;
use super::python_call::PythonCall;

const TAG: &str = "<|python_tag|>";

#[derive(Debug)]
pub(super) enum Llama3 {
    Begin,
    /// After the tag.
    Tagged,
    Object(CallObject),
    Python(PythonCall),
    /// After a call: a semicolon or white space, and another one.
    Next,
    /// After a semicolon.
    Another,
}

impl Notation for Llama3 {
    fn step(&mut self, text: &str, tools: &Tools, out: &mut Out) -> Result<Step, Malformed> {
        match self {
            Llama3::Begin | Llama3::Another => self.begin(text),
            Llama3::Tagged => {
                let blank = blank_prefix(text);
                Ok(match text[blank..].chars().next() {
                    None => Step::Wait,
                    Some('{') => self.object(blank),
                    Some(_) => {
                        *self = Llama3::Python(PythonCall::default());
                        Step::Take(blank)
                    }
                })
            }
            Llama3::Object(object) => {
                let (n, done) = object.read(text, tools, out)?;
                Ok(self.taken(n, done))
            }
            Llama3::Python(call) => {
                let (n, done) = call.read(text, tools, out)?;
                Ok(self.taken(n, done))
            }
            Llama3::Next => {
                let blank = blank_prefix(text);
                Ok(match text[blank..].chars().next() {
                    None => Step::Wait,
                    Some(';') => {
                        *self = Llama3::Another;
                        Step::Take(blank + 1)
                    }
                    Some('{') => self.object(blank),
                    // The tag is a trigger of its own.
                    Some(_) => Step::Leave(0),
                })
            }
        }
    }
}

impl Llama3 {
    fn begin(&mut self, text: &str) -> Result<Step, Malformed> {
        let blank = blank_prefix(text);
        let rest = &text[blank..];
        if rest.starts_with('{') {
            return Ok(self.object(blank));
        }
        match begins(rest, TAG) {
            Begins::Yes => {
                *self = Llama3::Tagged;
                Ok(Step::Take(blank + TAG.len()))
            }
            Begins::Unclear => Ok(Step::Wait),
            Begins::No => Err(Malformed),
        }
    }

    fn object(&mut self, blank: usize) -> Step {
        *self = Llama3::Object(CallObject::new(Accept::KnownName));
        Step::Take(blank)
    }

    fn taken(&mut self, n: usize, done: bool) -> Step {
        if !done {
            return Step::Take(n);
        }
        *self = Llama3::Next;
        Step::Commit(n)
    }
}
