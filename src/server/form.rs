//! What form an answer has and how it is read: thoughts, calls of tools, grammars.

use serde_json::{Map, Value, json};

use crate::answer::{AnswerOptions, ReasoningStyle, Tool, ToolFormat};
use crate::grammar::{self, CallGrammar, Grammar, GrammarError, Lazy, LazyOptions};
use crate::sampler::Constraint;

use super::chat::Chat;
use super::error::{ApiError, Result};
use super::fields::{Fields, kind};
use super::limits::{Limits, at_most};
use super::state::Served;

/// Tokens of white space between a thought's end and an answer that is held to a form.
const BLANKS: usize = 4;

/// What form the answers to a request have.
#[derive(Clone, Debug, Default)]
pub struct Form {
    /// The answer is a conversation's: thoughts and calls are parted from it.
    is_read: bool,
    /// Thoughts are parted from the content.
    parts_thoughts: bool,
    grammar: Option<Grammar>,
    tools: Tools,
}

/// The tools that an answer may call.
#[derive(Clone, Debug, Default)]
struct Tools {
    all: Vec<Tool>,
    /// As the template gets them.
    described: Vec<Value>,
    choice: Choice,
    parallel: bool,
    /// Whether one of them demands that its schema is kept to.
    strict: bool,
}

/// Which tool is to be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Choice {
    /// Any or none.
    #[default]
    Auto,
    /// None.
    Never,
    /// Any.
    Required,
    /// This one.
    Named(String),
}

impl Form {
    /// Takes the fields about reasoning, tools and structured output out of a conversation's request.
    ///
    /// # Errors
    /// A field that makes no sense or cannot be honoured.
    pub fn read(fields: &mut Fields, limits: &Limits) -> Result<Form> {
        let tools = Tools::read(fields, limits)?;
        let grammar = grammar(fields, limits)?;
        if grammar.is_some() && !tools.is_empty() {
            return Err(ApiError::field(
                "tools",
                "cannot be combined with a grammar or schema of the answer",
            ));
        }
        let parts_thoughts = match fields.take::<String>("reasoning_format")?.as_deref() {
            None | Some("auto" | "deepseek") => true,
            Some("none") => false,
            Some(other) => {
                let problem = format!("expected auto, deepseek or none, found '{other}'");
                return Err(ApiError::field("reasoning_format", problem));
            }
        };
        let parses_calls = fields.take::<bool>("parse_tool_calls")?.unwrap_or(true);
        let is_read = parses_calls || tools.is_empty();
        Ok(Form { is_read, parts_thoughts, grammar, tools })
    }

    /// Takes the fields about structured output; the answer is passed on as it is.
    ///
    /// # Errors
    /// A field that makes no sense or cannot be honoured.
    pub fn read_plain(fields: &mut Fields, limits: &Limits) -> Result<Form> {
        Ok(Form { grammar: grammar(fields, limits)?, ..Form::default() })
    }

    /// Tells the conversation of the tools.
    pub fn apply(&self, chat: &mut Chat) {
        if !self.tools.is_empty() {
            chat.tools = Some(self.tools.described.clone().into());
        }
    }

    /// What tokens an answer to the prompt may have; `prompt` is the end of its text.
    ///
    /// # Errors
    /// A grammar or schema that cannot be kept to.
    pub fn constraint(&self, served: &Served, prompt: &str) -> Result<Option<Box<dyn Constraint>>> {
        let constraint = match &self.grammar {
            Some(grammar) => Some(served.grammars.compile(grammar).map_err(unusable)?),
            None => self.tools.constraint(served)?,
        };
        let Some(constraint) = constraint else { return Ok(None) };
        match self.thoughts(served, prompt).filter(|style| style.opened) {
            // The answer begins where the thought ends.
            Some(style) if self.grammar.is_some() || self.tools.is_demanded() => {
                let options = LazyOptions { triggers: vec![style.close], must_come: true, blanks: BLANKS };
                let lazy = Lazy::new(&served.grammars, &options, constraint).map_err(unusable)?;
                Ok(Some(Box::new(lazy)))
            }
            _ => Ok(Some(constraint)),
        }
    }

    fn thoughts(&self, served: &Served, prompt: &str) -> Option<ReasoningStyle> {
        if !self.is_read || !self.parts_thoughts {
            return None;
        }
        ReasoningStyle::detect(&served.template.source, prompt)
    }

    /// How answers to the prompt are read.
    pub fn options(&self, served: &Served, prompt: &str) -> AnswerOptions {
        let calls = self.is_read && !self.tools.is_empty();
        AnswerOptions {
            reasoning: self.thoughts(served, prompt),
            format: calls.then(|| format(served)),
            tools: self.tools.all.clone(),
            parallel: self.tools.parallel,
            seed: None,
        }
    }
}

/// The notation in which a model calls tools.
fn format(served: &Served) -> ToolFormat {
    let own = ToolFormat::detect(&served.template.source);
    own.filter(|_| served.template.template.capabilities().tools).unwrap_or(ToolFormat::Generic)
}

fn unusable(error: GrammarError) -> ApiError {
    match error {
        GrammarError::Busy => ApiError::queue_full(),
        other => ApiError::invalid(other.to_string()),
    }
}

impl Tools {
    fn read(fields: &mut Fields, limits: &Limits) -> Result<Tools> {
        let given: Vec<Value> = fields.take("tools")?.unwrap_or_default();
        at_most("tools", limits.tools, given.len(), "tools")?;
        let choice = fields.value("tool_choice").map(Choice::of).transpose()?.unwrap_or_default();
        let parallel = fields.take("parallel_tool_calls")?.unwrap_or(true);
        let mut tools = Tools { choice, parallel, ..Tools::default() };
        for (i, tool) in given.into_iter().enumerate() {
            tools.add(&format!("tools[{i}]"), tool, limits)?;
        }
        match &tools.choice {
            Choice::Required | Choice::Named(_) if tools.all.is_empty() => {
                Err(ApiError::field("tool_choice", "needs tools"))
            }
            Choice::Named(name) if !tools.all.iter().any(|tool| tool.name == *name) => {
                Err(ApiError::field("tool_choice", format!("there is no tool '{name}'")))
            }
            Choice::Never => Ok(Tools::default()),
            _ => Ok(tools),
        }
    }

    fn add(&mut self, path: &str, tool: Value, limits: &Limits) -> Result<()> {
        let mut fields = Fields::of(tool.clone(), path)?;
        let tool_kind: String = fields.require("type")?;
        if tool_kind != "function" {
            return Err(ApiError::field(
                fields.name("type"),
                format!("expected function, found '{tool_kind}'"),
            ));
        }
        let mut function = fields.object("function")?.ok_or_else(|| fields.missing("function"))?;
        let parameters = function.value("parameters").unwrap_or(Value::Null);
        at_most(&function.name("parameters"), limits.schema, parameters.to_string().len(), "bytes")?;
        self.strict |= function.take("strict")?.unwrap_or(false);
        self.all.push(Tool { name: function.require("name")?, parameters });
        self.described.push(tool);
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether the answer has to be a call.
    fn is_demanded(&self) -> bool {
        matches!(self.choice, Choice::Required | Choice::Named(_))
    }

    /// Calls in the right form. A schema that cannot be kept to is an error only where keeping to it was demanded.
    fn constraint(&self, served: &Served) -> Result<Option<Box<dyn Constraint>>> {
        if self.is_empty() {
            return Ok(None);
        }
        match self.calls(served) {
            Ok(constraint) => Ok(Some(constraint)),
            Err(GrammarError::Schema { .. }) if !self.is_demanded() && !self.strict => Ok(None),
            Err(error) => Err(unusable(error)),
        }
    }

    fn calls(&self, served: &Served) -> Result<Box<dyn Constraint>, GrammarError> {
        let choice = match &self.choice {
            Choice::Named(name) => grammar::ToolChoice::Named(name),
            _ => grammar::ToolChoice::Any,
        };
        let factory = &served.grammars;
        // Whoever names a tool wants one call of it.
        let parallel = self.parallel && !matches!(self.choice, Choice::Named(_));
        let calls = CallGrammar::new(factory, &self.all, choice, format(served), parallel)?;
        if self.is_demanded() { calls.required(factory) } else { calls.optional(factory) }
    }
}

impl Choice {
    fn of(value: Value) -> Result<Choice> {
        let bad = |found: &str| {
            let expected =
                "expected auto, none, required or {\"type\": \"function\", \"function\": {\"name\": …}}";
            ApiError::field("tool_choice", format!("{expected}, found {found}"))
        };
        match &value {
            Value::String(text) => match text.as_str() {
                "auto" => Ok(Choice::Auto),
                "none" => Ok(Choice::Never),
                "required" | "any" => Ok(Choice::Required),
                other => Err(bad(&format!("'{other}'"))),
            },
            Value::Object(_) => {
                let name = value.pointer("/function/name").or_else(|| value.get("name"));
                let name = name.and_then(Value::as_str).ok_or_else(|| bad("an object without a name"))?;
                Ok(Choice::Named(name.to_owned()))
            }
            other => Err(bad(kind(other))),
        }
    }
}

/// The form of the whole answer: `response_format`, `json_schema`, `grammar` or `regex`.
fn grammar(fields: &mut Fields, limits: &Limits) -> Result<Option<Grammar>> {
    let mut found: Vec<(&str, Grammar)> = Vec::new();
    if let Some(format) = fields.object("response_format")? {
        found.extend(response_format(format)?.map(|grammar| ("response_format", grammar)));
    }
    if let Some(schema) = fields.value("json_schema") {
        found.push(("json_schema", Grammar::JsonSchema(schema)));
    }
    let text = |text: Option<String>| text.filter(|text| !text.is_empty());
    found.extend(text(fields.take("grammar")?).map(|text| ("grammar", Grammar::Gbnf(text))));
    found.extend(text(fields.take("regex")?).map(|text| ("regex", Grammar::Regex(text))));
    if let [(first, _), (second, _), ..] = found.as_slice() {
        return Err(ApiError::field(*second, format!("excludes {first}")));
    }
    let Some((field, grammar)) = found.pop() else { return Ok(None) };
    let bytes = match &grammar {
        Grammar::JsonSchema(schema) => schema.to_string().len(),
        Grammar::Gbnf(text) | Grammar::Regex(text) => text.len(),
        _ => 0,
    };
    at_most(field, limits.schema, bytes, "bytes")?;
    Ok(Some(grammar))
}

fn response_format(mut format: Fields) -> Result<Option<Grammar>> {
    let format_kind: String = format.require("type")?;
    let schema = format.value("schema");
    let nested = match format.object("json_schema")? {
        Some(mut nested) => nested.value("schema"),
        None => None,
    };
    match format_kind.as_str() {
        "text" => Ok(None),
        "json_object" => Ok(Some(schema.map_or(Grammar::JsonObject, Grammar::JsonSchema))),
        "json_schema" => {
            let schema = nested.or(schema).ok_or_else(|| format.missing("json_schema.schema"))?;
            Ok(Some(Grammar::JsonSchema(schema)))
        }
        other => Err(ApiError::field(
            format.name("type"),
            format!("expected text, json_object or json_schema, found '{other}'"),
        )),
    }
}

/// A function in OpenAI's description of tools.
pub fn described(
    name: &str,
    description: Option<Value>,
    parameters: Option<Value>,
    strict: Option<Value>,
) -> Value {
    let mut function = Map::new();
    function.insert("name".to_owned(), name.into());
    for (key, value) in [("description", description), ("parameters", parameters), ("strict", strict)] {
        function.extend(value.map(|value| (key.to_owned(), value)));
    }
    json!({ "type": "function", "function": function })
}
