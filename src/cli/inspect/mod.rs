//! `qgguf inspect`: what is in a GGUF file.
//!
//! Needs nothing but the file's header, so it also opens models that cannot be run; only `--tensor` reads
//! weights. Whatever comes out of the file is escaped before it reaches a terminal.

mod json;
mod similar;
mod summary;
mod tensor;
mod text;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use qgguf_gguf::{GgufFile, MetadataValue};

use super::error::{Failure, Result};
use super::output::stdout;
pub use summary::{Part, Summary};

/// Show what is in a GGUF file
///
/// Header, metadata, tensors, where the parameters are and which types they have. The file need not be a
/// model that can be run here.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  qgguf inspect model.gguf
  qgguf inspect model.gguf --key tokenizer.chat_template
  qgguf inspect model.gguf --tensor blk.0.attn_q.weight
  qgguf inspect model.gguf --json | jq '.types'")]
pub struct Args {
    /// GGUF file, or any shard of a split one
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Show long strings and arrays in full
    #[arg(long)]
    full: bool,
    /// Show the value of one metadata key, in full; into a pipe or file, a string goes as it is
    #[arg(long, value_name = "KEY", conflicts_with = "tensor")]
    key: Option<String>,
    /// Show statistics and the first values of one tensor
    #[arg(long, value_name = "NAME")]
    tensor: Option<String>,
    /// How many first values to show
    #[arg(long, value_name = "N", default_value_t = 8, requires = "tensor")]
    values: u64,
    /// Print one JSON object with everything in full; numbers that are not finite become strings
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    let file = GgufFile::open(&args.file)?;
    let terminal = io::stdout().is_terminal();
    let mut out = BufWriter::new(stdout());
    if let Some(key) = &args.key {
        let value = find_key(&file, key)?;
        match args.json {
            true => json::value(&mut out, key, value)?,
            false => text::value(&mut out, value, terminal)?,
        }
    } else if let Some(name) = &args.tensor {
        let view = tensor::find(&file, name)?;
        let statistics = tensor::statistics(&view)?;
        match args.json {
            true => json::tensor(&mut out, &view, &statistics, args.values)?,
            false => text::tensor(&mut out, &view, &statistics, args.values)?,
        }
    } else {
        let summary = Summary::of(&file);
        match args.json {
            true => json::file(&mut out, &file, &summary)?,
            false => text::file(&mut out, &file, &summary, args.full)?,
        }
    }
    Ok(out.flush()?)
}

/// What `--json` prints of a file.
pub fn file_as_json(file: &GgufFile) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    json::file(&mut out, file, &Summary::of(file))?;
    Ok(out)
}

fn find_key<'a>(file: &'a GgufFile, key: &str) -> Result<&'a MetadataValue> {
    file.metadata().get(key).ok_or_else(|| {
        let hint = similar::hint(key, file.metadata().iter().map(|(key, _)| key));
        Failure::text(format!("{}: no metadata key \"{key}\"{hint}", file.path().display()))
    })
}
