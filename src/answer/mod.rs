//! From the text of an answer to what a client is told: reasoning, content, calls of tools.

mod format;

pub use format::ToolFormat;
