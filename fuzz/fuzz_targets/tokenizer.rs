//! Arbitrary tokenizer metadata and text: loading, encoding, decoding and streaming neither panic nor hang, and
//! no token is outside the vocabulary.
//!
//! `cargo +nightly fuzz run tokenizer -- -max_total_time=60`

#![no_main]

use std::collections::HashSet;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use qgguf::tokenizer::{Detokenizer, Tokenizer, TokenizerOptions};
use qgguf_gguf::{Metadata, MetadataArray, MetadataValue};

/// Values of a key that wants one number or flag.
#[derive(Arbitrary, Debug)]
enum Scalar {
    U8(u8),
    I32(i32),
    U64(u64),
    Bool(bool),
    String(String),
}

/// A token: a text of its own, or one that means something.
#[derive(Arbitrary, Debug)]
enum Token {
    Text(String),
    Byte(u8),
    Character(char),
    Known(u8),
}

#[derive(Arbitrary, Debug)]
struct Input {
    model: u8,
    pre: u8,
    /// With type and score.
    tokens: Vec<(Token, i8, f32)>,
    keep_duplicates: bool,
    /// So many scores and types are missing, if there are any.
    scores_missing: Option<u8>,
    types_missing: Option<u8>,
    merges: Option<Vec<Merge>>,
    scalars: Vec<(u8, Scalar)>,
    name: Option<String>,
    pre_override: Option<String>,
    text: Vec<u8>,
    ids: Vec<u32>,
    add_special: bool,
    parse_special: bool,
}

/// A merge: of two tokens, or any string.
#[derive(Arbitrary, Debug)]
enum Merge {
    Of(u8, u8),
    Text(String),
}

const MODELS: [&str; 6] = ["llama", "gpt2", "gemma4", "whitespace", "hybriddna", "bert"];
const PRE: [&str; 14] = [
    "default", "llama-bpe", "qwen2", "qwen35", "gpt-2", "starcoder", "falcon", "tekken", "gpt-4o", "deepseek-v3",
    "jais-2", "tiny_aya", "superbpe", "chameleon",
];
const KNOWN: [&str; 12] = [
    "<unk>", "<s>", "</s>", "\u{2581}", "\u{120}", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|end|> ",
    "<|tool_response>", "\u{10a}",
];
const SCALARS: [&str; 12] = [
    "bos_token_id",
    "eos_token_id",
    "eot_token_id",
    "eom_token_id",
    "unknown_token_id",
    "fim_pad_token_id",
    "prefix_token_id",
    "add_bos_token",
    "add_eos_token",
    "add_space_prefix",
    "pre",
    "model",
];

fn pick<'a>(list: &[&'a str], i: u8) -> &'a str {
    list[i as usize % list.len()]
}

fn metadata(input: &Input) -> Metadata {
    let mut metadata = Metadata::default();
    let mut set = |key: &str, value| _ = metadata.set(&format!("tokenizer.ggml.{key}"), value);
    let mut seen = HashSet::new();
    let (mut tokens, mut types, mut scores) = (Vec::new(), Vec::new(), Vec::new());
    for (token, kind, score) in &input.tokens {
        let text = match token {
            Token::Text(text) => text.clone(),
            Token::Byte(byte) => format!("<0x{byte:02X}>"),
            Token::Character(c) => c.to_string(),
            Token::Known(i) => pick(&KNOWN, *i).to_owned(),
        };
        if seen.insert(text.clone()) || input.keep_duplicates {
            tokens.push(text);
            types.push(i32::from(*kind));
            scores.push(*score);
        }
    }
    set("model", MetadataValue::String(pick(&MODELS, input.model).to_owned()));
    set("pre", MetadataValue::String(pick(&PRE, input.pre).to_owned()));
    if let Some(missing) = input.scores_missing {
        scores.truncate(scores.len().saturating_sub(missing.into()));
        set("scores", MetadataValue::Array(MetadataArray::F32(scores)));
    }
    if let Some(missing) = input.types_missing {
        types.truncate(types.len().saturating_sub(missing.into()));
        set("token_type", MetadataValue::Array(MetadataArray::I32(types)));
    }
    if let Some(merges) = &input.merges {
        let text = |i: u8| tokens.get(i as usize).map_or("", String::as_str);
        let merges = merges.iter().map(|merge| match merge {
            Merge::Of(left, right) => format!("{} {}", text(*left), text(*right)),
            Merge::Text(text) => text.clone(),
        });
        set("merges", MetadataValue::Array(MetadataArray::String(merges.collect())));
    }
    set("tokens", MetadataValue::Array(MetadataArray::String(tokens.iter().collect())));
    for (key, value) in &input.scalars {
        let value = match value {
            Scalar::U8(v) => MetadataValue::U8(*v),
            Scalar::I32(v) => MetadataValue::I32(*v),
            Scalar::U64(v) => MetadataValue::U64(*v),
            Scalar::Bool(v) => MetadataValue::Bool(*v),
            Scalar::String(v) => MetadataValue::String(v.clone()),
        };
        set(pick(&SCALARS, *key), value);
    }
    if let Some(name) = &input.name {
        metadata.set("general.name", MetadataValue::String(name.clone()));
    }
    metadata
}

fuzz_target!(|input: Input| {
    let options = TokenizerOptions { pre_override: input.pre_override.clone() };
    let tokenizer = match Tokenizer::from_metadata(&metadata(&input), &options) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let in_vocabulary = |id: &u32| (*id as usize) < tokenizer.n_vocab();
    let tokens = tokenizer.encode_bytes(&input.text, input.add_special, input.parse_special);
    assert!(tokens.iter().all(in_vocabulary) && tokenizer.eog_ids().iter().all(in_vocabulary));
    assert!([tokenizer.bos(), tokenizer.eos(), tokenizer.eot()].iter().flatten().all(in_vocabulary));
    tokenizer.decode(&tokens);
    tokenizer.decode_bytes(&input.ids, true, false);
    let mut stream = Detokenizer::default();
    let mut streamed: String = input.ids.iter().map(|&id| stream.push(&tokenizer, id)).collect();
    streamed += &stream.finish();
    let pieces: Vec<u8> = input.ids.iter().flat_map(|&id| tokenizer.piece(id, false)).collect();
    assert_eq!(streamed, String::from_utf8_lossy(&pieces));
});
