//! What is generated, held to a form: JSON, a JSON Schema, a grammar in llama.cpp's GBNF, a regular expression, calls of tools.
//!
//! A [`GrammarFactory`] belongs to a model; it compiles a [`Grammar`] to a [`Constraint`](crate::sampler::Constraint) that tells
//! before every draw which tokens may come next. The engine below is the `llguidance` crate; here are the model's vocabulary
//! for it (`vocabulary`), the check of what strangers send (`schema`, limits and a deadline in `factory`), the way from GBNF
//! (`gbnf`), and the grammars of tool calls (`tools`). A [`Lazy`] constraint waits for a text before it holds.
//!
//! What cannot be taken is an error that says what and where; nothing is ignored in silence.

mod cache;
mod constraint;
mod error;
mod factory;
mod gbnf;
mod lazy;
mod schema;
mod tools;
mod vocabulary;

pub use error::GrammarError;
pub use factory::{GrammarFactory, GrammarLimits};
pub use lazy::{Lazy, LazyOptions};
pub use tools::{CallGrammar, ToolChoice};

use serde_json::Value;

/// The form of a text.
#[derive(Clone, Debug)]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema describes (draft 2020-12 and what older ones share with it). The empty schema means any object.
    JsonSchema(Value),
    /// A grammar in llama.cpp's GBNF; its start is the rule `root`.
    Gbnf(String),
    /// A regular expression that the whole text matches (syntax of the `regex` crate, without anchors and look-around).
    Regex(String),
    /// A grammar in the engine's own dialect of Lark. Not for text from strangers: its lexer knows pitfalls.
    Lark(String),
}
