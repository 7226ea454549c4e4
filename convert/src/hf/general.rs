//! The `general.*` keys: what the model card, the configuration and the model's name say about it.

use std::path::Path;

use qgguf_gguf::{Metadata, MetadataArray, MetadataValue};
use serde_json::{Map, Value};

use super::config::describe;
use super::naming::{self, IdParts};
use super::overrides::Overrides;
use super::sampling::SETTINGS;
use super::{Config, HfError, json};

/// A model or data set that this one was made from: texts for [`ORIGIN`].
type Origin = [Option<String>; ORIGIN.len()];

/// What is said of a model or data set, in order.
const ORIGIN: [&str; 9] =
    ["name", "author", "version", "organization", "description", "url", "doi", "uuid", "repo_url"];

/// Everything in `general.*` that describes the model to people.
#[derive(Clone, Debug, Default)]
pub struct General {
    /// Keys and texts in the order in which they are written, those of [`TEXTS`].
    texts: [Option<String>; TEXTS.len()],
    base_models: Vec<Origin>,
    datasets: Vec<Origin>,
    tags: Vec<String>,
    languages: Vec<String>,
    /// What was odd about the model card.
    pub warnings: Vec<String>,
}

/// `(GGUF key, keys of a model card that are tried in turn)`.
pub(crate) const TEXTS: [(&str, &[&str]); 20] = [
    ("general.name", &["name", "model_name"]),
    ("general.author", &["author", "model_author", "model_creator"]),
    ("general.version", &["version", "model_version"]),
    ("general.organization", &["organization", "model_organization"]),
    ("general.finetune", &["finetune", "model_finetune"]),
    ("general.basename", &["basename", "model_basename", "model_type"]),
    ("general.description", &["description", "model_description"]),
    ("general.quantized_by", &["quantized_by"]),
    ("general.size_label", &["size_label", "model_size_label"]),
    ("general.license", &["license"]),
    ("general.license.name", &["license_name"]),
    ("general.license.link", &["license_link"]),
    ("general.url", &[]),
    ("general.doi", &[]),
    ("general.uuid", &[]),
    ("general.repo_url", &[]),
    ("general.source.url", &["url", "model_url"]),
    ("general.source.doi", &["doi", "model_doi"]),
    ("general.source.uuid", &["uuid", "model_uuid"]),
    ("general.source.repo_url", &["repo_url", "model_repo_url"]),
];

/// Where repositories without an address are.
pub(crate) const HUB: &str = "https://huggingface.co/";

const NAME: usize = 0;
const VERSION: usize = 2;
const ORGANIZATION: usize = 3;
const FINETUNE: usize = 4;
const BASENAME: usize = 5;
const SIZE_LABEL: usize = 8;
const LICENSE: usize = 9;

impl General {
    /// Collects it from a folder: its model card, then the name in its configuration, then its own name. `overrides` stand
    /// over all of them.
    pub fn collect(
        dir: &Path,
        folder: &str,
        config: &Config,
        n_params: u64,
        size_label: Option<String>,
        overrides: &Overrides,
    ) -> Result<General, HfError> {
        let mut general = General::default();
        if let Some(card) = general.card(dir)? {
            general.read_card(&dir.join("README.md"), &card, n_params);
        }
        let path = config.str(&["_name_or_path"]).filter(|path| path.matches('/').count() <= 1);
        for id in [path, Some(folder)].into_iter().flatten().filter(|id| !id.is_empty()) {
            general.read_id(naming::parts(id, n_params));
        }
        general.apply(overrides)?;
        general.texts[NAME].get_or_insert_with(|| folder.to_owned());
        general.texts[SIZE_LABEL] = general.texts[SIZE_LABEL].take().or(size_label);
        Ok(general)
    }

    fn apply(&mut self, overrides: &Overrides) -> Result<(), HfError> {
        for (text, (key, _)) in self.texts.iter_mut().zip(TEXTS) {
            overrides.text(key, text)?;
        }
        overrides.origins("general.base_models", &ORIGIN, &mut self.base_models)?;
        overrides.origins("general.datasets", &ORIGIN, &mut self.datasets)?;
        overrides.list("general.tags", &mut self.tags)?;
        overrides.list("general.languages", &mut self.languages)?;
        let others = ["general.base_models", "general.datasets", "general.tags", "general.languages"];
        let is_known = |key: &str| {
            let sampling = key.strip_prefix("general.sampling.");
            others.contains(&key)
                || TEXTS.iter().any(|text| text.0 == key)
                || sampling.is_some_and(|key| key == "sequence" || SETTINGS.iter().any(|s| s.key == key))
        };
        self.warnings.extend(overrides.unknown(is_known));
        Ok(())
    }

    /// The front matter of `README.md`. A card that cannot be read costs only its facts.
    fn card(&mut self, dir: &Path) -> Result<Option<Map<String, Value>>, HfError> {
        let path = dir.join("README.md");
        let Some(bytes) = json::read_bytes(&path)? else { return Ok(None) };
        match front_matter(&bytes) {
            Ok(card) => Ok(card),
            Err(reason) => {
                self.warnings.push(format!("{}: the front matter is left out: {reason}", path.display()));
                Ok(None)
            }
        }
    }

    fn read_card(&mut self, path: &Path, card: &Map<String, Value>, n_params: u64) {
        for (text, (_, keys)) in self.texts.iter_mut().zip(TEXTS) {
            *text = keys.iter().find_map(|key| card.get(*key).and_then(plain));
        }
        if let Some(Value::Array(_)) = card.get("license") {
            self.texts[LICENSE] = Some(list(card, &["license"]).join(",")).filter(|text| !text.is_empty());
        }
        let mut origins = |keys: &[&str]| -> Vec<Origin> {
            let mut found = Vec::new();
            for value in values(card, keys) {
                match origin(value, n_params) {
                    Some(origin) if !found.contains(&origin) => found.push(origin),
                    Some(_) => {}
                    None => self.warnings.push(format!(
                        "{}: \"{}\": expected an id or an object with texts for {}, found {}; it is left out",
                        path.display(),
                        keys[0],
                        ORIGIN.join(", "),
                        describe(value)
                    )),
                }
            }
            found
        };
        self.base_models = origins(&["base_model", "base_models", "base_model_sources"]);
        self.datasets = origins(&["datasets", "dataset", "dataset_sources"]);
        self.tags = list(card, &["tags", "pipeline_tag"]);
        self.languages = list(card, &["languages", "language"]);
    }

    fn read_id(&mut self, id: IdParts) {
        let found = [
            (NAME, id.name.as_deref().map(naming::title)),
            (ORGANIZATION, id.organization.as_deref().map(naming::title)),
            (BASENAME, id.basename),
            (FINETUNE, id.finetune),
            (VERSION, id.version),
            (SIZE_LABEL, id.size_label),
        ];
        for (i, text) in found {
            self.texts[i] = self.texts[i].take().or(text);
        }
    }

    /// Appends the keys.
    pub fn write(&self, metadata: &mut Metadata) {
        for ((key, _), text) in TEXTS.iter().zip(&self.texts) {
            set_text(metadata, key, text.as_deref());
        }
        for (kind, origins) in [("base_model", &self.base_models), ("dataset", &self.datasets)] {
            if !origins.is_empty() {
                let count = MetadataValue::U32(origins.len() as u32);
                metadata.set(&format!("general.{kind}.count"), count);
            }
            for (i, origin) in origins.iter().enumerate() {
                for (field, text) in ORIGIN.iter().zip(origin) {
                    set_text(metadata, &format!("general.{kind}.{i}.{field}"), text.as_deref());
                }
            }
        }
        for (key, list) in [("general.tags", &self.tags), ("general.languages", &self.languages)] {
            if !list.is_empty() {
                let strings = MetadataArray::String(list.iter().collect());
                metadata.set(key, MetadataValue::Array(strings));
            }
        }
    }

    /// The file name without its ending: `Qwen3-0.6B-Instruct-v1-Q8_0`. A vocabulary has no type, and then no size:
    /// `Qwen3-Instruct-v1-vocab`.
    pub fn file_stem(&self, file_type: Option<&str>) -> String {
        let dashed = |text: &str| text.trim().replace([' ', '/', '\\'], "-");
        let name = self.texts[BASENAME].as_ref().or(self.texts[NAME].as_ref());
        let mut stem = name.map_or("model".to_owned(), |name| dashed(name));
        let size = self.texts[SIZE_LABEL].as_ref().filter(|_| file_type.is_some());
        for text in [size, self.texts[FINETUNE].as_ref(), self.texts[VERSION].as_ref()].into_iter().flatten()
        {
            stem += &format!("-{}", dashed(text));
        }
        format!("{stem}-{}", file_type.unwrap_or("vocab"))
    }
}

/// The facts between two lines of dashes at the beginning of a model card, if it begins so.
fn front_matter(card: &[u8]) -> Result<Option<Map<String, Value>>, String> {
    // Only the facts have to be text: what follows them is not looked at.
    let text = String::from_utf8_lossy(card);
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let Some(body) = text.strip_prefix("---\n") else { return Ok(None) };
    let (yaml, _) = body.split_once("\n---").ok_or("it has no end (a line of ---)")?;
    if yaml.contains(char::REPLACEMENT_CHARACTER) {
        return Err("it has bytes that are not UTF-8".to_owned());
    }
    // Norwegian is a language, not a refusal.
    let options = serde_saphyr::options! { strict_booleans: true };
    match serde_saphyr::from_str_with_options::<Value>(yaml, options) {
        Ok(Value::Object(card)) => Ok(Some(card)),
        Ok(Value::Null) => Ok(None),
        Ok(_) => Err("expected keys with values".to_owned()),
        Err(e) => Err(e.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

fn set_text(metadata: &mut Metadata, key: &str, text: Option<&str>) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        metadata.set(key, MetadataValue::String(text.to_owned()));
    }
}

/// A scalar as text.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// What stands under some keys, each a list or a single value.
fn values<'c>(card: &'c Map<String, Value>, keys: &[&str]) -> impl Iterator<Item = &'c Value> {
    let found = keys.iter().filter_map(|key| card.get(*key)).filter(|value| !value.is_null());
    found.flat_map(|value| match value {
        Value::Array(values) => values.as_slice(),
        value => std::slice::from_ref(value),
    })
}

/// The texts under some keys, without repetitions.
fn list(card: &Map<String, Value>, keys: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for text in values(card, keys).filter_map(plain) {
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

/// What a card says about a model or data set: its id, or an object with what is known of it.
fn origin(value: &Value, n_params: u64) -> Option<Origin> {
    let Value::Object(fields) = value else { return Some(origin_of_id(&plain(value)?, n_params)) };
    let origin = ORIGIN.map(|field| fields.get(field).and_then(plain));
    origin.iter().any(Option::is_some).then_some(origin)
}

/// What an id or an address says.
fn origin_of_id(id: &str, n_params: u64) -> Origin {
    let is_address = ["https://", "http://", "ssh://", "git@"].iter().any(|start| id.starts_with(start));
    let parts = match id.strip_prefix(HUB) {
        Some(path) => naming::parts(path, n_params),
        None if is_address => IdParts::default(),
        None => naming::parts(id, n_params),
    };
    let repo_url = match (&parts.organization, &parts.name) {
        _ if is_address => Some(id.to_owned()),
        (Some(org), Some(name)) => Some(format!("{HUB}{org}/{name}")),
        _ => None,
    };
    ORIGIN.map(|field| match field {
        "name" => parts.name.as_deref().map(naming::title),
        "version" => parts.version.clone(),
        "organization" => parts.organization.as_deref().map(naming::title),
        "repo_url" => repo_url.clone(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata_of(card: &str) -> (Metadata, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), "{}").unwrap();
        std::fs::write(dir.path().join("README.md"), card).unwrap();
        let config = Config::read(dir.path()).unwrap();
        let general = General::collect(
            dir.path(),
            "Qwen3-0.6B-Instruct-v2",
            &config,
            600_000_000,
            Some("596M".to_owned()),
            &Overrides::default(),
        );
        let general = general.unwrap();
        let mut metadata = Metadata::default();
        general.write(&mut metadata);
        let (model, vocabulary) = (general.file_stem(Some("Q8_0")), general.file_stem(None));
        assert!(model.starts_with("Qwen3-0.6B-Instruct-") && model.ends_with("-Q8_0"), "{model}");
        assert!(vocabulary.starts_with("Qwen3-Instruct-") && vocabulary.ends_with("-vocab"), "{vocabulary}");
        (metadata, general.warnings)
    }

    #[test]
    fn a_model_card_comes_before_the_name() {
        let (metadata, warnings) = metadata_of(
            "---\nlicense: [mit, apache-2.0]\nlanguage:\n- en\n- no\nbase_model: Qwen/Qwen3-0.6B-Base\ntags: [a, b]\n\
             pipeline_tag: text-generation\nname: My Model\nversion: 1.5\n---\n# Hello\n",
        );
        assert_eq!(warnings, Vec::<String>::new());
        let list: Vec<String> = metadata.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
        let expected = [
            "general.name=String(\"My Model\")",
            "general.version=String(\"1.5\")",
            "general.finetune=String(\"Instruct\")",
            "general.basename=String(\"Qwen3\")",
            "general.size_label=String(\"0.6B\")",
            "general.license=String(\"mit,apache-2.0\")",
            "general.base_model.count=U32(1)",
            "general.base_model.0.name=String(\"Qwen3 0.6B Base\")",
            "general.base_model.0.organization=String(\"Qwen\")",
            "general.base_model.0.repo_url=String(\"https://huggingface.co/Qwen/Qwen3-0.6B-Base\")",
        ];
        assert_eq!(list[..expected.len()], expected);
        assert_eq!(metadata.strings("general.tags").unwrap().unwrap().len(), 3);
        let languages: Vec<_> = metadata.strings("general.languages").unwrap().unwrap().iter().collect();
        assert_eq!(languages, ["en", "no"]);
    }

    #[test]
    fn a_base_model_may_be_an_object() {
        let (metadata, warnings) = metadata_of(
            "---\nbase_model:\n- name: Base\n  organization: Org\n  repo_url: https://b\n- org/Other-7B\n- id: x\n---\n",
        );
        let of_models = metadata.iter().filter(|(key, _)| key.starts_with("general.base_model"));
        let list: Vec<String> = of_models.map(|(key, value)| format!("{}={value:?}", &key[19..])).collect();
        assert_eq!(
            list,
            [
                "count=U32(2)",
                "0.name=String(\"Base\")",
                "0.organization=String(\"Org\")",
                "0.repo_url=String(\"https://b\")",
                "1.name=String(\"Other 7B\")",
                "1.organization=String(\"Org\")",
                "1.repo_url=String(\"https://huggingface.co/org/Other-7B\")",
            ]
        );
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0].ends_with(
                "README.md: \"base_model\": expected an id or an object with texts for name, author, version, \
                 organization, description, url, doi, uuid, repo_url, found {\"id\":\"x\"}; it is left out"
            ),
            "{warnings:?}"
        );
    }

    #[test]
    fn a_broken_card_costs_only_its_facts() {
        for card in ["---\nname: [unclosed\n---\n", "---\n- a\n---\n", "---\nname: x", "no front matter"] {
            let (metadata, _) = metadata_of(card);
            assert_eq!(metadata.str("general.name").unwrap(), Some("Qwen3 0.6B Instruct v2"), "{card}");
        }
        let (_, warnings) = metadata_of("---\nname: [unclosed\n---\n");
        assert!(warnings[0].contains("README.md: the front matter is left out: "), "{warnings:?}");
    }

    #[test]
    fn aliases_that_would_grow_without_end_are_refused() {
        let mut card = "---\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            let items = vec![format!("*a{}", i - 1); 10].join(", ");
            card += &format!("a{i}: &a{i} [{items}]\n");
        }
        let (_, warnings) = metadata_of(&(card + "---\n"));
        assert_eq!(warnings.len(), 1);
    }
}
