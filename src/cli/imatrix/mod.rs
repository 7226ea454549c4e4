//! `qgguf imatrix`: how much each column of the weights matters on some text.

mod collect;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use qgguf::evaluate::{Chunk, Perplexity};
use qgguf::threads::lock;
use qgguf_convert::imatrix::{Imatrix, statistics};

use super::args::ComputeArgs;
use super::error::{Context, Failure, Result};
use super::evaluation::{self, TextArgs, plus_minus};
use super::interrupt;
use super::load::Loaded;
use super::output::{check_output, stdout, write_file};
use super::terminal::{self, note};

/// Collect an importance matrix: the squared inputs of every weight matrix on a calibration text
///
/// qgguf quantize and llama.cpp's llama-quantize spend their bits on the columns with large inputs. The sums are those
/// of llama-imatrix, and its files are read and written. A run that goes on where another stopped (--in-file, --chunk)
/// makes the GGUF file that one run would have made, byte for byte; parts that were collected apart and merged differ from
/// it by rounding, about 1e-4.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  qgguf imatrix -m f16.gguf -f calibration.txt -o imatrix.gguf
  qgguf imatrix -m f16.gguf -f calibration.txt --in-file imatrix.gguf --chunk 100    go on after chunk 100
  qgguf imatrix --in-file a.gguf --in-file b.gguf -o both.gguf                       merge
  qgguf imatrix --in-file imatrix.gguf --show-statistics")]
pub struct Args {
    /// GGUF file, or any shard of a split one; unquantized at best [default: the tiny model in models/]
    #[arg(short, long, value_name = "FILE", help_heading = "Model")]
    model: Option<PathBuf>,
    #[command(flatten)]
    text: TextArgs,
    /// Pass over the first N chunks
    #[arg(long, value_name = "N", default_value_t = 0, visible_alias = "from-chunk", help_heading = "Text")]
    chunk: usize,
    /// Make tokens of the texts of special tokens
    #[arg(long, help_heading = "Text")]
    parse_special: bool,
    /// Start from importance matrices that are there already; without -f they are merged
    #[arg(long, value_name = "FILE", help_heading = "Collection")]
    in_file: Vec<PathBuf>,
    /// Collect for the output projection too
    #[arg(long, help_heading = "Collection")]
    process_output: bool,
    /// Do not compute the perplexity on the way
    #[arg(long, help_heading = "Collection")]
    no_ppl: bool,
    #[command(flatten)]
    compute: ComputeArgs,
    /// Where the importance matrix goes
    #[arg(short, long, value_name = "FILE", default_value = "imatrix.gguf", help_heading = "Output")]
    output: PathBuf,
    /// gguf, or dat for the older format [default: dat if FILE ends in .dat]
    #[arg(long, value_name = "FORMAT", help_heading = "Output")]
    output_format: Option<Format>,
    /// Write the file after every N chunks, 0 for only at the end (-ofreq)
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Output")]
    output_frequency: usize,
    /// Keep a copy as FILE.at_K after every N chunks, 0 for none
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Output")]
    save_frequency: usize,
    /// Print what the --in-file matrix says about each tensor, and stop
    #[arg(long, requires = "in_file", help_heading = "Output")]
    show_statistics: bool,
}

/// The formats of importance matrices.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Gguf,
    Dat,
}

/// Runs the subcommand.
pub fn run(args: &Args, start: Instant) -> Result<()> {
    let n_ctx = args.text.ctx_size.filter(|&n| n > 0).unwrap_or(evaluation::DEFAULT_CTX);
    let chunk_size = u32::try_from(n_ctx).map_err(|_| Failure::usage("-c is larger than any context"))?;
    let mut known = Imatrix::default();
    for path in &args.in_file {
        let mut imatrix = Imatrix::read(path)?;
        if imatrix.chunk_size == 0 {
            note!(
                "qgguf: {}: it does not say how long its chunks are; {chunk_size} tokens are taken (-c), which has to be \
                 what it was made with, or it counts too much or too little beside the rest",
                terminal::escape(&path.display().to_string())
            );
        }
        imatrix.assume_chunk_size(chunk_size);
        known.merge(imatrix).context(path.display())?;
    }
    if args.show_statistics {
        return print_statistics(&mut stdout(), &known).map_err(Failure::from);
    }
    match &args.text.file {
        None if args.in_file.is_empty() => {
            Err(Failure::usage("no text: give -f FILE (or --in-file to merge)"))
        }
        None => {
            args.save(&known, &args.output)?;
            report_unreached(&known, |_| true, "a longer text may help");
            Ok(())
        }
        Some(file) => collect(args, known, &file.display().to_string(), start),
    }
}

/// Evaluates the text and adds what its tokens bring.
fn collect(args: &Args, known: Imatrix, dataset: &str, start: Instant) -> Result<()> {
    let text = args.text.read()?;
    let mut loaded = args.text.load(args.model.as_deref(), None, &args.compute, start)?;
    let inputs: Vec<_> =
        loaded.model.file().paths().chain(args.text.file.as_deref()).map(Path::to_owned).collect();
    check_output(&args.output, inputs.iter().map(PathBuf::as_path))?;
    // A pipe keeps everything that is written to it, so it gets the matrix once.
    let is_replaced = !fs::metadata(&args.output).is_ok_and(|m| !m.is_file());
    if args.format() == Format::Gguf && !is_replaced {
        return Err(Failure::text(format!("cannot write {}: not a regular file", args.output.display())));
    }
    let chunk_size = loaded.session.n_ctx() as u32;
    if !args.in_file.is_empty() && known.chunk_size != chunk_size {
        return Err(Failure::text(format!(
            "{}: expected chunks of {chunk_size} tokens, found {} (use the same -c)",
            args.in_file[0].display(),
            known.chunk_size
        )));
    }
    let chunks = args.text.limit_after(args.chunk, args.text.cut(&text, &loaded, args.parse_special)?)?;
    let tied = loaded.model.file().tensor("output.weight").is_none();
    if args.process_output && tied {
        note!(
            "qgguf: warning: the output projection is that of the embeddings, for which nothing is collected"
        );
    }
    let imatrix = Arc::new(Mutex::new(Imatrix { chunk_size, ..known }));
    let failed = Arc::new(Mutex::new(None));
    let (sink, failure, process_output) = (imatrix.clone(), failed.clone(), args.process_output);
    loaded.session.engine_mut().set_activations_probe(Some(Box::new(move |seen| {
        if collect::is_wanted(seen.tensor, process_output) && lock(&failure).is_none() {
            let result = collect::add(&mut lock(&sink).entries, seen);
            *lock(&failure) = result.err();
        }
    })));
    if !lock(&imatrix).datasets.iter().any(|known| known == dataset) {
        lock(&imatrix).datasets.push(dataset.to_owned());
    }
    let mut perplexity = Perplexity::default();
    let outcome = evaluation::for_each(&chunks, |chunk| {
        evaluate(args, &mut loaded, chunk, &mut perplexity)?;
        if let Some(reason) = lock(&failed).take() {
            return Err(Failure::text(reason));
        }
        let mut imatrix = lock(&imatrix);
        imatrix.count_chunks();
        let due = |every: usize| every > 0 && (chunk.index() + 1).is_multiple_of(every);
        if is_replaced && due(args.output_frequency) {
            args.save(&imatrix, &args.output)?;
        }
        if due(args.save_frequency) {
            let mut copy = args.output.clone().into_os_string();
            copy.push(format!(".at_{}", imatrix.n_chunks));
            check_output(Path::new(&copy), inputs.iter().map(PathBuf::as_path))?;
            args.save(&imatrix, Path::new(&copy))?;
        }
        let done = chunk.index() + 1;
        Ok(match args.no_ppl {
            true => format!("[{done}],"),
            false => format!("[{done}]{:.4},", perplexity.estimate().value),
        })
    })?;
    let imatrix = lock(&imatrix);
    if outcome.n_chunks > 0 {
        args.save(&imatrix, &args.output)?;
    }
    if !args.no_ppl && perplexity.n() > 0 {
        note!("qgguf: perplexity of the text {}", plus_minus(perplexity.estimate(), 4));
    }
    report_unreached(&imatrix, |_| true, "a longer text may help");
    if !outcome.complete {
        note!(
            "qgguf: to go on: -c {chunk_size} --in-file {} --chunk {}",
            args.output.display(),
            args.chunk + outcome.n_chunks
        );
    }
    if args.compute.verbose {
        loaded.report_memory();
    }
    outcome.result()
}

/// Evaluates one chunk, every token of it; the second half counts for the perplexity.
fn evaluate(args: &Args, loaded: &mut Loaded, chunk: &Chunk<'_>, perplexity: &mut Perplexity) -> Result<()> {
    let session = &mut loaded.session;
    session.truncate(0);
    for batch in chunk.batches(session.options().n_ubatch) {
        match (args.process_output, args.no_ppl) {
            (true, _) => perplexity.add(&chunk.score_after(session, &batch, 0)?.predictions),
            (false, false) => perplexity.add(&chunk.score(session, &batch)?.predictions),
            (false, true) => _ = session.eval_batch(batch.tokens, batch.tokens.len())?,
        }
    }
    Ok(())
}

impl Args {
    /// The format asked for, by name or by the name of the file.
    fn format(&self) -> Format {
        let is_dat = self.output.extension().is_some_and(|extension| extension == "dat");
        self.output_format.unwrap_or(if is_dat { Format::Dat } else { Format::Gguf })
    }

    /// Writes the matrix.
    fn save(&self, imatrix: &Imatrix, path: &Path) -> Result<()> {
        interrupt::listen();
        match self.format() {
            Format::Dat => write_file(path, |out| Ok(out.write_all(&imatrix.to_legacy())?)),
            Format::Gguf => Ok(imatrix.write_gguf(path)?),
        }
    }
}

/// Says which experts of the tensors that are `wanted` no token was sent to, and what follows.
pub fn report_unreached(imatrix: &Imatrix, wanted: impl Fn(&str) -> bool, hint: &str) {
    for (name, entry) in imatrix.entries.iter().filter(|(name, _)| wanted(name)) {
        let unreached = entry.unreached();
        if !unreached.is_empty() {
            let list: Vec<_> = unreached.iter().map(usize::to_string).collect();
            note!(
                "qgguf: warning: {}: {} of {} experts were never reached, nothing is known about them: {} ({hint})",
                terminal::escape(name),
                unreached.len(),
                entry.counts.len(),
                list.join(", ")
            );
        }
    }
}

fn print_statistics(out: &mut impl Write, imatrix: &Imatrix) -> io::Result<()> {
    writeln!(
        out,
        "{} tensors, {} chunks of {} tokens, from {}",
        imatrix.entries.len(),
        imatrix.n_chunks,
        imatrix.chunk_size,
        terminal::escape(&imatrix.datasets.join(", "))
    )?;
    let all = statistics(imatrix);
    let width = all.iter().map(|s| s.tensor.chars().count()).max().unwrap_or(0);
    writeln!(
        out,
        "{:width$} {:>12} {:>11} {:>11} {:>11} {:>11} {:>8} {:>8} {:>8} {:>9} {:>7} {:>8} {:>11}",
        "tensor",
        "sum(act^2)",
        "min",
        "max",
        "mean",
        "deviation",
        "% active",
        "columns",
        "entropy",
        "% of max",
        "% z > 1",
        "cosine",
        "experts"
    )?;
    for s in &all {
        let counts = &imatrix.entries[&s.tensor].counts;
        let reached = counts.iter().filter(|&&count| count > 0.0).count();
        let experts = if counts.len() > 1 { format!("{reached} of {}", counts.len()) } else { String::new() };
        writeln!(
            out,
            "{:width$} {:>12.4} {:>11.6} {:>11.4} {:>11.6} {:>11.6} {:>8.2} {:>8} {:>8.4} {:>9.2} {:>7.2} {:>8} {:>11}",
            terminal::escape(&s.tensor),
            s.sum,
            s.min,
            s.max,
            s.mean,
            s.deviation,
            100.0 * s.active,
            s.n,
            s.entropy,
            100.0 * s.normalized_entropy,
            100.0 * s.outliers,
            s.similarity.map_or(String::new(), |cosine| format!("{cosine:.4}")),
            experts,
        )?;
    }
    Ok(())
}
