//! `qgguf compare`; its figures are checked beside those of llama-perplexity in `perplexity`.

use std::fs;
use std::path::Path;

use crate::fixtures::fixtures;
use crate::support::{failure, interrupt, json, qgguf, read_until, spawn, stdout, tiny_model};

const LICENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/LICENSE-APACHE");

fn compare(models: &[&Path], flags: &str) -> assert_cmd::Command {
    let mut command = qgguf("compare -c 64 --chunks 2 -f");
    command.arg(LICENCE).args(models.iter().flat_map(|model| [Path::new("-m"), model]));
    command.args(flags.split_whitespace());
    command
}

#[test]
fn a_model_is_as_good_as_itself() {
    let model = tiny_model();
    let result = json(&mut compare(&[&model, &model], "--json --greedy 8"));
    let rows = result["models"].as_array().unwrap();
    assert_eq!(rows[0]["ppl"], rows[1]["ppl"]);
    assert_eq!(rows[1]["ppl"], rows[1]["statistics"]["ppl"]);
    assert_eq!(rows[1]["statistics"]["same_top_percent"]["value"], 100.0);
    assert!(rows[1]["statistics"]["kld_percentiles"]["100%"].as_f64().unwrap().abs() < 1e-6);
    assert_eq!((&rows[1]["n_greedy"], rows[1]["first_greedy_difference"].is_null()), (&8.into(), true));
    assert!(rows[0]["statistics"].is_null());
    let alone = json(qgguf("perplexity --json -c 64 --chunks 2 -f").arg(LICENCE));
    assert_eq!(alone["ppl"], rows[0]["ppl"]["value"]);
}

#[test]
fn there_is_a_table_and_a_picture() {
    let Some(dir) = fixtures("compare") else { return };
    let dir = dir.join("gguf");
    let [base, small] = ["qwen3-tiny-F16.gguf", "qwen3-tiny-Q2_K.gguf"].map(|name| dir.join(name));
    let out = tempfile::tempdir().unwrap();
    let plot = out.path().join("cost.svg");
    let table = stdout(compare(&[&base, &small], "--plot").arg(&plot));
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    for head in ["size", "bits/weight", "PPL", "mean KLD", "99 % KLD", "max KLD", "same top token %"] {
        assert!(lines[0].contains(head), "{head} in {table}");
    }
    assert!(lines[2].contains("qwen3-tiny-F16.gguf") && lines[2].contains("base"), "{table}");
    assert!(lines[3].contains("| token "), "{table}");
    let svg = fs::read_to_string(plot).unwrap();
    assert!(
        svg.contains("divergence from qwen3-tiny-F16.gguf") && svg.contains("qwen3-tiny-Q2_K.gguf"),
        "{svg}"
    );
    assert_eq!(svg.matches("<circle").count(), 1);
}

#[cfg(unix)]
#[test]
fn an_interrupt_of_the_continuations_costs_no_figure() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("long.txt");
    fs::write(&text, fs::read_to_string(LICENCE).unwrap().repeat(3)).unwrap();
    let model = tiny_model();
    let model = model.to_str().unwrap();
    let mut child = spawn(&[
        "compare",
        "-m",
        model,
        "-m",
        model,
        "-m",
        model,
        "-c",
        "1024",
        "--chunks",
        "1",
        "--greedy",
        "512",
        "-f",
        text.to_str().unwrap(),
    ]);
    read_until(child.stderr.as_mut().unwrap(), " tok/s\n");
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(table.lines().count(), 5, "{table}");
    // Or it was done already.
    assert!(matches!(output.status.code(), Some(130 | 0)), "{:?}", output.status);
}

#[test]
fn what_cannot_be_compared_is_explained() {
    let model = tiny_model();
    failure(&mut compare(&[&model], ""), 2);
    failure(&mut compare(&[], ""), 2);
    failure(&mut compare(&[&model, &model], "--plot cost.png"), 2);
    let line = failure(&mut compare(&[&model, Path::new("/nonexistent.gguf")], ""), 1);
    assert!(line.contains("/nonexistent.gguf"), "{line}");
    let Some(dir) = fixtures("compare errors") else { return };
    let dir = dir.join("gguf");
    let file = |name: &str| dir.join(name);
    let line = failure(&mut compare(&[&model, &file("qwen3-tiny-F16.gguf")], ""), 1);
    assert!(line.contains("qwen3-tiny-F16.gguf: expected the vocabulary of 4096 tokens"), "{line}");
    let line = failure(&mut compare(&[&file("qwen3-tiny-F16.gguf"), &file("gemma3-tiny-F16.gguf")], ""), 1);
    assert!(line.contains("gemma3-tiny-F16.gguf: its tokenizer is not that of the base"), "{line}");
}
