//! `qgguf chat`: a conversation in the terminal, or over a pipe with one message per line.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use qgguf::chat_template::Message;
use qgguf::generate::StopReason;
use qgguf::sampler::Sampler;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::args::{ComputeArgs, EscapeArgs, ModelArgs};
use super::conversation::{Conversation, TemplateArgs};
use super::error::{Failure, Result};
use super::generation::{self, GenerationArgs, explain_stop};
use super::grammar::{Form, GrammarArgs};
use super::interrupt;
use super::load::{self, Loaded};
use super::output::{stdout, write_file};
use super::sampling::SamplingArgs;
use super::terminal::note;

/// Talk to an instruction-tuned model
///
/// Every line is a message; a line that ends in a backslash goes on in the next one. What the turns have in
/// common is not computed again. If standard input is not a terminal, every line of it is a message.
#[derive(clap::Args, Debug)]
#[command(after_help = COMMANDS, after_long_help = COMMANDS)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    generation: GenerationArgs,
    #[command(flatten)]
    escapes: EscapeArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    grammar: GrammarArgs,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// What can be typed besides messages.
const COMMANDS: &str = "\
In the conversation:
  /help            this list
  /clear           forget the conversation, keep the system prompt
  /system [TEXT]   begin again with this system prompt; without TEXT, show it
  /save FILE       write the conversation to FILE as JSON
  /exit            leave; so does the end of input (Ctrl-D)
  Ctrl-C           stop the answer; when there is none, leave";

/// Runs the subcommand.
pub fn run(args: &Args, start: Instant) -> Result<()> {
    let mut loaded = load::load(&args.model, &args.compute, start)?;
    let conversation = Conversation::new(&args.template, &loaded.model)?;
    let form = args.grammar.form(&loaded.model, args.generation.ignore_eos)?;
    let settings = args.sampling.settings(&loaded.model, args.generation.ignore_eos)?;
    settings.announce();
    let trace = loaded.trace.take();
    interrupt::listen();
    let mut chat = Chat { args, loaded, conversation, form, sampler: settings.sampler };
    let mut input = Input::open();
    if input.is_terminal() {
        note!("qgguf: /help for help, Ctrl-D to leave");
    }
    while let Some(line) = input.message()? {
        if !chat.take(&line)? {
            break;
        }
        if interrupt::is_to_end() {
            return Err(Failure::Interrupted);
        }
    }
    trace.map_or(Ok(()), |trace| trace.finish())
}

struct Chat<'a> {
    args: &'a Args,
    loaded: Loaded,
    conversation: Conversation,
    /// What every answer is held to.
    form: Option<Form>,
    sampler: Sampler,
}

impl Chat<'_> {
    /// Handles what was typed; false to leave.
    fn take(&mut self, text: &str) -> Result<bool> {
        let (command, argument) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let argument = argument.trim();
        match command {
            "" => {}
            "/help" | "/?" => note!("{COMMANDS}"),
            "/exit" | "/quit" => return Ok(false),
            "/clear" => self.restart(None),
            "/system" if argument.is_empty() => {
                note!("qgguf: system prompt: {}", self.conversation.system().unwrap_or("none"));
            }
            "/system" => self.restart(Some(argument)),
            "/save" if argument.is_empty() => note!("qgguf: /save needs a file name"),
            "/save" => match save(Path::new(argument), self.conversation.messages()) {
                Ok(()) => note!("qgguf: saved to {argument}"),
                Err(failure) => note!("qgguf: {}", failure.line()),
            },
            _ if command.starts_with('/') && !command[1..].contains('/') => {
                note!("qgguf: no command {command}; /help lists them");
            }
            _ => self.answer(text)?,
        }
        Ok(true)
    }

    /// Begins again, with a new system prompt or the one there is.
    fn restart(&mut self, system: Option<&str>) {
        let system = system.or(self.conversation.system()).map(str::to_owned);
        self.conversation.restart(system.as_deref());
        note!("qgguf: a new conversation");
    }

    /// One turn. A turn that cannot be answered is forgotten again; only stdout's end ends the chat.
    fn answer(&mut self, text: &str) -> Result<()> {
        self.conversation.push("user", text);
        let outcome = self.generate();
        let outcome = match outcome {
            Err(failure) if !failure.is_broken_pipe() => {
                self.conversation.pop();
                note!("qgguf: {} (/clear begins again)", failure.line());
                return Ok(());
            }
            outcome => outcome?,
        };
        let generation = &outcome.generation;
        self.conversation.push("assistant", &generation.text);
        if !generation.text.ends_with('\n') {
            stdout().write_all(b"\n")?;
        }
        if !matches!(generation.stop, StopReason::EndOfGeneration(_)) {
            note!("qgguf: stopped: {}", explain_stop(&generation.stop, self.loaded.model.tokenizer()));
        }
        outcome.report_timings(&self.loaded);
        if self.args.compute.verbose {
            self.loaded.report_memory();
        }
        Ok(())
    }

    fn generate(&mut self) -> Result<generation::Outcome> {
        let start = Instant::now();
        let tokens = self.conversation.tokens(&self.loaded.model)?;
        let options =
            self.args.generation.options(&self.args.escapes, tokens.len(), self.loaded.is_default)?;
        let constraint = self.form.as_ref().map(Form::start).transpose()?;
        generation::stream(&mut self.loaded, &mut self.sampler, &tokens, &options, constraint, start, true)
    }
}

fn save(path: &Path, messages: &[Message]) -> Result<()> {
    write_file(path, |out| {
        serde_json::to_writer_pretty(&mut *out, messages)?;
        Ok(out.write_all(b"\n")?)
    })
}

/// Where messages come from.
enum Input {
    /// A person, with line editing and a history in a file.
    Terminal { editor: Box<DefaultEditor>, history: Option<PathBuf> },
    /// A program.
    Pipe,
}

impl Input {
    fn open() -> Input {
        if !io::stdin().is_terminal() {
            return Input::Pipe;
        }
        let Ok(mut editor) = DefaultEditor::new() else { return Input::Pipe };
        let history = history_file();
        if let Some(path) = &history {
            // There is none the first time.
            let _ = editor.load_history(path);
        }
        Input::Terminal { editor: Box::new(editor), history }
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Input::Terminal { .. })
    }

    /// The next message, its continuation lines joined; `None` at the end.
    fn message(&mut self) -> Result<Option<String>> {
        let mut message = String::new();
        while let Some(line) = self.line(if message.is_empty() { "> " } else { ". " })? {
            message += &line;
            if !message.ends_with('\\') {
                self.remember(&message);
                return Ok(Some(message.trim().to_owned()));
            }
            message.pop();
            message.push('\n');
        }
        Ok(None)
    }

    fn line(&mut self, prompt: &str) -> Result<Option<String>> {
        match self {
            Input::Terminal { editor, .. } => match editor.readline(prompt) {
                Ok(line) => Ok(Some(line)),
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
                Err(error) => Err(error.into()),
            },
            Input::Pipe => {
                let mut line = Vec::new();
                io::stdin().lock().read_until(b'\n', &mut line)?;
                if line.is_empty() {
                    return Ok(None);
                }
                let line = String::from_utf8_lossy(&line);
                Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned()))
            }
        }
    }

    /// Adds a message to the history. Not being able to store it is not worth a word.
    fn remember(&mut self, message: &str) {
        if let Input::Terminal { editor, history } = self {
            let added = editor.add_history_entry(message).unwrap_or(false);
            if let Some(path) = history.as_ref().filter(|_| added) {
                let _ = editor.append_history(path);
            }
        }
    }
}

/// `$XDG_STATE_HOME/qgguf/history`, its directory created.
fn history_file() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    let dir = state.join("qgguf");
    fs::create_dir_all(&dir).ok()?;
    Some(dir.join("history"))
}
