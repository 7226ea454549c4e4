//! Files come out complete, in order and the same for every number of threads, or not at all.

use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use qgguf_convert::pipeline::*;
use qgguf_gguf::{GgmlType, GgufFile, Metadata, MetadataValue, TensorSpec};
use qgguf_kernels::Kernels;

/// Rows that can be told apart.
struct Numbers {
    n_columns: u64,
    bad: Option<(u64, f32)>,
}

impl RowSource for Numbers {
    fn read_rows(&self, rows: Range<u64>, out: &mut [f32]) -> Result<(), SourceError> {
        let first = rows.start * self.n_columns;
        out.iter_mut().zip(first..).for_each(|(out, i)| *out = value(i));
        if let Some((at, bad)) = self.bad.filter(|(at, _)| (first..first + out.len() as u64).contains(at)) {
            out[(at - first) as usize] = bad;
        }
        Ok(())
    }
}

/// A number that f16 has to round.
fn value(i: u64) -> f32 {
    i.wrapping_mul(2_654_435_761) as u32 as f32 / 1e7 - 200.0
}

struct Broken;

impl RowSource for Broken {
    fn read_rows(&self, _: Range<u64>, _: &mut [f32]) -> Result<(), SourceError> {
        Err("no such rows".into())
    }
}

fn tensor(name: &str, shape: &[u64], ty: GgmlType, bad: Option<(u64, f32)>) -> OutputTensor<'static> {
    OutputTensor {
        spec: TensorSpec { name: name.to_owned(), shape: shape.to_vec(), ty },
        importance: None,
        source: Box::new(Numbers { n_columns: shape[0], bad }),
    }
}

fn file(path: &Path, tensors: Vec<OutputTensor<'static>>) -> OutputFile<'static> {
    let mut metadata = Metadata::default();
    metadata.set("general.architecture", MetadataValue::String("test".to_owned()));
    OutputFile { path: path.to_owned(), metadata, tensors, pad_empty: false }
}

fn some_tensors() -> Vec<OutputTensor<'static>> {
    vec![
        tensor("long", &[96, 9_000], GgmlType::F16, None),
        tensor("empty", &[0, 3], GgmlType::F32, None),
        tensor("one", &[1], GgmlType::F32, None),
        tensor("wide", &[300_000, 3], GgmlType::BF16, None),
        tensor("cube", &[64, 5, 7, 2], GgmlType::F32, None),
    ]
}

fn options(n_threads: usize) -> WriteOptions {
    WriteOptions { n_threads, kernels: Kernels::best(), allow_nonfinite: false, allow_overflow: false }
}

fn write(files: &[OutputFile<'_>], options: &WriteOptions) -> Result<Vec<TensorReport>, PipelineError> {
    write_files(files, options, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn the_bytes_do_not_depend_on_the_threads() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen: Option<(Vec<u8>, String)> = None;
    for n_threads in [1, 2, 7] {
        let path = dir.path().join("out.gguf");
        let reports = write(&[file(&path, some_tensors())], &options(n_threads)).unwrap();
        let found = (fs::read(&path).unwrap(), format!("{reports:?}"));
        assert!(seen.is_none_or(|seen| seen == found), "{n_threads} threads");
        seen = Some(found);
    }
    let out = GgufFile::open(dir.path().join("out.gguf")).unwrap();
    let cube = out.require_tensor("cube").unwrap().bytes().as_chunks().0;
    assert!(cube.iter().zip(0..).all(|(&bytes, i)| f32::from_le_bytes(bytes) == value(i)));
    let long = out.require_tensor("long").unwrap().bytes().as_chunks().0;
    let exact = |i| half::f16::from_f32(value(i));
    assert!(long.iter().zip(0..).all(|(&bytes, i)| half::f16::from_le_bytes(bytes) == exact(i)));
}

#[test]
fn what_happened_is_told_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (mut done, mut weights) = (Vec::new(), 0);
    let files = [
        file(&dir.path().join("a.gguf"), some_tensors()),
        file(&dir.path().join("b.gguf"), vec![tensor("last", &[32, 2], GgmlType::F32, None)]),
    ];
    let reports = write_files(&files, &options(3), &mut |event| {
        match event {
            Event::Rows { n_elements, .. } => weights += n_elements,
            Event::Tensor(report) => done.push(report.name.clone()),
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(done, ["long", "empty", "one", "wide", "cube", "last"]);
    assert_eq!(weights, reports.iter().map(|r| r.n_elements).sum::<u64>());
    // Rounding to f16 below 256 is off by at most half a unit of 1/8.
    let long = &reports[0];
    assert!(long.deviation.max <= 0.0625 && long.deviation.rmse() > 0.01, "{long:?}");
    assert_eq!(reports[4].deviation.max, 0.0);
    assert_eq!(GgufFile::open(dir.path().join("b.gguf")).unwrap().tensors().len(), 1);
}

/// What is in the folder after `tensors` could not be written over an old file, and why they could not.
fn failure(tensors: Vec<OutputTensor<'static>>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first.gguf"), dir.path().join("second.gguf"));
    fs::write(&first, "old").unwrap();
    let files = [file(&first, some_tensors()), file(&second, tensors)];
    let error = write(&files, &options(2)).unwrap_err();
    assert_eq!(fs::read(&first).unwrap(), b"old", "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{error}");
    error.to_string()
}

#[test]
fn a_failure_leaves_everything_as_it_was() {
    let broken = OutputTensor { source: Box::new(Broken), ..tensor("x", &[32, 4], GgmlType::F16, None) };
    assert_eq!(failure(vec![broken]), "tensor \"x\": no such rows");
    let nan = tensor("x", &[64, 9_000], GgmlType::F16, Some((64 * 8_123 + 5, f32::NAN)));
    assert_eq!(failure(vec![nan]), "tensor \"x\": NaN in row 8123, column 5; expected finite weights");
    let large = tensor("x", &[64, 9_000], GgmlType::F16, Some((64 * 8_123 + 5, -1e5)));
    let expected = "tensor \"x\": -100000 in row 8123, column 5 is out of the range of f16";
    assert_eq!(failure(vec![large]), expected);
    let foreign =
        OutputTensor { importance: Some(vec![1.0; 63]), ..tensor("x", &[32, 4, 2], GgmlType::F16, None) };
    let expected = "tensor \"x\": 63 values of importance, expected 64 (32 columns, 2 matrices)";
    assert_eq!(failure(vec![foreign]), expected);
    let twice = vec![tensor("x", &[32], GgmlType::F32, None), tensor("x", &[32], GgmlType::F32, None)];
    assert!(failure(twice).ends_with("tensor \"x\" would be in the file twice"));
}

#[test]
fn whoever_wants_no_more_gets_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let files = [file(&dir.path().join("out.gguf"), some_tensors())];
    let result = write_files(&files, &options(2), &mut |_| ControlFlow::Break(()));
    assert!(matches!(result, Err(PipelineError::Interrupted)));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn infinities_pass_if_they_may_and_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = vec![
        tensor("large", &[64, 10], GgmlType::F16, Some((77, 1e5))),
        tensor("infinite", &[64, 10], GgmlType::F16, Some((77, f32::INFINITY))),
    ];
    let options = WriteOptions { allow_nonfinite: true, ..options(2) };
    let reports = write(&[file(&dir.path().join("out.gguf"), tensors)], &options).unwrap();
    assert_eq!((reports[0].overflow.n, reports[0].deviation.n_nonfinite), (1, 1));
    assert_eq!((reports[1].overflow.n, reports[1].deviation.n_nonfinite), (0, 1));
}

#[test]
#[cfg(unix)]
fn a_link_is_followed_and_a_device_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real.gguf"), dir.path().join("link.gguf"));
    fs::write(&real, "old").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    write(&[file(&link, some_tensors())], &options(2)).unwrap();
    assert!(link.is_symlink() && GgufFile::open(&real).is_ok());
    let error = write(&[file(Path::new("/dev/full"), some_tensors())], &options(2)).unwrap_err();
    assert_eq!(error.to_string(), "/dev/full: not a regular file");
}
