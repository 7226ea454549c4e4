//! `qgguf export`: a folder that convert reads, complete or not at all.

use std::fs;
use std::path::Path;

use crate::handmade::Gguf;
use crate::support::{failure, json, qgguf, stderr, stdout, tiny_model};

/// What is in a folder, by name.
fn listing(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

#[test]
fn an_exported_model_is_converted_and_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, back) = (dir.path().join("kjv"), dir.path().join("back.gguf"));
    let flags = "export --outtype f32 --json -o";
    let report = json(qgguf(flags).arg(&folder).arg(tiny_model()));
    assert_eq!((&report["class"], &report["n_tensors"]), (&"Qwen3ForCausalLM".into(), &46.into()));
    assert_eq!(listing(dir.path()), ["kjv"]);
    let files = [
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(listing(&folder), files);
    stdout(qgguf("convert --outtype f32 -o").arg(&back).arg(&folder));
    let say = |model: &Path| {
        stdout(qgguf("run --temp 0 -n 24 -m").arg(model).args(["-p", "And the LORD said unto"]))
    };
    assert_eq!(say(&back), say(&tiny_model()));
}

#[cfg(unix)]
#[test]
fn a_folder_gets_the_rights_of_any_other() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let [made, exported] = ["made", "exported"].map(|name| dir.path().join(name));
    fs::create_dir(&made).unwrap();
    // An empty folder is as good as none, and a trailing slash no reason to fail.
    fs::create_dir(&exported).unwrap();
    let with_slash = format!("{}/", exported.display());
    stdout(qgguf("export -o").arg(with_slash).arg(tiny_model()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&exported), mode(&made));
    // An empty folder stays the one it is, whoever stands in it.
    let here = dir.path().join("here");
    fs::create_dir(&here).unwrap();
    fs::set_permissions(&here, fs::Permissions::from_mode(0o700)).unwrap();
    stdout(qgguf("export -o .").arg(tiny_model()).current_dir(&here));
    assert_eq!((mode(&here) & 0o777, listing(&here)), (0o700, listing(&exported)));
    let missing = failure(qgguf("export -o missing/x").arg(tiny_model()).current_dir(dir.path()), 1);
    assert!(missing.starts_with("qgguf: cannot write missing/x: No such file"), "{missing}");
}

#[test]
fn nothing_is_replaced_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name);
    fs::create_dir(out("full")).unwrap();
    fs::write(out("full/kept"), "old").unwrap();
    fs::write(out("file"), "old").unwrap();
    let mut unknown = Gguf::new();
    unknown.f32_tensor("token_embd.weight", &[32, 2], &[0.0; 64]);
    let unknown = unknown.save(dir.path(), "unknown.gguf");
    let cut = out("cut.gguf");
    fs::write(&cut, &fs::read(tiny_model()).unwrap()[..100_000]).unwrap();
    let before = listing(dir.path());

    let fail = |model: &Path, place: &str, code| {
        let line = failure(qgguf("export -o").arg(out(place)).arg(model), code);
        line.replace(&format!("{}/", dir.path().display()), "")
    };
    let tiny = tiny_model();
    assert_eq!(
        fail(&tiny, "full", 1),
        "qgguf: cannot write full: the folder is not empty; name one that does not exist"
    );
    assert!(fail(&tiny, "file", 1).starts_with("qgguf: cannot write file: Not a directory"));
    assert!(fail(&tiny, "no/such/place", 1).starts_with("qgguf: cannot write no/such/place: No such file"));
    let line = fail(&unknown, "new", 1);
    assert!(
        line.starts_with("qgguf: unknown.gguf: architecture \"test\" cannot be exported (possible: llama, "),
        "{line}"
    );
    assert!(fail(&cut, "new", 1).contains("cut.gguf"));
    assert!(fail(&out("absent.gguf"), "new", 1).contains("absent.gguf"));
    failure(qgguf("export --outtype q8_0 -o").arg(out("new")).arg(&tiny), 2);
    assert_eq!(listing(dir.path()), before);
    assert_eq!(fs::read(out("full/kept")).unwrap(), b"old");
}

/// A model of one layer, whose attention's output gets this bias.
fn one_layer(architecture: &str, model: &str, bias: &[f32; 4]) -> Gguf {
    let mut gguf = Gguf::default();
    gguf.string("general.architecture", architecture);
    for (key, value) in [
        ("block_count", 1),
        ("context_length", 64),
        ("embedding_length", 4),
        ("feed_forward_length", 4),
        ("attention.head_count", 1),
    ] {
        gguf.u32(&format!("{architecture}.{key}"), value);
    }
    gguf.f32(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-5);
    gguf.string("tokenizer.ggml.model", model);
    gguf.string("tokenizer.ggml.pre", "qwen2");
    gguf.strings("tokenizer.ggml.tokens", &["a", "b"]);
    if model == "llama" {
        gguf.f32s("tokenizer.ggml.scores", &[-1.0, -2.0]);
    }
    gguf.f32_tensor("token_embd.weight", &[4, 2], &[0.5; 8]);
    gguf.f32_tensor("output_norm.weight", &[4], &[1.0; 4]);
    for name in ["attn_norm", "ffn_norm"] {
        gguf.f32_tensor(&format!("blk.0.{name}.weight"), &[4], &[1.0; 4]);
    }
    for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
        gguf.f32_tensor(&format!("blk.0.{name}.weight"), &[4, 4], &[0.25; 16]);
    }
    gguf.f32_tensor("blk.0.attn_output.bias", &[4], bias);
    gguf
}

/// Exports a file into a folder `out` beside it, and returns what was noted and a file of the folder.
fn export(model: &Path, file: &str) -> (String, serde_json::Value) {
    let out = model.with_file_name("out");
    let output = qgguf("export -o").arg(&out).arg(model).output().unwrap();
    let notes = stderr(&output);
    assert!(output.status.success(), "{notes}");
    let value = serde_json::from_slice(&fs::read(out.join(file)).unwrap()).unwrap();
    fs::remove_dir_all(out).unwrap();
    (notes, value)
}

#[test]
fn keys_that_a_checkpoint_cannot_carry_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let mut gguf = one_layer("llama", "gpt2", &[0.0; 4]);
    gguf.string("general.description", "carried");
    gguf.string("general.url", "https://a");
    gguf.u32("tokenizer.ggml.fim_pre_token_id", 1);
    gguf.u32("tokenizer.ggml.eos_token_id", 1);
    gguf.string("quantize.imatrix.file", "of no interest");
    let (notes, _) = export(&gguf.save(dir.path(), "some.gguf"), "config.json");
    let expected =
        "warning: keys without a place in a checkpoint: general.url, tokenizer.ggml.fim_pre_token_id\n";
    assert!(notes.contains(expected), "{notes}");

    let mut gguf = one_layer("llama", "gpt2", &[0.0; 4]);
    (0..22).for_each(|i| gguf.u32(&format!("my.{i}"), 1));
    let (notes, _) = export(&gguf.save(dir.path(), "many.gguf"), "config.json");
    assert!(notes.contains("my.18, my.19 and 2 more\n"), "{notes}");

    let gguf = one_layer("llama", "gpt2", &[0.0; 4]);
    let (notes, _) = export(&gguf.save(dir.path(), "none.gguf"), "config.json");
    assert!(!notes.contains("warning"), "{notes}");
}

#[test]
fn one_bias_is_enough_for_transformers_to_look_for_biases_if_it_has_a_place_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let model = one_layer("llama", "gpt2", &[1.0; 4]).save(dir.path(), "llama.gguf");
    let (notes, config) = export(&model, "config.json");
    assert_eq!((&config["attention_bias"], &config["mlp_bias"]), (&true.into(), &false.into()));
    assert!(!notes.contains("warning"), "{notes}");

    let mut gguf = one_layer("qwen2", "gpt2", &[1.0; 4]);
    gguf.f32_tensor("blk.0.attn_q.bias", &[4], &[1.0; 4]);
    gguf.f32_tensor("blk.0.ffn_up.bias", &[4], &[1.0; 4]);
    let (notes, config) = export(&gguf.save(dir.path(), "qwen2.gguf"), "config.json");
    let expected = "warning: blk.0.attn_output.bias (and 1 more): transformers' Qwen2ForCausalLM has no such bias \
                    and leaves it out\n";
    assert!(notes.contains(expected), "{notes}");
    // The file does not say it, and Qwen2's default is another.
    assert_eq!(config["num_key_value_heads"], 1);
}

#[test]
fn weights_that_are_not_finite_are_named_with_the_file_and_the_flag() {
    let dir = tempfile::tempdir().unwrap();
    let model = one_layer("llama", "gpt2", &[0.0, f32::NAN, 0.0, 0.0]).save(dir.path(), "nan.gguf");
    let out = dir.path().join("out");
    let line = failure(qgguf("export -o").arg(&out).arg(&model), 1);
    let expected = format!(
        "qgguf: {}: tensor \"model.layers.0.self_attn.o_proj.bias\": NaN in row 0, column 1; expected finite weights \
         (--allow-nonfinite takes them as they are)",
        model.display()
    );
    assert_eq!(line, expected);
    stdout(qgguf("export --allow-nonfinite -o").arg(&out).arg(&model));
}

#[test]
fn a_vocabulary_of_pieces_gets_no_post_processor_for_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut gguf = one_layer("llama", "llama", &[0.0; 4]);
    gguf.bool("tokenizer.ggml.add_bos_token", false);
    let model = gguf.save(dir.path(), "pieces.gguf");
    assert!(export(&model, "tokenizer.json").1["post_processor"].is_null());
    let (notes, config) = export(&model, "tokenizer_config.json");
    assert_eq!(config["add_bos_token"], false);
    assert!(!notes.contains("add_bos_token"), "{notes}");
}
