//! `qgguf merge`: several files as one model.

use std::path::PathBuf;

use qgguf_convert::gguf_rows::Shards;
use qgguf_convert::pipeline::WriteOptions;
use qgguf_convert::split;
use qgguf_gguf::GgufFile;

use super::error::Result;
use super::terminal::{self, note};
use super::{load, writing};

/// Merge the files of a split model into one
///
/// The bytes are those of gguf-split.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  qgguf merge model-00001-of-00003.gguf model.gguf")]
pub struct Args {
    /// The first file, or any other
    #[arg(value_name = "SHARD.gguf")]
    input: PathBuf,
    /// The file to write
    #[arg(value_name = "OUT.gguf")]
    output: PathBuf,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    let model = GgufFile::open(&args.input)?;
    let kernels = load::kernels(None)?;
    let files = [split::merge(&model, &Shards::open(&model, kernels)?, &args.output)?];
    writing::refuse_overwriting(&files, model.paths())?;
    let written = writing::write(&files, &WriteOptions::copying(qgguf::threads::default_threads(), kernels))?;
    note!("qgguf: {}", terminal::escape(&written.names()));
    Ok(())
}
