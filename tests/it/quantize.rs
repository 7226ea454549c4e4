//! `qgguf quantize`: the bytes of llama-quantize, and nothing lost when something is wrong.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fixtures::fixtures;
use crate::handmade::Gguf;
use crate::support::{failure, json, qgguf, stderr, stdout, tiny_model};

fn quantize(words: &str, paths: &[&Path], ty: &str) -> assert_cmd::Command {
    let mut command = qgguf("quantize");
    command.args(words.split_whitespace()).args(paths).arg(ty);
    command
}

/// A model of two layers in f32, its rows `n_columns` long.
fn small_model(dir: &Path, n_columns: u64) -> PathBuf {
    let mut gguf = Gguf::default();
    gguf.string("general.architecture", "llama");
    gguf.u32("llama.block_count", 2);
    gguf.u32("llama.attention.head_count", 8);
    gguf.u32("general.alignment", 32);
    let values: Vec<f32> = (0..4 * n_columns).map(|i| ((i * 2_654_435_761) % 1000) as f32 / 1e4).collect();
    let mut matrix = |name: &str| gguf.f32_tensor(name, &[n_columns, 4, 1], &values);
    matrix("token_embd.weight");
    for name in ["attn_q", "attn_v", "ffn_down"] {
        matrix(&format!("blk.1.{name}.weight"));
        matrix(&format!("blk.0.{name}.weight"));
    }
    gguf.f32_tensor("output_norm.weight", &[n_columns], &values[..n_columns as usize]);
    gguf.save(dir, "model.gguf")
}

/// What is in a folder, by name.
fn listing(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

fn inspect(path: &Path) -> Value {
    json(qgguf("inspect --json").arg(path))
}

/// Compares a file that was just made with llama-quantize's.
fn assert_same(found: &Path, expected: &Path) {
    assert!(
        fs::read(found).unwrap() == fs::read(expected).unwrap(),
        "not the bytes of {}",
        expected.display()
    );
}

#[test]
fn every_file_of_llama_quantize_comes_out_the_same() {
    let Some(fixtures) = fixtures("every_file_of_llama_quantize_comes_out_the_same") else { return };
    let (dir, out) = (fixtures.join("gguf"), tempfile::tempdir().unwrap());
    let path = out.path().join("out.gguf");
    let index: Vec<Value> = serde_json::from_slice(&fs::read(dir.join("index.json")).unwrap()).unwrap();
    let mut n_compared = 0;
    for entry in &index {
        let (model, ty) = (entry["model"].as_str().unwrap(), entry["type"].as_str().unwrap());
        if matches!(ty, "F32" | "F16" | "BF16") {
            continue;
        }
        // What llama-quantize read is not always there; the weights of the others are exact in f16.
        let from = match model {
            "mistral-tiny" => "F32",
            "qwen3-tiny" => "BF16",
            _ => "F16",
        };
        let (flags, file_type) = match ty {
            "MXFP4" => ("--tensor-type attn=mxfp4 --tensor-type ffn=mxfp4", "MXFP4_MOE"),
            ty => ("", ty),
        };
        let from = dir.join(format!("{model}-{from}.gguf"));
        // Threads and instruction sets make no difference.
        for threads in ["-t 1", "-t 3 --isa portable"] {
            stdout(&mut quantize(&format!("{flags} {threads}"), &[&from, &path], file_type));
            assert_same(&path, &dir.join(format!("{}.gguf", entry["name"].as_str().unwrap())));
        }
        n_compared += 1;
    }
    assert_eq!(n_compared, 29);
}

#[test]
fn importance_counts() {
    let Some(fixtures) = fixtures("importance_counts") else { return };
    let (dir, out) = (fixtures.join("kjv"), tempfile::tempdir().unwrap());
    let path = out.path().join("out.gguf");
    let run = |flags: &str| {
        // The name of the matrix goes into the file as it was given.
        let mut command = quantize(flags, &[Path::new("kjv-tiny-F16.gguf"), &path], "Q4_K_M");
        command.current_dir(&dir).output().unwrap()
    };
    assert!(run("--imatrix imatrix.gguf").status.success());
    assert_same(&path, &dir.join("kjv-tiny-Q4_K_M-imat.gguf"));
    assert!(run("").status.success());
    assert_same(&path, &dir.join("kjv-tiny-Q4_K_M.gguf"));
    // A matrix of which nothing is left is none; one without some tensors leaves these to themselves.
    assert!(run("--imatrix imatrix.dat --include-weights nothing").status.success());
    assert_same(&path, &dir.join("kjv-tiny-Q4_K_M.gguf"));
    let output = run(
        "--imatrix imatrix.dat --exclude-weights ffn_ --exclude-weights blk.0.attn --exclude-weights blk.1",
    );
    assert!(output.status.success());
    let warning = "qgguf: warning: imatrix.dat has nothing for token_embd.weight, blk.0.attn_k.weight, ";
    assert!(stderr(&output).starts_with(warning), "{}", stderr(&output));
    let found = inspect(&path);
    let value = |key: &str| found["metadata"][format!("quantize.imatrix.{key}")]["value"].clone();
    assert_eq!((value("file"), value("dataset")), ("imatrix.dat".into(), "calib.txt".into()));
    assert_eq!((value("entries_count"), value("chunks_count")), (8.into(), 100.into()));
}

#[test]
fn a_kept_split_has_the_same_tensors_in_each_part() {
    let dir = tempfile::tempdir().unwrap();
    let model = small_model(dir.path(), 256);
    let prefix = dir.path().join("in");
    stdout(qgguf("split --split-max-tensors 3").args([&model, &prefix]));
    let first = dir.path().join("in-00001-of-00003.gguf");
    stdout(&mut quantize("--keep-split", &[&first, &dir.path().join("out.gguf")], "Q4_K_M"));
    let part = |name: &str, no: u32| {
        let file = inspect(&dir.path().join(format!("{name}-00001-of-00003.gguf")));
        let tensors = file["tensors"].as_array().unwrap().clone();
        let names =
            tensors.iter().filter(|t| t["shard"] == no).map(|t| t["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<String>>()
    };
    assert_eq!(
        (1..4).map(|no| part("out", no)).collect::<Vec<_>>(),
        (1..4).map(|no| part("in", no)).collect::<Vec<_>>()
    );
    let found = inspect(&dir.path().join("out-00001-of-00003.gguf"));
    let keys: Vec<&String> = found["metadata"].as_object().unwrap().keys().collect();
    assert!(keys.ends_with(&[
        &"general.file_type".to_owned(),
        &"split.no".to_owned(),
        &"split.count".to_owned(),
        &"split.tensors.count".to_owned(),
    ]));
}

#[test]
fn programs_and_people_hear_what_it_cost() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (small_model(dir.path(), 256), dir.path().join("out.gguf"));
    let found = json(&mut quantize("--json", &[&model, &out], "Q4_0"));
    assert_eq!(found["outputs"], serde_json::json!([out.display().to_string()]));
    assert_eq!(found["bytes_after"], 1024 + 840 + 6 * 576);
    let type_of = |name: &str| &found["types"][name];
    assert_eq!((&type_of("q4_0")["n_tensors"], &type_of("f32")["rmse"]), (&6.into(), &Value::Null));
    // Weights from 0 to 0.1 in 16 steps, and in 64.
    let error = |name: &str, key: &str| type_of(name)[key].as_f64().unwrap();
    assert!((0.001..0.005).contains(&error("q4_0", "rmse")) && error("q4_0", "max_error") < 0.015);
    assert!((0.0002..0.001).contains(&error("q6_K", "rmse")));
    assert_eq!(found["worst"].as_array().unwrap().len(), 5);
    assert!(found["peak_resident_bytes"].as_u64().is_none_or(|n| n > 1 << 20));

    let output = quantize("", &[&model, &out], "Q4_0").output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.starts_with(&format!("{}: Q4_0\n\nTYPES", out.display())), "{text}");
    assert!(text.contains("\nLARGEST ERRORS"), "{text}");
    let notes = stderr(&output);
    let lines: Vec<&str> = notes.lines().collect();
    assert!(lines[0].starts_with("[1/8] output_norm.weight") && lines[0].contains("copied"), "{notes}");
    assert!(lines[2].starts_with("[3/8] blk.0.attn_q.weight") && lines[2].contains("f32 -> q4_0"), "{notes}");
    assert!(
        lines[2].contains("rmse ") && lines[2].contains(" MB/s, ") && lines[2].ends_with(" s left"),
        "{notes}"
    );
    assert!(lines[8].starts_with("qgguf: ") && lines[8].contains(" threads"), "{notes}");
}

#[test]
fn numbers_are_rounded_and_copies_are_exact() {
    let Some(dir) = fixtures("numbers_are_rounded_and_copies_are_exact") else { return };
    let (dir, out) = (dir.join("gguf"), tempfile::tempdir().unwrap());
    let path = out.path().join("out.gguf");
    for ty in ["F16", "BF16", "f32", "copy"] {
        let from = dir.join("mistral-tiny-F32.gguf");
        stdout(&mut quantize("-t 2", &[&from, &path], ty));
        let copied = matches!(ty, "f32" | "copy");
        let expected = inspect(&dir.join(format!("mistral-tiny-{}.gguf", if copied { "F32" } else { ty })));
        let found = inspect(&path);
        for tensor in expected["tensors"].as_array().unwrap() {
            let name = tensor["name"].as_str().unwrap();
            let tensor =
                |file: &Path| stdout(qgguf("inspect --json --values 100000 --tensor").args([name]).arg(file));
            let reference = if copied { "F32" } else { ty };
            let (a, b) = (tensor(&path), tensor(&dir.join(format!("mistral-tiny-{reference}.gguf"))));
            let without_offset = |text: &str| {
                let mut value: Value = serde_json::from_str(text).unwrap();
                value.as_object_mut().unwrap().remove("offset");
                value
            };
            assert_eq!(without_offset(&a), without_offset(&b), "{name} as {ty}");
        }
        assert_eq!(found["metadata"]["general.quantization_version"]["value"], 2);
    }
}

#[test]
fn tensors_stand_by_layer_and_name_and_lose_trailing_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (small_model(dir.path(), 64), dir.path().join("out.gguf"));
    stdout(&mut quantize("", &[&model, &out], "COPY"));
    let found = inspect(&out);
    let tensors = found["tensors"].as_array().unwrap();
    let names: Vec<&str> = tensors.iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "output_norm.weight",
            "token_embd.weight",
            "blk.0.attn_q.weight",
            "blk.0.attn_v.weight",
            "blk.0.ffn_down.weight",
            "blk.1.attn_q.weight",
            "blk.1.attn_v.weight",
            "blk.1.ffn_down.weight",
        ]
    );
    assert_eq!(tensors[1]["shape"], serde_json::json!([64, 4]));
    let keys: Vec<&String> = found["metadata"].as_object().unwrap().keys().collect();
    assert!(keys.ends_with(&[&"general.quantization_version".to_owned(), &"general.file_type".to_owned()]));
    assert!(!keys.contains(&&"general.alignment".to_owned()), "everything is aligned to 32");
    assert_eq!(found["metadata"]["general.file_type"]["value"], 1024, "guessed");
}

#[test]
fn a_dry_run_says_what_would_be_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let model = small_model(dir.path(), 256);
    let found = json(&mut quantize("--dry-run --json", &[&model], "q4_k_m"));
    let types: Vec<&str> =
        found["tensors"].as_array().unwrap().iter().map(|t| t["to"].as_str().unwrap()).collect();
    assert_eq!(types, ["f32", "q6_K", "q4_K", "q4_K", "q4_K", "q4_K", "q6_K", "q6_K"]);
    assert_eq!((&found["bytes_before"], &found["n_parameters"]), (&29_696.into(), &7_424.into()));
    assert_eq!(found["bytes_after"], 1024 + 3 * 840 + 4 * 576);
    let text = stdout(&mut quantize("--dry-run", &[&model, Path::new("x.gguf")], "15"));
    let row = |begin: &str| {
        let words: Vec<&str> =
            text.lines().find(|line| line.starts_with(begin)).unwrap().split_whitespace().collect();
        words.join(" ")
    };
    assert_eq!(row("blk.1.ffn_down"), "blk.1.ffn_down.weight 256 x 4 f32 q6_K 4096 840");
    assert_eq!(row("all"), "all 8 7424 29696 5848 6.30 - -");
    assert_eq!(listing(dir.path()), ["model.gguf"]);
}

#[test]
fn flags_choose_types() {
    let dir = tempfile::tempdir().unwrap();
    let model = small_model(dir.path(), 256);
    let types = |flags: &str, ty: &str| -> String {
        let found = json(&mut quantize(&format!("--dry-run --json {flags}"), &[&model], ty));
        let list = found["tensors"].as_array().unwrap().clone();
        list.iter().map(|t| t["to"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(types("--pure", "Q4_K_M"), "f32 q4_K q4_K q4_K q4_K q4_K q4_K q4_K");
    assert_eq!(
        types("--output-tensor-type f16 --tensor-type BLK.0=q8_0 --tensor-type blk=q5_0", "Q4_K_M"),
        "f32 f16 q8_0 q8_0 q8_0 q5_0 q5_0 q5_0"
    );
    assert_eq!(types("--token-embedding-type q5_1", "Q6_K"), "f32 q5_1 q6_K q6_K q6_K q6_K q6_K q6_K");
    let list = dir.path().join("types");
    fs::write(&list, "attn_q=q4_0\n ffn=q4_1 ").unwrap();
    assert_eq!(
        types(&format!("--tensor-type-file {}", list.display()), "Q8_0"),
        "f32 q8_0 q4_0 q8_0 q4_1 q4_0 q8_0 q4_1"
    );
    assert_eq!(
        types("--override-kv llama.expert_count=int:8", "Q8_0"),
        "f32 q8_0 q8_0 q8_0 q8_0 q8_0 q8_0 q8_0"
    );
    let narrow = tempfile::tempdir().unwrap();
    let model = small_model(narrow.path(), 96);
    let found = json(&mut quantize("--dry-run --json --prune-layers 0", &[&model], "Q4_K_M"));
    let list: Vec<(&str, &str)> = found["tensors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| (t["name"].as_str().unwrap(), t["to"].as_str().unwrap()))
        .collect();
    assert_eq!(
        list[2..],
        [("blk.0.attn_q.weight", "q5_0"), ("blk.0.attn_v.weight", "q8_0"), ("blk.0.ffn_down.weight", "q5_0"),]
    );
}

#[test]
fn the_name_of_the_output_may_be_left_to_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let model = small_model(dir.path(), 64);
    // Options may stand anywhere.
    let mut command = qgguf("quantize");
    stdout(command.arg(&model).args(["bf16", "2", "--override-kv", "general.name=str:x"]));
    assert_eq!(listing(dir.path()), ["ggml-model-BF16.gguf", "model.gguf"]);
    let found = inspect(&dir.path().join("ggml-model-BF16.gguf"));
    assert_eq!(found["metadata"]["general.name"]["value"], "x");
    assert_eq!(found["file_type"], "BF16");
}

#[test]
fn wrong_wishes_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (small_model(dir.path(), 64), dir.path().join("out.gguf"));
    fs::write(&out, "old").unwrap();
    let refused = |flags: &str, ty: &str| failure(&mut quantize(flags, &[&model, &out], ty), 1);
    let wrong = |flags: &str, ty: &str| failure(&mut quantize(flags, &[&model, &out], ty), 2);
    for (flags, reason) in [
        ("--override-kv split.count=int:3", "the files of a model are counted when they are written"),
        ("--include-weights attn", "--imatrix <FILE>"),
    ] {
        let output = quantize(flags, &[&model, &out], "F16").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(crate::support::stderr(&output).contains(reason), "{flags}");
    }
    assert!(wrong("", "Q7_K").starts_with("qgguf: no type \"Q7_K\"; known are F32, F16, Q4_0"));
    assert_eq!(
        failure(&mut quantize("", &[&tiny_model(), &out], "Q8_0"), 1),
        format!(
            "qgguf: {}: tensor \"token_embd.weight\" is quantized already, from q6_K to q8_0 it would lose more than \
             from an unquantized model (--allow-requantize does it all the same)",
            tiny_model().display()
        )
    );
    let broken = dir.path().join("nan.gguf");
    let mut gguf = Gguf::new();
    gguf.u32("test.block_count", 0);
    gguf.f32_tensor("norm.weight", &[32], &[[0.0; 31].as_slice(), &[f32::NAN]].concat());
    let broken_model = gguf.save(dir.path(), "nan.gguf");
    let error = failure(&mut quantize("", &[&broken_model, &out], "F16"), 1);
    assert_eq!(error, "qgguf: tensor \"norm.weight\": NaN in row 0, column 31; expected finite weights");
    fs::remove_file(broken).unwrap();
    let error = refused("--prune-layers 2", "F16");
    assert!(error.ends_with("layer 2 cannot be left out: the model has 2"), "{error}");
    let error = refused("--imatrix nowhere", "F16");
    assert_eq!(error, "qgguf: nowhere: No such file or directory (os error 2)");
    let error = refused("--tensor-type-file nowhere", "F16");
    assert!(error.starts_with("qgguf: cannot read nowhere"), "{error}");
    assert_eq!(fs::read(&out).unwrap(), b"old");
    assert_eq!(listing(dir.path()), ["model.gguf", "out.gguf"]);
}

#[test]
fn codebook_types_are_not_yet_made() {
    let dir = tempfile::tempdir().unwrap();
    let model = small_model(dir.path(), 256);
    for (ty, name) in [("IQ3_M", "IQ3_M"), ("iq2_m", "IQ2_M"), ("31", "IQ1_M")] {
        let error = failure(&mut quantize("--pure", &[&model], ty), 2);
        let expected = format!("qgguf: type {name} cannot be made yet (those that can: F32, F16, ");
        assert!(error.starts_with(&expected) && !error.contains(", IQ3_"), "{error}");
        // Sizes can be told all the same.
        stdout(&mut quantize("--dry-run", &[&model], ty));
    }
    let error = failure(&mut quantize("--tensor-type attn_q=iq3_s", &[&model], "Q8_0"), 1);
    assert!(error.ends_with("tensor \"blk.0.attn_q.weight\": type iq3_s cannot be made yet"), "{error}");
}

#[test]
#[cfg(unix)]
fn the_input_is_never_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let model = small_model(dir.path(), 64);
    let (hard, soft) = (dir.path().join("hard.gguf"), dir.path().join("soft.gguf"));
    fs::hard_link(&model, &hard).unwrap();
    std::os::unix::fs::symlink(&model, &soft).unwrap();
    let before = fs::read(&model).unwrap();
    for out in [
        &model,
        &hard,
        &soft,
        &dir.path().join("../").join(dir.path().file_name().unwrap()).join("model.gguf"),
    ] {
        let error = failure(&mut quantize("", &[&model, out], "F16"), 1);
        let expected = format!("qgguf: the output {} is the input {}", out.display(), model.display());
        assert_eq!(error, expected);
    }
    assert_eq!(fs::read(&model).unwrap(), before);
}

#[test]
#[cfg(unix)]
fn a_full_disk_costs_nothing_but_the_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (small_model(dir.path(), 65_536), dir.path().join("out.gguf"));
    fs::write(&out, "old").unwrap();
    // A limit on the size of files stands for the disk; the signal that comes with it ends a process that does nothing
    // about it.
    for ignored in ["", "trap '' XFSZ; "] {
        let script = format!("{ignored}ulimit -f 100; exec \"$0\" \"$@\"");
        let output = std::process::Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_qgguf"), "quantize"])
            .args([&model, &out])
            .arg("F16")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let expected = format!("qgguf: {}: File too large (os error 27)", out.display());
        assert_eq!(stderr(&output).lines().last(), Some(expected.as_str()));
        assert_eq!(fs::read(&out).unwrap(), b"old");
        assert_eq!(listing(dir.path()), ["model.gguf", "out.gguf"]);
    }
}

#[test]
#[cfg(unix)]
fn links_are_followed_and_circles_refused() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let (model, path) = (small_model(dir.path(), 64), |name: &str| dir.path().join(name));
    fs::create_dir(path("sub")).unwrap();
    fs::write(path("sub/old.gguf"), "old").unwrap();
    for (target, link) in
        [("old.gguf", "sub/b"), ("sub/b", "a"), ("sub/new.gguf", "dangling"), ("x", "y"), ("y", "x")]
    {
        symlink(target, path(link)).unwrap();
    }
    let is_link = |name: &str| path(name).symlink_metadata().unwrap().is_symlink();
    // The file at the end is replaced, or made, and the links stay.
    for (link, place) in [("a", "sub/old.gguf"), ("dangling", "sub/new.gguf")] {
        stdout(&mut quantize("", &[&model, &path(link)], "F16"));
        assert!(is_link(link) && is_link("sub/b"));
        assert_eq!(inspect(&path(place))["file_type"], "F16");
    }
    assert_eq!(listing(&path("sub")), ["b", "new.gguf", "old.gguf"]);
    let error = failure(&mut quantize("", &[&model, &path("x")], "F16"), 1);
    assert!(
        error.starts_with(&format!("qgguf: {}: Too many levels of symbolic links", path("x").display())),
        "{error}"
    );
    assert!(is_link("x") && is_link("y"));
    assert_eq!(listing(dir.path()), ["a", "dangling", "model.gguf", "sub", "x", "y"]);
}

#[test]
fn a_missing_folder_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let model = small_model(dir.path(), 64);
    let error =
        failure(quantize("", &[&model, Path::new("nowhere/out.gguf")], "F16").current_dir(dir.path()), 1);
    let expected =
        "qgguf: nowhere/out.gguf: cannot create a file in nowhere: No such file or directory (os error 2)";
    assert_eq!(error, expected);
    for (output, reason) in
        [("nowhere/", "no such folder"), ("nowhere/.", "no such folder"), (".", "is a folder")]
    {
        let mut command = quantize("", &[&model, Path::new(output)], "F16");
        let error = failure(command.current_dir(dir.path()), 1);
        assert_eq!(error, format!("qgguf: {output}: {reason}"));
    }
    assert_eq!(listing(dir.path()), ["model.gguf"]);
}

#[test]
fn patterns_that_decide_nothing_are_mentioned() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (small_model(dir.path(), 256), dir.path().join("out.gguf"));
    let warnings = |flags: &str, ty: &str| {
        let output = quantize(flags, &[&model, &out], ty).output().unwrap();
        assert!(output.status.success());
        let text = stderr(&output);
        let lines = text.lines().filter_map(|line| line.strip_prefix("qgguf: warning: --tensor-type "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    const NO_NAME: &str = ": no tensor has such a name";
    const ELSEWHERE: &str = ": the tensors with such names get their types from elsewhere";
    assert_eq!(
        warnings("--tensor-type attn_q=q8_0 --tensor-type ffn_up=q4_0", "Q4_K_M"),
        [format!("ffn_up{NO_NAME}")]
    );
    assert_eq!(
        warnings(
            "--tensor-type output_norm=q8_0 --tensor-type attn=q8_0 --tensor-type attn_v=q4_0",
            "Q4_K_M"
        ),
        [format!("output_norm{ELSEWHERE}"), format!("attn_v{ELSEWHERE}")]
    );
    assert_eq!(
        warnings("--token-embedding-type q8_0 --tensor-type token_embd=q4_0", "Q4_K_M"),
        [format!("token_embd{ELSEWHERE}")]
    );
    assert_eq!(warnings("--tensor-type attn=q8_0", "F16"), [format!("attn{ELSEWHERE}")]);
    let list = dir.path().join("types");
    fs::write(&list, "attn_q=q4_0 gate=q4_1").unwrap();
    let flags = format!("--dry-run --tensor-type-file {}", list.display());
    assert_eq!(warnings(&flags, "Q8_0"), [format!("gate{NO_NAME}")]);
}

#[test]
fn metadata_that_would_break_the_model_is_refused() {
    let Some(fixtures) = fixtures("metadata_that_would_break_the_model_is_refused") else { return };
    let (model, out) = (fixtures.join("gguf/mistral-tiny-F32.gguf"), tempfile::tempdir().unwrap());
    let path = out.path().join("out.gguf");
    let refused = |flags: &str| {
        let error = failure(&mut quantize(flags, &[&model, &path], "Q8_0"), 1);
        assert!(listing(out.path()).is_empty());
        error.replace(&format!("qgguf: {}: ", model.display()), "")
    };
    for (flag, key, expected, found) in [
        ("llama.block_count=str:x", "llama.block_count", "an int", "a str"),
        ("llama.rope.freq_base=int:10000", "llama.rope.freq_base", "a float", "an int"),
        ("general.name=bool:true", "general.name", "a str", "a bool"),
        ("tokenizer.ggml.tokens=int:1", "tokenizer.ggml.tokens", "a str", "an int"),
    ] {
        assert_eq!(
            refused(&format!("--override-kv {flag}")),
            format!(
                "metadata key \"{key}\" cannot be set: expected {expected} as in the model, found {found}"
            )
        );
    }
    // Of the right kind, or of a key that the model does not have.
    const WITH: &str = "with --override-kv or --prune-layers it could not be opened: ";
    for (flag, reason) in [
        (
            "llama.attention.head_count_kv=int:3",
            "metadata key \"llama.attention.head_count\": expected query heads a multiple of key/value heads",
        ),
        (
            "llama.rope.scaling.type=str:spiral",
            "metadata key \"llama.rope.scaling.type\": expected none, linear, yarn",
        ),
        ("llama.attention.scale=str:x", "metadata key \"llama.attention.scale\": expected f32, found string"),
        (
            "llama.block_count=int:1",
            "architecture \"llama\" has no use for tensor \"blk.1.attn_k.weight\" (and 17 more)",
        ),
        ("tokenizer.ggml.model=str:foo", "tokenizer.ggml.model: expected one of llama, gpt2"),
        (
            "tokenizer.ggml.tokens=str:x",
            "metadata key \"tokenizer.ggml.tokens\": expected array of string, found string",
        ),
    ] {
        let error = refused(&format!("--override-kv {flag}"));
        assert!(error.starts_with(&format!("{WITH}{reason}")), "{error}");
    }
    assert_eq!(
        refused("--prune-layers 0,1,2"),
        format!("{WITH}metadata key \"llama.block_count\": expected 1 to 512, found 0")
    );
    // What does no harm is set, also in a model that cannot be opened anyway.
    stdout(&mut quantize(
        "--override-kv llama.context_length=int:64 --override-kv x.y=str:z",
        &[&model, &path],
        "Q8_0",
    ));
    assert_eq!(inspect(&path)["metadata"]["llama.context_length"]["value"], 64);
    let small = small_model(out.path(), 64);
    stdout(&mut quantize("--override-kv llama.context_length=str:x", &[&small, &path], "F16"));
}

#[test]
#[cfg(unix)]
fn ctrl_c_leaves_the_old_file() {
    signals_leave_the_old_file("", &["INT"], 130);
}

#[test]
#[cfg(unix)]
fn a_request_to_end_leaves_the_old_file_and_says_so_in_the_exit_code() {
    signals_leave_the_old_file("", &["TERM"], 143);
    // As nohup does it.
    if cfg!(target_os = "linux") {
        signals_leave_the_old_file("trap '' HUP;", &["HUP", "TERM"], 143);
    }
}

/// Sends signals while a file is written by a command that begins with a line of the shell.
#[cfg(unix)]
fn signals_leave_the_old_file(shell: &str, signals: &[&str], code: i32) {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.gguf");
    fs::write(&out, "old").unwrap();
    // A gigabyte of holes after a first, small tensor.
    let mut gguf = Gguf::default();
    gguf.string("general.architecture", "llama");
    gguf.u32("llama.block_count", 1);
    gguf.f32_tensor("a.weight", &[32, 2], &[0.5; 64]);
    gguf.tensor("b.weight", &[256, 1 << 20], 0, &[]);
    let model = gguf.save(dir.path(), "model.gguf");
    let n = fs::metadata(&model).unwrap().len();
    fs::File::options().write(true).open(&model).unwrap().set_len(n + (1 << 30)).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{shell} exec \"$@\""), "sh", env!("CARGO_BIN_EXE_qgguf"), "quantize"]);
    let mut child = command.args([&model, &out]).arg("F16").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    assert!(first.starts_with("[1/2] a.weight"), "{first}");
    signals.iter().for_each(|name| crate::support::signal(&child, name));
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "qgguf: interrupted, nothing was written\n");
    assert_eq!(child.wait().unwrap().code(), Some(code));
    assert_eq!(fs::read(&out).unwrap(), b"old");
    assert_eq!(listing(dir.path()), ["model.gguf", "out.gguf"]);
}

#[test]
fn an_importance_matrix_has_to_fit() {
    let Some(fixtures) = fixtures("an_importance_matrix_has_to_fit") else { return };
    let dir = tempfile::tempdir().unwrap();
    let model = small_model(dir.path(), 64);
    for name in ["imatrix.gguf", "imatrix.dat"] {
        let flags = format!("--imatrix {}", fixtures.join("kjv").join(name).display());
        assert_eq!(
            failure(&mut quantize(&flags, &[&model], "F16"), 1),
            format!(
                "qgguf: {}: tensor \"blk.0.attn_q.weight\": the importance matrix has 256 values for it, expected 64 \
                 (64 columns, 1 matrices); it was made for another model",
                model.display()
            )
        );
    }
    let other = dir.path().join("other");
    // One entry of one value.
    fs::write(
        &other,
        [&[1, 0, 0, 0, 1, 0, 0, 0, b'x', 1, 0, 0, 0, 1, 0, 0, 0][..], &1f32.to_le_bytes()].concat(),
    )
    .unwrap();
    let error = failure(&mut quantize(&format!("--imatrix {}", other.display()), &[&model], "Q4_0"), 1);
    assert!(error.contains("none of the 1 tensors in this importance matrix is quantized here"), "{error}");
    let junk = dir.path().join("junk");
    fs::write(&junk, [7, 0, 0, 0, 255, 255, 255, 127]).unwrap();
    let flags = format!("--imatrix {}", junk.display());
    let error = failure(&mut quantize(&flags, &[&model], "F16"), 1);
    let expected = "no importance matrix: name 0 at byte 8 needs 2147483647 bytes, 0 are left";
    assert_eq!(error, format!("qgguf: {}: {expected}", junk.display()));
}
