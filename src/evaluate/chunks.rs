//! A text as contexts to evaluate, cut as llama-perplexity cuts it.

use qgguf_kernels::Compute;

use crate::session::Session;
use crate::tokenizer::Tokenizer;

use super::EvaluateError;
use super::predictions::{Prediction, predictions};

/// The shortest context of which a prediction counts, with some margin.
pub const MIN_CTX: usize = 4;

/// Why a text cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunksError {
    /// Two contexts are the least.
    #[error(
        "the text has {found} tokens; a context of {n_ctx} needs at least {needed} (a longer text, or a smaller context: -c)"
    )]
    TooShort {
        /// Tokens of the text.
        found: usize,
        /// Tokens it should have.
        needed: usize,
        /// The context.
        n_ctx: usize,
    },
    /// Nothing would be scored.
    #[error("a context of {0} is too small to evaluate a text with: at least {MIN_CTX}")]
    SmallContext(usize),
    /// The chunks to pass over are all there are.
    #[error("the text has {found} chunks, none of which comes after the first {skipped}")]
    AllSkipped {
        /// Chunks of the text.
        found: usize,
        /// Chunks to pass over.
        skipped: usize,
    },
}

/// The tokens of a text in pieces of one context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    tokens: Vec<u32>,
    n_ctx: usize,
    /// What the first token of every chunk is replaced by when it is evaluated.
    bos: Option<u32>,
}

/// One context, to be evaluated from an empty cache.
#[derive(Debug, Clone)]
pub struct Chunk<'a> {
    index: usize,
    tokens: &'a [u32],
    input: Vec<u32>,
}

/// Tokens to evaluate together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The tokens.
    pub tokens: &'a [u32],
    /// Index of the first token after which the prediction counts.
    pub first: usize,
    /// The tokens that really follow, from there on.
    pub targets: &'a [u32],
}

/// What a model predicts for the tokens of a batch that count.
pub struct Scored<'a> {
    /// Threads to go on with.
    pub compute: &'a Compute,
    /// `[targets.len()][n_vocab]`.
    pub logits: &'a [f32],
    /// What follows from the logits, one for each target.
    pub predictions: Vec<Prediction>,
    /// The tokens that really follow.
    pub targets: &'a [u32],
}

impl Chunks {
    /// Cuts `text` into contexts of `n_ctx` tokens; what is left over is dropped.
    ///
    /// # Errors
    /// If there are not even two contexts.
    pub fn new(
        tokenizer: &Tokenizer,
        text: &str,
        n_ctx: usize,
        parse_special: bool,
    ) -> Result<Chunks, ChunksError> {
        if n_ctx < MIN_CTX {
            return Err(ChunksError::SmallContext(n_ctx));
        }
        let tokens = tokenizer.encode(text, true, parse_special);
        let (found, needed) = (tokens.len(), n_ctx.saturating_mul(2));
        if found < needed {
            return Err(ChunksError::TooShort { found, needed, n_ctx });
        }
        Ok(Chunks::from_tokens(tokenizer, tokens, n_ctx))
    }

    /// Tokens that were cut already, as they are in a file of base logits.
    pub(super) fn from_tokens(tokenizer: &Tokenizer, mut tokens: Vec<u32>, n_ctx: usize) -> Chunks {
        tokens.truncate(tokens.len() / n_ctx * n_ctx);
        Chunks { tokens, n_ctx, bos: tokenizer.bos().filter(|_| tokenizer.add_bos()) }
    }

    /// Keeps at most `limit` chunks after the first `skip`.
    pub fn select(mut self, skip: usize, limit: Option<usize>) -> Result<Chunks, ChunksError> {
        let found = self.len();
        if skip >= found {
            return Err(ChunksError::AllSkipped { found, skipped: skip });
        }
        let n = limit.unwrap_or(found).min(found - skip);
        self.tokens.drain(..skip * self.n_ctx);
        self.tokens.truncate(n * self.n_ctx);
        Ok(self)
    }

    /// Number of chunks.
    pub fn len(&self) -> usize {
        self.tokens.len() / self.n_ctx
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens in a chunk.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Predictions that count in a chunk.
    pub fn n_scored(&self) -> usize {
        n_scored(self.n_ctx)
    }

    /// The tokens of all chunks, as the text has them.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The chunks in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Chunk<'_>> {
        self.tokens.chunks_exact(self.n_ctx).enumerate().map(|(index, tokens)| {
            let mut input = tokens.to_vec();
            if let Some(bos) = self.bos {
                input[0] = bos;
            }
            Chunk { index, tokens, input }
        })
    }
}

/// Positions `n_ctx / 2` to `n_ctx - 2` are scored.
pub(super) fn n_scored(n_ctx: usize) -> usize {
    n_ctx - 1 - n_ctx / 2
}

impl Chunk<'_> {
    /// Number of the chunk, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The tokens as the model gets them.
    pub fn input(&self) -> &[u32] {
        &self.input
    }

    /// The chunk in batches of at most `n_ubatch` tokens.
    pub fn batches(&self, n_ubatch: usize) -> impl Iterator<Item = Batch<'_>> {
        let (n, half) = (self.tokens.len(), self.tokens.len() / 2);
        (0..n).step_by(n_ubatch).map(move |start| {
            let end = n.min(start + n_ubatch);
            let first = half.clamp(start, end);
            // Nothing follows the last token.
            let targets = &self.tokens[(first + 1).min(n)..(end + 1).min(n)];
            Batch { tokens: &self.input[start..end], first: first - start, targets }
        })
    }

    /// Evaluates the chunk and hands out its scored predictions, batch by batch.
    pub fn evaluate(
        &self,
        session: &mut Session,
        mut each: impl FnMut(Scored<'_>) -> Result<(), EvaluateError>,
    ) -> Result<(), EvaluateError> {
        session.truncate(0);
        self.batches(session.options().n_ubatch).try_for_each(|batch| each(self.score(session, &batch)?))
    }

    /// Evaluates the next batch of the chunk.
    pub fn score<'a>(
        &self,
        session: &'a mut Session,
        batch: &Batch<'a>,
    ) -> Result<Scored<'a>, EvaluateError> {
        self.score_after(session, batch, batch.first)
    }

    /// [`Chunk::score`] that makes the logits after token `first` of the batch and all later ones, though not all count.
    pub fn score_after<'a>(
        &self,
        session: &'a mut Session,
        batch: &Batch<'a>,
        first: usize,
    ) -> Result<Scored<'a>, EvaluateError> {
        let Batch { tokens, first: first_scored, targets } = *batch;
        let n_vocab = session.model().hparams().n_vocab;
        let position = session.tokens().len() + first_scored;
        let (logits, compute) = session.eval_batch(tokens, first)?;
        let logits = &logits[(first_scored - first) * n_vocab..][..targets.len() * n_vocab];
        let predictions = predictions(compute, logits, targets)
            .map_err(|i| EvaluateError::NotFinite { chunk: self.index + 1, position: position + i })?;
        Ok(Scored { compute, logits, predictions, targets })
    }
}
