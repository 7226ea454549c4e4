//! `qgguf split`: a model as several files.

use std::path::PathBuf;

use qgguf_convert::gguf_rows::Shards;
use qgguf_convert::pipeline::WriteOptions;
use qgguf_convert::split::{self, SplitLimit};
use qgguf_gguf::GgufFile;

use super::error::Result;
use super::terminal::{self, note};
use super::{load, writing};

/// Split a model into several files
///
/// Each is a GGUF of its own, PREFIX-00001-of-0000N.gguf; any of them opens the model. Names, keys and bytes are those of
/// gguf-split.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Without a limit a file has 128 tensors at most.

Examples:
  qgguf split --split-max-size 2G model.gguf model
  qgguf split --split-max-tensors 128 --no-tensor-first-split model.gguf parts/model")]
pub struct Args {
    /// GGUF file
    #[arg(value_name = "IN.gguf")]
    input: PathBuf,
    /// How the names of the files begin
    #[arg(value_name = "PREFIX")]
    prefix: PathBuf,
    #[command(flatten)]
    limit: LimitArgs,
    /// Put the metadata into a first file without tensors
    #[arg(long)]
    no_tensor_first_split: bool,
}

/// How much goes into one file.
#[derive(clap::Args, Debug)]
pub struct LimitArgs {
    /// Bytes of tensors in one file at most: a number with M (1000^2) or G (1000^3) behind it
    #[arg(long, value_name = "N(M|G)", value_parser = size, conflicts_with = "split_max_tensors")]
    split_max_size: Option<u64>,
    /// Tensors in one file at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    split_max_tensors: Option<u64>,
}

impl LimitArgs {
    /// The limit, if there is one.
    pub fn get(&self) -> Option<SplitLimit> {
        let bytes = self.split_max_size.map(SplitLimit::Bytes);
        bytes.or(self.split_max_tensors.map(SplitLimit::Tensors))
    }
}

fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("expected a number with M or G behind it, as in 2G, found \"{text}\"");
    let (number, unit) = match text.as_bytes() {
        [number @ .., b'M'] => (number, 1_000_000),
        [number @ .., b'G'] => (number, 1_000_000_000),
        _ => return Err(wrong()),
    };
    let number: u64 = text[..number.len()].parse().map_err(|_| wrong())?;
    number.checked_mul(unit).filter(|&n| n > 0).ok_or_else(wrong)
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    const DEFAULT: SplitLimit = SplitLimit::Tensors(128);
    let model = GgufFile::open(&args.input)?;
    let kernels = load::kernels(None)?;
    let shards = Shards::open(&model, kernels)?;
    let limit = args.limit.get().unwrap_or(DEFAULT);
    let files = split::split(&model, &shards, &args.prefix, limit, args.no_tensor_first_split)?;
    writing::refuse_overwriting(&files, model.paths())?;
    let written = writing::write(&files, &WriteOptions::copying(qgguf::threads::default_threads(), kernels))?;
    note!("qgguf: {}", terminal::escape(&written.names()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units_of_powers_of_ten() {
        assert_eq!(size("2G"), Ok(2_000_000_000));
        assert_eq!(size("300M"), Ok(300_000_000));
        for bad in ["2", "G", "0M", "2g", "-1G", "2.5G", "99999999999G", "é"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
