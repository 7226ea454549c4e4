//! `qgguf logits`: what the model makes of some tokens, to look at or to compare.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use qgguf::npy;
use qgguf::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::args::{ComputeArgs, ModelArgs, PromptArgs};
use super::error::{Context, Result};
use super::load::{self, Loaded};
use super::output::{check_output, stdout, write_file};
use super::terminal;

/// Print or save the logits after some tokens
///
/// The last position, or every one with --all. The table shows the likeliest next tokens.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  qgguf logits -p \"In the beginning\"
  qgguf logits -m model.gguf --tokens 1,2,3 --all -o logits.npy
  python3 -c 'import numpy; print(numpy.load(\"logits.npy\").shape)'")]
pub struct Args {
    /// Token ids, with commas between them
    #[arg(long, value_name = "IDS", value_delimiter = ',', num_args = 1.., conflicts_with_all = ["prompt", "file"])]
    tokens: Option<Vec<u32>>,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    compute: ComputeArgs,
    /// Every position, not just the last
    #[arg(long, help_heading = "Output")]
    all: bool,
    /// Write the logits to FILE: NumPy's .npy, f32, [positions, vocabulary]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Likeliest tokens to show for a position, 0 for none [default: 10, 3 with --all]
    #[arg(long, value_name = "N", help_heading = "Output")]
    top_k: Option<usize>,
    /// Print one JSON object instead of a table
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// A likely next token.
struct Candidate {
    id: u32,
    logit: f32,
    probability: f64,
}

/// A position and the likeliest tokens after it.
struct Row {
    position: usize,
    top: Vec<Candidate>,
}

/// Runs the subcommand.
pub fn run(args: &Args, start: Instant) -> Result<()> {
    let text = if args.tokens.is_some() { None } else { Some(args.prompt.read()?) };
    let mut loaded = load::load(&args.model, &args.compute, start)?;
    let tokens = match (&args.tokens, text) {
        (Some(tokens), _) => tokens.clone(),
        (None, text) => loaded.model.tokenizer().encode(&text.unwrap_or_default(), true, true),
    };
    if let Some(path) = &args.output {
        check_output(path, loaded.model.file().paths().chain(args.prompt.file.as_deref()))?;
    }
    let rows = match &args.output {
        Some(path) => write_file(path, |out| {
            let n = if args.all { tokens.len() } else { 1 };
            out.write_all(&npy::header([n, loaded.model.hparams().n_vocab]))?;
            let mut written = Ok(());
            let rows = evaluate(args, &mut loaded, &tokens, |logits| {
                if written.is_ok() {
                    written = npy::write_values(out, logits);
                }
            })?;
            written.context(format!("cannot write {}", path.display()))?;
            Ok(rows)
        })?,
        None => evaluate(args, &mut loaded, &tokens, |_| ())?,
    };
    if let Some(trace) = loaded.trace.take() {
        trace.finish()?;
    }
    if args.compute.verbose {
        loaded.report_memory();
    }
    let mut out = BufWriter::new(stdout());
    if args.json {
        print_json(&mut out, &loaded, &tokens, &rows)?;
    } else {
        print_table(&mut out, loaded.model.tokenizer(), &tokens, &rows)?;
    }
    Ok(out.flush()?)
}

/// Evaluates the tokens, hands the logits of every wanted position to `each`, and keeps the likeliest tokens.
fn evaluate(
    args: &Args,
    loaded: &mut Loaded,
    tokens: &[u32],
    mut each: impl FnMut(&[f32]),
) -> Result<Vec<Row>> {
    let k = args.top_k.unwrap_or(if args.all { 3 } else { 10 });
    let mut rows = Vec::new();
    if args.all {
        loaded.session.eval_all(tokens, |position, logits| {
            each(logits);
            rows.push(Row { position, top: top(logits, k) });
        })?;
    } else {
        let logits = loaded.session.eval(tokens)?;
        each(logits);
        rows.push(Row { position: tokens.len() - 1, top: top(logits, k) });
    }
    Ok(rows)
}

/// The `k` largest logits, lowest id first among equals, with their probabilities.
fn top(logits: &[f32], k: usize) -> Vec<Candidate> {
    let k = k.min(logits.len());
    if k == 0 {
        return Vec::new();
    }
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    let order = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    ids.select_nth_unstable_by(k - 1, order);
    ids.truncate(k);
    ids.sort_unstable_by(order);
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - max).exp()).sum();
    ids.into_iter()
        .map(|id| {
            let logit = logits[id as usize];
            Candidate { id, logit, probability: (f64::from(logit) - max).exp() / sum }
        })
        .collect()
}

fn print_table(out: &mut impl Write, tokenizer: &Tokenizer, tokens: &[u32], rows: &[Row]) -> io::Result<()> {
    for row in rows {
        let token = tokens[row.position];
        writeln!(out, "after position {}, token {token} {}", row.position, piece(tokenizer, token))?;
        for Candidate { id, logit, probability } in &row.top {
            writeln!(out, "{id:>8} {logit:>12.6} {:>9.4} %  {}", 100.0 * probability, piece(tokenizer, *id))?;
        }
    }
    Ok(())
}

fn print_json(out: &mut impl Write, loaded: &Loaded, tokens: &[u32], rows: &[Row]) -> Result<()> {
    let tokenizer = loaded.model.tokenizer();
    let candidate = |c: &Candidate| {
        let piece = String::from_utf8_lossy(&bytes(tokenizer, c.id)).into_owned();
        json!({"id": c.id, "piece": piece, "logit": c.logit, "probability": c.probability})
    };
    let positions: Vec<Value> = rows
        .iter()
        .map(|row| {
            let top: Vec<Value> = row.top.iter().map(candidate).collect();
            json!({"position": row.position, "token": tokens[row.position], "top": top})
        })
        .collect();
    let object = json!({
        "model": loaded.path.display().to_string(),
        "tokens": tokens,
        "n_vocab": loaded.model.hparams().n_vocab,
        "positions": positions,
    });
    serde_json::to_writer(&mut *out, &object)?;
    Ok(writeln!(out)?)
}

/// A token as a quoted text; embeddings beyond the vocabulary have none.
fn piece(tokenizer: &Tokenizer, id: u32) -> String {
    terminal::quote(&bytes(tokenizer, id))
}

fn bytes(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    if (id as usize) < tokenizer.n_vocab() { tokenizer.piece(id, true) } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_logits_come_first_and_the_lowest_id_among_equals() {
        let ids = |k| top(&[0.5, 2.0, -1.0, 2.0], k).iter().map(|c| c.id).collect::<Vec<_>>();
        assert_eq!(ids(3), [1, 3, 0]);
        assert_eq!(ids(100), [1, 3, 0, 2]);
        assert!(ids(0).is_empty());
    }

    #[test]
    fn probabilities_are_a_softmax() {
        let top = top(&[1000.0, 1000.0, 1000.0 + 2f32.ln()], 3);
        let probabilities: Vec<f64> = top.iter().map(|c| (c.probability * 1000.0).round()).collect();
        assert_eq!(probabilities, [500.0, 250.0, 250.0]);
    }
}
