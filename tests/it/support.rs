//! The command under test, with the tiny model and a clean environment.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// The model in the repository.
pub fn tiny_model() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-tiny-Q4_K_M.gguf"))
}

/// `qgguf` with arguments separated by blanks.
pub fn qgguf(args: &str) -> assert_cmd::Command {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_qgguf"));
    command.args(args.split_whitespace());
    command.env_remove("QGGUF_ISA").env_remove("QGGUF_MODELS").env("XDG_STATE_HOME", std::env::temp_dir());
    command
}

/// Standard output, of a command that has to succeed.
pub fn stdout(command: &mut assert_cmd::Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Standard output as JSON.
pub fn json(command: &mut assert_cmd::Command) -> Value {
    serde_json::from_str(&stdout(command)).unwrap()
}

/// Standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The last line on standard error of a command that has to fail with this code.
pub fn failure(command: &mut assert_cmd::Command, code: i32) -> String {
    let output = command.output().unwrap();
    let stderr = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr.lines().last().unwrap_or_default().to_owned()
}

/// The bare command, for tests that talk to it while it runs; all its streams are pipes.
pub fn spawn(args: &[&str]) -> Child {
    let piped = Stdio::piped;
    let mut command = Command::new(env!("CARGO_BIN_EXE_qgguf"));
    command.args(args).stdin(piped()).stdout(piped()).stderr(piped()).spawn().unwrap()
}

/// Reads until the text comes, and gives what was read.
pub fn read_until(pipe: &mut impl Read, text: &str) -> Vec<u8> {
    let mut said = Vec::new();
    while !said.ends_with(text.as_bytes()) {
        let mut byte = [0];
        pipe.read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    said
}

/// Presses Ctrl-C.
#[cfg(unix)]
pub fn interrupt(child: &Child) {
    signal(child, "INT");
}

/// Sends a signal.
#[cfg(unix)]
pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}
