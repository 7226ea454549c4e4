//! `qgguf run`: complete one prompt.

use std::io::Write;
use std::time::Instant;

use serde_json::json;

use super::args::{ComputeArgs, ModelArgs, PromptArgs};
use super::conversation::{Conversation, TemplateArgs};
use super::error::{Failure, Result};
use super::generation::{self, GenerationArgs, Outcome};
use super::grammar::GrammarArgs;
use super::interrupt;
use super::load::{self, Loaded};
use super::output::stdout;
use super::sampling::{SamplingArgs, Settings};
use qgguf::generate::StopReason;

/// Complete a prompt
///
/// The prompt is completed as it is. With --chat (or -sys, or --chat-template) it becomes the message of a
/// user in the model's chat template, and the answer is printed alone.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  qgguf run -p \"In the beginning\"
  qgguf run -m model.gguf -f prompt.txt -n 100 --temp 0
  qgguf run -m model.gguf --chat -sys \"Be brief.\" -p \"Why is the sky blue?\"
  qgguf run -m model.gguf -p \"1 2 3\" --json 2>/dev/null | jq .tokens")]
pub struct Args {
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    generation: GenerationArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    grammar: GrammarArgs,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    compute: ComputeArgs,
    /// Apply the chat template to the prompt (-cnv)
    #[arg(long, help_heading = "Chat template")]
    chat: bool,
    /// Print the generated text only, not the prompt in front of it
    #[arg(long, help_heading = "Output")]
    no_display_prompt: bool,
    /// Print one JSON object with tokens, text, stop reason, settings and timings
    #[arg(long, help_heading = "Output")]
    json: bool,
}

impl Args {
    fn wants_template(&self) -> bool {
        self.chat || self.template.system_prompt.is_some() || self.template.chat_template.is_some()
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, start: Instant) -> Result<()> {
    let prompt = args.prompt.read()?;
    let mut loaded = load::load(&args.model, &args.compute, start)?;
    let tokens = tokens(args, &loaded, &prompt)?;
    let options = args.generation.options(&args.prompt.escapes, tokens.len(), loaded.is_default)?;
    let form = args.grammar.form(&loaded.model, options.ignore_eos)?;
    let constraint = form.map(|form| form.start()).transpose()?;
    let mut settings = args.sampling.settings(&loaded.model, options.ignore_eos)?;
    settings.announce();
    loaded.session.check_prompt(&tokens)?;

    interrupt::listen();
    let mut stdout = stdout();
    if !args.json && !args.no_display_prompt && !args.wants_template() {
        stdout.write_all(prompt.as_bytes())?;
        stdout.flush()?;
    }
    let outcome = generation::stream(
        &mut loaded,
        &mut settings.sampler,
        &tokens,
        &options,
        constraint,
        start,
        !args.json,
    )?;
    if args.json {
        print_json(args, &loaded, &prompt, &tokens, &settings, &outcome)?;
    } else if !outcome.generation.text.ends_with('\n') {
        stdout.write_all(b"\n")?;
    }
    outcome.report(&loaded);
    if args.compute.verbose {
        loaded.report_memory();
    }
    if let Some(trace) = loaded.trace.take() {
        trace.finish()?;
    }
    match outcome.generation.stop {
        StopReason::Interrupted => Err(Failure::Interrupted),
        _ => Ok(()),
    }
}

fn tokens(args: &Args, loaded: &Loaded, prompt: &str) -> Result<Vec<u32>> {
    if !args.wants_template() {
        return Ok(loaded.model.tokenizer().encode(prompt, true, true));
    }
    let mut conversation = Conversation::new(&args.template, &loaded.model)?;
    conversation.push("user", prompt);
    conversation.tokens(&loaded.model)
}

fn print_json(
    args: &Args,
    loaded: &Loaded,
    prompt: &str,
    tokens: &[u32],
    settings: &Settings,
    outcome: &Outcome,
) -> Result<()> {
    let generation = &outcome.generation;
    let object = json!({
        "model": loaded.path.display().to_string(),
        "prompt": prompt,
        "prompt_tokens": tokens,
        "tokens": generation.tokens,
        "text": generation.text,
        "stop": generation.stop.name(),
        "stop_detail": generation::explain_stop(&generation.stop, loaded.model.tokenizer()),
        "settings": {
            "sampling": settings.json(),
            "n_ctx": loaded.session.n_ctx(),
            "n_threads": loaded.session.options().n_threads,
            "n_ubatch": args.compute.ubatch_size,
            "cache_type_k": args.compute.cache_type_k.name(),
            "cache_type_v": args.compute.cache_type_v.name(),
            "isa": loaded.session.options().kernels.isa().name(),
        },
        "timings": outcome.timings(loaded),
    });
    let mut line = serde_json::to_vec(&object)?;
    line.push(b'\n');
    Ok(stdout().write_all(&line)?)
}
