//! qgguf: a GGUF-native runtime for CPUs, as a library.
//!
//! [`model`] opens a file, [`tokenizer`] and [`chat_template`] turn text into tokens and back, [`session`]
//! evaluates tokens to logits over a key-value cache, [`sampler`] draws from them, and [`generate`] is the loop.
//! [`grammar`] holds what is generated to a JSON Schema, a grammar or a regular expression.
//! [`lab`] has experiments on models.
//! [`evaluate`] measures how well a model predicts a text.

pub mod answer;
pub mod architectures;
pub mod chat_template;
pub mod engine;
pub mod evaluate;
pub mod generate;
#[cfg(feature = "grammar")]
pub mod grammar;
pub mod lab;
pub mod model;
pub mod npy;
pub mod sampler;
pub mod session;
pub mod threads;
pub mod tokenizer;
