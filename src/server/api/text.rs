//! Texts and tokens: `/tokenize`, `/detokenize`, `/apply-template`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::super::chat::Chat;
use super::super::error::Result;
use super::super::fields::Fields;
use super::super::form::Form;
use super::super::prompts;
use super::super::state::App;

/// The tokens of a text.
pub async fn tokenize(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Json<Value>> {
    let served = app.model(fields.take::<String>("model")?.as_deref())?;
    let content: String = fields.require("content")?;
    let add_special = fields.take("add_special")?.unwrap_or(false);
    let parse_special = fields.take("parse_special")?.unwrap_or(true);
    let with_pieces = fields.take("with_pieces")?.unwrap_or(false);
    let tokens = app
        .prepare(move |_| {
            let tokenizer = served.model.tokenizer();
            let tokens = tokenizer.encode(&content, add_special, parse_special);
            if !with_pieces {
                return Ok(Value::from(tokens));
            }
            Ok(tokens
                .iter()
                .map(|&id| json!({ "id": id, "piece": piece(tokenizer.piece(id, true)) }))
                .collect())
        })
        .await?;
    Ok(Json(json!({ "tokens": tokens })))
}

/// A text, or bytes that are none.
fn piece(bytes: Vec<u8>) -> Value {
    match String::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(error) => error.into_bytes().into(),
    }
}

/// The text of tokens.
pub async fn detokenize(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Json<Value>> {
    let served = app.model(fields.take::<String>("model")?.as_deref())?;
    let tokenizer = served.model.tokenizer();
    let given: Vec<Value> = fields.require("tokens")?;
    let each = given.iter().enumerate();
    let tokens: Vec<u32> = each
        .map(|(i, value)| prompts::token(&format!("tokens[{i}]"), value, tokenizer))
        .collect::<Result<_>>()?;
    Ok(Json(json!({ "content": tokenizer.decode(&tokens) })))
}

/// The prompt that the template makes of a conversation.
pub async fn apply_template(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Json<Value>> {
    let served = app.model(fields.take::<String>("model")?.as_deref())?;
    let prompt = app
        .prepare(move |app| {
            let limits = &app.options.limits;
            let mut chat = Chat::read(&mut fields, &served, limits, app.options.prefill_assistant)?;
            Form::read(&mut fields, limits)?.apply(&mut chat);
            chat.render(&served)
        })
        .await?;
    Ok(Json(json!({ "prompt": prompt })))
}
