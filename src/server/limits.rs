//! How much one request may ask for.

use super::error::{ApiError, Result};

/// Bounds on requests, all adjustable but for those that no sensible request meets.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Messages of a conversation.
    pub messages: usize,
    /// Answers that one request may ask for: prompts times `n`.
    pub choices: usize,
    /// Bytes of a schema or grammar.
    pub schema: usize,
    /// Tools of one request.
    pub tools: usize,
    /// Inputs of one request for embeddings.
    pub inputs: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { body: 16 << 20, messages: 4096, choices: 64, schema: 256 << 10, tools: 256, inputs: 2048 }
    }
}

/// Stop strings of one request.
pub const MAX_STOPS: usize = 32;
/// Bytes of a stop string.
pub const MAX_STOP_BYTES: usize = 1024;
/// Tokens beside the drawn one whose logprobs are told, on OpenAI's routes.
pub const MAX_TOP_LOGPROBS: usize = 20;
/// The same on the native routes.
pub const MAX_N_PROBS: usize = 100;
/// Entries of a logit bias.
pub const MAX_LOGIT_BIAS: usize = 1024;
/// Bytes of unread events that one answer may have: a client that reads more slowly than that is let go.
pub const MAX_UNREAD: usize = 4 << 20;

/// Refuses more of something than is allowed.
///
/// # Errors
/// If `found` is above `limit`; the text names the field.
pub fn at_most(field: &str, limit: usize, found: usize, what: &str) -> Result<()> {
    if found <= limit {
        return Ok(());
    }
    Err(ApiError::field(field, format!("expected at most {limit} {what}, found {found}")))
}
