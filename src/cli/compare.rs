//! `qgguf compare`: what quantizations of a model cost, in one pass over a text.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use qgguf::evaluate::{self, Base, Chunks, Divergence, DivergenceReport, Perplexity};
use serde_json::{Value, json};

use super::args::ComputeArgs;
use super::error::{Failure, Result};
use super::evaluation::{self, TextArgs};
use super::inspect::Summary;
use super::interrupt::Generation;
use super::load::Loaded;
use super::output::{check_plot, stdout, write_file};
use super::perplexity::report_json;
use super::plot::{Chart, Line};
use super::terminal;

/// Compare models with each other on a text: size, perplexity, divergence from the first
///
/// The first model is the base: the unquantized one, usually. Each prediction of the others in the second half of every
/// chunk is compared with that of the base for the same tokens (Kullback-Leibler divergence, in nats), and each
/// continues the beginning of the text greedily until it says something else than the base.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  qgguf compare -m f16.gguf -m q8_0.gguf -m q4_k_m.gguf -f test.txt
  qgguf compare -m f16.gguf -m q4_0.gguf -m q4_k_m.gguf -f test.txt --chunks 20 --plot cost.svg")]
pub struct Args {
    /// GGUF files, the base first
    #[arg(short, long, value_name = "FILE", required = true, help_heading = "Models")]
    model: Vec<PathBuf>,
    #[command(flatten)]
    text: TextArgs,
    /// Tokens that each model continues the first half of the first chunk with, 0 for none
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Text")]
    greedy: usize,
    #[command(flatten)]
    compute: ComputeArgs,
    /// Draw mean divergence over size into an SVG file
    #[arg(long, value_name = "FILE.svg", help_heading = "Output")]
    plot: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// A model and what is known about it so far.
struct Subject {
    loaded: Loaded,
    name: String,
    n_bytes: u64,
    bits_per_weight: f64,
    perplexity: Perplexity,
    /// From the base.
    divergence: Divergence,
    greedy: Vec<u32>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    if args.model.len() < 2 {
        return Err(Failure::usage("nothing to compare: give -m two times or more, the base first"));
    }
    if args.compute.trace.is_some() {
        return Err(Failure::usage("--trace is for one model: use it with qgguf perplexity"));
    }
    let text = args.text.read()?;
    let mut subjects = args.model.iter().map(|path| Subject::open(path, args)).collect::<Result<Vec<_>>>()?;
    let models = subjects.iter().flat_map(|subject| subject.loaded.model.file().paths());
    check_plot(args.plot.as_deref(), models.chain(args.text.file.as_deref()))?;
    let all = args.text.cut(&text, &subjects[0].loaded, false)?;
    for other in &subjects[1..] {
        check_vocabulary(&subjects[0], other, &all, &args.text.cut(&text, &other.loaded, false)?)?;
    }
    let chunks = args.text.limit(all)?;
    let mut outcome = evaluation::for_each(&chunks, |chunk| {
        let (base, others) = subjects.split_first_mut().expect("at least two");
        base.loaded.session.truncate(0);
        others.iter_mut().for_each(|other| other.loaded.session.truncate(0));
        for batch in chunk.batches(base.loaded.session.options().n_ubatch) {
            let expected = chunk.score(&mut base.loaded.session, &batch)?;
            base.perplexity.add(&expected.predictions);
            for other in &mut *others {
                let scored = chunk.score(&mut other.loaded.session, &batch)?;
                other.perplexity.add(&scored.predictions);
                other.divergence.add(&scored, Base::Logits(expected.logits, &expected.predictions));
            }
        }
        let kld: Vec<_> = others.iter().map(|o| format!("{:.6}", o.divergence.mean().value)).collect();
        let ppl = base.perplexity.estimate().value;
        Ok(format!("[{}] PPL {ppl:.4}, KLD {}\n", chunk.index() + 1, kld.join(" ")))
    })?;
    if outcome.n_chunks == 0 {
        return outcome.result();
    }
    let n_greedy = args.greedy.min(chunks.n_ctx() - chunks.n_ctx() / 2);
    if outcome.complete && n_greedy > 0 {
        let first = chunks.iter().next().expect("at least one");
        let prompt = &first.input()[..chunks.n_ctx() / 2];
        let running = Generation::begin();
        let stop = || if running.interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        for subject in &mut subjects {
            subject.greedy = evaluate::greedy(&mut subject.loaded.session, prompt, n_greedy, stop)?;
        }
        outcome.complete = !running.interrupted();
    }
    let reports: Vec<_> = subjects.iter().map(|subject| subject.divergence.report()).collect();
    if args.json {
        let rows: Vec<_> = (subjects.iter().zip(&reports).enumerate())
            .map(|(i, (subject, report))| subject.json((i > 0).then_some((report, &*subjects[0].greedy))))
            .collect();
        let object = json!({"file": args.text.name(), "run": outcome.json(&chunks), "models": rows});
        let mut line = serde_json::to_vec(&object)?;
        line.push(b'\n');
        stdout().write_all(&line)?;
    } else {
        print_table(&mut stdout(), &subjects, &reports)?;
    }
    if let Some(path) = &args.plot {
        let chart = chart(&subjects, &reports).svg()?;
        write_file(path, |file| Ok(file.write_all(chart.as_bytes())?))?;
    }
    outcome.result()
}

/// Predictions can only be compared if they are for the same tokens.
fn check_vocabulary(base: &Subject, other: &Subject, expected: &Chunks, found: &Chunks) -> Result<()> {
    let n_vocab = |subject: &Subject| subject.loaded.model.hparams().n_vocab;
    let (wanted, has) = (n_vocab(base), n_vocab(other));
    let path = other.loaded.path.display();
    if wanted != has {
        return Err(Failure::text(format!(
            "{path}: expected the vocabulary of {wanted} tokens of the base, found {has}: it is another model"
        )));
    }
    if expected != found {
        let i = evaluate::first_difference(expected.tokens(), found.tokens());
        let at = i.map_or(String::new(), |i| format!(" (token {i} of the text is {})", found.tokens()[i]));
        return Err(Failure::text(format!("{path}: its tokenizer is not that of the base{at}")));
    }
    Ok(())
}

impl Subject {
    fn open(path: &Path, args: &Args) -> Result<Subject> {
        let loaded = args.text.load(Some(path), None, &args.compute, Instant::now())?;
        let all = Summary::of(loaded.model.file()).all;
        Ok(Subject {
            name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            n_bytes: loaded.model.file().mapped_bytes(),
            bits_per_weight: 8.0 * all.n_bytes as f64 / all.n_parameters.max(1) as f64,
            perplexity: Perplexity::default(),
            divergence: Divergence::default(),
            greedy: Vec::new(),
            loaded,
        })
    }

    /// The row of the table as an object; `compared` has the figures beside the base.
    fn json(&self, compared: Option<(&DivergenceReport, &[u32])>) -> Value {
        json!({
            "model": self.loaded.path.display().to_string(),
            "n_bytes": self.n_bytes,
            "bits_per_weight": self.bits_per_weight,
            "ppl": self.perplexity.estimate(),
            "statistics": compared.map(|(report, _)| report_json(report)),
            "n_greedy": self.greedy.len(),
            "first_greedy_difference": compared.and_then(|(_, base)| evaluate::first_difference(base, &self.greedy)),
        })
    }
}

fn print_table(out: &mut impl Write, subjects: &[Subject], reports: &[DivergenceReport]) -> io::Result<()> {
    let head = [
        "model",
        "size",
        "bits/weight",
        "PPL",
        "mean KLD",
        "99 % KLD",
        "max KLD",
        "same top token %",
        "first greedy difference",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for (i, (subject, report)) in subjects.iter().zip(reports).enumerate() {
        let beside_base = |cell: String| if i == 0 { "base".to_owned() } else { cell };
        let difference = match evaluate::first_difference(&subjects[0].greedy, &subject.greedy) {
            Some(at) => format!("token {}", at + 1),
            None => match subject.greedy.len().min(subjects[0].greedy.len()) {
                0 => "-".to_owned(),
                n => format!("none in {n}"),
            },
        };
        rows.push([
            terminal::escape(&subject.name).into_owned(),
            terminal::bytes(subject.n_bytes),
            format!("{:.2}", subject.bits_per_weight),
            evaluation::plus_minus(subject.perplexity.estimate(), 4),
            beside_base(evaluation::plus_minus(report.divergence.mean, 6)),
            beside_base(evaluation::fixed(report.divergence.percentile(99.0), 6)),
            beside_base(evaluation::fixed(report.divergence.max(), 6)),
            beside_base(evaluation::plus_minus(report.same_top, 2)),
            beside_base(difference),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 9] = std::array::from_fn(width);
    for (i, row) in rows.iter().enumerate() {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
        if i == 0 {
            let rules = widths.map(|width| "-".repeat(width + 2));
            writeln!(out, "|{}|", rules.join("|"))?;
        }
    }
    Ok(())
}

/// Mean divergence over size, a point for each model.
fn chart(subjects: &[Subject], reports: &[DivergenceReport]) -> Chart {
    let mut points: Vec<_> = subjects.iter().zip(reports).skip(1).collect();
    points.sort_by_key(|(subject, _)| subject.n_bytes);
    let line = |(subject, report): &(&Subject, &DivergenceReport)| Line {
        label: subject.name.clone(),
        points: vec![(subject.n_bytes as f64 / f64::from(1 << 20), report.divergence.mean.value)],
    };
    Chart {
        title: format!("divergence from {}", subjects[0].name),
        x_label: "size, MiB".to_owned(),
        y_label: "mean KL divergence, nats".to_owned(),
        lines: points.iter().map(line).collect(),
    }
}
