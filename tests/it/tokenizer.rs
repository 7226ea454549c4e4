//! The tokenizer against llama.cpp's ids for real vocabularies.

use std::path::Path;

use qgguf::tokenizer::{Tokenizer, TokenizerOptions};
use qgguf_gguf::GgufFile;
use serde_json::Value;

use crate::fixtures::fixtures;

fn tokenizer(file: &Path, pre: Option<&str>) -> Tokenizer {
    let options = TokenizerOptions { pre_override: pre.map(str::to_owned) };
    let file = GgufFile::open(file).unwrap();
    Tokenizer::from_metadata(file.metadata(), &options).unwrap()
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Every text of a `.inp` file gives the ids of the `.out` file, be it a tokenizer's first text or not: the merges
/// that a short first text needs are sought for it alone.
fn assert_vectors(dir: &Path, name: &str, tokenizer: impl Fn() -> Tokenizer) {
    let read =
        |suffix| std::fs::read_to_string(dir.join(format!("ggml-vocab-{name}.gguf.{suffix}"))).unwrap();
    let (inp, out) = (read("inp"), read("out"));
    let texts: Vec<&str> = inp.split("\n__ggml_vocab_test__\n").collect();
    let lines: Vec<&str> = out.lines().collect();
    // The file ends with a separator.
    assert_eq!(texts.len(), lines.len() + 1, "{name}");
    let experienced = tokenizer();
    experienced.encode(&"text ".repeat(1000), false, false);
    for (text, line) in texts.iter().zip(lines) {
        let expected: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(tokenizer().encode(text, false, false), expected, "{name}: {text:?}, the first text");
        assert_eq!(experienced.encode(text, false, false), expected, "{name}: {text:?}");
    }
}

#[test]
fn test_vectors_of_llama_cpp() {
    let Some(dir) = fixtures("test_vectors_of_llama_cpp").map(|dir| dir.join("tokenizer")) else { return };
    for name in ["gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "starcoder"] {
        assert_vectors(&dir, name, || tokenizer(&dir.join(format!("ggml-vocab-{name}.gguf")), None));
    }
    assert_vectors(&dir, "qwen35", || tokenizer(&dir.join("ggml-vocab-qwen2.gguf"), Some("qwen35")));
}

#[test]
fn more_texts_with_and_without_special_tokens() {
    let Some(dir) = fixtures("more_texts_with_and_without_special_tokens") else { return };
    for name in ["gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "starcoder"] {
        let extra = read_json(&dir.join(format!("tokenizer/extra-{name}.json")));
        let tokenizer = tokenizer(&dir.join("tokenizer").join(extra["vocab"].as_str().unwrap()), None);
        assert_eq!(tokenizer.n_vocab() as u64, extra["n_tokens"]);
        let id = |key: &str| extra[key].as_u64().map(|id| id as u32);
        assert_eq!([tokenizer.bos(), tokenizer.eos()], [id("bos"), id("eos")], "{name}");
        assert_eq!(tokenizer.add_bos(), extra["add_bos"], "{name}");
        assert_eq!(tokenizer.add_eos(), extra["add_eos"], "{name}");
        for case in extra["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let expected = |key: &str| ids(case.get(key).unwrap_or(&case["ids"]));
            let tokens = tokenizer.encode(text, false, true);
            assert_eq!(tokens, ids(&case["ids"]), "{name}: {text:?}");
            assert_eq!(
                tokenizer.encode(text, false, false),
                expected("ids_no_special_parsing"),
                "{name}: {text:?} without special tokens"
            );
            assert_eq!(
                tokenizer.encode(text, true, true),
                expected("ids_add_special"),
                "{name}: {text:?} with BOS"
            );
            let decoded = tokenizer.decode_bytes(&tokens, false, true);
            match case.get("detokenized_hex") {
                Some(hex) => assert_eq!(to_hex(&decoded), hex.as_str().unwrap(), "{name}: {text:?}"),
                None => assert_eq!(String::from_utf8(decoded).unwrap(), text, "{name}"),
            }
        }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn prompts_of_the_small_models() {
    let Some(dir) = fixtures("prompts_of_the_small_models") else { return };
    let mut n_prompts = 0;
    for model in std::fs::read_dir(dir.join("hf")).unwrap() {
        let model = model.unwrap();
        let name = model.file_name().into_string().unwrap();
        let tokenizer = tokenizer(&dir.join(format!("gguf/{name}-Q4_K_M.gguf")), None);
        for prompt in read_json(&model.path().join("reference.json"))["prompts"].as_array().unwrap() {
            let text = prompt["text"].as_str().unwrap();
            let add_special = prompt["add_special_tokens"].as_bool().unwrap();
            assert_eq!(tokenizer.encode(text, add_special, true), ids(&prompt["ids"]), "{name}: {text:?}");
            n_prompts += 1;
        }
    }
    assert_eq!(n_prompts, 60);
}
