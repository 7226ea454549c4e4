//! Logits and greedy tokens against what transformers and llama.cpp computed; the distances are printed.

#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qgguf::engine::EngineOptions;
use qgguf::model::{Model, ModelOptions};
use qgguf::session::Session;
use qgguf_gguf::dequantize::dequantize_row;
use qgguf_gguf::{GgmlType, GgufFile, GgufWriter, TensorSpec};
use qgguf_kernels::{Isa, Kernels, KvType};
use serde_json::Value;

use crate::fixtures::fixtures;

const MODELS: [&str; 12] = [
    "qwen3-tiny",
    "qwen3-untied",
    "qwen2-tiny",
    "qwen2-odd",
    "llama-tiny",
    "mistral-tiny",
    "gemma3-tiny",
    "phi3-tiny",
    "qwen3moe-tiny",
    "smollm3-tiny",
    "olmo2-tiny",
    "granite-tiny",
];

/// A prompt of the reference runs and what transformers made of it.
struct Prompt {
    name: String,
    ids: Vec<u32>,
    greedy: Vec<u32>,
    margins: Vec<f32>,
    logits: Vec<f32>,
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn numbers<T>(value: &Value, read: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap().iter().map(read).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    numbers(value, |v| v.as_u64().unwrap() as u32)
}

/// An f32 array of NumPy's format 1.0.
fn npy(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[start..].as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

fn prompts(dir: &Path, model: &str) -> Vec<Prompt> {
    let dir = dir.join("hf").join(model);
    let reference = json(&dir.join("reference.json"));
    let n_vocab = reference["last_logits_shape"][1].as_u64().unwrap() as usize;
    let logits = npy(&dir.join("reference.last_logits.npy"));
    let prompts = reference["prompts"].as_array().unwrap().iter();
    prompts
        .zip(logits.chunks_exact(n_vocab))
        .map(|(p, logits)| Prompt {
            name: p["name"].as_str().unwrap().to_owned(),
            ids: ids(&p["ids"]),
            greedy: ids(&p["greedy"]),
            margins: numbers(&p["greedy_margins"], |v| v.as_f64().unwrap() as f32),
            logits: logits.to_vec(),
        })
        .collect()
}

fn open(path: &Path) -> Arc<Model> {
    Arc::new(Model::open(path, &ModelOptions::default()).unwrap())
}

fn session(model: &Arc<Model>, kv: KvType) -> Session {
    Session::new(
        model.clone(),
        Some(1024),
        &EngineOptions { n_threads: 1, type_k: kv, type_v: kv, ..EngineOptions::default() },
    )
    .unwrap()
}

/// The first of the largest values.
fn argmax(logits: &[f32]) -> u32 {
    let best = (1..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
    best as u32
}

fn greedy(session: &mut Session, prompt: &[u32], n: usize) -> Vec<u32> {
    session.truncate(0);
    let mut tokens = vec![argmax(session.eval(prompt).unwrap())];
    while tokens.len() < n {
        tokens.push(argmax(session.eval(&tokens[tokens.len() - 1..]).unwrap()));
    }
    tokens
}

fn max_distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Writes `from` with every tensor dequantized: the exact meaning of its weights.
fn dequantized(from: &Path, to: &Path) {
    let file = GgufFile::open(from).unwrap();
    let specs: Vec<TensorSpec> =
        file.tensors().iter().map(|t| TensorSpec { ty: GgmlType::F32, ..TensorSpec::from(t) }).collect();
    let mut writer = GgufWriter::create(to, 3, file.metadata(), &specs).unwrap();
    for tensor in file.tensors() {
        let mut values = vec![0.0; tensor.n_elements() as usize];
        dequantize_row(tensor.ty, file.tensor(&tensor.name).unwrap().bytes(), &mut values).unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        writer.write(&bytes).unwrap();
    }
    writer.finish().unwrap();
}

/// How far logits of exact weights may be from transformers'. The two references differ by up to 3e-5; this
/// runtime was seen within 4e-5. Files in f16 that were made from bf16 checkpoints have lost the lowest bits
/// of the smallest weights, which is below that.
const EXACT: f32 = 1e-4;

/// mistral-tiny is the one checkpoint in f32: its 16-bit files have other weights. llama.cpp's are as far off.
fn limit(name: &str, path: &Path) -> f32 {
    let file = path.file_name().unwrap().to_string_lossy();
    match name {
        "mistral-tiny" if file.contains("BF16") => 0.12,
        "mistral-tiny" if !file.contains("F32") => 0.015,
        // llama.cpp's own F32 file is 3e-3 off, because of its table for GELU; this runtime computes it.
        _ => EXACT,
    }
}

#[test]
fn f32_and_f16_files_give_the_logits_and_greedy_tokens_of_transformers() {
    let Some(dir) = fixtures("f32_and_f16_files_give_the_logits_and_greedy_tokens_of_transformers") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    for name in MODELS {
        let f16 = dir.join(format!("gguf/{name}-F16.gguf"));
        let f32_dequantized = scratch.path().join(format!("{name}.gguf"));
        dequantized(&f16, &f32_dequantized);
        let others = ["F32", "BF16"].map(|ty| dir.join(format!("gguf/{name}-{ty}.gguf")));
        let others: Vec<PathBuf> = others.into_iter().filter(|path| path.exists()).collect();
        for path in [f16, f32_dequantized].iter().chain(&others) {
            let mut session = session(&open(path), KvType::F32);
            let (mut worst, mut n_greedy) = (0f32, 0);
            for prompt in prompts(&dir, name) {
                session.truncate(0);
                worst = worst.max(max_distance(session.eval(&prompt.ids).unwrap(), &prompt.logits));
                let tokens = greedy(&mut session, &prompt.ids, prompt.greedy.len());
                for (i, (&token, &expected)) in tokens.iter().zip(&prompt.greedy).enumerate() {
                    if token != expected {
                        let margin = prompt.margins[i];
                        assert!(
                            margin <= 2.0 * limit(name, path),
                            "{}: {} token {i}: {token}, not {expected}",
                            path.display(),
                            prompt.name
                        );
                        break;
                    }
                    n_greedy += 1;
                }
            }
            println!(
                "{}: max |Δ| {worst:.2e}, {n_greedy} greedy tokens equal",
                path.file_name().unwrap().display()
            );
            assert!(worst <= limit(name, path), "{}: {worst:e}", path.display());
        }
    }
}

#[test]
fn every_position_has_the_logits_of_transformers() {
    let Some(dir) = fixtures("every_position_has_the_logits_of_transformers") else { return };
    for name in MODELS {
        let path = dir.join(format!("gguf/{name}-F16.gguf"));
        let mut session = session(&open(&path), KvType::F32);
        let prompt = prompts(&dir, name).into_iter().find(|p| p.name == "en").unwrap();
        let mut all = Vec::new();
        session.eval_all(&prompt.ids, |_, logits| all.extend_from_slice(logits)).unwrap();
        let worst = max_distance(&all, &npy(&dir.join("hf").join(name).join("reference.all_logits.en.npy")));
        // mistral-tiny: over all positions the rounded weights show twice as much as at the last ones.
        assert!(worst <= 2.0 * limit(name, &path), "{name}: {worst:e}");
    }
}

/// The quantized files of the fixtures: their names, and llama.cpp's own distance from exact arithmetic.
fn quantized(dir: &Path) -> Vec<(String, f32, f32)> {
    let index = json(&dir.join("gguf/index.json"));
    let files = index.as_array().or_else(|| index["files"].as_array()).unwrap().iter();
    files
        .filter(|file| {
            file["file_present"] == true && !["F32", "F16", "BF16"].contains(&file["type"].as_str().unwrap())
        })
        .map(|file| {
            let name = format!("{}-{}", file["model"].as_str().unwrap(), file["type"].as_str().unwrap());
            let f32math = json(&dir.join(format!("gguf/{name}.json")))["f32math"].clone();
            let figure = |key: &str| f32math[key].as_f64().unwrap() as f32;
            (name, figure("max_abs_diff_last"), figure("rms_diff_last"))
        })
        .collect()
}

fn rms_distance(a: &[f32], b: &[f32]) -> f32 {
    let sum: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (sum / a.len() as f64).sqrt() as f32
}

#[test]
fn quantized_files_are_as_near_to_exact_arithmetic_as_llama_cpp_is() {
    let Some(dir) = fixtures("quantized_files_are_as_near_to_exact_arithmetic_as_llama_cpp_is") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let files = quantized(&dir);
    assert!(files.len() > 20, "only {} files", files.len());
    let mut prompts_of: HashMap<String, Vec<Prompt>> = HashMap::new();
    for (name, max, rms) in files {
        let model = name.rsplit_once('-').unwrap().0.to_owned();
        let prompts = prompts_of.entry(model.clone()).or_insert_with(|| prompts(&dir, &model));
        let path = dir.join(format!("gguf/{name}.gguf"));
        let exact = npy(&dir.join(format!("gguf/{name}.logits_f32math.npy")));
        let logits = |path: &Path| -> Vec<f32> {
            let mut session = session(&open(path), KvType::F32);
            prompts
                .iter()
                .flat_map(|p| {
                    session.truncate(0);
                    session.eval(&p.ids).unwrap().to_vec()
                })
                .collect()
        };
        let ours = logits(&path);
        let (our_max, our_rms) = (max_distance(&ours, &exact), rms_distance(&ours, &exact));
        println!("{name}: max |Δ| {our_max:.3} (llama.cpp {max:.3}), rms {our_rms:.4} (llama.cpp {rms:.4})");
        // The largest of 4000 differences varies between equally good roundings; rms is the steadier measure.
        // An expert may flip where llama.cpp's does not.
        let moe = model.contains("moe");
        let (max_limit, rms_limit) = if moe { (4.0, 0.6) } else { (1.5 * max, 1.15 * rms) };
        assert!(our_max <= max_limit && our_rms <= rms_limit, "{name}: {our_max} {our_rms}");

        let f32_file = scratch.path().join("exact.gguf");
        dequantized(&path, &f32_file);
        let distance = max_distance(&logits(&f32_file), &exact);
        // gemma3: llama.cpp takes GELU from a table in half precision.
        let limit = if model.contains("gemma3") { 5e-3 } else { EXACT };
        assert!(distance <= limit, "{name} dequantized: {distance:e}");
    }
}

#[test]
fn logits_are_the_same_bits_for_all_threads_batches_and_instruction_sets() {
    let Some(dir) = fixtures("logits_are_the_same_bits_for_all_threads_batches_and_instruction_sets") else {
        return;
    };
    for name in
        ["qwen3-tiny-Q4_K_M", "qwen2-odd-Q4_K_M", "gemma3-tiny-F16", "qwen3moe-tiny-Q4_K_M", "llama-tiny-F16"]
    {
        let model = open(&dir.join(format!("gguf/{name}.gguf")));
        let prompts = prompts(&dir, name.rsplit_once('-').unwrap().0);
        let long = prompts.iter().find(|p| p.name == "long").unwrap();
        for kv in [KvType::F16, KvType::Q8_0] {
            let mut reference: Option<Vec<u32>> = None;
            for isa in Isa::available() {
                for (n_threads, n_ubatch) in [(1, 512), (2, 1), (3, 7), (7, 64)] {
                    let kernels = Kernels::new(isa).unwrap();
                    let options = EngineOptions {
                        n_threads,
                        n_ubatch,
                        type_k: kv,
                        type_v: kv,
                        kernels,
                        ..EngineOptions::default()
                    };
                    let mut session = Session::new(model.clone(), Some(1024), &options).unwrap();
                    let mut bits = Vec::new();
                    session
                        .eval_all(&long.ids, |_, logits| bits.extend(logits.iter().map(|v| v.to_bits())))
                        .unwrap();
                    let same = *reference.get_or_insert_with(|| bits.clone()) == bits;
                    let kv = kv.name();
                    assert!(same, "{name}: {isa}, {n_threads} threads, batches of {n_ubatch}, {kv} cache");
                }
            }
        }
    }
}

#[test]
fn smaller_types_of_the_cache_move_the_logits_little() {
    let Some(dir) = fixtures("smaller_types_of_the_cache_move_the_logits_little") else { return };
    for name in ["qwen3-tiny", "llama-tiny", "gemma3-tiny", "qwen2-odd", "mistral-tiny"] {
        let model = open(&dir.join(format!("gguf/{name}-F16.gguf")));
        let prompts = prompts(&dir, name);
        let long = prompts.iter().find(|p| p.name == "long").unwrap();
        let logits = |kv| session(&model, kv).eval(&long.ids).unwrap().to_vec();
        let exact = logits(KvType::F32);
        // Logits between -6 and 6. Seen: up to 7e-3 and 9e-2.
        for (kv, limit) in [(KvType::F16, 0.01), (KvType::Q8_0, 0.12)] {
            let distance = max_distance(&logits(kv), &exact);
            assert!(0.0 < distance && distance < limit, "{name}: {distance} with a {} cache", kv.name());
        }
    }
}

/// How far llama.cpp's logits for the real model move when it computes them in its other way (half-precision
/// cache, flash attention, repacked weights): what two right implementations may differ by.
const REAL_NOISE: f32 = 0.9;

#[test]
fn smollm2_gives_the_tokens_of_llama_cpp_wherever_its_margin_exceeds_the_noise() {
    let test = "smollm2_gives_the_tokens_of_llama_cpp_wherever_its_margin_exceeds_the_noise";
    let Some(dir) = fixtures(test) else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.exists() {
        eprintln!("SKIPPED {test}: no {} (./quickstart gets it)", path.display());
        return;
    }
    let reference = json(&dir.join("real/smollm2-135m-q4_1.json"));
    let stored = npy(&dir.join("real/smollm2-135m-q4_1.last_logits.npy"));
    let rows: Vec<&str> =
        reference["logits_rows"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let model = open(&path);
    let scratch = tempfile::tempdir().unwrap();
    let exact_path = scratch.path().join("exact.gguf");
    dequantized(&path, &exact_path);
    let mut exact = session(&open(&exact_path), KvType::F32);
    let mut session = session(&model, KvType::F32);
    for prompt in reference["prompts"].as_array().unwrap() {
        let name = prompt["name"].as_str().unwrap();
        let prompt_ids = ids(&prompt["ids"]);
        let add_special = prompt["add_special"] == true;
        assert_eq!(model.tokenizer().encode(prompt["text"].as_str().unwrap(), add_special, true), prompt_ids);
        session.truncate(0);
        let logits = session.eval(&prompt_ids).unwrap();
        if let Some(row) = rows.iter().position(|row| *row == name) {
            exact.truncate(0);
            let exact = exact.eval(&prompt_ids).unwrap();
            let llama_cpp = stored.chunks_exact(logits.len()).nth(row).unwrap();
            let (ours, theirs) = (rms_distance(logits, exact), rms_distance(llama_cpp, exact));
            let between = max_distance(logits, llama_cpp);
            println!(
                "SmolLM2 {name}: rms |Δ| {ours:.3} from exact (llama.cpp {theirs:.3}), max {between:.3} apart"
            );
            assert!(ours <= 1.3 * theirs, "{name}: {ours} {theirs}");
        }
        // Along llama.cpp's own text, so that one close call does not end the comparison.
        let margins = numbers(&prompt["greedy_margins"], |v| v.as_f64().unwrap() as f32);
        let (mut equal, greedy) = (0, ids(&prompt["greedy"]));
        for (i, (&token, margin)) in greedy.iter().zip(margins).enumerate() {
            let ours = argmax(session.logits());
            assert!(
                ours == token || margin < REAL_NOISE,
                "{name} token {i}: {ours}, not {token} (by {margin})"
            );
            equal += usize::from(ours == token);
            session.eval(&[token]).unwrap();
        }
        println!("SmolLM2 {name}: {equal} of {} tokens equal", greedy.len());
    }
}
