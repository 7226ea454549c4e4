//! `qgguf tokenize`: text to token ids and back.

use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::PathBuf;

use qgguf::tokenizer::{Tokenizer, TokenizerOptions};
use qgguf_gguf::GgufFile;
use serde_json::json;

use super::args::EscapeArgs;
use super::error::{Context, Failure, Result};
use super::load;
use super::output::stdout;
use super::terminal::{self, note};

/// Print the tokens of a text, or the text of tokens
///
/// Needs no weights: a file with nothing but a vocabulary will do. The text is taken as it is, including the
/// newline at the end of a file.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  qgguf tokenize -m model.gguf -p \"Hello, world\"
  qgguf tokenize -m model.gguf --ids -f prompt.txt
  qgguf tokenize -m model.gguf --decode -p \"9906 11 1917\"
  echo -n Hello | qgguf tokenize -m model.gguf --json --no-bos")]
pub struct Args {
    /// GGUF file, or any shard of a split one [default: the tiny model in models/]
    #[arg(short, long, value_name = "FILE", help_heading = "Model")]
    model: Option<PathBuf>,
    /// Take this pre-tokenizer instead of the one the file names
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pre: Option<String>,
    /// The text
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Text")]
    prompt: Option<String>,
    /// Read the text from FILE (- for standard input)
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt", help_heading = "Text")]
    file: Option<PathBuf>,
    /// Read the text from standard input, which is the default unless it is a terminal
    #[arg(long, conflicts_with_all = ["prompt", "file"], help_heading = "Text")]
    stdin: bool,
    #[command(flatten)]
    escapes: EscapeArgs,
    /// Do not add BOS or EOS, even if the model wants them
    #[arg(long)]
    no_bos: bool,
    /// Take the texts of control tokens for ordinary text
    #[arg(long)]
    no_parse_special: bool,
    /// The text is token ids, with blanks or commas between them: print what they stand for
    #[arg(long, conflicts_with_all = ["ids", "no_bos", "no_parse_special"])]
    decode: bool,
    /// Print nothing but the ids, as [1, 2, 3]
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    ids: bool,
    /// Print the number of tokens after them
    #[arg(long, help_heading = "Output")]
    show_count: bool,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    let text = read(args)?;
    let path = match &args.model {
        Some(path) => path.clone(),
        None => load::default_model()?,
    };
    let file = GgufFile::open(&path)?;
    let options = TokenizerOptions { pre_override: args.pre.clone() };
    let tokenizer = Tokenizer::from_metadata(file.metadata(), &options).context(path.display())?;
    for warning in tokenizer.warnings() {
        note!("qgguf: warning: {}", terminal::escape(warning));
    }
    let tokens = if args.decode {
        parse_ids(&text, tokenizer.n_vocab())?
    } else {
        tokenizer.encode_bytes(&text, !args.no_bos, !args.no_parse_special)
    };
    let mut out = BufWriter::new(stdout());
    if args.json {
        print_json(&mut out, args, &path.display().to_string(), &tokenizer, &tokens)?;
    } else if args.decode {
        out.write_all(&tokenizer.decode_bytes(&tokens, false, true))?;
    } else {
        print_tokens(&mut out, args, &tokenizer, &tokens)?;
    }
    Ok(out.flush()?)
}

/// The text; bytes, because a tokenizer takes any.
fn read(args: &Args) -> Result<Vec<u8>> {
    match (&args.prompt, &args.file) {
        (Some(prompt), _) => Ok(args.escapes.unescape(prompt)?.into_bytes()),
        (None, Some(file)) if file.as_os_str() != "-" => {
            Ok(std::fs::read(file).context(format!("cannot read {}", file.display()))?)
        }
        (None, None) if !args.stdin && io::stdin().is_terminal() => {
            Err(Failure::usage("no text: give -p TEXT, -f FILE, or text on standard input"))
        }
        (None, _) => {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
            Ok(bytes)
        }
    }
}

/// Ids separated by blanks or commas, perhaps in brackets, as `--ids` prints them.
fn parse_ids(text: &[u8], n_vocab: usize) -> Result<Vec<u32>> {
    let text = String::from_utf8_lossy(text);
    let separates = |c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']');
    let id = |word: &str| match word.parse::<u32>() {
        Ok(id) if (id as usize) < n_vocab => Ok(id),
        Ok(id) => Err(Failure::text(format!("token id {id} is outside the vocabulary of {n_vocab}"))),
        Err(_) => Err(Failure::text(format!("expected a token id, found \"{word}\""))),
    };
    text.split(separates).filter(|word| !word.is_empty()).map(id).collect()
}

fn print_tokens(out: &mut impl Write, args: &Args, tokenizer: &Tokenizer, tokens: &[u32]) -> io::Result<()> {
    if args.ids {
        let ids: Vec<String> = tokens.iter().map(u32::to_string).collect();
        writeln!(out, "[{}]", ids.join(", "))?;
    } else {
        for &token in tokens {
            writeln!(out, "{token:>6} -> {}", terminal::quote(&tokenizer.piece(token, true)))?;
        }
    }
    if args.show_count {
        writeln!(out, "Total number of tokens: {}", tokens.len())?;
    }
    Ok(())
}

fn print_json(
    out: &mut impl Write,
    args: &Args,
    model: &str,
    tokenizer: &Tokenizer,
    tokens: &[u32],
) -> Result<()> {
    let piece = |token: &u32| String::from_utf8_lossy(&tokenizer.piece(*token, true)).into_owned();
    let mut object = json!({
        "model": model,
        "n_tokens": tokens.len(),
        "ids": tokens,
        "pieces": tokens.iter().map(piece).collect::<Vec<_>>(),
    });
    if args.decode {
        object["text"] = tokenizer.decode(tokens).into();
    }
    serde_json::to_writer(&mut *out, &object)?;
    Ok(writeln!(out)?)
}
