//! What people have beside published checkpoints: vocabularies of their own, heads that are missing, quantized weights,
//! adapters, more ends of generation than a tokenizer names.

use std::fs;

use qgguf::model::{Model, ModelOptions};
use qgguf_gguf::{GgmlType, GgufFile, TensorSpec};
use serde_json::{Value, json};

use super::Checkpoint;
use crate::fixtures::fixtures;
use crate::support::stderr;

/// What a conversion that succeeds says, without the folder.
fn notes(checkpoint: &Checkpoint, flags: &str) -> Vec<String> {
    let output = checkpoint.command(flags).output().unwrap();
    let notes = stderr(&output).replace(&format!("{}/", checkpoint.folder().display()), "");
    assert!(output.status.success(), "{notes}");
    notes.lines().map(str::to_owned).collect()
}

/// Those of them that warn.
fn warnings(checkpoint: &Checkpoint, flags: &str) -> Vec<String> {
    let lines = notes(checkpoint, flags).into_iter();
    lines.filter_map(|line| Some(line.strip_prefix("qgguf: warning: ")?.to_owned())).collect()
}

#[test]
fn a_vocabulary_of_ones_own_with_a_known_pre_tokenizer_is_recognized() {
    let Some(fixtures) = fixtures("convert recognized") else { return };
    for (name, pre) in [
        ("qwen3-tiny", "qwen2"),
        ("llama-tiny", "llama-bpe"),
        ("smollm3-tiny", "smaug-bpe"),
        ("olmo2-tiny", "dbrx"),
        ("granite-tiny", "refact"),
    ] {
        let checkpoint = Checkpoint::copy(&fixtures, name);
        let said = format!(
            "qgguf: tokenizer.json: its vocabulary is its own, its pre-tokenizer that of {pre}, which is taken (--pre names \
             another)"
        );
        assert_eq!(notes(&checkpoint, "--dry-run").iter().filter(|line| **line == said).count(), 1, "{name}");
        let output = checkpoint.command("--vocab-only").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let file = GgufFile::open(checkpoint.out()).unwrap();
        assert_eq!(file.metadata().str("tokenizer.ggml.pre").unwrap(), Some(pre), "{name}");
        assert!(!notes(&checkpoint, "--dry-run --pre qwen2").contains(&said), "{name}");
    }
}

#[test]
fn a_head_that_is_missing_is_told() {
    let Some(fixtures) = fixtures("convert head") else { return };
    let expected = "config.json: tie_word_embeddings is false, but the checkpoint has no lm_head.weight, which transformers \
                    would begin at random: the output will use the embeddings";
    let checkpoint = Checkpoint::copy(&fixtures, "qwen3-tiny");
    assert_eq!(warnings(&checkpoint, "--dry-run"), [""; 0]);
    checkpoint.edit_json("config.json", |config| config["tie_word_embeddings"] = false.into());
    assert_eq!(warnings(&checkpoint, "--dry-run"), [expected]);
    // Without the key the default of the class counts.
    checkpoint.edit_json("config.json", |config| {
        config.as_object_mut().unwrap().remove("tie_word_embeddings").unwrap();
    });
    assert_eq!(warnings(&checkpoint, "--dry-run"), [expected]);
}

#[test]
fn quantized_weights_are_called_by_their_name() {
    let Some(fixtures) = fixtures("convert quantized") else { return };
    const FILE: &str = "model.safetensors";
    let packed = |ending: &str, dtype: Option<&str>, quantization: Option<Value>| {
        let checkpoint = Checkpoint::copy(&fixtures, "granite-tiny");
        if let Some(quantization) = quantization {
            checkpoint.edit_json("config.json", |config| config["quantization_config"] = quantization);
        }
        checkpoint.edit_header(FILE, |header| {
            let mut entries: Value = serde_json::from_str(&header).unwrap();
            let all = entries.as_object_mut().unwrap();
            let mut entry = all.remove("model.layers.0.mlp.up_proj.weight").unwrap();
            if let Some(dtype) = dtype {
                entry["dtype"] = dtype.into();
                entry["shape"][1] = (2 * entry["shape"][1].as_u64().unwrap()).into();
            }
            all.insert(format!("model.layers.0.mlp.up_proj{ending}"), entry);
            entries.to_string()
        });
        checkpoint
    };
    let gptq = || Some(json!({ "quant_method": "gptq", "bits": 4 }));
    let of = |ending: &str| format!("qgguf: {FILE}: tensor \"model.layers.0.mlp.up_proj{ending}\": ");
    let advice =
        "; packed weights are not converted: take the checkpoint that it was made from, or unpack it first";
    let without = |part: &str| {
        format!(
            "; what it is unpacked with is not even there: no tensor \"model.layers.0.mlp.up_proj{part}\""
        )
    };
    assert_eq!(
        packed(".qweight", None, gptq()).failure(""),
        format!("{}this is a checkpoint quantized with GPTQ{}{advice}", of(".qweight"), without(".scales"))
    );
    assert_eq!(
        packed(".weight_packed", None, None).failure(""),
        format!(
            "{}this is a checkpoint quantized with compressed-tensors, of which config.json has no \
             quantization_config{}{advice}",
            of(".weight_packed"),
            without(".weight_scale")
        )
    );
    for (quantization, said) in [
        (gptq(), "quantization_config names gptq"),
        (None, "config.json has no quantization_config that says so"),
    ] {
        assert_eq!(
            packed(".weight", Some("I8"), quantization).failure(""),
            format!(
                "{}stored as I8, which are weights of a quantized checkpoint ({said}); they are not converted: take the \
                 checkpoint that it was made from, or dequantize it first",
                of(".weight")
            )
        );
    }
    let line = packed(".weight", Some("F8_E4M3"), gptq()).failure("");
    let few =
        "; weights of so few bits are those of a quantized checkpoint: take the one that it was made from";
    assert!(line.contains("dtype F8_E4M3 cannot be converted") && line.ends_with(few), "{line}");

    let plain = Checkpoint::copy(&fixtures, "granite-tiny");
    plain.edit_json("config.json", |config| config["quantization_config"] = gptq().unwrap());
    let expected = "config.json: quantization_config names gptq, but all weights are plain numbers: they are taken as they are";
    assert_eq!(warnings(&plain, "--dry-run"), [expected]);
}

#[test]
fn an_adapter_is_told_as_one() {
    let Some(fixtures) = fixtures("convert adapter") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "granite-tiny");
    let adapter = json!({ "peft_type": "LORA", "base_model_name_or_path": "org/base" });
    fs::write(checkpoint.file("adapter_config.json"), adapter.to_string()).unwrap();
    // Beside a model it does not matter.
    assert_eq!(warnings(&checkpoint, "--dry-run"), [""; 0]);
    fs::rename(checkpoint.file("model.safetensors"), checkpoint.file("adapter_model.safetensors")).unwrap();
    let expected = "qgguf: .: this is an adapter (LORA adapter_config.json of org/base), not a model: merge it into its model \
                    first (peft: merge_and_unload, then save_pretrained) and convert that";
    assert_eq!(checkpoint.failure(""), expected);
    fs::remove_file(checkpoint.file("config.json")).unwrap();
    assert_eq!(checkpoint.failure(""), expected);
}

#[test]
fn further_ends_of_generation_are_kept_where_there_is_room() {
    let Some(fixtures) = fixtures("convert ends") else { return };
    // The tokenizer ends texts with 770, and 768 is known by its text.
    let checkpoint = Checkpoint::copy(&fixtures, "qwen3-tiny");
    let with = |ids: Value| {
        checkpoint.edit_json("generation_config.json", |config| config["eos_token_id"] = ids);
        let warnings = warnings(&checkpoint, "--vocab-only");
        let file = GgufFile::open(checkpoint.out()).unwrap();
        let ids = ["eos", "eot", "eom"]
            .map(|kind| file.metadata().u32(&format!("tokenizer.ggml.{kind}_token_id")).unwrap());
        (ids, warnings)
    };
    assert_eq!(with(json!([770, 768])), ([Some(770), None, None], vec![]));
    assert_eq!(with(json!([770, 5])), ([Some(770), None, Some(5)], vec![]));
    let text = GgufFile::open(checkpoint.out()).unwrap();
    let text = text.metadata().strings("tokenizer.ggml.tokens").unwrap().unwrap().get(7).unwrap().to_owned();
    assert_eq!(
        with(json!([5, 6, 7, 9000])),
        (
            [Some(770), Some(6), Some(5)],
            vec![
                format!(
                    "generation_config.json: token 7 ({text:?}) ends a generation, which a GGUF has no more room to say: \
                     programs will not stop at it"
                ),
                "generation_config.json: \"eos_token_id\" has 9000, but there are only 800 tokens: it is left out".to_owned(),
            ]
        )
    );
    // A model that is run stops at each that its file has.
    warnings(&checkpoint, "");
    let model = Model::open(checkpoint.out(), &ModelOptions::default()).unwrap();
    for id in [5, 6, 768, 770] {
        assert!(model.tokenizer().is_eog(id), "{id}");
    }
    checkpoint.edit_json("generation_config.json", |config| config["eos_token_id"] = "x".into());
    assert_eq!(
        super::super::support::failure(&mut checkpoint.command(""), 1)
            .replace(&format!("{}/", checkpoint.folder().display()), ""),
        "qgguf: generation_config.json: \"eos_token_id\": expected an id of a token or a list of them, found \"x\""
    );
}

#[test]
fn special_tokens_and_settings_out_of_range_are_told() {
    let Some(fixtures) = fixtures("convert ranges") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "granite-tiny");
    checkpoint.edit_json("config.json", |config| config["pad_token_id"] = 5000.into());
    fs::write(
        checkpoint.file("generation_config.json"),
        r#"{"top_p": 1.5, "temperature": -1, "repetition_penalty": 0, "top_k": 1e3, "min_p": 0.25}"#,
    )
    .unwrap();
    let file = "generation_config.json";
    assert_eq!(
        warnings(&checkpoint, "--vocab-only"),
        [
            format!("{file}: \"top_k\": expected an integer, found 1000.0; it is left out"),
            format!("{file}: \"top_p\": expected a number from 0 to 1, found 1.5; it is left out"),
            format!("{file}: \"temperature\": expected a number not below 0, found -1; it is left out"),
            format!("{file}: \"repetition_penalty\": expected a number above 0, found 0; it is left out"),
            "config.json: \"pad_token_id\" is 5000, but there are only 656 tokens: it is left out".to_owned(),
        ]
    );
    let written = GgufFile::open(checkpoint.out()).unwrap();
    let sampling = written.metadata().iter().filter(|(key, _)| key.starts_with("general.sampling."));
    assert_eq!(sampling.map(|(key, _)| key).collect::<Vec<_>>(), ["general.sampling.min_p"]);
}

#[test]
fn layers_that_rotate_or_slide_otherwise_are_said_or_told() {
    let Some(fixtures) = fixtures("convert layers") else { return };
    let smollm3 = Checkpoint::copy(&fixtures, "smollm3-tiny");
    smollm3.edit_json("config.json", |config| config["no_rope_layers"] = json!([1, 0, 1, 0]));
    let lost = |key: &str, found: &str, usual: &str| {
        format!(
            "config.json: {key} is {found}, which a GGUF of smollm3 cannot say: the model will be run with {usual}"
        )
    };
    assert_eq!(warnings(&smollm3, "--dry-run"), [lost("no_rope_layers", "[1,0,1,0]", "[1,1,1,0]")]);
    smollm3.edit_json("config.json", |config| {
        config["no_rope_layers"] = Value::Null;
        config["no_rope_layer_interval"] = 2.into();
    });
    assert_eq!(warnings(&smollm3, "--dry-run"), [lost("no_rope_layer_interval", "2", "4")]);

    let gemma3 = Checkpoint::copy(&fixtures, "gemma3-tiny");
    let windows = |edit: &dyn Fn(&mut Value)| {
        gemma3.edit_json("config.json", edit);
        let n_warnings = warnings(&gemma3, "").len();
        let file = GgufFile::open(gemma3.out()).unwrap();
        let pattern =
            file.metadata().get("gemma3.attention.sliding_window_pattern").map(|v| format!("{v:?}"));
        // The runtime takes it.
        Model::open(gemma3.out(), &ModelOptions::default()).unwrap();
        (n_warnings, pattern)
    };
    assert_eq!(windows(&|_| {}), (0, None));
    assert_eq!(
        windows(&|config| config["sliding_window_pattern"] = 3.into()),
        (1, Some("U32(3)".to_owned()))
    );
    let types = |full: &[usize]| -> Value {
        let name = |i| if full.contains(&i) { "full_attention" } else { "sliding_attention" };
        (0..7).map(name).collect()
    };
    assert_eq!(windows(&|config| config["layer_types"] = types(&[5])), (0, None));
    let (n_warnings, pattern) = windows(&|config| config["layer_types"] = types(&[0, 5]));
    assert_eq!(n_warnings, 1);
    assert!(pattern.unwrap().contains("[false, true, true, true, true, false, true]"));
    gemma3.edit_json("config.json", |config| config["layer_types"] = json!(["full_attention"]));
    let line = super::super::support::failure(&mut gemma3.command(""), 1);
    assert!(
        line.contains("\"layer_types\": expected a list of 7 layers, found [\"full_attention\"]"),
        "{line}"
    );
}

/// A Gemma 2 of zeros with the vocabulary of a Gemma 3.
fn gemma2(fixtures: &std::path::Path) -> Checkpoint {
    let checkpoint = Checkpoint::copy(fixtures, "gemma3-tiny");
    checkpoint.edit_json("config.json", |config| {
        config["architectures"] = json!(["Gemma2ForCausalLM"]);
        config["num_hidden_layers"] = 1.into();
        config["query_pre_attn_scalar"] = 32.into();
        for key in
            ["attn_logit_softcapping", "final_logit_softcapping", "rope_theta", "sliding_window_pattern"]
        {
            config.as_object_mut().unwrap().remove(key);
        }
    });
    let layer = |name: &str| format!("layers.0.{name}");
    let (q, kv, ff) = (128, 64, 192);
    let specs = [
        ("embed_tokens".to_owned(), vec![64, 800]),
        ("norm".to_owned(), vec![64]),
        (layer("input_layernorm"), vec![64]),
        (layer("post_attention_layernorm"), vec![64]),
        (layer("pre_feedforward_layernorm"), vec![64]),
        (layer("post_feedforward_layernorm"), vec![64]),
        (layer("self_attn.q_proj"), vec![64, q]),
        (layer("self_attn.k_proj"), vec![64, kv]),
        (layer("self_attn.v_proj"), vec![64, kv]),
        (layer("self_attn.o_proj"), vec![q, 64]),
        (layer("mlp.gate_proj"), vec![64, ff]),
        (layer("mlp.up_proj"), vec![64, ff]),
        (layer("mlp.down_proj"), vec![ff, 64]),
    ]
    .map(|(name, shape)| TensorSpec { name: format!("model.{name}.weight"), ty: GgmlType::F16, shape });
    let mut bytes = qgguf_convert::hf::safetensors::header(&specs);
    let n_weights = specs.iter().map(|spec| spec.shape.iter().product::<u64>()).sum::<u64>();
    bytes.resize(bytes.len() + 2 * n_weights as usize, 0);
    fs::write(checkpoint.file("model.safetensors"), bytes).unwrap();
    checkpoint
}

#[test]
fn caps_and_a_base_of_gemma2_that_are_not_the_usual() {
    let Some(fixtures) = fixtures("convert gemma2") else { return };
    let checkpoint = gemma2(&fixtures);
    let keys = |checkpoint: &Checkpoint| {
        let warnings = warnings(checkpoint, "");
        let file = GgufFile::open(checkpoint.out()).unwrap();
        let names = ["attn_logit_softcapping", "final_logit_softcapping", "rope.freq_base"];
        (names.map(|name| file.metadata().f32(&format!("gemma2.{name}")).unwrap()), warnings)
    };
    assert_eq!(keys(&checkpoint), ([Some(50.0), Some(30.0), None], vec![]));
    checkpoint.edit_json("config.json", |config| {
        config["attn_logit_softcapping"] = Value::Null;
        config["final_logit_softcapping"] = Value::Null;
        config["rope_theta"] = 5e5.into();
    });
    let lost = |key: &str, usual: u32| {
        format!(
            "config.json: {key} is null, which a GGUF of gemma2 cannot say: the model will be run with {usual}"
        )
    };
    assert_eq!(
        keys(&checkpoint),
        (
            [None, None, Some(5e5)],
            vec![lost("attn_logit_softcapping", 50), lost("final_logit_softcapping", 30)]
        )
    );
}

#[test]
fn off_a_terminal_progress_is_a_line_for_each_tenth() {
    let Some(fixtures) = fixtures("convert progress") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "gemma3-tiny");
    let lines = notes(&checkpoint, "").into_iter().filter(|line| line.starts_with('[')).collect::<Vec<_>>();
    let n_tensors = GgufFile::open(checkpoint.out()).unwrap().tensors().len();
    assert!(n_tensors > 80 && (2..=10).contains(&lines.len()), "{lines:?}");
    assert!(lines.last().unwrap().starts_with(&format!("[{n_tensors}/{n_tensors}] ")), "{lines:?}");
}
