//! `config.json` and `generation_config.json` from the keys of a GGUF.

use qgguf_gguf::{GgmlType, Metadata, MetadataValue};
use serde_json::{Map, Value, json};

use super::super::families::Family;
use super::super::json::number;
use super::super::keys::{
    BLOCK_COUNT, CONTEXT_LENGTH, EMBEDDING_LENGTH, EXPORTED, FEED_FORWARD_LENGTH, HEAD_COUNT, HEAD_COUNT_KV,
    KEY_LENGTH, Key, KeyReader, Kind, RMS_EPSILON,
};
use super::super::rope;
use super::super::sampling::SETTINGS;
use super::super::tokenizer::END_TEXTS;
use super::ExportError;

/// Special tokens, in the configuration and in the GGUF.
pub(super) const IDS: [(&str, &str); 8] = [
    ("bos", "bos_token_id"),
    ("eos", "eos_token_id"),
    ("unk", "unknown_token_id"),
    ("sep", "seperator_token_id"),
    ("pad", "padding_token_id"),
    ("mask", "mask_token_id"),
    ("eot", "eot_token_id"),
    ("eom", "eom_token_id"),
];

/// The integers that every model has.
const REQUIRED: [Key; 5] = [BLOCK_COUNT, CONTEXT_LENGTH, EMBEDDING_LENGTH, FEED_FORWARD_LENGTH, HEAD_COUNT];

/// The configuration; `ty` is the type of the matrices.
pub(super) fn config(
    family: &Family,
    keys: &KeyReader<'_>,
    ty: GgmlType,
) -> Result<Map<String, Value>, ExportError> {
    let metadata = keys.file.metadata();
    // What transformers has a default for, and no runtime of GGUFs.
    for key in REQUIRED.map(|key| keys.name(key.gguf)) {
        if metadata.require_u32(&key)? == 0 {
            let reason = format!("metadata key \"{key}\": expected an integer above 0, found 0");
            return Err(ExportError::Model(reason));
        }
    }
    metadata.require_f32(&keys.name(RMS_EPSILON.gguf))?;
    let mut config = Map::new();
    let mut set = |name: &str, value: Value| _ = config.insert(name.to_owned(), value);
    set("architectures", json!([family.class]));
    set("model_type", family.model_type.into());
    let dtype = match ty {
        GgmlType::F32 => "float32",
        GgmlType::BF16 => "bfloat16",
        _ => "float16",
    };
    set("torch_dtype", dtype.into());
    for key in EXPORTED {
        let value = match key.kind {
            Kind::Float => keys.f32(key.gguf)?.map(number),
            Kind::Integer | Kind::Required => keys.u64(key.gguf)?.map(Value::from),
        };
        if let Some(value) = value {
            set(key.exported, value);
        }
    }
    // Without the key every head has its own keys and values; some of transformers' classes have another default.
    if let (None, Some(n)) = (keys.u64(HEAD_COUNT_KV.gguf)?, keys.u64(HEAD_COUNT.gguf)?) {
        set(HEAD_COUNT_KV.exported, n.into());
    }
    // Only the rows of the embedding say how many tokens there are in every file.
    let n_vocab = keys.file.require_tensor("token_embd.weight")?.info().n_rows();
    set("vocab_size", n_vocab.into());
    if let Some(head_dim) = head_dim(family, keys)? {
        set("head_dim", head_dim.into());
    }
    let has = |name: &str| keys.file.tensor_index(name).is_some();
    set("tie_word_embeddings", (!has("output.weight")).into());
    // Where one projection has a bias and others lack theirs, transformers gives those one of zeros.
    let has_bias = |part: &str| {
        keys.file.tensors().iter().any(|info| info.name.ends_with(".bias") && info.name.contains(part))
    };
    set("attention_bias", has_bias(".attn_").into());
    set("mlp_bias", has_bias(".ffn_").into());
    set(family.activation.0, family.activation.1[0].trim_matches('"').into());
    for (kind, key) in IDS {
        if let Some(id) = metadata.u32(&format!("tokenizer.ggml.{key}"))? {
            set(&format!("{kind}_token_id"), id.into());
        }
    }
    rope::read(keys, &mut config)?;
    family.export(keys, &mut config)?;
    Ok(config)
}

/// The width of a head, unless it follows from others: some of transformers' classes do not know the key then.
fn head_dim(family: &Family, keys: &KeyReader<'_>) -> Result<Option<u64>, ExportError> {
    let stated = keys.u64(KEY_LENGTH.gguf)?;
    let derived = match (keys.u64(EMBEDDING_LENGTH.gguf)?, keys.u64(HEAD_COUNT.gguf)?) {
        (Some(width), Some(heads @ 1..)) if width % heads == 0 => Some(width / heads),
        _ => None,
    };
    let rotated = if family.permuted { keys.u64("rope.dimension_count")? } else { None };
    Ok(stated.or(rotated.filter(|_| rotated != derived)))
}

/// What the file recommends for sampling, and the tokens that begin and end texts.
pub(super) fn generation_config(metadata: &Metadata) -> Result<Value, ExportError> {
    let mut config = Map::new();
    for (kind, key) in IDS.into_iter().filter(|(kind, _)| ["bos", "pad"].contains(kind)) {
        if let Some(id) = metadata.u32(&format!("tokenizer.ggml.{key}"))? {
            config.insert(format!("{kind}_token_id"), id.into());
        }
    }
    let ends = ends_of_generation(metadata)?;
    match ends.as_slice() {
        [] => {}
        [id] => _ = config.insert("eos_token_id".to_owned(), (*id).into()),
        ids => _ = config.insert("eos_token_id".to_owned(), ids.into()),
    }
    if let Some(sequence) = metadata.str("general.sampling.sequence")? {
        config.insert("sequence".to_owned(), sequence.into());
    }
    for setting in SETTINGS.iter().filter(|setting| setting.name != "penalty_repeat") {
        let value = match metadata.get(&format!("general.sampling.{}", setting.key)) {
            Some(MetadataValue::F32(x)) => number(*x),
            Some(value) => match value.as_integer().and_then(|n| i64::try_from(n).ok()) {
                Some(n) => n.into(),
                None => continue,
            },
            None => continue,
        };
        config.insert(setting.name.to_owned(), value);
        // Without it transformers takes the most probable token, whatever the settings.
        config.insert("do_sample".to_owned(), true.into());
    }
    Ok(config.into())
}

/// The ids that end an answer: those of the keys first, then those that are known by their text.
fn ends_of_generation(metadata: &Metadata) -> Result<Vec<u32>, ExportError> {
    let mut ids = Vec::new();
    for (_, key) in IDS.into_iter().filter(|(kind, _)| ["eos", "eot", "eom"].contains(kind)) {
        ids.extend(metadata.u32(&format!("tokenizer.ggml.{key}"))?);
    }
    if let Some(tokens) = metadata.strings("tokenizer.ggml.tokens")? {
        let known = tokens.iter().zip(0..).filter(|(text, _)| END_TEXTS.contains(text));
        ids.extend(known.map(|(_, id)| id));
    }
    let mut seen = std::collections::HashSet::new();
    ids.retain(|&id| seen.insert(id));
    Ok(ids)
}
