//! Why a file's tokenizer cannot be used.

use super::pre;

/// Why no tokenizer can be made from a file's metadata.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A key is missing or of the wrong type.
    #[error(transparent)]
    Metadata(#[from] qgguf_gguf::Error),
    /// `tokenizer.ggml.model` names an algorithm that is not here.
    #[error(
        "tokenizer.ggml.model: expected one of llama, gpt2, gemma4, hybriddna, whitespace, found \"{0}\""
    )]
    UnknownModel(String),
    /// The pre-tokenizer is not here.
    #[error(
        "tokenizer.ggml.pre: pre-tokenizer \"{found}\" is not known; --pre forces one of the known ones: {known}",
        known = pre::known_names()
    )]
    UnknownPre {
        /// The name asked for.
        found: String,
    },
    /// The vocabulary has no entries.
    #[error("tokenizer.ggml.tokens: expected at least one token, found none")]
    Empty,
    /// An array is shorter than the vocabulary.
    #[error("{key}: expected at least {expected} entries, one for each token, found {found}")]
    TooShort {
        /// The metadata key.
        key: &'static str,
        /// Number of tokens.
        expected: usize,
        /// Entries in the array.
        found: usize,
    },
    /// A merge without two texts.
    #[error(
        "tokenizer.ggml.merges: expected two texts with a space between them, found {text:?} as entry {index}"
    )]
    Merge {
        /// Its place among the merges, from 0.
        index: usize,
        /// What it is.
        text: String,
    },
    /// Two tokens have the same text.
    #[error(
        "tokenizer.ggml.tokens: expected distinct texts, found {text:?} as token {first} and token {second}"
    )]
    Duplicate {
        /// The text.
        text: String,
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
    },
}
