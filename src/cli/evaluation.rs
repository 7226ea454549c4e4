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
    /// Changes nothing: chunks are evaluated one after the other, each in whole ubatches
    #[arg(short, long, value_name = "N", hide = true, value_parser = args::positive)]
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
        let loaded = load::load(&model, compute, start)?;
        let (n_ctx, trained) = (loaded.model.n_ctx(), loaded.model.hparams().n_ctx_train);
        if n_ctx > trained && !self.beyond_training {
            return Err(Failure::text(format!(
                "{}: expected a context of at most {trained}, which the model was trained with, found {n_ctx} \
                 (--beyond-training to allow it)",
                loaded.path.display()
            )));
        }
        Ok(loaded)
    }

    /// The text in chunks of the model's context.
    pub fn cut(&self, text: &str, loaded: &Loaded, parse_special: bool) -> Result<Chunks> {
        let chunks = Chunks::new(loaded.model.tokenizer(), text, loaded.model.n_ctx(), parse_special);
        chunks.context(self.name())
    }

    /// At most as many chunks as asked for.
    pub fn limit(&self, chunks: Chunks) -> Result<Chunks, ChunksError> {
        self.limit_after(0, chunks)
    }

    /// At most as many chunks as asked for after the first `skip`.
    pub fn limit_after(&self, skip: usize, chunks: Chunks) -> Result<Chunks, ChunksError> {
        chunks.select(skip, self.chunks)
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
        progress.step(&state);
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
    format!("{:.decimals$} ± {:.decimals$}", estimate.value, estimate.error)
}
