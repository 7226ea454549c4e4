//! Conversations: messages as clients send them, and the prompt that the model's template makes of them.

use serde_json::{Map, Value, json};

use crate::chat_template::{Message, RenderOptions};

use super::error::{ApiError, Result};
use super::fields::{Fields, kind};
use super::limits::{Limits, at_most};
use super::state::Served;

/// A conversation that is to be answered.
#[derive(Clone, Debug, Default)]
pub struct Chat {
    messages: Vec<Message>,
    /// The last message is the start of the answer.
    continues: bool,
    /// Descriptions of tools.
    pub tools: Option<Value>,
    /// Variables for the template.
    kwargs: Map<String, Value>,
    /// Whether the prompt ends with the header of an answer.
    add_generation_prompt: bool,
}

impl Chat {
    /// Checks messages in OpenAI's form; the other families translate theirs into it.
    ///
    /// # Errors
    /// The first message that is none, by its place.
    pub fn new(messages: Vec<Value>, limits: &Limits, prefill: bool) -> Result<Chat> {
        if messages.is_empty() {
            return Err(ApiError::field("messages", "expected at least one"));
        }
        at_most("messages", limits.messages, messages.len(), "messages")?;
        let each = messages.into_iter().enumerate();
        let messages = each.map(|(i, value)| message(i, value)).collect::<Result<Vec<_>>>()?;
        let mut chat = Chat { messages, add_generation_prompt: true, ..Chat::default() };
        chat.continues = prefill && chat.ends_with_a_start()?;
        Ok(chat)
    }

    /// Takes `messages` and what belongs to the template out of OpenAI's request.
    ///
    /// # Errors
    /// A field that makes no sense.
    pub fn read(fields: &mut Fields, served: &Served, limits: &Limits, prefill: bool) -> Result<Chat> {
        let continues = fields.take::<bool>("continue_final_message")?;
        let adds = fields.take::<bool>("add_generation_prompt")?;
        if continues == Some(true) && adds == Some(true) {
            return Err(ApiError::field("continue_final_message", "excludes add_generation_prompt"));
        }
        let prefill = continues.unwrap_or(prefill);
        let mut chat = Chat::new(fields.require("messages")?, limits, prefill)?;
        if continues == Some(true) && !chat.continues {
            let problem = "the last message is not an assistant's text";
            return Err(ApiError::field("continue_final_message", problem));
        }
        chat.add_generation_prompt = adds.unwrap_or(true);
        chat.kwargs = kwargs(fields, served)?;
        Ok(chat)
    }

    /// Whether the last message is the assistant's, and so the start of the answer.
    fn ends_with_a_start(&self) -> Result<bool> {
        let is_assistant = |message: &Message| message.role() == Some("assistant");
        let Some(last) = self.messages.last().filter(|last| is_assistant(last)) else { return Ok(false) };
        if self.messages.iter().rev().take(2).filter(|message| is_assistant(message)).count() == 2 {
            return Err(ApiError::field("messages", "the last two are both the assistant's"));
        }
        if last.0.contains_key("tool_calls") {
            return Err(ApiError::field(
                "messages",
                "an assistant's message with tool calls cannot be continued",
            ));
        }
        Ok(true)
    }

    /// The text of the prompt.
    ///
    /// # Errors
    /// What the template refuses.
    pub fn render(&self, served: &Served) -> Result<String> {
        let options = RenderOptions {
            tools: self.tools.clone(),
            add_generation_prompt: self.add_generation_prompt,
            kwargs: self.kwargs.clone(),
            now: None,
        };
        let template = &served.template.template;
        let text = match self.continues {
            true => template.prompt_continuing(&self.messages, &options)?,
            false => template.prompt(&self.messages, &options)?,
        };
        Ok(text)
    }

    /// The tokens of the prompt. One BOS where the model wants one, whether or not the template writes it.
    ///
    /// # Errors
    /// What the template refuses.
    pub fn tokens(&self, served: &Served) -> Result<Vec<u32>> {
        let tokenizer = served.model.tokenizer();
        let mut tokens = tokenizer.encode(&self.render(served)?, false, true);
        if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.add_bos())
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }
}

/// The template's variables: the server's, the request's, and what stands for one of them.
fn kwargs(fields: &mut Fields, served: &Served) -> Result<Map<String, Value>> {
    let mut kwargs = served.template.kwargs.clone();
    let given: Option<Map<String, Value>> = fields.take("chat_template_kwargs")?;
    kwargs.extend(given.unwrap_or_default());
    if let Some(thinking) = fields.value("enable_thinking") {
        kwargs.insert("enable_thinking".to_owned(), thinking);
    }
    if let Some(value) = kwargs.get("enable_thinking").filter(|value| !value.is_boolean()) {
        let name = fields.name("chat_template_kwargs.enable_thinking");
        return Err(ApiError::field(name, format!("expected a boolean, found {}", kind(value))));
    }
    for name in ["reasoning_budget_tokens", "thinking_budget_tokens"] {
        match fields.take::<i64>(name)? {
            Some(0) => drop(kwargs.insert("enable_thinking".to_owned(), false.into())),
            Some(1..) => return Err(ApiError::field(name, "expected 0 (no thinking) or -1 (no limit)")),
            _ => {}
        }
    }
    match fields.take::<String>("reasoning_effort")?.as_deref() {
        None => {}
        Some("none") => drop(kwargs.insert("enable_thinking".to_owned(), false.into())),
        Some(effort) => drop(kwargs.insert("reasoning_effort".to_owned(), effort.into())),
    }
    Ok(kwargs)
}

/// One message, whose content is a text.
fn message(i: usize, value: Value) -> Result<Message> {
    let path = format!("messages[{i}]");
    let mut fields = Fields::of(value, &path)?;
    let role: String = fields.require("role")?;
    if !["system", "developer", "user", "assistant", "tool"].contains(&role.as_str()) {
        let expected = "expected system, developer, user, assistant or tool";
        return Err(ApiError::field(fields.name("role"), format!("{expected}, found '{role}'")));
    }
    let content = fields.value("content").map(|value| content(&fields.name("content"), value)).transpose()?;
    let calls = fields.take::<Vec<Value>>("tool_calls")?.filter(|calls| !calls.is_empty());
    let thought: Option<String> = fields.take("reasoning_content")?;
    if content.is_none() && (role != "assistant" || calls.is_none() && thought.is_none()) {
        return Err(fields.missing("content"));
    }
    let mut message = Message::new(&role, content.as_deref().unwrap_or_default());
    if let Some(calls) = calls {
        let each = calls.into_iter().enumerate();
        let calls: Vec<Value> =
            each.map(|(k, value)| call(&format!("{path}.tool_calls[{k}]"), value)).collect::<Result<_>>()?;
        message.0.insert("tool_calls".to_owned(), calls.into());
    }
    if let Some(thought) = thought {
        message.0.insert("reasoning_content".to_owned(), thought.into());
    }
    for name in ["name", "tool_call_id"] {
        if let Some(text) = fields.take::<String>(name)? {
            message.0.insert(name.to_owned(), text.into());
        }
    }
    Ok(message)
}

/// A text, or parts of text, which are joined by line ends.
fn content(field: &str, value: Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Array(parts) => {
            let each = parts.into_iter().enumerate();
            let parts: Vec<String> =
                each.map(|(k, part)| text_part(&format!("{field}[{k}]"), part)).collect::<Result<_>>()?;
            Ok(parts.join("\n"))
        }
        other => Err(ApiError::field(
            field,
            format!("expected a string or an array of parts, found {}", kind(&other)),
        )),
    }
}

fn text_part(path: &str, part: Value) -> Result<String> {
    let mut fields = Fields::of(part, path)?;
    let part_kind: String = fields.require("type")?;
    match part_kind.as_str() {
        "text" | "input_text" | "output_text" => fields.require("text"),
        "refusal" => fields.require("refusal"),
        other => Err(ApiError::field(
            fields.name("type"),
            format!("expected text, found '{other}', which no model here reads"),
        )),
    }
}

/// A call of a tool in an earlier answer.
fn call(path: &str, value: Value) -> Result<Value> {
    let mut fields = Fields::of(value, path)?;
    let mut function = fields.object("function")?.ok_or_else(|| fields.missing("function"))?;
    let name: String = function.require("name")?;
    let arguments = function.value("arguments").unwrap_or_else(|| json!({}));
    if !arguments.is_string() && !arguments.is_object() {
        let problem = format!("expected JSON text or an object, found {}", kind(&arguments));
        return Err(ApiError::field(function.name("arguments"), problem));
    }
    let mut call = Map::new();
    call.extend(fields.take::<String>("id")?.map(|id| ("id".to_owned(), id.into())));
    call.insert("type".to_owned(), "function".into());
    call.insert("function".to_owned(), json!({ "name": name, "arguments": arguments }));
    Ok(call.into())
}
