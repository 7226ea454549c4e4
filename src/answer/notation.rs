//! What the notations of tool calls have in common: each reads text from the point where a call may begin.

use super::ToolFormat;
use super::Tools;
use super::generic::Generic;
use super::hermes::Hermes;
use super::json::Malformed;
use super::llama3::Llama3;
use super::mistral::Mistral;
use super::out::Out;
use super::qwen_coder::QwenCoder;

/// What a notation makes of the text that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// So many bytes belong to a call. They are content after all if the call fails.
    Take(usize),
    /// So many bytes, and what was taken before, are settled.
    Commit(usize),
    /// More text is needed to tell.
    Wait,
    /// So many bytes are settled, and what follows is content until a marker comes.
    Leave(usize),
}

/// A reader of calls in one notation.
///
/// What it does depends only on the text from the beginning of the call, not on the pieces in which it comes: a step either
/// decides by what is there, whatever may follow, or waits.
pub(super) trait Notation: std::fmt::Debug + Send {
    /// Looks at `text`, which is not empty and continues what earlier steps took.
    ///
    /// # Errors
    /// The text is no call.
    fn step(&mut self, text: &str, tools: &Tools, out: &mut Out) -> Result<Step, Malformed>;
}

impl ToolFormat {
    /// A reader that stands before a trigger or, in notations without one, before the answer's first brace.
    pub(super) fn reader(self) -> Box<dyn Notation> {
        match self {
            ToolFormat::Hermes => Box::new(Hermes::Open),
            ToolFormat::QwenCoder => Box::new(QwenCoder::new()),
            ToolFormat::Llama3 => Box::new(Llama3::Begin),
            ToolFormat::MistralArray | ToolFormat::MistralArgs => Box::new(Mistral::Begin),
            ToolFormat::Generic => Box::new(Generic::Begin),
        }
    }

    /// True if a call may be the whole answer without any marker.
    pub(super) fn may_begin_with_brace(self) -> bool {
        matches!(self, ToolFormat::Llama3 | ToolFormat::Generic)
    }
}
