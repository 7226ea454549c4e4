//! Messages, the template that renders them, and the tokens of the result.

use std::path::PathBuf;

use qgguf::chat_template::{ChatTemplate, Message, RenderOptions};
use qgguf::model::Model;
use serde_json::{Map, Value};

use super::args::read_text;
use super::error::{Context, Failure, Result};

/// How messages become a prompt.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Chat template")]
pub struct TemplateArgs {
    /// System prompt (llama.cpp's -sys works too)
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system_prompt: Option<String>,
    /// Take the chat template (Jinja) from FILE instead of the model file
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// More variables for the template, e.g. '{"enable_thinking": false}'
    #[arg(long, value_name = "JSON", value_parser = json_object)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
}

fn json_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|e| format!("not a JSON object: {e}"))
}

impl TemplateArgs {
    /// The template in force.
    pub fn template(&self, model: &Model) -> Result<ChatTemplate> {
        match &self.chat_template {
            Some(path) => model.chat_template_from(&read_text(path)?).context(path.display()),
            None => model.chat_template(None)?.ok_or_else(|| {
                Failure::text(
                    "the model file has no chat template (the built-in model is not made for chat): \
                     name a chat model with -m, or give a template with --chat-template FILE",
                )
            }),
        }
    }
}

/// A conversation so far.
pub struct Conversation {
    template: ChatTemplate,
    kwargs: Map<String, Value>,
    messages: Vec<Message>,
}

impl Conversation {
    /// An empty one, but for the system prompt of the flags.
    pub fn new(args: &TemplateArgs, model: &Model) -> Result<Conversation> {
        let mut conversation = Conversation {
            template: args.template(model)?,
            kwargs: args.chat_template_kwargs.clone().unwrap_or_default(),
            messages: Vec::new(),
        };
        if let Some(system) = &args.system_prompt {
            conversation.push("system", system);
        }
        Ok(conversation)
    }

    /// Adds a message.
    pub fn push(&mut self, role: &str, content: &str) {
        self.messages.push(Message::new(role, content));
    }

    /// Takes the last message back.
    pub fn pop(&mut self) {
        self.messages.pop();
    }

    /// All messages.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Forgets everything, and begins again with `system` if there is one.
    pub fn restart(&mut self, system: Option<&str>) {
        self.messages.clear();
        if let Some(system) = system {
            self.push("system", system);
        }
    }

    /// The system prompt.
    pub fn system(&self) -> Option<&str> {
        self.messages.first().filter(|message| message.role() == Some("system"))?.content()
    }

    /// The tokens of the conversation with the start of an answer. One BOS where the model wants one, whether
    /// or not the template writes it.
    pub fn tokens(&self, model: &Model) -> Result<Vec<u32>> {
        let options = RenderOptions {
            add_generation_prompt: true,
            kwargs: self.kwargs.clone(),
            ..RenderOptions::default()
        };
        let text = self.template.render(&self.messages, &options)?;
        let tokenizer = model.tokenizer();
        let mut tokens = tokenizer.encode(&text, false, true);
        if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.add_bos())
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }
}
