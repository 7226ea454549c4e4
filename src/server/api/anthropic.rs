//! Anthropic's `/v1/messages`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::super::chat::Chat;
use super::super::error::{ApiError, Result, Shape};
use super::super::fields::{Fields, kind};
use super::super::form::{Form, described};
use super::super::job::Job;
use super::super::run::{Answer, Finish, Piece};
use super::super::settings::{Settings, stops};
use super::super::state::{App, Served};
use super::super::stream::{self, Writer};
use crate::answer::{Delta, Message};
use crate::engine::generation::StopReason;

/// Tokens of an answer where the request names no limit.
const DEFAULT_MAX_TOKENS: u64 = 4096;

/// Answers a conversation.
pub async fn messages(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Response> {
    let served = app.model(fields.take::<String>("model")?.as_deref())?;
    let streams = fields.take::<bool>("stream")?.unwrap_or(false);
    let (id, name, ping) = (app.id("msg_"), served.name.clone(), app.options.ping);
    let run = app.prepare(move |app| job(app, served, &mut fields)?.start(&app.metrics)).await?;
    if streams {
        let n_prompt = run.n_prompt();
        return Ok(stream::respond(run, Events { id, model: name, n_prompt, open: None, n_blocks: 0 }, ping));
    }
    let choices = run.collect().await?;
    let choice = choices.first().ok_or_else(|| ApiError::internal("no answer"))?;
    let (reason, sequence) = stop(&choice.finish);
    let answer = json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": name,
        "content": blocks(choice.message()),
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": usage(&choice.finish),
    });
    Ok(Json(answer).into_response())
}

/// Counts the tokens of a conversation.
pub async fn count_tokens(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Json<Value>> {
    let served = app.model(fields.take::<String>("model")?.as_deref())?;
    let job = app.prepare(move |app| job(app, served, &mut fields)).await?;
    Ok(Json(json!({ "input_tokens": job.prompts.iter().map(Vec::len).sum::<usize>() })))
}

fn job(app: &App, served: Arc<Served>, fields: &mut Fields) -> Result<Job> {
    let limits = &app.options.limits;
    for name in ["mcp_servers", "container"] {
        fields.refuse_unless(name, |value| value.as_array().is_some_and(Vec::is_empty))?;
    }
    let mut plain = Map::new();
    let mut set =
        |name: &str, value: Option<Value>| plain.extend(value.map(|value| (name.to_owned(), value)));
    for name in ["temperature", "top_p", "top_k", "chat_template_kwargs"] {
        set(name, fields.value(name));
    }
    set("max_tokens", Some(fields.value("max_tokens").unwrap_or(DEFAULT_MAX_TOKENS.into())));
    set("enable_thinking", thinking(fields)?);
    let (tools, choice, parallel) = tools(fields)?;
    set("tools", tools);
    set("tool_choice", choice);
    set("parallel_tool_calls", parallel);
    let mut messages = Vec::new();
    if let Some(system) = fields.value("system") {
        messages.push(json!({ "role": "system", "content": texts("system", system)? }));
    }
    let given: Vec<Value> = fields.require("messages")?;
    for (i, message) in given.into_iter().enumerate() {
        add_message(&format!("messages[{i}]"), message, &mut messages)?;
    }
    plain.insert("messages".to_owned(), messages.into());
    let mut plain = Fields::of(plain.into(), "body")?;
    let mut chat = Chat::read(&mut plain, &served, limits, app.options.prefill_assistant)?;
    let mut settings =
        Settings::read(&mut plain, &served.defaults, served.model.tokenizer(), limits.choices)?;
    if let Some(list) = fields.value("stop_sequences") {
        settings.stop = stops("stop_sequences", list)?;
    }
    let form = Form::read(&mut plain, limits)?;
    form.apply(&mut chat);
    let prompts = vec![chat.tokens(&served)?];
    Ok(Job { served, prompts, settings, form, prompt_logprobs: false })
}

/// Whether the model is to think. How long is its own business: a budget is taken as a wish.
fn thinking(fields: &mut Fields) -> Result<Option<Value>> {
    let Some(mut thinking) = fields.object("thinking")? else { return Ok(None) };
    match thinking.require::<String>("type")?.as_str() {
        "enabled" | "adaptive" => Ok(Some(true.into())),
        "disabled" => Ok(Some(false.into())),
        other => {
            let problem = format!("expected enabled, adaptive or disabled, found '{other}'");
            Err(ApiError::field("thinking.type", problem))
        }
    }
}

/// Tools, the choice among them, and whether several may be called, in OpenAI's form.
fn tools(fields: &mut Fields) -> Result<(Option<Value>, Option<Value>, Option<Value>)> {
    let Some(given) = fields.take::<Vec<Value>>("tools")? else {
        drop(fields.value("tool_choice"));
        return Ok((None, None, None));
    };
    let mut tools = Vec::new();
    for (i, tool) in given.into_iter().enumerate() {
        let mut tool = Fields::of(tool, &format!("tools[{i}]"))?;
        tool.refuse_unless("type", |value| value == "custom")?;
        let name: String = tool.require("name")?;
        tools.push(described(
            &name,
            tool.value("description"),
            tool.value("input_schema"),
            tool.value("strict"),
        ));
    }
    let Some(mut choice) = fields.object("tool_choice")? else { return Ok((Some(tools.into()), None, None)) };
    let one_at_most = choice.take::<bool>("disable_parallel_tool_use")?.unwrap_or(false);
    let choice = match choice.require::<String>("type")?.as_str() {
        "auto" => json!("auto"),
        "any" => json!("required"),
        "none" => json!("none"),
        "tool" => json!({ "type": "function", "function": { "name": choice.require::<String>("name")? } }),
        other => {
            let problem = format!("expected auto, any, tool or none, found '{other}'");
            return Err(ApiError::field("tool_choice.type", problem));
        }
    };
    Ok((Some(tools.into()), Some(choice), Some((!one_at_most).into())))
}

/// A text, or blocks of text.
fn texts(path: &str, value: Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Array(blocks) => {
            let each = blocks.into_iter().enumerate().map(|(i, block)| {
                let mut block = Fields::of(block, &format!("{path}[{i}]"))?;
                match block.require::<String>("type")?.as_str() {
                    "text" => block.require::<String>("text"),
                    other => Err(not_text(&block, other)),
                }
            });
            Ok(each.collect::<Result<Vec<_>>>()?.join("\n"))
        }
        other => Err(ApiError::field(path, format!("expected a string or blocks, found {}", kind(&other)))),
    }
}

fn not_text(block: &Fields, found: &str) -> ApiError {
    ApiError::field(block.name("type"), format!("'{found}' is nothing that the model reads"))
}

/// A message of Anthropic's becomes one or, with results of tools, several of OpenAI's.
fn add_message(path: &str, message: Value, messages: &mut Vec<Value>) -> Result<()> {
    let mut message = Fields::of(message, path)?;
    let role: String = message.require("role")?;
    let content = message.value("content").ok_or_else(|| message.missing("content"))?;
    let Value::Array(blocks) = content else {
        messages.push(json!({ "role": role, "content": content }));
        return Ok(());
    };
    let (mut said, mut thought, mut calls) = (Vec::new(), String::new(), Vec::new());
    for (i, block) in blocks.into_iter().enumerate() {
        let mut block = Fields::of(block, &format!("{path}.content[{i}]"))?;
        match block.require::<String>("type")?.as_str() {
            "text" => said.push(block.require::<String>("text")?),
            "thinking" => thought += &block.require::<String>("thinking")?,
            "redacted_thinking" => {}
            "tool_use" => calls.push(json!({
                "id": block.require::<String>("id")?,
                "type": "function",
                "function": { "name": block.require::<String>("name")?, "arguments": block.value("input") },
            })),
            "tool_result" => {
                let path = block.name("content");
                let content = block.value("content").map(|content| texts(&path, content)).transpose()?;
                messages.push(json!({
                    "role": "tool",
                    "tool_call_id": block.require::<String>("tool_use_id")?,
                    "content": content.unwrap_or_default(),
                }));
            }
            other => return Err(not_text(&block, other)),
        }
    }
    if said.is_empty() && thought.is_empty() && calls.is_empty() {
        return Ok(());
    }
    let mut plain = json!({ "role": role, "content": said.join("\n") });
    if !thought.is_empty() {
        plain["reasoning_content"] = thought.into();
    }
    if !calls.is_empty() {
        plain["tool_calls"] = calls.into();
    }
    messages.push(plain);
    Ok(())
}

/// The answer's blocks: thought, text, calls.
fn blocks(message: &Message) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !message.reasoning.is_empty() {
        blocks.push(json!({ "type": "thinking", "thinking": message.reasoning, "signature": "" }));
    }
    if !message.content.is_empty() {
        blocks.push(json!({ "type": "text", "text": message.content }));
    }
    for call in &message.tool_calls {
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        blocks.push(json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input }));
    }
    blocks
}

fn stop(finish: &Finish) -> (&'static str, Option<&str>) {
    match (&finish.stop, finish.reason()) {
        (StopReason::StopString(text), "stop") => ("stop_sequence", Some(text)),
        (_, "length") => ("max_tokens", None),
        (_, "tool_calls") => ("tool_use", None),
        _ => ("end_turn", None),
    }
}

fn usage(finish: &Finish) -> Value {
    let usage = finish.usage;
    json!({
        "input_tokens": usage.prompt.saturating_sub(usage.cached),
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion,
    })
}

/// The stream of events.
struct Events {
    id: String,
    model: String,
    n_prompt: usize,
    /// What kind of block is open.
    open: Option<Block>,
    n_blocks: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    /// The call of this number.
    Call(usize),
}

impl Events {
    fn close(&mut self, out: &mut String) {
        let Some(open) = self.open.take() else { return };
        if open == Block::Thinking {
            self.delta(json!({ "type": "signature_delta", "signature": "" }), out);
        }
        stream::named(&json!({ "type": "content_block_stop", "index": self.n_blocks - 1 }), out);
    }

    /// Makes sure that a block of this kind is open.
    fn open(&mut self, block: Block, start: Value, out: &mut String) {
        if self.open == Some(block) {
            return;
        }
        self.close(out);
        let start = json!({ "type": "content_block_start", "index": self.n_blocks, "content_block": start });
        stream::named(&start, out);
        self.n_blocks += 1;
        self.open = Some(block);
    }

    fn delta(&self, delta: Value, out: &mut String) {
        let index = self.n_blocks.saturating_sub(1);
        stream::named(&json!({ "type": "content_block_delta", "index": index, "delta": delta }), out);
    }

    fn piece(&mut self, piece: Piece, out: &mut String) {
        match piece.delta {
            Delta::Reasoning(text) => {
                let start = json!({ "type": "thinking", "thinking": "", "signature": "" });
                self.open(Block::Thinking, start, out);
                self.delta(json!({ "type": "thinking_delta", "thinking": text }), out);
            }
            Delta::Content(text) if text.is_empty() => {}
            Delta::Content(text) => {
                self.open(Block::Text, json!({ "type": "text", "text": "" }), out);
                self.delta(json!({ "type": "text_delta", "text": text }), out);
            }
            Delta::ToolCall { index, id, name } => {
                let start = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.open(Block::Call(index), start, out);
            }
            Delta::ToolArguments { text, .. } => {
                self.delta(json!({ "type": "input_json_delta", "partial_json": text }), out);
            }
        }
    }
}

impl Writer for Events {
    fn begin(&mut self, out: &mut String) {
        let message = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": { "input_tokens": self.n_prompt, "cache_read_input_tokens": 0, "output_tokens": 0 },
        });
        stream::named(&json!({ "type": "message_start", "message": message }), out);
    }

    fn write(&mut self, answer: Answer, out: &mut String) {
        match answer {
            Answer::Progress { .. } | Answer::PromptLogprobs { .. } => {}
            Answer::Piece(piece) => self.piece(piece, out),
            Answer::Done(finish) => {
                self.close(out);
                let (reason, sequence) = stop(&finish);
                let delta = json!({ "stop_reason": reason, "stop_sequence": sequence });
                let event = json!({ "type": "message_delta", "delta": delta, "usage": usage(&finish) });
                stream::named(&event, out);
            }
        }
    }

    fn end(&mut self, out: &mut String) {
        stream::named(&json!({ "type": "message_stop" }), out);
    }

    fn error(&mut self, error: &ApiError, out: &mut String) {
        stream::named(&error.json(Shape::Anthropic), out);
    }

    fn ping(&self) -> &'static str {
        "event: ping\ndata: {\"type\":\"ping\"}\n\n"
    }
}
