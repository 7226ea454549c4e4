//! From the text of an answer to what a client is told: reasoning, content, calls of tools.
//!
//! [`AnswerParser`] takes the text as it is generated, in whatever pieces, and gives [`Delta`]s; what they add up to does
//! not depend on the pieces. Nothing here knows of models, tokens or HTTP: the caller says how the model marks what it
//! thinks ([`ReasoningStyle`]) and in which notation it calls tools ([`ToolFormat`]), and shows the parser the control tokens
//! that are [markers](AnswerOptions::markers).

mod call_object;
mod calls;
mod format;
mod generic;
mod hermes;
mod json;
mod llama3;
mod markers;
mod mistral;
mod notation;
mod out;
mod python_call;
mod qwen_coder;
mod reasoning;
pub(crate) mod schema;

use std::hash::{BuildHasher, RandomState};

use serde_json::Value;

pub use format::ToolFormat;
pub use out::{Delta, Message, ToolCall};
pub use reasoning::ReasoningStyle;

use calls::Calls;
use out::{IdStyle, Out};
use reasoning::Reasoner;

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The JSON schema of the object of its arguments; null if there is none.
    pub parameters: Value,
}

/// How to read an answer.
#[derive(Debug, Clone, Default)]
pub struct AnswerOptions {
    /// How the model marks what it thinks; `None` leaves it in the content.
    pub reasoning: Option<ReasoningStyle>,
    /// How it calls tools; `None` leaves calls in the content.
    pub format: Option<ToolFormat>,
    /// The tools that there are.
    pub tools: Vec<Tool>,
    /// Whether it may make several calls. If not, the answer ends with the first.
    pub parallel: bool,
    /// What ids of calls are drawn from; `None` for something new each time.
    pub seed: Option<u64>,
}

impl AnswerOptions {
    /// Texts by which the answer is parted. Those that are control tokens of the model, which have no text otherwise, must
    /// be part of the text that the parser gets.
    pub fn markers(&self) -> Vec<&str> {
        let tags = self.reasoning.iter().flat_map(|style| [style.open.as_str(), style.close.as_str()]);
        tags.chain(self.format.iter().flat_map(|format| format.markers().iter().copied())).collect()
    }
}

/// The tools by name.
#[derive(Debug)]
struct Tools(Vec<Tool>);

impl Tools {
    fn get(&self, name: &str) -> Option<&Tool> {
        self.0.iter().find(|tool| tool.name == name)
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The schema of a tool's arguments; null if there is none.
    fn parameters(&self, name: &str) -> &Value {
        self.get(name).map_or(&Value::Null, |tool| &tool.parameters)
    }
}

/// Parts the text of one answer.
///
/// A call that turns out not to be one is content, markers included; so is a marker that the text breaks off in. No other
/// marker becomes content, nor is any text lost but white space around reasoning and calls. Arguments of a call are told
/// as they come. If it breaks off or turns out malformed when its name was told already, the arguments that were told stay
/// incomplete JSON, the whole text of the call follows as content, and [`Message::tool_calls`] does not have it.
#[derive(Debug)]
pub struct AnswerParser {
    reasoner: Option<Reasoner>,
    calls: Option<Calls>,
    out: Out,
}

impl AnswerParser {
    /// A parser for one answer.
    pub fn new(options: AnswerOptions) -> AnswerParser {
        let style = match options.format {
            Some(ToolFormat::MistralArray | ToolFormat::MistralArgs) => IdStyle::Mistral,
            _ => IdStyle::Usual,
        };
        let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one("ids of calls"));
        let tools = Tools(options.tools);
        AnswerParser {
            reasoner: options.reasoning.map(Reasoner::new),
            calls: options.format.map(|format| Calls::new(format, tools, options.parallel)),
            out: Out::new(style, seed),
        }
    }

    /// Takes more text; gives what has become certain.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        match &mut self.reasoner {
            Some(reasoner) => {
                let answer = reasoner.push(text, &mut self.out);
                self.answer(&answer);
            }
            None => self.answer(text),
        }
        self.out.take_deltas()
    }

    /// True if nothing that follows is part of the answer: its only call is complete. Generating more is of no use.
    pub fn is_done(&self) -> bool {
        self.calls.as_ref().is_some_and(Calls::is_done)
    }

    /// At the end of the text: the last deltas, and the whole answer.
    pub fn finish(mut self) -> (Vec<Delta>, Message) {
        if let Some(reasoner) = &mut self.reasoner {
            let answer = reasoner.finish(&mut self.out);
            self.answer(&answer);
        }
        if let Some(calls) = &mut self.calls {
            calls.finish(&mut self.out);
        }
        (self.out.take_deltas(), self.out.message)
    }

    fn answer(&mut self, text: &str) {
        match &mut self.calls {
            Some(calls) => calls.push(text, &mut self.out),
            None => self.out.content(text),
        }
    }
}

#[cfg(test)]
mod tests;
