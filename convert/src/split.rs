//! One model as several files, and several files as one.

use std::ops::Range;
use std::path::{Path, PathBuf};

use qgguf_gguf::{GgufFile, Metadata, MetadataValue, TensorSpec, shard_path};

use crate::gguf_rows::Shards;
use crate::pipeline::{OutputFile, OutputTensor};

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// How much goes into one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitLimit {
    /// So many tensors.
    Tensors(u64),
    /// So many bytes of tensor data, unless a single tensor has more.
    Bytes(u64),
}

/// In which order the keys of a split stand: each tool of llama.cpp has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitKeyOrder {
    /// `split.no`, `split.count`, `split.tensors.count`: the converter, and `quantize --keep-split`.
    CountSecond,
    /// `split.no`, `split.tensors.count`, `split.count`: gguf-split.
    CountLast,
}

/// Why files cannot be split.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// More files than can be counted.
    #[error("{0} files of a split, expected at most 65535: raise the limit")]
    TooMany(usize),
    /// Nothing to merge.
    #[error("{0}: not a shard of a split model")]
    NotSplit(PathBuf),
    /// Data that cannot be copied.
    #[error(transparent)]
    Gguf(#[from] qgguf_gguf::Error),
}

/// The tensors of each file. With `empty_first` the first file has none.
pub fn parts(tensors: &[TensorSpec], limit: SplitLimit, empty_first: bool) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    if empty_first {
        parts.push(0..0);
    }
    let (mut start, mut size) = (0, 0u64);
    for (i, tensor) in tensors.iter().enumerate() {
        let next = padded_bytes(tensor);
        let full = match limit {
            SplitLimit::Tensors(n) => (i as u64).is_multiple_of(n.max(1)),
            SplitLimit::Bytes(n) => size + next > n,
        };
        if full && i > start {
            parts.push(start..i);
            (start, size) = (i, 0);
        }
        size += next;
    }
    parts.push(start..tensors.len());
    parts
}

/// Bytes of a tensor with its padding.
fn padded_bytes(tensor: &TensorSpec) -> u64 {
    let row = tensor.shape.first().copied().unwrap_or(1) as usize;
    let rows: u64 = tensor.shape.iter().skip(1).product();
    (tensor.ty.row_bytes(row).unwrap_or(0) as u64 * rows).next_multiple_of(32)
}

/// Makes of one file (whose path does not matter) the files of a split, called `PREFIX-00001-of-0000N.gguf`.
pub fn split_file<'a>(
    file: OutputFile<'a>,
    prefix: &Path,
    parts: &[Range<usize>],
    order: SplitKeyOrder,
) -> Result<Vec<OutputFile<'a>>, SplitError> {
    let count = u16::try_from(parts.len()).map_err(|_| SplitError::TooMany(parts.len()))?;
    let n_tensors = file.tensors.len();
    let mut metadata = Some(file.metadata);
    let mut tensors = file.tensors.into_iter();
    let files = (0..count).zip(parts).map(|(no, part)| {
        // Only the first file says what the model is.
        let mut metadata = metadata.take().unwrap_or_default();
        remove_split_keys(&mut metadata);
        metadata.set(NO, MetadataValue::U16(no));
        if order == SplitKeyOrder::CountSecond {
            metadata.set(COUNT, MetadataValue::U16(count));
        }
        metadata.set(TENSORS, MetadataValue::I32(n_tensors as i32));
        metadata.set(COUNT, MetadataValue::U16(count));
        OutputFile {
            path: shard_path(prefix, no.into(), count.into()),
            metadata,
            tensors: tensors.by_ref().take(part.len()).collect(),
            pad_empty: file.pad_empty,
        }
    });
    Ok(files.collect())
}

/// Takes out what says that a file is one of several.
pub fn remove_split_keys(metadata: &mut Metadata) {
    [NO, COUNT, TENSORS].into_iter().for_each(|key| _ = metadata.remove(key));
}

/// The files into which gguf-split would split a model.
pub fn split<'a>(
    model: &GgufFile,
    shards: &Shards,
    prefix: &Path,
    limit: SplitLimit,
    empty_first: bool,
) -> Result<Vec<OutputFile<'a>>, SplitError> {
    let file = copy(model, shards, prefix)?;
    let specs: Vec<TensorSpec> = file.tensors.iter().map(|tensor| tensor.spec.clone()).collect();
    split_file(file, prefix, &parts(&specs, limit, empty_first), SplitKeyOrder::CountLast)
}

/// The file that gguf-split would merge the shards of a model into.
pub fn merge<'a>(model: &GgufFile, shards: &Shards, path: &Path) -> Result<OutputFile<'a>, SplitError> {
    if model.paths().len() < 2 {
        return Err(SplitError::NotSplit(model.path().to_owned()));
    }
    let mut file = copy(model, shards, path)?;
    file.metadata.remove(COUNT);
    // Zero: not split. The other keys stay.
    file.metadata.set(COUNT, MetadataValue::U16(0));
    Ok(file)
}

/// A model as it is, but aligned to 32 like everything that llama.cpp's tools write.
fn copy<'a>(model: &GgufFile, shards: &Shards, path: &Path) -> Result<OutputFile<'a>, SplitError> {
    let mut metadata = model.metadata().clone();
    metadata.remove("general.alignment");
    let tensors = model.tensors().iter().map(|info| {
        model.require_tensor(&info.name)?;
        let spec = TensorSpec { shape: trimmed(&info.shape), ..info.into() };
        Ok(OutputTensor { spec, importance: None, source: Box::new(shards.rows(info)) })
    });
    let tensors = tensors.collect::<Result<_, SplitError>>()?;
    Ok(OutputFile { path: path.to_owned(), metadata, tensors, pad_empty: true })
}

/// A shape without the ones at its end, as ggml writes it; at least one dimension.
pub fn trimmed(shape: &[u64]) -> Vec<u64> {
    let n = shape.iter().rposition(|&n| n != 1).map_or(1, |last| last + 1);
    shape.iter().copied().chain([1]).take(n).collect()
}

#[cfg(test)]
mod tests {
    use qgguf_gguf::GgmlType;

    use super::*;

    fn tensors(lengths: &[u64]) -> Vec<TensorSpec> {
        let tensor = |&n: &u64| TensorSpec { name: String::new(), shape: vec![n], ty: GgmlType::F32 };
        lengths.iter().map(tensor).collect()
    }

    /// Where each part ends; each begins where the one before ends.
    fn ends(lengths: &[u64], limit: SplitLimit, empty_first: bool) -> Vec<usize> {
        let parts = parts(&tensors(lengths), limit, empty_first);
        assert!(parts[0].start == 0 && parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        parts.iter().map(|part| part.end).collect()
    }

    #[test]
    fn parts_are_as_large_as_they_may_be() {
        let five = [8, 8, 8, 8, 8];
        assert_eq!(ends(&five, SplitLimit::Tensors(2), false), [2, 4, 5]);
        assert_eq!(ends(&five, SplitLimit::Tensors(5), false), [5]);
        assert_eq!(ends(&five, SplitLimit::Bytes(64), false), [2, 4, 5]);
        assert_eq!(ends(&five, SplitLimit::Bytes(63), true), [0, 1, 2, 3, 4, 5]);
        // 7 floats are padded to 8; what is too large stands alone.
        assert_eq!(ends(&[100, 7, 8, 100, 1], SplitLimit::Bytes(64), false), [1, 3, 4, 5]);
        assert_eq!(ends(&[], SplitLimit::Tensors(2), false), [0]);
    }

    #[test]
    fn trailing_ones_are_dropped() {
        assert_eq!(trimmed(&[4, 1, 3, 1]), [4, 1, 3]);
        assert_eq!(trimmed(&[1, 1]), [1]);
        assert_eq!(trimmed(&[]), [1]);
    }
}
