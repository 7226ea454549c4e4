//! `tokenizer.json`, `tokenizer_config.json` and, of vocabularies with scores, `tokenizer.model`.

use std::collections::HashMap;

use qgguf_gguf::{Metadata, StringArray};
use serde_json::{Map, Value, json};

use super::super::families::{Dims, Family, Vocabulary};
use super::super::tokenizer::{ADDED_SCORE, PRE_KEY, pre_tokenizer, sentencepiece, token_types};
use super::config::IDS;
use super::{ExportError, pretty};
use sentencepiece::{Piece, PieceKind};
use token_types::{BYTE, CONTROL, UNKNOWN, UNUSED, USER_DEFINED};

/// The vocabulary of a file.
struct Tokens<'a> {
    texts: &'a StringArray,
    types: Vec<i32>,
    scores: Vec<f32>,
    /// Special tokens swallow the white space after them. No key says so; it goes by the name, as in llama.cpp.
    is_phi3: bool,
}

impl<'a> Tokens<'a> {
    fn read(metadata: &'a Metadata) -> Result<Tokens<'a>, ExportError> {
        let texts = metadata.strings("tokenizer.ggml.tokens")?;
        let texts = texts.ok_or_else(|| ExportError::Model("tokenizer.ggml.tokens is missing".to_owned()))?;
        let n = texts.len();
        let types = metadata.i32_array("tokenizer.ggml.token_type")?.map_or(vec![1; n], <[i32]>::to_vec);
        let scores = metadata.f32_array("tokenizer.ggml.scores")?.map_or(vec![0.0; n], <[f32]>::to_vec);
        for (key, len) in [("token_type", types.len()), ("scores", scores.len())] {
            if len != n {
                let reason = format!("tokenizer.ggml.{key} has {len} values for {n} tokens");
                return Err(ExportError::Model(reason));
            }
        }
        let name = metadata.str("general.name")?.unwrap_or_default().to_ascii_lowercase();
        let is_phi3 = name.contains("phi-3") || name.contains("phi3");
        Ok(Tokens { texts, types, scores, is_phi3 })
    }

    /// The id and text of all but those that only fill up the embedding.
    fn used(&self) -> impl Iterator<Item = (usize, &'a str)> + Clone + '_ {
        let is_padding = |id: usize, text: &str| self.types[id] == UNUSED && text == format!("[PAD{id}]");
        self.texts.iter().enumerate().filter(move |&(id, text)| !is_padding(id, text))
    }

    /// The id and text of those that are found in a text before anything else.
    fn added(&self) -> impl Iterator<Item = (usize, &'a str)> + Clone + '_ {
        self.used().filter(|&(id, _)| [CONTROL, USER_DEFINED, UNKNOWN].contains(&self.types[id]))
    }

    fn text(&self, id: u32) -> Option<&'a str> {
        self.texts.get(id as usize)
    }
}

/// The files, by name.
pub(super) fn files(
    family: &Family,
    metadata: &Metadata,
    dims: &Dims,
) -> Result<Vec<(&'static str, Vec<u8>)>, ExportError> {
    let tokens = Tokens::read(metadata)?;
    if tokens.texts.len() as u64 > dims.n_vocab {
        let reason =
            format!("{} tokens, but the embedding has only {} rows", tokens.texts.len(), dims.n_vocab);
        return Err(ExportError::Model(reason));
    }
    let has_pieces = match metadata.require_str("tokenizer.ggml.model")? {
        "gpt2" => false,
        "llama" if family.vocabulary != Vocabulary::Bpe => true,
        model => {
            return Err(ExportError::Model(format!(
                "tokenizer.ggml.model \"{}\" cannot be exported for a {}",
                model.chars().take(60).collect::<String>(),
                family.class
            )));
        }
    };
    let tokenizer = if has_pieces { pieces(&tokens, metadata)? } else { byte_pairs(&tokens, metadata)? };
    let mut files = vec![
        ("tokenizer.json", pretty(&tokenizer)),
        ("tokenizer_config.json", pretty(&config(family, &tokens, metadata, has_pieces)?)),
    ];
    if has_pieces {
        files.push(("tokenizer.model", model(&tokens, metadata)?));
    }
    Ok(files)
}

/// Byte-pair encoding with the merges of the file.
fn byte_pairs(tokens: &Tokens<'_>, metadata: &Metadata) -> Result<Value, ExportError> {
    let name = metadata.str("tokenizer.ggml.pre")?.unwrap_or("default");
    let pre = pre_tokenizer::by_name(name).ok_or_else(|| {
        ExportError::Model(format!(
            "tokenizer.ggml.pre \"{}\" cannot be exported (possible: {})",
            name.chars().take(60).collect::<String>(),
            pre_tokenizer::names().join(", ")
        ))
    })?;
    let vocabulary = vocabulary(tokens)?;
    let merges = metadata.strings("tokenizer.ggml.merges")?;
    let merges =
        merges.map_or(Ok(Vec::new()), |all| all.iter().map(|text| merge(text, &vocabulary)).collect())?;
    let adds_bos = ["llama3", "llama-v3", "llama-bpe", "tekken"].contains(&name);
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added_tokens(tokens),
        "normalizer": pre.normalizer,
        "pre_tokenizer": pre.pre_tokenizer,
        "post_processor": post_processor(tokens, metadata, adds_bos)?,
        "decoder": byte_level(),
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": pre.ignore_merges,
            "vocab": vocabulary,
            "merges": merges,
        },
    }))
}

/// Two tokens that become one. The first may begin with a space, but does not end with one.
fn merge(text: &str, vocabulary: &Map<String, Value>) -> Result<Value, ExportError> {
    let space = text.bytes().skip(1).position(|byte| byte == b' ');
    let pair = space.map(|i| (&text[..i + 1], &text[i + 2..]));
    let is_token = |text: &str| vocabulary.contains_key(text);
    let pair = pair.filter(|&(l, r)| is_token(l) && is_token(r) && is_token(&format!("{l}{r}")));
    pair.map(|(left, right)| json!([left, right])).ok_or_else(|| {
        ExportError::Model(format!(
            "tokenizer.ggml.merges: expected two tokens that are one together, found {text:?}"
        ))
    })
}

/// Pieces of SentencePiece. What has the higher score is merged first.
fn pieces(tokens: &Tokens<'_>, metadata: &Metadata) -> Result<Value, ExportError> {
    let with_prefix = adds_space_prefix(metadata)?;
    let space = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "\u{2581}" });
    let normalizer = match with_prefix {
        true => json!({
            "type": "Sequence", "normalizers": [{ "type": "Prepend", "prepend": "\u{2581}" }, space],
        }),
        false => space,
    };
    let mut decoders = vec![
        json!({ "type": "Replace", "pattern": { "String": "\u{2581}" }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    if with_prefix {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    let unknown = unknown(tokens, metadata)?.and_then(|id| tokens.text(id));
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added_tokens(tokens),
        "normalizer": normalizer,
        "pre_tokenizer": null,
        "post_processor": post_processor(tokens, metadata, true)?,
        "decoder": { "type": "Sequence", "decoders": decoders },
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": unknown,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": true,
            "byte_fallback": true,
            "ignore_merges": false,
            "vocab": vocabulary(tokens)?,
            "merges": merges_of_pieces(tokens),
        },
    }))
}

/// The token that stands for what is none.
fn unknown(tokens: &Tokens<'_>, metadata: &Metadata) -> Result<Option<u32>, ExportError> {
    let typed = || tokens.types.iter().zip(0..).find(|&(&ty, _)| ty == UNKNOWN).map(|(_, id)| id);
    Ok(metadata.u32("tokenizer.ggml.unknown_token_id")?.or_else(typed))
}

/// All pairs of tokens that are a token together, those of the highest score first.
fn merges_of_pieces(tokens: &Tokens<'_>) -> Vec<Value> {
    let ids: HashMap<&str, usize> = tokens.used().map(|(id, text)| (text, id)).collect();
    let mut merges = Vec::new();
    for (id, text) in tokens.used().filter(|&(id, _)| tokens.types[id] == token_types::NORMAL) {
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(&l), Some(&r)) = (ids.get(left), ids.get(right)) {
                merges.push((id, l, r, left, right));
            }
        }
    }
    merges.sort_by(|a, b| {
        tokens.scores[b.0].total_cmp(&tokens.scores[a.0]).then((a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)))
    });
    merges.into_iter().map(|(.., left, right)| json!([left, right])).collect()
}

fn vocabulary(tokens: &Tokens<'_>) -> Result<Map<String, Value>, ExportError> {
    let mut vocabulary = Map::new();
    for (id, text) in tokens.used() {
        if let Some(other) = vocabulary.insert(text.to_owned(), id.into()) {
            return Err(ExportError::Model(format!("tokens {other} and {id} are both {text:?}")));
        }
    }
    Ok(vocabulary)
}

/// How `tokenizer.json` describes a token that is found before anything else.
fn added_token(tokens: &Tokens<'_>, id: usize, text: &str) -> Value {
    json!({
        "content": text,
        "single_word": false,
        "lstrip": false,
        "rstrip": tokens.is_phi3 && !["<unk>", "<s>", "<|endoftext|>"].contains(&text),
        "normalized": false,
        "special": tokens.types[id] != USER_DEFINED,
    })
}

fn added_tokens(tokens: &Tokens<'_>) -> Vec<Value> {
    let token = |(id, text): (usize, &str)| {
        let mut token = Map::from_iter([("id".to_owned(), id.into())]);
        token.extend(added_token(tokens, id, text).as_object().cloned().unwrap_or_default());
        token.into()
    };
    tokens.added().map(token).collect()
}

fn byte_level() -> Value {
    json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false })
}

/// What comes before and after a text. `adds_bos` is what holds where no key says it.
fn post_processor(tokens: &Tokens<'_>, metadata: &Metadata, adds_bos: bool) -> Result<Value, ExportError> {
    let flag = |key: &str| metadata.bool(&format!("tokenizer.ggml.{key}"));
    let special = |key: &str| -> Result<Option<(u32, &str)>, ExportError> {
        let id = metadata.u32(&format!("tokenizer.ggml.{key}"))?;
        Ok(id.and_then(|id| Some((id, tokens.text(id)?))))
    };
    let first = special("bos_token_id")?.filter(|_| adds_bos);
    let first = match flag("add_bos_token")? {
        Some(true) => special("bos_token_id")?,
        Some(false) => None,
        None => first,
    };
    let last = if flag("add_eos_token")? == Some(true) { special("eos_token_id")? } else { None };
    if first.is_none() && last.is_none() {
        // The flags in the configuration say so.
        return Ok(Value::Null);
    }
    let text = |type_id: u32, name: &str| -> Vec<Value> {
        let token = |&(_, text): &(u32, &str)| json!({ "SpecialToken": { "id": text, "type_id": type_id } });
        let body = json!({ "Sequence": { "id": name, "type_id": type_id } });
        first.iter().map(token).chain([body]).chain(last.iter().map(token)).collect()
    };
    let tokens: Map<String, Value> = first
        .iter()
        .chain(&last)
        .map(|&(id, text)| (text.to_owned(), json!({ "id": text, "ids": [id], "tokens": [text] })))
        .collect();
    Ok(json!({
        "type": "TemplateProcessing",
        "single": text(0, "A"),
        "pair": text(0, "A").into_iter().chain(text(1, "B")).collect::<Vec<_>>(),
        "special_tokens": tokens,
    }))
}

/// `tokenizer_config.json`.
fn config(
    family: &Family,
    tokens: &Tokens<'_>,
    metadata: &Metadata,
    has_pieces: bool,
) -> Result<Value, ExportError> {
    let mut config = Map::new();
    for flag in ["add_bos_token", "add_eos_token"] {
        if let Some(add) = metadata.bool(&format!("tokenizer.ggml.{flag}"))? {
            config.insert(flag.to_owned(), add.into());
        }
    }
    if let Some(add) = metadata.bool("tokenizer.ggml.add_space_prefix")? {
        config.insert("add_prefix_space".to_owned(), add.into());
    }
    // The converter gives what is listed here the score of added tokens.
    let listed = |&(id, _): &(usize, &str)| {
        !has_pieces || tokens.types[id] == USER_DEFINED || tokens.scores[id] == ADDED_SCORE
    };
    let listed: Map<String, Value> = tokens
        .added()
        .filter(listed)
        .map(|(id, text)| (id.to_string(), added_token(tokens, id, text)))
        .collect();
    config.insert("added_tokens_decoder".to_owned(), listed.into());
    for (kind, key) in IDS {
        let id = metadata.u32(&format!("tokenizer.ggml.{key}"))?;
        if let Some(text) = id.and_then(|id| tokens.text(id)) {
            config.insert(format!("{kind}_token"), text.into());
        }
    }
    if let Some(template) = templates(metadata)? {
        config.insert("chat_template".to_owned(), template);
    }
    config.insert("clean_up_tokenization_spaces".to_owned(), false.into());
    if let Some(n) = metadata.u32(&format!("{}.context_length", family.architecture))? {
        config.insert("model_max_length".to_owned(), n.into());
    }
    config.insert("tokenizer_class".to_owned(), "PreTrainedTokenizerFast".into());
    if !has_pieces {
        let pre = metadata.str("tokenizer.ggml.pre")?.unwrap_or("default");
        config.insert(PRE_KEY.to_owned(), pre.into());
    }
    Ok(config.into())
}

/// A template alone, or several with their names.
fn templates(metadata: &Metadata) -> Result<Option<Value>, ExportError> {
    let default = metadata.str("tokenizer.chat_template")?;
    let Some(names) = metadata.strings("tokenizer.chat_templates")? else {
        return Ok(default.map(Value::from));
    };
    let mut list: Vec<Value> =
        default.map(|text| json!({ "name": "default", "template": text })).into_iter().collect();
    for name in names.iter().filter(|&name| name != "default") {
        if let Some(text) = metadata.str(&format!("tokenizer.chat_template.{name}"))? {
            list.push(json!({ "name": name, "template": text }));
        }
    }
    Ok(Some(list.into()))
}

fn adds_space_prefix(metadata: &Metadata) -> Result<bool, ExportError> {
    Ok(metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true))
}

/// `tokenizer.model`: every token up to the last that is used, with its score.
fn model(tokens: &Tokens<'_>, metadata: &Metadata) -> Result<Vec<u8>, ExportError> {
    let n = tokens.used().last().map_or(0, |(id, _)| id + 1);
    let unknown = unknown(tokens, metadata)?;
    let pieces: Vec<Piece> = tokens
        .texts
        .iter()
        .take(n)
        .enumerate()
        .map(|(id, text)| Piece {
            text: text.to_owned(),
            score: tokens.scores[id],
            kind: match tokens.types[id] {
                _ if Some(id as u32) == unknown => PieceKind::Unknown,
                UNKNOWN => PieceKind::Unknown,
                CONTROL => PieceKind::Control,
                USER_DEFINED => PieceKind::UserDefined,
                UNUSED => PieceKind::Unused,
                BYTE => PieceKind::Byte,
                _ => PieceKind::Normal,
            },
        })
        .collect();
    let id = |key: &str| metadata.u32(&format!("tokenizer.ggml.{key}"));
    let ids = [unknown, id("bos_token_id")?, id("eos_token_id")?, id("padding_token_id")?];
    Ok(sentencepiece::write(&pieces, ids, adds_space_prefix(metadata)?))
}
