//! OpenAI's `/v1/responses`, of which nothing is stored.

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
use super::super::settings::Settings;
use super::super::state::{App, Served, now};
use super::super::stream::{self, Writer};
use crate::answer::{Delta, Message, ToolCall};

/// Answers a conversation.
pub async fn responses(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Response> {
    let served = app.model(fields.take::<String>("model")?.as_deref())?;
    let streams = fields.take::<bool>("stream")?.unwrap_or(false);
    let head = Head::new(&app, &served, &fields);
    let ping = app.options.ping;
    let run = app.prepare(move |app| job(app, served, &mut fields)?.start(&app.metrics)).await?;
    if streams {
        return Ok(stream::respond(run, Events::new(head), ping));
    }
    let choices = run.collect().await?;
    let choice = choices.first().ok_or_else(|| ApiError::internal("no answer"))?;
    let output = head.items(choice.message());
    Ok(Json(head.response(Some(&choice.finish), output)).into_response())
}

/// Counts the tokens of a conversation.
pub async fn input_tokens(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Json<Value>> {
    let served = app.model(fields.take::<String>("model")?.as_deref())?;
    let job = app.prepare(move |app| job(app, served, &mut fields)).await?;
    let n: usize = job.prompts.iter().map(Vec::len).sum();
    Ok(Json(json!({ "object": "response.input_tokens", "input_tokens": n })))
}

fn job(app: &App, served: Arc<Served>, fields: &mut Fields) -> Result<Job> {
    let limits = &app.options.limits;
    for name in ["previous_response_id", "conversation", "prompt"] {
        fields.refuse_unless(name, |_| false)?;
    }
    fields.refuse_unless("background", |value| value == &json!(false))?;
    fields.refuse_unless("truncation", |value| value == "disabled")?;
    fields.refuse_unless("top_logprobs", |value| value == &json!(0))?;
    let mut plain = plain(fields)?;
    let mut chat = Chat::read(&mut plain, &served, limits, app.options.prefill_assistant)?;
    let settings = Settings::read(&mut plain, &served.defaults, served.model.tokenizer(), limits.choices)?;
    let form = Form::read(&mut plain, limits)?;
    form.apply(&mut chat);
    let prompts = vec![chat.tokens(&served)?];
    Ok(Job { served, prompts, settings, form, prompt_logprobs: false })
}

/// The request in the form of a chat completion's.
fn plain(fields: &mut Fields) -> Result<Fields> {
    let mut plain = Map::new();
    let mut set =
        |name: &str, value: Option<Value>| plain.extend(value.map(|value| (name.to_owned(), value)));
    for name in [
        "temperature",
        "top_p",
        "max_output_tokens",
        "parallel_tool_calls",
        "seed",
        "chat_template_kwargs",
        "top_k",
        "min_p",
        "stop",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
    ] {
        set(name, fields.value(name));
    }
    if let Some(mut reasoning) = fields.object("reasoning")? {
        set("reasoning_effort", reasoning.value("effort"));
    }
    if let Some(mut text) = fields.object("text")? {
        set("response_format", text.object("format")?.map(format).transpose()?);
    }
    set("tools", tools(fields)?);
    set("tool_choice", fields.value("tool_choice"));
    let mut messages = Vec::new();
    if let Some(instructions) = fields.take::<String>("instructions")? {
        messages.push(json!({ "role": "system", "content": instructions }));
    }
    let input = fields.value("input").ok_or_else(|| fields.missing("input"))?;
    read_input(input, &mut messages)?;
    set("messages", Some(messages.into()));
    Fields::of(plain.into(), "body")
}

/// `{type, name, schema}` as `{type, json_schema: {schema}}`.
fn format(mut format: Fields) -> Result<Value> {
    let format_kind: String = format.require("type")?;
    let schema = format.value("schema");
    Ok(match schema {
        Some(schema) => json!({ "type": format_kind, "json_schema": { "schema": schema } }),
        None => json!({ "type": format_kind }),
    })
}

/// Functions in a chat completion's form. Tools that OpenAI's servers would run themselves are left out.
fn tools(fields: &mut Fields) -> Result<Option<Value>> {
    let Some(given) = fields.take::<Vec<Value>>("tools")? else { return Ok(None) };
    let mut tools = Vec::new();
    for (i, tool) in given.into_iter().enumerate() {
        let mut tool = Fields::of(tool, &format!("tools[{i}]"))?;
        if tool.require::<String>("type")? == "function" {
            let name: String = tool.require("name")?;
            let (description, strict) = (tool.value("description"), tool.value("strict"));
            tools.push(described(&name, description, tool.value("parameters"), strict));
        }
    }
    Ok((!tools.is_empty()).then(|| tools.into()))
}

fn read_input(input: Value, messages: &mut Vec<Value>) -> Result<()> {
    match input {
        Value::String(text) => messages.push(json!({ "role": "user", "content": text })),
        Value::Array(items) => {
            for (i, item) in items.into_iter().enumerate() {
                read_item(Fields::of(item, &format!("input[{i}]"))?, messages)?;
            }
        }
        other => {
            let problem = format!("expected a string or an array of items, found {}", kind(&other));
            return Err(ApiError::field("input", problem));
        }
    }
    Ok(())
}

/// An item of the conversation. What an assistant thought, said and called in a row is one message.
fn read_item(mut item: Fields, messages: &mut Vec<Value>) -> Result<()> {
    let item_kind: Option<String> = item.take("type")?;
    match item_kind.as_deref().unwrap_or("message") {
        "message" => {
            let role: String = item.require("role")?;
            let content = item.value("content").ok_or_else(|| item.missing("content"))?;
            match messages.last_mut().filter(|_| role == "assistant").filter(is_only_thought) {
                Some(message) => message["content"] = content,
                None => messages.push(json!({ "role": role, "content": content })),
            }
        }
        "function_call" => {
            let call = json!({
                "id": item.require::<String>("call_id")?,
                "type": "function",
                "function": {
                    "name": item.require::<String>("name")?,
                    "arguments": item.require::<String>("arguments")?,
                },
            });
            let message = assistant(messages);
            match message["tool_calls"].as_array_mut() {
                Some(calls) => calls.push(call),
                None => message["tool_calls"] = json!([call]),
            }
        }
        "function_call_output" => messages.push(json!({
            "role": "tool",
            "tool_call_id": item.require::<String>("call_id")?,
            "content": item.value("output").unwrap_or_default(),
        })),
        "reasoning" => {
            let parts: Vec<Value> = item.take("content")?.unwrap_or_default();
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            let thought: String = texts.collect();
            if !thought.is_empty() {
                messages.push(json!({ "role": "assistant", "content": "", "reasoning_content": thought }));
            }
        }
        other => {
            let problem = format!("'{other}' is nothing that the model reads");
            return Err(ApiError::field(item.name("type"), problem));
        }
    }
    Ok(())
}

fn is_only_thought(message: &&mut Value) -> bool {
    message["content"] == ""
        && message.get("reasoning_content").is_some()
        && message.get("tool_calls").is_none()
}

/// The last message if it is the assistant's, or a new one of its.
fn assistant(messages: &mut Vec<Value>) -> &mut Value {
    if messages.last().is_none_or(|last| last["role"] != "assistant") {
        messages.push(json!({ "role": "assistant", "content": "" }));
    }
    let last = messages.len() - 1;
    &mut messages[last]
}

/// What all events and the response have in common.
struct Head {
    id: String,
    created: u64,
    model: String,
    /// What the request says of itself and clients want to see again.
    echoed: Map<String, Value>,
}

impl Head {
    fn new(app: &App, served: &Served, fields: &Fields) -> Head {
        let or = |value: Value, default: Value| if value.is_null() { default } else { value };
        let mut echoed = Map::new();
        let mut echo = |name: &str, value: Value| echoed.insert(name.to_owned(), value);
        echo("instructions", fields.peek("instructions"));
        echo("max_output_tokens", fields.peek("max_output_tokens"));
        echo("temperature", fields.peek("temperature"));
        echo("top_p", fields.peek("top_p"));
        echo("metadata", or(fields.peek("metadata"), json!({})));
        echo("parallel_tool_calls", fields.peek("parallel_tool_calls").as_bool().unwrap_or(true).into());
        echo("tool_choice", or(fields.peek("tool_choice"), "auto".into()));
        echo("tools", or(fields.peek("tools"), json!([])));
        Head { id: app.id("resp_"), created: now(), model: served.name.clone(), echoed }
    }

    /// An id of one of the response's items.
    fn item_id(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}{}{index:02}", self.id.trim_start_matches("resp_"))
    }

    /// The response as it is now; complete with `finish`.
    fn response(&self, finish: Option<&Finish>, output: Vec<Value>) -> Value {
        let cut = finish.is_some_and(|finish| finish.reason() == "length");
        let status = match finish {
            None => "in_progress",
            Some(_) if cut => "incomplete",
            Some(_) => "completed",
        };
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": finish.map(|_| now()),
            "status": status,
            "error": null,
            "incomplete_details": cut.then(|| json!({ "reason": "max_output_tokens" })),
            "model": self.model,
            "output": output,
            "previous_response_id": null,
            "store": false,
            "usage": finish.map(usage),
        });
        if let Some(map) = response.as_object_mut() {
            map.extend(self.echoed.clone());
        }
        response
    }

    /// The items of a complete answer.
    fn items(&self, message: &Message) -> Vec<Value> {
        let mut items = Vec::new();
        if !message.reasoning.is_empty() {
            items.push(self.reasoning(0, &message.reasoning, "completed"));
        }
        if !message.content.is_empty() || message.tool_calls.is_empty() {
            items.push(self.message(items.len(), Some(&message.content), "completed"));
        }
        for call in &message.tool_calls {
            items.push(self.call(items.len(), call, "completed"));
        }
        items
    }

    fn reasoning(&self, index: usize, text: &str, status: &str) -> Value {
        let content =
            if text.is_empty() { json!([]) } else { json!([{ "type": "reasoning_text", "text": text }]) };
        json!({
            "id": self.item_id("rs_", index),
            "type": "reasoning",
            "summary": [],
            "content": content,
            "encrypted_content": "",
            "status": status,
        })
    }

    fn message(&self, index: usize, text: Option<&str>, status: &str) -> Value {
        json!({
            "id": self.item_id("msg_", index),
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": text.map(output_text).into_iter().collect::<Vec<_>>(),
        })
    }

    fn call(&self, index: usize, call: &ToolCall, status: &str) -> Value {
        json!({
            "id": self.item_id("fc_", index),
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": status,
        })
    }
}

fn output_text(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn usage(finish: &Finish) -> Value {
    let usage = finish.usage;
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": { "cached_tokens": usage.cached },
        "output_tokens": usage.completion,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": usage.prompt + usage.completion,
    })
}

/// The stream of events.
struct Events {
    head: Head,
    n_events: u64,
    /// Items that are complete.
    output: Vec<Value>,
    open: Option<Item>,
}

/// An item in the making, with its text so far.
enum Item {
    Reasoning(String),
    Message(String),
    Call(ToolCall),
}

impl Events {
    fn new(head: Head) -> Events {
        Events { head, n_events: 0, output: Vec::new(), open: None }
    }

    /// Writes an event: its name, its number, what it is about.
    fn event(&mut self, name: &str, about: Value, out: &mut String) {
        let mut event = json!({ "type": name, "sequence_number": self.n_events });
        self.n_events += 1;
        if let (Some(event), Value::Object(about)) = (event.as_object_mut(), about) {
            event.extend(about);
        }
        stream::named(&event, out);
    }

    fn index(&self) -> usize {
        self.output.len()
    }

    /// Where in the open item something happens.
    fn place(&self, prefix: &str) -> Value {
        let index = self.index();
        json!({ "item_id": self.head.item_id(prefix, index), "output_index": index, "content_index": 0 })
    }

    fn at(&mut self, name: &str, prefix: &str, more: Value, out: &mut String) {
        let mut about = self.place(prefix);
        if let (Some(about), Value::Object(more)) = (about.as_object_mut(), more) {
            about.extend(more);
        }
        self.event(name, about, out);
    }

    fn open(&mut self, item: Item, out: &mut String) {
        self.close(out);
        let index = self.index();
        let shown = match &item {
            Item::Reasoning(_) => self.head.reasoning(index, "", "in_progress"),
            Item::Message(_) => self.head.message(index, None, "in_progress"),
            Item::Call(call) => self.head.call(index, call, "in_progress"),
        };
        let added = json!({ "output_index": index, "item": shown });
        self.event("response.output_item.added", added, out);
        match item {
            Item::Reasoning(_) => {
                let part = json!({ "part": { "type": "reasoning_text", "text": "" } });
                self.at("response.content_part.added", "rs_", part, out);
            }
            Item::Message(_) => {
                self.at("response.content_part.added", "msg_", json!({ "part": output_text("") }), out);
            }
            Item::Call(_) => {}
        }
        self.open = Some(item);
    }

    /// Completes the open item.
    fn close(&mut self, out: &mut String) {
        let index = self.index();
        let item = match self.open.take() {
            None => return,
            Some(Item::Reasoning(text)) => {
                self.at("response.reasoning_text.done", "rs_", json!({ "text": text }), out);
                let part = json!({ "part": { "type": "reasoning_text", "text": text } });
                self.at("response.content_part.done", "rs_", part, out);
                self.head.reasoning(index, &text, "completed")
            }
            Some(Item::Message(text)) => {
                let done = json!({ "text": text, "logprobs": [] });
                self.at("response.output_text.done", "msg_", done, out);
                self.at("response.content_part.done", "msg_", json!({ "part": output_text(&text) }), out);
                self.head.message(index, Some(&text), "completed")
            }
            Some(Item::Call(call)) => {
                let done = json!({
                    "item_id": self.head.item_id("fc_", index),
                    "output_index": index,
                    "name": call.name,
                    "arguments": call.arguments,
                });
                self.event("response.function_call_arguments.done", done, out);
                self.head.call(index, &call, "completed")
            }
        };
        self.event("response.output_item.done", json!({ "output_index": index, "item": item }), out);
        self.output.push(item);
    }

    fn piece(&mut self, piece: Piece, out: &mut String) {
        match piece.delta {
            Delta::Reasoning(text) => {
                if !matches!(self.open, Some(Item::Reasoning(_))) {
                    self.open(Item::Reasoning(String::new()), out);
                }
                if let Some(Item::Reasoning(all)) = &mut self.open {
                    all.push_str(&text);
                }
                self.at("response.reasoning_text.delta", "rs_", json!({ "delta": text }), out);
            }
            Delta::Content(text) if text.is_empty() => {}
            Delta::Content(text) => {
                if !matches!(self.open, Some(Item::Message(_))) {
                    self.open(Item::Message(String::new()), out);
                }
                if let Some(Item::Message(all)) = &mut self.open {
                    all.push_str(&text);
                }
                self.at("response.output_text.delta", "msg_", json!({ "delta": text, "logprobs": [] }), out);
            }
            Delta::ToolCall { index, id, name } => {
                self.open(Item::Call(ToolCall { index, id, name, arguments: String::new() }), out);
            }
            Delta::ToolArguments { text, .. } => {
                if let Some(Item::Call(call)) = &mut self.open {
                    call.arguments.push_str(&text);
                }
                let index = self.index();
                let about = json!({
                    "item_id": self.head.item_id("fc_", index),
                    "output_index": index,
                    "delta": text,
                });
                self.event("response.function_call_arguments.delta", about, out);
            }
        }
    }
}

impl Writer for Events {
    fn begin(&mut self, out: &mut String) {
        for name in ["response.created", "response.in_progress"] {
            let response = self.head.response(None, Vec::new());
            self.event(name, json!({ "response": response }), out);
        }
    }

    fn write(&mut self, answer: Answer, out: &mut String) {
        match answer {
            Answer::Progress { .. } | Answer::PromptLogprobs { .. } => {}
            Answer::Piece(piece) => self.piece(piece, out),
            Answer::Done(finish) => {
                if self.output.is_empty() && self.open.is_none() {
                    self.open(Item::Message(String::new()), out);
                }
                self.close(out);
                let response = self.head.response(Some(&finish), std::mem::take(&mut self.output));
                let cut = finish.reason() == "length";
                let name = if cut { "response.incomplete" } else { "response.completed" };
                self.event(name, json!({ "response": response }), out);
            }
        }
    }

    fn end(&mut self, _out: &mut String) {}

    fn error(&mut self, error: &ApiError, out: &mut String) {
        let mut response = self.head.response(None, Vec::new());
        response["status"] = "failed".into();
        response["error"] = json!({ "code": "server_error", "message": error.message });
        self.event("response.failed", json!({ "response": response }), out);
        stream::data(&error.json(Shape::OpenAi), out);
    }
}
