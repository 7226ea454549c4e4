//! Tokens that end a generation: `generation_config.json` may list more of them than the tokenizer has, and a GGUF has
//! room for three.

use std::path::{Path, PathBuf};

use qgguf_gguf::Metadata;
use serde_json::{Map, Value};

use super::super::config::describe;
use super::super::{Config, HfError, json};

/// Texts of tokens that end a generation wherever they are in a vocabulary, as runtimes of GGUFs know them.
pub const END_TEXTS: [&str; 22] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|tool_response>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "[e~[",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
];
/// Those of them that end a turn, so that no key has to.
const TURN_TEXTS: [&str; 9] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<end_of_utterance>",
    "<|endoftext|>",
];

/// The ids that a checkpoint lists, and the file that does.
struct Listed {
    path: PathBuf,
    ids: Vec<u64>,
}

impl Listed {
    /// Those of `generation_config.json`; where it has none, transformers takes those of `config.json`.
    fn read(dir: &Path, config: &Config) -> Result<Listed, HfError> {
        let path = dir.join("generation_config.json");
        let generation: Map<String, Value> = json::read_object(&path)?.unwrap_or_default();
        let stated = generation.get("eos_token_id").filter(|value| !value.is_null());
        let (path, value) = match (stated, config.get(&["eos_token_id"])) {
            (Some(value), _) => (path, value),
            (None, Some(value)) => (config.path().to_owned(), value),
            (None, None) => return Ok(Listed { path, ids: Vec::new() }),
        };
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        // -1 stands for none.
        let is_id = |value: &&Value| value.as_i64() != Some(-1);
        let ids: Option<Vec<u64>> = values.iter().filter(is_id).map(Value::as_u64).collect();
        let wrong = || {
            let expected = "an id of a token or a list of them";
            HfError::file(&path, format!("\"eos_token_id\": expected {expected}, found {}", describe(value)))
        };
        Ok(Listed { ids: ids.ok_or_else(wrong)?, path: path.clone() })
    }
}

/// Finds places for the ends that a checkpoint lists beyond what `ids` and texts already say, in order: what ends a text if
/// nothing does yet, then the end of a turn and of a message. Returns what has none.
pub(super) fn place(
    dir: &Path,
    config: &Config,
    ids: &mut Vec<(&'static str, u32)>,
    metadata: &Metadata,
) -> Result<Vec<String>, HfError> {
    let listed = Listed::read(dir, config)?;
    let Some(texts) = metadata.strings("tokenizer.ggml.tokens").ok().flatten() else { return Ok(Vec::new()) };
    let has_turn_text = texts.iter().any(|text| TURN_TEXTS.contains(&text));
    let places: &[&'static str] = if has_turn_text { &["eos", "eom", "eot"] } else { &["eos", "eot", "eom"] };
    let mut warnings = Vec::new();
    for id in listed.ids {
        let text = usize::try_from(id).ok().and_then(|id| texts.get(id));
        let (Some(text), Ok(id)) = (text, u32::try_from(id)) else {
            warnings.push(format!(
                "{}: \"eos_token_id\" has {id}, but there are only {} tokens: it is left out",
                listed.path.display(),
                texts.len()
            ));
            continue;
        };
        let is_known = END_TEXTS.contains(&text)
            || ids.iter().any(|&(kind, known)| ["eos", "eot", "eom"].contains(&kind) && known == id);
        let has_eos = ids.iter().any(|(kind, _)| *kind == "eos");
        if is_known && has_eos {
            continue;
        }
        match places.iter().find(|place| ids.iter().all(|(kind, _)| kind != *place)) {
            Some(place) => ids.push((place, id)),
            None => warnings.push(format!(
                "{}: token {id} ({text:?}) ends a generation, which a GGUF has no more room to say: programs will not \
                 stop at it",
                listed.path.display()
            )),
        }
    }
    Ok(warnings)
}
