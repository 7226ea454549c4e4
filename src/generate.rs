//! The generation loop: evaluate, draw, decode, until something says stop.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::engine::EvalError;
use crate::engine::generation::Generator;
pub use crate::engine::generation::{GenerateOptions, StopReason};
use crate::sampler::{Constraint, Sampler, SamplerError};
use crate::session::Session;

/// What was generated, and how long it took.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The tokens drawn, a final end-of-generation token included.
    pub tokens: Vec<u32>,
    /// Their text, without stop string and special tokens.
    pub text: String,
    /// Why it ended.
    pub stop: StopReason,
    /// Prompt tokens evaluated (not those the session already held).
    pub n_prompt_evaluated: usize,
    /// Time for these.
    pub prompt_time: Duration,
    /// Time from the first draw to the end.
    pub decode_time: Duration,
    /// Tokens evaluated one by one in that time.
    pub n_decoded: usize,
}

/// Why a generation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The tokens cannot be evaluated.
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// No token can be drawn.
    #[error(transparent)]
    Sample(#[from] SamplerError),
}

/// Evaluates `prompt` in `session` (reusing what it shares with the session's tokens) and generates.
///
/// `on_text` gets the text as it becomes certain: complete characters, and nothing that may still turn out to
/// be a stop string. It may break off.
pub fn generate(
    session: &mut Session,
    sampler: &mut Sampler,
    prompt: &[u32],
    options: &GenerateOptions,
    on_text: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<Generation, GenerateError> {
    generate_within(session, sampler, prompt, options, None, on_text)
}

/// [`generate`] with a constraint at its start: only tokens come that it allows, and the text ends where it lets it end.
pub fn generate_within(
    session: &mut Session,
    sampler: &mut Sampler,
    prompt: &[u32],
    options: &GenerateOptions,
    constraint: Option<Box<dyn Constraint>>,
    mut on_text: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<Generation, GenerateError> {
    let start = Instant::now();
    let (_, kept) = session.eval_prompt(prompt)?;
    let prompt_time = start.elapsed();

    let start = Instant::now();
    let mut generator = Generator::new(session.model().clone(), sampler.clone(), prompt, options.clone())
        .constrained(constraint);
    let mut n_decoded = 0;
    let stop = loop {
        if generator.is_complete() {
            break StopReason::Length;
        }
        let step = generator.push(session.logits())?;
        let wants_more = step.text.is_empty() || on_text(&step.text).is_continue();
        match step.stop {
            Some(stop) => break stop,
            None if !wants_more => break StopReason::Interrupted,
            None => {}
        }
        let full = session.tokens().len() == session.n_ctx();
        if full && !(options.context_shift && shift(session, options.n_keep.min(prompt.len()))?) {
            let rest = generator.finish();
            if !rest.is_empty() {
                let _ = on_text(&rest);
            }
            break StopReason::ContextFull(session.n_ctx());
        }
        session.eval(&[step.token])?;
        n_decoded += 1;
    };
    let generation = Generation {
        tokens: generator.tokens().to_vec(),
        text: generator.text().to_owned(),
        stop,
        n_prompt_evaluated: prompt.len() - kept,
        prompt_time,
        decode_time: start.elapsed(),
        n_decoded,
    };
    *sampler = generator.into_sampler();
    Ok(generation)
}

/// Positions that a context shift never keeps, so that there is always something to drop (as llama.cpp has it).
const MIN_SHIFTED: usize = 4;

/// Drops half of the tokens after the first `n_keep` and evaluates the rest anew at their new positions.
///
/// Returns false if there is nothing to drop.
fn shift(session: &mut Session, n_keep: usize) -> Result<bool, EvalError> {
    let n_tokens = session.tokens().len();
    let n_keep = n_keep.min(session.n_ctx().saturating_sub(MIN_SHIFTED));
    let n_drop = (n_tokens - n_keep) / 2;
    if n_drop == 0 {
        return Ok(false);
    }
    let rest = session.tokens()[n_keep + n_drop..].to_vec();
    session.truncate(n_keep);
    if !rest.is_empty() {
        session.eval(&rest)?;
    }
    Ok(true)
}
