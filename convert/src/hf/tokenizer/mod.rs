//! The `tokenizer.*` keys: vocabulary, merges, special tokens, chat templates.

mod ends;
mod fingerprint;
pub(super) mod pre_tokenizer;
pub(super) mod sentencepiece;
mod special;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use qgguf_gguf::{Metadata, MetadataArray, MetadataValue, StringArray};
use serde_json::{Map, Value};
use tokenizers::Tokenizer;

use super::config::describe;
use super::families::{Family, Vocabulary};
use super::{Config, HfError, json};
pub use ends::END_TEXTS;
use pre_tokenizer::Recognized;
use sentencepiece::{Piece, PieceKind};
use token_types::{BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED};

/// Numbers in `tokenizer.ggml.token_type`.
pub(super) mod token_types {
    pub const NORMAL: i32 = 1;
    pub const UNKNOWN: i32 = 2;
    pub const CONTROL: i32 = 3;
    pub const USER_DEFINED: i32 = 4;
    pub const UNUSED: i32 = 5;
    pub const BYTE: i32 = 6;
}

/// Where an exported `tokenizer_config.json` keeps the name of the pre-tokenizer.
pub(super) const PRE_KEY: &str = "tokenizer.ggml.pre";

/// Score of tokens that are in no SentencePiece model.
pub(super) const ADDED_SCORE: f32 = -1000.0;
/// Score of ids that are no token.
const PADDING_SCORE: f32 = -10_000.0;

/// The files that describe a tokenizer.
struct Files {
    dir: PathBuf,
    /// `tokenizer.json`.
    tokenizer: Option<Map<String, Value>>,
    /// `tokenizer_config.json`.
    config: Option<Map<String, Value>>,
    /// `special_tokens_map.json`, for what the configuration leaves out.
    map: Map<String, Value>,
    /// `added_tokens.json`.
    added: Map<String, Value>,
}

/// A token that was added to the vocabulary.
struct Added {
    id: usize,
    text: String,
    special: bool,
    normalized: bool,
}

impl Files {
    fn read(dir: &Path) -> Result<Files, HfError> {
        Ok(Files {
            tokenizer: json::read_object(&dir.join("tokenizer.json"))?,
            config: json::read_object(&dir.join("tokenizer_config.json"))?,
            map: json::read_object(&dir.join("special_tokens_map.json"))?.unwrap_or_default(),
            added: json::read_object(&dir.join("added_tokens.json"))?.unwrap_or_default(),
            dir: dir.to_owned(),
        })
    }

    /// Added tokens of `tokenizer.json`.
    fn tokenizer_added(&self) -> Result<Vec<Added>, HfError> {
        let list = self.tokenizer.as_ref().and_then(|t| t.get("added_tokens")).and_then(Value::as_array);
        let read = |token: &Value| added(token.get("id")?.as_u64()?, token);
        let path = self.dir.join("tokenizer.json");
        list.into_iter().flatten().map(|token| read(token).ok_or_else(|| not_added(&path, token))).collect()
    }

    /// Added tokens of `tokenizer_config.json`.
    fn config_added(&self) -> Result<Vec<Added>, HfError> {
        let decoder =
            self.config.as_ref().and_then(|c| c.get("added_tokens_decoder")).and_then(Value::as_object);
        let read = |id: &str, token| added(id.parse().ok()?, token);
        let path = self.dir.join("tokenizer_config.json");
        let tokens = decoder.into_iter().flatten();
        tokens.map(|(id, token)| read(id, token).ok_or_else(|| not_added(&path, token))).collect()
    }

    /// The pre-tokenizer of the file that this checkpoint was exported from.
    fn exported_pre(&self) -> Option<&str> {
        self.config.as_ref()?.get(PRE_KEY)?.as_str()
    }
}

fn not_added(path: &Path, token: &Value) -> HfError {
    let found = describe(token);
    HfError::file(path, format!("added token: expected an \"id\" and a text \"content\", found {found}"))
}

fn added(id: u64, token: &Value) -> Option<Added> {
    let flag = |key: &str, default: bool| token.get(key).and_then(Value::as_bool).unwrap_or(default);
    let special = flag("special", false);
    Some(Added {
        id: usize::try_from(id).ok()?,
        text: token.get("content")?.as_str()?.to_owned(),
        special,
        normalized: flag("normalized", !special),
    })
}

/// Tokens by id.
struct Tokens {
    texts: Vec<String>,
    types: Vec<i32>,
    scores: Vec<f32>,
}

impl Tokens {
    /// As many ids as the embedding has rows, none of them a token yet.
    fn padding(n: usize) -> Tokens {
        Tokens {
            texts: (0..n).map(|id| format!("[PAD{id}]")).collect(),
            types: vec![UNUSED; n],
            scores: vec![PADDING_SCORE; n],
        }
    }

    fn set(&mut self, path: &Path, id: usize, text: String, ty: i32, score: f32) -> Result<(), HfError> {
        let n = self.texts.len();
        if id >= n {
            let text: String = text.chars().take(60).collect();
            let reason = format!("token {text:?} has id {id}, but the embedding has only {n} rows");
            return Err(HfError::file(path, reason));
        }
        self.texts[id] = text;
        self.types[id] = ty;
        self.scores[id] = score;
        Ok(())
    }

    fn write(self, with_scores: bool, metadata: &mut Metadata) {
        let tokens = MetadataArray::String(self.texts.iter().collect());
        metadata.set("tokenizer.ggml.tokens", MetadataValue::Array(tokens));
        if with_scores {
            let scores = MetadataArray::F32(self.scores);
            metadata.set("tokenizer.ggml.scores", MetadataValue::Array(scores));
        }
        metadata.set("tokenizer.ggml.token_type", MetadataValue::Array(MetadataArray::I32(self.types)));
    }
}

/// Tokens that are special by their looks, whatever their flags say.
fn looks_special(text: &str) -> bool {
    let between = |start: &str, end: &str| text.starts_with(start) && text.ends_with(end);
    ["<pad>", "<mask>", "<2mass>", "[@BOS@]"].contains(&text)
        || between("<|", "|>")
        || between("<\u{ff5c}", "\u{ff5c}>")
        || between("<unused", ">")
}

/// The type of an added token, and its text as it stands in the GGUF.
fn user_defined_or_control(text: String, special: bool) -> (String, i32) {
    if special || looks_special(&text) {
        (text, CONTROL)
    } else {
        (text.replace('\u{2581}', " "), USER_DEFINED)
    }
}

/// What the user should know of a tokenizer.
#[derive(Default)]
pub(crate) struct Remarks {
    /// What was found out.
    pub notes: Vec<String>,
    /// What may be wrong or is lost.
    pub warnings: Vec<String>,
}

/// Appends the keys for a vocabulary of `n_vocab` ids. `pre` names the pre-tokenizer if it is known.
pub(crate) fn write(
    dir: &Path,
    config: &Config,
    family: &Family,
    n_vocab: usize,
    pre: Option<&str>,
    metadata: &mut Metadata,
) -> Result<Remarks, HfError> {
    let mut remarks = Remarks::default();
    let files = Files::read(dir)?;
    let llama_like = family.vocabulary == Vocabulary::Any;
    if llama_like
        && let Some(Value::Bool(add)) = files.config.as_ref().and_then(|c| c.get("add_prefix_space"))
    {
        metadata.set("tokenizer.ggml.add_space_prefix", MetadataValue::Bool(*add));
    }
    let is_gpt2 = |files: &Files| {
        let class = files.config.as_ref().and_then(|c| c.get("tokenizer_class")).and_then(Value::as_str);
        class == Some("GPT2Tokenizer")
    };
    let pieces = match family.vocabulary {
        Vocabulary::Bpe => None,
        Vocabulary::Phi3 if is_gpt2(&files) => None,
        _ => sentencepiece::read(&dir.join("tokenizer.model"))?,
    };
    match (pieces, &files.tokenizer) {
        (Some(pieces), _) => sentencepiece_tokens(&files, &pieces, family, n_vocab)?.write_spm(metadata),
        (None, None) => {
            return Err(HfError::file(
                &dir.join("tokenizer.json"),
                "this file is missing, and no tokenizer.model either",
            ));
        }
        (None, Some(tokenizer)) if llama_like && is_byte_fallback(tokenizer) => {
            byte_fallback_tokens(&files, tokenizer, n_vocab)?.write_spm(metadata);
        }
        (None, Some(tokenizer)) => {
            let recognize = |machine: &Tokenizer| match pre {
                Some(pre) => Ok(pre.to_owned()),
                None => recognized(&files, tokenizer, machine, family, &mut remarks.notes),
            };
            write_bpe(&files, tokenizer, n_vocab, recognize, metadata)?;
        }
    }
    remarks.warnings = special::write(&files, config, n_vocab, metadata)?;
    if llama_like {
        match n_vocab {
            // CodeLlama's tokens for filling in the middle.
            32016 => {
                for (key, id) in [("prefix", 32007), ("suffix", 32008), ("middle", 32009), ("eot", 32010)] {
                    metadata.set(&format!("tokenizer.ggml.{key}_token_id"), MetadataValue::U32(id));
                }
            }
            // Granite's and SmolLM's vocabulary, whose texts begin with no token of their own.
            49152 => _ = metadata.set("tokenizer.ggml.add_bos_token", MetadataValue::Bool(false)),
            _ => {}
        }
    }
    if let Some(add) = family.adds_space_prefix {
        metadata.set("tokenizer.ggml.add_space_prefix", MetadataValue::Bool(add));
    }
    Ok(remarks)
}

/// The name of the pre-tokenizer: by what it does with a text, else as an exported checkpoint states it, else by the
/// structure of `tokenizer.json`, which tells it of vocabularies that nobody has seen.
fn recognized(
    files: &Files,
    tokenizer: &Map<String, Value>,
    machine: &Tokenizer,
    family: &Family,
    notes: &mut Vec<String>,
) -> Result<String, HfError> {
    let path = files.dir.join("tokenizer.json");
    let fingerprint = fingerprint::of(machine).map_err(|e| HfError::file(&path, e))?;
    if let Some(name) = fingerprint::name(&fingerprint).or_else(|| files.exported_pre()) {
        return Ok(name.to_owned());
    }
    match pre_tokenizer::recognize(tokenizer, family.pre_tokenizers) {
        Recognized::As(name) => {
            notes.push(format!(
                "{}: its vocabulary is its own, its pre-tokenizer that of {name}, which is taken (--pre names another)",
                path.display()
            ));
            Ok(name.to_owned())
        }
        Recognized::Near(nearest, differences) => Err(HfError::PreTokenizer {
            path,
            fingerprint,
            nearest,
            differences,
            known: fingerprint::names().join(", "),
        }),
    }
}

impl Tokens {
    fn write_spm(self, metadata: &mut Metadata) {
        metadata.set("tokenizer.ggml.model", MetadataValue::String("llama".to_owned()));
        metadata.set("tokenizer.ggml.pre", MetadataValue::String("default".to_owned()));
        self.write(true, metadata);
    }
}

fn sentencepiece_tokens(
    files: &Files,
    pieces: &[Piece],
    family: &Family,
    n_vocab: usize,
) -> Result<Tokens, HfError> {
    let mut tokens = Tokens::padding(n_vocab);
    let path = files.dir.join("tokenizer.model");
    for (id, piece) in pieces.iter().enumerate() {
        let ty = match piece.kind {
            PieceKind::Unknown => UNKNOWN,
            PieceKind::Control => CONTROL,
            PieceKind::Unused => UNUSED,
            PieceKind::Byte => BYTE,
            PieceKind::Normal | PieceKind::UserDefined => NORMAL,
        };
        tokens.set(&path, id, piece.text.clone(), ty, piece.score)?;
    }
    let path = files.dir.join("added_tokens.json");
    for (text, id) in &files.added {
        let wrong =
            || HfError::file(&path, format!("token {text:?}: expected an id, found {}", describe(id)));
        let id = id.as_u64().ok_or_else(wrong)?;
        tokens.set(&path, id as usize, text.clone(), USER_DEFINED, ADDED_SCORE)?;
    }
    let phi3 = family.vocabulary == Vocabulary::Phi3;
    let path = files.dir.join("tokenizer_config.json");
    for token in files.config_added()? {
        let (text, ty) = match phi3 {
            true => (token.text, if token.special { CONTROL } else { USER_DEFINED }),
            false => user_defined_or_control(token.text, token.special),
        };
        tokens.set(&path, token.id, text, ty, ADDED_SCORE)?;
    }
    if phi3 {
        let path = files.dir.join("tokenizer.json");
        for token in files.tokenizer_added()? {
            let ty = if token.special { CONTROL } else { USER_DEFINED };
            tokens.set(&path, token.id, token.text, ty, ADDED_SCORE)?;
        }
    }
    Ok(tokens)
}

/// A SentencePiece vocabulary in `tokenizer.json`.
fn is_byte_fallback(tokenizer: &Map<String, Value>) -> bool {
    let model = tokenizer.get("model");
    let is = |key: &str| model.and_then(|m| m.get(key)).and_then(Value::as_bool) == Some(true);
    let kind = |part: &str| tokenizer.get(part).and_then(|p| p.get("type")).and_then(Value::as_str);
    kind("model") == Some("BPE") && is("byte_fallback") && kind("decoder") == Some("Sequence")
}

/// `(text, id)` of the base vocabulary.
fn vocabulary(path: &Path, tokenizer: &Map<String, Value>) -> Result<Vec<(String, usize)>, HfError> {
    let model = tokenizer.get("model");
    let kind = model.and_then(|model| model.get("type")).and_then(Value::as_str);
    if !matches!(kind, Some("BPE") | None) {
        let kind: String = kind.unwrap_or_default().chars().take(60).collect();
        let reason = format!("a tokenizer of type {kind} is not supported (supported: BPE, SentencePiece)");
        return Err(HfError::file(path, reason));
    }
    let vocab = model.and_then(|model| model.get("vocab")).and_then(Value::as_object);
    let vocab = vocab.ok_or_else(|| HfError::file(path, "\"model.vocab\": expected an object of tokens"))?;
    vocab
        .iter()
        .map(|(text, id)| {
            let id = id.as_u64().and_then(|id| usize::try_from(id).ok());
            let wrong =
                || HfError::file(path, format!("token {text:?}: expected an id, found something else"));
            Ok((text.clone(), id.ok_or_else(wrong)?))
        })
        .collect()
}

fn byte_fallback_tokens(
    files: &Files,
    tokenizer: &Map<String, Value>,
    n_vocab: usize,
) -> Result<Tokens, HfError> {
    let path = files.dir.join("tokenizer.json");
    let mut tokens = Tokens::padding(n_vocab);
    let is_byte = |text: &str| {
        text.len() == 6
            && text.starts_with("<0x")
            && text.ends_with('>')
            && u8::from_str_radix(&text[3..5], 16).is_ok()
    };
    for (text, id) in vocabulary(&path, tokenizer)? {
        let ty = if text.is_ascii() && is_byte(&text) { BYTE } else { NORMAL };
        tokens.set(&path, id, text, ty, ADDED_SCORE)?;
    }
    for token in files.tokenizer_added()? {
        let ty = if token.special { CONTROL } else { USER_DEFINED };
        tokens.set(&path, token.id, token.text, ty, ADDED_SCORE)?;
    }
    Ok(tokens)
}

fn write_bpe(
    files: &Files,
    tokenizer: &Map<String, Value>,
    n_vocab: usize,
    pre: impl FnOnce(&Tokenizer) -> Result<String, HfError>,
    metadata: &mut Metadata,
) -> Result<(), HfError> {
    let path = files.dir.join("tokenizer.json");
    let vocabulary = vocabulary(&path, tokenizer)?;
    let merges = merges(files, &path, tokenizer)?;
    let machine = Tokenizer::from_file(&path).map_err(|e| HfError::file(&path, e))?;
    let pre = pre(&machine)?;
    let mut tokens = Tokens::padding(n_vocab);
    for (text, id) in vocabulary {
        tokens.set(&path, id, text, NORMAL, 0.0)?;
    }
    let mut seen = HashSet::new();
    for token in files.tokenizer_added()?.into_iter().chain(files.config_added()?) {
        if !seen.insert(token.id) {
            continue;
        }
        let text = if token.normalized { token.text } else { normalized(&machine, token.text) };
        let (text, ty) = user_defined_or_control(text, token.special);
        tokens.set(&path, token.id, text, ty, 0.0)?;
    }
    metadata.set("tokenizer.ggml.model", MetadataValue::String("gpt2".to_owned()));
    metadata.set("tokenizer.ggml.pre", MetadataValue::String(pre));
    tokens.write(false, metadata);
    if !merges.is_empty() {
        metadata.set("tokenizer.ggml.merges", MetadataValue::Array(MetadataArray::String(merges)));
    }
    Ok(())
}

/// The text that comes back when an added token's text is tokenized, which is what the runtime looks for.
fn normalized(machine: &Tokenizer, text: String) -> String {
    let encoded = machine.encode(text.as_str(), false);
    encoded.and_then(|encoding| machine.decode(encoding.get_ids(), false)).unwrap_or(text)
}

/// Merges as `left right`; spaces inside a part are written as everywhere in byte-level vocabularies.
fn merges(files: &Files, path: &Path, tokenizer: &Map<String, Value>) -> Result<StringArray, HfError> {
    let list = tokenizer.get("model").and_then(|m| m.get("merges")).and_then(Value::as_array);
    if let Some(list) = list.filter(|list| !list.is_empty()) {
        return list
            .iter()
            .enumerate()
            .map(|(i, merge)| match merge {
                Value::String(merge) => Ok(merge.clone()),
                Value::Array(pair) => match pair.as_slice() {
                    [Value::String(a), Value::String(b)] => {
                        Ok(format!("{} {}", a.replace(' ', "\u{120}"), b.replace(' ', "\u{120}")))
                    }
                    _ => Err(HfError::file(path, format!("merge {i}: expected two texts"))),
                },
                _ => Err(HfError::file(path, format!("merge {i}: expected a text or a list of two"))),
            })
            .collect();
    }
    let text = json::read_text(&files.dir.join("merges.txt"))?.unwrap_or_default();
    Ok(text
        .lines()
        .filter(|line| !line.is_empty())
        .enumerate()
        .filter(|(i, line)| *i > 0 || !line.starts_with('#'))
        .map(|(_, line)| line)
        .collect())
}

/// Names of the pre-tokenizers that are recognized by what they do.
pub fn pre_tokenizers() -> Vec<&'static str> {
    fingerprint::names()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_tokens_look_special() {
        for text in ["<|im_end|>", "<pad>", "<unused12>", "<\u{ff5c}end\u{ff5c}>", "[@BOS@]"] {
            assert!(looks_special(text), "{text}");
        }
        for text in ["<tool_call>", "[PAD]", "<|x", "unused>"] {
            assert!(!looks_special(text), "{text}");
        }
    }
}
