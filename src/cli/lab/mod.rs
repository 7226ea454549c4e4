//! `qgguf lab`: experiments on models.

mod dither;
mod int4;
mod kinds;
mod prompts;
mod report;
mod source;
mod table;

use super::error::Result;

/// Experiments: what quantization costs, and originals to try it on
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(clap::Subcommand, Debug)]
enum Experiment {
    #[command(args_override_self = true)]
    Int4(int4::Args),
    #[command(args_override_self = true)]
    Dither(dither::Args),
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<()> {
    match &args.experiment {
        Experiment::Int4(args) => int4::run(args),
        Experiment::Dither(args) => dither::run(args),
    }
}
