//! `qgguf convert`: what it takes, writes and says.

mod broken;
mod finetunes;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use qgguf_convert::hf::safetensors;
use qgguf_gguf::{GgmlType, TensorSpec};
use serde_json::{Value, json};

use crate::fixtures::fixtures;
use crate::support::{failure, qgguf, stderr, stdout};

/// A copy of a checkpoint that a test may break.
pub struct Checkpoint {
    dir: tempfile::TempDir,
}

impl Checkpoint {
    pub fn copy(fixtures: &Path, name: &str) -> Checkpoint {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("out")).unwrap();
        let checkpoint = Checkpoint { dir };
        fs::create_dir(checkpoint.folder()).unwrap();
        for entry in fs::read_dir(fixtures.join("hf").join(name)).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap();
            if !file.to_string_lossy().starts_with("reference") {
                fs::write(checkpoint.file(file.to_str().unwrap()), fs::read(&path).unwrap()).unwrap();
            }
        }
        checkpoint
    }

    /// One layer of zeros, most of them in its feed-forward network, and how many weights there are.
    fn of_zeros(fixtures: &Path, n_ff: u64) -> (Checkpoint, u64) {
        let checkpoint = Checkpoint::copy(fixtures, "mistral-tiny");
        checkpoint.edit_json("config.json", |config| {
            config["num_hidden_layers"] = json!(1);
            config["intermediate_size"] = json!(n_ff);
        });
        let specs = [
            ("model.embed_tokens", vec![64, 768]),
            ("model.norm", vec![64]),
            ("lm_head", vec![64, 768]),
            ("model.layers.0.input_layernorm", vec![64]),
            ("model.layers.0.post_attention_layernorm", vec![64]),
            ("model.layers.0.self_attn.q_proj", vec![64, 128]),
            ("model.layers.0.self_attn.k_proj", vec![64, 64]),
            ("model.layers.0.self_attn.v_proj", vec![64, 64]),
            ("model.layers.0.self_attn.o_proj", vec![128, 64]),
            ("model.layers.0.mlp.gate_proj", vec![64, n_ff]),
            ("model.layers.0.mlp.up_proj", vec![64, n_ff]),
            ("model.layers.0.mlp.down_proj", vec![n_ff, 64]),
        ]
        .map(|(name, shape)| TensorSpec { name: format!("{name}.weight"), ty: GgmlType::F16, shape });
        let header = safetensors::header(&specs);
        let n_weights = specs.iter().map(|spec| spec.shape.iter().product::<u64>()).sum::<u64>();
        // Holes, which are zeros.
        let path = checkpoint.file("model.safetensors");
        fs::write(&path, &header).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(header.len() as u64 + 2 * n_weights).unwrap();
        (checkpoint, n_weights)
    }

    pub fn folder(&self) -> PathBuf {
        self.dir.path().join("model")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    pub fn edit_json(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_slice(&fs::read(self.file(name)).unwrap()).unwrap();
        edit(&mut value);
        fs::write(self.file(name), value.to_string()).unwrap();
    }

    /// Changes the header of a safetensors file and leaves its data.
    fn edit_header(&self, name: &str, edit: impl FnOnce(String) -> String) {
        let bytes = fs::read(self.file(name)).unwrap();
        let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header = edit(String::from_utf8(bytes[8..8 + n].to_vec()).unwrap());
        let mut out = (header.len() as u64).to_le_bytes().to_vec();
        out.extend(header.as_bytes());
        out.extend(&bytes[8 + n..]);
        fs::write(self.file(name), out).unwrap();
    }

    /// Overwrites the first bytes of a tensor.
    fn poke(&self, tensor: &str, new: &[u8]) {
        let path = self.file("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[8..8 + n]).unwrap();
        let at = 8 + n + header[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
        bytes[at..at + new.len()].copy_from_slice(new);
        fs::write(path, bytes).unwrap();
    }

    /// Stores the bf16 tensors with `part` in their names as f32.
    fn widen(&self, part: &str) {
        let path = self.file("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        let (n, data) = bytes[8..].split_at(u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize);
        let mut header: BTreeMap<String, Value> = serde_json::from_slice(n).unwrap();
        let mut new = Vec::new();
        for (name, entry) in header.iter_mut().filter(|(name, _)| *name != "__metadata__") {
            let [start, end] = [0, 1].map(|i| entry["data_offsets"][i].as_u64().unwrap() as usize);
            let at = new.len();
            match name.contains(part) {
                true => {
                    entry["dtype"] = "F32".into();
                    new.extend(data[start..end].as_chunks().0.iter().flat_map(|&[a, b]| [0, 0, a, b]));
                }
                false => new.extend(&data[start..end]),
            }
            entry["data_offsets"] = json!([at, new.len()]);
        }
        let header = serde_json::to_vec(&header).unwrap();
        fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], &header, &new].concat()).unwrap();
    }

    /// Where [`Checkpoint::command`] writes.
    pub fn out(&self) -> PathBuf {
        self.dir.path().join("out/model.gguf")
    }

    pub fn command(&self, flags: &str) -> assert_cmd::Command {
        let mut command = qgguf("convert");
        command.arg(self.folder()).arg("-o").arg(self.out());
        command.args(flags.split_whitespace());
        command
    }

    /// The error, without the place; nothing may be left in the output folder.
    pub fn failure(&self, flags: &str) -> String {
        let line = failure(&mut self.command(flags), 1);
        let left: Vec<_> = fs::read_dir(self.dir.path().join("out")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        line.replace(&format!("{}/", self.folder().display()), "")
            .replace(&self.folder().display().to_string(), ".")
    }
}

const SHARD: &str = "model-00002-of-00003.safetensors";
const INDEX: &str = "model.safetensors.index.json";

#[test]
fn weights_that_are_not_finite_are_named() {
    let Some(fixtures) = fixtures("convert not finite") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
    let tensor = "model.layers.1.mlp.up_proj.weight";
    checkpoint.poke(tensor, &[0.5, f32::NAN].map(f32::to_le_bytes).concat());
    for outtype in ["f32", "f16", "q8_0", "q4_k_m"] {
        assert_eq!(
            checkpoint.failure(&format!("--outtype {outtype}")),
            "qgguf: .: tensor \"blk.1.ffn_up.weight\": NaN in row 0, column 1; expected finite weights \
             (--allow-nonfinite takes them as they are)"
        );
    }
    stdout(&mut checkpoint.command("--outtype f16 --allow-nonfinite"));

    let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
    for (weights, outtype, expected) in [
        (
            &[1e6f32][..],
            "f16",
            "1 weight is beyond the range of f16 and became infinite (--outtype bf16 and f32 have room for it)",
        ),
        (
            &[-1e6, 1e6],
            "f16",
            "2 weights are beyond the range of f16 and became infinite (--outtype bf16 and f32 have room for them)",
        ),
        (
            &[1e6, -3.4e38],
            "f16",
            "2 weights are beyond the range of f16 and became infinite (--outtype f32 has room for them)",
        ),
        (
            &[1e6, 3.4e38],
            "auto",
            "1 weight is beyond the range of bf16 and became infinite (--outtype f32 has room for it)",
        ),
    ] {
        let bytes: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        checkpoint.poke(tensor, &bytes);
        let output = checkpoint.command(&format!("--outtype {outtype}")).output().unwrap();
        assert!(output.status.success());
        let expected = format!("warning: tensor \"blk.1.ffn_up.weight\": {expected}\n");
        assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    }

    // `quantize` would refuse it, too; of a block the weight that is too large is named.
    let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
    checkpoint.poke(tensor, &[0.5, -4e6f32].map(f32::to_le_bytes).concat());
    assert_eq!(
        checkpoint.failure("--outtype q4_k_m"),
        "qgguf: tensor \"blk.1.ffn_up.weight\": -4000000 in row 0, column 1 is out of the range of q5_0"
    );
}

#[test]
fn what_a_gguf_cannot_say_is_told() {
    let Some(fixtures) = fixtures("convert unsaid") else { return };
    let warnings = |checkpoint: &Checkpoint| -> Vec<String> {
        let output = checkpoint.command("--pre qwen2 --dry-run").output().unwrap();
        let notes = stderr(&output).replace(&format!("{}/", checkpoint.folder().display()), "");
        assert!(output.status.success(), "{notes}");
        let notes = notes.lines().filter_map(|line| line.strip_prefix("qgguf: warning: config.json: "));
        notes.map(str::to_owned).collect()
    };
    for entry in fs::read_dir(fixtures.join("hf")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert_eq!(warnings(&Checkpoint::copy(&fixtures, &name)), [""; 0], "{name}");
    }
    let with = |name: &str, key: &str, value: Option<Value>| {
        let checkpoint = Checkpoint::copy(&fixtures, name);
        checkpoint.edit_json("config.json", |config| match value {
            Some(value) => config[key] = value,
            None => _ = config.as_object_mut().unwrap().remove(key),
        });
        checkpoint
    };
    let dynamic = json!({"rope_type": "dynamic", "factor": 2.0});
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0});
    for (name, key, value, found, usual) in [
        ("llama-tiny", "hidden_act", json!("relu"), "\"relu\"", "\"silu\""),
        ("gemma3-tiny", "hidden_activation", json!("silu"), "\"silu\"", "\"gelu_pytorch_tanh\""),
        ("gemma3-tiny", "attn_logit_softcapping", json!(50.0), "50.0", "null"),
        ("gemma3-tiny", "query_pre_attn_scalar", json!(16), "16", "32"),
        ("qwen3moe-tiny", "norm_topk_prob", json!(false), "false", "true"),
        ("qwen3moe-tiny", "mlp_only_layers", json!([1]), "[1]", "[]"),
        ("qwen3moe-tiny", "decoder_sparse_step", json!(2), "2", "1"),
        ("qwen2-tiny", "use_sliding_window", json!(true), "true", "false"),
        ("qwen3-tiny", "use_sliding_window", json!(true), "true", "false"),
        ("mistral-tiny", "sliding_window", json!(64), "64", "null"),
        ("mistral-tiny", "rope_scaling", dynamic, "\"dynamic\"", "\"default\""),
        ("qwen3-tiny", "rope_scaling", llama3, "\"llama3\"", "\"default\""),
    ] {
        let architecture = match name.split_once('-').unwrap().0 {
            "mistral" => "llama",
            architecture => architecture,
        };
        let named = if key == "rope_scaling" { "rope_type" } else { key };
        let expected = format!(
            "{named} is {found}, which a GGUF of {architecture} cannot say: the model will be run with {usual}"
        );
        assert_eq!(warnings(&with(name, key, Some(value))), [expected]);
    }
    // Without the key, the default of the class counts.
    for (name, key) in [("qwen3moe-tiny", "norm_topk_prob"), ("gemma3-tiny", "query_pre_attn_scalar")] {
        assert_eq!(warnings(&with(name, key, None)).len(), 1, "{key}");
    }
    for (name, key, value) in [
        ("gemma3-tiny", "hidden_activation", json!("gelu")),
        ("mistral-tiny", "hidden_act", json!("swish")),
        ("mistral-tiny", "sliding_window", Value::Null),
    ] {
        assert_eq!(warnings(&with(name, key, Some(value))), [""; 0], "{key}");
    }
    assert_eq!(
        with("llama-tiny", "hidden_act", Some(json!(7))).failure("--pre llama-bpe"),
        "qgguf: config.json: \"hidden_act\": expected a string, found 7"
    );
}

#[test]
fn a_failed_conversion_keeps_the_old_file() {
    let Some(fixtures) = fixtures("convert keeps") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
    checkpoint.poke("lm_head.weight", &f32::INFINITY.to_le_bytes());
    let out = checkpoint.dir.path().join("out/model.gguf");
    fs::write(&out, "old").unwrap();
    failure(&mut checkpoint.command(""), 1);
    assert_eq!(fs::read(&out).unwrap(), b"old");
    assert_eq!(fs::read_dir(out.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_result_is_verified_and_split() {
    let Some(fixtures) = fixtures("convert verified") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "qwen3-untied");
    let text = stdout(&mut checkpoint.command("--pre qwen2 --verify --split-max-tensors 20"));
    for part in [
        "model-00001-of-00003.gguf and 2 more: BF16",
        "verify: metadata: 33 keys as written",
        "verify: 30 tensors of bf16: relative error at most 0.000e0",
        "verify: prompt: ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let whole = checkpoint.dir.path().join("out/whole.gguf");
    stdout(checkpoint.command("--pre qwen2 -o").arg(&whole));
    let merged = checkpoint.dir.path().join("out/merged.gguf");
    let first = checkpoint.dir.path().join("out/model-00001-of-00003.gguf");
    stdout(qgguf("merge").arg(first).arg(&merged));
    let tensors = |path: &Path| {
        let file = qgguf_gguf::GgufFile::open(path).unwrap();
        let all = 0..file.tensors().len();
        all.map(|i| (file.tensors()[i].name.clone(), file.tensor_at(i).bytes().to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(tensors(&whole), tensors(&merged));
}

#[test]
fn names_places_and_inputs() {
    let Some(fixtures) = fixtures("convert places") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
    // A file, which is then converted alone, into its folder.
    stdout(qgguf("convert").arg(checkpoint.file("model.safetensors")));
    assert!(
        checkpoint.file("model-283K-F16.gguf").is_file() || checkpoint.file("Model-283K-F16.gguf").is_file()
    );

    // A shard stands for all of them.
    let sharded = Checkpoint::copy(&fixtures, "qwen3-untied");
    let [whole, shard] = ["whole.gguf", "shard.gguf"].map(|name| sharded.dir.path().join(name));
    stdout(qgguf("convert --pre qwen2").arg(sharded.folder()).arg("-o").arg(&whole));
    stdout(qgguf("convert --pre qwen2").arg(sharded.file(SHARD)).arg("-o").arg(&shard));
    assert!(fs::read(&whole).unwrap() == fs::read(&shard).unwrap());

    // Nothing of the checkpoint is overwritten.
    for name in ["model.safetensors", "config.json", "tokenizer.json"] {
        let line = failure(qgguf("convert -o").arg(checkpoint.file(name)).arg(checkpoint.folder()), 1);
        let file = checkpoint.file(name).display().to_string();
        assert_eq!(line, format!("qgguf: the output {file} is the input {file}"));
    }

    // A repository in the cache; its name is the model's.
    let cache = tempfile::tempdir().unwrap();
    let snapshot = cache.path().join("hub/models--org--My-Model-v2/snapshots/abc");
    fs::create_dir_all(snapshot.parent().unwrap()).unwrap();
    fs::rename(checkpoint.folder(), &snapshot).unwrap();
    let mut command = qgguf("convert org/My-Model-v2 --outtype f32 -o");
    command.arg(cache.path().join("{ftype}.gguf")).env("HF_HOME", cache.path()).env_remove("HF_HUB_CACHE");
    stdout(&mut command);
    let file = qgguf_gguf::GgufFile::open(cache.path().join("f32.gguf")).unwrap();
    assert_eq!(file.metadata().str("general.name").unwrap(), Some("My Model v2"));
    assert_eq!(file.metadata().str("general.version").unwrap(), Some("v2"));

    let mut absent = qgguf("convert org/other");
    absent.env("HF_HOME", cache.path()).env_remove("HF_HUB_CACHE");
    let line = failure(&mut absent, 1);
    assert!(
        line.starts_with("qgguf: org/other: no such folder, and the Hugging Face cache has no "),
        "{line}"
    );
}

#[test]
fn experts_may_be_stored_in_several_types() {
    let Some(fixtures) = fixtures("convert experts") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "qwen3moe-tiny");
    let convert = |ty: &str| {
        stdout(&mut checkpoint.command(&format!("--pre qwen2 --outtype {ty}")));
        fs::read(checkpoint.dir.path().join("out/model.gguf")).unwrap()
    };
    const TYPES: [&str; 5] = ["auto", "f16", "f32", "q8_0", "q4_0"];
    let expected = TYPES.map(convert);
    for part in ["experts.1.up_proj", "experts.0.down_proj"] {
        checkpoint.widen(part);
        for (ty, expected) in TYPES.iter().zip(&expected) {
            assert!(convert(ty) == *expected, "{ty} with {part} as f32");
        }
    }
}

#[test]
fn auto_has_room_for_every_weight() {
    let Some(fixtures) = fixtures("convert auto") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
    checkpoint.poke("model.layers.0.mlp.down_proj.weight", &1e6f32.to_le_bytes());
    let path = checkpoint.dir.path().join("out/auto.gguf");
    stdout(checkpoint.command("-o").arg(&path));
    let file = qgguf_gguf::GgufFile::open(&path).unwrap();
    let tensor = file.tensor("blk.0.ffn_down.weight").unwrap();
    assert_eq!((tensor.ty().name(), &tensor.bytes()[..2]), ("bf16", &[0x74, 0x49][..]));
}

#[test]
fn a_result_that_fails_its_verification_does_not_replace_the_old_file() {
    let Some(fixtures) = fixtures("convert failed verification") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
    // Finite weights that make infinite logits.
    checkpoint.poke("model.norm.weight", &[f32::MAX; 64].map(f32::to_le_bytes).concat());
    let path = checkpoint.dir.path().join("out/old.gguf");
    fs::write(&path, "old").unwrap();
    let line = failure(checkpoint.command("--outtype f32 --verify -o").arg(&path), 1);
    assert!(line.starts_with(&format!("qgguf: {}: the logit of token ", path.display())), "{line}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(fs::read_dir(checkpoint.dir.path().join("out")).unwrap().count(), 1);
}

#[test]
#[cfg(unix)]
fn ctrl_c_during_the_verification_leaves_nothing() {
    use std::io::{BufRead, BufReader};
    let Some(fixtures) = fixtures("convert verification interrupted") else { return };
    let (checkpoint, _) = Checkpoint::of_zeros(&fixtures, 1 << 16);
    let (model, dir) = (checkpoint.folder(), tempfile::tempdir().unwrap());
    let out = dir.path().join("model.gguf");
    // It may be over before it hears of it.
    for _ in 0..20 {
        let arguments = ["convert", model.to_str().unwrap(), "--verify", "-o", out.to_str().unwrap()];
        let mut child = crate::support::spawn(&arguments);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(" MB/s with ")));
        crate::support::interrupt(&child);
        lines.for_each(drop);
        let code = child.wait().unwrap().code();
        let left = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name != "model.gguf").collect();
        assert!(left.is_empty(), "{left:?}");
        if code == Some(130) {
            return;
        }
    }
    panic!("it was never interrupted");
}

#[test]
#[cfg(target_os = "linux")]
fn weights_take_no_memory_once_they_are_written() {
    let Some(fixtures) = fixtures("convert memory") else { return };
    let (checkpoint, n_weights) = Checkpoint::of_zeros(&fixtures, 1 << 18);
    for outtype in ["f16", "q4_0"] {
        let report =
            crate::support::json(&mut checkpoint.command(&format!("--json -t 2 --outtype {outtype}")));
        let peak = report["peak_resident_bytes"].as_u64().unwrap();
        assert!(peak < n_weights, "{outtype}: {peak} bytes for {n_weights} weights of two bytes");
    }
}

#[test]
fn what_is_left_out_is_said() {
    let Some(fixtures) = fixtures("convert left out") else { return };
    let notes = |name: &str, bytes: &[u8], without: &str| {
        let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
        fs::write(checkpoint.file(name), bytes).unwrap();
        if !without.is_empty() {
            fs::remove_file(checkpoint.file(without)).unwrap();
        }
        let output = checkpoint.command("").output().unwrap();
        assert!(output.status.success());
        stderr(&output).replace(&format!("{}/", checkpoint.folder().display()), "")
    };
    let card = |text: &[u8]| notes("README.md", text, "");
    assert!(!card(b"---\nname: x\n---\nbody \xff").contains("warning"));
    for (text, reason) in [
        (&b"---\nname: \xff\n---\n"[..], "it has bytes that are not UTF-8"),
        (b"---\nname: x\n", "it has no end (a line of ---)"),
        (b"---\n- name\n---\n", "expected keys with values"),
    ] {
        let notes = card(text);
        let expected = format!("qgguf: warning: README.md: the front matter is left out: {reason}\n");
        assert!(notes.contains(&expected), "{notes}");
    }
    let without_settings = notes("chat_template.jinja", b"{{ messages }}", "tokenizer_config.json");
    assert!(without_settings.contains("a chat template is left out"), "{without_settings}");
    let broken = notes("tokenizer_config.json", b"{\"chat_template\": \"{% if %}\"}", "");
    assert!(broken.contains("warning: this runtime cannot use the chat template: "), "{broken}");
}

#[test]
fn codebook_types_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for ty in ["iq1_s", "iq1_m", "IQ2_XXS", "iq2_xs", "iq2_s", "iq2_m", "iq3_xxs", "iq3_xs", "iq3_s", "iq3_m"]
    {
        // The type counts before the checkpoint.
        let line = failure(qgguf(&format!("convert --outtype {ty}")).arg(dir.path()), 2);
        let expected = format!("qgguf: type {} cannot be made yet (those that can: F32, ", ty.to_uppercase());
        assert!(line.starts_with(&expected), "{line}");
    }
}

#[test]
#[cfg(unix)]
fn a_link_is_followed_and_a_circle_of_links_refused() {
    use std::os::unix::fs::symlink;
    let Some(fixtures) = fixtures("convert links") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
    let path = |name: &str| checkpoint.dir.path().join("out").join(name);
    fs::write(path("old.gguf"), "old").unwrap();
    symlink("old.gguf", path("link")).unwrap();
    symlink("circle", path("circle")).unwrap();
    for flags in ["", "--verify"] {
        fs::write(path("old.gguf"), "old").unwrap();
        stdout(checkpoint.command(flags).arg("-o").arg(path("link")));
        assert!(path("link").symlink_metadata().unwrap().is_symlink());
        qgguf_gguf::GgufFile::open(path("old.gguf")).unwrap();
        let line = failure(checkpoint.command(flags).arg("-o").arg(path("circle")), 1);
        assert!(line.contains("circle: Too many levels of symbolic links"), "{line}");
        assert!(path("circle").symlink_metadata().unwrap().is_symlink());
        let missing = path("nowhere/model.gguf");
        let line = failure(checkpoint.command(flags).arg("-o").arg(&missing), 1);
        assert!(line.contains(&missing.display().to_string()), "{line}");
        assert!(
            line.ends_with("No such file or directory (os error 2)") && !line.contains(".part"),
            "{line}"
        );
    }
    assert_eq!(fs::read_dir(path("")).unwrap().count(), 3);
}

#[test]
fn a_vocabulary_alone_needs_no_weights() {
    let Some(fixtures) = fixtures("convert vocabulary") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "llama-tiny");
    stdout(&mut checkpoint.command("--pre llama-bpe"));
    fs::remove_file(checkpoint.file("model.safetensors")).unwrap();
    let out = checkpoint.dir.path().join("out");
    let text =
        stdout(qgguf("convert --vocab-only --pre llama-bpe").arg(checkpoint.folder()).arg("-o").arg(&out));
    let vocabulary = out.join("Model-vocab.gguf");
    assert_eq!(text, format!("{}: vocabulary\n", vocabulary.display()));

    let open = |path: &Path| qgguf_gguf::GgufFile::open(path).unwrap();
    let (whole, alone) = (open(&out.join("model.gguf")), open(&vocabulary));
    assert_eq!(alone.tensors().len(), 0);
    let dry = stdout(qgguf("convert --vocab-only --dry-run --pre llama-bpe").arg(checkpoint.folder()));
    assert_eq!(dry, format!("{} keys, no tensors\n", alone.metadata().len()));
    // All keys are there but the one that says how large the weights are.
    let but_size = whole.metadata().iter().filter(|(key, _)| *key != "general.size_label");
    assert!(but_size.eq(alone.metadata().iter()));
    let tokens = |path: &Path| {
        stdout(qgguf("tokenize --ids -p").arg("Hello, <|eot_id|> 123 w\u{f6}rld").arg("-m").arg(path))
    };
    assert_eq!(tokens(&vocabulary), tokens(&out.join("model.gguf")));
    let line = failure(&mut checkpoint.command("--pre llama-bpe"), 1);
    assert!(line.ends_with("no model*.safetensors in this folder"), "{line}");
}

#[test]
fn a_file_of_metadata_stands_over_what_the_checkpoint_says() {
    let Some(fixtures) = fixtures("convert metadata") else { return };
    let checkpoint = Checkpoint::copy(&fixtures, "mistral-tiny");
    fs::write(checkpoint.file("README.md"), "---\nname: Card\nversion: 2\ntags: [old]\nlicense: mit\n---\n")
        .unwrap();
    fs::write(checkpoint.file("generation_config.json"), r#"{"top_k": 5, "temperature": 0.5}"#).unwrap();
    let file = checkpoint.dir.path().join("metadata.json");
    let with = |text: &str| {
        fs::write(&file, text).unwrap();
        let mut command = checkpoint.command("--metadata");
        command.arg(&file);
        command
    };
    let text = r#"{"general.name": "Mine", "general.author": "me", "general.version": null, "general.license": ["mit", "x"],
        "general.doi": "10.1/x", "general.source.url": "https://a", "general.size_label": "1B",
        "general.base_models": [{"name": "Base", "author": "a", "repo_url": "https://b"}, {"uuid": "u"}],
        "general.datasets": [{"url": "https://d"}], "general.tags": ["a", "b"], "general.languages": "en",
        "general.sampling.temp": 0.25, "general.sampling.top_k": null, "general.sampling.min_p": 0.125, "name": "x"}"#;
    let output = with(text).output().unwrap();
    let notes = stderr(&output);
    assert!(output.status.success(), "{notes}");
    assert!(notes.contains("\"name\" is left out: no such key can be set here"), "{notes}");
    let written = qgguf_gguf::GgufFile::open(checkpoint.dir.path().join("out/model.gguf")).unwrap();
    let general = written.metadata().iter().filter(|(key, _)| key.starts_with("general."));
    let general: Vec<String> = general.map(|(key, value)| format!("{}={value:?}", &key[8..])).collect();
    assert_eq!(
        general,
        [
            "architecture=String(\"llama\")",
            "type=String(\"model\")",
            "sampling.min_p=F32(0.125)",
            "sampling.temp=F32(0.25)",
            "name=String(\"Mine\")",
            "author=String(\"me\")",
            "size_label=String(\"1B\")",
            "license=String(\"mit,x\")",
            "doi=String(\"10.1/x\")",
            "source.url=String(\"https://a\")",
            "base_model.count=U32(2)",
            "base_model.0.name=String(\"Base\")",
            "base_model.0.author=String(\"a\")",
            "base_model.0.repo_url=String(\"https://b\")",
            "base_model.1.uuid=String(\"u\")",
            "dataset.count=U32(1)",
            "dataset.0.url=String(\"https://d\")",
            &general[general.len() - 4],
            &general[general.len() - 3],
            "file_type=U32(1)",
            "quantization_version=U32(2)",
        ]
    );
    let strings = |key: &str| {
        written.metadata().strings(key).unwrap().unwrap().iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        (strings("general.tags"), strings("general.languages")),
        (vec!["a".into(), "b".into()], vec!["en".into()])
    );
    // A name on the command line stands over everything.
    let path = checkpoint.dir.path().join("out/named.gguf");
    stdout(with(text).args(["--model-name", "Other", "-o"]).arg(&path));
    let named = qgguf_gguf::GgufFile::open(&path).unwrap();
    assert_eq!(named.metadata().str("general.name").unwrap(), Some("Other"));
    for (text, reason) in [
        (r#"{"general.name": {}}"#, "\"general.name\": expected a text, found {}"),
        (r#"{"general.tags": 7}"#, "\"general.tags\": expected a list of texts, found 7"),
        (r#"{"general.sampling.top_k": 1.5}"#, "\"general.sampling.top_k\": expected an integer, found 1.5"),
        (
            r#"{"general.base_models": [{"nam": "x"}]}"#,
            "\"general.base_models\": expected a list of objects with texts for name, author, version, organization, \
             description, url, doi, uuid, repo_url, found [{\"nam\":\"x\"}]",
        ),
        ("[]", "expected a JSON object"),
    ] {
        assert_eq!(failure(&mut with(text), 1), format!("qgguf: {}: {reason}", file.display()));
    }
    fs::remove_file(&file).unwrap();
    let line = failure(checkpoint.command("--metadata").arg(&file), 1);
    assert_eq!(line, format!("qgguf: {}: no such file", file.display()));
}
