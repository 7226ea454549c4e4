//! `qgguf perplexity`: how well a model predicts a text, or how far its predictions are from another model's.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use qgguf::evaluate::{
    Base, BaseLogits, Chunks, Distribution, Divergence, DivergenceReport, Perplexity, base_logits,
};
use serde_json::{Value, json};

use super::args::ComputeArgs;
use super::error::{Failure, Result};
use super::evaluation::{self, Outcome, TextArgs};
use super::load::Loaded;
use super::output::{check_output, stdout, write_file};
use super::terminal::{self, note};

/// Measure how well a model predicts a text
///
/// The text is cut into chunks of the context's size; the predictions in the second half of each count, as with
/// llama.cpp's llama-perplexity. The running estimate goes to standard error. With --kl-divergence-base the predictions
/// are kept in a new FILE too, in llama.cpp's format; with --kl-divergence they are compared with those in FILE instead.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  qgguf perplexity -m model.gguf -f test.txt
  qgguf perplexity -m f16.gguf -f test.txt --kl-divergence-base base.kld
  qgguf perplexity -m q4.gguf --kl-divergence --kl-divergence-base base.kld")]
pub struct Args {
    /// GGUF file, or any shard of a split one [default: the tiny model in models/]
    #[arg(short, long, value_name = "FILE", help_heading = "Model")]
    model: Option<PathBuf>,
    #[command(flatten)]
    text: TextArgs,
    /// Keep all predictions in FILE, which must not exist yet; with --kl-divergence read them from there
    #[arg(long, value_name = "FILE", group = "base", help_heading = "Comparison")]
    kl_divergence_base: Option<PathBuf>,
    /// The same, but a FILE that exists is replaced
    #[arg(long, value_name = "FILE", group = "base", help_heading = "Comparison")]
    save_all_logits: Option<PathBuf>,
    /// Compare with the predictions in the --kl-divergence-base file; its text is used (one given with -f is checked)
    #[arg(long, requires = "base", help_heading = "Comparison")]
    kl_divergence: bool,
    #[command(flatten)]
    compute: ComputeArgs,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args, start: Instant) -> Result<()> {
    match args.base() {
        Some(path) if args.kl_divergence => compare(args, path, start),
        base => measure(args, base, start),
    }
}

impl Args {
    /// The file of base logits.
    fn base(&self) -> Option<&Path> {
        self.kl_divergence_base.as_deref().or(self.save_all_logits.as_deref())
    }
}

/// Fails if there is a file already that it took long to make: without --kl-divergence a base is written, and that flag
/// is easily forgotten.
fn refuse_replacing(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(old) if old.is_file() && old.len() > 0 => Err(Failure::text(format!(
            "{}: expected no such file, found one of {}: --kl-divergence to compare with it, --save-all-logits instead \
             of --kl-divergence-base to replace it",
            path.display(),
            terminal::bytes(old.len())
        ))),
        _ => Ok(()),
    }
}

/// The perplexity, and the base logits if they are wanted.
fn measure(args: &Args, base: Option<&Path>, start: Instant) -> Result<()> {
    let text = args.text.read()?;
    let mut loaded = args.text.load(args.model.as_deref(), None, &args.compute, start)?;
    let chunks = args.text.limit(args.text.cut(&text, &loaded, false)?)?;
    let (perplexity, running, outcome) = match base {
        None => evaluate(&mut loaded, &chunks, None)?,
        Some(path) => {
            check_output(path, loaded.model.file().paths().chain(args.text.file.as_deref()))?;
            args.kl_divergence_base.as_deref().map_or(Ok(()), refuse_replacing)?;
            let mut result = None;
            let written = write_file(path, |out| {
                base_logits::write_header(out, &chunks, loaded.model.hparams().n_vocab)?;
                let (_, _, outcome) = result.insert(evaluate(&mut loaded, &chunks, Some(out))?);
                // A file that promises more chunks than it has is worth nothing.
                outcome.result()
            });
            match written {
                Err(Failure::Interrupted) => {
                    note!("qgguf: {} was not written: it would be incomplete", path.display());
                }
                other => other?,
            }
            result.expect("the chunks were evaluated for the file")
        }
    };
    finish(&mut loaded, args)?;
    let estimate = perplexity.estimate();
    if args.json {
        let mut object = json!({
            "model": loaded.path.display().to_string(),
            "file": args.text.name(),
            "ppl": estimate.value,
            "ppl_error": estimate.error,
            "nll": perplexity.nll().value(),
            "n_scored": perplexity.n(),
            "running_ppl": running,
        });
        print_json(&mut object, outcome.json(&chunks), &loaded)?;
    } else if outcome.n_chunks > 0 {
        let mut out = stdout();
        let error = evaluation::uncertainty(estimate, 5);
        writeln!(out, "Final estimate: PPL = {:.4} +/- {error}", estimate.value)?;
    }
    outcome.result()
}

/// Goes through the chunks; the records of all predictions go to `out`.
fn evaluate(
    loaded: &mut Loaded,
    chunks: &Chunks,
    mut out: Option<&mut dyn Write>,
) -> Result<(Perplexity, Vec<f64>, Outcome)> {
    let n_vocab = loaded.model.hparams().n_vocab;
    let mut perplexity = Perplexity::default();
    let mut running = Vec::new();
    let mut records = Vec::new();
    let outcome = evaluation::for_each(chunks, |chunk| {
        records.clear();
        chunk.evaluate(&mut loaded.session, |scored| {
            perplexity.add(&scored.predictions);
            if out.is_some() {
                let (size, start) = (base_logits::record_bytes(n_vocab), records.len());
                records.resize(start + size * scored.predictions.len(), 0);
                scored.compute.run_chunks(&mut records[start..], size, |i, record| {
                    let logits = &scored.logits[i * n_vocab..(i + 1) * n_vocab];
                    base_logits::encode(logits, &scored.predictions[i], record);
                });
            }
            Ok(())
        })?;
        if let Some(out) = &mut out {
            out.write_all(&records)?;
        }
        running.push(perplexity.estimate().value);
        Ok(format!("[{}]{:.4},", chunk.index() + 1, perplexity.estimate().value))
    })?;
    Ok((perplexity, running, outcome))
}

/// The divergence from the predictions in a file.
fn compare(args: &Args, path: &Path, start: Instant) -> Result<()> {
    let mut base = BaseLogits::open(path)?;
    if args.text.ctx_size.is_some_and(|n_ctx| n_ctx != base.n_ctx()) {
        return Err(Failure::usage(format!(
            "the base was made with a context of {}: leave -c away, or give the same",
            base.n_ctx()
        )));
    }
    let text = args.text.file.as_ref().map(|_| args.text.read()).transpose()?;
    let mut loaded = args.text.load(args.model.as_deref(), Some(base.n_ctx()), &args.compute, start)?;
    let all = base.chunks(loaded.model.tokenizer(), loaded.model.hparams().n_vocab)?;
    if let Some(text) = text {
        base.check_text(&args.text.cut(&text, &loaded, false)?)?;
    }
    let chunks = args.text.limit(all)?;
    let mut divergence = Divergence::default();
    let outcome = evaluation::for_each(&chunks, |chunk| {
        let mut records = base.next_chunk()?;
        chunk.evaluate(&mut loaded.session, |scored| {
            let rest = records.split_off(scored.predictions.len());
            divergence.add(&scored, Base::Records(&records));
            records = rest;
            Ok(())
        })?;
        Ok(row(chunk.index() + 1, &divergence.running()))
    })?;
    finish(&mut loaded, args)?;
    let report = divergence.report();
    if args.json {
        let mut object = json!({
            "model": loaded.path.display().to_string(),
            "base": path.display().to_string(),
            "statistics": report_json(&report),
        });
        print_json(&mut object, outcome.json(&chunks), &loaded)?;
    } else if outcome.n_chunks > 0 {
        print_report(&mut stdout(), &report)?;
    }
    outcome.result()
}

fn finish(loaded: &mut Loaded, args: &Args) -> Result<()> {
    if let Some(trace) = loaded.trace.take() {
        trace.finish()?;
    }
    if args.compute.verbose {
        loaded.report_memory();
    }
    Ok(())
}

/// The figures so far, after a chunk.
fn row(chunk: usize, report: &DivergenceReport) -> String {
    let part = evaluation::plus_minus;
    format!(
        "[{chunk}] PPL {}, ln(PPL(Q)/PPL(base)) {}, KLD {}, Δp RMS {} %, same top p {} %\n",
        part(report.ppl, 4),
        part(report.log_ratio, 5),
        part(report.divergence.mean, 5),
        part(report.rms_delta, 3),
        part(report.same_top, 3),
    )
}

fn print_json(object: &mut Value, outcome: Value, loaded: &Loaded) -> Result<()> {
    if let (Some(object), Value::Object(outcome)) = (object.as_object_mut(), outcome) {
        object.extend(outcome);
        object.insert("n_threads".to_owned(), loaded.session.options().n_threads_batch.into());
    }
    let mut line = serde_json::to_vec(object)?;
    line.push(b'\n');
    Ok(stdout().write_all(&line)?)
}

/// The statistics with the names that the table has.
pub fn report_json(report: &DivergenceReport) -> Value {
    let percentiles = |d: &Distribution| {
        let entries = d.percentiles.iter().map(|(share, value)| (format!("{share}%"), json!(value)));
        Value::Object(entries.collect())
    };
    json!({
        "n_scored": report.n,
        "ppl": report.ppl,
        "ppl_base": report.base_ppl,
        "correlation_percent": report.correlation,
        "ln_ratio": report.log_ratio,
        "ratio": report.ratio,
        "difference": report.difference,
        "kld": report.divergence.mean,
        "kld_percentiles": percentiles(&report.divergence),
        "delta_p_percent": report.delta.mean,
        "delta_p_percentiles": percentiles(&report.delta),
        "rms_delta_p_percent": report.rms_delta,
        "same_top_percent": report.same_top,
    })
}

/// All statistics, with llama-perplexity's names.
fn print_report(out: &mut impl Write, report: &DivergenceReport) -> io::Result<()> {
    let part = |e, decimals| evaluation::plus_minus(e, decimals);
    writeln!(out, "====== Perplexity statistics ======")?;
    writeln!(out, "Mean PPL(Q)                   : {}", part(report.ppl, 6))?;
    writeln!(out, "Mean PPL(base)                : {}", part(report.base_ppl, 6))?;
    let correlation = match report.correlation {
        unknown if unknown.is_nan() => "?".to_owned(),
        percent => format!("{percent:.2}"),
    };
    writeln!(out, "Cor(ln(PPL(Q)), ln(PPL(base))): {correlation}%")?;
    writeln!(out, "Mean ln(PPL(Q)/PPL(base))     : {}", part(report.log_ratio, 6))?;
    writeln!(out, "Mean PPL(Q)/PPL(base)         : {}", part(report.ratio, 6))?;
    writeln!(out, "Mean PPL(Q)-PPL(base)         : {}", part(report.difference, 6))?;
    writeln!(out, "\n====== KL divergence statistics ======")?;
    writeln!(out, "Mean    KLD: {}", part(report.divergence.mean, 6))?;
    print_percentiles(
        out,
        &report.divergence,
        "KLD",
        |share| share != 25.0 && share != 75.0,
        |v| evaluation::fixed(v, 6),
    )?;
    writeln!(out, "\n====== Token probability statistics ======")?;
    writeln!(out, "Mean    Δp: {} %", part(report.delta.mean, 3))?;
    print_percentiles(out, &report.delta, "Δp", |_| true, |v| evaluation::fixed(v, 3) + "%")?;
    writeln!(out, "RMS Δp    : {} %", part(report.rms_delta, 3))?;
    writeln!(out, "Same top p: {} %", part(report.same_top, 3))
}

fn print_percentiles(
    out: &mut impl Write,
    distribution: &Distribution,
    what: &str,
    wanted: impl Fn(f64) -> bool,
    format: impl Fn(f64) -> String,
) -> io::Result<()> {
    for &(share, value) in distribution.percentiles.iter().rev().filter(|(share, _)| wanted(*share)) {
        let name = match share {
            100.0 => "Maximum".to_owned(),
            50.0 => "Median".to_owned(),
            0.0 => "Minimum".to_owned(),
            share => format!("{share:4.1}%"),
        };
        writeln!(out, "{name:7} {what}: {}", format(value))?;
    }
    Ok(())
}
