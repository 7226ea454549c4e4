//! `qgguf attention`: attention sinks made visible.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use qgguf::lab::attention::{LayerShares, Recorder, Share};
use serde_json::{Value, json};

use super::args::{ComputeArgs, ModelArgs, PromptArgs};
use super::error::{Failure, Result};
use super::interrupt;
use super::load::{self, Loaded};
use super::output::{check_plot, stdout, write_file};
use super::plot::{HeatMap, Map};
use super::progress::Progress;
use super::terminal::{self, note};

/// Show how much attention goes to the first token and to each position itself
///
/// Softmax hands out all of its weight; a head that looks for nothing leaves it with the first token, which then gets
/// far more than an even share: an attention sink. Shares are means over the positions from --from on.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  qgguf attention -m model.gguf -f text.txt --plot sinks.svg
  qgguf attention -m model.gguf -f text.txt --layer 0,12 --head all

Ctrl-C stops reading the prompt and shows what was measured so far.")]
pub struct Args {
    /// Layers to show: all, or numbers from 0 with commas between them
    #[arg(long, value_name = "LAYERS", default_value = "all")]
    layer: Selection,
    /// Heads to show one by one: all, or numbers from 0 [default: only the mean, the least and the most of a layer]
    #[arg(long, value_name = "HEADS")]
    head: Option<Selection>,
    /// First position that counts: those before see too few others
    #[arg(long, value_name = "POSITION", default_value = "50")]
    from: usize,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    model: ModelArgs,
    /// Allow a context longer than the one the model was trained with
    #[arg(long, help_heading = "Model")]
    beyond_training: bool,
    #[command(flatten)]
    compute: ComputeArgs,
    /// Draw the shares of all heads of these layers as an SVG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    plot: Option<PathBuf>,
    /// Print one JSON object instead of a table; it has every head
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Some layers or heads.
#[derive(Clone, Debug)]
enum Selection {
    All,
    Some(Vec<usize>),
}

impl std::str::FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Selection, String> {
        if text == "all" {
            return Ok(Selection::All);
        }
        let number = |part: &str| {
            part.trim().parse().map_err(|_| format!("\"{part}\" is no number; expected all or 0,1,2"))
        };
        let mut numbers = text.split(',').map(number).collect::<Result<Vec<usize>, _>>()?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Selection::Some(numbers))
    }
}

impl Selection {
    /// The chosen ones of `n`.
    fn of(&self, n: usize, what: &str) -> Result<Vec<usize>> {
        match self {
            Selection::All => Ok((0..n).collect()),
            Selection::Some(numbers) => match numbers.iter().find(|&&i| i >= n) {
                Some(i) => Err(Failure::text(format!(
                    "there is no {what} {i}: the model has {n}, from 0 to {}",
                    n - 1
                ))),
                None => Ok(numbers.clone()),
            },
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, start: Instant) -> Result<()> {
    let text = args.prompt.read()?;
    let mut loaded = load::load_trained(&args.model, &args.compute, args.beyond_training, start)?;
    let inputs = loaded.model.file().paths().chain(args.prompt.file.as_deref());
    check_plot(args.plot.as_deref(), inputs)?;
    let hparams = loaded.model.hparams();
    let layers = args.layer.of(hparams.n_layer, "layer")?;
    let n_head = layers.iter().map(|&il| hparams.n_head[il]).max().unwrap_or(0);
    let heads = args.head.as_ref().map_or(Ok(Vec::new()), |heads| heads.of(n_head, "head"))?;
    let tokens = loaded.model.tokenizer().encode(&text, true, true);
    loaded.session.check_prompt(&tokens)?;
    if tokens.len() <= args.from {
        return Err(Failure::text(format!(
            "the prompt has {} tokens; shares from position {} on need at least {} (a longer prompt, or a smaller --from)",
            tokens.len(),
            args.from,
            args.from as u128 + 1
        )));
    }
    let recorder = Recorder::attach(&mut loaded.session, args.from, &layers);
    let interrupted = evaluate(&mut loaded, &tokens, args.compute.ubatch_size)?;
    let shares = recorder.shares();
    if let Some(trace) = loaded.trace.take() {
        trace.finish()?;
    }
    if shares.is_empty() {
        note!("qgguf: stopped before position {}: nothing was measured", args.from);
        return Err(Failure::Interrupted);
    }
    let mut out = BufWriter::new(stdout());
    if args.json {
        print_json(&mut out, &loaded, &tokens, args.from, &shares)?;
    } else {
        print_table(&mut out, &loaded, &tokens, args.from, &shares, &heads)?;
    }
    out.flush()?;
    if let Some(path) = &args.plot {
        let svg = plot(&loaded, &shares).svg()?;
        write_file(path, |out| Ok(out.write_all(svg.as_bytes())?))?;
    }
    if interrupted { Err(Failure::Interrupted) } else { Ok(()) }
}

/// Evaluates the tokens, a ubatch at a time; true if Ctrl-C ended that early.
fn evaluate(loaded: &mut Loaded, tokens: &[u32], n_ubatch: usize) -> Result<bool> {
    interrupt::listen();
    let running = interrupt::Generation::begin();
    let mut progress = Progress::start(tokens.len(), "token");
    for batch in tokens.chunks(n_ubatch) {
        if running.interrupted() {
            break;
        }
        loaded.session.eval(batch)?;
        progress.step(batch.len(), &format!("[{}],", loaded.session.tokens().len()));
    }
    progress.finish(1);
    Ok(loaded.session.tokens().len() < tokens.len())
}

/// What both kinds of share are called, and how they are taken.
const KINDS: [(&str, Take); 2] =
    [("to the first token", |share| share.first), ("to itself", |share| share.own)];
type Take = fn(&Share) -> f64;

fn print_table(
    out: &mut impl Write,
    loaded: &Loaded,
    tokens: &[u32],
    from: usize,
    shares: &[LayerShares],
    heads: &[usize],
) -> io::Result<()> {
    let first = terminal::quote(&loaded.model.tokenizer().piece(tokens[0], true));
    let n = shares[0].n_positions;
    writeln!(out, "attention of positions {from} to {}, in %; the first token is {first}", from + n - 1)?;
    writeln!(out)?;
    writeln!(out, "{:>5} {:>4} {:>6} {:>35} {:>35}", "", "", "", KINDS[0].0, KINDS[1].0)?;
    write!(out, "layer head window")?;
    for _ in KINDS {
        write!(out, " {:>8} {:>8} {:>8} {:>8}", "mean", "least", "most", "even")?;
    }
    writeln!(out)?;
    for layer in shares {
        let window = layer.window.map_or("-".to_owned(), |window| window.to_string());
        write!(out, "{:>5} {:>4} {window:>6}", layer.layer, "all")?;
        for (_, share) in KINDS {
            let of_heads = || layer.heads.iter().map(share);
            let (least, most) = (of_heads().fold(1.0, f64::min), of_heads().fold(0.0, f64::max));
            for value in [share(&layer.mean()), least, most, share(&layer.even)] {
                write!(out, " {:>8.2}", 100.0 * value)?;
            }
        }
        writeln!(out)?;
        for &head in heads.iter().filter(|&&head| head < layer.heads.len()) {
            let share = layer.heads[head];
            let (first, own) = (100.0 * share.first, 100.0 * share.own);
            writeln!(out, "{:>5} {head:>4} {:>6} {first:>8.2} {:>26} {own:>8.2}", layer.layer, "", "")?;
        }
    }
    if shares.len() > 1 {
        let mean = |share: Take| {
            shares.iter().map(|layer| share(&layer.mean())).sum::<f64>() / shares.len() as f64 * 100.0
        };
        writeln!(
            out,
            "\nmean over {} layers: {:.2} % to the first token, {:.2} % to itself",
            shares.len(),
            mean(KINDS[0].1),
            mean(KINDS[1].1)
        )?;
    }
    Ok(())
}

fn print_json(
    out: &mut impl Write,
    loaded: &Loaded,
    tokens: &[u32],
    from: usize,
    shares: &[LayerShares],
) -> Result<()> {
    let share = |share: &Share| json!({"first": share.first, "self": share.own});
    let layers: Vec<Value> = shares
        .iter()
        .map(|layer| {
            json!({
                "layer": layer.layer,
                "window": layer.window,
                "mean": share(&layer.mean()),
                "even": share(&layer.even),
                "heads": layer.heads.iter().map(share).collect::<Vec<_>>(),
            })
        })
        .collect();
    let object = json!({
        "model": loaded.path.display().to_string(),
        "tokens": tokens,
        "from": from,
        "n_positions": shares[0].n_positions,
        "layers": layers,
    });
    serde_json::to_writer(&mut *out, &object)?;
    Ok(writeln!(out)?)
}

/// Heads over layers, once for each kind of share.
fn plot(loaded: &Loaded, shares: &[LayerShares]) -> HeatMap {
    let name = loaded.path.file_name().unwrap_or(loaded.path.as_os_str()).to_string_lossy();
    HeatMap {
        title: format!("{name}: where attention goes, in %"),
        x_label: "head".to_owned(),
        y_label: "layer".to_owned(),
        rows: shares.iter().map(|layer| layer.layer.to_string()).collect(),
        maps: KINDS
            .iter()
            .map(|(kind, share)| Map {
                label: (*kind).to_owned(),
                values: shares.iter().map(|layer| layer.heads.iter().map(share).collect()).collect(),
            })
            .collect(),
    }
}
