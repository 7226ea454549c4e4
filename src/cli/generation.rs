//! What `run` and `chat` have in common: generation flags, the stream to stdout, timings.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use qgguf::generate::{GenerateOptions, Generation, StopReason, generate_within};
use qgguf::sampler::{Constraint, Sampler};
use qgguf::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::args::EscapeArgs;
use super::error::Result;
use super::interrupt;
use super::load::{Loaded, milliseconds};
use super::output::stdout;
use super::terminal::{self, note};

/// Tokens generated from the built-in model when `-n` is not given: it was trained on whole chapters.
const DEFAULT_N_PREDICT: usize = 128;

/// When to stop.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Generation")]
pub struct GenerationArgs {
    /// Tokens to generate at most, -1 for as many as the model likes [default: -1, 128 with the built-in model]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    n_predict: Option<i64>,
    /// Stop at this text, which is not printed; may be repeated
    #[arg(
        long,
        short = 'r',
        visible_alias = "reverse-prompt",
        value_name = "TEXT",
        allow_hyphen_values = true
    )]
    stop: Vec<String>,
    /// Go on after end-of-generation tokens, by never choosing one
    #[arg(long)]
    pub ignore_eos: bool,
    /// When the context is full, drop half of it and go on instead of stopping
    #[arg(long)]
    context_shift: bool,
    /// Tokens at the start that a context shift keeps, -1 for the whole prompt
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    keep: i64,
}

impl GenerationArgs {
    /// The options for a prompt of `n_prompt` tokens.
    pub fn options(
        &self,
        escapes: &EscapeArgs,
        n_prompt: usize,
        default_model: bool,
    ) -> Result<GenerateOptions> {
        let stop = self.stop.iter().map(|text| escapes.unescape(text)).collect::<Result<_>>()?;
        Ok(GenerateOptions {
            n_predict: match self.n_predict {
                None if default_model => Some(DEFAULT_N_PREDICT),
                None => None,
                Some(n) => usize::try_from(n).ok(),
            },
            stop,
            context_shift: self.context_shift,
            n_keep: usize::try_from(self.keep).unwrap_or(n_prompt),
            ignore_eos: self.ignore_eos,
            shown: Vec::new(),
        })
    }
}

/// A finished generation and when its first text came.
pub struct Outcome {
    /// What was generated.
    pub generation: Generation,
    /// From the start of the command (or the turn) to the first text.
    pub first_text: Option<Duration>,
}

/// Generates within the constraint, if there is one; text goes to stdout as it comes, if `show`.
pub fn stream(
    loaded: &mut Loaded,
    sampler: &mut Sampler,
    prompt: &[u32],
    options: &GenerateOptions,
    constraint: Option<Box<dyn Constraint>>,
    start: Instant,
    show: bool,
) -> Result<Outcome> {
    let mut stdout = stdout();
    let mut failed = None;
    let mut first_text = None;
    let running = interrupt::Generation::begin();
    let generation = generate_within(&mut loaded.session, sampler, prompt, options, constraint, |text| {
        first_text.get_or_insert_with(|| start.elapsed());
        if show && let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        if running.interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    Ok(Outcome { generation, first_text })
}

/// Why it stopped, for people.
pub fn explain_stop(stop: &StopReason, tokenizer: &Tokenizer) -> String {
    match stop {
        StopReason::EndOfGeneration(id) => {
            format!("end of generation ({})", terminal::quote(tokenizer.token_text(*id).as_bytes()))
        }
        StopReason::StopString(text) => format!("stop string {}", terminal::quote(text.as_bytes())),
        StopReason::Length => "as many tokens as asked for (-n)".to_owned(),
        StopReason::ContextFull(n_ctx) => {
            format!("the context of {n_ctx} is full (-c for a larger one, --context-shift to go on)")
        }
        StopReason::Interrupted => "interrupted".to_owned(),
    }
}

impl Outcome {
    /// Prints why it stopped and the timings.
    pub fn report(&self, loaded: &Loaded) {
        let g = &self.generation;
        note!(
            "qgguf: stopped after {} tokens: {}",
            g.tokens.len(),
            explain_stop(&g.stop, loaded.model.tokenizer())
        );
        self.report_timings(loaded);
    }

    /// Prints the timings.
    pub fn report_timings(&self, loaded: &Loaded) {
        let g = &self.generation;
        let first =
            self.first_text.map_or_else(String::new, |t| format!(", first text after {}", milliseconds(t)));
        note!(
            "qgguf: load {}, prefill {} tokens {}, decode {} tokens {}{first}",
            milliseconds(loaded.load_time),
            g.n_prompt_evaluated,
            rate_text(g.n_prompt_evaluated, g.prompt_time),
            g.n_decoded,
            rate_text(g.n_decoded, g.decode_time),
        );
    }

    /// The timings, for programs.
    pub fn timings(&self, loaded: &Loaded) -> Value {
        let g = &self.generation;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        json!({
            "load_ms": ms(loaded.load_time),
            "prompt_tokens": g.n_prompt_evaluated,
            "prompt_ms": ms(g.prompt_time),
            "prompt_tokens_per_second": rate(g.n_prompt_evaluated, g.prompt_time),
            "decode_tokens": g.n_decoded,
            "decode_ms": ms(g.decode_time),
            "decode_tokens_per_second": rate(g.n_decoded, g.decode_time),
            "first_text_ms": self.first_text.map(ms),
        })
    }
}

fn rate(n: usize, time: Duration) -> Option<f64> {
    (n > 0 && !time.is_zero()).then(|| n as f64 / time.as_secs_f64())
}

fn rate_text(n: usize, time: Duration) -> String {
    let time_text = milliseconds(time);
    rate(n, time)
        .map_or_else(|| format!("in {time_text}"), |rate| format!("in {time_text} ({rate:.1} tok/s)"))
}
