//! What a model thinks before it answers, apart from the answer.

use super::markers::{Begins, Found, begins, blank_prefix, find};
use super::out::Out;

/// The tags around what is thought, as known templates have them.
const TAGS: [(&str, &str); 4] = [
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
];

/// How a model marks what it thinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningStyle {
    /// The tag before it.
    pub open: String,
    /// The tag after it.
    pub close: String,
    /// Whether the prompt ends with the opening tag, so that the model begins by thinking.
    pub opened: bool,
}

impl ReasoningStyle {
    /// The tags that the source of a chat template shows, and whether this prompt, which it rendered, ends inside them.
    pub fn detect(template_source: &str, prompt: &str) -> Option<ReasoningStyle> {
        let (open, close) = TAGS.iter().find(|(_, close)| template_source.contains(close))?;
        Some(ReasoningStyle {
            open: (*open).to_owned(),
            close: (*close).to_owned(),
            opened: prompt.trim_end().ends_with(open),
        })
    }
}

/// Parts thought from answer. White space around what is thought belongs to neither.
#[derive(Debug)]
pub(super) struct Reasoner {
    style: ReasoningStyle,
    state: State,
    held: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far.
    Begin,
    /// After the opening tag, before the first thought.
    Opened,
    Inside,
    /// After the closing tag, before the answer.
    Closed,
    Answer,
}

impl Reasoner {
    pub(super) fn new(style: ReasoningStyle) -> Reasoner {
        Reasoner { style, state: State::Begin, held: String::new() }
    }

    /// Takes more text, puts out what is thought, and gives what belongs to the answer.
    pub(super) fn push(&mut self, text: &str, out: &mut Out) -> String {
        self.held.push_str(text);
        let mut at = 0;
        while let Some(n) = self.step(at, out) {
            at += n;
        }
        let mut answer = self.held.split_off(at);
        if self.state != State::Answer {
            std::mem::swap(&mut answer, &mut self.held);
            return String::new();
        }
        self.held.clear();
        answer
    }

    /// At the end of the text: all that is held, whose meaning is clear now.
    pub(super) fn finish(&mut self, out: &mut Out) -> String {
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Begin if !self.style.opened => held,
            State::Begin | State::Opened | State::Inside => {
                out.reasoning(if self.state == State::Inside { held.trim_end() } else { held.trim() });
                String::new()
            }
            State::Closed | State::Answer => held,
        }
    }

    /// Deals with some of what is held from `at` on; `None` if nothing can be told without more text.
    fn step(&mut self, at: usize, out: &mut Out) -> Option<usize> {
        let text = &self.held[at..];
        let blank = blank_prefix(text);
        let (state, n) = match self.state {
            State::Begin => match begins(&text[blank..], &self.style.open) {
                Begins::Unclear => return None,
                Begins::Yes => (State::Opened, blank + self.style.open.len()),
                Begins::No if self.style.opened => (State::Opened, blank),
                Begins::No => (State::Answer, 0),
            },
            State::Opened if blank == text.len() => return None,
            State::Opened => (State::Inside, blank),
            State::Inside => match find(text, &[&self.style.close]) {
                Found::At(end) => {
                    out.reasoning(text[..end].trim_end());
                    (State::Closed, end + self.style.close.len())
                }
                Found::MaybeAt(end) => {
                    let clear = text[..end].trim_end();
                    if clear.is_empty() {
                        return None;
                    }
                    out.reasoning(clear);
                    (State::Inside, clear.len())
                }
            },
            State::Closed if blank == text.len() => return None,
            State::Closed => (State::Answer, blank),
            State::Answer => return None,
        };
        self.state = state;
        Some(n)
    }
}
