//! What the subcommands that evaluate a text have in common: flags, the model, the way through the chunks.

use std::path::{Path, PathBuf};
use std::time::Instant;

use qgguf::evaluate::{Chunk, Chunks, ChunksError, Estimate};
use serde_json::{Value, json};

use super::args::{self, ComputeArgs, ModelArgs};
use super::error::{Context, Failure, Result};
use super::interrupt::Generation;
use super::load::{self, Loaded};
use super::progress::Progress;
use super::terminal::note;

/// The context if none is asked for, as llama.cpp has it.
pub const DEFAULT_CTX: usize = 512;

/// Which text, and how it is cut.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Text")]
pub struct TextArgs {
    /// Text to evaluate (- for standard input); one final newline is dropped
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Tokens in a chunk, 0 for as many as the model was trained with [default: 512]
    #[arg(short, long, value_name = "N")]
    pub ctx_size: Option<usize>,
    /// Use at most so many chunks [default: all]
    #[arg(long, value_name = "N", value_parser = args::positive)]
    pub chunks: Option<usize>,
    /// Allow chunks longer than the context the model was trained with
    #[arg(long)]
    pub beyond_training: bool,
    /// Evaluate at most so many tokens together, if that is less than --ubatch-size; more changes nothing, because
    /// chunks are evaluated one after the other. The results are the same [default: as --ubatch-size]
    #[arg(short, long, value_name = "N", value_parser = args::positive)]
    pub batch_size: Option<usize>,
}

impl TextArgs {
    /// The text.
    pub fn read(&self) -> Result<String> {
        let file = self.file.as_deref().ok_or_else(|| Failure::usage("no text: give -f FILE"))?;
        let text = args::read_prompt(file)?;
        match text.is_empty() {
            true => Err(Failure::text(format!("{}: the file is empty", self.name()))),
            false => Ok(text),
        }
    }

    /// How the text is called.
    pub fn name(&self) -> String {
        self.file.as_deref().unwrap_or(Path::new("-")).display().to_string()
    }

    /// Opens a model with room for one chunk.
    pub fn load(
        &self,
        model: Option<&Path>,
        n_ctx: Option<usize>,
        compute: &ComputeArgs,
        start: Instant,
    ) -> Result<Loaded> {
        let model = ModelArgs {
            model: model.map(Path::to_owned),
            ctx_size: Some(n_ctx.or(self.ctx_size).unwrap_or(DEFAULT_CTX)),
            pre: None,
            mlock: false,
            no_mmap: false,
        };
        let ubatch_size = self.batch_size.map_or(compute.ubatch_size, |n| n.min(compute.ubatch_size));
        let compute = ComputeArgs { ubatch_size, ..compute.clone() };
        load::load_trained(&model, &compute, self.beyond_training, start)
    }

    /// The text in chunks of the model's context.
    pub fn cut(&self, text: &str, loaded: &Loaded, parse_special: bool) -> Result<Chunks> {
        let chunks = Chunks::new(loaded.model.tokenizer(), text, loaded.session.n_ctx(), parse_special);
        chunks.context(self.name())
    }

    /// At most as many chunks as asked for.
    pub fn limit(&self, chunks: Chunks) -> Result<Chunks, ChunksError> {
        self.limit_after(0, chunks)
    }

    /// At most as many chunks as asked for after the first `skip`; says so if there are not that many.
    pub fn limit_after(&self, skip: usize, chunks: Chunks) -> Result<Chunks, ChunksError> {
        let found = chunks.len().saturating_sub(skip);
        let selected = chunks.select(skip, self.chunks)?;
        if let Some(wanted) = self.chunks.filter(|&wanted| wanted > found) {
            let after = if skip > 0 { format!(" after the first {skip}") } else { String::new() };
            note!("qgguf: --chunks {wanted}: there are only {found}{after}");
        }
        Ok(selected)
    }
}

/// Goes through the chunks until the end or Ctrl-C, and says whether it got to the end. `each` returns what there is
/// to say after a chunk.
pub fn for_each(chunks: &Chunks, mut each: impl FnMut(&Chunk<'_>) -> Result<String>) -> Result<Outcome> {
    super::interrupt::listen();
    let generation = Generation::begin();
    let mut progress = Progress::start(chunks.len(), "chunk");
    let mut outcome = Outcome { complete: true, n_chunks: 0, seconds: 0.0 };
    for chunk in chunks.iter() {
        if generation.interrupted() {
            outcome.complete = false;
            break;
        }
        let state = each(&chunk)?;
        progress.step(1, &state);
        outcome.n_chunks += 1;
    }
    outcome.seconds = progress.elapsed().as_secs_f64();
    progress.finish(chunks.n_ctx());
    Ok(outcome)
}

/// How far an evaluation got.
pub struct Outcome {
    /// To the last chunk.
    pub complete: bool,
    /// Chunks evaluated.
    pub n_chunks: usize,
    /// Time it took.
    pub seconds: f64,
}

impl Outcome {
    /// Success, or the exit code of an interruption.
    pub fn result(&self) -> Result<()> {
        if self.complete { Ok(()) } else { Err(Failure::Interrupted) }
    }

    /// For `--json`.
    pub fn json(&self, chunks: &Chunks) -> Value {
        json!({
            "n_ctx": chunks.n_ctx(),
            "n_chunks": self.n_chunks,
            "complete": self.complete,
            "seconds": self.seconds,
            "tokens_per_second": (self.n_chunks * chunks.n_ctx()) as f64 / self.seconds,
        })
    }
}

/// `37.4157 ± 0.7446`.
pub fn plus_minus(estimate: Estimate, decimals: usize) -> String {
    format!("{} ± {}", fixed(estimate.value, decimals), uncertainty(estimate, decimals))
}

/// The error of a figure; a question mark if there are too few values to tell.
pub fn uncertainty(estimate: Estimate, decimals: usize) -> String {
    if estimate.error.is_nan() { "?".to_owned() } else { format!("{:.decimals$}", estimate.error) }
}

/// So many decimals; what rounds to zero has no sign.
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|byte| matches!(byte, b'0' | b'.')) => zero.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::fixed;

    #[test]
    fn zero_has_no_sign() {
        let said = [-4e-7, -6e-7, 4e-7, f64::NAN].map(|value| fixed(value, 6));
        assert_eq!(said, ["0.000000", "-0.000001", "0.000000", "NaN"]);
    }
}
