//! `qgguf inspect`.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::fixtures::fixtures;
use crate::handmade::Gguf;
use crate::support::{failure, json, qgguf, stdout, tiny_model};

fn inspect(path: &Path, flags: &str) -> assert_cmd::Command {
    let mut command = qgguf("inspect");
    command.arg(path).args(flags.split_whitespace());
    command
}

/// The line that begins with these words, in which several blanks count as one.
fn line(text: &str, begin: &str) -> String {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no line {begin:?} in\n{text}"))
}

#[test]
fn people_see_everything_at_a_glance() {
    let text = stdout(&mut inspect(&tiny_model(), ""));
    let expected = [
        "format GGUF version 3, little-endian, alignment 32",
        "size 3.2 MiB (3355040 bytes)",
        "architecture qwen3",
        "parameters 5.0 M (4984064)",
        "bits per weight 5.17 on average",
        "metadata 23 keys",
        "tensors 46, data from byte 134560",
        "general.name string \"Kjv Tiny\"",
        "qwen3.attention.layer_norm_rms_epsilon f32 1e-6",
        "tokenizer.ggml.tokens string[4096] [\"!\", \"\\\"\", \"#\", \"$\", \"%\", \"&\", ...]",
        "general.file_type u32 15 (Q4_K_M)",
        "TENSORS shape type bits bytes offset",
        "token_embd.weight 256 x 4096 q6_K 6.5625 860160 135584",
        "blk.3.ffn_up.weight 256 x 768 q4_K 4.5 110592 3244448",
        "PARAMETERS tensors count share bytes bits",
        "embedding 1 1048576 21.0% 860160 6.56",
        "attention 16 1572864 31.6% 918528 4.67",
        "MLP 12 2359296 47.3% 1428480 4.84",
        "norms 17 3328 0.1% 13312 32.00",
        "output (the embedding again) 0 0 0.0% 0 -",
        "all 46 4984064 100.0% 3220480 5.17",
        "TYPES tensors count share bytes bits",
        "q4_K 24 3407872 68.4% 1916928 4.50",
    ];
    for expected in expected {
        assert_eq!(line(&text, expected), expected);
    }
    // Columns are aligned: numbers end where their heading ends.
    let ends = |begin: &str| text.lines().find(|l| l.starts_with(begin)).unwrap().len();
    assert_eq!(ends("TENSORS"), ends("blk.0.attn_q.weight"));
    assert_eq!(ends("TENSORS"), ends("output_norm.weight"));
}

#[test]
fn programs_get_everything_in_full() {
    let all = json(&mut inspect(&tiny_model(), "--json"));
    assert_eq!(all["version"], 3);
    assert_eq!(all["endianness"], "little");
    assert_eq!(all["file_type"], "Q4_K_M");
    assert_eq!(all["tied_output"], true);
    assert_eq!(all["metadata"]["qwen3.block_count"], serde_json::json!({"type": "u32", "value": 4}));
    assert_eq!(all["metadata"]["tokenizer.ggml.tokens"]["value"].as_array().unwrap().len(), 4096);
    let tensor = &all["tensors"][1];
    assert_eq!(tensor["name"], "token_embd.weight");
    assert_eq!(tensor["shape"], serde_json::json!([256, 4096]));
    assert_eq!((&tensor["n_bytes"], &tensor["offset"]), (&Value::from(860_160), &Value::from(135_584)));
    check_sums(&all);
}

/// Parts and types are two ways to cut the same tensors.
fn check_sums(all: &Value) {
    let sum = |list: &str, key: &str| -> u64 {
        all[list].as_array().unwrap().iter().map(|entry| entry[key].as_u64().unwrap()).sum()
    };
    let n_tensors = all["n_tensors"].as_u64().unwrap();
    assert_eq!(all["tensors"].as_array().unwrap().len() as u64, n_tensors);
    assert_eq!(sum("tensors", "n_elements"), all["n_parameters"].as_u64().unwrap());
    for list in ["parameters", "types"] {
        assert_eq!(sum(list, "n_tensors"), n_tensors, "{list}");
        assert_eq!(sum(list, "n_parameters"), sum("tensors", "n_elements"), "{list}");
        assert_eq!(sum(list, "n_bytes"), sum("tensors", "n_bytes"), "{list}");
    }
}

#[test]
fn every_reference_file_can_be_inspected() {
    let Some(dir) = fixtures("every_reference_file_can_be_inspected") else { return };
    let mut n_files = 0;
    for sub in ["gguf", "kjv", "tokenizer"] {
        for entry in std::fs::read_dir(dir.join(sub)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "gguf") {
                continue;
            }
            let all = json(&mut inspect(&path, "--json"));
            check_sums(&all);
            let text = stdout(&mut inspect(&path, ""));
            assert_eq!(line(&text, "metadata"), format!("metadata {} keys", all["n_metadata"]));
            n_files += 1;
        }
    }
    assert!(n_files > 40, "{n_files}");
}

#[test]
fn experts_that_rest_are_not_counted_as_active() {
    let dir = tempfile::tempdir().unwrap();
    let mut gguf = Gguf::new();
    gguf.u32("test.expert_count", 4);
    gguf.u32("test.expert_used_count", 1);
    gguf.f32_tensor("blk.0.ffn_up_exps.weight", &[2, 3, 4], &[1.0; 24]);
    gguf.f32_tensor("blk.0.attn_q.weight", &[2, 5], &[1.0; 10]);
    let path = gguf.save(dir.path(), "moe.gguf");
    assert_eq!(
        line(&stdout(&mut inspect(&path, "")), "for one token"),
        "for one token 16, with 1 of 4 experts"
    );
    assert_eq!(json(&mut inspect(&path, "--json"))["active"]["n_parameters"], 16);
}

#[test]
fn statistics_leave_out_what_is_not_finite() {
    let dir = tempfile::tempdir().unwrap();
    let mut gguf = Gguf::new();
    let values = [f32::NAN, 1.5, -2.5, f32::INFINITY, 0.0, 1e-20, f32::NEG_INFINITY, 7.0];
    gguf.f32_tensor("odd", &[4, 2], &values);
    gguf.f32_tensor("none", &[0, 3], &[]);
    gguf.f32_tensor("one", &[], &[3.0]);
    let path = gguf.save(dir.path(), "odd.gguf");

    let text = stdout(&mut inspect(&path, "--tensor odd --values 7"));
    for expected in [
        "shape 4 x 2",
        "type f32, 32 bits per weight",
        "values 8 (1 zero)",
        "not finite 1 NaN, 2 infinite",
        "min -2.5",
        "max 7.0",
        "mean 1.2",
        "rms 3.391165",
        "first values NaN 1.5 -2.5 inf 0.0 1e-20 -inf ...",
    ] {
        assert_eq!(line(&text, expected), expected);
    }
    let object = json(&mut inspect(&path, "--tensor odd --values 100 --json"));
    assert_eq!(object["statistics"]["n_inf"], 2);
    assert_eq!(object["statistics"]["mean"], 1.2);
    assert_eq!(
        object["first_values"],
        serde_json::json!(["NaN", 1.5, -2.5, "Infinity", 0.0, 1e-20, "-Infinity", 7.0])
    );

    let text = stdout(&mut inspect(&path, "--tensor none"));
    assert_eq!((line(&text, "values"), line(&text, "min")), ("values 0 (0 zero)".into(), "min -".into()));
    let object = json(&mut inspect(&path, "--tensor none --json"));
    assert_eq!(
        (&object["statistics"]["max"], &object["first_values"]),
        (&Value::Null, &serde_json::json!([]))
    );
    let text = stdout(&mut inspect(&path, "--tensor one --values 0"));
    assert_eq!((line(&text, "shape"), line(&text, "mean")), ("shape scalar".into(), "mean 3.0".into()));
    assert!(!text.contains("first values"));
}

#[test]
fn quantized_tensors_are_read_block_by_block() {
    let object = json(&mut inspect(&tiny_model(), "--tensor token_embd.weight --values 1000000 --json"));
    let values = object["first_values"].as_array().unwrap();
    assert_eq!(object["statistics"]["n_values"], 1 << 20);
    assert_eq!(values.len(), 1_000_000);
    // One byte more than a chunk of the reader, and where the chunks meet.
    let first = json(&mut inspect(&tiny_model(), "--tensor token_embd.weight --values 8193 --json"));
    assert_eq!(first["first_values"].as_array().unwrap(), &values[..8193]);
    let rms = |values: &[Value]| {
        (values.iter().map(|v| v.as_f64().unwrap().powi(2)).sum::<f64>() / values.len() as f64).sqrt()
    };
    let stated = object["statistics"]["rms"].as_f64().unwrap();
    assert!((rms(values) / stated - 1.0).abs() < 0.01, "{} {stated}", rms(values));
}

#[test]
fn a_tensor_that_is_not_there_has_neighbours() {
    let path = tiny_model();
    let place = path.display();
    assert_eq!(
        failure(&mut inspect(&path, "--tensor blk.0.attn_q"), 1),
        format!(
            "qgguf: {place}: no tensor \"blk.0.attn_q\" (did you mean \"blk.0.attn_q.weight\" or \"blk.0.attn_q_norm.weight\"?)"
        )
    );
    assert_eq!(failure(&mut inspect(&path, "--tensor xyz"), 1), format!("qgguf: {place}: no tensor \"xyz\""));
    assert_eq!(
        failure(&mut inspect(&path, "--key general.nane"), 1),
        format!("qgguf: {place}: no metadata key \"general.nane\" (did you mean \"general.name\"?)")
    );
}

#[test]
fn a_type_without_a_meaning_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut gguf = Gguf::new();
    gguf.tensor("codes", &[256], 16, &[0; 66]);
    gguf.tensor("ids", &[0], 26, &[]);
    let path = gguf.save(dir.path(), "iq.gguf");
    assert_eq!(
        line(&stdout(&mut inspect(&path, "")), "codes"),
        "codes 256 iq2_xxs 2.0625 66 160",
        "it can be listed"
    );
    for (name, ty) in [("codes", "iq2_xxs"), ("ids", "i32")] {
        assert_eq!(
            failure(&mut inspect(&path, &format!("--tensor {name}")), 1),
            format!("qgguf: tensor \"{name}\": type {ty} cannot be dequantized")
        );
    }
}

#[test]
fn the_value_of_a_key_comes_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut gguf = Gguf::new();
    gguf.string("template", "{% if x %}\r\n\ty\x1b\n{% endif %}");
    gguf.strings("list", &["a\nb", "\"c\""]);
    gguf.f32s("numbers", &[0.1, f32::NAN]);
    gguf.f64("double", f64::NEG_INFINITY);
    let path = gguf.save(dir.path(), "keys.gguf");
    let get = |key: &str| stdout(&mut inspect(&path, &format!("--key {key}")));
    assert_eq!(get("template"), "{% if x %}\r\n\ty\x1b\n{% endif %}");
    assert_eq!(get("list"), "\"a\\nb\"\n\"\\\"c\\\"\"\n");
    assert_eq!(get("numbers"), "0.1\nNaN\n");
    assert_eq!(get("double"), "-inf\n");
    let object = json(&mut inspect(&path, "--key numbers --json"));
    assert_eq!(object, serde_json::json!({"key": "numbers", "type": "array of f32", "value": [0.1, "NaN"]}));
    assert_eq!(json(&mut inspect(&path, "--key double --json"))["value"], "-Infinity");
}

#[test]
fn long_values_are_cut_unless_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut gguf = Gguf::new();
    gguf.string("text", &"ö".repeat(65));
    gguf.string("short", &"ö".repeat(64));
    gguf.f32s("numbers", &[1.0; 7]);
    gguf.f32s("six", &[1.0; 6]);
    gguf.string(&"k".repeat(200), "long key");
    let path = gguf.save(dir.path(), "long.gguf");
    let cut = stdout(&mut inspect(&path, ""));
    assert_eq!(line(&cut, "text"), format!("text string \"{}...\" (130 bytes)", "ö".repeat(64)));
    assert_eq!(line(&cut, "short"), format!("short string \"{}\"", "ö".repeat(64)));
    assert_eq!(line(&cut, "numbers"), "numbers f32[7] [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, ...]");
    assert_eq!(line(&cut, "six"), "six f32[6] [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]");
    assert_eq!(line(&cut, "kkk"), format!("{}... string \"long key\"", "k".repeat(64)));
    let full = stdout(&mut inspect(&path, "--full"));
    assert_eq!(line(&full, "text"), format!("text string \"{}\"", "ö".repeat(65)));
    assert_eq!(line(&full, "numbers"), "numbers f32[7] [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]");
    assert_eq!(line(&full, "kkk"), format!("{} string \"long key\"", "k".repeat(200)));
    assert!(stdout(&mut inspect(&tiny_model(), "--full")).contains("\"<|endoftext|>\""));
}

#[test]
fn a_hostile_file_cannot_take_over_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let evil = "\x1b]0;x\x07\u{9b}2J\r\n\x7f\u{202e}";
    let mut gguf = Gguf::default();
    gguf.string("general.architecture", evil);
    gguf.string(&format!("key{evil}"), evil);
    gguf.strings("list", &[evil, evil]);
    gguf.f32_tensor(&format!("t{evil}"), &[1], &[1.0]);
    let path = gguf.save(dir.path(), "evil.gguf");
    let unsafe_chars = |text: &str| text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}');
    for flags in ["", "--full", "--json", "--key list --json", "--key list"] {
        let text = stdout(&mut inspect(&path, flags));
        assert!(!unsafe_chars(&text), "{flags}: {text:?}");
    }
    let all = json(&mut inspect(&path, "--json"));
    assert_eq!(all["architecture"], evil, "a program gets the string as it is");
    assert_eq!(all["metadata"]["list"]["value"][1], evil);
    for flags in [["--tensor", &format!("t{evil}")], ["--tensor", evil], ["--key", evil], ["--key", "key"]] {
        let output = inspect(&path, "").args(flags).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(!text.is_empty() && !unsafe_chars(&String::from_utf8(text.clone()).unwrap()), "{text:?}");
    }
}

#[test]
fn shards_are_shown_as_one_file() {
    let dir = tempfile::tempdir().unwrap();
    for no in 0..2u16 {
        let mut gguf = if no == 0 { Gguf::new() } else { Gguf::default() };
        gguf.u16("split.no", no);
        gguf.u16("split.count", 2);
        gguf.u32("split.tensors.count", 2);
        gguf.f32_tensor(&format!("tensor{no}"), &[8], &[f32::from(no); 8]);
        gguf.save(dir.path(), &format!("model-{:05}-of-00002.gguf", no + 1));
    }
    let path = dir.path().join("model-00002-of-00002.gguf");
    let text = stdout(&mut inspect(&path, ""));
    assert_eq!(
        line(&text, "file"),
        format!("file {}", dir.path().join("model-00001-of-00002.gguf").display())
    );
    assert_eq!(line(&text, "shards"), "shards 2");
    assert_eq!(line(&text, "TENSORS"), "TENSORS shape type bits bytes offset shard");
    assert!(line(&text, "tensor1").ends_with(" 2"), "{text}");
    let all = json(&mut inspect(&path, "--json"));
    assert_eq!(all["shards"].as_array().unwrap().len(), 2);
    assert_eq!(all["tensors"][1]["shard"], 2);
    assert_eq!(line(&stdout(&mut inspect(&path, "--tensor tensor1")), "mean"), "mean 1.0");
}

#[test]
fn big_endian_files_can_be_looked_at_but_not_into() {
    let dir = tempfile::tempdir().unwrap();
    let mut gguf = Gguf::default();
    gguf.big_endian = true;
    gguf.f32s("numbers", &[0.5, 2.0]);
    gguf.f32_tensor("t", &[2], &[1.0, 2.0]);
    let path = gguf.save(dir.path(), "be.gguf");
    let text = stdout(&mut inspect(&path, ""));
    assert_eq!(line(&text, "format"), "format GGUF version 3, big-endian, alignment 32");
    assert_eq!(line(&text, "numbers"), "numbers f32[2] [0.5, 2.0]");
    assert_eq!(
        failure(&mut inspect(&path, "--tensor t"), 1),
        format!(
            "qgguf: {}: tensor \"t\" is stored big-endian, which can be inspected but not used",
            path.display()
        )
    );
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    for flags in [&["--json"][..], &["--full"], &["--tensor", "token_embd.weight", "--values", "1000000"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_qgguf"))
            .arg("inspect")
            .arg(tiny_model())
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0];
        let mut pipe = child.stdout.take().unwrap();
        pipe.read_exact(&mut first).unwrap();
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{flags:?}: {}", output.status);
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{flags:?}");
    }
}

#[test]
fn what_is_no_gguf_is_an_error_of_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    assert_eq!(
        failure(&mut inspect(&path, ""), 1),
        format!("qgguf: {}: No such file or directory (os error 2)", path.display())
    );
    std::fs::write(&path, b"PK\x03\x04 not a model").unwrap();
    let line = failure(&mut inspect(&path, ""), 1);
    assert!(line.contains("x.gguf: not a GGUF file"), "{line}");
}

#[test]
fn wrong_flags_are_code_2() {
    let path = tiny_model();
    failure(&mut qgguf("inspect"), 2);
    for flags in ["--values 3", "--tensor a --key b", "--tensor a --values -1", "--nope"] {
        failure(&mut inspect(&path, flags), 2);
    }
}
