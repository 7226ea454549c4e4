//! Conversations as clients send them, adapted to what a template can do.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value as Json, json};

use super::{Capabilities, ChatTemplate, Message, RenderOptions, TemplateError};

impl ChatTemplate {
    /// What the template can do. Found out by rendering, once.
    pub fn capabilities(&self) -> &Capabilities {
        self.capabilities.get_or_init(|| Capabilities::probe(self))
    }

    /// Renders the prompt for a conversation in the form of OpenAI's API, adapted to what the template can do:
    ///
    /// - `developer` is another name for `system`; where the template has none, what it says goes before the next message
    ///   of the user.
    /// - Parts of text are joined with line ends where content has to be a string.
    /// - Arguments of calls, which are text in the API, are given as objects; ids of calls become nine letters or digits
    ///   where Mistral's templates insist on that (the same for the same id).
    /// - Tools, calls and results that the template does not know are told in words and JSON, in the notation that
    ///   [`ToolFormat::Generic`](crate::answer::ToolFormat::Generic) reads.
    /// - `enable_thinking` is on unless it is given, where the template has it.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn prompt(&self, messages: &[Message], options: &RenderOptions) -> Result<String, TemplateError> {
        let (messages, options) = self.adapted(messages, options);
        self.render(&messages, &options)
    }

    /// [`ChatTemplate::prompt`] that ends in the middle of the last message, for the model to continue it.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`]; a last message without text, or one that the template does not write.
    pub fn prompt_continuing(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<String, TemplateError> {
        // Templates trim messages, so that the end can only be found by something after it.
        const MARK: &str = "\u{2}continued here\u{3}";
        let (mut messages, mut options) = self.adapted(messages, options);
        options.add_generation_prompt = false;
        let content = messages.last_mut().and_then(|message| message.0.get_mut("content"));
        match content {
            Some(Json::String(text)) => text.push_str(MARK),
            _ => {
                return Err(TemplateError::render("the last message has no text to be continued".to_owned()));
            }
        }
        let mut prompt = self.render(&messages, &options)?;
        let end = prompt.rfind(MARK).ok_or_else(|| {
            TemplateError::render(
                "the template does not write the message that is to be continued".to_owned(),
            )
        })?;
        prompt.truncate(end);
        Ok(prompt)
    }

    fn adapted(&self, messages: &[Message], options: &RenderOptions) -> (Vec<Message>, RenderOptions) {
        let can = self.capabilities();
        let mut options = options.clone();
        let mut messages = messages.to_vec();
        for message in &mut messages {
            adapt_content(message, can);
            adapt_calls(message, can);
        }
        let tools = options.tools.as_ref().and_then(Json::as_array).is_some_and(|tools| !tools.is_empty());
        if tools && !can.tools {
            let tools = options.tools.take().unwrap_or_default();
            messages.insert(0, Message::new("system", &tool_instructions(&tools)));
            join_systems(&mut messages);
        }
        if can.needs_tools {
            options.tools.get_or_insert_with(|| json!([]));
        }
        if !can.system {
            move_system(&mut messages);
        }
        if can.enable_thinking {
            options.kwargs.entry("enable_thinking").or_insert(true.into());
        }
        (messages, options)
    }
}

/// Role and content in a form that the template takes.
fn adapt_content(message: &mut Message, can: &Capabilities) {
    if message.role() == Some("developer") {
        message.0.insert("role".to_owned(), "system".into());
    }
    let is_assistant = message.role() == Some("assistant");
    let keeps_parts = can.content_parts && matches!(message.role(), Some("user" | "system"));
    match message.0.get("content") {
        Some(Json::Array(parts)) if !keeps_parts => {
            if let Some(text) = joined(parts) {
                message.0.insert("content".to_owned(), text.into());
            }
        }
        Some(Json::String(text)) if !can.content_string && can.content_parts => {
            let parts = json!([{"type": "text", "text": text}]);
            message.0.insert("content".to_owned(), parts);
        }
        None | Some(Json::Null) if is_assistant && !can.null_content => {
            message.0.insert("content".to_owned(), "".into());
        }
        None if is_assistant => {
            message.0.insert("content".to_owned(), Json::Null);
        }
        _ => {}
    }
}

/// The texts of an array of nothing but texts.
fn joined(parts: &[Json]) -> Option<String> {
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part.get("text")?.as_str()).collect();
    texts.map(|texts| texts.join("\n"))
}

/// Calls and their results in a form that the template takes.
fn adapt_calls(message: &mut Message, can: &Capabilities) {
    if let Some(Json::Array(calls)) = message.0.get_mut("tool_calls") {
        for call in calls {
            if let Some(arguments) = call.pointer_mut("/function/arguments") {
                adapt_arguments(arguments, can.text_arguments);
            }
            if let (Some(id), true) = (call.get_mut("id"), can.mistral_ids) {
                shorten_id(id);
            }
        }
    }
    if let (Some(id), true) = (message.0.get_mut("tool_call_id"), can.mistral_ids) {
        shorten_id(id);
    }
    if !can.tool_calls {
        tell_calls(message);
    }
}

fn adapt_arguments(arguments: &mut Json, as_text: bool) {
    match arguments {
        Json::String(text) if !as_text => {
            // No arguments are sometimes an empty text.
            let text = if text.trim().is_empty() { "{}" } else { text };
            if let Ok(object) = serde_json::from_str::<Map<String, Json>>(text) {
                *arguments = object.into();
            }
        }
        Json::Object(_) if as_text => *arguments = arguments.to_string().into(),
        _ => {}
    }
}

/// Makes nine letters or digits of an id, the same of the same id.
fn shorten_id(id: &mut Json) {
    let Some(text) = id.as_str() else { return };
    if text.len() == 9 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return;
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let mut hash = hasher.finish();
    let mut short = String::new();
    for _ in 0..9 {
        short.extend(char::from_digit((hash % 36) as u32, 36));
        hash /= 36;
    }
    *id = short.into();
}

/// Calls and results as text, for templates that know neither.
fn tell_calls(message: &mut Message) {
    let text = message.content().unwrap_or_default().to_owned();
    if let Some(calls) = message.0.shift_remove("tool_calls").filter(|calls| calls.is_array()) {
        let calls = calls.as_array().into_iter().flatten();
        let calls: Vec<&Json> = calls.filter_map(|call| call.get("function")).collect();
        if !calls.is_empty() {
            let told = json!({"tool_calls": calls}).to_string();
            let text = if text.is_empty() { told } else { format!("{text}\n{told}") };
            message.0.insert("content".to_owned(), text.into());
        }
    } else if message.role() == Some("tool") {
        let id = message.0.get("tool_call_id").cloned().unwrap_or_default();
        let told = json!({"tool_result": {"tool_call_id": id, "content": text}}).to_string();
        *message = Message::new("user", &told);
    }
}

/// What a model that was not trained with tools has to know about them.
fn tool_instructions(tools: &Json) -> String {
    let mut text = "You can call these tools:\n".to_owned();
    for tool in tools.as_array().into_iter().flatten() {
        text += &format!("{}\n", tool.get("function").unwrap_or(tool));
    }
    text + "Answer with JSON only: {\"tool_call\": {\"name\": the tool's name, \"arguments\": an object with its arguments}} \
            to call a tool, or {\"response\": your answer} to answer the user."
}

/// Makes one of two system messages at the beginning.
fn join_systems(messages: &mut Vec<Message>) {
    if let [first, second, ..] = &messages[..]
        && second.role() == Some("system")
        && let (Some(a), Some(b)) = (first.content(), second.content())
    {
        messages[0] = Message::new("system", &format!("{b}\n\n{a}"));
        messages.remove(1);
    }
}

/// Puts what system messages say before the next message of the user.
fn move_system(messages: &mut Vec<Message>) {
    let mut said = Vec::new();
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    for mut message in messages.drain(..) {
        match (message.role(), message.content()) {
            (Some("system"), Some(text)) => said.push(text.to_owned()),
            (Some("user"), Some(text)) if !said.is_empty() => {
                said.push(text.to_owned());
                let text = std::mem::take(&mut said).join("\n\n");
                message.0.insert("content".to_owned(), text.into());
                out.push(message);
            }
            _ => out.push(message),
        }
    }
    if !said.is_empty() {
        out.push(Message::new("user", &said.join("\n\n")));
    }
    *messages = out;
}
