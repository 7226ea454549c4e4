//! A call that is written as a JSON object, `{"name": …, "arguments": {…}}`, while it is being written.

use super::Tools;
use super::json::{Json, Malformed, Place, push_escaped};
use super::out::Out;

/// What an object has to be to count as a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accept {
    /// Any name: a marker said that a call follows.
    AnyName,
    /// Only tools that exist, and only with arguments: nothing but the object itself says that it is a call.
    KnownName,
}

/// Reads one object. Its arguments stream out as soon as the name is known.
#[derive(Debug)]
pub(super) struct CallObject {
    accept: Accept,
    json: Json,
    /// JSON text of the key at hand.
    key_text: String,
    key: Key,
    /// JSON text of the value at hand, unless it streams.
    value: String,
    name: Option<String>,
    id: Option<String>,
    arguments: Arguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Name,
    Id,
    Arguments,
    Other,
}

#[derive(Debug)]
enum Arguments {
    None,
    /// They are going out as they come.
    Streaming,
    /// They came before the name.
    Held(String),
    Told,
}

impl CallObject {
    pub(super) fn new(accept: Accept) -> CallObject {
        CallObject {
            accept,
            json: Json::new(),
            key_text: String::new(),
            key: Key::Other,
            value: String::new(),
            name: None,
            id: None,
            arguments: Arguments::None,
        }
    }

    /// Reads on, up to the object's end. Gives the number of bytes read and whether the object, and so the call, is complete.
    ///
    /// # Errors
    /// The text is no call.
    pub(super) fn read(
        &mut self,
        text: &str,
        tools: &Tools,
        out: &mut Out,
    ) -> Result<(usize, bool), Malformed> {
        for (at, c) in text.char_indices() {
            self.feed(c, tools, out)?;
            if self.json.is_done() {
                self.end(tools, out)?;
                return Ok((at + c.len_utf8(), true));
            }
        }
        Ok((text.len(), false))
    }

    fn feed(&mut self, c: char, tools: &Tools, out: &mut Out) -> Result<(), Malformed> {
        let (before, depth) = (self.json.place(), self.json.depth());
        if depth == 0 && c != '{' && !c.is_ascii_whitespace() {
            return Err(Malformed);
        }
        self.json.feed(c)?;
        match (before, depth) {
            (_, 0) => return Ok(()),
            (Place::FirstKey | Place::NextKey, 1) if c == '"' => self.key_text = "\"".to_owned(),
            (Place::FirstKey | Place::NextKey | Place::Colon | Place::After, 1) => return Ok(()),
            (Place::String { key: true, .. }, 1) => {
                push_escaped(&mut self.key_text, before, c);
                if self.json.place() == Place::Colon {
                    self.begin_value()?;
                }
            }
            (Place::Value, 1) if c.is_ascii_whitespace() => {}
            // What ends a number or a word is not part of it.
            (Place::Number(_), 1) if c.is_ascii_whitespace() || matches!(c, ',' | '}') => {
                self.end_value(tools, out)?;
            }
            _ => {
                self.push_value(before, c, tools, out)?;
                if self.json.depth() == 1 && self.json.place() == Place::After {
                    self.end_value(tools, out)?;
                }
            }
        }
        Ok(())
    }

    fn begin_value(&mut self) -> Result<(), Malformed> {
        let key: String = serde_json::from_str(&self.key_text).map_err(|_| Malformed)?;
        self.key = match key.as_str() {
            "name" => Key::Name,
            "id" => Key::Id,
            "arguments" | "parameters" if matches!(self.arguments, Arguments::None) => Key::Arguments,
            _ => Key::Other,
        };
        self.value.clear();
        Ok(())
    }

    fn push_value(&mut self, place: Place, c: char, tools: &Tools, out: &mut Out) -> Result<(), Malformed> {
        let begins =
            self.key == Key::Arguments && place == Place::Value && c == '{' && self.json.depth() == 2;
        if begins && let Some(name) = &self.name {
            self.announce(name, tools, out)?;
            self.arguments = Arguments::Streaming;
        }
        let streaming = self.key == Key::Arguments && matches!(self.arguments, Arguments::Streaming);
        push_escaped(&mut self.value, place, c);
        if streaming {
            out.arguments(&self.value);
            self.value.clear();
        }
        Ok(())
    }

    fn announce(&self, name: &str, tools: &Tools, out: &mut Out) -> Result<(), Malformed> {
        if self.accept == Accept::KnownName && !tools.has(name) {
            return Err(Malformed);
        }
        out.announce(name, self.id.as_deref());
        Ok(())
    }

    fn end_value(&mut self, tools: &Tools, out: &mut Out) -> Result<(), Malformed> {
        let text = |value: &str| serde_json::from_str::<String>(value).ok();
        match self.key {
            Key::Name if self.name.is_none() => {
                let name = text(&self.value).filter(|name| !name.is_empty()).ok_or(Malformed)?;
                self.tell_held(&name, tools, out)?;
                self.name = Some(name);
            }
            Key::Id => self.id = text(&self.value),
            Key::Arguments if matches!(self.arguments, Arguments::Streaming) => {
                self.arguments = Arguments::Told;
                out.complete();
            }
            Key::Arguments => {
                self.arguments = Arguments::Held(object_text(&self.value)?);
                if let Some(name) = self.name.take() {
                    self.tell_held(&name, tools, out)?;
                    self.name = Some(name);
                }
            }
            _ => {}
        }
        self.key = Key::Other;
        Ok(())
    }

    /// Tells of a call whose arguments are known already.
    fn tell_held(&mut self, name: &str, tools: &Tools, out: &mut Out) -> Result<(), Malformed> {
        if let Arguments::Held(arguments) = &self.arguments {
            self.announce(name, tools, out)?;
            out.arguments(arguments);
            out.complete();
            self.arguments = Arguments::Told;
        }
        Ok(())
    }

    /// At the end of the object: a call without arguments is one as well, where a marker announced it.
    fn end(&mut self, tools: &Tools, out: &mut Out) -> Result<(), Malformed> {
        match (&self.arguments, self.accept) {
            (Arguments::Told, _) => Ok(()),
            (Arguments::None, Accept::AnyName) => {
                let name = self.name.take().ok_or(Malformed)?;
                self.arguments = Arguments::Held("{}".to_owned());
                self.tell_held(&name, tools, out)
            }
            _ => Err(Malformed),
        }
    }
}

/// Arguments as an object: some models write the object's text as a string, or null for no arguments.
fn object_text(value: &str) -> Result<String, Malformed> {
    let inner = match serde_json::from_str::<String>(value) {
        Ok(inner) => inner,
        Err(_) => value.to_owned(),
    };
    match serde_json::from_str(&inner) {
        Ok(serde_json::Value::Object(_)) => Ok(inner),
        Ok(serde_json::Value::Null) => Ok("{}".to_owned()),
        _ => Err(Malformed),
    }
}
