//! Answers under way: from the engine's events to what every family writes in its own way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::answer::{AnswerOptions, AnswerParser, Delta, Message};
use crate::engine::generation::StopReason;
use crate::engine::service::{Event, Outcome, TokenLogprobs};

use super::backend::Running;
use super::error::{ApiError, Result};
use super::metrics::Metrics;
use super::settings::Settings;
use super::state::Served;

/// An event on its way from the engine; without one the client read too slowly.
pub struct Item {
    /// Of which answer.
    pub choice: usize,
    /// What was added to the unread bytes.
    pub bytes: usize,
    /// What happened.
    pub event: Option<Event>,
}

/// What a client is told, whatever its family.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The prompt of an answer is being evaluated.
    Progress {
        /// Of which answer.
        choice: usize,
        /// Prompt tokens evaluated or taken from the cache.
        done: usize,
        /// All prompt tokens.
        total: usize,
        /// Those from the cache.
        n_cached: usize,
        /// Time since it began.
        time: Duration,
    },
    /// The logprobs of further tokens of the prompt, beginning with the second.
    PromptLogprobs {
        /// Of which answer.
        choice: usize,
        /// One for each token.
        logprobs: Vec<TokenLogprobs>,
    },
    /// More of an answer.
    Piece(Piece),
    /// An answer is complete.
    Done(Finish),
}

/// More of an answer.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Of which answer.
    pub choice: usize,
    /// What is new.
    pub delta: Delta,
    /// The tokens drawn since the last piece.
    pub tokens: Vec<u32>,
    /// Their logprobs, if they were asked for.
    pub logprobs: Vec<TokenLogprobs>,
    /// Times so far.
    pub timings: Timings,
}

/// How an answer ended.
#[derive(Clone, Debug)]
pub struct Finish {
    /// Which answer.
    pub choice: usize,
    /// The engine's reason.
    pub stop: StopReason,
    /// All that was told of it, and no call that was broken off.
    pub message: Message,
    /// Tokens.
    pub usage: Usage,
    /// Whether it is the first answer to its prompt.
    pub is_first: bool,
    /// Times.
    pub timings: Timings,
    /// Time in the queue.
    pub queued: Duration,
}

impl Finish {
    /// OpenAI's `finish_reason`.
    pub fn reason(&self) -> &'static str {
        match self.stop {
            StopReason::Length | StopReason::ContextFull(_) => "length",
            _ if !self.message.tool_calls.is_empty() => "tool_calls",
            _ => "stop",
        }
    }

    /// The stop string that was reached.
    pub fn stop_string(&self) -> Option<&str> {
        match &self.stop {
            StopReason::StopString(text) => Some(text),
            _ => None,
        }
    }
}

/// Tokens of one or several answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The whole prompt.
    pub prompt: usize,
    /// Those of it that were in the cache.
    pub cached: usize,
    /// Tokens generated, an end-of-generation token included.
    pub completion: usize,
    /// Those of them that are thoughts.
    pub reasoning: usize,
}

impl Usage {
    /// Adds an answer. A prompt counts once, however many answers it gets.
    pub fn add(&mut self, finish: &Finish) {
        if finish.is_first {
            self.prompt += finish.usage.prompt;
            self.cached += finish.usage.cached;
        }
        self.completion += finish.usage.completion;
        self.reasoning += finish.usage.reasoning;
    }

    /// All answers together.
    pub fn total(choices: &[Choice]) -> Usage {
        let mut usage = Usage::default();
        choices.iter().for_each(|choice| usage.add(&choice.finish));
        usage
    }

    /// OpenAI's object.
    pub fn json(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": { "cached_tokens": self.cached },
            "completion_tokens_details": { "reasoning_tokens": self.reasoning },
        })
    }
}

/// llama-server's `timings`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Prompt tokens from the cache.
    pub cache_n: usize,
    /// Prompt tokens evaluated.
    pub prompt_n: usize,
    /// Time for them.
    pub prompt: Duration,
    /// Tokens generated.
    pub predicted_n: usize,
    /// Time for them.
    pub predicted: Duration,
}

impl Timings {
    fn of(outcome: &Outcome) -> Timings {
        Timings {
            cache_n: outcome.n_cached,
            prompt_n: outcome.n_prompt.saturating_sub(outcome.n_cached),
            prompt: outcome.prompt,
            predicted_n: outcome.n_generated,
            predicted: outcome.decode,
        }
    }

    /// Its object; every value is finite.
    pub fn json(&self) -> Value {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let each = |time: Duration, n: usize| if n == 0 { 0.0 } else { ms(time) / n as f64 };
        let rate =
            |time: Duration, n: usize| if time.is_zero() { 0.0 } else { n as f64 / time.as_secs_f64() };
        json!({
            "cache_n": self.cache_n,
            "prompt_n": self.prompt_n,
            "prompt_ms": ms(self.prompt),
            "prompt_per_token_ms": each(self.prompt, self.prompt_n),
            "prompt_per_second": rate(self.prompt, self.prompt_n),
            "predicted_n": self.predicted_n,
            "predicted_ms": ms(self.predicted),
            "predicted_per_token_ms": each(self.predicted, self.predicted_n),
            "predicted_per_second": rate(self.predicted, self.predicted_n),
        })
    }
}

/// The answers to one request. Dropping it cancels those that are not complete.
pub struct Run {
    served: Arc<Served>,
    items: UnboundedReceiver<Item>,
    unread: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
    tickets: Vec<Box<dyn Running>>,
    choices: Vec<ChoiceState>,
    n_open: usize,
    /// Answers to each prompt.
    per_prompt: usize,
    /// Tokens of the first prompt.
    n_prompt: usize,
    /// Answers that one event brought and that have not been taken.
    ready: VecDeque<Answer>,
}

/// What is known of an answer so far.
struct ChoiceState {
    parser: AnswerParser,
    ignore_eos: bool,
    tokens: Vec<u32>,
    logprobs: Vec<TokenLogprobs>,
    /// When the evaluation of the prompt began.
    started: Instant,
    first_token: Option<Instant>,
    n_cached: usize,
    n_prompt: usize,
    n_tokens: usize,
    n_reasoning: usize,
}

impl Run {
    pub(super) fn new(
        served: Arc<Served>,
        items: UnboundedReceiver<Item>,
        unread: Arc<AtomicUsize>,
        metrics: Arc<Metrics>,
        n_prompt: usize,
    ) -> Run {
        Run {
            served,
            items,
            unread,
            metrics,
            tickets: Vec::new(),
            choices: Vec::new(),
            n_open: 0,
            per_prompt: 1,
            n_prompt,
            ready: VecDeque::new(),
        }
    }

    /// Another answer, which was submitted.
    pub(super) fn push(&mut self, ticket: Box<dyn Running>, reading: AnswerOptions, settings: &Settings) {
        self.tickets.push(ticket);
        self.n_open += 1;
        self.per_prompt = settings.n;
        self.choices.push(ChoiceState {
            parser: AnswerParser::new(reading),
            ignore_eos: settings.ignore_eos,
            tokens: Vec::new(),
            logprobs: Vec::new(),
            started: Instant::now(),
            first_token: None,
            n_cached: 0,
            n_prompt: 0,
            n_tokens: 0,
            n_reasoning: 0,
        });
    }

    /// The model that answers.
    pub fn served(&self) -> &Arc<Served> {
        &self.served
    }

    /// Tokens of the first prompt.
    pub fn n_prompt(&self) -> usize {
        self.n_prompt
    }

    /// Number of answers.
    pub fn n_choices(&self) -> usize {
        self.choices.len()
    }

    /// What comes next; `None` once all answers are complete. May be dropped and called again.
    ///
    /// # Errors
    /// What broke an answer off; nothing comes afterwards.
    pub async fn next(&mut self) -> Option<Result<Answer>> {
        loop {
            if let Some(answer) = self.ready.pop_front() {
                return Some(Ok(answer));
            }
            if self.n_open == 0 {
                return None;
            }
            let Some(item) = self.items.recv().await else {
                self.n_open = 0;
                return Some(Err(ApiError::internal("the engine has stopped")));
            };
            self.unread.fetch_sub(item.bytes, Ordering::Relaxed);
            if let Err(error) = self.take(item) {
                self.cancel();
                return Some(Err(error));
            }
        }
    }

    fn take(&mut self, item: Item) -> Result<()> {
        let Item { choice, event, .. } = item;
        let event = event.ok_or_else(|| ApiError::internal("the client reads too slowly"))?;
        let state = &mut self.choices[choice];
        match event {
            Event::Started { n_cached } => {
                state.started = Instant::now();
                state.n_cached = n_cached;
            }
            Event::Prompt { done, total } => {
                state.n_prompt = total;
                let (n_cached, time) = (state.n_cached, state.started.elapsed());
                self.ready.push_back(Answer::Progress { choice, done, total, n_cached, time });
            }
            Event::PromptLogprobs(logprobs) => {
                self.ready.push_back(Answer::PromptLogprobs { choice, logprobs });
            }
            Event::Token { token, text, logprobs } => {
                let is_end = self.served.model.tokenizer().is_eog(token) && !state.ignore_eos;
                state.token((!is_end).then_some(token), logprobs.filter(|_| !is_end));
                let deltas = state.parser.push(&text);
                state.count_reasoning(&deltas);
                self.tell(choice, deltas);
            }
            Event::Done(outcome) => self.done(choice, outcome)?,
            Event::Failed(error) => return Err(ApiError::internal(error.to_string())),
            Event::Embedding(_) => return Err(ApiError::internal("an embedding for an answer")),
        }
        Ok(())
    }

    /// Passes deltas on; the first takes along the tokens that have been drawn.
    fn tell(&mut self, choice: usize, deltas: Vec<Delta>) {
        let state = &mut self.choices[choice];
        for delta in deltas {
            let piece = Piece {
                choice,
                delta,
                tokens: std::mem::take(&mut state.tokens),
                logprobs: std::mem::take(&mut state.logprobs),
                timings: state.timings(),
            };
            self.ready.push_back(Answer::Piece(piece));
        }
    }

    fn done(&mut self, choice: usize, outcome: Outcome) -> Result<()> {
        if outcome.stop == StopReason::Interrupted {
            return Err(ApiError::unavailable("the server is shutting down"));
        }
        let state = &mut self.choices[choice];
        let mut deltas = state.parser.push(&outcome.text);
        let parser = std::mem::replace(&mut state.parser, AnswerParser::new(AnswerOptions::default()));
        let (last, message) = parser.finish();
        deltas.extend(last);
        if deltas.is_empty() && !state.tokens.is_empty() {
            // Tokens without text are told, too.
            deltas.push(Delta::Content(String::new()));
        }
        let reasoning = state.n_reasoning;
        self.tell(choice, deltas);
        self.n_open -= 1;
        self.ready.push_back(Answer::Done(Finish {
            choice,
            message,
            is_first: choice.is_multiple_of(self.per_prompt),
            usage: Usage {
                prompt: outcome.n_prompt,
                cached: outcome.n_cached,
                completion: outcome.n_generated,
                reasoning,
            },
            timings: Timings::of(&outcome),
            queued: outcome.queued,
            stop: outcome.stop,
        }));
        Ok(())
    }

    fn cancel(&mut self) {
        if self.n_open > 0 {
            self.tickets.iter().for_each(|ticket| ticket.cancel());
            self.metrics.cancelled();
            self.n_open = 0;
        }
    }

    /// Waits for all answers.
    ///
    /// # Errors
    /// What broke one off.
    pub async fn collect(mut self) -> Result<Vec<Choice>> {
        let mut parts: Vec<Parts> = self.choices.iter().map(|_| Parts::default()).collect();
        while let Some(answer) = self.next().await {
            match answer? {
                Answer::Progress { .. } => {}
                Answer::PromptLogprobs { choice, logprobs } => parts[choice].prompt_logprobs.extend(logprobs),
                Answer::Piece(piece) => {
                    parts[piece.choice].tokens.extend(piece.tokens);
                    parts[piece.choice].logprobs.extend(piece.logprobs);
                }
                Answer::Done(finish) => {
                    let choice = finish.choice;
                    parts[choice].finish = Some(finish);
                }
            }
        }
        parts.into_iter().map(Parts::complete).collect()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl ChoiceState {
    fn token(&mut self, token: Option<u32>, logprobs: Option<TokenLogprobs>) {
        self.first_token.get_or_insert_with(Instant::now);
        self.n_tokens += 1;
        self.tokens.extend(token);
        self.logprobs.extend(logprobs);
    }

    fn count_reasoning(&mut self, deltas: &[Delta]) {
        let thinks = matches!(deltas, [Delta::Reasoning(_)]);
        self.n_reasoning += usize::from(thinks);
    }

    fn timings(&self) -> Timings {
        let first = self.first_token.unwrap_or(self.started);
        Timings {
            cache_n: self.n_cached,
            prompt_n: self.n_prompt.saturating_sub(self.n_cached),
            prompt: first.saturating_duration_since(self.started),
            predicted_n: self.n_tokens,
            predicted: first.elapsed(),
        }
    }
}

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Its tokens, without an end-of-generation token.
    pub tokens: Vec<u32>,
    /// Their logprobs, if they were asked for.
    pub logprobs: Vec<TokenLogprobs>,
    /// Those of the prompt, if they were asked for.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Its message, and how it ended.
    pub finish: Finish,
}

impl Choice {
    /// What was said.
    pub fn message(&self) -> &Message {
        &self.finish.message
    }
}

/// An answer that is not complete.
#[derive(Default)]
struct Parts {
    tokens: Vec<u32>,
    logprobs: Vec<TokenLogprobs>,
    prompt_logprobs: Vec<TokenLogprobs>,
    finish: Option<Finish>,
}

impl Parts {
    fn complete(self) -> Result<Choice> {
        let Parts { tokens, logprobs, prompt_logprobs, finish } = self;
        let finish = finish.ok_or_else(|| ApiError::internal("an answer without an end"))?;
        Ok(Choice { tokens, logprobs, prompt_logprobs, finish })
    }
}
