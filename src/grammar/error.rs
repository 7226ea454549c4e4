//! Why a grammar cannot be used.

use std::time::Duration;

/// Why a grammar, schema or regular expression is not taken. The text says what and where, without repeating the input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// A JSON Schema has something that cannot be kept to.
    #[error("JSON schema at {place}: {what}")]
    Schema {
        /// JSON pointer into the schema, `#` for its root.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// A GBNF grammar is malformed.
    #[error("grammar at line {line}, column {column}: {what}")]
    Gbnf {
        /// Line, from 1.
        line: usize,
        /// Character in the line, from 1.
        column: usize,
        /// What was expected, and what was found.
        what: String,
    },
    /// A GBNF grammar names what it does not define, or accepts nothing.
    #[error("grammar: {0}")]
    Rules(String),
    /// A regular expression is malformed or uses what a linear-time engine cannot do.
    #[error("regular expression: {0}")]
    Regex(String),
    /// More of something than is allowed.
    #[error("{what}: at most {limit} allowed, found {found}")]
    TooLarge {
        /// What is counted.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// What was counted, or where counting ended.
        found: usize,
    },
    /// The engine cannot take it, or not within its limits.
    #[error("{kind} cannot be compiled: {reason}")]
    Compile {
        /// What kind of input.
        kind: &'static str,
        /// The engine's reason.
        reason: String,
    },
    /// Compiling took too long.
    #[error("{kind} is too complex: not compiled within {} ms", limit.as_millis())]
    TooSlow {
        /// What kind of input.
        kind: &'static str,
        /// The deadline.
        limit: Duration,
    },
    /// Too many grammars are being compiled; later it may work.
    #[error("too many grammars are being compiled at once")]
    Busy,
    /// A tool cannot be called in this notation.
    #[error("tool {tool:?}: {what}")]
    Tool {
        /// Its name.
        tool: String,
        /// Why.
        what: String,
    },
    /// The vocabulary does not allow constrained text.
    #[error("this model's vocabulary cannot be held to a grammar: {0}")]
    Vocabulary(String),
}
