//! What every family turns its requests into: prompts, and how to answer them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use crate::engine::generation::GenerateOptions;
use crate::engine::service::{Event, Generate, Logprob, Request, Sink, Task};
use crate::sampler::{Constraint, Sampler};

use super::error::{ApiError, Result};
use super::form::Form;
use super::limits::MAX_UNREAD;
use super::metrics::Metrics;
use super::run::{Item, Run};
use super::settings::Settings;
use super::state::Served;

/// Prompts to be answered.
pub struct Job {
    /// By which model.
    pub served: Arc<Served>,
    /// The tokens of each prompt.
    pub prompts: Vec<Vec<u32>>,
    /// How answers are drawn.
    pub settings: Settings,
    /// What form they have, and how they are read.
    pub form: Form,
    /// Whether the logprobs of the prompt's tokens are wanted, too.
    pub prompt_logprobs: bool,
}

impl Job {
    /// Queues every answer. What can be wrong about a request is found here, so that its response may begin afterwards.
    ///
    /// # Errors
    /// A prompt that does not fit, a grammar that cannot be compiled, a full queue: nothing goes on then.
    pub fn start(self, metrics: &Arc<Metrics>) -> Result<Run> {
        let n_ctx = self.served.n_ctx();
        if let Some(prompt) = self.prompts.iter().find(|prompt| prompt.len() >= n_ctx) {
            return Err(ApiError::context(prompt.len(), n_ctx));
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let unread = Arc::new(AtomicUsize::new(0));
        let n = self.settings.n;
        let n_prompt = self.prompts.first().map_or(0, Vec::len);
        let mut run = Run::new(self.served.clone(), receiver, unread.clone(), metrics.clone(), n_prompt);
        let requests = self.prompts.iter().flat_map(|prompt| (0..n).map(move |i| (prompt, i)));
        for (choice, (prompt, i)) in requests.enumerate() {
            let end = prompt_end(&self, prompt);
            let reading = self.form.options(&self.served, &end);
            let shown = self.served.model.tokenizer().control_ids(reading.markers());
            let constraint = self.form.constraint(&self.served, &end)?;
            let request = Request {
                prompt: prompt.clone(),
                task: Task::Generate(Box::new(self.generate(i, shown, constraint)?)),
                cache_prompt: self.settings.cache_prompt,
                sink: sink(choice, sender.clone(), unread.clone()),
            };
            run.push(self.served.backend.submit(request)?, reading, &self.settings);
        }
        Ok(run)
    }

    /// The task of the `i`th answer to a prompt.
    fn generate(
        &self,
        i: usize,
        shown: Vec<u32>,
        constraint: Option<Box<dyn Constraint>>,
    ) -> Result<Generate> {
        let Settings { params, seed, n_predict, stop, ignore_eos, logprobs, .. } = &self.settings;
        let mut params = params.clone();
        if *ignore_eos {
            let eog = self.served.model.tokenizer().eog_ids();
            params.logit_bias.extend(eog.iter().map(|&id| (id, f32::NEG_INFINITY)));
        }
        Ok(Generate {
            sampler: Sampler::new(params, seed.map(|seed| seed.wrapping_add(i as u64)))?,
            options: GenerateOptions {
                n_predict: *n_predict,
                stop: stop.clone(),
                ignore_eos: *ignore_eos,
                shown,
                ..GenerateOptions::default()
            },
            constraint,
            n_logprobs: *logprobs,
            prompt_logprobs: self.prompt_logprobs,
        })
    }
}

/// The end of a prompt as text: where the template opened a thought, the answer begins inside it.
fn prompt_end(job: &Job, prompt: &[u32]) -> String {
    const TAIL: usize = 32;
    let tail = &prompt[prompt.len().saturating_sub(TAIL)..];
    job.served.model.tokenizer().decode(tail)
}

/// Passes the events of one answer on from the engine's thread to whoever reads the run.
fn sink(choice: usize, sender: mpsc::UnboundedSender<Item>, unread: Arc<AtomicUsize>) -> Sink {
    Box::new(move |event| {
        let bytes = bytes(&event);
        if unread.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_UNREAD {
            let _ = sender.send(Item { choice, bytes, event: None });
            return ControlFlow::Break(());
        }
        match sender.send(Item { choice, bytes, event: Some(event) }) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })
}

/// Memory of an event until it is read.
fn bytes(event: &Event) -> usize {
    const PAIR: usize = size_of::<Logprob>();
    size_of::<Item>()
        + match event {
            Event::Token { text, logprobs, .. } => {
                text.capacity() + logprobs.as_ref().map_or(0, |logprobs| logprobs.top.len() * PAIR)
            }
            Event::PromptLogprobs(all) => all.iter().map(|one| size_of_val(one) + one.top.len() * PAIR).sum(),
            _ => 0,
        }
}
