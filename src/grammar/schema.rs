//! JSON Schemas from strangers: what the engine would ignore, misread or take for ever is refused here, by its place.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::GrammarError;
use super::factory::{GrammarLimits, syntax_reason};

/// Keywords whose value is a schema for parts of the value.
const PART: [&str; 3] = ["items", "additionalItems", "additionalProperties"];
/// Keywords whose value is a list of schemas for the value itself.
const IN_PLACE: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords whose value maps names or patterns to schemas for parts of the value.
const PARTS: [&str; 2] = ["properties", "patternProperties"];
/// Keywords that narrow what is allowed and that the engine cannot keep to.
const REFUSED: [&str; 16] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
];
/// Keywords whose value is a number that bounds the value.
const BOUNDS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
/// Keywords whose value is a count.
const COUNTS: [&str; 6] =
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];
/// Formats of strings that the engine knows.
const FORMATS: [&str; 11] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown"];
/// Where numbers stop being exact: the engine reckons in f64.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
/// The largest count; more than any context holds.
const MAX_COUNT: u64 = 1 << 20;
/// Places that references may lead to; the engine recurses from one to the next.
const MAX_TARGETS: usize = 1_000;
/// White space between the parts of JSON: a blank or two, or up to two line ends and an indentation. Without an upper end
/// weak models write blanks for ever.
const WHITE_SPACE: &str = r" {1,2}|(?:\r?\n){1,2}[ \t]{0,32}";
/// Letters that may follow a backslash in strings. Without `u`, because a name written with it could be taken for another.
const ESCAPES: &str = "nrbtf\\\"";

/// The schema of any object.
pub(super) fn any_object() -> Value {
    with_options(json!({"type": "object"}))
}

/// The schema as the engine is to have it.
///
/// # Errors
/// What it cannot keep to, by keyword and place; more nodes, depth or bytes than the limits allow.
pub(super) fn prepare(schema: &Value, limits: &GrammarLimits) -> Result<Value, GrammarError> {
    measure(schema, limits)?;
    let schema = match schema {
        Value::Object(map) if map.is_empty() => return Ok(any_object()),
        Value::Bool(true) => json!({}),
        Value::Bool(false) => return Err(wrong("#", "false allows nothing")),
        schema => schema.clone(),
    };
    let mut check = Check::new(&schema);
    while let Some(place) = check.open.pop() {
        check.target(&place)?;
    }
    check.acyclic()?;
    let idle = check.idle;
    let mut schema = schema;
    for (place, keyword) in idle {
        if let Some(Value::Object(map)) = schema.pointer_mut(&place[1..]) {
            map.shift_remove(keyword);
        }
    }
    Ok(with_options(schema))
}

/// Names the place for what the engine says about a prepared schema, where that can be told.
pub(super) fn explain(schema: &Value, reason: String) -> GrammarError {
    let one_of = reason.starts_with("oneOf constraints").then(|| find(schema, "oneOf", "#")).flatten();
    match one_of {
        Some(place) => wrong(
            &place,
            "the alternatives do not exclude each other by type, constant or a required property; anyOf may do",
        ),
        None => GrammarError::Compile { kind: "the JSON schema", reason },
    }
}

fn with_options(mut schema: Value) -> Value {
    if let Value::Object(map) = &mut schema {
        // One dialect for all: the engine would skip keywords that an older draft does not have.
        map.shift_remove("$schema");
        map.insert(
            "x-guidance".to_owned(),
            json!({"whitespace_pattern": WHITE_SPACE, "json_allowed_escapes": ESCAPES}),
        );
    }
    schema
}

fn wrong(place: &str, what: impl Into<String>) -> GrammarError {
    GrammarError::Schema { place: place.to_owned(), what: what.into() }
}

/// The place of the first object that has this key.
fn find(value: &Value, key: &str, place: &str) -> Option<String> {
    match value {
        Value::Object(map) if map.contains_key(key) => Some(below(place, key)),
        Value::Object(map) => map.iter().find_map(|(name, value)| find(value, key, &below(place, name))),
        Value::Array(list) => {
            list.iter().enumerate().find_map(|(i, value)| find(value, key, &below(place, &i.to_string())))
        }
        _ => None,
    }
}

/// Refuses what is too large before anything walks over it.
fn measure(schema: &Value, limits: &GrammarLimits) -> Result<(), GrammarError> {
    let mut nodes = 0;
    let mut bytes = 0;
    let mut left = vec![(schema, 0)];
    while let Some((value, depth)) = left.pop() {
        nodes += 1;
        if depth > limits.depth {
            let (limit, found) = (limits.depth, depth);
            return Err(GrammarError::TooLarge { what: "levels of the JSON schema", limit, found });
        }
        if nodes > limits.nodes {
            let (limit, found) = (limits.nodes, nodes);
            return Err(GrammarError::TooLarge { what: "values in the JSON schema", limit, found });
        }
        match value {
            Value::Object(map) => {
                bytes += map.keys().map(String::len).sum::<usize>();
                left.extend(map.values().map(|value| (value, depth + 1)));
            }
            Value::Array(list) => left.extend(list.iter().map(|value| (value, depth + 1))),
            Value::String(text) => bytes += text.len(),
            _ => bytes += 8,
        }
        if bytes > limits.text {
            let (limit, found) = (limits.text, bytes);
            return Err(GrammarError::TooLarge { what: "bytes of the JSON schema", limit, found });
        }
    }
    Ok(())
}

/// A walk over everything that the root leads to.
struct Check<'a> {
    root: &'a Value,
    /// Places that references lead to.
    seen: BTreeSet<String>,
    /// Those of them that have not been walked over.
    open: Vec<String>,
    /// From such a place to those that describe the same value.
    edges: BTreeMap<String, BTreeSet<String>>,
    /// Keywords that say nothing and that the engine refuses all the same.
    idle: Vec<(String, &'static str)>,
}

impl<'a> Check<'a> {
    fn new(root: &'a Value) -> Check<'a> {
        let start = "#".to_owned();
        Check {
            root,
            seen: BTreeSet::from([start.clone()]),
            open: vec![start],
            edges: BTreeMap::new(),
            idle: Vec::new(),
        }
    }

    /// Checks what a reference leads to.
    fn target(&mut self, place: &str) -> Result<(), GrammarError> {
        match self.root.pointer(&place[1..]) {
            Some(schema) => self.schema(schema, place, Some(place)),
            None => Err(wrong(place, "a $ref leads here, but there is nothing")),
        }
    }

    /// Checks a schema. `owner` is the place of a reference that this schema describes the same value as.
    fn schema(&mut self, schema: &'a Value, place: &str, owner: Option<&str>) -> Result<(), GrammarError> {
        let map = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(map) => map,
            other => return Err(wrong(place, format!("expected a schema, found {}", kind(other)))),
        };
        for (keyword, value) in map {
            self.keyword(keyword, value, place, owner)?;
        }
        Ok(())
    }

    fn keyword(
        &mut self,
        keyword: &'a str,
        value: &'a Value,
        parent: &str,
        owner: Option<&str>,
    ) -> Result<(), GrammarError> {
        let place = &below(parent, keyword);
        match keyword {
            "uniqueItems" if value == false => self.idle.push((parent.to_owned(), "uniqueItems")),
            _ if REFUSED.contains(&keyword) => return Err(wrong(place, "this keyword is not supported")),
            "x-guidance" => {
                return Err(wrong(place, "options of the grammar engine are not taken from a schema"));
            }
            "$id" | "id" if parent != "#" && value.is_string() => {
                return Err(wrong(place, "schemas with a name of their own inside others are not supported"));
            }
            "$ref" => self.reference(value, place, owner)?,
            "items" if value.is_array() => self.list(value, place, None)?,
            "prefixItems" => self.list(value, place, None)?,
            _ if PART.contains(&keyword) => self.schema(value, place, None)?,
            _ if IN_PLACE.contains(&keyword) => self.list(value, place, owner)?,
            _ if PARTS.contains(&keyword) => self.map(keyword, value, place)?,
            _ => plain(keyword, value, place)?,
        }
        Ok(())
    }

    fn list(&mut self, value: &'a Value, place: &str, owner: Option<&str>) -> Result<(), GrammarError> {
        let list = value
            .as_array()
            .ok_or_else(|| wrong(place, format!("expected a list of schemas, found {}", kind(value))))?;
        for (i, schema) in list.iter().enumerate() {
            self.schema(schema, &below(place, &i.to_string()), owner)?;
        }
        Ok(())
    }

    fn map(&mut self, keyword: &str, value: &'a Value, place: &str) -> Result<(), GrammarError> {
        let map = value
            .as_object()
            .ok_or_else(|| wrong(place, format!("expected an object of schemas, found {}", kind(value))))?;
        for (name, schema) in map {
            let place = &below(place, name);
            if keyword == "patternProperties" {
                pattern(name, place)?;
            }
            self.schema(schema, place, None)?;
        }
        Ok(())
    }

    fn reference(&mut self, value: &Value, place: &str, owner: Option<&str>) -> Result<(), GrammarError> {
        let text =
            value.as_str().ok_or_else(|| wrong(place, format!("expected a text, found {}", kind(value))))?;
        let local = text == "#" || text.starts_with("#/");
        if !local {
            return Err(wrong(place, "only references inside the schema (#/…) are followed"));
        }
        if text.contains(['~', '%']) {
            return Err(wrong(place, "references with escaped characters (~ or %) are not supported"));
        }
        // The engine takes "#/" for the root, a pointer takes it for the key "".
        let target = if text == "#/" { "#" } else { text };
        if let Some(owner) = owner {
            self.edges.entry(owner.to_owned()).or_default().insert(target.to_owned());
        }
        if self.seen.insert(target.to_owned()) {
            self.open.push(target.to_owned());
        }
        if self.seen.len() > MAX_TARGETS {
            let (limit, found) = (MAX_TARGETS, self.seen.len());
            return Err(GrammarError::TooLarge { what: "places that $ref leads to", limit, found });
        }
        Ok(())
    }

    /// Refuses references that lead back to where they are without any part of a value between.
    fn acyclic(&self) -> Result<(), GrammarError> {
        let mut open = self.edges.clone();
        loop {
            let done: Vec<String> = open
                .iter()
                .filter(|(_, to)| to.iter().all(|to| !open.contains_key(to)))
                .map(|(from, _)| from.clone())
                .collect();
            if done.is_empty() {
                break;
            }
            done.iter().for_each(|from| drop(open.remove(from)));
        }
        // What is left leads to a cycle, or is on one.
        let Some(mut place) = open.keys().next() else { return Ok(()) };
        let mut passed = BTreeSet::new();
        while passed.insert(place) {
            place = open[place].iter().find(|to| open.contains_key(*to)).unwrap_or(place);
        }
        Err(wrong(place, "$ref leads back here without an end"))
    }
}

/// Checks a keyword without schemas in it.
fn plain(keyword: &str, value: &Value, place: &str) -> Result<(), GrammarError> {
    match keyword {
        "const" | "enum" => exact(value, place),
        "pattern" => match value.as_str() {
            Some(text) => pattern(text, place),
            None => Err(wrong(place, format!("expected a text, found {}", kind(value)))),
        },
        "format" => match value.as_str() {
            Some(text) if FORMATS.contains(&text) => Ok(()),
            _ => Err(wrong(place, format!("unknown format {value}; known: {}", FORMATS[..10].join(", ")))),
        },
        _ if COUNTS.contains(&keyword) => match value.as_u64() {
            Some(n) if n <= MAX_COUNT => Ok(()),
            _ => Err(wrong(place, format!("expected an integer from 0 to {MAX_COUNT}, found {value}"))),
        },
        "multipleOf" if value.as_f64().is_some_and(|x| x <= 0.0) => {
            Err(wrong(place, format!("expected a number above 0, found {value}")))
        }
        // Draft 4 has booleans here.
        "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => Ok(()),
        _ if BOUNDS.contains(&keyword) && !value.is_number() => {
            Err(wrong(place, format!("expected a number, found {}", kind(value))))
        }
        _ if BOUNDS.contains(&keyword) => exact(value, place),
        _ => Ok(()),
    }
}

/// Refuses numbers that f64 does not hold exactly, also inside lists and objects.
fn exact(value: &Value, place: &str) -> Result<(), GrammarError> {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(x) if x.abs() < MAX_EXACT => Ok(()),
            _ => Err(wrong(place, format!("{number} is beyond the numbers that are exact (2^53)"))),
        },
        Value::Array(list) => {
            list.iter().enumerate().try_for_each(|(i, value)| exact(value, &below(place, &i.to_string())))
        }
        Value::Object(map) => map.iter().try_for_each(|(name, value)| exact(value, &below(place, name))),
        _ => Ok(()),
    }
}

fn pattern(text: &str, place: &str) -> Result<(), GrammarError> {
    match regex_syntax::parse(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(wrong(place, format!("pattern: {}", syntax_reason(&error)))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A JSON pointer to a child.
fn below(place: &str, key: &str) -> String {
    format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// The properties of a schema of an object, for notations that do not write JSON.
pub(super) fn properties(schema: &Value) -> Map<String, Value> {
    schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
}
