//! Placeholder until the parsers are merged.
#![allow(missing_docs)]

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    Reasoning(String),
    Content(String),
    ToolCall { index: usize, id: String, name: String },
    ToolArguments { index: usize, text: String },
}
