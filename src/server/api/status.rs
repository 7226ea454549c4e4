//! What the server says of itself: `/health`, `/props`, `/slots`, `/metrics`, `/v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::error::{ApiError, Result};
use super::super::metrics::n_busy;
use super::super::settings::Settings;
use super::super::state::{App, Served};
use super::BUILD;
use crate::engine::service::{Slot, SlotState};

/// Whether requests are taken.
pub async fn health(State(app): State<Arc<App>>) -> Result<Json<Value>> {
    app.models()?;
    Ok(Json(json!({ "status": "ok" })))
}

/// A model among several.
#[derive(Debug, Deserialize)]
pub struct ModelQuery {
    model: Option<String>,
}

/// What a model can do and how it is set up.
pub async fn props(State(app): State<Arc<App>>, Query(query): Query<ModelQuery>) -> Result<Json<Value>> {
    let served = app.model(query.model.as_deref())?;
    let tokenizer = served.model.tokenizer();
    let text = |id: Option<u32>| id.map_or("", |id| tokenizer.token_text(id)).to_owned();
    Ok(Json(json!({
        "default_generation_settings": {
            "params": Settings::new(&served.defaults).json(),
            "n_ctx": served.n_ctx(),
        },
        "total_slots": served.backend.stats().slots.len(),
        "model_alias": served.name,
        "model_path": served.model.file().path().display().to_string(),
        "model_ftype": file_type(&served),
        "modalities": { "vision": false, "audio": false, "video": false },
        "chat_template": served.template.source,
        "chat_template_caps": capabilities(&served),
        "bos_token": text(tokenizer.bos()),
        "eos_token": text(tokenizer.eos()),
        "build_info": BUILD,
        "is_sleeping": false,
        "endpoint_slots": app.options.endpoints.slots,
        "endpoint_props": false,
        "endpoint_metrics": app.options.endpoints.metrics,
    })))
}

/// What is in the model's file, as `qgguf inspect --json` prints it.
pub async fn inspect(State(app): State<Arc<App>>, Query(query): Query<ModelQuery>) -> Result<Response> {
    let served = app.model(query.model.as_deref())?;
    let written = app.prepare(move |_| Ok((served.describe)(served.model.file()))).await?;
    let bytes = written.map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(([(CONTENT_TYPE, "application/json")], bytes).into_response())
}

/// What the template can do, under llama-server's names.
fn capabilities(served: &Served) -> Value {
    let can = served.template.template.capabilities();
    json!({
        "supports_tools": can.tools,
        "supports_tool_calls": can.tool_calls,
        "supports_parallel_tool_calls": can.parallel_tool_calls,
        "supports_system_role": can.system,
        "supports_enable_thinking": can.enable_thinking,
    })
}

fn file_type(served: &Served) -> Value {
    let metadata = served.model.file().metadata();
    let number = metadata.u32("general.file_type").ok().flatten();
    number.and_then(qgguf_gguf::file_type_name).map_or(Value::Null, Value::from)
}

/// The counters.
pub async fn metrics(State(app): State<Arc<App>>) -> Result<Response> {
    if !app.options.endpoints.metrics {
        return Err(ApiError::not_supported("this server was started without --metrics"));
    }
    let engines: Vec<_> =
        app.models()?.iter().map(|served| (served.name.as_str(), served.backend.stats())).collect();
    let text = app.metrics.text(&engines);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// The models that are served, in OpenAI's form and in ollama's.
pub async fn models(State(app): State<Arc<App>>) -> Result<Json<Value>> {
    let served = app.models()?;
    Ok(Json(json!({
        "object": "list",
        "data": served.iter().map(|served| model_object(served)).collect::<Vec<_>>(),
        "models": served.iter().map(|served| tag(served)).collect::<Vec<_>>(),
    })))
}

/// One of them.
pub async fn model(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Json<Value>> {
    let found = app.models()?.iter().find(|served| served.is_called(&name));
    let served = found.ok_or_else(|| ApiError::not_found(format!("there is no model '{name}'")))?;
    Ok(Json(model_object(served)))
}

fn model_object(served: &Served) -> Value {
    let hparams = served.model.hparams();
    let metadata = served.model.file().metadata();
    json!({
        "id": served.name,
        "aliases": served.aliases,
        "tags": [],
        "object": "model",
        "created": served.created,
        "owned_by": "qgguf",
        "meta": {
            "vocab_type": metadata.str("tokenizer.ggml.model").ok().flatten(),
            "n_vocab": hparams.n_vocab,
            "n_ctx": served.n_ctx(),
            "n_ctx_train": hparams.n_ctx_train,
            "n_embd": hparams.n_embd,
            "n_params": served.n_params(),
            "size": served.model.file().mapped_bytes(),
            "ftype": file_type(served),
        },
    })
}

/// A model in ollama's form.
pub fn tag(served: &Served) -> Value {
    json!({
        "name": served.name,
        "model": served.name,
        "modified_at": time(served.created),
        "size": served.model.file().mapped_bytes(),
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [],
        "capabilities": ["completion"],
        "parameters": "",
        "details": details(served),
    })
}

/// Family and size of a model in ollama's form.
pub fn details(served: &Served) -> Value {
    let arch = &served.model.hparams().arch;
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": arch,
        "families": [arch],
        "parameter_size": parameter_size(served.n_params()),
        "quantization_level": file_type(served).as_str().unwrap_or("unknown"),
    })
}

fn parameter_size(n: u64) -> String {
    match n {
        0..1_000_000 => format!("{:.1}K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.1}B", n as f64 / 1e9),
    }
}

/// A time as RFC 3339 has it.
pub fn time(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or_default().to_string()
}

/// Whether a free slot is wanted.
#[derive(Debug, Deserialize)]
pub struct SlotsQuery {
    model: Option<String>,
    fail_on_no_slot: Option<u8>,
}

/// What is being evaluated, without its text.
pub async fn slots(State(app): State<Arc<App>>, Query(query): Query<SlotsQuery>) -> Result<Json<Value>> {
    if !app.options.endpoints.slots {
        return Err(ApiError::not_supported("this server was started with --no-slots"));
    }
    let served = app.model(query.model.as_deref())?;
    let stats = served.backend.stats();
    if query.fail_on_no_slot == Some(1) && n_busy(&stats) == stats.slots.len() {
        return Err(ApiError::unavailable("no slot is free"));
    }
    let each = stats.slots.iter().enumerate();
    Ok(Json(each.map(|(id, slot)| slot_object(id, slot, served.n_ctx())).collect()))
}

fn slot_object(id: usize, slot: &Slot, n_ctx: usize) -> Value {
    json!({
        "id": id,
        "id_task": slot.request,
        "n_ctx": n_ctx,
        "speculative": false,
        "is_processing": slot.state != SlotState::Idle,
        "n_prompt_tokens": slot.n_prompt,
        "n_prompt_tokens_processed": slot.n_evaluated.min(slot.n_prompt),
        "n_prompt_tokens_cache": slot.n_cached,
        "next_token": [{
            "has_next_token": slot.state == SlotState::Generating,
            "n_decoded": slot.n_generated,
        }],
    })
}
