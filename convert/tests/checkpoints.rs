//! Every checkpoint of the fixtures becomes the file that llama.cpp's converter made of it: keys, values, order, tensors.

mod support;

use std::path::{Path, PathBuf};

use qgguf_convert::file_type::FileType;
use qgguf_convert::hf::convert::{Options, Source};
use qgguf_gguf::{GgufFile, MetadataArray, MetadataValue};
use serde_json::Value;
use sha2::{Digest, Sha256};
use support::{convert, fixtures};

/// Their tokenizers are small ones whose pre-tokenizers are told by their structure.
const CHECKPOINTS: [&str; 12] = [
    "qwen3-tiny",
    "qwen3-untied",
    "qwen2-tiny",
    "qwen2-odd",
    "qwen3moe-tiny",
    "llama-tiny",
    "smollm3-tiny",
    "olmo2-tiny",
    "granite-tiny",
    "mistral-tiny",
    "gemma3-tiny",
    "phi3-tiny",
];

/// The checkpoint, where llama.cpp's converter says as much of it: of Phi-3's ends of generation it loses one, which is
/// taken out in a copy.
fn checkpoint(fixtures: &Path, name: &str, dir: &Path) -> PathBuf {
    let original = fixtures.join("hf").join(name);
    if name != "phi3-tiny" {
        return original;
    }
    let copy = dir.join(name);
    std::fs::create_dir_all(&copy).unwrap();
    for entry in std::fs::read_dir(&original).unwrap() {
        let path = entry.unwrap().path();
        std::fs::write(copy.join(path.file_name().unwrap()), std::fs::read(&path).unwrap()).unwrap();
    }
    let path = copy.join("generation_config.json");
    let mut generation: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    generation["eos_token_id"].as_array_mut().unwrap().retain(|id| id != ASSISTANT);
    std::fs::write(path, generation.to_string()).unwrap();
    copy
}

/// `<|assistant|>` of phi3-tiny.
const ASSISTANT: u32 = 769;

#[test]
fn an_end_of_generation_that_llama_cpp_loses_is_one_more_key() {
    let Some(fixtures) = fixtures() else { return };
    let dir = tempfile::tempdir().unwrap();
    let keys = |input: &Path| {
        let source = Source::open(input).unwrap();
        let metadata = source.convert(&Options::default()).unwrap().metadata;
        metadata.iter().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>()
    };
    let mut more = keys(&fixtures.join("hf/phi3-tiny"));
    let less = keys(&checkpoint(&fixtures, "phi3-tiny", dir.path()));
    more.retain(|key| !less.contains(key));
    assert_eq!(more, [format!("tokenizer.ggml.eom_token_id=U32({ASSISTANT})")]);
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value as the manifests have it: its type, and the value or the checksum of a long array.
fn described(value: &MetadataValue) -> (Vec<&'static str>, String) {
    match value {
        MetadataValue::U32(v) => (vec!["UINT32"], v.to_string()),
        MetadataValue::I32(v) => (vec!["INT32"], v.to_string()),
        MetadataValue::F32(v) => (vec!["FLOAT32"], format!("{:?}", f64::from(*v))),
        MetadataValue::Bool(v) => (vec!["BOOL"], v.to_string()),
        MetadataValue::String(v) => (vec!["STRING"], v.clone()),
        MetadataValue::Array(MetadataArray::String(v)) => {
            (vec!["ARRAY", "STRING"], hex(v.iter().collect::<Vec<_>>().join("\n").as_bytes()))
        }
        MetadataValue::Array(MetadataArray::F32(v)) => {
            (vec!["ARRAY", "FLOAT32"], hex(&v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()))
        }
        MetadataValue::Array(MetadataArray::I32(v)) => {
            (vec!["ARRAY", "INT32"], hex(&v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()))
        }
        other => panic!("{other:?} is in no fixture"),
    }
}

fn expected(entry: &Value) -> (Vec<&str>, String) {
    let types = entry["type"].as_array().unwrap().iter().map(|ty| ty.as_str().unwrap()).collect();
    let value = match &entry["value"] {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("{:?}", number.as_f64().unwrap()),
        Value::Object(array) => array["sha256"].as_str().unwrap().to_owned(),
        other => other.to_string(),
    };
    (types, value)
}

/// All differences from a manifest.
fn differences(path: &Path, manifest: &Value) -> Vec<String> {
    let file = GgufFile::open(path).unwrap();
    let mut differences = Vec::new();
    let mut compare = |what: String, found: String, expected: String| {
        if found != expected {
            differences.push(format!("{what}: found {found}, expected {expected}"));
        }
    };
    let keys = manifest["kv"].as_object().unwrap();
    let order = |keys: Vec<&str>| keys.join(" ");
    let found = file.metadata().iter().map(|(key, _)| key).collect();
    compare("keys".to_owned(), order(found), order(keys.keys().map(String::as_str).collect()));
    for (key, value) in file.metadata().iter() {
        if let Some(entry) = keys.get(key) {
            compare(key.to_owned(), format!("{:?}", described(value)), format!("{:?}", expected(entry)));
        }
    }
    let tensors = manifest["tensors"].as_array().unwrap();
    compare("tensors".to_owned(), file.tensors().len().to_string(), tensors.len().to_string());
    for (i, entry) in tensors.iter().enumerate().take(file.tensors().len()) {
        let tensor = file.tensor_at(i);
        let info = tensor.info();
        let found = format!(
            "{} {} {:?} {} {}",
            info.name,
            info.ty.name().to_uppercase(),
            info.shape,
            info.offset,
            hex(tensor.bytes())
        );
        let ne: Vec<u64> = entry["ne"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        let text = |key: &str| entry[key].as_str().unwrap();
        let expected = format!(
            "{} {} {ne:?} {} {}",
            text("name"),
            text("type").to_uppercase(),
            entry["offset"],
            text("sha256")
        );
        compare(format!("tensor {i}"), found, expected);
    }
    let bytes = std::fs::metadata(path).unwrap().len();
    compare("file size".to_owned(), bytes.to_string(), manifest["file_bytes"].to_string());
    compare(
        "file".to_owned(),
        hex(&std::fs::read(path).unwrap()),
        manifest["sha256"].as_str().unwrap().to_owned(),
    );
    differences
}

#[test]
fn every_checkpoint_becomes_llama_cpps_file() {
    let Some(fixtures) = fixtures() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for name in CHECKPOINTS {
        for ty in [FileType::F32, FileType::F16, FileType::BF16] {
            let manifest = fixtures.join(format!("gguf/{name}-{}.json", ty.name()));
            let manifest: Value = serde_json::from_slice(&std::fs::read(manifest).unwrap()).unwrap();
            let out = dir.path().join("out.gguf");
            let options = Options { out_type: Some(ty), ..Options::default() };
            convert(&checkpoint(&fixtures, name, dir.path()), &options, &out).unwrap();
            let found = differences(&out, &manifest["manifest"]);
            all.extend(found.into_iter().map(|difference| format!("{name}-{}: {difference}", ty.name())));
        }
    }
    assert!(all.is_empty(), "{} differences:\n{}", all.len(), all.join("\n"));
}

/// Straight to a recipe is what llama-quantize makes of the file with the weights as they are stored: BF16, of llama-tiny
/// F16 and of mistral-tiny F32.
#[test]
fn a_quantized_type_is_reached_in_one_pass() {
    let Some(fixtures) = fixtures() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for name in CHECKPOINTS {
        let manifest = fixtures.join(format!("gguf/{name}-Q4_K_M.json"));
        let manifest: Value = serde_json::from_slice(&std::fs::read(manifest).unwrap()).unwrap();
        let manifest = &manifest["manifest"];
        let out = dir.path().join("out.gguf");
        let options = Options { out_type: Some(FileType::Q4_K_M), ..Options::default() };
        let input = checkpoint(&fixtures, name, dir.path());
        match convert(&input, &options, &out) {
            Ok(()) => {
                let found = differences(&out, manifest);
                all.extend(found.into_iter().map(|difference| format!("{name}: {difference}")));
            }
            // Without block quantizers at least the plan can be compared.
            Err(error) => {
                eprintln!("SKIPPED the bytes of {name}: {error}");
                let source = Source::open(&input).unwrap();
                let conversion = source.convert(&options).unwrap();
                let keys: Vec<&str> = conversion.metadata.iter().map(|(key, _)| key).collect();
                let expected: Vec<&String> = manifest["kv"].as_object().unwrap().keys().collect();
                assert_eq!(keys, expected, "{name}");
                let plan: Vec<String> = conversion
                    .tensors
                    .iter()
                    .map(|t| format!("{} {}", t.spec.name, t.spec.ty.name().to_uppercase()))
                    .collect();
                let text = |t: &Value, key: &str| t[key].as_str().unwrap().to_owned();
                let tensors = manifest["tensors"].as_array().unwrap().iter();
                let expected: Vec<String> = tensors
                    .map(|t| format!("{} {}", text(t, "name"), text(t, "type").to_uppercase()))
                    .collect();
                assert_eq!(plan, expected, "{name}");
            }
        }
    }
    assert!(all.is_empty(), "{} differences:\n{}", all.len(), all.join("\n"));
}
