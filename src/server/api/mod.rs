//! The routes: one file for each family of interfaces.

pub mod anthropic;
pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod native;
pub mod ollama;
pub mod responses;
pub mod site;
pub mod status;
pub mod text;

use serde_json::{Map, Value, json};

use super::state::{App, Served, now};

/// What `system_fingerprint` and `build_info` say.
pub const BUILD: &str = concat!("qgguf-", env!("CARGO_PKG_VERSION"));

/// What all chunks of an answer, and the answer itself, begin with.
#[derive(Clone, Debug)]
pub struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    /// The head of a new answer.
    pub fn new(app: &App, served: &Served, prefix: &str) -> Head {
        Head { id: app.id(prefix), created: now(), model: served.name.clone() }
    }

    /// The start of an object of OpenAI's.
    pub fn object(&self, object: &str, choices: Vec<Value>) -> Map<String, Value> {
        let head = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": BUILD,
            "choices": choices,
        });
        match head {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }
}
