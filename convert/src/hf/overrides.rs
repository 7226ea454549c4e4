//! `general.*` keys that stand over what a checkpoint says of itself (`--metadata`, `--model-name`).

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::config::describe;
use super::{HfError, json};

/// A JSON object with keys as in a GGUF; null takes a key away.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub(super) path: PathBuf,
    values: Map<String, Value>,
}

impl Overrides {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Overrides, HfError> {
        let values = json::read_object(path)?.ok_or_else(|| HfError::file(path, "no such file"))?;
        Ok(Overrides { path: path.to_owned(), values })
    }

    /// Gives the model another name.
    pub fn set_name(&mut self, name: &str) {
        self.values.insert("general.name".to_owned(), name.into());
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Replaces a text; a list of texts becomes one with commas.
    pub(super) fn text(&self, key: &str, text: &mut Option<String>) -> Result<(), HfError> {
        *text = match self.get(key) {
            None => return Ok(()),
            Some(Value::Null) => None,
            Some(Value::String(new)) => Some(new.clone()),
            Some(Value::Number(new)) => Some(new.to_string()),
            Some(value) => Some(self.texts(key, value, "a text")?.join(",")),
        };
        Ok(())
    }

    /// Replaces a list of texts; one alone is a list of one.
    pub(super) fn list(&self, key: &str, list: &mut Vec<String>) -> Result<(), HfError> {
        *list = match self.get(key) {
            None => return Ok(()),
            Some(Value::Null) => Vec::new(),
            Some(Value::String(one)) => vec![one.clone()],
            Some(value) => self.texts(key, value, "a list of texts")?,
        };
        Ok(())
    }

    /// Replaces a list of models or data sets, each with some of these fields.
    pub(super) fn origins<const N: usize>(
        &self,
        key: &str,
        fields: &[&str; N],
        origins: &mut Vec<[Option<String>; N]>,
    ) -> Result<(), HfError> {
        let Some(value) = self.get(key) else { return Ok(()) };
        let wrong =
            || self.wrong(key, &format!("a list of objects with texts for {}", fields.join(", ")), value);
        let entries = match value {
            Value::Null => &[][..],
            value => value.as_array().ok_or_else(wrong)?,
        };
        let read = |entry: &Value| {
            let entry = entry.as_object().ok_or_else(wrong)?;
            let is_known =
                |(field, value): (&String, &Value)| fields.contains(&field.as_str()) && value.is_string();
            if !entry.iter().all(is_known) {
                return Err(wrong());
            }
            Ok(fields.map(|field| entry.get(field).and_then(Value::as_str).map(str::to_owned)))
        };
        *origins = entries.iter().map(read).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The keys that are none of these.
    pub(super) fn unknown<'a>(
        &'a self,
        is_known: impl Fn(&str) -> bool + 'a,
    ) -> impl Iterator<Item = String> + 'a {
        let unknown = self.values.keys().filter(move |key| !is_known(key));
        unknown
            .map(|key| format!("{}: \"{key}\" is left out: no such key can be set here", self.path.display()))
    }

    /// The error for a value of another kind.
    fn wrong(&self, key: &str, expected: &str, found: &Value) -> HfError {
        HfError::file(&self.path, format!("\"{key}\": expected {expected}, found {}", describe(found)))
    }

    fn texts(&self, key: &str, value: &Value, expected: &str) -> Result<Vec<String>, HfError> {
        let texts =
            value.as_array().and_then(|list| list.iter().map(|v| v.as_str().map(str::to_owned)).collect());
        texts.ok_or_else(|| self.wrong(key, expected, value))
    }
}
