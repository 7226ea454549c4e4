//! The engine: forward passes over the next tokens of one or many sequences.
//!
//! An [`Engine`] is what evaluations share: the model, its kernels and threads, work memory, and the pool that caches
//! take their pages from. A [`Sequence`] is what belongs to one text: its tokens and what the layers remember of them.
//! [`Engine::eval`] takes several at once; each gets the same bits as if it were alone. [`generation`] turns logits
//! into text, and [`service`] serves many requests at once. Nothing here knows of flags or of HTTP.

pub mod generation;
mod sequence;
pub mod service;

use std::sync::Arc;

use qgguf_kernels::{Compute, Kernels, KvLayout, KvPool, KvPoolFull, KvType, KvTypeError};

use crate::architectures::{ActivationsProbe, AttentionProbe, Batch, Buffers, Graph, Outputs, TraceFn};
use crate::model::Model;
pub use sequence::Sequence;

/// How an engine computes. None of this changes a bit of the logits, except the types of the cache.
#[derive(Clone, Copy)]
pub struct EngineOptions {
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
    /// Bytes that the caches of all sequences may take together; `None` for no limit.
    pub cache_bytes: Option<usize>,
    /// The kernels to use.
    pub kernels: Kernels,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            n_threads: crate::threads::default_threads(),
            n_threads_batch: 0,
            n_ubatch: 512,
            type_k: KvType::F16,
            type_v: KvType::F16,
            cache_bytes: None,
            kernels: Kernels::best(),
        }
    }
}

/// Why tokens cannot be evaluated. Sequences are unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// Nothing to evaluate.
    #[error("no tokens to evaluate: the prompt is empty")]
    Empty,
    /// More tokens than the context holds.
    #[error("{wanted} tokens do not fit the context of {n_ctx}")]
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
    /// The caches of all sequences together are as large as they may be.
    #[error(transparent)]
    CacheFull(#[from] KvPoolFull),
}

/// The next tokens of a sequence, and what is wanted of them.
pub struct Segment<'a> {
    /// Where they go.
    pub sequence: &'a mut Sequence,
    /// At least one.
    pub tokens: &'a [u32],
    /// What the pass leaves.
    pub outputs: Outputs,
}

/// What an evaluation leaves, until the next one.
pub struct Evaluated<'a> {
    /// The wanted logits, `[token][n_vocab]`, segment after segment.
    pub logits: &'a [f32],
    /// The wanted hidden states, `[token][n_embd]`, segment after segment.
    pub hidden: &'a [f32],
    /// The threads, to work on them.
    pub compute: &'a Compute,
}

/// Says whether `model` can evaluate `tokens` in a context of `n_ctx` that holds `n_past` positions.
fn check_tokens(model: &Model, tokens: &[u32], n_past: usize, n_ctx: usize) -> Result<(), EvalError> {
    let n_vocab = model.hparams().n_vocab;
    if tokens.is_empty() {
        return Err(EvalError::Empty);
    }
    if let Some(&id) = tokens.iter().find(|&&id| id as usize >= n_vocab) {
        return Err(EvalError::BadToken { id, n_vocab });
    }
    let wanted = n_past + tokens.len();
    if wanted > n_ctx {
        return Err(EvalError::ContextFull { wanted, n_ctx });
    }
    Ok(())
}

/// Who looks on while a model computes.
#[derive(Default)]
struct Probes {
    trace: Option<Box<TraceFn<'static>>>,
    attention: Option<Box<AttentionProbe<'static>>>,
    activations: Option<Box<ActivationsProbe<'static>>>,
}

/// A model, ready to evaluate.
pub struct Engine {
    model: Arc<Model>,
    options: EngineOptions,
    compute: Compute,
    layouts: Arc<[KvLayout]>,
    pool: KvPool,
    batch: Batch,
    buffers: Buffers,
    probes: Probes,
}

impl Engine {
    /// Starts the threads. Memory is taken as it is used, not now.
    ///
    /// # Errors
    /// If keys or values of the model cannot be stored as the options say.
    pub fn new(model: Arc<Model>, options: &EngineOptions) -> Result<Engine, KvTypeError> {
        let n_threads = options.n_threads.max(1);
        let n_threads_batch = if options.n_threads_batch == 0 { n_threads } else { options.n_threads_batch };
        let options =
            EngineOptions { n_threads, n_threads_batch, n_ubatch: options.n_ubatch.max(1), ..*options };
        let layout = |&shape| KvLayout::new(options.type_k, options.type_v, shape);
        Ok(Engine {
            layouts: model.memory().iter().map(layout).collect::<Result<_, _>>()?,
            compute: Compute::new(options.kernels, n_threads.max(n_threads_batch)),
            pool: options.cache_bytes.map_or_else(KvPool::unlimited, KvPool::new),
            batch: Batch::default(),
            buffers: Buffers::default(),
            probes: Probes::default(),
            options,
            model,
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// How it computes, with defaults resolved.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// The memory that all its sequences share.
    pub fn pool(&self) -> &KvPool {
        &self.pool
    }

    /// Bytes of a page of every layer, which is what [`CHUNK`](qgguf_kernels::CHUNK) positions take.
    pub fn page_bytes(&self) -> usize {
        self.layouts.iter().map(KvLayout::page_bytes).sum()
    }

    /// Bytes of activations and other work memory.
    pub fn scratch_bytes(&self) -> usize {
        self.buffers.bytes() + self.compute.scratch_bytes()
    }

    /// An empty sequence that may hold `n_ctx` positions. Memory is taken as positions are used.
    pub fn sequence(&self, n_ctx: usize) -> Sequence {
        Sequence::new(&self.layouts, &self.pool, n_ctx)
    }

    /// Sends every named intermediate of the following evaluations to `trace`.
    pub fn set_trace(&mut self, trace: Option<Box<TraceFn<'static>>>) {
        self.probes.trace = trace;
    }

    /// Shows every attention layer of the following evaluations to `probe`.
    pub fn set_attention_probe(&mut self, probe: Option<Box<AttentionProbe<'static>>>) {
        self.probes.attention = probe;
    }

    /// Shows `probe` what weights are multiplied with in the following evaluations.
    pub fn set_activations_probe(&mut self, probe: Option<Box<ActivationsProbe<'static>>>) {
        self.probes.activations = probe;
    }

    /// Says whether `tokens` can be evaluated in a context of `n_ctx` that holds `n_past` positions.
    pub fn check(&self, tokens: &[u32], n_past: usize, n_ctx: usize) -> Result<(), EvalError> {
        check_tokens(&self.model, tokens, n_past, n_ctx)
    }

    /// Evaluates the segments together, in one pass over the weights.
    ///
    /// # Errors
    /// What [`Engine::check`] says of a segment; a pool without room for all of them. No sequence has changed then.
    pub fn eval(&mut self, segments: &mut [Segment<'_>]) -> Result<Evaluated<'_>, EvalError> {
        for Segment { sequence, tokens, .. } in &mut *segments {
            self.check(tokens, sequence.len(), sequence.n_ctx())?;
            sequence.reserve(tokens.len())?;
        }
        self.batch.clear();
        for Segment { sequence, tokens, outputs } in &mut *segments {
            // A sequence lends its memory to the pass.
            let (pos0, n_ctx) = (sequence.len(), sequence.n_ctx());
            self.batch.push(tokens, pos0, n_ctx, *outputs, sequence.lend_memory());
        }
        self.forward();
        for (i, Segment { sequence, tokens, .. }) in segments.iter_mut().enumerate() {
            sequence.extend(tokens, self.batch.take_memory(i));
        }
        Ok(self.last())
    }

    /// What the last evaluation left.
    pub fn last(&self) -> Evaluated<'_> {
        let Engine { buffers, compute, .. } = self;
        Evaluated { logits: &buffers.logits, hidden: &buffers.hidden, compute }
    }

    fn forward(&mut self) {
        let architecture = self.model.architecture();
        let EngineOptions { n_threads, n_threads_batch, .. } = self.options;
        let many = self.batch.tokens().len() > 1;
        self.compute.set_threads(if many { n_threads_batch } else { n_threads });
        self.compute.begin();
        let ropes = architecture.ropes();
        let mut graph = Graph::new(&mut self.compute, &mut self.buffers, &mut self.batch, ropes);
        if let Some(trace) = &mut self.probes.trace {
            graph.set_trace(trace);
        }
        if let Some(probe) = &mut self.probes.attention {
            graph.set_attention_probe(probe);
        }
        if let Some(probe) = &mut self.probes.activations {
            graph.set_activations_probe(probe);
        }
        architecture.forward(&mut graph);
        self.compute.end();
    }
}
