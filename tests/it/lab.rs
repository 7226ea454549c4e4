//! `qgguf lab`: models in four bits, and originals made of quantized files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use qgguf::engine::EngineOptions;
use qgguf::lab::int4::{Int4Matrix, Scheme};
use qgguf::lab::variant::{Original, Quantized, Selection};
use qgguf::model::{Model, ModelOptions};
use qgguf::session::Session;
use qgguf_gguf::dequantize::dequantize_row;
use qgguf_gguf::{
    GgmlType, GgufFile, GgufWriter, Metadata, MetadataArray, MetadataValue, StringArray, TensorSpec,
};
use qgguf_kernels::KvType;
use serde_json::Value;

use crate::fixtures::fixtures;
use crate::support::{failure, json, qgguf, stderr, stdout, tiny_model};

/// The tiny model as an f16 original.
fn original(dir: &Path) -> PathBuf {
    let path = dir.join("original.gguf");
    stdout(qgguf("lab dither --seed 7").arg(tiny_model()).arg(&path));
    path
}

fn numbers<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = f64> + use<'a> {
    let key = key.to_owned();
    value.as_array().unwrap().iter().map(move |v| v[&key].as_f64().unwrap())
}

#[test]
fn errors_grow_with_the_group_and_answers_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let model = original(dir.path());
    let prompts = dir.path().join("prompts.txt");
    fs::write(&prompts, "In the beginning\n---\nAnd the LORD spake unto Moses, saying,\n").unwrap();
    let svg = dir.path().join("int4.svg");
    let mut command = qgguf("lab int4 --json -n 40 -t 1 --prompts");
    let report = json(command.arg(&prompts).arg("-m").arg(&model).arg("--plot").arg(&svg));
    assert_eq!(
        (&report["complete"], &report["n_predict"], &report["n_short"]),
        (&true.into(), &40.into(), &32.into())
    );
    let variants = report["variants"].as_array().unwrap();
    let int4: Vec<&Value> = variants.iter().filter(|v| v["scheme"].is_string()).collect();
    assert_eq!(int4.len(), 8);
    for scheme in int4.chunks(4) {
        let groups: Vec<u64> = scheme.iter().map(|v| v["group"].as_u64().unwrap()).collect();
        assert_eq!(groups, [32, 64, 128, 256]);
        for pair in scheme.windows(2) {
            let of = |i: usize, key: &str| pair[i][key].as_f64().unwrap();
            assert!(of(0, "error") < of(1, "error") && of(0, "bytes") > of(1, "bytes"), "{pair:?}");
        }
        for variant in scheme {
            // Trained weights are nearly Gaussian.
            let ratio = variant["error"].as_f64().unwrap() / variant["theory"].as_f64().unwrap();
            assert!((0.97..1.05).contains(&ratio), "{ratio}");
            assert_eq!(variant["tensors"].as_array().unwrap().len(), 29);
            assert_eq!(numbers(&variant["prompts"], "n_tokens").count(), 2);
            for (rms, cosine) in
                numbers(&variant["prompts"], "relative_rms").zip(numbers(&variant["prompts"], "cosine"))
            {
                assert!(rms > 0.01 && rms < 0.3 && cosine > 0.95 && cosine < 1.0, "{rms} {cosine}");
            }
            for prompt in variant["prompts"].as_array().unwrap() {
                let first = prompt["first_divergence"].as_u64().unwrap_or(40);
                assert_eq!(prompt["same_argmax"], first > 0);
                assert!(prompt["equal_tokens"].as_f64().unwrap() >= first as f64 / 40.0);
            }
        }
    }
    // 4 bits and 16 for every 64 weights; and 4 more where there is a zero.
    let bits = |i: usize| int4[i]["bits_per_weight"].as_f64().unwrap();
    assert!((bits(1) - 4.25).abs() < 1e-9 && (bits(5) - 4.3125).abs() < 1e-9, "{} {}", bits(1), bits(5));
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("asymmetric") && svg.contains("weights in a group"));
}

#[test]
fn only_and_except_the_output_are_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let model = original(dir.path());
    let run = |flag: &str| {
        let mut command = qgguf("lab int4 --json -n 1 -t 1 --groups 32");
        let report = json(command.arg(flag).arg("-m").arg(&model));
        let tensors = report["variants"][0]["tensors"].as_array().unwrap().clone();
        let names: Vec<String> = tensors.iter().map(|t| t["tensor"].as_str().unwrap().to_owned()).collect();
        (names, report["variants"][0]["bytes"].as_u64().unwrap())
    };
    let (only, bytes) = run("--only-output");
    // The tiny model's output projection is its embeddings, which stay: the file would grow.
    assert_eq!(only, ["output.weight"]);
    let original = fs::metadata(&model).unwrap().len();
    assert!(bytes > original - 200_000 + 4096 * 256 / 2, "{bytes} {original}");
    let (except, _) = run("--except-output");
    assert_eq!(except.len(), 28);
    assert!(except.iter().all(|name| name.starts_with("blk.")), "{except:?}");
}

#[test]
fn fused_products_are_the_logits_of_the_variant() {
    let dir = tempfile::tempdir().unwrap();
    let options = ModelOptions::default();
    let model = Arc::new(Model::open(original(dir.path()), &options).unwrap());
    let n_vocab = model.hparams().n_vocab;
    let original = Original::new(model, Selection::OnlyOutput).unwrap();
    for scheme in Scheme::ALL {
        let mut output = None;
        let variant = original
            .variant(&options, |matrix, weights| {
                let quantized = Int4Matrix::quantize(weights, matrix.shape[0] as usize, 64, scheme)?;
                let weights = quantized.dequantize();
                let n_bytes = quantized.bytes() as u64;
                output = Some(quantized);
                Ok::<_, qgguf::lab::int4::Int4Error>(Some(Quantized { weights, n_bytes }))
            })
            .unwrap();
        let options = EngineOptions {
            n_threads: 1,
            type_k: KvType::F32,
            type_v: KvType::F32,
            ..EngineOptions::default()
        };
        let mut session = Session::new(variant.model, None, &options).unwrap();
        let last = Arc::new(Mutex::new(Vec::new()));
        let shared = last.clone();
        session.engine_mut().set_trace(Some(Box::new(move |name, _, _, values| {
            if name == "result_norm" {
                *shared.lock().unwrap() = values.to_vec();
            }
        })));
        let logits = session.eval(&[70, 80, 90]).unwrap().to_vec();
        let mut fused = vec![0.0; n_vocab];
        output.unwrap().matvec(&last.lock().unwrap(), &mut fused);
        let largest = logits.iter().fold(0f32, |m, x| m.max(x.abs()));
        let off = logits.iter().zip(&fused).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(off < 1e-5 * largest, "{scheme:?}: {off} of {largest}");
    }
}

#[test]
fn every_tiny_model_runs_with_four_bits() {
    let Some(dir) = fixtures("every_tiny_model_runs_with_four_bits") else { return };
    for name in ["qwen3moe-tiny", "qwen2-odd", "gemma3-tiny", "phi3-tiny"] {
        let model = dir.join(format!("gguf/{name}-F16.gguf"));
        let report = json(qgguf("lab int4 --json -n 2 -t 1 --groups 64,128 -m").arg(model));
        let variants = report["variants"].as_array().unwrap();
        for variant in variants.iter().filter(|v| v["scheme"].is_string()) {
            let (error, theory) = (variant["error"].as_f64().unwrap(), variant["theory"].as_f64().unwrap());
            assert!((error / theory - 1.0).abs() < 0.05, "{name}: {error} {theory}");
            let experts = variant["tensors"].as_array().unwrap().iter();
            let experts = experts.filter(|t| t["tensor"].as_str().unwrap().contains("_exps")).count();
            assert_eq!(experts, if name.contains("moe") { 6 } else { 0 });
        }
    }
}

#[test]
fn a_checkpoint_is_an_original_too() {
    let Some(dir) = fixtures("a_checkpoint_is_an_original_too") else { return };
    let run = |model: &Path| json(qgguf("lab int4 --json -n 4 -t 1 --groups 64 --pre qwen2 -m").arg(model));
    // Where the checkpoint is bf16 and the file f16, weights are the same but for those too small for f16.
    let (folder, file) = (run(&dir.join("hf/qwen3-untied")), run(&dir.join("gguf/qwen3-untied-F16.gguf")));
    assert_eq!(folder["n_weights"], file["n_weights"]);
    for i in 0..2 {
        let of = |report: &Value, key: &str| report["variants"][i][key].as_f64().unwrap();
        assert!((of(&folder, "error") / of(&file, "error") - 1.0).abs() < 1e-3);
        let names = |report: &Value| {
            let tensors = report["variants"][i]["tensors"].as_array().unwrap().clone();
            let mut names: Vec<String> = tensors.iter().map(|t| t["tensor"].to_string()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&folder), names(&file));
    }
    let empty = tempfile::tempdir().unwrap();
    let line = failure(qgguf("lab int4 -m").arg(empty.path()), 1);
    assert!(line.contains(empty.path().to_str().unwrap()), "{line}");
}

#[test]
fn other_files_of_the_model_stand_beside() {
    let Some(dir) = fixtures("other_files_of_the_model_stand_beside") else { return };
    let dir = dir.join("kjv");
    let run = |flags: &str, beside: &Path| {
        let mut command = qgguf(&format!("lab int4 --json -n 4 -t 1 --groups 32 {flags} -m"));
        command.arg(dir.join("kjv-tiny-F16.gguf")).arg("--beside").arg(beside);
        command
    };
    let report = json(&mut run("", &dir.join("kjv-tiny-Q4_K_M.gguf")));
    let variant = report["variants"].as_array().unwrap().last().unwrap();
    assert_eq!((&variant["name"], &variant["theory"]), (&"kjv-tiny-Q4_K_M.gguf".into(), &Value::Null));
    let error = |key: &str| numbers(&report["variants"], key).collect::<Vec<_>>();
    // Less than any group of 32 with one scale loses, in about as many bits.
    let (least, bits) = (*error("error").last().unwrap(), *error("bits_per_weight").last().unwrap());
    assert!(least < 0.07 && error("error")[0] > 0.09 && (4.5..5.5).contains(&bits), "{least} {bits}");
    let only = json(&mut run("--only-output", &dir.join("kjv-tiny-Q4_K_M.gguf")));
    let tensors = only["variants"].as_array().unwrap().last().unwrap()["tensors"].as_array().unwrap().clone();
    assert_eq!((tensors.len(), &tensors[0]["tensor"]), (1, &"output.weight".into()));
    // Q6_K.
    assert_eq!(tensors[0]["bytes"], 4096 * 210);
}

#[test]
fn a_file_of_another_model_is_refused_before_the_work() {
    let dir = tempfile::tempdir().unwrap();
    let original = original(dir.path());
    let said = |original: &Path, beside: &Path| {
        let mut command = qgguf("lab int4 -n 4 -t 1 --groups 32 -m");
        let output = command.arg(original).arg("--beside").arg(beside).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(!said.contains("(1 of "), "{said}");
        said
    };
    let absent = said(&original, &dir.path().join("absent.gguf"));
    assert!(absent.contains("absent.gguf: "), "{absent}");
    // The same model with one thing changed.
    let file = GgufFile::open(&original).unwrap();
    let other = dir.path().join("other.gguf");
    let changed = |metadata: &dyn Fn(&mut Metadata), tensor: &dyn Fn(&mut TensorSpec)| {
        let mut all = file.metadata().clone();
        metadata(&mut all);
        let mut specs: Vec<TensorSpec> = file.tensors().iter().map(TensorSpec::from).collect();
        specs.iter_mut().for_each(tensor);
        let mut writer = GgufWriter::create(&other, 3, &all, &specs).unwrap();
        (0..specs.len()).for_each(|i| writer.write(file.tensor_at(i).bytes()).unwrap());
        writer.finish().unwrap();
        said(&original, &other)
    };
    let set = |key: &'static str, value: MetadataValue| {
        move |metadata: &mut Metadata| _ = metadata.set(key, value.clone())
    };
    let tokens = file.metadata().strings("tokenizer.ggml.tokens").unwrap().unwrap();
    let mut renamed: StringArray =
        tokens.iter().enumerate().map(|(i, t)| if i == 7 { "x" } else { t }).collect();
    let vocabulary = |tokens: &StringArray| {
        set("tokenizer.ggml.tokens", MetadataValue::Array(MetadataArray::String(tokens.clone())))
    };
    let same = |_: &mut TensorSpec| ();
    let turned = |tensor: &mut TensorSpec| {
        if tensor.name == "blk.3.ffn_up.weight" {
            tensor.shape.reverse();
        }
    };
    let gone = |tensor: &mut TensorSpec| {
        if tensor.name == "blk.3.ffn_up.weight" {
            tensor.name = "blk.9.ffn_up.weight".to_owned();
        }
    };
    let llama = set("general.architecture", MetadataValue::String("llama".to_owned()));
    let token = changed(&vocabulary(&renamed), &same);
    renamed.push("one more");
    for (said, expected) in [
        (
            changed(&llama, &same),
            "expected architecture qwen3 as the original has, found llama: it is another model",
        ),
        (
            changed(&vocabulary(&renamed), &same),
            "expected a vocabulary of 4096 tokens as the original has, found 4097",
        ),
        (token, "expected token 7 to be \"(\" as the original has, found x: it is another model"),
        (
            changed(&|_| (), &turned),
            "tensor \"blk.3.ffn_up.weight\": expected [256, 768] as the original has, found [768, 256]",
        ),
        (changed(&|_| (), &gone), "tensor \"blk.3.ffn_up.weight\" is missing"),
    ] {
        assert!(said.contains(&format!("other.gguf: {expected}")), "{said}");
    }
}

#[test]
fn tables_are_text_or_markdown() {
    let dir = tempfile::tempdir().unwrap();
    let model = original(dir.path());
    let run = |flags: &str| stdout(qgguf(&format!("lab int4 -n 2 -t 1 --groups 32 {flags} -m")).arg(&model));
    let text = run("");
    for part in ["All prompts", "symmetric 32", "dialogue", "ffn_down.weight", "russian"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("blk.3."), "{text}");
    let markdown = run("--markdown --tensors");
    assert!(markdown.contains("|---|---:|") && markdown.contains("| blk.3.ffn_down.weight"), "{markdown}");
}

#[test]
fn dithered_weights_are_near_the_old_ones_but_off_their_grid() {
    let dir = tempfile::tempdir().unwrap();
    let path = original(dir.path());
    let (old, new) = (GgufFile::open(tiny_model()).unwrap(), GgufFile::open(&path).unwrap());
    assert_eq!(new.metadata().u32("general.file_type").unwrap(), Some(1));
    assert_eq!(new.metadata().u64("qgguf.dither.seed").unwrap(), Some(7));
    let weights = |file: &GgufFile, name: &str| {
        let view = file.tensor(name).unwrap();
        let mut out = vec![0.0; view.info().n_elements() as usize];
        dequantize_row(view.ty(), view.bytes(), &mut out).unwrap();
        out
    };
    for info in old.tensors() {
        let (before, after) = (weights(&old, &info.name), weights(&new, &info.name));
        let ty = new.tensor(&info.name).unwrap().ty();
        if info.ty == GgmlType::F32 {
            assert_eq!((ty, before), (GgmlType::F32, after));
            continue;
        }
        assert_eq!(ty, GgmlType::F16);
        let error = qgguf::lab::relative_error(&before, &after);
        // A step of 4 to 6 bits, times 0.45 / √3.
        assert!(error > 0.005 && error < 0.09, "{}: {error}", info.name);
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert!(moved as f64 > 0.95 * before.len() as f64, "{}", info.name);
    }
    let again = dir.path().join("again.gguf");
    stdout(qgguf("lab dither --seed 7").arg(tiny_model()).arg(&again));
    assert_eq!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
    stdout(qgguf("lab dither --seed 8").arg(tiny_model()).arg(&again));
    assert_ne!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
}

#[test]
fn files_that_make_no_sense_here_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.gguf");
    let line = failure(qgguf("lab int4 -m").arg(tiny_model()), 1);
    assert!(line.contains("tensor \"token_embd.weight\" is q6_K; expected f16, bf16 or f32"), "{line}");
    assert!(line.contains("qgguf lab dither"), "{line}");
    let original = original(dir.path());
    let line = failure(qgguf("lab dither").arg(&original).arg(&out), 1);
    assert!(line.contains("original.gguf: no tensor is quantized"), "{line}");
    let line = failure(qgguf("lab dither").arg(tiny_model()).arg("/nonexistent/out.gguf"), 1);
    assert!(line.contains("/nonexistent"), "{line}");
    let line = failure(qgguf("lab int4 -n 2048 -m").arg(&original), 1);
    assert!(line.contains("2048 tokens and a prompt do not fit the context of 2048"), "{line}");
    let line = failure(qgguf("lab int4 --prompts /nonexistent -m").arg(&original), 1);
    assert!(line.contains("cannot read /nonexistent"), "{line}");
    for flags in ["--groups 33", "--groups 0", "-n 0", "--only-output --except-output", "--json --markdown"] {
        let output = qgguf(&format!("lab int4 {flags} -m")).arg(&original).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags}: {}", stderr(&output));
    }
    assert!(!out.exists());
    if let Some(dir) = fixtures("files_that_make_no_sense_here_are_refused") {
        let line = failure(qgguf("lab dither").arg(dir.join("gguf/qwen3-tiny-MXFP4.gguf")).arg(&out), 1);
        assert!(line.contains("is mxfp4, whose weights lie on no even grid; expected q4_0, q4_1"), "{line}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_shows_what_was_measured() {
    use std::io::{BufRead, BufReader, Read};
    let dir = tempfile::tempdir().unwrap();
    let model = original(dir.path());
    let model = model.to_str().unwrap();
    let mut child = crate::support::spawn(&["lab", "int4", "-n", "400", "-t", "1", "-m", model]);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // The first variant is done when the second begins.
    assert!(lines.any(|line| line.unwrap().contains("(2 of ")));
    crate::support::interrupt(&child);
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(out.contains("symmetric 32") && out.contains("interrupted: variants are missing"), "{out}");
    assert!(!out.contains("asymmetric 256"), "{out}");
}
