//! A request that is worked on: what is known of its text, and what follows from the logits after it.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use qgguf_kernels::Kernels;

use super::logprobs::TokenLogprobs;
use super::{Event, Job, Outcome, Pooling, RequestError, Shared, Sink, Task, Ticket};
use crate::architectures::Outputs;
use crate::engine::Sequence;
use crate::engine::generation::{Generator, Step, StopReason};
use crate::sampler::SamplerError;

/// Tokens of a prompt evaluated together when the logits of all of them are wanted.
const N_WITH_LOGITS: usize = 32;

/// A request that waits or is worked on.
pub(super) struct Running {
    pub ticket: Ticket,
    sink: Sink,
    pub cache_prompt: bool,
    /// The prompt, and the tokens drawn so far.
    pub tokens: Vec<u32>,
    n_prompt: usize,
    n_cached: usize,
    /// What of `tokens` was evaluated: nothing, while it waits.
    pub sequence: Sequence,
    work: Work,
    submitted: Instant,
    started: Option<Instant>,
    prompt_done: Option<Instant>,
    last_token: Option<Instant>,
}

enum Work {
    Generate { generator: Box<Generator>, n_logprobs: Option<usize>, prompt_logprobs: Option<PromptLogprobs> },
    Embed { pooling: Pooling, vector: Vec<f32> },
}

/// How many tokens of the prompt their log-probabilities were told of.
struct PromptLogprobs {
    n_told: usize,
}

/// A token drawn from the logits, and what was thought of it.
pub(super) type Drawn = (Step, Option<TokenLogprobs>);

impl Running {
    pub fn new(job: Job, shared: &Shared, empty: Sequence) -> Running {
        let Job { ticket, request, submitted } = job;
        let prompt = request.prompt;
        let work = match request.task {
            Task::Embed(pooling) => Work::Embed { pooling, vector: Vec::new() },
            Task::Generate(generate) => {
                let model = shared.model.clone();
                let generator = Generator::new(model, generate.sampler, &prompt, generate.options);
                Work::Generate {
                    generator: Box::new(generator.constrained(generate.constraint)),
                    n_logprobs: generate.n_logprobs,
                    prompt_logprobs: generate.prompt_logprobs.then_some(PromptLogprobs { n_told: 1 }),
                }
            }
        };
        Running {
            ticket,
            sink: request.sink,
            cache_prompt: request.cache_prompt,
            n_prompt: prompt.len(),
            n_cached: 0,
            tokens: prompt,
            sequence: empty,
            work,
            submitted,
            started: None,
            prompt_done: None,
            last_token: None,
        }
    }

    /// Tokens that have to be evaluated before the next one can be drawn.
    pub fn n_pending(&self) -> usize {
        self.tokens.len() - self.sequence.len()
    }

    /// True if its next step is one token of a text in the making.
    pub fn is_decoding(&self) -> bool {
        self.prompt_done.is_some() && self.n_pending() == 1
    }

    /// Whether it may start from what others evaluated: not if something is wanted of every token.
    pub fn may_reuse(&self) -> bool {
        let wants_all = match &self.work {
            Work::Generate { prompt_logprobs, .. } => prompt_logprobs.is_some() && self.prompt_done.is_none(),
            Work::Embed { .. } => true,
        };
        self.cache_prompt && !wants_all
    }

    /// Tokens of a step's `budget` that it takes.
    pub fn n_wanted(&self, budget: usize) -> usize {
        let n = self.n_pending().min(budget);
        if self.wants_prompt_logprobs() { n.min(N_WITH_LOGITS) } else { n }
    }

    fn wants_prompt_logprobs(&self) -> bool {
        let Work::Generate { prompt_logprobs: Some(told), .. } = &self.work else { return false };
        told.n_told < self.n_prompt
    }

    /// What is wanted of the next `n` pending tokens.
    pub fn outputs(&self, n: usize) -> Outputs {
        match self.work {
            Work::Embed { .. } => Outputs::Hidden,
            Work::Generate { .. } if self.wants_prompt_logprobs() => Outputs::From(0),
            Work::Generate { .. } if n == self.n_pending() => Outputs::Last,
            Work::Generate { .. } => Outputs::None,
        }
    }

    /// Says that work on it begins, unless it did before.
    pub fn start(&mut self, shared: &Shared) -> ControlFlow<()> {
        if self.started.is_some() {
            return ControlFlow::Continue(());
        }
        let now = Instant::now();
        self.started = Some(now);
        self.n_cached = self.sequence.len();
        shared.n_waiting.fetch_sub(1, Ordering::SeqCst);
        let mut stats = crate::threads::lock(&shared.stats);
        stats.queue_time.add(now - self.submitted);
        stats.n_cached += self.n_cached as u64;
        drop(stats);
        (self.sink)(Event::Started { n_cached: self.n_cached })
    }

    /// True if work on it has begun.
    pub fn has_started(&self) -> bool {
        self.started.is_some()
    }

    /// Takes the hidden states of the `n` tokens evaluated last.
    pub fn take_hidden(&mut self, hidden: &[f32], n: usize) {
        let Work::Embed { pooling, vector } = &mut self.work else { return };
        let first = self.sequence.len() == n;
        for (i, row) in hidden.chunks_exact(hidden.len() / n).enumerate() {
            match pooling {
                Pooling::Mean if !vector.is_empty() => vector.iter_mut().zip(row).for_each(|(v, x)| *v += x),
                Pooling::Cls if !(first && i == 0) => {}
                Pooling::Mean | Pooling::Cls | Pooling::Last => row.clone_into(vector),
            }
        }
    }

    /// Draws the next token from the logits of the `n` tokens evaluated last (one row, if only the last was wanted),
    /// unless tokens are pending or nothing is to be drawn. Says first what the prompt's log-probabilities are.
    pub fn draw(
        &mut self,
        kernels: Kernels,
        logits: &[f32],
        n_rows: usize,
    ) -> Option<Result<Drawn, SamplerError>> {
        let n_past = self.sequence.len();
        let n_vocab = logits.len() / n_rows.max(1);
        let Work::Generate { generator, n_logprobs, prompt_logprobs } = &mut self.work else { return None };
        if let Some(told) = prompt_logprobs.as_mut().filter(|told| told.n_told < self.n_prompt) {
            let n_top = n_logprobs.unwrap_or(0);
            let rows = logits.chunks_exact(n_vocab).enumerate();
            let rows =
                rows.map(|(i, row)| (n_past - n_rows + i + 1, row)).filter(|(next, _)| *next >= told.n_told);
            let known: Vec<TokenLogprobs> = rows
                .take_while(|(next, _)| *next < self.n_prompt)
                .map(|(next, row)| TokenLogprobs::new(kernels, row, self.tokens[next], n_top))
                .collect();
            told.n_told += known.len();
            if !known.is_empty() && (self.sink)(Event::PromptLogprobs(known)).is_break() {
                self.ticket.cancel();
            }
        }
        if n_past < self.tokens.len() || generator.is_complete() {
            return None;
        }
        let row = &logits[logits.len() - n_vocab..];
        let step = match generator.push(row) {
            Ok(step) => step,
            Err(error) => return Some(Err(error)),
        };
        let logprobs = n_logprobs.map(|n_top| TokenLogprobs::new(kernels, row, step.token, n_top));
        Some(Ok((step, logprobs)))
    }

    /// Tells what a step came to; returns how the request ended, if it did.
    pub fn advance(
        &mut self,
        drawn: Option<Result<Drawn, SamplerError>>,
        shared: &Shared,
    ) -> Option<Result<Outcome, RequestError>> {
        if self.n_pending() > 0 {
            let done = self.sequence.len().min(self.n_prompt);
            if self.prompt_done.is_none() {
                self.tell(Event::Prompt { done, total: self.n_prompt });
            }
            return None;
        }
        let now = Instant::now();
        if self.prompt_done.is_none() {
            self.prompt_done = Some(now);
            self.tell(Event::Prompt { done: self.n_prompt, total: self.n_prompt });
        }
        let (step, logprobs) = match drawn {
            None => return Some(Ok(self.conclude(now))),
            Some(Err(error)) => return Some(Err(error.into())),
            Some(Ok(drawn)) => drawn,
        };
        self.count_token(now, shared);
        self.tell(Event::Token { token: step.token, text: step.text, logprobs });
        if let Some(stop) = step.stop {
            return Some(Ok(self.outcome(stop, String::new(), now)));
        }
        let n_ctx = self.sequence.n_ctx();
        if self.sequence.len() == n_ctx {
            let Work::Generate { generator, .. } = &mut self.work else {
                unreachable!("only texts draw tokens")
            };
            let rest = generator.finish();
            return Some(Ok(self.outcome(StopReason::ContextFull(n_ctx), rest, now)));
        }
        self.tokens.push(step.token);
        None
    }

    /// The end of a request that draws nothing.
    fn conclude(&mut self, now: Instant) -> Outcome {
        if let Work::Embed { pooling, vector } = &mut self.work {
            let mut vector = std::mem::take(vector);
            if *pooling == Pooling::Mean {
                let n = self.n_prompt as f32;
                vector.iter_mut().for_each(|v| *v /= n);
            }
            self.tell(Event::Embedding(vector));
        }
        self.outcome(StopReason::Length, String::new(), now)
    }

    fn count_token(&mut self, now: Instant, shared: &Shared) {
        let mut stats = crate::threads::lock(&shared.stats);
        stats.n_generated += 1;
        match self.last_token.replace(now) {
            None => stats.time_to_first_token.add(now - self.submitted),
            Some(last) => stats.time_between_tokens.add(now - last),
        }
    }

    fn outcome(&self, stop: StopReason, text: String, now: Instant) -> Outcome {
        let started = self.started.unwrap_or(now);
        let prompt_done = self.prompt_done.unwrap_or(now);
        Outcome {
            stop,
            text,
            n_prompt: self.n_prompt,
            n_cached: self.n_cached,
            n_generated: self.n_generated(),
            queued: started - self.submitted,
            prompt: prompt_done - started,
            decode: now - prompt_done,
        }
    }

    /// Tokens drawn so far.
    pub fn n_generated(&self) -> usize {
        match &self.work {
            Work::Generate { generator, .. } => generator.tokens().len(),
            Work::Embed { .. } => 0,
        }
    }

    /// Tokens of the prompt, and those of them that were not evaluated.
    pub fn prompt(&self) -> (usize, usize) {
        (self.n_prompt, self.n_cached)
    }

    /// Time from the start until the prompt was evaluated.
    pub fn prompt_time(&self) -> Option<Duration> {
        Some(self.prompt_done? - self.started?)
    }

    /// Time since then.
    pub fn decode_time(&self) -> Duration {
        self.prompt_done.map_or(Duration::ZERO, |done| done.elapsed())
    }

    /// Tells the sink; one that breaks off cancels the request.
    pub fn tell(&mut self, event: Event) {
        if (self.sink)(event).is_break() {
            self.ticket.cancel();
        }
    }
}
