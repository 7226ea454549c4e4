//! `/v1/embeddings`, and llama-server's `/embedding`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::embed::{Norm, embed};
use super::super::error::{ApiError, Result};
use super::super::fields::Fields;
use super::super::prompts;
use super::super::state::App;

/// Vectors of texts. `input` gets OpenAI's answer, `content` llama-server's.
pub async fn embeddings(State(app): State<Arc<App>>, mut fields: Fields) -> Result<Json<Value>> {
    let served = app.model(fields.take::<String>("model")?.as_deref())?;
    let is_base64 = match fields.take::<String>("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            let problem = format!("expected float or base64, found '{other}'");
            return Err(ApiError::field("encoding_format", problem));
        }
    };
    let n_embd = served.model.hparams().n_embd as u64;
    fields.refuse_unless("dimensions", |value| value.as_u64() == Some(n_embd))?;
    let norm = Norm::of(fields.integer("embd_normalize", -1, 64)?.unwrap_or(2));
    let input = fields.value("input");
    let is_native = input.is_none();
    let field = if is_native { "content" } else { "input" };
    let input = input.or_else(|| fields.value("content")).ok_or_else(|| fields.missing("input"))?;
    let model = served.clone();
    let inputs = app
        .clone()
        .prepare(move |app| prompts::read(field, input, app.options.limits.inputs, model.model.tokenizer()))
        .await?;
    let mut found = embed(&served, inputs.into_iter().map(|prompt| prompt.tokens).collect()).await?;
    found.vectors.iter_mut().for_each(|vector| norm.apply(vector));
    let each = found.vectors.iter().enumerate();
    if is_native {
        return Ok(Json(
            each.map(|(index, v)| json!({ "index": index, "embedding": [numbers(v)] })).collect(),
        ));
    }
    let vector = |v: &[f32]| if is_base64 { base64(v) } else { numbers(v) };
    let data: Vec<Value> = each
        .map(|(index, v)| json!({ "object": "embedding", "index": index, "embedding": vector(v) }))
        .collect();
    Ok(Json(json!({
        "object": "list",
        "model": served.name,
        "data": data,
        "usage": { "prompt_tokens": found.n_tokens, "total_tokens": found.n_tokens },
    })))
}

/// The vector as numbers.
pub fn numbers(vector: &[f32]) -> Value {
    vector.iter().map(|&x| Value::from(f64::from(x))).collect()
}

/// The little-endian bytes of the vector.
fn base64(vector: &[f32]) -> Value {
    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
    STANDARD.encode(bytes).into()
}
