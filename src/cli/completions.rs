//! `qgguf completions`: scripts that teach a shell the flags.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::error::Result;
use super::output::stdout;

/// Print a completion script for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  qgguf completions bash > ~/.local/share/bash-completion/completions/qgguf
  qgguf completions zsh > \"${fpath[1]}/_qgguf\"
  qgguf completions fish > ~/.config/fish/completions/qgguf.fish")]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "qgguf", &mut script);
    Ok(stdout().write_all(&script)?)
}
