//! `config.json`: looks up hyper-parameters under their several names and says what is wrong with them.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{HfError, json};

/// Places of the language model's part in the configuration of one that also sees or hears.
const TEXT_CONFIGS: [&str; 4] = ["text_config", "llm_config", "lm_config", "language_config"];

/// A checkpoint's configuration; that of its language model stands over the rest.
#[derive(Clone, Debug)]
pub struct Config {
    path: PathBuf,
    root: Map<String, Value>,
}

impl Config {
    /// Reads `config.json` of a folder.
    pub fn read(dir: &Path) -> Result<Config, HfError> {
        let path = dir.join("config.json");
        let root = json::read_object(&path)?.ok_or_else(|| HfError::file(&path, "this file is missing"))?;
        Ok(Config::new(path, root))
    }

    /// One that was read from `path`, or would be.
    pub(crate) fn new(path: PathBuf, mut root: Map<String, Value>) -> Config {
        for name in TEXT_CONFIGS {
            if let Some(Value::Object(text)) = root.get(name).cloned() {
                root.extend(text.into_iter().filter(|(_, value)| !value.is_null()));
            }
        }
        Config { path, root }
    }

    /// Where it was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The class that transformers would load, e.g. `LlamaForCausalLM`.
    pub fn class(&self) -> Result<&str, HfError> {
        let first = self.root.get("architectures").and_then(|list| list.get(0)).and_then(Value::as_str);
        first.ok_or_else(|| self.wrong("architectures", "a list of one class name"))
    }

    /// Gives keys that are absent, or null, the value they have in transformers.
    pub(crate) fn set_default(&mut self, key: &str, value: Value) {
        if self.root.get(key).is_none_or(Value::is_null) {
            self.root.insert(key.to_owned(), value);
        }
    }

    /// Whether a key is there and null, which some classes take for a value.
    pub(crate) fn is_null(&self, key: &str) -> bool {
        self.root.get(key).is_some_and(Value::is_null)
    }

    /// The first of these keys that is there and not null.
    pub fn get(&self, keys: &[&str]) -> Option<&Value> {
        self.entry(keys).map(|(_, value)| value)
    }

    /// Like [`Config::get`], with the key.
    pub(crate) fn entry<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &Value)> {
        keys.iter().find_map(|&key| Some((key, self.root.get(key).filter(|value| !value.is_null())?)))
    }

    /// Like [`Config::get`], as u32.
    pub fn u32(&self, keys: &[&str]) -> Result<Option<u32>, HfError> {
        self.typed(keys, "an integer from 0 to 4294967295", |value| u32::try_from(value.as_u64()?).ok())
    }

    /// A required [`Config::u32`] above 0.
    pub fn require(&self, keys: &[&str]) -> Result<u32, HfError> {
        const EXPECTED: &str = "an integer above 0";
        match keys.iter().find(|key| self.get(&[*key]).is_some()) {
            Some(key) => self.u32(&[*key])?.filter(|&n| n > 0).ok_or_else(|| self.wrong(key, EXPECTED)),
            None => {
                let keys: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
                let reason = format!("{}: expected {EXPECTED}, found nothing", keys.join(" or "));
                Err(HfError::file(&self.path, reason))
            }
        }
    }

    /// Like [`Config::get`], as f32.
    pub fn f32(&self, keys: &[&str]) -> Result<Option<f32>, HfError> {
        self.typed(keys, "a number", |value| Some(value.as_f64()? as f32))
    }

    /// Like [`Config::get`], as a string.
    pub fn str(&self, keys: &[&str]) -> Option<&str> {
        self.get(keys).and_then(Value::as_str)
    }

    /// What there is to rotary embeddings: `rope_parameters`, or `rope_scaling` with the base beside it.
    pub(crate) fn rope(&self) -> Result<Rope<'_>, HfError> {
        let parameters = self.get(&["rope_parameters", "rope_scaling"]);
        let parameters = match parameters {
            None => None,
            Some(Value::Object(parameters)) => Some(parameters),
            Some(_) => return Err(self.wrong("rope_scaling", "an object")),
        };
        let layer = |name: &str| parameters.and_then(|all| all.get(name)).and_then(Value::as_object);
        Ok(Rope {
            config: self,
            parameters: layer("full_attention").or(parameters),
            sliding: layer("sliding_attention"),
        })
    }

    fn typed<T>(
        &self,
        keys: &[&str],
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, HfError> {
        for key in keys {
            if let Some(value) = self.root.get(*key).filter(|value| !value.is_null()) {
                return read(value).map(Some).ok_or_else(|| self.wrong(key, expected));
            }
        }
        Ok(None)
    }

    /// The error for a key that has no value of the kind it should have.
    pub(crate) fn wrong(&self, key: &str, expected: &str) -> HfError {
        let found = self.root.get(key).map_or("nothing".to_owned(), describe);
        HfError::file(&self.path, format!("\"{key}\": expected {expected}, found {found}"))
    }
}

/// A value as an error shows it.
pub(crate) fn describe(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Parameters of rotary embeddings.
pub(crate) struct Rope<'a> {
    config: &'a Config,
    parameters: Option<&'a Map<String, Value>>,
    sliding: Option<&'a Map<String, Value>>,
}

impl<'a> Rope<'a> {
    /// How they are scaled: `linear`, `yarn`, `longrope`, `llama3`, … or `default`.
    pub fn kind(&self) -> &'a str {
        let get = |key: &str| self.parameters.and_then(|all| all.get(key)).and_then(Value::as_str);
        get("rope_type").or_else(|| get("type")).unwrap_or("default")
    }

    /// A number among the parameters.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, HfError> {
        let Some(value) = self.parameters.and_then(|all| all.get(key)).filter(|v| !v.is_null()) else {
            return Ok(None);
        };
        let number = value.as_f64().map(|v| v as f32);
        number.map(Some).ok_or_else(|| self.wrong(key, "a number", Some(value)))
    }

    /// Whether a parameter is there and false.
    pub fn is_false(&self, key: &str) -> bool {
        self.parameters.and_then(|all| all.get(key)) == Some(&Value::Bool(false))
    }

    /// A number that has to be there.
    pub fn require(&self, key: &str) -> Result<f32, HfError> {
        self.f32(key)?.ok_or_else(|| self.wrong(key, "a number", None))
    }

    /// One number per pair of dimensions.
    pub fn factors(&self, key: &str, n: usize) -> Result<Option<Vec<f32>>, HfError> {
        let Some(value) = self.parameters.and_then(|all| all.get(key)) else { return Ok(None) };
        let list = value.as_array().filter(|list| list.len() == n);
        let positive = |v: &Value| v.as_f64().map(|v| v as f32).filter(|&v| v > 0.0 && v.is_finite());
        let numbers = list.and_then(|list| list.iter().map(positive).collect());
        numbers.map(Some).ok_or_else(|| self.wrong(key, &format!("{n} positive numbers"), Some(value)))
    }

    /// The base of the rotation.
    pub fn theta(&self) -> Result<Option<f32>, HfError> {
        if let Some(theta) = self.f32("rope_theta")? {
            return Ok(Some(theta));
        }
        let keys =
            ["global_rope_theta", "rope_global_theta", "rope_theta_global", "rope_theta", "rotary_emb_base"];
        self.config.f32(&keys)
    }

    /// The base in layers with a sliding window, if it is another.
    pub fn local_theta(&self) -> Result<Option<f32>, HfError> {
        if let Some(value) = self.sliding.and_then(|all| all.get("rope_theta")) {
            let theta = value.as_f64().map(|v| v as f32);
            return theta.map(Some).ok_or_else(|| self.wrong("rope_theta", "a number", Some(value)));
        }
        self.config.f32(&["local_rope_theta", "rope_local_theta", "rope_theta_local", "rope_local_base_freq"])
    }

    /// The context that the model was trained with before its embeddings were scaled.
    pub fn original_context(&self) -> Result<Option<f32>, HfError> {
        match self.f32("original_max_position_embeddings")? {
            None => self.config.f32(&["original_max_position_embeddings"]),
            context => Ok(context),
        }
    }

    fn wrong(&self, key: &str, expected: &str, found: Option<&Value>) -> HfError {
        let found = found.map_or("nothing".to_owned(), describe);
        let reason = format!("rope parameter \"{key}\": expected {expected}, found {found}");
        HfError::file(self.config.path(), reason)
    }
}
