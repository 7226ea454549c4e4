//! From logits to text, one token at a time, until something says stop.
//!
//! A [`Generator`] evaluates nothing: it takes the logits after the last token and says which token comes next, so that
//! one sequence or many can be driven by whoever evaluates.

use std::sync::Arc;

use crate::model::Model;
use crate::sampler::{Constraint, Sampler, SamplerError};
use crate::tokenizer::{Detokenizer, Tokenizer};

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
    /// Control tokens that are part of the text, for whoever parts it by them.
    pub shown: Vec<u32>,
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

/// What the logits led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The token drawn. It has to be evaluated next, unless this was the last step.
    pub token: u32,
    /// The text that is certain now: complete characters, and nothing that may still turn out to be a stop string.
    pub text: String,
    /// Why this was the last step.
    pub stop: Option<StopReason>,
}

/// The state of one text in the making.
pub struct Generator {
    model: Arc<Model>,
    sampler: Sampler,
    constraint: Option<Box<dyn Constraint>>,
    options: GenerateOptions,
    detokenizer: Detokenizer,
    text: StopText,
    stop_tokens: StopTokens,
    tokens: Vec<u32>,
}

impl Generator {
    /// A generator of what follows `prompt`. The sampler's penalties see the prompt and nothing from before.
    pub fn new(
        model: Arc<Model>,
        mut sampler: Sampler,
        prompt: &[u32],
        options: GenerateOptions,
    ) -> Generator {
        sampler.forget();
        prompt.iter().for_each(|&token| sampler.accept(token));
        Generator {
            stop_tokens: StopTokens::new(model.tokenizer(), &options.stop),
            model,
            sampler,
            constraint: None,
            detokenizer: Detokenizer::showing(options.shown.clone()),
            text: StopText::new(options.stop.clone()),
            tokens: Vec::new(),
            options,
        }
    }

    /// Lets only tokens come that `constraint` allows.
    pub fn constrained(mut self, constraint: Option<Box<dyn Constraint>>) -> Generator {
        self.constraint = constraint;
        self
    }

    /// True if there are as many tokens as were asked for, which may be none.
    pub fn is_complete(&self) -> bool {
        self.options.n_predict.is_some_and(|n| self.tokens.len() >= n)
    }

    /// Draws the next token from the logits after the last one (`n_vocab` values).
    ///
    /// # Errors
    /// Logits that are no numbers; a constraint that cannot be kept.
    pub fn push(&mut self, logits: &[f32]) -> Result<Step, SamplerError> {
        let token = match &mut self.constraint {
            Some(constraint) => {
                let token = self.sampler.sample_within(logits, constraint.mask()?)?;
                constraint.accept(token)?;
                token
            }
            None => self.sampler.sample(logits)?,
        };
        self.sampler.accept(token);
        self.tokens.push(token);
        let tokenizer = self.model.tokenizer();
        if tokenizer.is_eog(token) && !self.options.ignore_eos {
            return Ok(Step { token, text: self.finish(), stop: Some(StopReason::EndOfGeneration(token)) });
        }
        if let Some(stop) = self.stop_tokens.find(token) {
            let stop = Some(StopReason::StopString(stop.to_owned()));
            return Ok(Step { token, text: self.finish(), stop });
        }
        let (mut text, stop) = self.text.push(&self.detokenizer.push(tokenizer, token));
        if let Some(stop) = stop {
            return Ok(Step { token, text, stop: Some(StopReason::StopString(stop)) });
        }
        let complete = self.is_complete();
        if complete {
            text.push_str(&self.finish());
        }
        Ok(Step { token, text, stop: complete.then_some(StopReason::Length) })
    }

    /// Text that was held back, when no token follows.
    pub fn finish(&mut self) -> String {
        self.text.finish(&self.detokenizer.finish())
    }

    /// The tokens drawn so far, a final end-of-generation token included.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The text so far that was handed out.
    pub fn text(&self) -> &str {
        &self.text.text[..self.text.sent]
    }

    /// When it stops.
    pub fn options(&self) -> &GenerateOptions {
        &self.options
    }

    /// The sampler, for the next text.
    pub fn into_sampler(self) -> Sampler {
        self.sampler
    }
}

/// Stop texts that are one control token each: it has no text, so that they would never be seen in it.
struct StopTokens(Vec<(u32, String)>);

impl StopTokens {
    fn new(tokenizer: &Tokenizer, stops: &[String]) -> StopTokens {
        let control = |stop: &String| match tokenizer.encode(stop, false, true)[..] {
            [token] if tokenizer.piece(token, false).is_empty() => Some((token, stop.clone())),
            _ => None,
        };
        StopTokens(stops.iter().filter_map(control).collect())
    }

    fn find(&self, token: u32) -> Option<&str> {
        self.0.iter().find(|(id, _)| *id == token).map(|(_, stop)| stop.as_str())
    }
}

/// Text on its way out: what may be the start of a stop string waits.
struct StopText {
    stops: Vec<String>,
    text: String,
    sent: usize,
}

impl StopText {
    fn new(mut stops: Vec<String>) -> StopText {
        stops.retain(|stop| !stop.is_empty());
        StopText { stops, text: String::new(), sent: 0 }
    }

    /// The text that is certain with this piece, and the stop string that was reached.
    fn push(&mut self, piece: &str) -> (String, Option<String>) {
        self.text.push_str(piece);
        let pending = &self.text[self.sent..];
        let found = self.stops.iter().filter_map(|stop| Some((pending.find(stop.as_str())?, stop)));
        if let Some((at, stop)) = found.min_by_key(|&(at, _)| at) {
            let stop = stop.clone();
            self.text.truncate(self.sent + at);
            return (self.send(self.text.len()), Some(stop));
        }
        let held = self.stops.iter().map(|stop| overlap(pending, stop)).max().unwrap_or(0);
        (self.send(self.text.len() - held), None)
    }

    /// Everything that was held back, and a last piece.
    fn finish(&mut self, piece: &str) -> String {
        self.text.push_str(piece);
        self.send(self.text.len())
    }

    fn send(&mut self, end: usize) -> String {
        let from = std::mem::replace(&mut self.sent, end);
        self.text[from..end].to_owned()
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
        let mut text = StopText::new(stops.iter().map(|&s| s.to_owned()).collect());
        let mut sent = Vec::new();
        let mut found = None;
        for piece in pieces {
            let (part, stop) = text.push(piece);
            sent.extend(Some(part).filter(|part| !part.is_empty()));
            found = stop;
            if found.is_some() {
                break;
            }
        }
        if found.is_none() {
            sent.extend(Some(text.finish("")).filter(|part| !part.is_empty()));
        }
        (sent, text.text, found)
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
