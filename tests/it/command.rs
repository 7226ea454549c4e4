//! The command as a whole: help, version, shell completions.

use crate::support::{qgguf, stdout};

#[test]
fn help_and_version_go_to_stdout() {
    let help = stdout(&mut qgguf("--help"));
    for part in
        ["run", "chat", "inspect", "logits", "bench", "completions", "Examples:", "Exit codes", "QGGUF_ISA"]
    {
        assert!(help.contains(part), "{part} in {help}");
    }
    let run = stdout(&mut qgguf("run --help"));
    for part in ["-ub", "--ctx-size", "--temp", "--top-k", "--min-p", "--repeat-penalty", "--seed", "--mlock"]
    {
        assert!(run.contains(part), "{part} in {run}");
    }
    assert_eq!(stdout(&mut qgguf("--version")), concat!("qgguf ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn shells_can_be_taught_the_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(qgguf("completions").arg(shell));
        assert!(script.contains("repeat-penalty"), "{shell}");
    }
}
