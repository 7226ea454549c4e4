//! A GGUF that becomes a checkpoint and a GGUF again has the same tensors and the same keys.

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use qgguf_convert::file_type::FileType;
use qgguf_convert::gguf_rows::Shards;
use qgguf_convert::hf::Config;
use qgguf_convert::hf::convert::Options;
use qgguf_convert::hf::export::{Export, ExportError};
use qgguf_convert::hf::families::{Change, Dims, Family, fill};
use qgguf_convert::hf::safetensors::header;
use qgguf_convert::pipeline::{WriteOptions, write_tensors};
use qgguf_gguf::dequantize::dequantize_row;
use qgguf_gguf::{GgmlType, GgufFile, GgufWriter, Metadata, MetadataValue, TensorSpec};
use qgguf_kernels::Kernels;
use serde_json::{Value, json};
use support::fixtures;

/// Writes a checkpoint into a folder; returns the warnings.
fn export(model: &Path, ty: Option<GgmlType>, dir: &Path) -> Result<Vec<String>, ExportError> {
    let file = GgufFile::open(model)?;
    let shards = Shards::open(&file, Kernels::best())?;
    let export = Export::of(&file, &shards, ty)?;
    std::fs::create_dir_all(dir).unwrap();
    for (name, bytes) in &export.files {
        std::fs::write(dir.join(name), bytes).unwrap();
    }
    let specs: Vec<TensorSpec> = export.tensors.iter().map(|tensor| tensor.spec.clone()).collect();
    let mut bytes = header(&specs);
    let options = WriteOptions::new(2, Kernels::best());
    let mut append = |data: &[u8]| {
        bytes.extend(data);
        Ok(())
    };
    write_tensors(&export.tensors, &options, &mut |_| ControlFlow::Continue(()), &mut append).unwrap();
    std::fs::write(dir.join("model.safetensors"), bytes).unwrap();
    Ok(export.warnings)
}

fn convert(input: &Path, ty: FileType, pre: Option<&str>, out: &Path) {
    let options = Options { out_type: Some(ty), pre: pre.map(str::to_owned), ..Options::default() };
    support::convert(input, &options, out).unwrap();
}

fn keys(file: &GgufFile) -> BTreeMap<&str, &MetadataValue> {
    file.metadata().iter().collect()
}

/// All keys and tensors are the same; keys may stand in another order.
fn assert_same(found: &Path, expected: &Path) {
    let name = expected.display();
    let (found, expected) = (GgufFile::open(found).unwrap(), GgufFile::open(expected).unwrap());
    assert_eq!(keys(&found), keys(&expected), "{name}");
    let names = |file: &GgufFile| file.tensors().iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(sorted(names(&found)), sorted(names(&expected)), "{name}");
    for tensor in names(&expected) {
        let (a, b) = (found.tensor(&tensor).unwrap(), expected.tensor(&tensor).unwrap());
        assert_eq!((a.ty(), a.shape()), (b.ty(), b.shape()), "{name}: {tensor}");
        assert!(a.bytes() == b.bytes(), "{name}: the bytes of {tensor}");
    }
}

fn plain_type(name: &str) -> Option<FileType> {
    let ty = name.strip_suffix(".gguf")?.rsplit('-').next()?;
    FileType::parse(ty).filter(|ty| matches!(ty, FileType::F32 | FileType::F16 | FileType::BF16))
}

fn models(fixtures: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixtures.join("gguf")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "gguf"));
    paths.push(fixtures.join("kjv/kjv-tiny-F16.gguf"));
    paths.sort();
    paths
}

#[test]
fn unquantized_models_come_back_as_they_were() {
    let Some(fixtures) = fixtures() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut n = 0;
    for model in models(&fixtures) {
        let name = model.file_name().unwrap().to_str().unwrap();
        let Some(ty) = plain_type(name) else { continue };
        let folder = dir.path().join(name).with_extension("");
        assert_eq!(export(&model, None, &folder).unwrap(), Vec::<String>::new(), "{name}");
        let back = dir.path().join("back.gguf");
        convert(&folder, ty, None, &back);
        assert_same(&back, &model);
        n += 1;
    }
    assert!(n >= 12, "{n} models");
}

#[test]
fn quantized_models_come_back_as_what_their_blocks_mean() {
    let Some(fixtures) = fixtures() else { return };
    let dir = tempfile::tempdir().unwrap();
    for model in models(&fixtures) {
        let name = model.file_name().unwrap().to_str().unwrap();
        if plain_type(name).is_some() {
            continue;
        }
        let folder = dir.path().join(name).with_extension("");
        assert_eq!(export(&model, Some(GgmlType::F32), &folder).unwrap(), Vec::<String>::new(), "{name}");
        let back = dir.path().join("back.gguf");
        convert(&folder, FileType::F32, None, &back);
        let (back, model) = (GgufFile::open(&back).unwrap(), GgufFile::open(&model).unwrap());
        assert_eq!(back.tensors().len(), model.tensors().len(), "{name}");
        for info in model.tensors() {
            let mut weights = vec![0.0; info.n_elements() as usize];
            dequantize_row(info.ty, model.tensor(&info.name).unwrap().bytes(), &mut weights).unwrap();
            let bytes: Vec<u8> = weights.iter().flat_map(|x| x.to_le_bytes()).collect();
            assert!(back.tensor(&info.name).unwrap().bytes() == bytes, "{name}: {}", info.name);
        }
    }
}

/// Families of which no file of llama.cpp is at hand: configurations, and the checkpoint whose tokenizer they get.
fn other_families() -> Vec<(Value, &'static str, Option<&'static str>)> {
    let sizes = json!({
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    });
    let with = |class: &str, vocab: u64, more: Value| {
        let mut config = sizes.clone();
        config["architectures"] = json!([class]);
        config["vocab_size"] = vocab.into();
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    let yarn = json!({
        "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64, "rope_theta": 1e6, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
    });
    vec![
        (
            with("MixtralForCausalLM", 768, json!({ "num_local_experts": 3, "num_experts_per_tok": 2 })),
            "mistral-tiny",
            None,
        ),
        (
            with("Ministral3ForCausalLM", 768, json!({ "head_dim": 32, "rope_parameters": yarn })),
            "mistral-tiny",
            None,
        ),
        (
            with("Gemma2ForCausalLM", 800, json!({ "head_dim": 32, "sliding_window": 32 })),
            "gemma3-tiny",
            None,
        ),
        (
            with(
                "Olmo3ForCausalLM",
                656,
                json!({ "sliding_window": 32, "layer_types": ["full_attention", "sliding_attention"] }),
            ),
            "olmo2-tiny",
            Some("dbrx"),
        ),
        (
            with(
                "LlamaForCausalLM",
                768,
                json!({ "attention_bias": true, "mlp_bias": true, "rope_scaling": { "type": "linear", "factor": 4.0 } }),
            ),
            "mistral-tiny",
            None,
        ),
        (
            with(
                "Qwen2ForCausalLM",
                800,
                json!({
                    "rope_scaling": {
                        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
                    },
                }),
            ),
            "qwen2-tiny",
            Some("qwen2"),
        ),
    ]
}

/// A checkpoint with all tensors that its family can have, and any weights.
fn checkpoint(dir: &Path, config: &Value, tokenizer: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    for name in ["tokenizer.json", "tokenizer.model", "tokenizer_config.json"] {
        if tokenizer.join(name).exists() {
            std::fs::copy(tokenizer.join(name), dir.join(name)).unwrap();
        }
    }
    let mut config = Config::read(dir).unwrap();
    let family = Family::of(&mut config).unwrap();
    let dims = Dims::of(&config).unwrap();
    let mut specs = Vec::new();
    for rule in family.rules().filter(|rule| !matches!(rule.change, Change::FusedExperts | Change::Drop)) {
        let n = |what: &str, n: u64| if rule.hf.contains(what) { n } else { 1 };
        for il in 0..n(".layers.", dims.n_layer) {
            for expert in 0..n(".experts.", dims.n_expert) {
                let shape: Vec<u64> = dims.shape(rule).into_iter().rev().collect();
                specs.push(TensorSpec { name: fill(rule.hf, &[il, expert]), shape, ty: GgmlType::F32 });
            }
        }
    }
    let mut bytes = header(&specs);
    let mut state = 1u32;
    for _ in 0..specs.iter().map(|spec| spec.shape.iter().product::<u64>()).sum() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend(((state >> 8) as f32 / (1 << 24) as f32 - 0.5).to_le_bytes());
    }
    std::fs::write(dir.join("model.safetensors"), bytes).unwrap();
}

#[test]
fn families_without_a_reference_come_back_as_they_were() {
    let Some(fixtures) = fixtures() else { return };
    let dir = tempfile::tempdir().unwrap();
    for (i, (config, tokenizer, pre)) in other_families().into_iter().enumerate() {
        let class = config["architectures"][0].to_string();
        let first = dir.path().join(format!("first-{i}"));
        checkpoint(&first, &config, &fixtures.join("hf").join(tokenizer));
        let [model, back] = ["model", "back"].map(|name| dir.path().join(format!("{name}-{i}.gguf")));
        convert(&first, FileType::F32, pre, &model);
        let second = dir.path().join(format!("second-{i}"));
        // The first model has every bias that a GGUF can hold, also where the class has none.
        let warnings = export(&model, None, &second).unwrap();
        assert!(warnings.iter().all(|text| text.contains(" has no such bias")), "{class}: {warnings:?}");
        let written = Config::read(&second).unwrap();
        assert_eq!(written.class().unwrap(), config["architectures"][0], "{class}");
        convert(&second, FileType::F32, None, &back);
        assert_same(&back, &model);
    }
}

#[test]
fn programs_that_read_the_checkpoint_stop_and_sample_as_with_the_original() {
    let Some(fixtures) = fixtures() else { return };
    let dir = tempfile::tempdir().unwrap();
    let read = |path: &Path, name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(path.join(name)).unwrap()).unwrap()
    };
    let mut n_sampled = 0;
    for name in ["llama-tiny", "phi3-tiny", "gemma3-tiny", "qwen3-tiny", "mistral-tiny", "smollm3-tiny"] {
        let (original, folder) = (fixtures.join("hf").join(name), dir.path().join(name));
        export(&fixtures.join(format!("gguf/{name}-F16.gguf")), None, &folder).unwrap();
        let [theirs, ours] = [&original, &folder].map(|dir| read(dir, "generation_config.json"));
        let ids = |config: &Value| -> Vec<u64> {
            let ids = &config["eos_token_id"];
            ids.as_u64().map_or_else(
                || ids.as_array().unwrap().iter().filter_map(Value::as_u64).collect(),
                |id| vec![id],
            )
        };
        // Phi-3 also stops where the next speaker is the assistant, which no key of the GGUF says.
        let assistant = if name == "phi3-tiny" { Some(769) } else { None };
        let mut expected = ids(&theirs).into_iter().filter(|&id| Some(id) != assistant);
        assert!(expected.all(|id| ids(&ours).contains(&id)), "{name}: {theirs} {ours}");
        for key in ["temperature", "top_p", "top_k", "repetition_penalty"] {
            assert_eq!(theirs.get(key), ours.get(key), "{name}: {key}");
            n_sampled += usize::from(ours.get(key).is_some() && ours["do_sample"] == true);
        }
        let [theirs, ours] = [&original, &folder].map(|dir| read(dir, "tokenizer.json"));
        assert_eq!(theirs["normalizer"], ours["normalizer"], "{name}");
        assert_eq!(theirs["model"]["unk_token"], ours["model"]["unk_token"], "{name}");
        // llama.cpp has another rule for "</s>" of Phi-3 than this checkpoint.
        let tokens = theirs["added_tokens"].as_array().unwrap().iter();
        for token in tokens.filter(|token| name != "phi3-tiny" || token["content"] != "</s>") {
            let same =
                ours["added_tokens"].as_array().unwrap().iter().find(|t| t["id"] == token["id"]).unwrap();
            assert_eq!(same["rstrip"], token["rstrip"], "{name}: {token}");
        }
    }
    assert!(n_sampled > 0);
}

/// A copy of a file with other metadata.
fn edited(model: &Path, out: &Path, edit: impl FnOnce(&mut Metadata)) {
    let file = GgufFile::open(model).unwrap();
    let mut metadata = file.metadata().clone();
    edit(&mut metadata);
    let specs: Vec<TensorSpec> = file.tensors().iter().map(TensorSpec::from).collect();
    let mut writer = GgufWriter::create(out, 3, &metadata, &specs).unwrap();
    file.tensors().iter().for_each(|info| writer.write(file.tensor(&info.name).unwrap().bytes()).unwrap());
    writer.finish().unwrap();
}

#[test]
fn what_no_checkpoint_can_say_is_told() {
    let Some(fixtures) = fixtures() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (dir.path().join("model.gguf"), dir.path().join("out"));
    let llama = fixtures.join("gguf/llama-tiny-F16.gguf");
    let with = |key: &str, value: MetadataValue| {
        edited(&llama, &model, |metadata| _ = metadata.set(key, value));
        export(&model, None, &out).map_err(|e| e.to_string())
    };
    let text = |text: &str| MetadataValue::String(text.to_owned());
    assert_eq!(
        with("llama.rope.dimension_count", MetadataValue::U32(16)).unwrap(),
        [
            "llama.rope.dimension_count = U32(16) has no place in a LlamaForCausalLM: after convert it is U32(32)"
        ]
    );
    for (key, value, expected) in [
        (
            "tokenizer.ggml.pre",
            text("bloom"),
            "tokenizer.ggml.pre \"bloom\" cannot be exported (possible: llama3, ",
        ),
        (
            "tokenizer.ggml.model",
            text("bert"),
            "tokenizer.ggml.model \"bert\" cannot be exported for a LlamaForCausalLM",
        ),
        (
            "llama.context_length",
            MetadataValue::U32(0),
            "metadata key \"llama.context_length\": expected an integer above 0, found 0",
        ),
        ("llama.block_count", text("x"), "metadata key \"llama.block_count\": expected "),
        ("llama.block_count", MetadataValue::U32(3), "tensor \"blk.2.attn_norm.weight\" is missing"),
        (
            "llama.block_count",
            MetadataValue::U32(1),
            "tensor \"blk.1.attn_norm.weight\": the model has only 1 layers",
        ),
        (
            "llama.feed_forward_length",
            MetadataValue::U32(511),
            "tensor \"blk.0.ffn_down.weight\": shape [512, 256], expected [511, 256] by the metadata",
        ),
        (
            "llama.rope.freq_base",
            MetadataValue::F32(500.0),
            "tensor \"rope_freqs.weight\": its factors are not those of Llama 3 for any context that is a power of two",
        ),
        (
            "general.architecture",
            text("mamba"),
            "architecture \"mamba\" cannot be exported (possible: llama, mistral3, qwen2, ",
        ),
    ] {
        let found = with(key, value).unwrap_err();
        assert!(found.starts_with(expected), "{found}");
    }
}
