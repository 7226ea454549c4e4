//! Prompts that are no conversation: texts and token ids, one or several.

use serde_json::Value;

use crate::tokenizer::Tokenizer;

use super::error::{ApiError, Result};
use super::fields::kind;
use super::limits::at_most;

/// A prompt as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Its text, if it came as one.
    pub text: Option<String>,
}

impl Prompt {
    /// The text that a client sees.
    pub fn text(&self, tokenizer: &Tokenizer) -> String {
        self.text.clone().unwrap_or_else(|| tokenizer.decode(&self.tokens))
    }
}

/// Reads prompts: a text, token ids, texts mixed with token ids, or an array of any of these.
///
/// # Errors
/// Anything else, a token outside the vocabulary, or more than `limit` prompts; each by its place.
pub fn read(field: &str, value: Value, limit: usize, tokenizer: &Tokenizer) -> Result<Vec<Prompt>> {
    match value {
        Value::Array(items) if !items.iter().any(Value::is_u64) && !items.is_empty() => {
            at_most(field, limit, items.len(), "prompts")?;
            let each = items.into_iter().enumerate();
            each.map(|(i, item)| one(&format!("{field}[{i}]"), item, tokenizer)).collect()
        }
        one_prompt => Ok(vec![one(field, one_prompt, tokenizer)?]),
    }
}

fn one(field: &str, value: Value, tokenizer: &Tokenizer) -> Result<Prompt> {
    match value {
        Value::String(text) => Ok(Prompt { tokens: tokenizer.encode(&text, true, true), text: Some(text) }),
        Value::Array(items) => mixed(field, &items, tokenizer),
        other => {
            let problem = format!("expected a string or token ids, found {}", kind(&other));
            Err(ApiError::field(field, problem))
        }
    }
}

/// Token ids and texts in a row. Only a text at the start gets the model's BOS.
fn mixed(field: &str, items: &[Value], tokenizer: &Tokenizer) -> Result<Prompt> {
    let mut tokens = Vec::new();
    for (i, item) in items.iter().enumerate() {
        match item {
            Value::String(text) => tokens.extend(tokenizer.encode(text, i == 0, true)),
            other => tokens.push(token(&format!("{field}[{i}]"), other, tokenizer)?),
        }
    }
    Ok(Prompt { tokens, text: None })
}

/// A token id.
///
/// # Errors
/// Anything else, and one outside the vocabulary.
pub fn token(field: &str, value: &Value, tokenizer: &Tokenizer) -> Result<u32> {
    let id = value
        .as_u64()
        .ok_or_else(|| ApiError::field(field, format!("expected a token id, found {}", kind(value))))?;
    let n_vocab = tokenizer.n_vocab();
    u32::try_from(id)
        .ok()
        .filter(|&id| (id as usize) < n_vocab)
        .ok_or_else(|| ApiError::field(field, format!("token {id} is outside the vocabulary of {n_vocab}")))
}
