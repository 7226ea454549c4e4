//! Finds calls in the text of an answer; everything else is content.

use super::ToolFormat;
use super::Tools;
use super::markers::{Found, blank_prefix, find};
use super::notation::{Notation, Step};
use super::out::Out;

/// Reads the text of an answer in pieces.
#[derive(Debug)]
pub(super) struct Calls {
    format: ToolFormat,
    tools: Tools,
    parallel: bool,
    stage: Stage,
    /// What is not settled: white space that may precede a call, a call that may be none, a marker that is not complete.
    held: String,
    /// How much of it the reader of a call has taken.
    taken: usize,
}

#[derive(Debug)]
enum Stage {
    /// Nothing but white space so far.
    Begin,
    Content,
    Call(Box<dyn Notation>),
    /// The one call that was wanted is there.
    Done,
}

/// What one step did.
enum Progress {
    /// So many bytes are settled.
    Settled(usize),
    Wait,
}

impl Calls {
    pub(super) fn new(format: ToolFormat, tools: Tools, parallel: bool) -> Calls {
        Calls { format, tools, parallel, stage: Stage::Begin, held: String::new(), taken: 0 }
    }

    /// True if nothing that follows is part of the answer.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    pub(super) fn push(&mut self, text: &str, out: &mut Out) {
        if self.is_done() {
            return;
        }
        self.held.push_str(text);
        let held = std::mem::take(&mut self.held);
        let mut at = 0;
        while let Progress::Settled(n) = self.step(&held[at..], out) {
            at += n;
        }
        self.held = if at == 0 { held } else { held[at..].to_owned() };
    }

    /// At the end of the text: what is not settled is content.
    pub(super) fn finish(&mut self, out: &mut Out) {
        let held = std::mem::take(&mut self.held);
        out.abandon();
        if self.is_done() || (out.has_calls() && held.trim().is_empty()) {
            return;
        }
        out.content(&held);
    }

    fn step(&mut self, text: &str, out: &mut Out) -> Progress {
        match &mut self.stage {
            Stage::Done => Progress::Wait,
            Stage::Begin => self.begin(text),
            Stage::Content => self.content(text, out),
            Stage::Call(reader) => {
                let rest = &text[self.taken..];
                if rest.is_empty() {
                    return Progress::Wait;
                }
                match reader.step(rest, &self.tools, out) {
                    Ok(Step::Wait) => Progress::Wait,
                    Ok(Step::Take(n)) => {
                        self.taken += n;
                        Progress::Settled(0)
                    }
                    Ok(Step::Commit(n)) => self.commit(n, out),
                    Ok(Step::Leave(n)) => {
                        self.stage = Stage::Content;
                        self.commit(n, out)
                    }
                    Err(_) => self.fail(text, out),
                }
            }
        }
    }

    /// Some notations make a call of the whole answer.
    fn begin(&mut self, text: &str) -> Progress {
        let rest = &text[blank_prefix(text)..];
        if rest.is_empty() {
            return Progress::Wait;
        }
        let is_call = self.format.may_begin_with_brace() && rest.starts_with('{');
        self.stage = if is_call { self.call(text.len() - rest.len()) } else { Stage::Content };
        Progress::Settled(0)
    }

    /// Content up to a trigger. White space before a call is not part of the content.
    fn content(&mut self, text: &str, out: &mut Out) -> Progress {
        let (end, is_call) = match find(text, self.format.triggers()) {
            Found::At(end) => (end, true),
            Found::MaybeAt(end) => (end, false),
        };
        let clear = text[..end].trim_end();
        out.content(clear);
        if is_call {
            self.stage = self.call(end - clear.len());
            return Progress::Settled(clear.len());
        }
        if clear.is_empty() { Progress::Wait } else { Progress::Settled(clear.len()) }
    }

    fn call(&mut self, blank: usize) -> Stage {
        self.taken = blank;
        Stage::Call(self.format.reader())
    }

    fn commit(&mut self, n: usize, out: &Out) -> Progress {
        let settled = self.taken + n;
        self.taken = 0;
        if out.has_calls() && !self.parallel {
            self.stage = Stage::Done;
        }
        Progress::Settled(settled)
    }

    /// What was taken for a call is none: its first character is content, and calls are looked for after it.
    fn fail(&mut self, text: &str, out: &mut Out) -> Progress {
        out.abandon();
        let first = text.trim_start().chars().next().map_or(0, char::len_utf8);
        let n = blank_prefix(text) + first;
        out.content(&text[..n]);
        self.taken = 0;
        self.stage = Stage::Content;
        Progress::Settled(n)
    }
}
