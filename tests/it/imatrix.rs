//! `qgguf imatrix`, beside the files that llama-imatrix made.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use qgguf_convert::imatrix::Imatrix;

use crate::fixtures::fixtures;
use crate::support::{failure, interrupt, qgguf, read_until, spawn, stderr};

const LICENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/LICENSE-APACHE");

/// Collects for the tiny model on the licence, 64 tokens a chunk.
fn collect(out: &Path, flags: &str) -> assert_cmd::Command {
    let mut command = qgguf("imatrix -c 64 -f");
    command.arg(LICENCE).arg("-o").arg(out).args(flags.split_whitespace());
    command
}

fn read(command: &mut assert_cmd::Command, file: &Path) -> Imatrix {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    Imatrix::read(file).unwrap()
}

#[cfg(unix)]
#[test]
fn a_pipe_gets_the_matrix_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("imatrix.dat");
    let flags = "--chunks 5 --output-frequency 2 --output-format dat";
    let piped = collect(Path::new("/dev/stdout"), flags).output().unwrap().stdout;
    read(&mut collect(&file, flags), &file);
    assert!(piped == fs::read(&file).unwrap(), "{} bytes", piped.len());
}

#[test]
fn a_copy_does_not_replace_the_text() {
    let dir = tempfile::tempdir().unwrap();
    let (file, text) = (dir.path().join("i"), dir.path().join("i.at_1"));
    fs::write(&text, "In the beginning God created the heaven and the earth. ".repeat(20)).unwrap();
    let before = fs::read(&text).unwrap();
    let flags = "imatrix -c 16 --chunks 2 --save-frequency 1 -f";
    let ended = qgguf(flags).arg(&text).arg("-o").arg(&file).output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
    assert!(fs::read(&text).unwrap() == before);
}

#[test]
fn sums_are_those_of_llama_cpp() {
    let Some(dir) = fixtures("imatrix") else { return };
    let dir = dir.join("kjv");
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("imatrix.gguf");
    let mut command = qgguf("imatrix --no-ppl --chunks 100 -m");
    command.arg(dir.join("kjv-tiny-F16.gguf")).arg("-f").arg(dir.join("calib.txt")).arg("-o").arg(&file);
    let (ours, theirs) = (read(&mut command, &file), Imatrix::read(&dir.join("imatrix.gguf")).unwrap());
    assert!(ours.entries.keys().eq(theirs.entries.keys()));
    assert_eq!((ours.n_chunks, ours.chunk_size), (theirs.n_chunks, theirs.chunk_size));
    for (name, theirs) in &theirs.entries {
        let ours = &ours.entries[name];
        assert_eq!(ours.counts, theirs.counts, "{name}");
        for (ours, theirs) in ours.sums.iter().zip(&theirs.sums) {
            // llama.cpp rounds activations to f16 where they meet f16 weights. Seen: 5e-4.
            assert!((ours / theirs - 1.0).abs() < 1e-3, "{name}: {ours} for {theirs}");
        }
    }
}

#[test]
fn one_run_several_runs_and_any_threads_make_the_same_file() {
    let out = tempfile::tempdir().unwrap();
    let path = |name: &str| out.path().join(name);
    let whole = path("whole.gguf");
    let expected = read(&mut collect(&whole, "--chunks 4 -t 1"), &whole);
    assert_eq!(expected.n_chunks, 4);
    assert!(expected.entries.values().all(|entry| entry.counts == [256.0]));
    assert!(expected.entries.keys().all(|name| name.starts_with("blk.")));
    for flags in ["-t 3", "-t 2 -ub 7", "-t 1 -ub 40 --no-ppl", "-t 2 -ofreq 1 --save-frequency 3"] {
        let file = path("again.gguf");
        read(collect(&file, "--chunks 4").args(flags.split_whitespace()), &file);
        assert!(fs::read(&file).unwrap() == fs::read(&whole).unwrap(), "{flags}");
    }
    assert_eq!(Imatrix::read(&path("again.gguf.at_3")).unwrap().n_chunks, 3);
    let part = path("part.gguf");
    read(&mut collect(&part, "--chunks 3"), &part);
    let rest = path("rest.gguf");
    read(collect(&rest, "--chunk 3 --chunks 1 --in-file").arg(&part), &rest);
    assert!(fs::read(&rest).unwrap() == fs::read(&whole).unwrap());
}

#[test]
fn matrices_are_merged_and_converted() {
    let out = tempfile::tempdir().unwrap();
    let path = |name: &str| out.path().join(name);
    let (first, second, both) = (path("first.gguf"), path("second.dat"), path("both.gguf"));
    let a = read(&mut collect(&first, "--chunks 2"), &first);
    let b = read(&mut collect(&second, "--chunk 2 --chunks 1"), &second);
    assert_eq!((b.chunk_size, b.n_chunks), (0, 1));
    // The older format does not say how long chunks are: what is taken is told, which may not be what was meant.
    for n_ctx in [64, 32] {
        let mut resumed = qgguf(&format!("imatrix -c {n_ctx} --in-file"));
        let said = stderr(&resumed.arg(&second).arg("-o").arg(path("resumed.gguf")).output().unwrap());
        let expected =
            format!("second.dat: it does not say how long its chunks are; {n_ctx} tokens are taken (-c), ");
        assert!(said.contains(&expected), "{said}");
    }
    let mut merge = qgguf("imatrix -c 64 --in-file");
    let both = read(merge.arg(&first).arg("--in-file").arg(&second).arg("-o").arg(&both), &both);
    assert_eq!((both.n_chunks, both.chunk_size), (3, 64));
    for (name, entry) in &both.entries {
        assert_eq!(entry.counts, [192.0]);
        let parts = a.entries[name].sums.iter().zip(&b.entries[name].sums);
        for (sum, (a, b)) in entry.sums.iter().zip(parts) {
            assert!((sum - (a + 64.0 * b)).abs() <= 1e-6 * sum, "{name}");
        }
    }
    let output = qgguf("imatrix --show-statistics --in-file").arg(&first).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.starts_with("28 tensors, 2 chunks of 64 tokens, from "), "{table}");
    assert_eq!(table.lines().count(), 2 + 28);
    assert!(table.contains("blk.3.ffn_down.weight") && table.contains("cosine"), "{table}");
}

#[test]
fn the_output_projection_is_collected_if_asked_for() {
    let Some(dir) = fixtures("process output") else { return };
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("i.gguf");
    let model = dir.join("gguf/llama-tiny-F16.gguf");
    let imatrix = read(collect(&file, "--chunks 2 -ub 40 --process-output -m").arg(&model), &file);
    assert_eq!(imatrix.entries["output.weight"].counts, [128.0]);
    let tied = collect(&file, "--chunks 1 --process-output").output().unwrap();
    assert!(stderr(&tied).contains("the output projection is that of the embeddings"), "{}", stderr(&tied));
}

/// Sums of squares computed from the named intermediates of `--trace`.
#[test]
fn experts_and_fused_projections_are_counted_once_for_each_token_they_see() {
    let Some(dir) = fixtures("experts") else { return };
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("i.gguf");
    let moe = dir.join("gguf/qwen3moe-tiny-F16.gguf");
    let trace = out.path().join("trace");
    let imatrix =
        read(collect(&file, "--chunks 1 --no-ppl -ub 20 --trace").arg(&trace).arg("-m").arg(&moe), &file);
    let values = |name: &str| -> Vec<f32> {
        let bytes = fs::read(trace.join(name)).unwrap();
        bytes[128..].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    for layer in 0..2 {
        let norm = values(&format!("ffn_norm-{layer}.npy"));
        let probs = values(&format!("ffn_moe_probs-{layer}.npy"));
        let mut sums = vec![0.0f32; 8 * 256];
        let mut counts = [0.0f32; 8];
        for (x, probs) in norm.chunks(256).zip(probs.chunks(8)) {
            let mut experts: Vec<usize> = (0..8).collect();
            experts.sort_by(|&a, &b| probs[b].total_cmp(&probs[a]));
            for &expert in &experts[..2] {
                counts[expert] += 1.0;
                let sums = &mut sums[expert * 256..][..256];
                sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x * x);
            }
        }
        for part in ["gate", "up"] {
            let entry = &imatrix.entries[&format!("blk.{layer}.ffn_{part}_exps.weight")];
            assert_eq!((&entry.sums, entry.counts.as_slice()), (&sums, &counts[..]));
        }
        let down = &imatrix.entries[&format!("blk.{layer}.ffn_down_exps.weight")];
        assert_eq!((down.counts.as_slice(), down.sums.len()), (&counts[..], 8 * 32));
        let router = &imatrix.entries[&format!("blk.{layer}.ffn_gate_inp.weight")];
        assert_eq!(router.counts, [64.0]);
    }
    let phi3 = dir.join("gguf/phi3-tiny-F16.gguf");
    let imatrix = read(collect(&file, "--chunks 1 -m").arg(&phi3), &file);
    for name in ["attn_qkv", "attn_output", "ffn_up", "ffn_down"] {
        assert_eq!(imatrix.entries[&format!("blk.0.{name}.weight")].counts, [64.0], "{name}");
    }
}

#[test]
fn experts_that_no_token_reached_are_reported() {
    let Some(dir) = fixtures("unreached experts") else { return };
    let out = tempfile::tempdir().unwrap();
    let (text, file) = (out.path().join("text.txt"), out.path().join("i.gguf"));
    fs::write(&text, "a a a a a a a a a a").unwrap();
    let mut command = qgguf("imatrix -c 4 --chunks 1 -m");
    command.arg(dir.join("gguf/qwen3moe-tiny-F16.gguf")).arg("-f").arg(&text).arg("-o").arg(&file);
    let said = stderr(&command.output().unwrap());
    assert!(said.contains("of 8 experts were never reached"), "{said}");
    // So it is when matrices are only merged.
    let merged = qgguf("imatrix -o").arg(&file).arg("--in-file").arg(&file).output().unwrap();
    assert!(stderr(&merged).contains("of 8 experts were never reached"), "{}", stderr(&merged));
    // So it is when a model is quantized by such a matrix.
    let mut quantize = qgguf("quantize --dry-run --imatrix");
    quantize.arg(&file).arg(dir.join("gguf/qwen3moe-tiny-F16.gguf")).arg("Q4_0");
    let said = stderr(&quantize.output().unwrap());
    let unreached =
        said.lines().filter(|line| line.contains("of 8 experts were never reached")).collect::<Vec<_>>();
    assert!(!unreached.is_empty(), "{said}");
    assert!(unreached.iter().all(|line| line.ends_with("(all of their columns count alike)")), "{said}");
    let imatrix = Imatrix::read(&file).unwrap();
    let entry = &imatrix.entries["blk.0.ffn_up_exps.weight"];
    let unreached = entry.unreached();
    assert!(!unreached.is_empty());
    assert!(unreached.iter().all(|&e| entry.importance()[e * 256..][..256].iter().all(|&v| v == 1.0)));
}

#[test]
fn what_does_not_fit_together_is_explained() {
    let out = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { out.path().join(name) };
    let (file, other) = (path("i.gguf"), path("other.gguf"));
    read(&mut collect(&file, "--chunks 1"), &file);
    let before = fs::read(&file).unwrap();
    let mut command = qgguf("imatrix -c 32 --chunks 1 -f");
    let line = failure(command.arg(LICENCE).arg("--in-file").arg(&file).arg("-o").arg(&file), 1);
    assert!(line.contains("i.gguf: expected chunks of 32 tokens, found 64"), "{line}");
    assert!(fs::read(&file).unwrap() == before);
    let line = failure(&mut collect(&file, "--chunk 100000"), 1);
    assert!(line.contains("none of which comes after the first 100000"), "{line}");
    failure(&mut qgguf("imatrix"), 2);
    failure(&mut qgguf("imatrix --show-statistics"), 2);
    let line = failure(qgguf("imatrix --in-file").arg(LICENCE).arg("-o").arg(&other), 1);
    assert!(line.contains("LICENSE-APACHE: no importance matrix"), "{line}");
    let Some(dir) = fixtures("imatrix of another model") else { return };
    let model = dir.join("gguf/gemma3-tiny-F16.gguf");
    let line = failure(collect(&file, "--chunks 1 -m").arg(model).arg("--in-file").arg(&file), 1);
    assert!(line.contains("made for another model"), "{line}");
    assert!(!other.exists());
    let mut command = qgguf("imatrix --in-file");
    command.arg(dir.join("kjv/imatrix.gguf")).arg("--in-file").arg(&file);
    let line = failure(command.arg("-o").arg(&other), 1);
    assert!(line.contains("i.gguf: expected chunks of 512 tokens as before, found 64"), "{line}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_keeps_what_there_is_and_says_how_to_go_on() {
    let out = tempfile::tempdir().unwrap();
    let (text, file) = (out.path().join("text.txt"), out.path().join("i.gguf"));
    fs::write(&text, fs::read_to_string(LICENCE).unwrap().repeat(200)).unwrap();
    let [text, path] = [&text, &file].map(|path| path.to_str().unwrap());
    let mut child = spawn(&["imatrix", "-f", text, "-o", path]);
    let mut pipe = child.stderr.take().unwrap();
    let mut said = read_until(&mut pipe, "[2]");
    interrupt(&child);
    pipe.read_to_end(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let n = Imatrix::read(&file).unwrap().n_chunks;
    let said = String::from_utf8(said).unwrap();
    assert!(n >= 2 && said.contains(&format!("--in-file {path} --chunk {n}")), "{said}");
}

#[test]
fn a_result_without_a_place_is_refused_before_the_work() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.txt");
    std::fs::write(&text, "In the beginning God created the heaven and the earth. ".repeat(200)).unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-tiny-Q4_K_M.gguf");
    let nowhere = dir.path().join("nowhere");
    for (flags, file) in [
        (format!("imatrix -c 64 -m {model} -o"), nowhere.join("x.gguf")),
        (format!("imatrix -c 64 -m {model} -o"), dir.path().to_owned()),
        #[cfg(unix)]
        (format!("imatrix -c 64 -m {model} -o"), PathBuf::from("/dev/null")),
        (format!("compare -c 64 -m {model} -m {model} --plot"), nowhere.join("x.svg")),
        (format!("attention -m {model} --plot"), nowhere.join("x.svg")),
    ] {
        let line = failure(qgguf(&flags).arg(&file).arg("-f").arg(&text), 1);
        assert!(line.starts_with(&format!("qgguf: cannot write {}: ", file.display())), "{line}");
    }
}

#[cfg(unix)]
#[test]
fn a_text_may_come_from_a_named_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let [pipe, out] = ["pipe", "i.gguf"].map(|name| dir.path().join(name));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, fs::read(LICENCE).unwrap())
    });
    let mut command = qgguf("imatrix -c 64 --chunks 1 -f");
    // Opening the pipe once more would wait for another writer.
    command.arg(&pipe).arg("-o").arg(&out).timeout(Duration::from_secs(300));
    assert_eq!(read(&mut command, &out).n_chunks, 1);
    writer.join().unwrap().unwrap();
}

#[test]
fn an_output_that_is_an_input_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (model, text) = (dir.path().join("model.svg"), dir.path().join("text.svg"));
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-tiny-Q4_K_M.gguf"), &model).unwrap();
    fs::write(&text, "In the beginning God created the heaven and the earth. ".repeat(200)).unwrap();
    let before = [&model, &text].map(|path| fs::read(path).unwrap());
    for input in [&model, &text] {
        let m = model.display();
        for flags in [
            format!("perplexity -c 64 -m {m} --kl-divergence-base"),
            format!("imatrix -c 64 -m {m} -o"),
            format!("compare -c 64 -m {m} -m {m} --plot"),
            format!("attention -m {m} --plot"),
            format!("logits -m {m} -o"),
        ] {
            // Another name of the same file.
            let output = input.with_file_name(format!("./{}", input.file_name().unwrap().display()));
            let line = failure(qgguf(&flags).arg(&output).arg("-f").arg(&text), 1);
            assert!(line.starts_with("qgguf: the output ") && line.contains(" is the input "), "{line}");
        }
    }
    let line = failure(qgguf("lab dither").args([&model, &model]), 1);
    assert!(line.contains(" is the input "), "{line}");
    assert!(before == [&model, &text].map(|path| fs::read(path).unwrap()));
}
