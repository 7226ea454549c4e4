//! Chat templates: from messages to the text of a prompt.
//!
//! A GGUF carries the Jinja template of its model as text. [`ChatTemplate`] renders it as the Python library
//! `transformers` does, byte for byte, or fails with the line: a prompt that differs silently makes a model worse
//! without anybody noticing. (Known to differ silently: `varargs` and `kwargs` in macros and attributes that Python
//! objects have besides their items, such as `i.real` or `d.items` without a call, are undefined here.) Templates come from strangers, so a rendering has a budget of steps and bytes, and runs
//! on a thread with a large stack.
//!
//! Clients send what a template may not take: arguments as text, content in parts, a system message, ids of another
//! family. [`ChatTemplate::prompt`] adapts all that to what the template can do, its [`Capabilities`].

mod adapt;
mod capabilities;
mod clock;
mod environment;
mod error;
mod message;
mod methods;
mod program;
mod python;
mod source;
mod workers;

use std::sync::{Arc, OnceLock};

use minijinja::Value;
use serde_json::Map;

pub use capabilities::Capabilities;
pub use clock::LocalTime;
use error::Raised;
pub use error::{TemplateError, TemplateErrorKind};
pub use message::Message;
use message::{Converted, to_engine};
use workers::Workers;

/// The texts of a tokenizer's special tokens, as templates name them: `bos_token`, `eos_token`, `pad_token` ...
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens(Vec<(String, String)>);

impl SpecialTokens {
    /// The two tokens that most templates use.
    pub fn new(bos: &str, eos: &str) -> SpecialTokens {
        SpecialTokens::default().with("bos_token", bos).with("eos_token", eos)
    }

    /// Adds a token under its name in templates. A token that is not added is undefined and prints as nothing.
    pub fn with(mut self, name: &str, text: &str) -> SpecialTokens {
        self.0.push((name.to_owned(), text.to_owned()));
        self
    }
}

/// What a rendering depends on besides the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// Descriptions of the tools that the model may call, usually an array of JSON schemas of functions.
    pub tools: Option<serde_json::Value>,
    /// Whether to end with the header of an answer, so that the model writes one.
    pub add_generation_prompt: bool,
    /// Further variables, such as `enable_thinking`. They win over special tokens of the same name.
    pub kwargs: Map<String, serde_json::Value>,
    /// What `strftime_now` takes for now; the system's clock if `None`.
    pub now: Option<LocalTime>,
}

/// A chat template that is known to compile. It is compiled once; clones share it, and any number of threads may render
/// with it at the same time.
#[derive(Clone)]
pub struct ChatTemplate {
    specials: SpecialTokens,
    workers: Arc<Workers>,
    capabilities: Arc<OnceLock<Capabilities>>,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source()).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// A syntax error, with its line; a template of 64 KiB or more or with absurdly long expressions.
    pub fn new(source: &str, specials: SpecialTokens) -> Result<ChatTemplate, TemplateError> {
        let workers = Arc::new(Workers::start(source::for_engine(source)?)?);
        Ok(ChatTemplate { specials, workers, capabilities: Arc::default() })
    }

    /// The template's text, with line ends and tags as the engine wants them.
    pub fn source(&self) -> &str {
        self.workers.source()
    }

    /// Renders the prompt for `messages`, which reach the template as they are.
    ///
    /// # Errors
    /// What the template raises itself (`raise_exception`), anything it does that Jinja would refuse or that this
    /// engine does not know, and a template that works or writes far more than its messages call for; each with the
    /// line.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, TemplateError> {
        let mut size = Converted::default();
        let context = self.context(messages, options, &mut size);
        self.workers.render(context, fuel(&size))
    }

    /// The template's variables. Later ones win, in the order in which the reference renderer lets them.
    fn context(&self, messages: &[Message], options: &RenderOptions, size: &mut Converted) -> Value {
        let now = options.now.unwrap_or_else(LocalTime::now);
        let mut variables = vec![("strftime_now".to_owned(), environment::strftime_now(now))];
        variables
            .extend(self.specials.0.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str()))));
        let messages: Value = messages.iter().map(|message| message.to_engine(size)).collect();
        variables.push(("messages".into(), messages));
        variables.push((
            "tools".into(),
            options.tools.as_ref().map_or(Value::from(()), |tools| to_engine(tools, size)),
        ));
        variables.push(("documents".into(), Value::from(())));
        variables.push(("add_generation_prompt".into(), Value::from(options.add_generation_prompt)));
        variables.extend(options.kwargs.iter().map(|(name, value)| (name.clone(), to_engine(value, size))));
        Value::from_pairs(variables)
    }
}

/// The budget of one rendering: an instruction or 64 bytes of text cost one unit.
///
/// Real templates spend a few hundred instructions on a message and copy its text a few times; one that looks at
/// all messages for each message still fits for a thousand of them.
fn fuel(size: &Converted) -> u64 {
    const BASE: u64 = 1_000_000;
    const PER_VALUE: u64 = 2_000;
    const MAX: u64 = 20_000_000;
    (BASE + PER_VALUE * size.values as u64 + size.bytes as u64).min(MAX)
}

#[cfg(test)]
mod tests;
