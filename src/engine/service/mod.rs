//! Many requests on one model at once.
//!
//! A [`Service`] is the handle of a thread that owns an [`Engine`] and evaluates step after step whatever is there:
//! a token for every text in the making, and pieces of prompts with the rest of the step's budget. Requests queue,
//! tell what becomes of them through a closure, and can be cancelled at any time. What a request gets does not depend
//! on the others, not in a single bit.

mod logprobs;
mod memory;
mod running;
mod scheduler;
mod stats;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use qgguf_kernels::{CHUNK, KvPool, KvTypeError};

use super::generation::{GenerateOptions, StopReason};
use super::{Engine, EngineOptions, EvalError, check_tokens};
use crate::model::Model;
use crate::sampler::{Constraint, Sampler, SamplerError};
use crate::threads::lock;
pub use logprobs::{Logprob, TokenLogprobs};
use scheduler::Scheduler;
pub use stats::{Histogram, Slot, SlotState, Stats};

/// How a service works.
#[derive(Clone, Copy)]
pub struct ServiceOptions {
    /// How it computes. Its `cache_bytes` limit the memory of all sequences together, prefixes kept for later included.
    pub engine: EngineOptions,
    /// Positions that all sequences and kept prefixes may hold together, unless `cache_bytes` says less. A single
    /// sequence may use all of them, up to the context that the model was trained with. `None` for one sequence of
    /// [`default_n_ctx`](crate::architectures::Hparams::default_n_ctx).
    pub n_ctx: Option<usize>,
    /// Requests that are worked on at once.
    pub n_parallel: usize,
    /// Tokens of a step.
    pub n_batch: usize,
    /// Requests that may wait.
    pub n_queue: usize,
}

impl Default for ServiceOptions {
    fn default() -> ServiceOptions {
        ServiceOptions {
            engine: EngineOptions::default(),
            n_ctx: None,
            n_parallel: 4,
            n_batch: 256,
            n_queue: 256,
        }
    }
}

/// A piece of work.
pub struct Request {
    /// The tokens to start from.
    pub prompt: Vec<u32>,
    /// What is wanted of them.
    pub task: Task,
    /// Start from what earlier requests have in common with the prompt, and keep this one for later ones.
    pub cache_prompt: bool,
    /// Gets what happens, on the service's thread: it must not wait for anything. Breaking off cancels the request.
    pub sink: Sink,
}

/// Who is told what happens to a request.
pub type Sink = Box<dyn FnMut(Event) -> ControlFlow<()> + Send>;

/// What to do with a prompt.
pub enum Task {
    /// Go on with it.
    Generate(Generate),
    /// Turn it into one vector.
    Embed(Pooling),
}

/// How a prompt is continued.
pub struct Generate {
    /// Chooses the tokens.
    pub sampler: Sampler,
    /// When to stop. There is no context shift: a full context ends the text.
    pub options: GenerateOptions,
    /// What the text has to be.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Tell the log-probability of each token drawn and of this many most probable ones.
    pub n_logprobs: Option<usize>,
    /// Tell those of the prompt's tokens too. The prompt is evaluated anew for them.
    pub prompt_logprobs: bool,
}

/// How the hidden states of a prompt's tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// That of the first token.
    Cls,
    /// That of the last token.
    Last,
}

/// What happens to a request, in order. [`Event::Done`] and [`Event::Failed`] are the last.
#[derive(Debug)]
pub enum Event {
    /// It is worked on from now on.
    Started {
        /// Tokens of the prompt that need not be evaluated.
        n_cached: usize,
    },
    /// Another piece of the prompt was evaluated.
    Prompt {
        /// Tokens evaluated, cached ones included.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// The log-probabilities of further tokens of the prompt, beginning with the second.
    PromptLogprobs(Vec<TokenLogprobs>),
    /// A token was drawn.
    Token {
        /// The token.
        token: u32,
        /// Text that is certain now, which may be none.
        text: String,
        /// If asked for.
        logprobs: Option<TokenLogprobs>,
    },
    /// The vector of the prompt (`n_embd` values), not normalised.
    Embedding(Vec<f32>),
    /// It is finished.
    Done(Outcome),
    /// It could not be finished.
    Failed(RequestError),
}

/// How a request ended, and what it took.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Why the text ended; [`StopReason::Length`] for an embedding.
    pub stop: StopReason,
    /// Text that was held back until the end.
    pub text: String,
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Those that were not evaluated.
    pub n_cached: usize,
    /// Tokens drawn.
    pub n_generated: usize,
    /// From the submission until work began.
    pub queued: Duration,
    /// From then until the prompt was evaluated.
    pub prompt: Duration,
    /// From then until the end.
    pub decode: Duration,
}

/// Why a request could not be finished.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The tokens cannot be evaluated.
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// No token can be drawn.
    #[error(transparent)]
    Sample(#[from] SamplerError),
}

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// As many requests wait as may.
    #[error("the queue is full: {n_queue} requests are waiting")]
    QueueFull {
        /// How many may wait.
        n_queue: usize,
    },
    /// The service takes no more requests.
    #[error("the server is stopping")]
    Stopping,
    /// The prompt cannot be evaluated.
    #[error(transparent)]
    Eval(#[from] EvalError),
}

/// A request that was accepted.
#[derive(Clone, Debug)]
pub struct Ticket {
    id: u64,
    cancelled: Arc<AtomicBool>,
}

impl Ticket {
    /// A number that no other request of the service has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Ends the request within a step, wherever it is. Its sink hears nothing more.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// A request on its way to the service's thread.
struct Job {
    ticket: Ticket,
    request: Request,
    submitted: Instant,
}

/// What the handles and the thread have in common.
struct Shared {
    model: Arc<Model>,
    n_ctx: usize,
    n_queue: usize,
    draining: AtomicBool,
    /// Requests that were accepted and have not ended.
    n_open: AtomicUsize,
    /// Of these, those that nobody works on yet.
    n_waiting: AtomicUsize,
    n_requests: AtomicU64,
    pool: KvPool,
    stats: Mutex<Stats>,
}

/// A handle of the thread that serves requests. When the last one is gone, the thread ends what it has and stops.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
}

impl Service {
    /// Starts the thread. Memory is taken as it is used.
    ///
    /// # Errors
    /// If keys or values of the model cannot be stored as the options say.
    pub fn start(model: Arc<Model>, options: &ServiceOptions) -> Result<Service, KvTypeError> {
        let hparams = model.hparams();
        let wanted = options.n_ctx.unwrap_or_else(|| hparams.default_n_ctx()).max(1);
        let page = model.memory_bytes(CHUNK, options.engine.type_k, options.engine.type_v).max(1);
        let allowed = options.engine.cache_bytes.map_or(usize::MAX, |bytes| (bytes / page).max(1));
        let n_pages = wanted.div_ceil(CHUNK).min(allowed);
        let cache_bytes = n_pages.saturating_mul(page);
        let engine = EngineOptions { cache_bytes: Some(cache_bytes), ..options.engine };
        let engine = Engine::new(model.clone(), &engine)?;
        let shared = Arc::new(Shared {
            n_ctx: wanted.min(n_pages.saturating_mul(CHUNK)).min(hparams.n_ctx_train),
            n_queue: options.n_queue,
            draining: AtomicBool::new(false),
            n_open: AtomicUsize::new(0),
            n_waiting: AtomicUsize::new(0),
            n_requests: AtomicU64::new(0),
            pool: engine.pool().clone(),
            stats: Mutex::new(Stats::new(options.n_parallel.max(1), cache_bytes)),
            model,
        });
        let (jobs, receiver) = mpsc::channel();
        let scheduler = Scheduler::new(engine, shared.clone(), options);
        let thread = std::thread::Builder::new().name("engine".to_owned());
        thread.spawn(move || scheduler.run(&receiver)).expect("a thread can be started");
        Ok(Service { shared, jobs })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.shared.model
    }

    /// Positions that one sequence may hold.
    pub fn n_ctx(&self) -> usize {
        self.shared.n_ctx
    }

    /// Puts a request into the queue.
    ///
    /// # Errors
    /// A full queue, a service that is stopping, a prompt that can never be evaluated.
    pub fn submit(&self, request: Request) -> Result<Ticket, SubmitError> {
        let shared = &*self.shared;
        let is_draining = || shared.draining.load(Ordering::SeqCst);
        check_tokens(&shared.model, &request.prompt, 0, shared.n_ctx)?;
        if is_draining() {
            return Err(SubmitError::Stopping);
        }
        let enter = |n: usize| (n < shared.n_queue.max(1)).then_some(n + 1);
        if shared.n_waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, enter).is_err() {
            return Err(SubmitError::QueueFull { n_queue: shared.n_queue });
        }
        shared.n_open.fetch_add(1, Ordering::SeqCst);
        let id = shared.n_requests.fetch_add(1, Ordering::Relaxed);
        let ticket = Ticket { id, cancelled: Arc::default() };
        let job = Job { ticket: ticket.clone(), request, submitted: Instant::now() };
        // Whoever drains waits for what is counted as open: a request that came just now gives way.
        if is_draining() || self.jobs.send(job).is_err() {
            shared.n_open.fetch_sub(1, Ordering::SeqCst);
            shared.n_waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(SubmitError::Stopping);
        }
        Ok(ticket)
    }

    /// What it has done and is doing, as of the last step.
    pub fn stats(&self) -> Stats {
        let mut stats = lock(&self.shared.stats).clone();
        stats.n_waiting = self.shared.n_waiting.load(Ordering::SeqCst);
        stats.cache_bytes_in_use = self.shared.pool.bytes_in_use();
        stats
    }

    /// Accepts no further requests. Those that are there are finished.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::SeqCst);
    }

    /// True if nothing waits and nothing is worked on.
    pub fn is_idle(&self) -> bool {
        self.shared.n_open.load(Ordering::SeqCst) == 0
    }
}
