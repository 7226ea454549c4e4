//! What form an answer has and how it is read: thoughts, calls of tools, grammars.

use crate::answer::Delta;

use super::chat::Chat;
use super::error::Result;
use super::fields::Fields;
use super::state::Served;

/// What form the answers to a request have.
#[derive(Clone, Debug, Default)]
pub struct Form {}

impl Form {
    /// Takes the fields about reasoning, tools and structured output.
    ///
    /// # Errors
    /// A field that cannot be honoured.
    pub fn read(fields: &mut Fields) -> Result<Form> {
        for field in ["tools", "tool_choice", "response_format", "json_schema", "grammar"] {
            fields.refuse_unless(field, |_| false)?;
        }
        Ok(Form {})
    }

    /// The same for texts without a conversation, whose answers are not read but passed on.
    ///
    /// # Errors
    /// A field that cannot be honoured.
    pub fn read_plain(fields: &mut Fields) -> Result<Form> {
        Form::read(fields)
    }

    /// Tells the conversation what its template needs to know.
    pub fn apply(&self, _chat: &mut Chat) {}

    /// Reads one answer.
    pub fn parser(&self, _served: &Served, _prompt_tail: &str) -> Parser {
        Parser {}
    }
}

/// Reads the text of an answer as it comes.
#[derive(Debug, Default)]
pub struct Parser {}

impl Parser {
    /// More text.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        if text.is_empty() { Vec::new() } else { vec![Delta::Content(text.to_owned())] }
    }

    /// No more text comes.
    pub fn finish(&mut self) -> Vec<Delta> {
        Vec::new()
    }

    /// Whether the answer has complete calls of tools.
    pub fn has_calls(&self) -> bool {
        false
    }
}
