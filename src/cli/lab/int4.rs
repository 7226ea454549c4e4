//! `qgguf lab int4`: what four bits cost, by the size of the group.

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use qgguf::engine::EngineOptions;
use qgguf::lab::compare::{Answer, answer};
use qgguf::lab::int4::Scheme;
use qgguf::lab::variant::{Original, Selection, VariantError};
use qgguf::model::{Model, ModelOptions};
use qgguf::session::Session;
use qgguf::tokenizer::TokenizerOptions;
use qgguf_convert::file_type::FileType;
use qgguf_kernels::{Kernels, KvType};

use super::kinds::{Kind, KindError};
use super::prompts::{self, Prompt};
use super::report::{Measured, Report};
use super::source;
use crate::cli::args::threads;
use crate::cli::error::{Context, Failure, Result};
use crate::cli::interrupt;
use crate::cli::load;
use crate::cli::output::{check_plot, stdout, write_file};
use crate::cli::terminal::{self, note};

/// Quantize a model's weights to four bits, group by group, and show what that changes
///
/// Symmetric: scale = largest magnitude / 7, codes -7 to 7. Asymmetric: the range in 15 steps, with a code for zero. Each
/// variant answers the same prompts as the original: logits after the prompt, then greedy tokens. Only the weights
/// differ: they are f32 again when they are used, and so are activations, keys and values. Beside them stand Q4_0 and
/// Q4_K_M as llama.cpp has them.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  qgguf lab int4 -m model-f16.gguf
  qgguf lab int4 -m Qwen3-0.6B/
  qgguf lab int4 -m model-f16.gguf --groups 32,128 --except-output --markdown --plot int4.svg
  qgguf lab int4 -m model-f16.gguf --beside model-Q4_K_M-imatrix.gguf

Ctrl-C stops and shows what was measured so far.")]
pub struct Args {
    /// A GGUF whose weights are f16, bf16 or f32, or a folder with a Hugging Face checkpoint
    #[arg(short, long, value_name = "FILE")]
    model: PathBuf,
    /// Take this pre-tokenizer instead of the one that the model names
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,
    /// Weights that share a scale, with commas between the numbers
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "32,64,128,256", value_parser = group)]
    groups: Vec<usize>,
    /// Ask the prompts of FILE, with lines of --- between them, instead of the five built-in ones
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Compare other GGUFs of the same model, too; may be repeated
    #[arg(long, value_name = "FILE")]
    beside: Vec<PathBuf>,
    /// Greedy tokens to compare
    #[arg(short, long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=65536))]
    n_predict: u32,
    /// Quantize the output projection only; one that is the embeddings again leaves those as they are
    #[arg(long, conflicts_with = "except_output")]
    only_output: bool,
    /// Leave the output projection and the embeddings as they are
    #[arg(long)]
    except_output: bool,
    /// Threads [default: physical cores that this process may use]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = threads)]
    threads: Option<usize>,
    /// Show the errors of every matrix, not only the means over the layers
    #[arg(long, help_heading = "Output")]
    tensors: bool,
    /// Print tables in Markdown
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    markdown: bool,
    /// Print one JSON object; it has every matrix
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Draw the difference of the logits over the size of the group as an SVG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    plot: Option<PathBuf>,
}

/// A scale for more weights than this is no scale for groups.
const MAX_GROUP: usize = 1 << 20;

fn group(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (2..=MAX_GROUP).contains(&n) && n.is_multiple_of(2) => Ok(n),
        Ok(_) => Err(format!("expected an even number from 2 to {MAX_GROUP}: two codes share a byte")),
        Err(e) => Err(e.to_string()),
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    let inputs = [&args.model].into_iter().chain(&args.prompts).chain(&args.beside);
    check_plot(args.plot.as_deref(), inputs.map(PathBuf::as_path))?;
    let kernels = load::kernels(None)?;
    let prompts = args.prompts.as_deref().map_or_else(|| Ok(prompts::built_in()), prompts::from_file)?;
    let selection = match (args.only_output, args.except_output) {
        (true, _) => Selection::OnlyOutput,
        (_, true) => Selection::ExceptOutput,
        _ => Selection::All,
    };
    let tokenizer = TokenizerOptions { pre_override: args.pre.clone() };
    let options = ModelOptions { tokenizer, ..ModelOptions::default() };
    let model = Arc::new(source::open(&args.model, &options)?);
    let original = Original::new(model, selection).context(args.model.display())?;
    let kinds = kinds(args, &original)?;
    let lab = Lab::new(args, kernels, &original, &prompts)?;
    let mut report = Report::new(&args.model, selection, &original, lab.n_predict);
    report.prompts = prompts.iter().zip(&lab.tokens).map(|(p, t)| (p.name.clone(), t.len())).collect();

    interrupt::listen();
    let complete = lab.measure(&kinds, &original, &options, &mut report)?;
    report.complete = complete;
    if !complete && report.variants.is_empty() {
        note!("qgguf: interrupted before anything was measured");
        return Err(Failure::Interrupted);
    }
    let mut out = BufWriter::new(stdout());
    if args.json {
        serde_json::to_writer(&mut out, &report.json())?;
        writeln!(out)?;
    } else {
        report.print(&mut out, args.markdown, args.tensors)?;
    }
    out.flush()?;
    if let Some(path) = &args.plot {
        let svg = report.chart().svg()?;
        write_file(path, |out| Ok(out.write_all(svg.as_bytes())?))?;
    }
    if complete { Ok(()) } else { Err(Failure::Interrupted) }
}

/// File types to compare with.
const FILE_TYPES: [FileType; 2] = [FileType::Q4_0, FileType::Q4_K_M];

/// Everything to compare: group sizes, file types that can be made, other files.
fn kinds(args: &Args, original: &Original) -> Result<Vec<Kind>> {
    let mut groups: Vec<usize> = Vec::new();
    for &group in &args.groups {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let int4 = |scheme| groups.iter().map(move |&group| Kind::Int4 { scheme, group });
    let mut kinds: Vec<Kind> = Scheme::ALL.into_iter().flat_map(int4).collect();
    for file_type in FILE_TYPES {
        match Kind::recipe(file_type, original)? {
            Ok(kind) => kinds.push(kind),
            Err(ty) => note!("qgguf: without {file_type}: type {ty} cannot be made yet"),
        }
    }
    for path in &args.beside {
        kinds.push(Kind::file(path, original)?);
    }
    Ok(kinds)
}

/// What all variants have in common.
struct Lab {
    /// Every prompt's tokens.
    tokens: Vec<Vec<u32>>,
    n_predict: usize,
    options: EngineOptions,
}

impl Lab {
    fn new(args: &Args, kernels: Kernels, original: &Original, prompts: &[Prompt]) -> Result<Lab> {
        let model = original.model();
        let n_predict = args.n_predict as usize;
        let n_ctx = model.hparams().default_n_ctx();
        let n_max = n_ctx.saturating_sub(n_predict);
        if n_max == 0 {
            return Err(Failure::text(format!(
                "{n_predict} tokens and a prompt do not fit the context of {n_ctx} (fewer: -n)"
            )));
        }
        note!(
            "qgguf: {}: {} matrices of {}, {} of memory for the f32 weights of a variant",
            terminal::escape(&args.model.display().to_string()),
            original.matrices().len(),
            terminal::escape(&model.hparams().arch),
            terminal::bytes(original.n_weights() * 4)
        );
        Ok(Lab {
            tokens: prompts.iter().map(|prompt| prompt.tokens(model, n_max)).collect::<Result<_>>()?,
            n_predict,
            options: EngineOptions {
                n_threads: args.threads.unwrap_or_else(qgguf::threads::default_threads),
                type_k: KvType::F32,
                type_v: KvType::F32,
                kernels,
                ..EngineOptions::default()
            },
        })
    }

    /// Lets the original and every variant answer; false if Ctrl-C ended that early.
    fn measure(
        &self,
        kinds: &[Kind],
        original: &Original,
        options: &ModelOptions,
        report: &mut Report,
    ) -> Result<bool> {
        let running = interrupt::Generation::begin();
        let stop = || if running.interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let Some(expected) = self.answers(original.model(), stop)? else { return Ok(false) };
        let start = Instant::now();
        for (done, kind) in kinds.iter().enumerate() {
            let left = start.elapsed().as_secs_f64() / done as f64 * (kinds.len() - done) as f64;
            let left = if done > 0 { format!(", about {left:.0} s to go") } else { String::new() };
            note!("qgguf: {} ({} of {}{left})", kind.name(), done + 1, kinds.len());
            let variant = match original.variant(options, |matrix, weights| {
                // Matrices are large: this is where a wish to stop would wait for long.
                if stop().is_break() {
                    Err(Stopped::Interrupted)
                } else {
                    Ok(kind.quantize(self.options.kernels, matrix, weights)?)
                }
            }) {
                Ok(variant) => variant,
                Err(VariantError::Weights { source, .. }) if is_interruption(&*source) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            let Some(answers) = self.answers(&variant.model, stop)? else { return Ok(false) };
            report.variants.push(Measured::new(kind.clone(), &variant, &expected, &answers));
        }
        Ok(true)
    }

    fn answers(&self, model: &Arc<Model>, stop: impl Fn() -> ControlFlow<()>) -> Result<Option<Vec<Answer>>> {
        let mut session = Session::new(model.clone(), None, &self.options)?;
        let mut answers = Vec::new();
        for tokens in &self.tokens {
            match answer(&mut session, tokens, self.n_predict, &stop)? {
                Some(answer) => answers.push(answer),
                None => return Ok(None),
            }
        }
        Ok(Some(answers))
    }
}

/// Why a matrix was not quantized.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Weights(#[from] KindError),
}

fn is_interruption(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(Stopped::Interrupted))
}
