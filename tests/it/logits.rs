//! `qgguf logits`.

use std::fs;
use std::path::Path;

use crate::support::{failure, json, qgguf, stdout};

/// Shape and values of a .npy file as the command writes it.
fn read_npy(path: &Path) -> ([usize; 2], Vec<f32>) {
    let bytes = fs::read(path).unwrap();
    let header = std::str::from_utf8(&bytes[10..128]).unwrap();
    let shape = header.split_once("'shape': (").unwrap().1.split_once(')').unwrap().0;
    let (rows, cols) = shape.split_once(", ").unwrap();
    let values = bytes[128..].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    ([rows.parse().unwrap(), cols.parse().unwrap()], values)
}

#[test]
fn the_likeliest_token_is_the_greedy_one() {
    let logits = json(qgguf("logits --json -p").arg("In the beginning"));
    let run = json(qgguf("run --temp 0 -n 1 --json -p").arg("In the beginning"));
    let top = logits["positions"][0]["top"].as_array().unwrap();
    assert_eq!(top.len(), 10);
    assert_eq!(top[0]["id"], run["tokens"][0]);
    assert_eq!(top[0]["piece"], " of");
    assert_eq!(logits["tokens"], run["prompt_tokens"]);
    let p = |i: usize| top[i]["probability"].as_f64().unwrap();
    assert!((0..9).all(|i| p(i) >= p(i + 1)) && p(0) < 1.0);
    let table = stdout(qgguf("logits --top-k 2 -p").arg("In the beginning"));
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.contains("\" of\""), "{table}");
}

#[test]
fn all_positions_are_the_same_as_each_last_one() {
    let dir = tempfile::tempdir().unwrap();
    let save = |flags: &str| {
        let file = dir.path().join("out.npy");
        stdout(qgguf("logits --top-k 0 -o").arg(&file).args(flags.split_whitespace()));
        read_npy(&file)
    };
    let (shape, all) = save("--all --tokens 70,80,90,100 -ub 3");
    assert_eq!(shape, [4, 4096]);
    for n in 1..=4 {
        let (shape, last) = save(&format!("--tokens {}", ["70", "80", "90", "100"][..n].join(",")));
        assert_eq!(shape, [1, 4096]);
        assert_eq!(last, all[(n - 1) * 4096..n * 4096], "position {}", n - 1);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_token_outside_the_vocabulary_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let line = failure(qgguf("logits --tokens 1,4096 -o").arg(dir.path().join("out.npy")), 1);
    assert_eq!(line, "qgguf: token id 4096 is outside the vocabulary of 4096");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn wrong_flags_are_code_2() {
    for case in ["logits --tokens 1 -p And", "logits --tokens x", "logits --tokens 1 --top-k -1"] {
        failure(&mut qgguf(case), 2);
    }
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let line = failure(&mut qgguf("logits --tokens 1 -o /nonexistent/out.npy"), 1);
    assert!(line.contains("cannot write /nonexistent/out.npy"), "{line}");
}

#[test]
fn the_output_may_be_a_pipe() {
    let bytes = qgguf("logits --tokens 1 --top-k 0 -o /dev/stdout").output().unwrap().stdout;
    assert!(bytes.starts_with(b"\x93NUMPY"));
}
