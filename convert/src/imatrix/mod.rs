//! Importance matrices: how large the inputs of each weight matrix were, column by column, on some text.
//!
//! Read and written as llama-imatrix does, in GGUF and in the older format without a magic number.

mod gguf;
mod legacy;
mod merge;
mod statistics;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use qgguf_gguf::{TensorSpec, WriteError};

pub use merge::MergeError;
pub use statistics::{Statistics, statistics};

/// Sums of squared inputs for the tensors of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imatrix {
    /// The sums, by the name of the tensor.
    pub entries: BTreeMap<String, Sums>,
    /// The texts, as whoever made the matrix called them.
    pub datasets: Vec<String>,
    /// Chunks of text that went in; 0 if the file does not say.
    pub n_chunks: u32,
    /// Tokens per chunk; 0 if the file does not say.
    pub chunk_size: u32,
}

/// Squared inputs of one tensor: for each of its matrices (one, or one for each expert) as many sums as it has columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums {
    /// The sums, matrix after matrix.
    pub sums: Vec<f32>,
    /// By how many inputs to divide them: one count for each matrix, or one for all.
    pub counts: Vec<f32>,
}

impl Sums {
    /// Nothing yet for `n_matrices` of `n_columns`.
    pub fn new(n_columns: usize, n_matrices: usize) -> Sums {
        Sums { sums: vec![0.0; n_columns * n_matrices], counts: vec![0.0; n_matrices] }
    }

    /// The largest of the counts.
    pub fn max_count(&self) -> f32 {
        self.counts.iter().fold(0.0, |a, &b| a.max(b))
    }

    /// Matrices without any input: experts that no token was sent to.
    pub fn unreached(&self) -> Vec<usize> {
        (0..self.counts.len()).filter(|&i| self.counts[i] <= 0.0).collect()
    }

    /// Mean squared inputs; 1 everywhere in matrices that had none.
    pub fn importance(&self) -> Vec<f32> {
        let n_columns = self.sums.len() / self.counts.len().max(1);
        let mut out = self.sums.clone();
        if n_columns > 0 {
            for (row, &count) in out.chunks_mut(n_columns).zip(&self.counts) {
                row.iter_mut().for_each(|value| *value = if count > 0.0 { *value / count } else { 1.0 });
            }
        }
        out
    }
}

/// Why an importance matrix cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImatrixError {
    /// The operating system says no.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A GGUF that cannot be read.
    #[error(transparent)]
    Gguf(#[from] qgguf_gguf::Error),
    /// No importance matrix.
    #[error("{path}: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The matrix belongs to another model.
    #[error(
        "tensor \"{tensor}\": the importance matrix has {found} values for it, expected {expected} \
         ({columns} columns, {matrices} matrices); it was made for another model"
    )]
    Size {
        /// The tensor.
        tensor: String,
        /// Values there should be.
        expected: u64,
        /// Values there are.
        found: usize,
        /// Row length.
        columns: u64,
        /// Matrices in the tensor.
        matrices: u64,
    },
}

impl Imatrix {
    /// Reads a file of either format.
    pub fn read(path: &Path) -> Result<Imatrix, ImatrixError> {
        let bytes = fs::read(path).map_err(|source| ImatrixError::Io { path: path.to_owned(), source })?;
        let malformed = |reason| ImatrixError::Malformed { path: path.to_owned(), reason };
        let imatrix = match bytes.starts_with(b"GGUF") {
            true => gguf::read(path, bytes)?,
            false => legacy::read(&bytes).map_err(malformed)?,
        };
        for (name, entry) in &imatrix.entries {
            let bad = |value: &&f32| !value.is_finite() || **value < 0.0;
            if let Some(value) = entry.sums.iter().chain(&entry.counts).find(bad) {
                return Err(malformed(format!(
                    "\"{name}\": {value} among its values, expected finite ones from 0"
                )));
            }
        }
        Ok(imatrix)
    }

    /// Writes a GGUF. Tensors without any input are left out.
    pub fn write_gguf(&self, path: &Path) -> Result<(), WriteError> {
        gguf::write(self, path)
    }

    /// The bytes of a file of the older format. Tensors without any input are left out.
    pub fn to_legacy(&self) -> Vec<u8> {
        legacy::to_bytes(self)
    }

    /// Entries that had some input.
    fn reached(&self) -> impl Iterator<Item = (&String, &Sums)> {
        self.entries.iter().filter(|(_, entry)| entry.max_count() > 0.0)
    }

    /// The importance of the columns of a tensor, one row for each of its matrices; `None` if the matrix does not
    /// have it.
    pub fn importance(&self, tensor: &TensorSpec) -> Result<Option<Vec<f32>>, ImatrixError> {
        let Some(entry) = self.entries.get(&tensor.name) else { return Ok(None) };
        let columns = tensor.shape.first().copied().unwrap_or(1);
        let matrices = tensor.shape.get(2).copied().unwrap_or(1);
        let expected = columns.saturating_mul(matrices);
        if entry.sums.len() as u64 == expected {
            return Ok(Some(entry.importance()));
        }
        // Lookups touch a row for each token, so a matrix over these has another shape.
        if matches!(tensor.name.as_str(), "token_embd.weight" | "per_layer_token_embd.weight") {
            return Ok(None);
        }
        let (tensor, found) = (tensor.name.clone(), entry.sums.len());
        Err(ImatrixError::Size { tensor, expected, found, columns, matrices })
    }
}
