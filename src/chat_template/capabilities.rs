//! What a template can do, found out by rendering small conversations with it.

use serde_json::{Value as Json, json};

use super::{ChatTemplate, Message, RenderOptions};

/// What a template can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// It describes tools to the model.
    pub tools: bool,
    /// It writes calls of earlier turns, and their results.
    pub tool_calls: bool,
    /// It writes several calls of one turn.
    pub parallel_tool_calls: bool,
    /// It takes system messages.
    pub system: bool,
    /// `enable_thinking` makes a difference.
    pub enable_thinking: bool,
    /// Arguments of calls have to be text. Most templates want objects.
    pub(super) text_arguments: bool,
    /// Messages with calls may have null for content.
    pub(super) null_content: bool,
    /// Content may be an array of parts.
    pub(super) content_parts: bool,
    /// Content may be a string.
    pub(super) content_string: bool,
    /// There has to be a list of tools, though it may be empty.
    pub(super) needs_tools: bool,
    /// Ids of calls have to be nine letters or digits.
    pub(super) mistral_ids: bool,
}

/// An id that the strictest templates accept.
const ID: &str = "abcDEF123";

impl Capabilities {
    pub(super) fn probe(template: &ChatTemplate) -> Capabilities {
        let text = Probe::new(template, json!([user("probe text")]));
        let calls =
            |content: Json, arguments: Json, n| Probe::new(template, conversation(content, &arguments, n));
        let object = json!({"probe_key": "probe value"});
        let as_text = Json::from(object.to_string());
        let with_objects = calls("".into(), object.clone(), 1).shows(&["probe_0", "probe value"]);
        let with_text =
            !with_objects && calls("".into(), as_text.clone(), 1).shows(&["probe_0", "probe value"]);
        let arguments = if with_text { as_text } else { object };
        let thinking = |on: bool| text.with("enable_thinking", on.into()).text();
        let parts = json!([{"type": "text", "text": "probe part"}]);
        let parts = Probe::new(template, json!([{"role": "user", "content": parts}]));
        Capabilities {
            tools: text.tools().shows(&["probe_tool"]),
            tool_calls: with_objects || with_text,
            parallel_tool_calls: calls("".into(), arguments.clone(), 2).shows(&["probe_0", "probe_1"]),
            system: Probe::new(template, json!([{"role": "system", "content": "probe system"}, user("a")]))
                .shows(&["probe system"]),
            enable_thinking: thinking(true) != thinking(false),
            text_arguments: with_text,
            null_content: null_is_as_good(&calls(Json::Null, arguments.clone(), 1)),
            content_parts: parts.shows(&["probe part"])
                && !parts.shows(&["text'"])
                && !parts.shows(&["text\""]),
            content_string: text.shows(&["probe text"]),
            needs_tools: text.rendered().is_none() && text.text().is_some(),
            mistral_ids: template.source().contains("[TOOL_CALLS]"),
        }
    }
}

/// Some templates fail on null, some write it out.
fn null_is_as_good(probe: &Probe) -> bool {
    probe.shows(&["probe_0"]) && !probe.shows(&["None"])
}

fn user(content: &str) -> Json {
    json!({"role": "user", "content": content})
}

/// A turn with `n` calls and their results.
fn conversation(content: Json, arguments: &Json, n: usize) -> Json {
    let id = |i: usize| format!("{}{i}", &ID[..8]);
    let call = |i| json!({"id": id(i), "type": "function", "function": {"name": format!("probe_{i}"), "arguments": arguments}});
    let mut messages = vec![user("a"), json!({"role": "assistant", "content": content})];
    messages[1]["tool_calls"] = (0..n).map(call).collect();
    let result = |i: usize| json!({"role": "tool", "tool_call_id": id(i), "name": format!("probe_{i}"), "content": "b"});
    messages.extend((0..n).map(result));
    messages.into()
}

/// A small conversation to be rendered.
#[derive(Clone)]
struct Probe<'t> {
    template: &'t ChatTemplate,
    messages: Vec<Message>,
    options: RenderOptions,
}

impl Probe<'_> {
    fn new(template: &ChatTemplate, messages: Json) -> Probe<'_> {
        let objects = messages.as_array().into_iter().flatten().filter_map(Json::as_object);
        let messages = objects.cloned().map(Message).collect();
        Probe {
            template,
            messages,
            options: RenderOptions { add_generation_prompt: true, ..Default::default() },
        }
    }

    fn with(&self, name: &str, value: Json) -> Self {
        let mut probe = self.clone();
        probe.options.kwargs.insert(name.to_owned(), value);
        probe
    }

    fn tools(&self) -> Self {
        let mut probe = self.clone();
        let parameters =
            json!({"type": "object", "properties": {"probe_key": {"type": "string", "description": "c"}}});
        let function = json!({"name": "probe_tool", "description": "d", "parameters": parameters});
        probe.options.tools = Some(json!([{"type": "function", "function": function}]));
        probe
    }

    /// Some templates insist on a list of tools, though it may be empty.
    fn text(&self) -> Option<String> {
        self.rendered().or_else(|| {
            let mut probe = self.clone();
            probe.options.tools.get_or_insert_with(|| json!([]));
            probe.rendered()
        })
    }

    fn rendered(&self) -> Option<String> {
        self.template.render(&self.messages, &self.options).ok()
    }

    fn shows(&self, wanted: &[&str]) -> bool {
        self.text().is_some_and(|text| wanted.iter().all(|wanted| text.contains(wanted)))
    }
}
