//! OpenAI's `/v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::super::chat::Chat;
use super::super::delivery::Delivery;
use super::super::error::{ApiError, Result, Shape};
use super::super::fields::Fields;
use super::super::form::Form;
use super::super::job::Job;
use super::super::limits::MAX_TOP_LOGPROBS;
use super::super::logprobs;
use super::super::run::{Answer, Choice, Finish, Piece, Timings, Usage};
use super::super::settings::Settings;
use super::super::state::{App, Served};
use super::super::stream::{self, DONE, Writer};
use super::Head;
use crate::answer::{Delta, ToolCall};

/// Answers a conversation.
pub async fn chat(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Response> {
    let served = app.model(fields.take::<String>("model")?.as_deref())?;
    let delivery = Delivery::read(&mut fields, &app)?;
    let head = Head::new(&app, &served, "chatcmpl-");
    let run = app.prepare(move |app| job(app, served, &mut fields)?.start(&app.metrics)).await?;
    if delivery.stream {
        let ping = delivery.ping;
        let writer = Chunks::new(head, run.served().clone(), delivery, run.n_choices());
        return Ok(stream::respond(run, writer, ping));
    }
    let served = run.served().clone();
    let choices = run.collect().await?;
    Ok(Json(whole(&head, &served, &choices)?).into_response())
}

/// Counts the tokens of a conversation.
pub async fn input_tokens(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Json<Value>> {
    let served = app.model(fields.take::<String>("model")?.as_deref())?;
    let job = app.prepare(move |app| job(app, served, &mut fields)).await?;
    let n: usize = job.prompts.iter().map(Vec::len).sum();
    Ok(Json(json!({ "input_tokens": n, "object": "response.input_tokens" })))
}

/// What the request asks for.
fn job(app: &App, served: Arc<Served>, fields: &mut Fields) -> Result<Job> {
    let limits = &app.options.limits;
    for name in ["functions", "function_call", "audio", "web_search_options"] {
        fields.refuse_unless(name, |_| false)?;
    }
    fields.refuse_unless("modalities", |value| value == &json!(["text"]))?;
    let mut chat = Chat::read(fields, &served, limits, app.options.prefill_assistant)?;
    let mut settings = Settings::read(fields, &served.defaults, served.model.tokenizer(), limits.choices)?;
    settings.logprobs = wanted_logprobs(fields)?;
    let form = Form::read(fields, limits)?;
    form.apply(&mut chat);
    let prompts = vec![chat.tokens(&served)?];
    Ok(Job { served, prompts, settings, form, prompt_logprobs: false })
}

/// `logprobs` with `top_logprobs`, or the native `n_probs`.
fn wanted_logprobs(fields: &mut Fields) -> Result<Option<usize>> {
    let wanted = fields.take::<bool>("logprobs")?.unwrap_or(false);
    let top = fields.integer("top_logprobs", 0, MAX_TOP_LOGPROBS as i64)?;
    let native = fields.integer("n_probs", 0, MAX_TOP_LOGPROBS as i64)?.filter(|&n| n > 0);
    match (wanted, top) {
        (false, Some(1..)) => Err(ApiError::field("top_logprobs", "needs logprobs: true")),
        (true, top) => Ok(Some(top.or(native).unwrap_or(0) as usize)),
        (false, _) => Ok(native.map(|n| n as usize)),
    }
}

/// The whole answer.
fn whole(head: &Head, served: &Served, choices: &[Choice]) -> Result<Map<String, Value>> {
    let mut objects = Vec::new();
    for (index, choice) in choices.iter().enumerate() {
        let finish = &choice.finish;
        let mut object = json!({
            "index": index,
            "message": message(choice),
            "finish_reason": finish.reason(),
        });
        object["logprobs"] = match choice.logprobs.as_slice() {
            [] => Value::Null,
            all => json!({ "content": logprobs::content(served.model.tokenizer(), all) }),
        };
        objects.push(object);
    }
    let mut answer = head.object("chat.completion", objects);
    answer.insert("usage".to_owned(), Usage::total(choices).json());
    if let Some(choice) = choices.last() {
        answer.insert("timings".to_owned(), choice.finish.timings.json());
    }
    Ok(answer)
}

/// The message of an answer.
pub fn message(choice: &Choice) -> Value {
    let said = choice.message();
    let content = match said.content.as_str() {
        "" if !said.tool_calls.is_empty() => Value::Null,
        text => text.into(),
    };
    let mut message = json!({ "role": "assistant", "content": content });
    if !said.reasoning.is_empty() {
        message["reasoning_content"] = said.reasoning.as_str().into();
    }
    if !said.tool_calls.is_empty() {
        message["tool_calls"] = said.tool_calls.iter().map(tool_call).collect();
    }
    message
}

fn tool_call(call: &ToolCall) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}

/// The stream of chunks.
struct Chunks {
    head: Head,
    served: Arc<Served>,
    delivery: Delivery,
    /// Of each answer, whether its role has been told.
    begun: Vec<bool>,
    usage: Usage,
    timings: Timings,
}

impl Chunks {
    fn new(head: Head, served: Arc<Served>, delivery: Delivery, n: usize) -> Chunks {
        let (usage, timings) = (Usage::default(), Timings::default());
        Chunks { head, served, delivery, begun: vec![false; n], usage, timings }
    }

    fn chunk(&self, choices: Vec<Value>) -> Map<String, Value> {
        self.head.object("chat.completion.chunk", choices)
    }

    /// A chunk of one choice.
    fn delta(&self, index: usize, delta: Value, logprobs: Value, finish: Value) -> Map<String, Value> {
        let choice = json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish });
        self.chunk(vec![choice])
    }

    /// The role, once for each choice.
    fn begin(&mut self, index: usize, out: &mut String) {
        if !std::mem::replace(&mut self.begun[index], true) {
            stream::data(&self.role(index).into(), out);
        }
    }

    fn role(&self, index: usize) -> Map<String, Value> {
        self.delta(index, json!({ "role": "assistant", "content": null }), Value::Null, Value::Null)
    }

    fn piece(&mut self, piece: Piece, out: &mut String) {
        self.begin(piece.choice, out);
        let delta = match piece.delta {
            Delta::Content(text) => json!({ "content": text }),
            Delta::Reasoning(text) => json!({ "reasoning_content": text }),
            Delta::ToolCall { index, id, name } => json!({ "tool_calls": [{
                "index": index,
                "id": id,
                "type": "function",
                "function": { "name": name, "arguments": "" },
            }] }),
            Delta::ToolArguments { index, text } => {
                json!({ "tool_calls": [{ "index": index, "function": { "arguments": text } }] })
            }
        };
        let logprobs = match piece.logprobs.as_slice() {
            [] => Value::Null,
            all => json!({ "content": logprobs::content(self.served.model.tokenizer(), all) }),
        };
        let mut chunk = self.delta(piece.choice, delta, logprobs, Value::Null);
        if self.delivery.timings_per_token {
            chunk.insert("timings".to_owned(), piece.timings.json());
        }
        if self.delivery.return_tokens {
            chunk.insert("tokens".to_owned(), piece.tokens.into());
        }
        stream::data(&chunk.into(), out);
    }

    fn finish(&mut self, finish: &Finish, out: &mut String) {
        self.begin(finish.choice, out);
        self.usage.add(finish);
        self.timings = finish.timings;
        let mut chunk = self.delta(finish.choice, json!({}), Value::Null, finish.reason().into());
        if !self.delivery.include_usage {
            chunk.insert("timings".to_owned(), finish.timings.json());
        }
        stream::data(&chunk.into(), out);
    }
}

impl Writer for Chunks {
    fn write(&mut self, answer: Answer, out: &mut String) {
        match answer {
            Answer::Progress { choice, done, total, n_cached, time } if self.delivery.return_progress => {
                self.begun[choice] = true;
                let mut chunk = self.role(choice);
                let progress = json!({
                    "total": total,
                    "cache": n_cached,
                    "processed": done,
                    "time_ms": time.as_millis() as u64,
                });
                chunk.insert("prompt_progress".to_owned(), progress);
                stream::data(&chunk.into(), out);
            }
            Answer::Progress { .. } | Answer::PromptLogprobs { .. } => {}
            Answer::Piece(piece) => self.piece(piece, out),
            Answer::Done(finish) => self.finish(&finish, out),
        }
    }

    fn end(&mut self, out: &mut String) {
        if self.delivery.include_usage {
            let mut chunk = self.chunk(Vec::new());
            chunk.insert("usage".to_owned(), self.usage.json());
            chunk.insert("timings".to_owned(), self.timings.json());
            stream::data(&chunk.into(), out);
        }
        out.push_str(DONE);
    }

    fn error(&mut self, error: &ApiError, out: &mut String) {
        stream::data(&error.json(Shape::OpenAi), out);
    }
}
