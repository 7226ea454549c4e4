//! A session: an engine with one sequence, and the logits after it.

use std::sync::Arc;

use qgguf_kernels::{Compute, KvTypeError};

use crate::architectures::Outputs;
use crate::engine::{Engine, EngineOptions, EvalError, Segment, Sequence};
use crate::model::Model;

/// Memory in use by a session, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Keys and values.
    pub kv: usize,
    /// Activations.
    pub scratch: usize,
}

/// One sequence being evaluated.
pub struct Session {
    engine: Engine,
    sequence: Sequence,
}

impl Session {
    /// An empty session that may hold `n_ctx` positions; `None` for
    /// [`Hparams::default_n_ctx`](crate::architectures::Hparams::default_n_ctx).
    ///
    /// # Errors
    /// If keys or values of the model cannot be stored as the options say.
    pub fn new(
        model: Arc<Model>,
        n_ctx: Option<usize>,
        options: &EngineOptions,
    ) -> Result<Session, KvTypeError> {
        let n_ctx = n_ctx.unwrap_or_else(|| model.hparams().default_n_ctx());
        let engine = Engine::new(model, options)?;
        let sequence = engine.sequence(n_ctx);
        Ok(Session { engine, sequence })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        self.engine.model()
    }

    /// What evaluates.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What evaluates, to look on while it does.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// How it is computed.
    pub fn options(&self) -> &EngineOptions {
        self.engine.options()
    }

    /// The tokens evaluated so far.
    pub fn tokens(&self) -> &[u32] {
        self.sequence.tokens()
    }

    /// Positions the context may hold.
    pub fn n_ctx(&self) -> usize {
        self.sequence.n_ctx()
    }

    /// Memory in use.
    pub fn memory(&self) -> Memory {
        Memory { kv: self.engine.pool().bytes_in_use(), scratch: self.engine.scratch_bytes() }
    }

    /// Forgets everything from position `n` on.
    pub fn truncate(&mut self, n: usize) {
        self.sequence.truncate(n);
    }

    /// Appends `tokens` and returns the logits after the last of them (`n_vocab` values).
    pub fn eval(&mut self, tokens: &[u32]) -> Result<&[f32], EvalError> {
        self.check_fits(self.tokens().len(), tokens)?;
        let n_ubatch = self.options().n_ubatch;
        let n_last = (tokens.len() - 1) % n_ubatch + 1;
        let (first, last) = tokens.split_at(tokens.len() - n_last);
        for batch in first.chunks(n_ubatch) {
            self.forward(batch, Outputs::None)?;
        }
        self.forward(last, Outputs::Last)
    }

    /// The logits after the last token (`n_vocab` values).
    ///
    /// Empty before the first evaluation.
    pub fn logits(&self) -> &[f32] {
        let n_vocab = self.model().hparams().n_vocab;
        let logits = self.engine.last().logits;
        &logits[logits.len().saturating_sub(n_vocab)..]
    }

    /// Appends `tokens` and calls `each(position, logits)` for every one of them, in order.
    pub fn eval_all(&mut self, tokens: &[u32], mut each: impl FnMut(usize, &[f32])) -> Result<(), EvalError> {
        self.check_fits(self.tokens().len(), tokens)?;
        let n_vocab = self.model().hparams().n_vocab;
        for batch in tokens.chunks(self.options().n_ubatch) {
            let pos0 = self.tokens().len();
            let rows = self.forward(batch, Outputs::From(0))?.chunks_exact(n_vocab);
            rows.enumerate().for_each(|(t, logits)| each(pos0 + t, logits));
        }
        Ok(())
    }

    /// Appends `tokens`, all evaluated together, and returns the logits after each of them from index `first` on
    /// (`[tokens.len() - first][n_vocab]`), with the threads to work on them.
    ///
    /// # Panics
    /// If there are more tokens than are evaluated together, or fewer than `first`.
    pub fn eval_batch(&mut self, tokens: &[u32], first: usize) -> Result<(&[f32], &Compute), EvalError> {
        assert!(tokens.len() <= self.options().n_ubatch && first <= tokens.len());
        self.forward(tokens, Outputs::From(first))?;
        let last = self.engine.last();
        Ok((last.logits, last.compute))
    }

    /// Makes `tokens` the sequence of this session, keeping what it already shares with it from the start,
    /// and returns the logits after the last of them with the number of tokens that were kept.
    pub fn eval_prompt(&mut self, tokens: &[u32]) -> Result<(&[f32], usize), EvalError> {
        // The logits of the last token are wanted, so that one is evaluated in any case.
        let kept = self.sequence.common_prefix(tokens).min(tokens.len().saturating_sub(1));
        self.check_fits(kept, &tokens[kept..])?;
        self.truncate(kept);
        Ok((self.eval(&tokens[kept..])?, kept))
    }

    /// Says whether [`Session::eval_prompt`] would accept `tokens`.
    pub fn check_prompt(&self, tokens: &[u32]) -> Result<(), EvalError> {
        self.check_fits(0, tokens)
    }

    fn check_fits(&self, n_past: usize, tokens: &[u32]) -> Result<(), EvalError> {
        self.engine.check(tokens, n_past, self.n_ctx())
    }

    fn forward(&mut self, tokens: &[u32], outputs: Outputs) -> Result<&[f32], EvalError> {
        let segment = Segment { sequence: &mut self.sequence, tokens, outputs };
        Ok(self.engine.eval(&mut [segment])?.logits)
    }
}
