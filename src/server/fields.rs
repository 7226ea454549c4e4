//! The fields of a request's JSON object, read one by one, so that every error names its field.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::{ApiError, Result};

/// A JSON object being read. A field that is `null` counts as absent.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// What stands before the names in errors, such as `messages[2].`.
    path: String,
    map: Map<String, Value>,
}

impl Fields {
    /// The object that a body holds.
    ///
    /// # Errors
    /// A body that is not JSON, with the place, or not an object.
    pub fn parse(body: &[u8]) -> Result<Fields> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|e| ApiError::invalid(format!("the body is not valid JSON: {e}")))?;
        Fields::of(value, "body")
    }

    /// The object at `path`.
    pub fn of(value: Value, path: &str) -> Result<Fields> {
        match value {
            Value::Object(map) => {
                let path = if path == "body" { String::new() } else { format!("{path}.") };
                Ok(Fields { path, map })
            }
            other => Err(ApiError::field(path, format!("expected an object, found {}", kind(&other)))),
        }
    }

    /// The name of a field as errors show it.
    pub fn name(&self, field: &str) -> String {
        format!("{}{field}", self.path)
    }

    /// Takes a field out, unless it is absent or null.
    pub fn value(&mut self, field: &str) -> Option<Value> {
        self.map.remove(field).filter(|value| !value.is_null())
    }

    /// A field that stays; null if it is absent.
    pub fn peek(&self, field: &str) -> Value {
        self.map.get(field).cloned().unwrap_or_default()
    }

    /// Takes a field out as a `T`.
    ///
    /// # Errors
    /// A value that is none.
    pub fn take<T: DeserializeOwned>(&mut self, field: &str) -> Result<Option<T>> {
        let Some(value) = self.value(field) else { return Ok(None) };
        serde_json::from_value(value).map(Some).map_err(|e| ApiError::field(self.name(field), e))
    }

    /// Takes a field out that has to be there.
    ///
    /// # Errors
    /// If it is not, or is no `T`.
    pub fn require<T: DeserializeOwned>(&mut self, field: &str) -> Result<T> {
        self.take(field)?.ok_or_else(|| self.missing(field))
    }

    /// A nested object.
    pub fn object(&mut self, field: &str) -> Result<Option<Fields>> {
        let path = self.name(field);
        self.value(field).map(|value| Fields::of(value, &path)).transpose()
    }

    /// The first of several names for one thing that is there, with its name.
    pub fn first<T: DeserializeOwned>(&mut self, names: &[&'static str]) -> Result<Option<(String, T)>> {
        for name in names {
            if let Some(value) = self.take(name)? {
                return Ok(Some((self.name(name), value)));
            }
        }
        Ok(None)
    }

    /// An integer from `min` to `max`.
    pub fn integer(&mut self, field: &str, min: i64, max: i64) -> Result<Option<i64>> {
        let Some(n) = self.take::<i64>(field)? else { return Ok(None) };
        if (min..=max).contains(&n) {
            return Ok(Some(n));
        }
        Err(ApiError::field(self.name(field), format!("expected an integer from {min} to {max}, found {n}")))
    }

    /// Refuses a field whose value is not `neutral`: it would change the answer, and this server cannot do it.
    pub fn refuse_unless(&mut self, field: &str, neutral: impl Fn(&Value) -> bool) -> Result<()> {
        match self.value(field) {
            Some(value) if !neutral(&value) => {
                Err(ApiError::field(self.name(field), "not supported by this server"))
            }
            _ => Ok(()),
        }
    }

    /// The error of a field that has to be there.
    pub fn missing(&self, field: &str) -> ApiError {
        ApiError::field(self.name(field), "missing")
    }

    /// What has not been taken.
    pub fn rest(self) -> Map<String, Value> {
        self.map
    }
}

/// What a JSON value is, for errors.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(body: &str) -> Fields {
        Fields::parse(body.as_bytes()).unwrap()
    }

    #[test]
    fn errors_name_the_field_and_its_place() {
        let mut outer = fields(r#"{"a": {"n": "x"}, "k": 7}"#);
        let error = outer.object("a").unwrap().unwrap().take::<f32>("n").unwrap_err();
        assert_eq!(error.param.as_deref(), Some("a.n"));
        assert_eq!(error.message, r#"a.n: invalid type: string "x", expected f32"#);
        let error = outer.integer("k", 0, 5).unwrap_err();
        assert_eq!(error.message, "k: expected an integer from 0 to 5, found 7");
        assert_eq!(outer.require::<bool>("gone").unwrap_err().message, "gone: missing");
    }

    #[test]
    fn null_is_as_good_as_absent() {
        let mut fields = fields(r#"{"a": null, "b": 2}"#);
        assert_eq!(fields.first::<i64>(&["a", "b"]).unwrap(), Some(("b".to_owned(), 2)));
    }

    #[test]
    fn bodies_that_are_no_objects_are_told_as_that() {
        assert_eq!(Fields::parse(b"[1]").unwrap_err().message, "body: expected an object, found an array");
        assert!(Fields::parse(b"{").unwrap_err().message.starts_with("the body is not valid JSON: EOF"));
        let deep = "[".repeat(100_000);
        assert!(Fields::parse(deep.as_bytes()).unwrap_err().message.contains("recursion limit"));
    }
}
