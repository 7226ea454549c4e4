//! YaRN of checkpoints, through `convert`, against transformers: the first logits behind 96 tokens of the prompt `long`.
//!
//! The expected values were computed in f64 from the fixtures' weights, with transformers 4.57.6's own function for the
//! frequencies and the attention factor; without scaling the same computation gives the fixtures' logits to 1e-5.

use std::path::Path;
use std::sync::Arc;

use qgguf::engine::EngineOptions;
use qgguf::model::{Model, ModelOptions};
use qgguf::session::Session;
use qgguf_gguf::GgufFile;
use qgguf_kernels::KvType;
use serde_json::{Value, json};

use crate::convert::Checkpoint;
use crate::fixtures::fixtures;
use crate::support::stderr;

/// The `long` prompt of a checkpoint.
fn tokens(fixtures: &Path, name: &str) -> Vec<u32> {
    let path = fixtures.join("hf").join(name).join("reference.json");
    let reference: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let prompt = reference["prompts"].as_array().unwrap().iter().find(|p| p["name"] == "long").unwrap();
    prompt["ids"].as_array().unwrap().iter().take(96).map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Converts the checkpoint with these parameters of YaRN; the warnings of `config.json`, and the file.
fn converted(checkpoint: &Checkpoint, class: Option<&str>, more: &Value) -> (Vec<String>, Arc<Model>) {
    checkpoint.edit_json("config.json", |config| {
        let mut yarn = json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32 });
        yarn.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config["rope_scaling"] = yarn;
        config["max_position_embeddings"] = 128.into();
        if let Some(class) = class {
            config["architectures"] = json!([class]);
        }
    });
    let output = checkpoint.command("--outtype f32").output().unwrap();
    let notes = stderr(&output).replace(&format!("{}/", checkpoint.folder().display()), "");
    assert!(output.status.success(), "{notes}");
    let warnings = notes.lines().filter_map(|line| line.strip_prefix("qgguf: warning: config.json: "));
    let model = Model::open(checkpoint.out(), &ModelOptions::default()).unwrap();
    (warnings.map(str::to_owned).collect(), Arc::new(model))
}

fn logits(model: &Arc<Model>, tokens: &[u32]) -> Vec<f32> {
    let (type_k, type_v) = (KvType::F32, KvType::F32);
    let options = EngineOptions { n_threads: 1, type_k, type_v, ..EngineOptions::default() };
    Session::new(model.clone(), None, &options).unwrap().eval(tokens).unwrap().to_vec()
}

/// As near as the reference tests of unscaled models are.
fn assert_near(found: &[f32], expected: &[f32; 8], what: &str) {
    let distance = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(distance < 2e-4, "{what}: {:?} for {expected:?}", &found[..8]);
}

fn attn_factor(file: &GgufFile) -> Option<f32> {
    file.metadata().f32(&format!("{}.rope.scaling.attn_factor", file.architecture().unwrap())).unwrap()
}

const QWEN3: [f32; 8] = [-0.72178, -0.21054, 1.16707, 0.18892, 3.35196, -2.46576, -0.40027, 0.13885];
const MISTRAL: [f32; 8] = [-0.8716, 3.46108, -0.67014, 2.58484, 0.94711, -1.30901, -0.39847, -1.37837];

#[test]
fn what_a_checkpoint_says_of_yarns_magnitude_is_what_the_model_is_run_with() {
    let Some(fixtures) = fixtures("yarn magnitude") else { return };
    for (name, more, missing, expected) in [
        ("qwen3-tiny", json!({}), None, QWEN3),
        ("mistral-tiny", json!({}), None, MISTRAL),
        (
            "qwen3-tiny",
            json!({ "attention_factor": 0.8 }),
            Some(0.8 / 1.138_629_4),
            [-1.78195, -1.72712, -1.20148, -1.25354, 3.86444, -1.74845, 0.06775, 0.42687],
        ),
        (
            "mistral-tiny",
            json!({ "attention_factor": 0.8 }),
            Some(0.8 / 1.138_629_4),
            [-0.03734, 2.99699, -0.13455, 1.5468, -0.43947, -1.60929, 1.14472, -1.8756],
        ),
        (
            "qwen3-tiny",
            json!({ "mscale": 0.707, "mscale_all_dim": 0.5 }),
            Some(1.098_011 / 1.069_314_7 / 1.138_629_4),
            [-0.75276, -1.02589, 0.53595, -0.57854, 3.03017, -2.21407, -0.83428, -0.08157],
        ),
        // What follows from the factor alone needs no key.
        ("qwen3-tiny", json!({ "attention_factor": 1.138_629_436_111_989 }), None, QWEN3),
        // One of the two without the other does not count.
        ("qwen3-tiny", json!({ "mscale_all_dim": 0.5 }), None, QWEN3),
    ] {
        let checkpoint = Checkpoint::copy(&fixtures, name);
        let (warnings, model) = converted(&checkpoint, None, &more);
        assert_eq!(warnings, [""; 0], "{name} {more}");
        assert_near(&logits(&model, &tokens(&fixtures, name)), &expected, &format!("{name} {more}"));
        match (attn_factor(model.file()), missing) {
            (None, None) => {}
            (Some(found), Some(expected)) if (found - expected as f32).abs() < 1e-5 => {}
            other => panic!("{name} {more}: {other:?}"),
        }
    }
}

#[test]
fn where_yarn_bends_is_said_by_the_architectures_that_llama_cpp_reads_it_for() {
    let Some(fixtures) = fixtures("yarn bends") else { return };
    let bends = json!({ "beta_fast": 8.0, "beta_slow": 2.0 });
    for (name, architecture, expected) in [("qwen3-tiny", "qwen3", QWEN3), ("mistral-tiny", "llama", MISTRAL)]
    {
        let (warnings, model) = converted(&Checkpoint::copy(&fixtures, name), None, &bends);
        let told = |key: &str, found: u32, usual: u32| {
            format!(
                "{key} is {found}, which a GGUF of {architecture} cannot say: the model will be run with {usual}"
            )
        };
        assert_eq!(warnings, [told("beta_fast", 8, 32), told("beta_slow", 2, 1)]);
        assert_near(&logits(&model, &tokens(&fixtures, name)), &expected, name);
    }
    let ministral = json!({ "beta_fast": 8.0, "beta_slow": 2.0, "mscale": 1.0, "mscale_all_dim": 1.0 });
    let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
    let (warnings, model) = converted(&checkpoint, Some("Ministral3ForCausalLM"), &ministral);
    assert_eq!((warnings, attn_factor(model.file())), (Vec::new(), None));
    let expected = [-1.68095, 0.84283, -2.08923, 0.22621, 1.15646, -1.01228, 2.08708, -2.94717];
    assert_near(&logits(&model, &tokens(&fixtures, "mistral-tiny")), &expected, "ministral3");
}

#[test]
fn what_no_gguf_says_of_yarn_is_told() {
    let Some(fixtures) = fixtures("yarn truncate") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "qwen3-tiny");
    let (warnings, _) = converted(&checkpoint, None, &json!({ "truncate": false }));
    assert_eq!(
        warnings,
        ["truncate is false, which a GGUF of qwen3 cannot say: the model will be run with true"]
    );
    let broken = Checkpoint::copy(&fixtures, "qwen3-tiny");
    broken.edit_json("config.json", |config| {
        config["rope_scaling"] =
            json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 0 });
    });
    assert_eq!(
        broken.failure(""),
        "qgguf: config.json: rope parameters: YaRN's attention factor would be 0, expected a number above 0"
    );
}
