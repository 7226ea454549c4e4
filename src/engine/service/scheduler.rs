//! Which tokens the next forward pass takes, and who has to make room.
//!
//! Texts in the making come first, one token each; prompts share the rest of the step's budget, first come first
//! served. When the cache is full, kept prefixes go (least recently used first), then the youngest request gives up
//! its memory and is evaluated anew when there is room: nobody is ended for want of memory.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use super::memory::Prefixes;
use super::running::Running;
use super::stats::{Slot, SlotState};
use super::{Event, Job, Outcome, RequestError, ServiceOptions, Shared};
use crate::engine::{Engine, EvalError, Segment};
use crate::threads::lock;

/// A prompt waits for another one that is being evaluated if they have at least so many tokens in common, which then
/// are evaluated once.
const WORTH_WAITING: usize = 32;

pub(super) struct Scheduler {
    engine: Engine,
    shared: std::sync::Arc<Shared>,
    /// In the order of arrival.
    waiting: VecDeque<Running>,
    /// In the order of arrival.
    running: Vec<Running>,
    prefixes: Prefixes,
    n_parallel: usize,
    n_batch: usize,
}

impl Scheduler {
    pub fn new(engine: Engine, shared: std::sync::Arc<Shared>, options: &ServiceOptions) -> Scheduler {
        Scheduler {
            engine,
            shared,
            waiting: VecDeque::new(),
            running: Vec::new(),
            prefixes: Prefixes::default(),
            n_parallel: options.n_parallel.max(1),
            n_batch: options.n_batch.max(1),
        }
    }

    /// Works until every handle is gone and everything is done.
    pub fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            if self.running.is_empty() && self.waiting.is_empty() {
                match jobs.recv() {
                    Ok(job) => self.accept(job),
                    Err(_) => return,
                }
            }
            while let Ok(job) = jobs.try_recv() {
                self.accept(job);
            }
            self.drop_cancelled();
            self.admit();
            self.step();
            self.publish();
        }
    }

    fn accept(&mut self, job: Job) {
        let empty = self.engine.sequence(self.shared.n_ctx);
        self.waiting.push_back(Running::new(job, &self.shared, empty));
    }

    fn drop_cancelled(&mut self) {
        let is_cancelled = |request: &mut Running| request.ticket.is_cancelled();
        let waiting: Vec<Running> = extract(&mut self.waiting, is_cancelled);
        let running: Vec<Running> = self.running.extract_if(.., is_cancelled).collect();
        waiting.into_iter().chain(running).for_each(|request| self.release(request));
    }

    /// Starts what waits, while there are places and memory.
    fn admit(&mut self) {
        let mut at = 0;
        while self.running.len() < self.n_parallel && at < self.waiting.len() {
            if self.is_being_evaluated(&self.waiting[at]) {
                at += 1;
                continue;
            }
            let Some(mut request) = self.waiting.remove(at) else { break };
            request.sequence = self.prefix(&request);
            let needed = request.sequence.missing_pages(request.n_pending()) + self.running.len();
            while needed > self.free_pages() && self.prefixes.drop_oldest() {}
            if needed > self.free_pages() && !self.running.is_empty() {
                let empty = self.engine.sequence(self.shared.n_ctx);
                self.prefixes.keep(std::mem::replace(&mut request.sequence, empty));
                self.waiting.insert(at, request);
                break;
            }
            if request.start(&self.shared).is_break() {
                self.release(request);
                continue;
            }
            let id = request.ticket.id();
            let place = self.running.partition_point(|other| other.ticket.id() < id);
            self.running.insert(place, request);
        }
    }

    /// True if much of what a request begins with is just being evaluated for another one.
    fn is_being_evaluated(&self, request: &Running) -> bool {
        let known = self.running.iter().map(|other| other.sequence.common_prefix(&request.tokens)).max();
        let known = known.unwrap_or(0).max(self.prefixes.longest(&request.tokens));
        let is_worth = |other: &Running| {
            let common = other.tokens.iter().zip(&request.tokens).take_while(|(a, b)| a == b).count();
            other.n_pending() > 1 && common >= known + WORTH_WAITING
        };
        request.may_reuse() && self.running.iter().any(is_worth)
    }

    /// The longest sequence that a request can start from. Its last token is evaluated in any case.
    fn prefix(&mut self, request: &Running) -> crate::engine::Sequence {
        let empty = self.engine.sequence(self.shared.n_ctx);
        if !request.may_reuse() {
            return empty;
        }
        let tokens = &request.tokens[..request.tokens.len() - 1];
        let n_kept = self.prefixes.longest(tokens);
        let running = self.running.iter().map(|other| (other.sequence.common_prefix(tokens), other));
        match running.max_by_key(|(n, _)| *n) {
            Some((n, other)) if n > n_kept => other.sequence.fork(n),
            _ if n_kept > 0 => self.prefixes.take(tokens, n_kept).unwrap_or(empty),
            _ => empty,
        }
    }

    /// Pages that could be taken from the pool.
    fn free_pages(&self) -> usize {
        let pool = self.engine.pool();
        pool.limit().saturating_sub(pool.bytes_in_use()) / self.engine.page_bytes().max(1)
    }

    /// Tokens of each request in the next pass.
    fn plan(&self) -> Vec<usize> {
        let mut plan: Vec<usize> =
            self.running.iter().map(|request| usize::from(request.is_decoding())).collect();
        // However many texts are in the making, prompts go on.
        let mut budget = self.n_batch.saturating_sub(plan.iter().sum()).max(1);
        for (n, request) in plan.iter_mut().zip(&self.running).filter(|(n, _)| **n == 0) {
            *n = request.n_wanted(budget);
            budget -= *n;
        }
        plan
    }

    /// Makes room in the pool for a plan, which may cost the youngest requests their place.
    fn make_room(&mut self, plan: &mut Vec<usize>) {
        let missing = |running: &[Running], plan: &[usize]| -> usize {
            running.iter().zip(plan).map(|(request, &n)| request.sequence.missing_pages(n)).sum()
        };
        while missing(&self.running, plan) > self.free_pages() {
            if !self.prefixes.drop_oldest() && !self.park_youngest() {
                break;
            }
            plan.truncate(self.running.len());
        }
    }

    /// Takes the memory of the youngest request, unless it is the only one.
    fn park_youngest(&mut self) -> bool {
        if self.running.len() < 2 {
            return false;
        }
        let Some(mut youngest) = self.running.pop() else { return false };
        youngest.sequence = self.engine.sequence(self.shared.n_ctx);
        self.waiting.push_front(youngest);
        lock(&self.shared.stats).n_parked += 1;
        true
    }

    /// One forward pass, and what follows from it.
    fn step(&mut self) {
        let mut plan = self.plan();
        self.make_room(&mut plan);
        let (evaluated, n_rows) = loop {
            if plan.iter().all(|&n| n == 0) {
                return;
            }
            match self.evaluate(&plan) {
                Ok(n_rows) => break (plan, n_rows),
                Err(error) => {
                    // What was counted does not fit after all: the youngest waits, or nobody is left to wait for.
                    if !self.park_youngest() {
                        self.fail_all(&error);
                        return;
                    }
                    plan.truncate(self.running.len());
                }
            }
        };
        self.distribute(&evaluated, &n_rows);
    }

    /// Evaluates the planned tokens; returns the rows of logits and of hidden states that each request has.
    fn evaluate(&mut self, plan: &[usize]) -> Result<Vec<[usize; 2]>, EvalError> {
        let mut segments = Vec::with_capacity(plan.len());
        let mut rows = Vec::with_capacity(plan.len());
        for (request, &n) in self.running.iter_mut().zip(plan) {
            let outputs = request.outputs(n);
            rows.push(if n == 0 { [0, 0] } else { outputs.n_rows(n) });
            if n > 0 {
                let Running { tokens, sequence, .. } = request;
                let tokens = &tokens[sequence.len()..][..n];
                segments.push(Segment { sequence, tokens, outputs });
            }
        }
        self.engine.eval(&mut segments)?;
        Ok(rows)
    }

    /// Hands every request what the pass left for it. Tokens are drawn on all threads.
    fn distribute(&mut self, plan: &[usize], rows: &[[usize; 2]]) {
        let evaluated = self.engine.last();
        let hparams = self.engine.model().hparams();
        let kernels = self.engine.options().kernels;
        let (mut logits, mut hidden) = (evaluated.logits, evaluated.hidden);
        let mut draws = Vec::with_capacity(plan.len());
        for ((request, &n), &[n_logits, n_hidden]) in self.running.iter_mut().zip(plan).zip(rows) {
            let (own, rest) = logits.split_at(n_logits * hparams.n_vocab);
            logits = rest;
            let (states, rest) = hidden.split_at(n_hidden * hparams.n_embd);
            hidden = rest;
            if n_hidden > 0 {
                request.take_hidden(states, n);
            }
            draws.push(Mutex::new((request, own, n_logits, None)));
        }
        evaluated.compute.run(draws.len(), |i| {
            let (request, logits, n_rows, drawn) = &mut *lock(&draws[i]);
            if *n_rows > 0 {
                *drawn = request.draw(kernels, logits, *n_rows);
            }
        });
        let shared = self.shared.clone();
        let mut ends = Vec::with_capacity(plan.len());
        for (draw, &n) in draws.into_iter().zip(plan) {
            let (request, _, _, drawn) = draw.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
            ends.push(if n == 0 { None } else { request.advance(drawn, &shared) });
        }
        self.count(plan);
        let mut ends = ends.into_iter();
        let ended: Vec<(Running, Result<Outcome, RequestError>)> = {
            let mut results = Vec::new();
            let ended = self.running.extract_if(.., |_| {
                let end = ends.next().flatten();
                let is_end = end.is_some();
                results.extend(end);
                is_end
            });
            let ended: Vec<Running> = ended.collect();
            ended.into_iter().zip(results).collect()
        };
        for (mut request, end) in ended {
            request.tell(end.map_or_else(Event::Failed, Event::Done));
            self.release(request);
        }
    }

    fn count(&self, plan: &[usize]) {
        let mut stats = lock(&self.shared.stats);
        stats.n_steps += 1;
        stats.n_busy += plan.iter().filter(|&&n| n > 0).count() as u64;
        let longest = self.running.iter().map(|request| request.sequence.len()).max().unwrap_or(0);
        stats.n_tokens_max = stats.n_tokens_max.max(longest);
    }

    fn fail_all(&mut self, error: &EvalError) {
        for mut request in std::mem::take(&mut self.running) {
            request.tell(Event::Failed(error.clone().into()));
            self.release(request);
        }
    }

    /// Forgets a request that is over, and keeps what was evaluated of it.
    fn release(&mut self, request: Running) {
        if !request.has_started() {
            self.shared.n_waiting.fetch_sub(1, Ordering::SeqCst);
        }
        let mut stats = lock(&self.shared.stats);
        let (n_prompt, n_cached) = request.prompt();
        if let Some(time) = request.prompt_time() {
            stats.n_prompt += (n_prompt - n_cached) as u64;
            stats.prompt_time += time;
            stats.decode_time += request.decode_time();
        }
        drop(stats);
        if request.cache_prompt {
            self.prefixes.keep(request.sequence);
        }
        self.shared.n_open.fetch_sub(1, Ordering::SeqCst);
    }

    /// Lets the handles see what is going on.
    fn publish(&self) {
        let mut stats = lock(&self.shared.stats);
        let slots = self.running.iter().map(|request| {
            let (n_prompt, n_cached) = request.prompt();
            Slot {
                state: if request.is_decoding() { SlotState::Generating } else { SlotState::Prompt },
                request: request.ticket.id(),
                n_prompt,
                n_cached,
                n_evaluated: request.sequence.len(),
                n_generated: request.n_generated(),
            }
        });
        let idle = std::iter::repeat_with(Slot::default);
        stats.slots.iter_mut().zip(slots.chain(idle)).for_each(|(slot, now)| *slot = now);
    }
}

/// Takes the elements for which `is_wanted` holds out of a queue.
fn extract<T>(queue: &mut VecDeque<T>, mut is_wanted: impl FnMut(&mut T) -> bool) -> Vec<T> {
    let mut wanted = Vec::new();
    for mut element in std::mem::take(queue) {
        if is_wanted(&mut element) {
            wanted.push(element);
        } else {
            queue.push_back(element);
        }
    }
    wanted
}
