//! Calls of tools: the grammar of a model's notation, with the schema of each tool's arguments in it.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{Grammar, GrammarError, GrammarFactory, Lazy, LazyOptions, schema};
use crate::answer::schema::Types;
use crate::answer::{Tool, ToolFormat};
use crate::sampler::Constraint;
use crate::tokenizer::{TokenType, Tokenizer};

/// Which of the tools is to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice<'a> {
    /// Any of them.
    Any,
    /// The one with this name.
    Named(&'a str),
}

/// Calls in one answer when there may be several.
const MAX_CALLS: usize = 32;
/// Bytes of a tool's name.
const MAX_NAME: usize = 128;
/// What begins the calls of the notations that have a marker for that.
const TOOL_CALL: &str = "<tool_call>";
const TOOL_CALLS: &str = "[TOOL_CALLS]";
const PYTHON_TAG: &str = "<|python_tag|>";

/// The grammar of calls.
#[derive(Clone, Debug)]
pub struct CallGrammar {
    /// The whole answer is calls.
    whole: String,
    /// What follows the marker, where the notation has one; otherwise an answer that is calls or something else.
    rest: Rest,
}

#[derive(Clone, Debug)]
enum Rest {
    After { marker: &'static str, lark: String },
    Either(String),
}

impl CallGrammar {
    /// The grammar for calls of `tools` in a model's notation; one call, or up to 32 if `parallel`.
    ///
    /// In [`ToolFormat::QwenCoder`] arguments that are texts are free text, unless the schema lists them.
    ///
    /// # Errors
    /// No such tool, a name that the notation cannot carry, a schema that cannot be kept to.
    pub fn new(
        factory: &GrammarFactory,
        tools: &[Tool],
        choice: ToolChoice,
        format: ToolFormat,
        parallel: bool,
    ) -> Result<CallGrammar, GrammarError> {
        let named = |tool: &&Tool| match choice {
            ToolChoice::Any => true,
            ToolChoice::Named(name) => tool.name == name,
        };
        let chosen: Vec<&Tool> = tools.iter().filter(named).collect();
        if chosen.is_empty() {
            let tool = if let ToolChoice::Named(name) = choice { name } else { "" }.to_owned();
            return Err(GrammarError::Tool { tool, what: "there is no such tool".to_owned() });
        }
        chosen.iter().try_for_each(|tool| check_name(&tool.name))?;
        let writer = Writer { tokenizer: factory.tokenizer(), factory, tools: &chosen, parallel };
        writer.calls(format)
    }

    /// The answer is calls and nothing else.
    ///
    /// # Errors
    /// As [`GrammarFactory::compile`].
    pub fn required(&self, factory: &GrammarFactory) -> Result<Box<dyn Constraint>, GrammarError> {
        factory.compile(&Grammar::Lark(self.whole.clone()))
    }

    /// The answer may be free text, but where it calls it does so in the right form, and ends after the calls.
    ///
    /// # Errors
    /// As [`GrammarFactory::compile`].
    pub fn optional(&self, factory: &GrammarFactory) -> Result<Box<dyn Constraint>, GrammarError> {
        match &self.rest {
            Rest::Either(lark) => factory.compile(&Grammar::Lark(lark.clone())),
            Rest::After { marker, lark } => {
                let inner = factory.compile(&Grammar::Lark(lark.clone()))?;
                let options = LazyOptions { triggers: vec![(*marker).to_owned()], ..LazyOptions::default() };
                Ok(Box::new(Lazy::new(factory, &options, inner)?))
            }
        }
    }
}

/// Names stand between quotes, brackets or line ends.
fn check_name(name: &str) -> Result<(), GrammarError> {
    let bad = |c: char| c.is_control() || c.is_whitespace() || "\"\\<>[]{}=".contains(c);
    if name.is_empty() || name.len() > MAX_NAME || name.contains(bad) {
        let what = format!(
            "expected a name of 1 to {MAX_NAME} bytes without white space, quotes, backslashes, brackets and ="
        );
        return Err(GrammarError::Tool { tool: name.chars().take(MAX_NAME).collect(), what });
    }
    Ok(())
}

struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    factory: &'a GrammarFactory,
    tools: &'a [&'a Tool],
    parallel: bool,
}

impl Writer<'_> {
    fn calls(&self, format: ToolFormat) -> Result<CallGrammar, GrammarError> {
        match format {
            ToolFormat::Hermes => {
                self.marked(TOOL_CALL, "\"\\n\" call \"\\n</tool_call>\"", "\"\\n\"", |tool| {
                    Ok(format!("{} {} \"}}\"", call_head(tool, "arguments"), self.arguments(tool)?))
                })
            }
            ToolFormat::QwenCoder => {
                let end = self.marker("</tool_call>");
                let rest = format!("\"\\n\" call \"</function>\\n\" {end}");
                // A free value goes up to the tag that closes it, which is part of it.
                let tag = r"\n<\/parameter>\n";
                let rest = format!("{rest}\nFREE: /(?s:.*){tag}/ & ~/(?s:.*){tag}(?s:.+)/");
                self.marked(TOOL_CALL, &rest, "\"\\n\"", |tool| self.xml(tool))
            }
            ToolFormat::MistralArgs => self.marked(TOOL_CALLS, "call", "", |tool| {
                let id = match self.is_token("[CALL_ID]") {
                    true => format!("({} /[a-zA-Z0-9]{{9}}/)?", self.marker("[CALL_ID]")),
                    false => String::new(),
                };
                let (name, args) = (text(&tool.name), self.marker("[ARGS]"));
                Ok(format!("{name} {id} {args} {}", self.arguments(tool)?))
            }),
            ToolFormat::MistralArray => {
                let rules = self.rules(|tool| {
                    let id = "(\", \\\"id\\\": \\\"\" /[a-zA-Z0-9]{9}/ \"\\\"\")?";
                    Ok(format!("{} {} {id} \"}}\"", call_head(tool, "arguments"), self.arguments(tool)?))
                })?;
                let list = format!("\"[\" {} \"]\"\n{rules}", self.several("call", "\", \""));
                Ok(CallGrammar {
                    whole: format!("start: {} {list}", self.marker(TOOL_CALLS)),
                    rest: Rest::After { marker: TOOL_CALLS, lark: format!("start: {list}") },
                })
            }
            ToolFormat::Llama3 => {
                let rules = self.rules(|tool| {
                    Ok(format!("{} {} \"}}\"", call_head(tool, "parameters"), self.arguments(tool)?))
                })?;
                let tag =
                    if self.is_token(PYTHON_TAG) { self.marker(PYTHON_TAG) + "?" } else { String::new() };
                let calls = format!("calls: {tag} {}\n{rules}", self.several("call", "\"; \""));
                Ok(CallGrammar {
                    whole: format!("start: calls\n{calls}"),
                    // Calls are the whole answer, so its first character tells.
                    rest: Rest::Either(format!("start: calls | FREE\n{calls}FREE: /[^{{\\s](?s:.*)/\n")),
                })
            }
            ToolFormat::Generic => {
                let rules = self.rules(|tool| {
                    Ok(format!("{} {} \"}}\"", call_head(tool, "arguments"), self.arguments(tool)?))
                })?;
                let one = "\"{\\\"tool_call\\\": \" call \"}\"".to_owned();
                let calls = match self.parallel {
                    true => format!(
                        "{one} | \"{{\\\"tool_calls\\\": [\" {} \"]}}\"",
                        self.several("call", "\", \"")
                    ),
                    false => one,
                };
                let answer = format!("\"{{\\\"response\\\": \" %json {} \"}}\"", json!({"type": "string"}));
                Ok(CallGrammar {
                    whole: format!("start: {calls}\n{rules}"),
                    rest: Rest::Either(format!("start: {calls} | {answer}\n{rules}")),
                })
            }
        }
    }

    /// Calls that each begin with a marker: `marker rest`, with `between` between two.
    fn marked(
        &self,
        marker: &'static str,
        rest: &str,
        between: &str,
        call: impl Fn(&Tool) -> Result<String, GrammarError>,
    ) -> Result<CallGrammar, GrammarError> {
        let begin = self.marker(marker);
        let next = format!("{between} {begin} rest");
        let more = if self.parallel { format!("({next}){{0,{}}}", MAX_CALLS - 1) } else { String::new() };
        let rules = format!("rest: {rest}\n{}", self.rules(call)?);
        Ok(CallGrammar {
            whole: format!("start: {begin} rest {more}\n{rules}"),
            rest: Rest::After { marker, lark: format!("start: rest {more}\n{rules}") },
        })
    }

    /// The rule `call`, a call of any of the tools.
    fn rules(&self, call: impl Fn(&Tool) -> Result<String, GrammarError>) -> Result<String, GrammarError> {
        let names: Vec<String> = (0..self.tools.len()).map(|i| format!("call_{i}")).collect();
        let mut rules = format!("call: {}\n", names.join(" | "));
        for (tool, name) in self.tools.iter().zip(&names) {
            let call = call(tool).map_err(|error| in_tool(tool, error))?;
            let _ = writeln!(rules, "{name}: {call}");
        }
        Ok(rules)
    }

    fn several(&self, item: &str, between: &str) -> String {
        match self.parallel {
            true => format!("{item} ({between} {item}){{0,{}}}", MAX_CALLS - 1),
            false => item.to_owned(),
        }
    }

    fn is_token(&self, text: &str) -> bool {
        self.tokenizer.token_id(text).is_some()
    }

    /// A marker: the control token with this text if there is one, else the text.
    fn marker(&self, marker: &str) -> String {
        let control = |id: &u32| self.tokenizer.token_type(*id) == TokenType::Control;
        match self.tokenizer.token_id(marker).filter(control) {
            Some(id) => format!("<[{id}]>"),
            None => text(marker),
        }
    }

    /// JSON that a schema describes.
    fn json(&self, schema: &Value) -> Result<String, GrammarError> {
        Ok(format!("%json {}", schema::prepare(schema, self.factory.limits())?))
    }

    fn arguments(&self, tool: &Tool) -> Result<String, GrammarError> {
        let schema = match &tool.parameters {
            Value::Null => json!({}),
            Value::Object(map) if !map.contains_key("type") => {
                let mut map = map.clone();
                map.insert("type".to_owned(), json!("object"));
                Value::Object(map)
            }
            schema => schema.clone(),
        };
        if schema.get("type").is_some_and(|kind| kind != "object") {
            return Err(GrammarError::Schema {
                place: "#/type".to_owned(),
                what: "the arguments of a tool are an object".to_owned(),
            });
        }
        self.json(&schema)
    }

    /// `<function=NAME>` and its parameters, up to the closing tag.
    fn xml(&self, tool: &Tool) -> Result<String, GrammarError> {
        // What is wrong with the schema as a whole is told as elsewhere.
        self.arguments(tool)?;
        let mut out = text(&format!("<function={}>\n", tool.name));
        let required = |name: &str| {
            let list = tool.parameters.get("required").and_then(Value::as_array);
            list.is_some_and(|list| list.iter().any(|item| item == name))
        };
        for (name, schema) in schema::properties(&tool.parameters) {
            check_name(&name)?;
            let value = self.xml_value(&tool.parameters, &name, &schema)?;
            let optional = if required(&name) { "" } else { "?" };
            let _ = write!(out, " ({} {value}){optional}", text(&format!("<parameter={name}>\n")));
        }
        Ok(out)
    }

    /// The value of a parameter and the tag that closes it.
    fn xml_value(&self, root: &Value, name: &str, schema: &Value) -> Result<String, GrammarError> {
        const END: &str = "\n</parameter>\n";
        if Types::of_parameter(root, name).no_string() {
            let mut schema = schema.clone();
            for key in ["$defs", "definitions"] {
                if let (Some(map), Some(definitions)) = (schema.as_object_mut(), root.get(key)) {
                    map.insert(key.to_owned(), definitions.clone());
                }
            }
            return Ok(format!("{} {}", self.json(&schema)?, text(END)));
        }
        let listed: Option<Vec<String>> = schema.get("enum").and_then(Value::as_array).and_then(|list| {
            list.iter().map(|value| value.as_str().map(|value| text(&format!("{value}{END}")))).collect()
        });
        match listed {
            Some(listed) if !listed.is_empty() => Ok(format!("({})", listed.join(" | "))),
            _ => Ok("FREE".to_owned()),
        }
    }
}

/// A call's beginning in JSON, up to its arguments.
fn call_head(tool: &Tool, arguments: &str) -> String {
    text(&format!("{{\"name\": {}, \"{arguments}\": ", json!(tool.name)))
}

/// A text in the engine's grammar.
fn text(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

fn in_tool(tool: &Tool, error: GrammarError) -> GrammarError {
    match error {
        GrammarError::Tool { .. } => error,
        error => GrammarError::Tool { tool: tool.name.clone(), what: error.to_string() },
    }
}
