//! Values that a model writes as raw text, typed by the JSON schema of their parameter.

use serde_json::Value;

/// The types that a schema allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Types {
    string: bool,
    number: bool,
    boolean: bool,
    null: bool,
    object: bool,
    array: bool,
}

impl Types {
    /// What the parameter `key` of an object schema may be; nothing is set if the schema does not say.
    pub(crate) fn of_parameter(parameters: &Value, key: &str) -> Types {
        let mut types = Types::default();
        if let Some(schema) = parameters.get("properties").and_then(|properties| properties.get(key)) {
            types.collect(schema, parameters, 0);
        }
        types
    }

    fn collect(&mut self, schema: &Value, root: &Value, depth: usize) {
        const MAX_DEPTH: usize = 8;
        if depth > MAX_DEPTH {
            return;
        }
        match &schema["type"] {
            Value::String(name) => self.add(name),
            Value::Array(names) => names.iter().filter_map(Value::as_str).for_each(|name| self.add(name)),
            _ => {}
        }
        if schema.get("type").is_none() {
            let values = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
            values.for_each(|value| self.add(type_name(value)));
        }
        let target = schema["$ref"].as_str().and_then(|name| root.pointer(name.strip_prefix('#')?));
        let alternatives =
            ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema[key].as_array()).flatten();
        alternatives.chain(target).for_each(|schema| self.collect(schema, root, depth + 1));
    }

    fn add(&mut self, name: &str) {
        match name {
            "string" => self.string = true,
            "number" | "integer" => self.number = true,
            "boolean" => self.boolean = true,
            "null" => self.null = true,
            "object" => self.object = true,
            "array" => self.array = true,
            _ => {}
        }
    }

    /// True if any text is a value as it stands.
    pub(super) fn only_string(self) -> bool {
        self == Types { string: true, ..Types::default() }
    }

    /// True if the schema says what it may be, and that is no text.
    pub(crate) fn no_string(self) -> bool {
        self != Types::default() && !self.string
    }

    fn allows(self, value: &Value) -> bool {
        if self == Types::default() {
            return !value.is_string();
        }
        match value {
            Value::Null => self.null,
            Value::Bool(_) => self.boolean,
            Value::Number(_) => self.number,
            Value::String(_) => false,
            Value::Array(_) => self.array,
            Value::Object(_) => self.object,
        }
    }

    /// The JSON text of a value that was written as raw text: itself where it is JSON of an allowed type, Python's words
    /// for true, false and null, else a string.
    pub(super) fn json(self, text: &str) -> String {
        let trimmed = text.trim();
        match trimmed {
            "True" if self.boolean => return "true".to_owned(),
            "False" if self.boolean => return "false".to_owned(),
            "None" if self.null => return "null".to_owned(),
            _ => {}
        }
        match serde_json::from_str::<Value>(trimmed) {
            Ok(value) if self.allows(&value) => trimmed.to_owned(),
            _ => Value::from(text).to_string(),
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn raw_text_takes_the_type_that_the_schema_allows() {
        let parameters = json!({
            "properties": {
                "text": {"type": "string"}, "n": {"type": "integer"}, "flag": {"type": "boolean"},
                "maybe": {"type": ["string", "null"]}, "list": {"$ref": "#/$defs/List"}, "free": {},
                "either": {"anyOf": [{"type": "number"}, {"type": "string"}]}, "one": {"enum": ["1", "2"]},
                "loop": {"$ref": "#/properties/loop"}, "no": {"type": ["integer", "null"]},
            },
            "$defs": {"List": {"type": "array"}},
        });
        for (key, text, expected) in [
            ("n", " 12 ", "12"),
            ("n", "twelve", "\"twelve\""),
            ("n", "[1]", "\"[1]\""),
            ("flag", "True", "true"),
            ("flag", "false", "false"),
            ("maybe", "null", "null"),
            ("maybe", "12", "\"12\""),
            ("maybe", "None", "null"),
            ("list", "[1, \"a\"]", "[1, \"a\"]"),
            ("list", "[1, ", "\"[1, \""),
            ("free", "{\"a\": 1}", "{\"a\": 1}"),
            ("free", "True", "\"True\""),
            ("free", "\"quoted\"", "\"\\\"quoted\\\"\""),
            ("either", "1.5", "1.5"),
            ("either", "1.5 kg", "\"1.5 kg\""),
            ("loop", "1", "1"),
            ("unknown", "a", "\"a\""),
            ("no", "null", "null"),
        ] {
            assert_eq!(Types::of_parameter(&parameters, key).json(text), expected, "{key}: {text}");
        }
        for (key, expected) in
            [("text", true), ("one", true), ("maybe", false), ("unknown", false), ("n", false)]
        {
            assert_eq!(Types::of_parameter(&parameters, key).only_string(), expected, "{key}");
        }
    }
}
