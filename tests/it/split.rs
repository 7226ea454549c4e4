//! `qgguf split` and `qgguf merge`: gguf-split's names, keys and layout.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{failure, json, qgguf, tiny_model};

fn split(flags: &str, from: &Path, prefix: &Path) -> assert_cmd::Command {
    let mut command = qgguf("split");
    command.args(flags.split_whitespace()).args([from, prefix]);
    command
}

fn succeed(command: &mut assert_cmd::Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", crate::support::stderr(&output));
    assert!(output.stdout.is_empty());
}

/// The shards in a folder, in order.
fn shards(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Metadata keys at the end, with their types and values.
fn last_keys(file: &Value, n: usize) -> Vec<(String, String, i64)> {
    let all = file["metadata"].as_object().unwrap();
    all.iter()
        .skip(all.len().saturating_sub(n))
        .map(|(key, v)| (key.clone(), v["type"].as_str().unwrap().to_owned(), v["value"].as_i64().unwrap()))
        .collect()
}

/// One file alone, as if it were no shard.
fn alone(shard: &Path) -> (usize, Vec<u8>) {
    let bytes = fs::read(shard).unwrap();
    let n_tensors = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) as usize;
    (n_tensors, bytes)
}

#[test]
fn shards_are_named_numbered_and_put_together_again() {
    let dir = tempfile::tempdir().unwrap();
    succeed(&mut split("--split-max-tensors 20", &tiny_model(), &dir.path().join("part")));
    let paths = shards(dir.path());
    let names: Vec<&str> = paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["part-00001-of-00003.gguf", "part-00002-of-00003.gguf", "part-00003-of-00003.gguf"]);
    assert_eq!(paths.iter().map(|path| alone(path).0).collect::<Vec<_>>(), [20, 20, 6]);
    let key = |key: &str, ty: &str, value| (key.to_owned(), ty.to_owned(), value);
    let found = json(qgguf("inspect --json").arg(&paths[1]));
    let expected =
        [key("split.no", "u16", 0), key("split.tensors.count", "i32", 46), key("split.count", "u16", 3)];
    assert_eq!(last_keys(&found, 3), expected);
    // The others have nothing but their three keys.
    let (_, second) = alone(&paths[1]);
    assert_eq!(second[16..24], 3u64.to_le_bytes());

    // Any shard will do to merge them.
    let merged = dir.path().join("merged.gguf");
    succeed(qgguf("merge").args([&paths[2], &merged]));
    let (original, merged) = (tiny_model(), merged);
    let found = json(qgguf("inspect --json").arg(&merged));
    let expected =
        [key("split.no", "u16", 0), key("split.tensors.count", "i32", 46), key("split.count", "u16", 0)];
    assert_eq!(last_keys(&found, 3), expected);
    let original_file = json(qgguf("inspect --json").arg(&original));
    let data = |path: &Path, file: &Value| {
        fs::read(path).unwrap()[file["data_offset"].as_u64().unwrap() as usize..].to_vec()
    };
    assert!(data(&merged, &found) == data(&original, &original_file), "the same tensors in the same order");
}

#[test]
fn sizes_count_padded_tensors_in_powers_of_ten() {
    let dir = tempfile::tempdir().unwrap();
    succeed(&mut split("--split-max-size 1M --no-tensor-first-split", &tiny_model(), &dir.path().join("s")));
    let paths = shards(dir.path());
    assert_eq!(alone(&paths[0]).0, 0, "metadata only");
    // ggml pads even what has no tensors.
    assert_eq!(fs::metadata(&paths[0]).unwrap().len() % 32, 0);
    let found = json(qgguf("inspect --json").arg(&paths[0]));
    let mut sizes = vec![0u64; paths.len()];
    for tensor in found["tensors"].as_array().unwrap() {
        let padded = tensor["n_bytes"].as_u64().unwrap().next_multiple_of(32);
        sizes[tensor["shard"].as_u64().unwrap() as usize - 1] += padded;
    }
    assert!(sizes.iter().all(|&size| size <= 1_000_000), "{sizes:?}");
    assert!(
        sizes[1..].windows(2).all(|pair| pair[0] + pair[1] > 1_000_000 || pair[0] > 500_000),
        "{sizes:?}"
    );
    assert_eq!(sizes.iter().sum::<u64>(), 3_220_480);
}

#[test]
fn wrong_wishes_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let error = failure(qgguf("merge").args([&tiny_model(), &out]), 1);
    assert_eq!(error, format!("qgguf: {}: not a shard of a split model", tiny_model().display()));
    let output = split("--split-max-size 2K", &tiny_model(), &out).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = split("--split-max-size 2G --split-max-tensors 3", &tiny_model(), &out).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none());

    succeed(&mut split("--split-max-tensors 40", &tiny_model(), &out));
    let first = dir.path().join("out-00001-of-00002.gguf");
    let error = failure(qgguf("merge").args([&first, &dir.path().join("out-00002-of-00002.gguf")]), 1);
    assert!(error.contains("out-00002-of-00002.gguf is the input"), "{error}");
    for (output, reason) in [("nowhere/", "no such folder"), (".", "is a folder")] {
        let error = failure(qgguf("merge").arg(&first).arg(output).current_dir(dir.path()), 1);
        assert_eq!(error, format!("qgguf: {output}: {reason}"));
    }
    fs::remove_file(dir.path().join("out-00002-of-00002.gguf")).unwrap();
    let error = failure(qgguf("merge").args([&first, &dir.path().join("merged.gguf")]), 1);
    assert!(error.ends_with("shard 2 of 2 is missing"), "{error}");
}

#[test]
#[cfg(unix)]
fn names_with_line_breaks_stay_on_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let output = split("--split-max-tensors 40", &tiny_model(), &dir.path().join("a\nb")).output().unwrap();
    let notes = crate::support::stderr(&output);
    assert!(notes.ends_with("/a\\nb-00001-of-00002.gguf and 1 more\n"), "{notes}");
    let mut merge = qgguf("merge");
    merge.args([dir.path().join("a\nb-00001-of-00002.gguf"), dir.path().join("c\nd.gguf")]);
    let notes = crate::support::stderr(&merge.output().unwrap());
    assert!(notes.ends_with("/c\\nd.gguf\n"), "{notes}");
}
