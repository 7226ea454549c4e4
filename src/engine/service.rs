//! Placeholder until the engine is merged: the types of its interface.
#![allow(missing_docs)]

use std::ops::ControlFlow;
use std::time::Duration;

use crate::generate::{GenerateOptions, StopReason};
use crate::sampler::Sampler;
use crate::session::EvalError;

#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error("the queue is full")]
    QueueFull,
    #[error("the service is stopping")]
    Stopping,
    #[error(transparent)]
    Eval(#[from] EvalError),
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct ServiceError(pub String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    Mean,
    Last,
    Cls,
}

pub struct Request {
    pub prompt: Vec<u32>,
    pub task: Task,
    pub cache_prompt: bool,
    pub sink: Box<dyn FnMut(Event) -> ControlFlow<()> + Send>,
}

pub enum Task {
    Generate(Generate),
    Embed(Pooling),
}

pub struct Generate {
    pub sampler: Sampler,
    pub options: GenerateOptions,
    pub n_logprobs: Option<usize>,
    pub prompt_logprobs: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    pub token: u32,
    pub logprob: f32,
    pub top: Vec<(u32, f32)>,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub stop: StopReason,
    pub text: String,
    pub n_prompt: usize,
    pub n_cached: usize,
    pub n_generated: usize,
    pub queued: Duration,
    pub prompt_time: Duration,
    pub decode_time: Duration,
}

#[derive(Clone, Debug)]
pub enum Event {
    Started { n_cached: usize },
    Prompt { done: usize, total: usize },
    PromptLogprobs(Vec<TokenLogprobs>),
    Token { token: u32, text: String, logprobs: Option<TokenLogprobs> },
    Embedding(Vec<f32>),
    Done(Outcome),
    Failed(ServiceError),
}

#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub n_slots: usize,
    pub n_running: usize,
    pub n_queued: usize,
}
