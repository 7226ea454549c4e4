//! Importance matrices written again, beside the files of llama-imatrix.

mod support;

use std::fs;
use std::path::PathBuf;

use qgguf_convert::imatrix::{Imatrix, MergeError, Sums, statistics};

fn kjv() -> Option<PathBuf> {
    Some(support::fixtures()?.join("kjv"))
}

#[test]
fn both_formats_are_written_as_llama_cpp_writes_them() {
    let Some(dir) = kjv() else { return };
    let imatrix = Imatrix::read(&dir.join("imatrix.gguf")).unwrap();
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("again.gguf");
    imatrix.write_gguf(&path).unwrap();
    assert!(fs::read(path).unwrap() == fs::read(dir.join("imatrix.gguf")).unwrap());
    assert!(imatrix.to_legacy() == fs::read(dir.join("imatrix.dat")).unwrap());
}

/// A matrix with one tensor of two columns for each of two experts.
fn experts(sums: [f32; 4], counts: Vec<f32>, chunk_size: u32) -> Imatrix {
    let entry = Sums { sums: sums.to_vec(), counts };
    let datasets = vec!["text".to_owned()];
    let entries = [("blk.1.ffn_up_exps.weight".to_owned(), entry)].into();
    Imatrix { entries, datasets, n_chunks: 1, chunk_size }
}

#[test]
fn experts_keep_their_counts() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("experts.gguf");
    let mut imatrix = experts([1.0, 2.0, 0.0, 0.0], vec![4.0, 0.0], 4);
    imatrix.entries.insert("blk.0.never".to_owned(), Sums::new(2, 1));
    imatrix.write_gguf(&path).unwrap();
    imatrix.entries.remove("blk.0.never");
    assert_eq!(Imatrix::read(&path).unwrap(), imatrix);
    let entry = &imatrix.entries["blk.1.ffn_up_exps.weight"];
    assert_eq!(entry.unreached(), [1]);
    assert_eq!(entry.importance(), [0.25, 0.5, 1.0, 1.0]);
}

#[test]
fn sums_and_counts_of_two_matrices_are_added() {
    let mut imatrix = Imatrix::default();
    imatrix.merge(experts([1.0, 2.0, 3.0, 4.0], vec![4.0, 8.0], 4)).unwrap();
    let mut other = experts([1.0; 4], vec![4.0, 0.0], 4);
    other.datasets = vec!["other".to_owned(), "text".to_owned()];
    imatrix.merge(other).unwrap();
    // The older format has means, and one count for all.
    imatrix.merge(experts([0.5; 4], vec![2.0], 0)).unwrap();
    let entry = &imatrix.entries["blk.1.ffn_up_exps.weight"];
    assert_eq!(entry.sums, [4.0, 5.0, 6.0, 7.0]);
    assert_eq!(entry.counts, [16.0, 16.0]);
    assert_eq!((imatrix.n_chunks, imatrix.chunk_size), (4, 4));
    assert_eq!(imatrix.datasets, ["text", "other"]);
}

#[test]
fn matrices_that_do_not_fit_are_refused() {
    let mut imatrix = experts([1.0; 4], vec![4.0, 4.0], 4);
    let before = imatrix.clone();
    let error = imatrix.merge(experts([1.0; 4], vec![4.0, 4.0], 8)).unwrap_err();
    assert_eq!(error, MergeError::ChunkSize { expected: 4, found: 8 });
    let mut other = experts([1.0; 4], vec![4.0, 4.0], 4);
    other.entries.get_mut("blk.1.ffn_up_exps.weight").unwrap().sums.push(0.0);
    let error = imatrix.merge(other).unwrap_err().to_string();
    assert!(
        error.contains("\"blk.1.ffn_up_exps.weight\": expected 4 sums and 2 counts as before, found 5 and 2"),
        "{error}"
    );
    assert_eq!(imatrix, before);
}

#[test]
fn statistics_are_those_of_the_mean_squares() {
    let mut imatrix = experts([4.0, 12.0, 4.0, 12.0], vec![4.0, 4.0], 4);
    imatrix.entries.insert(
        "blk.0.ffn_up_exps.weight".to_owned(),
        Sums { sums: vec![1.0, 0.0, 1.0, 0.0], counts: vec![1.0, 1.0] },
    );
    let all = statistics(&imatrix);
    let top = &all[0];
    assert_eq!(top.tensor, "blk.1.ffn_up_exps.weight");
    assert_eq!((top.n, top.sum, top.min, top.max, top.mean, top.deviation), (4, 8.0, 1.0, 3.0, 2.0, 1.0));
    assert_eq!((top.active, top.outliers), (1.0, 0.0));
    let entropy = -2.0 * (0.125f64 * 0.125f64.log2() + 0.375 * 0.375f64.log2());
    assert!((top.entropy - entropy).abs() < 1e-12 && (top.normalized_entropy - entropy / 2.0).abs() < 1e-12);
    assert!((top.similarity.unwrap() - 1.0 / 10f64.sqrt()).abs() < 1e-12);
    assert_eq!((all[1].entropy, all[1].active, all[1].similarity), (1.0, 0.5, None));
}
