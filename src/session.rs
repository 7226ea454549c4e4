//! A session: one sequence of tokens, its keys and values, and the logits after it.

use std::sync::Arc;

use qgguf_kernels::{Compute, Kernels, KvLayer, KvType, KvTypeError};

use crate::architectures::{ActivationsProbe, AttentionProbe, Buffers, Graph, Outputs, TraceFn};
use crate::model::Model;

/// How a session computes. None of this changes a bit of the logits, except the types of the cache.
#[derive(Clone, Copy)]
pub struct SessionOptions {
    /// Threads that evaluate one token, the calling one included.
    pub n_threads: usize,
    /// Threads that evaluate several tokens together; as many as for one if 0.
    pub n_threads_batch: usize,
    /// Tokens evaluated together when there are many.
    pub n_ubatch: usize,
    /// How keys are stored.
    pub type_k: KvType,
    /// How values are stored.
    pub type_v: KvType,
    /// The kernels to use.
    pub kernels: Kernels,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            n_threads: crate::threads::default_threads(),
            n_threads_batch: 0,
            n_ubatch: 512,
            type_k: KvType::F16,
            type_v: KvType::F16,
            kernels: Kernels::best(),
        }
    }
}

/// Why tokens cannot be evaluated. The session is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// Nothing to evaluate.
    #[error("no tokens to evaluate: the prompt is empty")]
    Empty,
    /// More tokens than the context holds.
    #[error("{wanted} tokens do not fit the context of {n_ctx} (a larger one: --ctx-size)")]
    ContextFull {
        /// Tokens that the context would have to hold.
        wanted: usize,
        /// Its size.
        n_ctx: usize,
    },
    /// An id beyond the model's embeddings.
    #[error("token id {id} is outside the vocabulary of {n_vocab}")]
    BadToken {
        /// The id.
        id: u32,
        /// Number of embeddings.
        n_vocab: usize,
    },
}

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
    model: Arc<Model>,
    n_ubatch: usize,
    n_threads: usize,
    n_threads_batch: usize,
    compute: Compute,
    cache: Vec<KvLayer>,
    tokens: Vec<u32>,
    buffers: Buffers,
    trace: Option<Box<TraceFn<'static>>>,
    probe: Option<Box<AttentionProbe<'static>>>,
    activations_probe: Option<Box<ActivationsProbe<'static>>>,
}

impl Session {
    /// An empty session. Memory is taken as positions are used, not now.
    ///
    /// # Errors
    /// If keys or values of the model cannot be stored as the options say.
    pub fn new(model: Arc<Model>, options: &SessionOptions) -> Result<Session, KvTypeError> {
        let hp = model.hparams();
        let layer = |&n_head_kv: &usize| {
            KvLayer::new(options.type_k, options.type_v, n_head_kv, hp.head_dim_k, hp.head_dim_v)
        };
        let n_threads = options.n_threads.max(1);
        let n_threads_batch = if options.n_threads_batch == 0 { n_threads } else { options.n_threads_batch };
        Ok(Session {
            n_threads,
            n_threads_batch,
            cache: hp.n_head_kv.iter().map(layer).collect::<Result<_, _>>()?,
            compute: Compute::new(options.kernels, n_threads.max(n_threads_batch)),
            n_ubatch: options.n_ubatch.max(1),
            // Room for what is likely, so that a token never has to make some.
            tokens: Vec::with_capacity(model.n_ctx().min(1 << 16)),
            buffers: Buffers::default(),
            trace: None,
            probe: None,
            activations_probe: None,
            model,
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The tokens evaluated so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Positions the context may hold.
    pub fn n_ctx(&self) -> usize {
        self.model.n_ctx()
    }

    /// The kernels in use.
    pub fn kernels(&self) -> Kernels {
        self.compute.kernels()
    }

    /// Threads that evaluate one token.
    pub fn n_threads(&self) -> usize {
        self.n_threads
    }

    /// Threads that evaluate several tokens together.
    pub fn n_threads_batch(&self) -> usize {
        self.n_threads_batch
    }

    /// Tokens evaluated together when there are many.
    pub fn n_ubatch(&self) -> usize {
        self.n_ubatch
    }

    /// Memory in use.
    pub fn memory(&self) -> Memory {
        Memory {
            kv: self.cache.iter().map(KvLayer::bytes).sum(),
            scratch: self.buffers.bytes() + self.compute.scratch_bytes(),
        }
    }

    /// Sends every named intermediate of the following evaluations to `trace`.
    pub fn set_trace(&mut self, trace: Option<Box<TraceFn<'static>>>) {
        self.trace = trace;
    }

    /// Shows every attention layer of the following evaluations to `probe`.
    pub fn set_attention_probe(&mut self, probe: Option<Box<AttentionProbe<'static>>>) {
        self.probe = probe;
    }

    /// Shows `probe` what weights are multiplied with in the following evaluations.
    pub fn set_activations_probe(&mut self, probe: Option<Box<ActivationsProbe<'static>>>) {
        self.activations_probe = probe;
    }

    /// Forgets everything from position `n` on.
    pub fn truncate(&mut self, n: usize) {
        self.tokens.truncate(n);
        self.cache.iter_mut().for_each(|layer| layer.truncate(n));
    }

    /// Appends `tokens` and returns the logits after the last of them (`n_vocab` values).
    pub fn eval(&mut self, tokens: &[u32]) -> Result<&[f32], EvalError> {
        self.check(tokens)?;
        let n_last = (tokens.len() - 1) % self.n_ubatch + 1;
        let (first, last) = tokens.split_at(tokens.len() - n_last);
        for batch in first.chunks(self.n_ubatch) {
            self.forward(batch, Outputs::None);
        }
        self.forward(last, Outputs::Last);
        Ok(&self.buffers.logits)
    }

    /// The logits after the last token (`n_vocab` values).
    ///
    /// Empty before the first evaluation.
    pub fn logits(&self) -> &[f32] {
        let n_vocab = self.model.hparams().n_vocab;
        &self.buffers.logits[self.buffers.logits.len().saturating_sub(n_vocab)..]
    }

    /// Appends `tokens` and calls `each(position, logits)` for every one of them, in order.
    pub fn eval_all(&mut self, tokens: &[u32], mut each: impl FnMut(usize, &[f32])) -> Result<(), EvalError> {
        self.check(tokens)?;
        let n_vocab = self.model.hparams().n_vocab;
        for batch in tokens.chunks(self.n_ubatch) {
            let pos0 = self.tokens.len();
            self.forward(batch, Outputs::From(0));
            let rows = self.buffers.logits.chunks_exact(n_vocab);
            rows.enumerate().for_each(|(t, logits)| each(pos0 + t, logits));
        }
        Ok(())
    }

    /// Appends `tokens`, all evaluated together, and returns the logits after each of them from index `first` on
    /// (`[tokens.len() - first][n_vocab]`), with the threads to work on them.
    ///
    /// # Panics
    /// If there are more tokens than [`Session::n_ubatch`], or fewer than `first`.
    pub fn eval_batch(&mut self, tokens: &[u32], first: usize) -> Result<(&[f32], &Compute), EvalError> {
        assert!(tokens.len() <= self.n_ubatch && first <= tokens.len());
        self.check(tokens)?;
        self.forward(tokens, Outputs::From(first));
        Ok((&self.buffers.logits, &self.compute))
    }

    /// Makes `tokens` the sequence of this session, keeping what it already shares with it from the start,
    /// and returns the logits after the last of them with the number of tokens that were kept.
    pub fn eval_prompt(&mut self, tokens: &[u32]) -> Result<(&[f32], usize), EvalError> {
        let shared = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        // The logits of the last token are wanted, so that one is evaluated in any case.
        let kept = shared.min(tokens.len().saturating_sub(1));
        self.check_fits(kept, &tokens[kept..])?;
        self.truncate(kept);
        Ok((self.eval(&tokens[kept..])?, kept))
    }

    /// Says whether [`Session::eval_prompt`] would accept `tokens`.
    pub fn check_prompt(&self, tokens: &[u32]) -> Result<(), EvalError> {
        self.check_fits(0, tokens)
    }

    fn check(&self, tokens: &[u32]) -> Result<(), EvalError> {
        self.check_fits(self.tokens.len(), tokens)
    }

    fn check_fits(&self, n_past: usize, tokens: &[u32]) -> Result<(), EvalError> {
        let n_vocab = self.model.hparams().n_vocab;
        if tokens.is_empty() {
            return Err(EvalError::Empty);
        }
        if let Some(&id) = tokens.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(EvalError::BadToken { id, n_vocab });
        }
        let wanted = n_past + tokens.len();
        if wanted > self.n_ctx() {
            return Err(EvalError::ContextFull { wanted, n_ctx: self.n_ctx() });
        }
        Ok(())
    }

    fn forward(&mut self, tokens: &[u32], outputs: Outputs) {
        let architecture = self.model.architecture();
        let pos0 = self.tokens.len();
        self.compute.set_threads(if tokens.len() > 1 { self.n_threads_batch } else { self.n_threads });
        self.compute.begin();
        let mut graph = Graph::new(
            &mut self.compute,
            &mut self.cache,
            &mut self.buffers,
            architecture.ropes(),
            tokens,
            pos0,
            outputs,
        );
        if let Some(trace) = &mut self.trace {
            graph.set_trace(trace);
        }
        if let Some(probe) = &mut self.probe {
            graph.set_attention_probe(probe);
        }
        if let Some(probe) = &mut self.activations_probe {
            graph.set_activations_probe(probe);
        }
        architecture.forward(&mut graph);
        self.compute.end();
        self.tokens.extend_from_slice(tokens);
    }
}
