//! A message of a conversation, and JSON values as the template engine holds them.

use minijinja::Value;
use serde::{Deserialize, Serialize};
use serde_json::Map;

/// One message: a JSON object, in general with the keys `role` and `content`, possibly `tool_calls` and others.
///
/// The order of the keys is kept, because templates may write out whole objects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Message(pub Map<String, serde_json::Value>);

impl Message {
    /// A message of plain text. Roles are `system`, `user`, `assistant` and what else a template knows.
    pub fn new(role: &str, content: &str) -> Message {
        Message(Map::from_iter([("role".to_owned(), role.into()), ("content".to_owned(), content.into())]))
    }

    /// The role, if there is one.
    pub fn role(&self) -> Option<&str> {
        self.0.get("role")?.as_str()
    }

    /// The text, if the content is plain text.
    pub fn content(&self) -> Option<&str> {
        self.0.get("content")?.as_str()
    }

    pub(super) fn to_engine(&self, size: &mut Converted) -> Value {
        map_to_engine(&self.0, size)
    }
}

/// How much was converted: what a template may spend depends on it.
#[derive(Default)]
pub(super) struct Converted {
    pub(super) values: usize,
    /// Bytes of strings and keys.
    pub(super) bytes: usize,
}

pub(super) fn to_engine(value: &serde_json::Value, size: &mut Converted) -> Value {
    use serde_json::Value as Json;
    size.values += 1;
    match value {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_u64(), n.as_i64()) {
            (Some(n), _) => Value::from(n),
            (None, Some(n)) => Value::from(n),
            (None, None) => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => {
            size.bytes += text.len();
            Value::from(text.as_str())
        }
        Json::Array(items) => items.iter().map(|item| to_engine(item, size)).collect(),
        Json::Object(map) => map_to_engine(map, size),
    }
}

fn map_to_engine(map: &Map<String, serde_json::Value>, size: &mut Converted) -> Value {
    size.values += 1;
    Value::from_pairs(map.iter().map(|(key, value)| {
        size.bytes += key.len();
        (key.as_str(), to_engine(value, size))
    }))
}
