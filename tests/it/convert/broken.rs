//! Checkpoints that are broken fail with a text that helps, and leave no file behind.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{Checkpoint, INDEX, SHARD};
use crate::fixtures::fixtures;
use crate::support::{failure, qgguf, stderr, stdout};

#[test]
fn shards_and_their_index_must_agree() {
    let Some(fixtures) = fixtures("convert shards") else { return };
    let untied = || Checkpoint::copy(&fixtures, "qwen3-untied");

    let missing = untied();
    fs::remove_file(missing.file(SHARD)).unwrap();
    assert_eq!(missing.failure(""), format!("qgguf: {SHARD}: this shard is missing ({INDEX} names it)"));

    let absent = untied();
    absent.edit_json(INDEX, |index| index["weight_map"]["model.extra.weight"] = SHARD.into());
    assert_eq!(
        absent.failure(""),
        format!(
            "qgguf: {INDEX}: tensor \"model.extra.weight\": it is in none of the files, expected in {SHARD}"
        )
    );

    let extra = untied();
    extra.edit_json(INDEX, |index| {
        index["weight_map"].as_object_mut().unwrap().remove("model.norm.weight");
    });
    let line = extra.failure("");
    assert!(line.starts_with(&format!("qgguf: {INDEX}: tensor \"model.norm.weight\": ")), "{line}");
    assert!(line.ends_with("has it, but the index does not"), "{line}");

    let outside = untied();
    outside.edit_json(INDEX, |index| index["weight_map"]["lm_head.weight"] = "../x.safetensors".into());
    assert!(outside.failure("").contains("expected names of files in the same folder"));

    // Several files without an index are taken in the order of their names.
    let no_index = untied();
    fs::remove_file(no_index.file(INDEX)).unwrap();
    stdout(&mut no_index.command("--pre qwen2"));
}

#[test]
fn broken_safetensors_are_refused() {
    let Some(fixtures) = fixtures("convert safetensors") else { return };
    const FILE: &str = "model.safetensors";
    let tiny = || Checkpoint::copy(&fixtures, "granite-tiny");
    let broken = |edit: &dyn Fn(String) -> String| {
        let checkpoint = tiny();
        checkpoint.edit_header(FILE, edit);
        checkpoint.failure("--pre refact")
    };

    let truncated = tiny();
    let bytes = fs::read(truncated.file(FILE)).unwrap();
    fs::write(truncated.file(FILE), &bytes[..bytes.len() - 100]).unwrap();
    let line = truncated.failure("");
    assert!(line.contains("it is truncated or damaged"), "{line}");

    fs::write(truncated.file(FILE), &bytes[..5]).unwrap();
    assert_eq!(
        truncated.failure(""),
        "qgguf: model.safetensors: not a safetensors file: 5 bytes, expected at least 8"
    );

    let mut long = bytes.clone();
    long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    fs::write(truncated.file(FILE), &long).unwrap();
    let line = truncated.failure("");
    assert!(line.contains("header length 18446744073709551615, expected at most "), "{line}");

    let line = broken(&|header| header.replacen("\"data_offsets\":[0,", "\"data_offsets\":[2,", 1));
    assert!(line.contains("bytes are stored"), "{line}");
    let line = broken(&|header| {
        let entry: serde_json::Map<String, Value> = serde_json::from_str(&header).unwrap();
        let (name, first) = entry.iter().find(|(name, _)| *name != "__metadata__").unwrap();
        format!("{{\"{name}\":{first},{}", &header[1..])
    });
    assert!(line.contains("appears twice"), "{line}");
    let line = broken(&|_| format!("{{\"a\":{}", "[".repeat(10_000)));
    assert!(line.contains("model.safetensors: header of the safetensors file: tensor \"a\": "), "{line}");
    let line = broken(&|header| header.replacen("\"BF16\"", "\"F4\"", 1));
    assert!(line.contains("dtype F4 cannot be converted (possible: F64, F32, F16, BF16, "), "{line}");
    let shifted = |which: fn(&str, &Value) -> bool, by: i64| {
        move |header: String| {
            let mut entries: Value = serde_json::from_str(&header).unwrap();
            for (name, entry) in entries.as_object_mut().unwrap() {
                if which(name, entry) {
                    for i in 0..2 {
                        let at = entry["data_offsets"][i].as_i64().unwrap() + by;
                        entry["data_offsets"][i] = at.into();
                    }
                }
            }
            entries.to_string()
        }
    };
    let line = broken(&shifted(|name, _| name == "model.norm.weight", -2));
    assert!(line.contains("it overlaps the tensor before it"), "{line}");
    let line = broken(&shifted(|_, entry| entry["data_offsets"][0] == 0, 2));
    assert!(line.contains("it leaves a hole"), "{line}");
}

#[test]
fn a_configuration_that_does_not_fit_is_named() {
    let Some(fixtures) = fixtures("convert configurations") else { return };
    let with = |edit: &dyn Fn(&mut Value)| {
        let checkpoint = Checkpoint::copy(&fixtures, "granite-tiny");
        checkpoint.edit_json("config.json", edit);
        checkpoint.failure("--pre refact")
    };
    assert_eq!(
        with(&|config| config["intermediate_size"] = 193.into()),
        "qgguf: model.safetensors: tensor \"model.layers.0.mlp.down_proj.weight\": shape [64, 192], expected [64, 193] by \
         config.json"
    );
    let line = with(&|config| config["architectures"] = json!(["FooForCausalLM"]));
    assert!(
        line.starts_with(
            "qgguf: config.json: architecture FooForCausalLM is not supported (supported: LlamaForCausalLM, "
        ),
        "{line}"
    );
    let line = with(&|config| config["num_hidden_layers"] = 2.into());
    assert!(line.contains("GraniteForCausalLM has no such tensor in a model of 2 layers"), "{line}");
    let line = with(&|config| config["num_hidden_layers"] = 4.into());
    assert_eq!(
        line,
        "qgguf: .: tensor \"model.layers.3.input_layernorm.weight\": it is missing from the checkpoint"
    );
    assert_eq!(
        with(&|config| config["num_hidden_layers"] = 0.into()),
        "qgguf: config.json: \"num_hidden_layers\": expected an integer above 0, found 0"
    );
    assert_eq!(
        with(&|config| _ = config.as_object_mut().unwrap().remove("num_hidden_layers")),
        "qgguf: config.json: \"n_layers\" or \"num_hidden_layers\" or \"n_layer\" or \"num_layers\": expected an integer \
         above 0, found nothing"
    );
    let line = with(&|config| config["hidden_size"] = "big".into());
    assert_eq!(
        line,
        "qgguf: config.json: \"hidden_size\": expected an integer from 0 to 4294967295, found \"big\""
    );
    let line = with(&|config| config["vocab_size"] = json!(1u64 << 60));
    assert!(line.starts_with("qgguf: config.json: \"vocab_size\": expected an integer"), "{line}");
    let line = with(&|config| config["rope_scaling"] = json!({"rope_type": "spiral"}));
    assert!(line.contains("rope_type \"spiral\" is not supported"), "{line}");

    let flat = Checkpoint::copy(&fixtures, "phi3-tiny");
    flat.edit_json("config.json", |config| config["rope_scaling"]["long_factor"][1] = 0.into());
    let line = flat.failure("");
    assert!(
        line.contains("long_factor\": expected ") && line.contains(" positive numbers, found "),
        "{line}"
    );

    let deep = Checkpoint::copy(&fixtures, "granite-tiny");
    fs::write(deep.file("config.json"), "[".repeat(100_000)).unwrap();
    assert!(deep.failure("").starts_with("qgguf: config.json: recursion limit exceeded"));
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_is_made_for_heads_that_the_tensors_do_not_have() {
    let Some(fixtures) = fixtures("convert wide heads") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "llama-tiny");
    checkpoint.edit_json("config.json", |config| config["head_dim"] = json!(1u64 << 31));
    // The rope factors of such heads would take twice as much.
    let mut limited = assert_cmd::Command::new("sh");
    limited.args(["-c", "ulimit -v 2097152; exec \"$0\" convert \"$1\" --pre llama-bpe"]);
    limited.args([Path::new(env!("CARGO_BIN_EXE_qgguf")), &checkpoint.folder()]);
    let line = failure(&mut limited, 1);
    assert!(line.contains("expected [4294967296, 256] by "), "{line}");
}

#[test]
fn tokenizers_must_be_there_and_fit() {
    let Some(fixtures) = fixtures("convert tokenizers") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "qwen3-tiny");
    checkpoint.edit_json("tokenizer.json", |t| t["normalizer"] = json!({ "type": "NFKC" }));
    let line = checkpoint.failure("");
    assert!(line.starts_with("qgguf: tokenizer.json: unknown pre-tokenizer (fingerprint "), "{line}");
    let nearest = "the nearest known one is qwen2: its normalizer is [\"NFKC\"], that of qwen2 [\"NFC\"]; if that makes \
                   no difference, name it with --pre NAME (known: command-r, ";
    assert!(line.contains(nearest), "{line}");
    let line = checkpoint.failure("--pre nonsense");
    assert!(line.contains("nonsense"), "{line}");

    checkpoint.edit_json("tokenizer.json", |t| t["model"]["vocab"]["extra"] = 800.into());
    assert_eq!(
        checkpoint.failure("--pre qwen2"),
        "qgguf: tokenizer.json: token \"extra\" has id 800, but the embedding has only 800 rows"
    );
    checkpoint.edit_json("tokenizer.json", |t| t["model"]["type"] = "Unigram".into());
    assert!(checkpoint.failure("--pre qwen2").contains("a tokenizer of type Unigram is not supported"));

    fs::remove_file(checkpoint.file("tokenizer.json")).unwrap();
    assert_eq!(
        checkpoint.failure("--pre qwen2"),
        "qgguf: tokenizer.json: this file is missing, and no tokenizer.model either"
    );

    let spm = Checkpoint::copy(&fixtures, "mistral-tiny");
    fs::write(spm.file("tokenizer.model"), b"\x0a\xff\xff\xff\xff\x0f").unwrap();
    assert_eq!(spm.failure(""), "qgguf: tokenizer.model: not a SentencePiece model: the file is truncated");
}

#[test]
fn what_is_no_checkpoint_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let fail =
        |path: &Path| failure(qgguf("convert").arg(path), 1).replace(&dir.path().display().to_string(), "D");
    assert_eq!(fail(dir.path()), "qgguf: D: no model*.safetensors in this folder");
    let missing = fail(&dir.path().join("nowhere"));
    assert!(missing.starts_with("qgguf: D/nowhere: No such file or directory"), "{missing}");

    let consolidated = dir.path().join("consolidated.safetensors");
    fs::write(&consolidated, b"x").unwrap();
    assert_eq!(
        fail(dir.path()),
        "qgguf: D: no model*.safetensors in this folder; if all weights are in D/consolidated.safetensors, name that file"
    );
    fs::remove_file(consolidated).unwrap();

    fs::write(dir.path().join("pytorch_model.bin"), b"x").unwrap();
    let pickle = fail(dir.path());
    assert!(
        pickle.starts_with(
            "qgguf: D/pytorch_model.bin: this is a Python pickle, which can run any code when it is read"
        ),
        "{pickle}"
    );
    assert!(pickle.contains("convert it to safetensors first"), "{pickle}");
    assert_eq!(fail(&dir.path().join("pytorch_model.bin")), pickle);

    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
        assert!(
            fail(&dir.path().join("loop")).starts_with("qgguf: D/loop: Too many levels of symbolic links")
        );
        std::os::unix::fs::symlink("config.json", dir.path().join("config.json")).unwrap();
        let looped = fail(dir.path());
        assert!(looped.contains("Too many levels of symbolic links"), "{looped}");
    }
    let left = fs::read_dir(dir.path())
        .unwrap()
        .filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|e| e == "gguf"));
    assert_eq!(left.count(), 0);
}

#[test]
fn an_output_in_a_folder_that_is_missing_is_refused() {
    let Some(fixtures) = fixtures("convert folder") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
    for output in ["nowhere/", "nowhere/{ftype}/"] {
        let mut command = qgguf("convert");
        command.arg(checkpoint.folder()).args(["-o", output]).current_dir(checkpoint.dir.path());
        assert_eq!(failure(&mut command, 1), format!("qgguf: {output}: no such folder"));
        assert!(!checkpoint.dir.path().join("nowhere").exists());
    }
}

#[test]
fn a_context_length_that_nobody_states_is_the_default_of_the_class_or_an_error() {
    let Some(fixtures) = fixtures("convert context") else { return };
    let without = |name: &str| {
        let checkpoint = Checkpoint::copy(&fixtures, name);
        checkpoint.edit_json("config.json", |config| {
            config.as_object_mut().unwrap().remove("max_position_embeddings").unwrap();
        });
        checkpoint
    };
    // What transformers 4.57.6 has in its configuration classes.
    for (name, default) in [("mistral-tiny", 131_072), ("qwen3-tiny", 32_768), ("granite-tiny", 2048)] {
        let checkpoint = without(name);
        let output = checkpoint.command("--pre qwen2").output().unwrap();
        let notes = stderr(&output);
        assert!(output.status.success(), "{notes}");
        let expected =
            format!("config.json: no \"max_position_embeddings\", {default} is taken, the default of ");
        assert!(notes.contains(&expected), "{notes}");
        let file = qgguf_gguf::GgufFile::open(checkpoint.dir.path().join("out/model.gguf")).unwrap();
        let key = format!("{}.context_length", file.architecture().unwrap());
        assert_eq!(file.metadata().require_u32(&key).unwrap(), default);
    }
    // A class that this version of transformers does not have.
    let checkpoint = without("mistral-tiny");
    checkpoint.edit_json("config.json", |config| config["architectures"] = json!(["Ministral3ForCausalLM"]));
    let line = checkpoint.failure("");
    assert!(line.starts_with("qgguf: config.json: \"max_position_embeddings\" or \"n_ctx\" or "), "{line}");
    assert!(line.ends_with(": expected an integer above 0, found nothing"), "{line}");
    checkpoint.edit_json("config.json", |config| config["max_position_embeddings"] = 0.into());
    let expected = "qgguf: config.json: \"max_position_embeddings\": expected an integer above 0, found 0";
    assert_eq!(checkpoint.failure(""), expected);
}

#[test]
fn what_the_runtime_would_refuse_is_refused_before_the_work() {
    let Some(fixtures) = fixtures("convert unusable") else { return };
    let with = |name: &str, key: &str, value: Value| {
        let checkpoint = Checkpoint::copy(&fixtures, name);
        checkpoint.edit_json("config.json", |config| config[key] = value);
        checkpoint.failure("--pre qwen2")
    };
    assert_eq!(
        with("granite-tiny", "logits_scaling", 0.into()),
        "qgguf: .: metadata key \"granite.logit_scale\" is missing (expected f32)"
    );
    assert_eq!(
        with("qwen3moe-tiny", "num_experts_per_tok", 1000.into()),
        "qgguf: .: metadata key \"qwen3moe.expert_used_count\": expected 1 to expert_count (8), or both 0, found 1000"
    );
    assert_eq!(
        with("mistral-tiny", "rms_norm_eps", (-1).into()),
        "qgguf: .: metadata key \"llama.attention.layer_norm_rms_epsilon\": expected a number not below 0, found -1"
    );
    // Types are another matter: who makes such a file has another runtime for it.
    let checkpoint = Checkpoint::copy(&fixtures, "llama-tiny");
    let output = checkpoint.command("--pre llama-bpe --outtype q2_0").output().unwrap();
    let notes = stderr(&output);
    assert!(output.status.success(), "{notes}");
    assert!(notes.contains("has type q2_0, which is not supported for inference"), "{notes}");
}

#[test]
fn broken_files_beside_the_weights_are_named() {
    let Some(fixtures) = fixtures("convert side files") else { return };
    let with = |name: &str, bytes: &[u8]| {
        let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
        let path = checkpoint.file(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        checkpoint.failure("")
    };
    let not_text = b"{{ messages }}\xff";
    for name in ["chat_template.jinja", "additional_chat_templates/tools.jinja"] {
        assert_eq!(
            with(name, not_text),
            format!("qgguf: {name}: expected UTF-8, found an invalid byte at 14")
        );
    }
    for name in [
        "tokenizer_config.json",
        "generation_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.json",
        "config.json",
    ] {
        let expected = format!("qgguf: {name}: expected UTF-8, found an invalid byte at 2");
        assert_eq!(with(name, b"{\"\xff\": 1}"), expected);
        let marked =
            format!("qgguf: {name}: expected JSON, found a byte order mark (EF BB BF) in front of it");
        assert_eq!(with(name, b"\xef\xbb\xbf{}"), marked);
        assert_eq!(with(name, b"[]"), format!("qgguf: {name}: expected a JSON object"));
        let line = with(name, b"{");
        assert!(line.starts_with(&format!("qgguf: {name}: EOF while parsing")), "{line}");
    }
    assert_eq!(
        with("chat_template.json", b"{\"chat_template\": 7}"),
        "qgguf: chat_template.json: \"chat_template\": expected a text, found 7"
    );
    assert_eq!(
        with("tokenizer_config.json", b"{\"chat_template\": [{\"name\": \"default\"}]}"),
        "qgguf: tokenizer_config.json: \"chat_template\": expected a text or a list of objects with \"name\" and \
         \"template\", found [{\"name\":\"default\"}]"
    );
    assert_eq!(
        with("special_tokens_map.json", b"{\"bos_token\": 1}"),
        "qgguf: special_tokens_map.json: \"bos_token\": expected a text or an object with \"content\", found 1"
    );
    assert_eq!(
        with("added_tokens.json", b"{\"<x>\": \"1\"}"),
        "qgguf: added_tokens.json: token \"<x>\": expected an id, found \"1\""
    );
    assert_eq!(
        with("tokenizer_config.json", b"{\"added_tokens_decoder\": {\"x\": {\"content\": \"<x>\"}}}"),
        "qgguf: tokenizer_config.json: added token: expected an \"id\" and a text \"content\", found \
         {\"content\":\"<x>\"}"
    );
    assert_eq!(
        with("generation_config.json", b"{\"top_k\": \"all\"}"),
        "qgguf: generation_config.json: \"top_k\": expected an integer, found \"all\""
    );
}
