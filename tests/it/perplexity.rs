//! `qgguf perplexity`, beside what llama-perplexity computed for the same files and text.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qgguf::engine::EngineOptions;
use qgguf::evaluate::{Chunks, Perplexity};
use qgguf::model::{Model, ModelOptions};
use qgguf::session::Session;
use serde_json::Value;

use crate::fixtures::fixtures;
use crate::support::{failure, interrupt, json, qgguf, read_until, spawn, stderr, stdout, tiny_model};

/// A file of the trained fixture model.
fn kjv(test: &str, name: &str) -> Option<PathBuf> {
    Some(fixtures(test)?.join("kjv").join(name))
}

/// `qgguf perplexity` of a model on a text.
fn perplexity(model: &Path, text: &Path, flags: &str) -> assert_cmd::Command {
    let mut command = qgguf("perplexity -m");
    command.arg(model).arg("-f").arg(text).args(flags.split_whitespace());
    command
}

/// Text for tests that need no fixture: long enough for some chunks of 64 tokens.
fn licence() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/LICENSE-APACHE"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn the_perplexity_is_that_of_llama_cpp() {
    let Some(model) = kjv("perplexity", "kjv-tiny-F16.gguf") else { return };
    let text = model.with_file_name("test.txt");
    let result = json(&mut perplexity(&model, &text, "--chunks 2 --json"));
    // The README of the fixture: 39.2048 ± 4.71314. Seen: 2e-5 apart.
    assert!((number(&result["ppl"]) / 39.2048 - 1.0).abs() < 1e-4, "{result}");
    assert!((number(&result["ppl_error"]) - 4.71314).abs() < 1e-3, "{result}");
    assert_eq!((&result["n_scored"], &result["n_chunks"]), (&510.into(), &2.into()));
    let line = stdout(&mut perplexity(&model, &text, "--chunks 2"));
    assert!(line.starts_with("Final estimate: PPL = 39.20") && line.contains(" +/- 4.713"), "{line}");
}

#[test]
fn the_error_of_a_few_predictions_is_not_known() {
    let model = tiny_model();
    let line = stdout(&mut perplexity(&model, &licence(), "-c 16 --chunks 1"));
    assert!(line.starts_with("Final estimate: PPL = ") && line.ends_with(" +/- ?\n"), "{line}");
    let result = json(&mut perplexity(&model, &licence(), "-c 16 --chunks 1 --json"));
    assert_eq!((&result["ppl_error"], result["n_scored"].as_u64().unwrap() < 11), (&Value::Null, true));
    let line = stdout(&mut perplexity(&model, &licence(), "-c 64 --chunks 1"));
    assert!(!line.contains('?'), "{line}");
}

#[test]
fn the_predictions_are_scored_one_by_one() {
    // SentencePiece with BOS, so that the first token of each chunk is replaced.
    let Some(dir) = fixtures("scored predictions") else { return };
    let path = dir.join("gguf/mistral-tiny-F32.gguf");
    let n_ctx = 33;
    let model = Arc::new(Model::open(path, &ModelOptions::default()).unwrap());
    let text = fs::read_to_string(licence()).unwrap();
    let chunks = Chunks::new(model.tokenizer(), &text, n_ctx, false).unwrap().select(1, Some(3)).unwrap();
    let bos = model.tokenizer().bos().unwrap();
    let mut expected = Vec::new();
    let mut session = Session::new(model.clone(), Some(n_ctx), &EngineOptions::default()).unwrap();
    for tokens in chunks.tokens().chunks(n_ctx) {
        let mut input = tokens.to_vec();
        assert_ne!(input[0], bos);
        input[0] = bos;
        session.truncate(0);
        let each = |position: usize, logits: &[f32]| {
            if (16..32).contains(&position) {
                let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
                expected.push(sum.ln() - f64::from(logits[tokens[position + 1] as usize]));
            }
        };
        session.eval_all(&input, each).unwrap();
    }
    assert_eq!(expected.len(), 3 * 16);
    for n_ubatch in [512, 16, 17, 5, 1] {
        let options = EngineOptions { n_ubatch, ..EngineOptions::default() };
        let mut session = Session::new(model.clone(), Some(n_ctx), &options).unwrap();
        let (mut got, mut perplexity) = (Vec::new(), Perplexity::default());
        for chunk in chunks.iter() {
            let add = |scored: qgguf::evaluate::Scored<'_>| {
                got.extend(scored.predictions.iter().map(|prediction| prediction.nll));
                perplexity.add(&scored.predictions);
                Ok(())
            };
            chunk.evaluate(&mut session, add).unwrap();
        }
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(&expected) {
            assert!((got - expected).abs() < 1e-5, "{got} for {expected}");
        }
        let mean = expected.iter().sum::<f64>() / expected.len() as f64;
        assert!((perplexity.estimate().value / mean.exp() - 1.0).abs() < 1e-5);
    }
}

#[test]
fn threads_ubatch_and_instruction_set_change_no_bit() {
    let run = |flags: &str, isa: Option<&str>| {
        let mut command = perplexity(&tiny_model(), &licence(), "-c 64 --chunks 3 --json");
        command.args(flags.split_whitespace()).envs(isa.map(|isa| ("QGGUF_ISA", isa)));
        json(&mut command)["running_ppl"].clone()
    };
    let expected = run("-t 1", None);
    assert_eq!(expected.as_array().unwrap().len(), 3);
    for flags in ["-t 2", "-t 3 -ub 7", "-t 1 -ub 33", "-t 2 -b 128", "-t 2 -b 9"] {
        assert_eq!(run(flags, None), expected, "{flags}");
    }
    assert_eq!(run("-t 2 -ub 20", Some("portable")), expected);
}

#[test]
fn the_statistics_are_those_of_llama_cpp() {
    let Some(base) = kjv("statistics", "kjv-tiny-F16.gguf") else { return };
    let reference: Value =
        serde_json::from_slice(&fs::read(base.with_file_name("llama-perplexity.json")).unwrap()).unwrap();
    let result = json(
        qgguf("compare --json -m")
            .arg(&base)
            .arg("-m")
            .arg(base.with_file_name("kjv-tiny-Q4_K_M.gguf"))
            .arg("-m")
            .arg(base.with_file_name("kjv-tiny-Q4_K_M-imat.gguf"))
            .arg("-f")
            .arg(base.with_file_name("test.txt")),
    );
    let rows = result["models"].as_array().unwrap();
    assert!((number(&rows[0]["ppl"]["value"]) / 37.4157 - 1.0).abs() < 1e-4, "{}", rows[0]["ppl"]);
    assert!((number(&rows[0]["ppl"]["error"]) - 0.74461).abs() < 1e-4);
    for (row, name) in rows[1..].iter().zip(["Q4_K_M", "Q4_K_M-imat"]) {
        let (got, theirs) = (&row["statistics"], &reference[name]);
        assert_eq!(got["n_scored"], 70 * 255);
        // How far apart they may be: activations are rounded differently, and base predictions there are 16-bit.
        let estimates = [
            ("ppl", "Mean PPL(Q)", 1e-3 * 37.5),
            ("ppl_base", "Mean PPL(base)", 1e-3),
            ("ln_ratio", "Mean ln(PPL(Q)/PPL(base))", 2e-4),
            ("ratio", "Mean PPL(Q)/PPL(base)", 2e-4),
            ("difference", "Mean PPL(Q)-PPL(base)", 6e-3),
            ("kld", "Mean KLD", 3e-5),
            ("delta_p_percent", "Mean Δp", 5e-3),
            ("rms_delta_p_percent", "RMS Δp", 0.01),
            ("same_top_percent", "Same top p", 0.2),
        ];
        for (ours, name, tolerance) in estimates {
            let (value, error) = (number(&got[ours]["value"]), number(&got[ours]["error"]));
            let (their_value, their_error) = (number(&theirs[name][0]), number(&theirs[name][1]));
            assert!((value - their_value).abs() < tolerance, "{name}: {value} for {their_value}");
            // They are printed with three decimals, or six.
            let half_a_digit = if ours.ends_with("percent") { 5e-4 } else { 5e-7 };
            assert!(
                (error - their_error).abs() < 0.03 * their_error + half_a_digit,
                "{name}: ± {error} for {their_error}"
            );
        }
        assert!((number(&got["correlation_percent"]) - 99.97).abs() < 0.01);
        let percentiles = [
            ("kld", "99%", "99.0% KLD", 0.05),
            ("kld", "95%", "95.0% KLD", 0.03),
            ("kld", "50%", "Median KLD", 0.02),
            ("kld", "5%", " 5.0% KLD", 0.05),
            ("delta_p", "99%", "99.0% Δp", 0.05),
            ("delta_p", "75%", "75.0% Δp", 0.05),
            ("delta_p", "10%", "10.0% Δp", 0.05),
        ];
        for (kind, share, name, tolerance) in percentiles {
            let value = number(&got[format!("{kind}_percentiles")][share]);
            let expected = number(&theirs[name][0]);
            assert!((value - expected).abs() < tolerance * expected.abs(), "{name}: {value} for {expected}");
        }
    }
}

#[test]
fn a_base_of_llama_cpp_is_read() {
    let Some(base) = kjv("base of llama.cpp", "base-2chunks.kld") else { return };
    let model = base.with_file_name("kjv-tiny-F16.gguf");
    let compare = |flags: &str| {
        let mut command = qgguf("perplexity --kl-divergence --kl-divergence-base");
        command.arg(&base).arg("-m").arg(&model).args(flags.split_whitespace());
        command
    };
    let statistics = json(compare("--json -f").arg(base.with_file_name("test.txt")))["statistics"].clone();
    assert!((number(&statistics["ppl_base"]["value"]) - 39.2048).abs() < 5e-4, "{statistics}");
    assert!(number(&statistics["ln_ratio"]["value"]).abs() < 1e-4, "{statistics}");
    assert!(number(&statistics["kld"]["value"]).abs() < 1e-5, "{statistics}");
    assert!(number(&statistics["kld_percentiles"]["100%"]) < 2e-4, "{statistics}");
    assert!(number(&statistics["same_top_percent"]["value"]) > 99.0, "{statistics}");
    let text = stdout(&mut compare("--chunks 1"));
    for part in ["Mean PPL(Q) ", "Maximum KLD: ", "99.9%   KLD: ", "Median  Δp: ", "Same top p: "] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_base_is_written_as_llama_cpp_writes_it() {
    let Some(theirs) = kjv("base for llama.cpp", "base-2chunks.kld") else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("base.kld");
    let mut command = perplexity(
        &theirs.with_file_name("kjv-tiny-F16.gguf"),
        &theirs.with_file_name("test.txt"),
        "--chunks 2",
    );
    stdout(command.arg("--save-all-logits").arg(&file));
    let (ours, theirs) = (fs::read(file).unwrap(), fs::read(theirs).unwrap());
    let header = 20 + 4 * 512 * 2;
    assert_eq!(ours.len(), theirs.len());
    assert_eq!(ours[..header], theirs[..header]);
    let size = 2 * (4096 + 4);
    let f32_at = |bytes: &[u8], at: usize| f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    for (ours, theirs) in ours[header..].chunks(size).zip(theirs[header..].chunks(size)) {
        for code in (8..size).step_by(2) {
            let log_p = |bytes: &[u8]| {
                let code = u16::from_le_bytes([bytes[code], bytes[code + 1]]);
                f32_at(bytes, 0) * f32::from(code) + f32_at(bytes, 4)
            };
            // A step of the codes is 2.4e-4; f16 activations differ by as much.
            assert!((log_p(ours) - log_p(theirs)).abs() < 3e-2, "{} for {}", log_p(ours), log_p(theirs));
        }
    }
}

/// A valid base of the tiny model and the licence.
fn small_base(dir: &Path) -> PathBuf {
    let file = dir.join("base.kld");
    let mut command = perplexity(&tiny_model(), &licence(), "-c 32 --chunks 2");
    stdout(command.arg("--kl-divergence-base").arg(&file));
    file
}

#[test]
fn a_base_is_not_replaced_by_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let base = small_base(dir.path());
    let before = fs::read(&base).unwrap();
    // The flag that is easily forgotten here is --kl-divergence.
    let again = |flag: &str| {
        let mut command = perplexity(&tiny_model(), &licence(), "-c 32 --chunks 3");
        command.arg(flag).arg(&base);
        command
    };
    let line = failure(&mut again("--kl-divergence-base"), 1);
    assert!(
        line.contains("base.kld: expected no such file, found one of ")
            && line.contains("--kl-divergence to compare"),
        "{line}"
    );
    assert!(fs::read(&base).unwrap() == before);
    stdout(&mut again("--save-all-logits"));
    assert!(fs::read(&base).unwrap().len() > before.len());
    // What `mktemp` makes is no base yet.
    fs::write(&base, "").unwrap();
    stdout(&mut again("--kl-divergence-base"));
    assert!(fs::read(&base).unwrap().len() > before.len());
    failure(again("--save-all-logits").arg("--kl-divergence-base").arg(&base), 2);
}

#[test]
fn a_base_serves_its_own_model_best() {
    let dir = tempfile::tempdir().unwrap();
    let base = small_base(dir.path());
    let mut command = qgguf("perplexity --json --kl-divergence --kl-divergence-base");
    let result = json(command.arg(&base).arg("-f").arg(licence()));
    let statistics = &result["statistics"];
    assert_eq!(statistics["n_scored"], 30);
    assert!(number(&statistics["kld_percentiles"]["100%"]).abs() < 3e-4, "{statistics}");
    assert_eq!(statistics["same_top_percent"]["value"], 100.0);
}

#[test]
fn a_base_that_does_not_fit_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let base = small_base(dir.path());
    let good = fs::read(&base).unwrap();
    let said = |bytes: &[u8], flags: &[&str]| {
        fs::write(&base, bytes).unwrap();
        let mut command = qgguf("perplexity --kl-divergence --kl-divergence-base");
        let line = failure(command.arg(&base).args(flags), 1);
        assert!(line.contains("base.kld: "), "{line}");
        line
    };
    let with = |at: usize, n: i32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&n.to_le_bytes());
        bytes
    };
    let folder = dir.path().to_str().unwrap();
    let line = failure(&mut qgguf(&format!("perplexity --kl-divergence --kl-divergence-base {folder}")), 1);
    assert!(line.ends_with(": not a regular file"), "{line}");
    let cases = [
        (b"GGUF".to_vec(), "expected it to begin with \"_logits_\", found \"GGUF\""),
        (Vec::new(), "found \"\""),
        (good[..14].to_vec(), "expected a header of 20 bytes, found 14"),
        (good[..good.len() - 1].to_vec(), "bytes, found"),
        ([&*good, b"x"].concat(), "bytes, found"),
        (with(8, -512), "n_ctx: expected at least 4, found -512"),
        (with(8, i32::MAX), "2147483647 tokens and a vocabulary of 4096"),
        (with(12, 0), "n_vocab: expected at least 1, found 0"),
        (with(12, i32::MAX), "bytes, found"),
        (with(16, -1), "n_chunk: expected at least 1, found -1"),
        (with(16, i32::MAX), "2147483647 chunks"),
        (with(20 + 4 * 5, 4096), "token 5: 4096 is outside the vocabulary of 4096"),
        (with(20 + 4 * 64, f32::NAN.to_bits() as i32), "chunk 1, record 1: expected a scale from 0"),
        (with(20 + 4 * 64, (-1f32).to_bits() as i32), "found -1 and -"),
        (with(20 + 4 * 64, 1e30f32.to_bits() as i32), "found 1000000000000000000000000000000 and -"),
        (with(20 + 4 * 65, 1f32.to_bits() as i32), " and 1"),
        // All tokens at once cannot be certain.
        (with(20 + 4 * 65, 0), " and 0"),
    ];
    for (bytes, expected) in cases {
        let line = said(&bytes, &[]);
        assert!(line.contains(expected), "{expected} in {line}");
    }
    let line = said(&with(20 + 4 * 5, 7), &["-f", licence().to_str().unwrap()]);
    assert!(line.contains("another text, or with another tokenizer: token 5 is 7"), "{line}");
    let short = dir.path().join("short.txt");
    let text = fs::read_to_string(licence()).unwrap();
    let mut cut = text.len().min(250);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    fs::write(&short, &text[..cut]).unwrap();
    let line =
        failure(qgguf("perplexity --kl-divergence --kl-divergence-base").arg(&base).arg("-f").arg(&short), 1);
    assert!(line.contains("short.txt: the text has ") || line.contains("another text"), "{line}");
    fs::write(&base, &good).unwrap();
    failure(qgguf("perplexity -c 64 --kl-divergence --kl-divergence-base").arg(&base), 2);
    failure(&mut qgguf("perplexity --kl-divergence -f text"), 2);
    let Some(fixtures) = fixtures("base of another model") else { return };
    let other = fixtures.join("gguf/qwen3-tiny-F16.gguf");
    let line = said(&good, &["-m", other.to_str().unwrap()]);
    assert!(line.contains("vocabulary of 4096 tokens, but that of the model has 800"), "{line}");
}

#[test]
fn a_text_that_does_not_do_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text.txt");
    let said = |text: &[u8], flags: &str| {
        fs::write(&file, text).unwrap();
        failure(&mut perplexity(&tiny_model(), &file, flags), 1)
    };
    let line = said(b"In the beginning", "");
    assert!(line.contains("text.txt: the text has 3 tokens; a context of 512 needs at least 1024"), "{line}");
    for empty in [&b""[..], b"\n"] {
        let line = said(empty, "");
        assert!(line.ends_with("text.txt: the file is empty"), "{line}");
    }
    let line = said(b"In the \xff", "");
    assert!(line.ends_with("text.txt is not UTF-8 (byte 7)"), "{line}");
    let line = said(b"In the beginning", "-c 3");
    assert!(line.contains("a context of 3 is too small"), "{line}");
    let text = fs::read(licence()).unwrap();
    let line = said(&text, "-c 2049");
    assert!(
        line.contains("expected a context of at most 2048, which the model was trained with, found 2049"),
        "{line}"
    );
    let output = perplexity(&tiny_model(), &file, "-c 2049").output().unwrap();
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    let line = said(&text, "-c 100000 --beyond-training");
    assert!(line.contains("needs at least 200000"), "{line}");
    let line = failure(&mut perplexity(&tiny_model(), &dir.path().join("missing"), ""), 1);
    assert!(line.contains("cannot read") && line.contains("missing"), "{line}");
    failure(&mut qgguf("perplexity"), 2);
    failure(&mut qgguf("perplexity -f text --chunks 0"), 2);
}

#[test]
fn standard_input_is_a_text_too() {
    let text = fs::read_to_string(licence()).unwrap();
    let run =
        |command: &mut assert_cmd::Command| stdout(command.args(["-c", "64", "--chunks", "2", "-t", "2"]));
    let piped = run(qgguf("perplexity -f -").write_stdin(text));
    assert_eq!(piped, run(&mut perplexity(&tiny_model(), &licence(), "")));
}

#[cfg(unix)]
#[test]
fn an_interrupt_prints_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("long.txt");
    fs::write(&file, fs::read_to_string(licence()).unwrap().repeat(200)).unwrap();
    let base = dir.path().join("base.kld");
    for keep in [false, true] {
        let mut args = vec!["perplexity", "-f", file.to_str().unwrap()];
        if keep {
            args.extend(["--kl-divergence-base", base.to_str().unwrap()]);
        }
        let mut child = spawn(&args);
        let mut pipe = child.stderr.take().unwrap();
        let mut said = read_until(&mut pipe, "[2]");
        interrupt(&child);
        pipe.read_to_end(&mut said).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("interrupted after "), "{said}");
        let result = String::from_utf8(output.stdout).unwrap();
        assert!(result.starts_with("Final estimate: PPL = "), "{result}");
        assert_eq!(keep, said.contains("base.kld was not written"), "{said}");
        assert!(!base.exists());
    }
}

#[cfg(unix)]
#[test]
fn a_second_interrupt_leaves_no_file_behind() {
    let dir = tempfile::tempdir().unwrap();
    let [text, base] = ["long.txt", "base.kld"].map(|name| dir.path().join(name));
    fs::write(&text, fs::read_to_string(licence()).unwrap().repeat(200)).unwrap();
    let [path, base] = [&text, &base].map(|path| path.to_str().unwrap());
    let mut child = spawn(&["perplexity", "-c", "2048", "-f", path, "--save-all-logits", base]);
    read_until(child.stderr.as_mut().unwrap(), "[1]");
    // Between two chunks one would be enough.
    std::thread::sleep(std::time::Duration::from_millis(200));
    interrupt(&child);
    interrupt(&child);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["long.txt"]);
}

#[test]
fn a_batch_is_the_largest_ubatch() {
    let help = stdout(&mut qgguf("perplexity --help"));
    assert!(help.contains("-b, --batch-size <N>"), "{help}");
    let ubatch = |flags: &str| {
        let output =
            perplexity(&tiny_model(), &licence(), "-c 64 --chunks 1 -v").args(flags.split(' ')).output();
        let said = stderr(&output.unwrap());
        said.split("ubatch ").nth(1).unwrap().split(',').next().unwrap().to_owned()
    };
    assert_eq!(["-ub 40 -b 16", "-ub 40 -b 2048", "-ub 4096"].map(ubatch), ["16", "40", "4096"]);
}

#[test]
fn the_way_is_shown() {
    let output = perplexity(&tiny_model(), &licence(), "-c 64 --chunks 3").output().unwrap();
    let said = stderr(&output);
    for part in ["1 of 3 chunks in ", " to go", "[1]", ",[2]", ",[3]", "192 tokens in ", " tok/s"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}
