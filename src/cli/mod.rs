//! The command line: one file per subcommand.

mod args;
mod attention;
mod bench;
mod chat;
mod compare;
mod completions;
mod conversation;
mod convert;
mod error;
mod evaluation;
mod export;
mod generation;
mod grammar;
mod imatrix;
mod inspect;
mod interrupt;
mod lab;
mod load;
mod logits;
mod memory;
mod merge;
mod output;
mod perplexity;
mod plot;
mod progress;
mod quantize;
mod run;
mod sampling;
mod serve;
mod split;
mod table;
mod terminal;
mod tokenize;
mod trace;
mod writing;

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};

use terminal::note;

/// Run GGUF models on the CPU.
///
/// Opens the GGUF files that llama.cpp makes, in place and in milliseconds, and computes the same bits
/// whatever the number of threads, the batch size and the instruction set. Flags that llama.cpp has keep
/// their names and meaning.
#[derive(Parser, Debug)]
#[command(
    name = "qgguf",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  qgguf run -p \"In the beginning\"             the tiny built-in model, nothing to download
  qgguf run -m model.gguf -p \"Once\" -n 64 --temp 0
  qgguf chat -m model.gguf                    talk to an instruction-tuned model
  qgguf serve -m model.gguf                   OpenAI's interface on port 8080
  qgguf inspect model.gguf                    what is in the file
  qgguf tokenize -m model.gguf -p \"Once\"      the tokens of a text
  qgguf bench -m model.gguf -t 4,8            tokens per second, beside what the machine allows
  qgguf perplexity -m model.gguf -f text.txt  how well it predicts a text
  qgguf compare -m f16.gguf -m q4.gguf -f text.txt   what a quantization costs
  qgguf imatrix -m f16.gguf -f calibration.txt   which columns of the weights matter
  qgguf convert Qwen3-0.6B/                   a GGUF of a Hugging Face checkpoint
  qgguf export model.gguf -o folder/          a Hugging Face checkpoint of a GGUF
  qgguf quantize f16.gguf small.gguf Q4_K_M   another quantization of a model
  qgguf COMMAND --help                        all flags of a command

Results go to standard output, everything else to standard error.
Exit codes: 0 success, 1 failure, 2 wrong command line, 130 stopped by Ctrl-C (128 + N by signal N).
Environment: QGGUF_ISA (instruction set), QGGUF_MODELS (where the built-in model is)."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Run(Box<run::Args>),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Chat(Box<chat::Args>),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Serve(Box<serve::Args>),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Logits(Box<logits::Args>),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Inspect(inspect::Args),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Tokenize(Box<tokenize::Args>),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Attention(Box<attention::Args>),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Bench(Box<bench::Args>),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Perplexity(Box<perplexity::Args>),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Compare(Box<compare::Args>),
    Lab(Box<lab::Args>),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Convert(Box<convert::Args>),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Export(Box<export::Args>),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Quantize(Box<quantize::Args>),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Split(split::Args),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Merge(merge::Args),
    #[command(args_override_self = true, allow_negative_numbers = true)]
    Imatrix(Box<imatrix::Args>),
    Completions(completions::Args),
}

/// Runs the command and returns its exit code.
pub fn main() -> ExitCode {
    let start = Instant::now();
    interrupt::outlive_file_size_limit();
    let cli = match Cli::try_parse_from(args::rewrite(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too; a reader that is gone is no reason to fail.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let result = match &cli.command {
        Command::Run(args) => run::run(args, start),
        Command::Chat(args) => chat::run(args, start),
        Command::Serve(args) => serve::run(args),
        Command::Logits(args) => logits::run(args, start),
        Command::Inspect(args) => inspect::run(args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Attention(args) => attention::run(args, start),
        Command::Bench(args) => bench::run(args),
        Command::Perplexity(args) => perplexity::run(args, start),
        Command::Compare(args) => compare::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Export(args) => export::run(args),
        Command::Quantize(args) => quantize::run(args),
        Command::Split(args) => split::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Imatrix(args) => imatrix::run(args, start),
        Command::Completions(args) => completions::run(args),
    };
    result.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_flags_do_not_contradict_each_other() {
        super::Cli::command().debug_assert();
    }
}
