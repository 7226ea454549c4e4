//! Flags that several subcommands share, with llama.cpp's names.

use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use qgguf_kernels::{Isa, KvType};

use super::error::{Context, Failure, Result};

/// Which model, and how it is opened.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// GGUF file, or any shard of a split one [default: the tiny model in models/]
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Positions the context holds, 0 for as many as the model was trained with [default: the trained
    /// context, or what fits 2 GiB of keys and values if that is less]
    #[arg(short, long, value_name = "N")]
    pub ctx_size: Option<usize>,
    /// Take this pre-tokenizer instead of the one the file names
    #[arg(long, value_name = "NAME")]
    pub pre: Option<String>,
    /// Lock the model file in memory
    #[arg(long, conflicts_with = "no_mmap")]
    pub mlock: bool,
    /// Read the model file into memory, in huge pages if the system has them, instead of using it where it is mapped:
    /// slower to open and shared with no other process, up to a quarter faster to read
    #[arg(long)]
    pub no_mmap: bool,
}

/// How it is computed. Only `-ctk` and `-ctv` change the results.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Computation")]
pub struct ComputeArgs {
    /// Threads [default: physical cores that this process may use]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = threads)]
    pub threads: Option<usize>,
    /// Threads for prompts [default: the same] (-tb)
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = threads)]
    pub threads_batch: Option<usize>,
    /// Prompt tokens evaluated together (llama.cpp's -ub works too)
    #[arg(long, value_name = "N", default_value = "512", value_parser = positive)]
    pub ubatch_size: usize,
    /// How keys are stored: f16, f32 or q8_0 (-ctk)
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub cache_type_k: KvType,
    /// How values are stored: f16, f32 or q8_0 (-ctv)
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub cache_type_v: KvType,
    /// Instruction set, to force a lower one than the CPU has (so does the environment variable QGGUF_ISA)
    #[arg(long, value_name = "NAME")]
    pub isa: Option<Isa>,
    /// Write every named intermediate to DIR as a .npy file
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// Say more about what is going on (instruction set, memory)
    #[arg(short, long)]
    pub verbose: bool,
}

/// A prompt from the command line, a file or standard input.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Prompt")]
pub struct PromptArgs {
    /// The prompt
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Read the prompt from FILE (- for standard input); one final newline is dropped
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub escapes: EscapeArgs,
}

/// Whether backslashes mean something.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Prompt")]
pub struct EscapeArgs {
    /// Turn \n, \r, \t, \', \", \\ and \xHH in --prompt and --stop into what they mean (this is the default)
    #[arg(short, long, overrides_with = "no_escape")]
    escape: bool,
    /// Take backslashes as they are
    #[arg(long)]
    no_escape: bool,
}

impl PromptArgs {
    /// The prompt; without `-p` and `-f` it is standard input, unless that is a terminal.
    pub fn read(&self) -> Result<String> {
        match (&self.prompt, &self.file) {
            (Some(prompt), _) => self.escapes.unescape(prompt),
            (None, None) if std::io::stdin().is_terminal() => {
                Err(Failure::usage("no prompt: give -p TEXT, -f FILE, or text on standard input"))
            }
            (None, file) => read_prompt(file.as_deref().unwrap_or(Path::new("-"))),
        }
    }
}

impl EscapeArgs {
    /// `text` with its escapes replaced, unless `--no-escape` is given.
    pub fn unescape(&self, text: &str) -> Result<String> {
        if self.no_escape {
            return Ok(text.to_owned());
        }
        String::from_utf8(unescape(text))
            .map_err(|_| Failure::usage("the \\x escapes of the text do not make valid UTF-8"))
    }
}

fn utf8(bytes: Vec<u8>, from: &str) -> Result<String> {
    String::from_utf8(bytes)
        .map_err(|e| Failure::text(format!("{from} is not UTF-8 (byte {})", e.utf8_error().valid_up_to())))
}

/// Reads a text file, or standard input if it is called `-`, without its final newline.
pub fn read_prompt(file: &Path) -> Result<String> {
    if file.as_os_str() != "-" {
        return Ok(without_final_newline(read_text(file)?));
    }
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
    Ok(without_final_newline(utf8(bytes, "standard input")?))
}

/// Reads a text file that has to be UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    utf8(fs::read(path).context(format!("cannot read {}", path.display()))?, &path.display().to_string())
}

fn without_final_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

/// Replaces llama.cpp's escapes; an unknown one stays as it is.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, used) = match (first, tail) {
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [c @ (b'\'' | b'"' | b'\\'), ..]) => (*c, 2),
            (b'\\', [b'x', high, low, ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |c: u8| (c as char).to_digit(16).unwrap_or(0) as u8;
                (digit(*high) << 4 | digit(*low), 4)
            }
            _ => (*first, 1),
        };
        out.push(byte);
        rest = &rest[used..];
    }
    out
}

/// More threads than any machine has cores for this; a typing error rather than a wish.
pub const MAX_THREADS: i64 = 1024;

/// A number of threads; zero or less means the default, as with llama.cpp.
pub fn threads(text: &str) -> Result<usize, String> {
    match text.parse::<i64>() {
        Ok(n) if n > MAX_THREADS => Err(format!("at most {MAX_THREADS}")),
        Ok(n) if n > 0 => Ok(n as usize),
        Ok(_) => Ok(qgguf::threads::default_threads()),
        Err(e) => Err(e.to_string()),
    }
}

pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".to_owned()),
        Ok(n) => Ok(n),
        Err(e) => Err(format!("{e}")),
    }
}

/// Flags of llama.cpp with one dash and several letters, which clap would read as several flags.
const LONG_SHORTS: [(&str, &str); 28] = [
    ("-np", "--parallel"),
    ("-to", "--timeout"),
    ("-cram", "--cache-ram"),
    ("-tb", "--threads-batch"),
    ("-ub", "--ubatch-size"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-sys", "--system-prompt"),
    ("-cnv", "--chat"),
    ("-jf", "--json-schema-file"),
    ("-pg", "--pg"),
    ("-oe", "--output-err"),
    ("-ofreq", "--output-frequency"),
    ("-ngl", "--n-gpu-layers"),
    ("-ncmoe", "--n-cpu-moe"),
    ("-sm", "--split-mode"),
    ("-mg", "--main-gpu"),
    ("-nkvo", "--no-kv-offload"),
    ("-fa", "--flash-attn"),
    ("-dev", "--device"),
    ("-lm", "--load-mode"),
    ("-mmp", "--mmap"),
    ("-dio", "--direct-io"),
    ("-embd", "--embeddings"),
    ("-ts", "--tensor-split"),
    ("-ot", "--override-tensor"),
    ("-nopo", "--no-op-offload"),
    ("-lzm", "--lazy-mode"),
];

/// Flags whose next argument is text, whatever it looks like.
const TEXT_FLAGS: [&str; 9] = [
    "-p",
    "--prompt",
    "-r",
    "--reverse-prompt",
    "--stop",
    "--system-prompt",
    "-j",
    "--json-schema",
    "--grammar",
];

/// Replaces llama.cpp's spellings in the arguments by those that clap knows.
pub fn rewrite(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    let mut only_values = false;
    for arg in args {
        let text_follows = out.last().is_some_and(|last| TEXT_FLAGS.iter().any(|flag| last == flag));
        only_values |= arg == "--" && !text_follows;
        if only_values || text_follows {
            out.push(arg);
            continue;
        }
        let long = LONG_SHORTS.iter().find(|(short, _)| arg == *short);
        out.push(long.map_or_else(|| with_dashes(arg), |(_, long)| long.into()));
    }
    out
}

/// `--n_prompt` as `--n-prompt`, which llama.cpp takes too.
fn with_dashes(arg: OsString) -> OsString {
    match arg.to_str().filter(|text| text.starts_with("--")) {
        Some(text) => {
            let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
            (name.replace('_', "-") + value).into()
        }
        None => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_llama_cpp() {
        let unescaped = unescape(r#"a\n\t\\n\q\x41\xe2\x82\xac\x4 \"\"#);
        assert_eq!(unescaped, "a\n\t\\n\\qA€\\x4 \"\\".as_bytes());
    }

    #[test]
    fn two_letter_flags_are_rewritten_but_not_in_texts() {
        let args = ["qgguf", "run", "-ub", "7", "-p", "-ub", "-ctk", "f32", "--", "-sys"];
        let rewritten = rewrite(args.map(OsString::from));
        let expected =
            ["qgguf", "run", "--ubatch-size", "7", "-p", "-ub", "--cache-type-k", "f32", "--", "-sys"];
        assert_eq!(rewritten, expected);
    }

    #[test]
    fn long_flags_may_have_underscores() {
        let args = ["qgguf", "--n_gen", "a_b", "--split_mode=a_b", "-p", "--a_b", "--", "--a_b"];
        let rewritten = rewrite(args.map(OsString::from));
        assert_eq!(rewritten, ["qgguf", "--n-gen", "a_b", "--split-mode=a_b", "-p", "--a_b", "--", "--a_b"]);
    }

    #[test]
    fn thread_counts_below_one_mean_the_default() {
        assert_eq!(threads("-1"), Ok(qgguf::threads::default_threads()));
        assert_eq!(threads("3"), Ok(3));
        assert!(threads("100000").is_err());
    }

    #[test]
    fn one_final_newline_is_dropped() {
        assert_eq!(without_final_newline("a\n\n".to_owned()), "a\n");
        assert_eq!(without_final_newline("a".to_owned()), "a");
    }
}
