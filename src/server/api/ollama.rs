//! ollama's routes under `/api`, enough for its clients: a JSON object on each line.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use qgguf_gguf::MetadataValue;

use super::super::chat::Chat;
use super::super::embed::{Norm, embed};
use super::super::error::{ApiError, Result, Shape};
use super::super::fields::Fields;
use super::super::form::Form;
use super::super::job::Job;
use super::super::prompts;
use super::super::run::{Answer, Finish, Run};
use super::super::settings::Settings;
use super::super::state::{App, Served};
use super::super::stream::{self, Writer};
use super::embeddings::numbers;
use super::status::{details, tag, time};
use crate::answer::{Delta, Message, ToolCall};

/// Of ollama's options, those that other routes know under the same name.
const OPTIONS: [&str; 12] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "seed",
    "stop",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "mirostat",
];
/// Elements of an array that `/api/show` tells; a longer one, such as the vocabulary, is left out.
const MAX_SHOWN: usize = 16;

/// Answers a conversation.
pub async fn chat(State(app): State<Arc<App>>, fields: Fields) -> Result<Response> {
    answer(app, fields, Kind::Chat).await
}

/// Continues a text, or answers a single message.
pub async fn generate(State(app): State<Arc<App>>, fields: Fields) -> Result<Response> {
    answer(app, fields, Kind::Generate).await
}

/// Under which key the answer's text stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Chat,
    Generate,
}

async fn answer(app: Arc<App>, mut fields: Fields, kind: Kind) -> Result<Response> {
    let served = named(&app, &mut fields)?;
    let streams = fields.take::<bool>("stream")?.unwrap_or(true);
    if kind == Kind::Chat && fields.peek("messages") == json!([])
        || kind == Kind::Generate && fields.peek("prompt").is_null()
    {
        return Ok(Json(loaded(&served, kind)).into_response());
    }
    let run = app
        .prepare(move |app| {
            let job = match kind {
                Kind::Chat => chat_job(app, served, &mut fields)?,
                Kind::Generate => generate_job(app, served, &mut fields)?,
            };
            job.start(&app.metrics)
        })
        .await?;
    let lines = Lines { model: run.served().name.clone(), kind, call: None };
    if streams {
        // A comment is no JSON; nothing is sent in silence.
        return Ok(stream::respond(run, lines, None));
    }
    Ok(Json(whole(&lines, run).await?).into_response())
}

/// The model of a request; `name:latest` means `name`.
fn named(app: &App, fields: &mut Fields) -> Result<Arc<Served>> {
    let name = match fields.take::<String>("model")? {
        Some(name) => Some(name),
        None => fields.take::<String>("name")?,
    };
    let plain = name.as_deref().map(|name| name.strip_suffix(":latest").unwrap_or(name));
    app.model(name.as_deref()).or_else(|_| app.model(plain))
}

/// A request without a prompt asks for the model to be loaded, which it is.
fn loaded(served: &Served, kind: Kind) -> Value {
    let lines = Lines { model: served.name.clone(), kind, call: None };
    let mut line = lines.line("", None, None);
    line.insert("done".to_owned(), true.into());
    line.insert("done_reason".to_owned(), "load".into());
    line.into()
}

async fn whole(lines: &Lines, run: Run) -> Result<Value> {
    let choices = run.collect().await?;
    let choice = choices.first().ok_or_else(|| ApiError::internal("no answer"))?;
    let Message { reasoning, content, tool_calls } = choice.message();
    let thought = (!reasoning.is_empty()).then_some(reasoning.as_str());
    let calls = (!tool_calls.is_empty()).then(|| tool_calls.iter().map(called).collect());
    let mut line = lines.line(content, thought, calls);
    complete(&mut line, &choice.finish);
    Ok(line.into())
}

/// `options` and what else stands elsewhere, in the form of the other routes.
fn plain(fields: &mut Fields) -> Result<Map<String, Value>> {
    let mut plain = Map::new();
    if let Some(mut options) = fields.object("options")? {
        for name in OPTIONS {
            plain.extend(options.value(name).map(|value| (name.to_owned(), value)));
        }
        // -1 and -2 are ollama's words for no limit.
        let n_predict = options.take::<i64>("num_predict")?.map(|n| n.max(-1));
        plain.extend(n_predict.map(|n| ("n_predict".to_owned(), n.into())));
    }
    match fields.value("format") {
        None => {}
        Some(Value::String(text)) if text.is_empty() => {}
        Some(Value::String(text)) if text == "json" => {
            plain.insert("response_format".to_owned(), json!({ "type": "json_object" }));
        }
        Some(schema @ Value::Object(_)) => {
            plain.insert("json_schema".to_owned(), schema);
        }
        Some(other) => {
            return Err(ApiError::field("format", format!("expected \"json\" or a schema, found {other}")));
        }
    }
    match fields.value("think") {
        Some(Value::String(effort)) => drop(plain.insert("reasoning_effort".to_owned(), effort.into())),
        Some(think) => drop(plain.insert("enable_thinking".to_owned(), think)),
        None => {}
    }
    Ok(plain)
}

fn chat_job(app: &App, served: Arc<Served>, fields: &mut Fields) -> Result<Job> {
    let mut plain = plain(fields)?;
    plain.extend(fields.value("tools").map(|tools| ("tools".to_owned(), tools)));
    let given: Vec<Value> = fields.require("messages")?;
    let messages = given.into_iter().enumerate().map(|(i, message)| read_message(i, message));
    plain.insert("messages".to_owned(), messages.collect::<Result<Vec<_>>>()?.into());
    conversation(app, served, plain)
}

fn conversation(app: &App, served: Arc<Served>, plain: Map<String, Value>) -> Result<Job> {
    let limits = &app.options.limits;
    let mut plain = Fields::of(plain.into(), "body")?;
    let mut chat = Chat::read(&mut plain, &served, limits, app.options.prefill_assistant)?;
    let settings = Settings::read(&mut plain, &served.defaults, served.model.tokenizer(), limits.choices)?;
    let form = Form::read(&mut plain, limits)?;
    form.apply(&mut chat);
    let prompts = vec![chat.tokens(&served)?];
    Ok(Job { served, prompts, settings, form, prompt_logprobs: false })
}

/// A message in OpenAI's form.
fn read_message(i: usize, message: Value) -> Result<Value> {
    let mut message = Fields::of(message, &format!("messages[{i}]"))?;
    message.refuse_unless("images", |value| value.as_array().is_some_and(Vec::is_empty))?;
    let thinking = message.value("thinking");
    let tool = message.value("tool_name");
    let mut plain = message.rest();
    plain.extend(thinking.map(|thinking| ("reasoning_content".to_owned(), thinking)));
    plain.extend(tool.map(|name| ("name".to_owned(), name)));
    Ok(plain.into())
}

fn generate_job(app: &App, served: Arc<Served>, fields: &mut Fields) -> Result<Job> {
    fields.refuse_unless("images", |value| value.as_array().is_some_and(Vec::is_empty))?;
    fields.refuse_unless("template", |value| value == "")?;
    fields.refuse_unless("context", |value| value.as_array().is_some_and(Vec::is_empty))?;
    let raw = fields.take::<bool>("raw")?.unwrap_or(false);
    let mut plain = plain(fields)?;
    let prompt: String = fields.require("prompt")?;
    let suffix: String = fields.take("suffix")?.unwrap_or_default();
    let system: Option<String> = fields.take("system")?.filter(|text: &String| !text.is_empty());
    if !raw && suffix.is_empty() {
        let system = system.map(|text| json!({ "role": "system", "content": text }));
        let user = json!({ "role": "user", "content": prompt });
        plain.insert("messages".to_owned(), system.into_iter().chain([user]).collect());
        return conversation(app, served, plain);
    }
    let limits = &app.options.limits;
    let tokenizer = served.model.tokenizer();
    let tokens = match suffix.as_str() {
        "" => tokenizer.encode(&prompt, true, true),
        suffix => {
            let parts = json!({ "input_prefix": prompt, "input_suffix": suffix });
            super::native::infill_prompt(&mut Fields::of(parts, "body")?, &served)?.tokens
        }
    };
    let mut plain = Fields::of(plain.into(), "body")?;
    let settings = Settings::read(&mut plain, &served.defaults, tokenizer, limits.choices)?;
    let form = Form::read_plain(&mut plain, limits)?;
    Ok(Job { served, prompts: vec![tokens], settings, form, prompt_logprobs: false })
}

/// A call, its arguments as an object.
fn called(call: &ToolCall) -> Value {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
    json!({ "id": call.id, "function": { "name": call.name, "arguments": arguments } })
}

/// What the last line has beside the others.
fn complete(line: &mut Map<String, Value>, finish: &Finish) {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let timings = &finish.timings;
    let reason = if finish.reason() == "length" { "length" } else { "stop" };
    let last = json!({
        "done": true,
        "done_reason": reason,
        "total_duration": ns(finish.queued + timings.prompt + timings.predicted),
        "load_duration": 0,
        "prompt_eval_count": finish.usage.prompt,
        "prompt_eval_duration": ns(timings.prompt),
        "eval_count": finish.usage.completion,
        "eval_duration": ns(timings.predicted),
    });
    if let Value::Object(last) = last {
        line.extend(last);
    }
}

/// The stream of lines.
struct Lines {
    model: String,
    kind: Kind,
    /// A call whose arguments are still coming; it is told whole.
    call: Option<ToolCall>,
}

impl Lines {
    fn line(&self, content: &str, thought: Option<&str>, calls: Option<Value>) -> Map<String, Value> {
        let mut line = Map::new();
        line.insert("model".to_owned(), self.model.as_str().into());
        line.insert("created_at".to_owned(), Timestamp::now().to_string().into());
        match self.kind {
            Kind::Generate => {
                line.insert("response".to_owned(), content.into());
                line.extend(thought.map(|text| ("thinking".to_owned(), text.into())));
            }
            Kind::Chat => {
                let mut message = Map::new();
                message.insert("role".to_owned(), "assistant".into());
                message.insert("content".to_owned(), content.into());
                message.extend(thought.map(|text| ("thinking".to_owned(), text.into())));
                message.extend(calls.map(|calls| ("tool_calls".to_owned(), calls)));
                line.insert("message".to_owned(), message.into());
            }
        }
        line.insert("done".to_owned(), false.into());
        line
    }

    fn write_line(line: Map<String, Value>, out: &mut String) {
        out.push_str(&Value::from(line).to_string());
        out.push('\n');
    }

    fn tell_call(&mut self, out: &mut String) {
        if let Some(call) = self.call.take() {
            Lines::write_line(self.line("", None, Some(json!([called(&call)]))), out);
        }
    }
}

impl Writer for Lines {
    fn write(&mut self, answer: Answer, out: &mut String) {
        match answer {
            Answer::Progress { .. } | Answer::PromptLogprobs { .. } => {}
            Answer::Piece(piece) => match piece.delta {
                Delta::Content(text) if text.is_empty() => {}
                Delta::Content(text) => {
                    self.tell_call(out);
                    Lines::write_line(self.line(&text, None, None), out);
                }
                Delta::Reasoning(text) => Lines::write_line(self.line("", Some(&text), None), out),
                Delta::ToolCall { index, id, name } => {
                    self.tell_call(out);
                    self.call = Some(ToolCall { index, id, name, arguments: String::new() });
                }
                Delta::ToolArguments { text, .. } => {
                    if let Some(call) = &mut self.call {
                        call.arguments.push_str(&text);
                    }
                }
            },
            Answer::Done(finish) => {
                // A call that was broken off is none.
                let is_whole =
                    |call: &ToolCall| finish.message.tool_calls.iter().any(|whole| whole.id == call.id);
                self.call = self.call.take().filter(is_whole);
                self.tell_call(out);
                let mut line = self.line("", None, None);
                complete(&mut line, &finish);
                Lines::write_line(line, out);
            }
        }
    }

    fn end(&mut self, _out: &mut String) {}

    fn error(&mut self, error: &ApiError, out: &mut String) {
        out.push_str(&error.json(Shape::Ollama).to_string());
        out.push('\n');
    }

    fn media_type(&self) -> &'static str {
        "application/x-ndjson"
    }
}

/// Vectors of texts.
pub async fn embed_texts(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Json<Value>> {
    let served = named(&app, &mut fields)?;
    let input = fields.value("input").ok_or_else(|| fields.missing("input"))?;
    let name = served.name.clone();
    let found = vectors(app, served, "input", input).await?;
    let vectors: Vec<Value> = found.0.iter().map(|v| numbers(v)).collect();
    Ok(Json(json!({
        "model": name,
        "embeddings": vectors,
        "total_duration": 0,
        "load_duration": 0,
        "prompt_eval_count": found.1,
    })))
}

/// The older route: the vector of one text.
pub async fn embed_prompt(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Json<Value>> {
    let served = named(&app, &mut fields)?;
    let prompt: String = fields.require("prompt")?;
    let found = vectors(app, served, "prompt", prompt.into()).await?;
    Ok(Json(json!({ "embedding": found.0.first().map(|v| numbers(v)) })))
}

async fn vectors(
    app: Arc<App>,
    served: Arc<Served>,
    field: &'static str,
    input: Value,
) -> Result<(Vec<Vec<f32>>, usize)> {
    let model = served.clone();
    let inputs = app
        .prepare(move |app| prompts::read(field, input, app.options.limits.inputs, model.model.tokenizer()))
        .await?;
    let mut found = embed(&served, inputs.into_iter().map(|prompt| prompt.tokens).collect()).await?;
    found.vectors.iter_mut().for_each(|vector| Norm::P(2).apply(vector));
    Ok((found.vectors, found.n_tokens))
}

/// The models.
pub async fn tags(State(app): State<Arc<App>>) -> Result<Json<Value>> {
    Ok(Json(json!({ "models": app.models()?.iter().map(|served| tag(served)).collect::<Vec<_>>() })))
}

/// The models that are in memory, which all are.
pub async fn ps(State(app): State<Arc<App>>) -> Result<Json<Value>> {
    let running = app.models()?.iter().map(|served| {
        let mut running = tag(served);
        running["expires_at"] = "9999-12-31T23:59:59Z".into();
        running["size_vram"] = 0.into();
        running["context_length"] = served.n_ctx().into();
        running
    });
    Ok(Json(json!({ "models": running.collect::<Vec<_>>() })))
}

/// The server's version.
pub async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// What is in a model's file.
pub async fn show(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Json<Value>> {
    let served = named(&app, &mut fields)?;
    let metadata = served.model.file().metadata();
    let info: Map<String, Value> =
        metadata.iter().filter_map(|(key, value)| Some((key.to_owned(), shown(value)?))).collect();
    Ok(Json(json!({
        "details": details(&served),
        "model_info": info,
        "template": served.template.source,
        "parameters": "",
        "license": metadata.str("general.license").ok().flatten().unwrap_or_default(),
        "modified_at": time(served.created),
        "capabilities": capabilities(&served),
    })))
}

/// What a model can do, by its template and its tokens.
fn capabilities(served: &Served) -> Vec<&'static str> {
    let mut all = vec!["completion"];
    if served.template.template.capabilities().tools {
        all.push("tools");
    }
    if crate::answer::ReasoningStyle::detect(&served.template.source, "").is_some() {
        all.push("thinking");
    }
    if served.model.tokenizer().fill_in_middle().is_some() {
        all.push("insert");
    }
    all
}

/// A value as JSON, unless it is a long array.
fn shown(value: &MetadataValue) -> Option<Value> {
    Some(match value {
        MetadataValue::String(text) => text.as_str().into(),
        MetadataValue::Bool(flag) => (*flag).into(),
        MetadataValue::F32(x) => f64::from(*x).into(),
        MetadataValue::F64(x) => (*x).into(),
        MetadataValue::Array(array) if array.len() <= MAX_SHOWN => {
            array.iter().map(|item| shown(&item)).collect::<Option<Vec<_>>>()?.into()
        }
        MetadataValue::Array(_) => return None,
        other => match other.as_integer() {
            Some(n) => {
                i64::try_from(n).map(Value::from).or_else(|_| u64::try_from(n).map(Value::from)).ok()?
            }
            None => return None,
        },
    })
}
