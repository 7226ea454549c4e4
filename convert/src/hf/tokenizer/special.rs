//! Ids of special tokens, the flags that add them, and chat templates.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use qgguf_gguf::{Metadata, MetadataArray, MetadataValue};
use serde_json::{Map, Value};

use super::super::config::describe;
use super::super::{Config, HfError, json};
use super::{Files, ends};

/// Names in the configuration and keys in the GGUF (one of them is misspelt there), in order.
const KINDS: [(&str, Option<&str>); 9] = [
    ("bos", Some("bos_token_id")),
    ("eos", Some("eos_token_id")),
    ("unk", Some("unknown_token_id")),
    ("sep", Some("seperator_token_id")),
    ("pad", Some("padding_token_id")),
    ("cls", None),
    ("mask", Some("mask_token_id")),
    ("eot", Some("eot_token_id")),
    ("eom", Some("eom_token_id")),
];

/// What `tokenizer.json` and `tokenizer_config.json` say about special tokens, in the order in which it is found.
#[derive(Default)]
struct Specials {
    /// Texts by kind.
    texts: HashMap<&'static str, String>,
    add: Vec<(&'static str, bool)>,
    ids: Vec<(&'static str, u32)>,
}

impl Specials {
    fn text(&self, kind: &str) -> Option<&str> {
        self.texts.get(kind).map(String::as_str)
    }

    fn is(&self, text: &str, kinds: [&str; 2]) -> bool {
        kinds.iter().any(|kind| self.text(kind) == Some(text))
    }

    fn add(&mut self, kind: &'static str, add: bool) {
        match self.add.iter_mut().find(|(k, _)| *k == kind) {
            Some((_, old)) => *old = add,
            None => self.add.push((kind, add)),
        }
    }

    fn set_id(&mut self, kind: &'static str, id: u32, n_tokens: usize) {
        if (id as usize) < n_tokens && self.ids.iter().all(|(k, _)| *k != kind) {
            self.ids.push((kind, id));
        }
    }

    /// What a post-processor adds to a text.
    fn post_processor(&mut self, processor: &Value) {
        let list = processor.get("processors").and_then(Value::as_array);
        for one in list.map_or(std::slice::from_ref(processor), Vec::as_slice) {
            match one.get("type").and_then(Value::as_str) {
                Some("ByteLevel") => ["bos", "eos"].into_iter().for_each(|kind| self.add(kind, false)),
                Some("RobertaProcessing") => {
                    ["bos", "eos", "sep"].into_iter().for_each(|kind| self.add(kind, true));
                }
                Some("TemplateProcessing") => self.template(one),
                _ => {}
            }
        }
    }

    /// A template for a text: what comes first and last in it, and what stands between two texts.
    fn template(&mut self, template: &Value) {
        let items = |key: &str| template.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let special = |item: Option<&Value>| -> Option<String> {
            Some(item?.get("SpecialToken")?.get("id")?.as_str()?.to_owned())
        };
        let single = items("single");
        let (mut first, mut last) = (None, None);
        if single.len() > 1 {
            first = special(single.first());
            if let Some(text) = &first {
                self.add("bos", self.is(text, ["bos", "cls"]));
            }
            last = special(single.last());
            if let Some(text) = &last {
                if self.text("eos") != Some(text) {
                    // What the configuration calls the end of a text ends a turn then.
                    if let Some(eos) = self.text("eos").map(str::to_owned) {
                        let free = ["eot", "eom"].into_iter().find(|kind| !self.texts.contains_key(kind));
                        free.map(|kind| self.texts.insert(kind, eos));
                    }
                    self.texts.insert("eos", text.clone());
                }
                self.add("eos", true);
            }
        }
        let pair = items("pair");
        let mut pair = pair.as_slice();
        if first.is_some() && special(pair.first()) == first {
            pair = &pair[1..];
        }
        if last.is_some() && special(pair.last()) == last {
            pair = &pair[..pair.len() - 1];
        }
        if let [_, between @ .., _] = pair
            && !between.is_empty()
        {
            let ends =
                |item: Option<&Value>| special(item).is_some_and(|text| self.is(&text, ["sep", "eos"]));
            let add = ends(between.first()) && last.is_none() || between.len() == 2 && ends(between.get(1));
            self.add("sep", add);
        }
    }
}

/// Appends ids, flags and templates. Returns what the user should know about them.
pub(super) fn write(
    files: &Files,
    config: &Config,
    n_tokens: usize,
    metadata: &mut Metadata,
) -> Result<Vec<String>, HfError> {
    let mut warnings = Vec::new();
    let mut specials = Specials::default();
    let empty = Map::new();
    let settings = files.config.as_ref().unwrap_or(&empty);
    for (kind, _) in KINDS.iter().take(7) {
        let key = format!("{kind}_token");
        let read = |file: &str, object: &Map<String, Value>| {
            object.get(&key).map(|token| content(&files.dir.join(file), &key, token)).transpose()
        };
        let (first, second) =
            (read("tokenizer_config.json", settings)?, read("special_tokens_map.json", &files.map)?);
        if let Some(text) = first.or(second).flatten() {
            specials.texts.insert(kind, text);
        }
    }
    if let (None, Some(cls)) = (specials.text("bos"), specials.text("cls").map(str::to_owned)) {
        specials.texts.insert("bos", cls);
    }
    if let Some(processor) = files.tokenizer.as_ref().and_then(|t| t.get("post_processor")) {
        specials.post_processor(processor);
    }
    if files.config.is_some() {
        let added = files.tokenizer_added()?;
        let added_id = |text: &str| u32::try_from(added.iter().find(|token| token.text == text)?.id).ok();
        for (kind, _) in KINDS {
            if let Some(Value::Bool(add)) = settings.get(&format!("add_{kind}_token"))
                && specials.add.iter().all(|(k, _)| *k != kind)
            {
                specials.add(kind, *add);
            }
            if let Some(id) = specials.text(kind).and_then(added_id) {
                specials.set_id(kind, id, n_tokens);
            }
        }
    }
    for (kind, _) in KINDS {
        let name = format!("{kind}_token_id");
        match config.get(&[&name]).and_then(Value::as_u64) {
            Some(id) if id >= n_tokens as u64 => warnings.push(format!(
                "{}: \"{name}\" is {id}, but there are only {n_tokens} tokens: it is left out",
                config.path().display()
            )),
            Some(id) => specials.set_id(kind, id as u32, n_tokens),
            None => {}
        }
    }
    warnings.extend(ends::place(&files.dir, config, &mut specials.ids, metadata)?);
    let key = |kind: &str| KINDS.iter().find(|(k, _)| *k == kind).and_then(|(_, key)| *key);
    for (kind, id) in &specials.ids {
        if let Some(key) = key(kind) {
            metadata.set(&format!("tokenizer.ggml.{key}"), MetadataValue::U32(*id));
        }
    }
    for (kind, add) in &specials.add {
        if ["bos", "eos", "sep"].contains(kind) {
            metadata.set(&format!("tokenizer.ggml.add_{kind}_token"), MetadataValue::Bool(*add));
        }
    }
    let templates = templates(&files.dir, settings)?;
    if files.config.is_some() {
        write_templates(templates, metadata);
    } else if !templates.is_empty() {
        warnings.push(format!(
            "{}: a chat template is left out, as llama.cpp does where there is no tokenizer_config.json",
            files.dir.display()
        ));
    }
    Ok(warnings)
}

/// A token's text, given alone or in an object; `None` if there is no such token.
fn content(path: &Path, key: &str, token: &Value) -> Result<Option<String>, HfError> {
    let text = match token {
        Value::Null | Value::Bool(false) => return Ok(None),
        Value::Object(token) => token.get("content").and_then(Value::as_str),
        token => token.as_str(),
    };
    let wrong = || {
        let found = describe(token);
        HfError::file(
            path,
            format!("\"{key}\": expected a text or an object with \"content\", found {found}"),
        )
    };
    text.map(|text| Some(text.to_owned())).ok_or_else(wrong)
}

/// Templates with their names; the one without a name is the default. All files are read, those too that
/// others stand before: one that is broken should not become the template of the next conversion.
fn templates(dir: &Path, settings: &Map<String, Value>) -> Result<Vec<(String, String)>, HfError> {
    let in_files = template_files(dir)?;
    let object = template_object(&dir.join("chat_template.json"))?;
    let in_settings = match settings.get("chat_template") {
        None | Some(Value::Null) => None,
        Some(Value::String(template)) => Some(vec![("default".to_owned(), template.clone())]),
        Some(value) => Some(named_templates(value).ok_or_else(|| {
            let reason = format!(
                "\"chat_template\": expected a text or a list of objects with \"name\" and \"template\", found {}",
                describe(value)
            );
            HfError::file(&dir.join("tokenizer_config.json"), reason)
        })?),
    };
    Ok(in_settings.or(in_files).or(object).unwrap_or_default())
}

/// A list of templates in `tokenizer_config.json`.
fn named_templates(value: &Value) -> Option<Vec<(String, String)>> {
    let text = |entry: &Value, key: &str| Some(entry.get(key)?.as_str()?.to_owned());
    value.as_array()?.iter().map(|entry| Some((text(entry, "name")?, text(entry, "template")?))).collect()
}

/// `chat_template.jinja`, and further ones in a folder.
fn template_files(dir: &Path) -> Result<Option<Vec<(String, String)>>, HfError> {
    let default = json::read_text(&dir.join("chat_template.jinja"))?;
    let folder = dir.join("additional_chat_templates");
    let mut paths = Vec::new();
    match fs::read_dir(&folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        entries => {
            for entry in entries.map_err(HfError::io(&folder))? {
                paths.push(entry.map_err(HfError::io(&folder))?.path());
            }
        }
    }
    paths.sort();
    let mut others = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "jinja")) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        others.extend(json::read_text(path)?.map(|template| (name, template)));
    }
    Ok(default.map(|template| [vec![("default".to_owned(), template)], others].concat()))
}

/// `chat_template.json`.
fn template_object(path: &Path) -> Result<Option<Vec<(String, String)>>, HfError> {
    let object = json::read_object(path)?;
    match object.as_ref().and_then(|object| object.get("chat_template")) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(template)) => Ok(Some(vec![("default".to_owned(), template.clone())])),
        Some(value) => {
            let found = describe(value);
            Err(HfError::file(path, format!("\"chat_template\": expected a text, found {found}")))
        }
    }
}

fn write_templates(templates: Vec<(String, String)>, metadata: &mut Metadata) {
    let mut names: Vec<String> = Vec::new();
    let mut default = None;
    for (name, template) in templates {
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        match name.as_str() {
            "" => {}
            "default" => default = Some(template),
            _ => {
                metadata.set(&format!("tokenizer.chat_template.{name}"), MetadataValue::String(template));
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
    }
    if !names.is_empty() {
        let names = MetadataArray::String(names.iter().collect());
        metadata.set("tokenizer.chat_templates", MetadataValue::Array(names));
    }
    if let Some(template) = default.filter(|template| !template.is_empty()) {
        metadata.set("tokenizer.chat_template", MetadataValue::String(template));
    }
}
