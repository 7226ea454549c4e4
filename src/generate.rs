//! The generation loop: evaluate, draw, decode, until something says stop.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::sampler::{Sampler, SamplerError};
use crate::session::{EvalError, Session};

/// When generation stops, and what happens at the end of the context.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// Tokens to generate at most; `None` for no limit.
    pub n_predict: Option<usize>,
    /// Texts that end the generation; they are not part of its text.
    pub stop: Vec<String>,
    /// At the end of the context, drop half of what follows the first [`n_keep`](Self::n_keep) tokens and go on.
    pub context_shift: bool,
    /// Tokens at the start that a context shift keeps: of the prompt, and not the last four of the context.
    pub n_keep: usize,
    /// Go on after end-of-generation tokens.
    pub ignore_eos: bool,
}

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model produced this end-of-generation token.
    EndOfGeneration(u32),
    /// The text reached this stop string.
    StopString(String),
    /// As many tokens as were asked for.
    Length,
    /// The context of this size is full.
    ContextFull(usize),
    /// The caller asked to stop.
    Interrupted,
}

impl StopReason {
    /// A word for programs: `eos`, `stop`, `length`, `context` or `interrupted`.
    pub fn name(&self) -> &'static str {
        match self {
            StopReason::EndOfGeneration(_) => "eos",
            StopReason::StopString(_) => "stop",
            StopReason::Length => "length",
            StopReason::ContextFull(_) => "context",
            StopReason::Interrupted => "interrupted",
        }
    }
}

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
    mut on_text: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<Generation, GenerateError> {
    let model = session.model().clone();
    let tokenizer = model.tokenizer();
    let start = Instant::now();
    let (_, kept) = session.eval_prompt(prompt)?;
    let prompt_time = start.elapsed();
    sampler.forget();
    prompt.iter().for_each(|&token| sampler.accept(token));

    let start = Instant::now();
    let mut detokenizer = tokenizer.stream();
    let mut text = StopText::new(&options.stop);
    let mut tokens = Vec::new();
    let mut n_decoded = 0;
    let stop = loop {
        if options.n_predict.is_some_and(|n| tokens.len() >= n) {
            break StopReason::Length;
        }
        let token = sampler.sample(session.logits())?;
        sampler.accept(token);
        tokens.push(token);
        if tokenizer.is_eog(token) && !options.ignore_eos {
            break StopReason::EndOfGeneration(token);
        }
        match text.push(&detokenizer.push(token), &mut on_text) {
            ControlFlow::Break(Some(stop)) => break StopReason::StopString(stop),
            ControlFlow::Break(None) => break StopReason::Interrupted,
            ControlFlow::Continue(()) => {}
        }
        if options.n_predict.is_some_and(|n| tokens.len() >= n) {
            break StopReason::Length;
        }
        let full = session.tokens().len() == session.n_ctx();
        if full && !(options.context_shift && shift(session, options.n_keep.min(prompt.len()))?) {
            break StopReason::ContextFull(session.n_ctx());
        }
        session.eval(&[token])?;
        n_decoded += 1;
    };
    if !matches!(stop, StopReason::StopString(_) | StopReason::Interrupted) {
        text.finish(&detokenizer.finish(), &mut on_text);
    }
    Ok(Generation {
        tokens,
        text: text.text,
        stop,
        n_prompt_evaluated: prompt.len() - kept,
        prompt_time,
        decode_time: start.elapsed(),
        n_decoded,
    })
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

/// Text on its way out: what may be the start of a stop string waits.
struct StopText<'a> {
    stops: &'a [String],
    text: String,
    sent: usize,
}

impl<'a> StopText<'a> {
    fn new(stops: &'a [String]) -> StopText<'a> {
        StopText { stops, text: String::new(), sent: 0 }
    }

    /// Breaks with the stop string that was reached, or with `None` if the receiver breaks off.
    fn push(
        &mut self,
        piece: &str,
        on_text: &mut impl FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<Option<String>> {
        self.text.push_str(piece);
        let stops = self.stops.iter().filter(|stop| !stop.is_empty());
        let found =
            stops.clone().filter_map(|stop| Some((self.text[self.sent..].find(stop.as_str())?, stop)));
        if let Some((at, stop)) = found.min_by_key(|&(at, _)| at) {
            self.text.truncate(self.sent + at);
            let _ = self.send(self.text.len(), on_text);
            return ControlFlow::Break(Some(stop.clone()));
        }
        let pending = &self.text[self.sent..];
        let held = stops.map(|stop| overlap(pending, stop)).max().unwrap_or(0);
        match self.send(self.text.len() - held, on_text) {
            ControlFlow::Break(()) => ControlFlow::Break(None),
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
        }
    }

    /// Everything that was held back, and a last piece.
    fn finish(&mut self, piece: &str, on_text: &mut impl FnMut(&str) -> ControlFlow<()>) {
        self.text.push_str(piece);
        let _ = self.send(self.text.len(), on_text);
    }

    fn send(&mut self, end: usize, on_text: &mut impl FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
        let from = std::mem::replace(&mut self.sent, end);
        if from < end { on_text(&self.text[from..end]) } else { ControlFlow::Continue(()) }
    }
}

/// Length of the longest end of `text` that `stop` starts with.
fn overlap(text: &str, stop: &str) -> usize {
    let starts = text.char_indices().map(|(at, _)| at);
    starts
        .map(|at| &text[at..])
        .filter(|end| end.len() < stop.len())
        .find(|end| stop.starts_with(end))
        .map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(pieces: &[&str], stops: &[&str]) -> (Vec<String>, String, Option<String>) {
        let stops: Vec<String> = stops.iter().map(|&s| s.to_owned()).collect();
        let mut text = StopText::new(&stops);
        let mut sent = Vec::new();
        let mut on_text = |piece: &str| {
            sent.push(piece.to_owned());
            ControlFlow::Continue(())
        };
        for piece in pieces {
            if let ControlFlow::Break(stop) = text.push(piece, &mut on_text) {
                return (sent, text.text, stop);
            }
        }
        text.finish("", &mut on_text);
        (sent, text.text, None)
    }

    #[test]
    fn a_stop_string_over_several_pieces_is_never_shown() {
        let (sent, text, stop) = stream(&["Hello U", "se", "r: hi"], &["User:"]);
        assert_eq!(sent, ["Hello "]);
        assert_eq!((text.as_str(), stop.as_deref()), ("Hello ", Some("User:")));
    }

    #[test]
    fn text_that_only_looked_like_a_stop_string_comes_out() {
        let (sent, text, stop) = stream(&["a U", "s", "e it ü", "b"], &["User:", "über"]);
        assert_eq!(sent, ["a ", "Use it ", "üb"]);
        assert_eq!((text.as_str(), stop), ("a Use it üb", None));
    }

    #[test]
    fn the_first_stop_string_in_the_text_wins() {
        let (_, text, stop) = stream(&["one two three"], &["three", "two"]);
        assert_eq!((text.as_str(), stop.as_deref()), ("one ", Some("two")));
    }

    #[test]
    fn without_stop_strings_everything_comes_at_once() {
        let (sent, ..) = stream(&["a", "", "b"], &[""]);
        assert_eq!(sent, ["a", "b"]);
    }
}
