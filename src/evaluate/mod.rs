//! How well a model predicts a text: perplexity, and how far its predictions are from another model's.
//!
//! A text is cut into [`Chunks`] as long as the context; every chunk is evaluated on its own, and the predictions
//! in its second half count. [`Perplexity`] and [`Divergence`] gather them; [`base_logits`] has the file in which
//! llama.cpp keeps the predictions of the model that others are measured against. The figures do not depend on
//! threads, batches and instruction sets.

pub mod base_logits;
mod chunks;
mod divergence;
mod greedy;
mod mean;
mod perplexity;
mod predictions;

pub use base_logits::{BaseLogits, BaseLogitsError};
pub use chunks::{Batch, Chunk, Chunks, ChunksError, MIN_CTX, Scored};
pub use divergence::{Base, Distribution, Divergence, DivergenceReport};
pub use greedy::{first_difference, greedy};
pub use mean::{Estimate, Mean};
pub use perplexity::Perplexity;
pub use predictions::{Prediction, predictions};

use crate::engine::EvalError;

/// Why an evaluation cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// The session cannot take the tokens.
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// What the model computes is no number.
    #[error("chunk {chunk}, position {position}: the model's logits are not finite numbers")]
    NotFinite {
        /// Number of the chunk, from 1.
        chunk: usize,
        /// Position in the chunk.
        position: usize,
    },
}
