//! `<tool_call><function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>`.

use serde_json::Value;

use super::Tools;
use super::json::{Malformed, push_in_string};
use super::markers::{Begins, Found, begins, blank_prefix, find};
use super::notation::{Notation, Step};
use super::out::Out;
use super::schema::Types;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const END_FUNCTION: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const END_PARAMETER: &str = "</parameter>";

/// A longer name is no name, bytes.
const MAX_NAME: usize = 256;

#[derive(Debug)]
pub(super) struct QwenCoder {
    state: State,
    /// The function at hand.
    name: String,
    /// Whether it has parameters so far.
    has_parameters: bool,
}

#[derive(Debug)]
enum State {
    Open,
    /// Before the function.
    Function,
    /// In its name.
    Name,
    /// Before a parameter, or the function's end.
    Parameters,
    /// In a parameter's name.
    Key,
    Value(Reader),
    /// After the function.
    Close,
}

impl QwenCoder {
    pub(super) fn new() -> QwenCoder {
        QwenCoder { state: State::Open, name: String::new(), has_parameters: false }
    }

    fn parameters(&mut self, text: &str, out: &mut Out) -> Result<Step, Malformed> {
        let blank = blank_prefix(text);
        let rest = &text[blank..];
        let mut unclear = false;
        for marker in [PARAMETER, END_FUNCTION, CLOSE] {
            match begins(rest, marker) {
                Begins::Unclear => unclear = true,
                Begins::No => {}
                Begins::Yes if marker == PARAMETER => {
                    self.state = State::Key;
                    return Ok(Step::Take(blank + marker.len()));
                }
                Begins::Yes => {
                    out.arguments(if self.has_parameters { "}" } else { "{}" });
                    out.complete();
                    if marker == CLOSE {
                        return Ok(Step::Leave(blank + marker.len()));
                    }
                    self.state = State::Close;
                    return Ok(Step::Commit(blank + marker.len()));
                }
            }
        }
        if unclear { Ok(Step::Wait) } else { Err(Malformed) }
    }

    fn begin_value(&mut self, key: &str, tools: &Tools, out: &mut Out) {
        let separator = if self.has_parameters { ", " } else { "{" };
        self.has_parameters = true;
        out.arguments(&format!("{separator}{}: ", Value::from(key)));
        let types = Types::of_parameter(tools.parameters(&self.name), key);
        self.state = State::Value(Reader { types, held: String::new(), begun: false });
    }
}

impl Notation for QwenCoder {
    fn step(&mut self, text: &str, tools: &Tools, out: &mut Out) -> Result<Step, Malformed> {
        Ok(match &mut self.state {
            State::Open => {
                self.state = State::Function;
                Step::Take(if text.starts_with(OPEN) { OPEN.len() } else { 0 })
            }
            State::Function => {
                let blank = blank_prefix(text);
                match begins(&text[blank..], FUNCTION) {
                    Begins::Unclear => return Ok(Step::Wait),
                    Begins::No => return Err(Malformed),
                    Begins::Yes => {}
                }
                self.state = State::Name;
                Step::Take(blank + FUNCTION.len())
            }
            State::Name => {
                let Some((name, n)) = name(text)? else { return Ok(Step::Wait) };
                out.announce(name, None);
                (self.name, self.has_parameters, self.state) = (name.to_owned(), false, State::Parameters);
                Step::Take(n)
            }
            State::Parameters => self.parameters(text, out)?,
            State::Key => {
                let Some((key, n)) = name(text)? else { return Ok(Step::Wait) };
                self.begin_value(key, tools, out);
                Step::Take(n)
            }
            State::Value(reader) => {
                let (n, done) = reader.read(text, out);
                if done {
                    self.state = State::Parameters;
                }
                if n > 0 { Step::Take(n) } else { Step::Wait }
            }
            State::Close => {
                let blank = blank_prefix(text);
                match (begins(&text[blank..], CLOSE), begins(&text[blank..], FUNCTION)) {
                    (Begins::Yes, _) => Step::Leave(blank + CLOSE.len()),
                    (Begins::Unclear, _) | (_, Begins::Unclear) => Step::Wait,
                    (Begins::No, _) => Step::Leave(0),
                }
            }
        })
    }
}

/// The name before the next `>`, and the bytes with it; `None` if more text is needed.
fn name(text: &str) -> Result<Option<(&str, usize)>, Malformed> {
    match text.find(['>', '<', '\n']) {
        None if text.len() <= MAX_NAME => Ok(None),
        Some(end) if end <= MAX_NAME && text[end..].starts_with('>') => {
            let name = text[..end].trim();
            if name.is_empty() { Err(Malformed) } else { Ok(Some((name, end + 1))) }
        }
        _ => Err(Malformed),
    }
}

/// Reads a value. It stands between line ends, which do not belong to it. Texts stream out; what may be another type is
/// held until its end is known.
#[derive(Debug)]
struct Reader {
    types: Types,
    held: String,
    /// Whether the line end before the value was dealt with.
    begun: bool,
}

impl Reader {
    /// Reads on, up to the value's end marker. Gives the number of bytes read and whether the value is complete.
    fn read(&mut self, text: &str, out: &mut Out) -> (usize, bool) {
        if !self.begun {
            if text == "\r" {
                return (0, false);
            }
            self.begun = true;
            if self.types.only_string() {
                out.arguments("\"");
            }
            let line_end = ["\r\n", "\n"].iter().find(|end| text.starts_with(**end));
            if let Some(end) = line_end {
                return (end.len(), false);
            }
        }
        match find(text, &[END_PARAMETER]) {
            Found::At(end) => {
                self.push(without_line_end(&text[..end]), out);
                out.arguments(if self.types.only_string() { "\"" } else { "" });
                if !self.types.only_string() {
                    out.arguments(&self.types.json(&self.held));
                }
                (end + END_PARAMETER.len(), true)
            }
            Found::MaybeAt(end) => {
                let clear = without_line_end(&text[..end]);
                let clear = clear.strip_suffix('\r').unwrap_or(clear);
                self.push(clear, out);
                (clear.len(), false)
            }
        }
    }

    fn push(&mut self, text: &str, out: &mut Out) {
        if !self.types.only_string() {
            return self.held.push_str(text);
        }
        let mut escaped = String::with_capacity(text.len());
        text.chars().for_each(|c| push_in_string(&mut escaped, c));
        out.arguments(&escaped);
    }
}

fn without_line_end(text: &str) -> &str {
    text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(text)
}
