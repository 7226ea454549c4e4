//! `qgguf tokenize`.

use crate::support::{failure, json, qgguf, stdout};

const TEXT: &str = "In the beginning God created the heaven and the earth.";

#[test]
fn ids_decode_to_the_text() {
    let ids = stdout(qgguf("tokenize --ids -p").arg(TEXT));
    assert!(ids.starts_with('[') && ids.ends_with("]\n"), "{ids}");
    assert_eq!(stdout(qgguf("tokenize --decode -p").arg(ids.trim_end())), TEXT);
    assert_eq!(stdout(qgguf("tokenize --decode").write_stdin(ids.replace(',', "\n"))), TEXT);
    assert_eq!(json(qgguf("tokenize --decode --json -p").arg(ids.trim_end()))["text"], TEXT);
}

#[test]
fn pieces_and_counts() {
    let shown = stdout(qgguf("tokenize --show-count -p").arg("God made <|im_end|>\\n"));
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].ends_with(" -> \"God\"") && lines[1].ends_with(" -> \" made\""), "{shown}");
    assert!(lines[lines.len() - 2].ends_with(" -> \"\\n\""), "{shown}");
    assert_eq!(*lines.last().unwrap(), format!("Total number of tokens: {}", lines.len() - 1));
}

#[test]
fn json_has_ids_pieces_and_their_number() {
    let object = json(qgguf("tokenize --json -p").arg(TEXT));
    let pieces: Vec<&str> =
        object["pieces"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
    assert_eq!(pieces.concat(), TEXT);
    assert_eq!(object["n_tokens"], pieces.len());
    assert_eq!(object["ids"].as_array().unwrap().len(), pieces.len());
}

#[test]
fn text_comes_from_a_flag_a_file_or_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text");
    std::fs::write(&path, TEXT).unwrap();
    let expected = stdout(qgguf("tokenize --ids -p").arg(TEXT));
    assert_eq!(stdout(qgguf("tokenize --ids -f").arg(&path)), expected);
    for flags in ["", "--stdin", "-f -"] {
        assert_eq!(
            stdout(qgguf("tokenize --ids").args(flags.split_whitespace()).write_stdin(TEXT)),
            expected
        );
    }
    // Files are taken to the last byte, UTF-8 or not.
    std::fs::write(&path, b"a\xff\n").unwrap();
    let shown = stdout(qgguf("tokenize -f").arg(&path));
    assert!(shown.ends_with(" -> \"\\n\"\n"), "{shown}");
}

#[test]
fn control_tokens_are_text_if_so_wished() {
    let count = |flags: &str| {
        json(qgguf("tokenize --json -p <|im_end|>").args(flags.split_whitespace()))["n_tokens"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(count(""), 1);
    assert!(count("--no-parse-special") > 1);
    assert_eq!(count("--no-bos"), 1);
}

#[test]
fn escapes_are_read_unless_told_otherwise() {
    let decoded = |flags: &str| {
        let ids = stdout(qgguf("tokenize --ids -p \\n").args(flags.split_whitespace()));
        stdout(qgguf("tokenize --decode -p").arg(ids.trim_end()))
    };
    assert_eq!((decoded(""), decoded("--no-escape")), ("\n".to_owned(), "\\n".to_owned()));
}

#[test]
fn mistakes_are_named() {
    let line = failure(&mut qgguf("tokenize --pre nonsense -p x"), 1);
    assert!(line.contains("\"nonsense\" is not known") && line.contains("default, "), "{line}");
    let line = failure(&mut qgguf("tokenize --decode -p 1,4096"), 1);
    assert_eq!(line, "qgguf: token id 4096 is outside the vocabulary of 4096");
    let line = failure(&mut qgguf("tokenize --decode -p 1,x"), 1);
    assert_eq!(line, "qgguf: expected a token id, found \"x\"");
    let line = failure(&mut qgguf("tokenize -p x -m /nonexistent.gguf"), 1);
    assert!(line.contains("/nonexistent.gguf"), "{line}");
    failure(&mut qgguf("tokenize -p x -f y"), 2);
    failure(&mut qgguf("tokenize --ids --json -p x"), 2);
}
