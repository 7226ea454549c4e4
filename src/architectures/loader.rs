//! Takes tensors out of the file for a family, checking every shape against the hyper-parameters.

use std::collections::HashSet;
use std::sync::Arc;

use qgguf_gguf::dequantize::dequantize_row;
use qgguf_gguf::{GgmlType, GgufFile, Metadata};
use qgguf_kernels::Matrix;

use super::Hparams;

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No family of this name.
    #[error("architecture \"{name}\" is not supported (supported: {known})")]
    UnknownArchitecture {
        /// `general.architecture` of the file.
        name: String,
        /// The supported names.
        known: String,
    },
    /// The container says no: a key is missing or has another type, a tensor is missing.
    #[error(transparent)]
    Gguf(#[from] qgguf_gguf::Error),
    /// A required key is absent.
    #[error("metadata key \"{key}\" is missing")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A metadata value that no model can have.
    #[error("metadata key \"{key}\": expected {expected}, found {found}")]
    Value {
        /// The key.
        key: String,
        /// What would be right.
        expected: String,
        /// What the file has.
        found: String,
    },
    /// A tensor whose shape contradicts the metadata.
    #[error("tensor \"{tensor}\": expected shape {expected:?}, found {found:?}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// The shape that the metadata asks for, row length first.
        expected: Vec<u64>,
        /// The shape in the file.
        found: Vec<u64>,
    },
    /// A tensor of a type that cannot be computed with.
    #[error("tensor \"{tensor}\" has type {ty}, which is not supported for inference")]
    Type {
        /// The tensor.
        tensor: String,
        /// Its type.
        ty: GgmlType,
    },
    /// Tensors that the family knows nothing about: the result would be wrong without them.
    #[error("architecture \"{arch}\" has no use for tensor \"{tensor}\"{}", and_more(*.count))]
    Unused {
        /// The architecture.
        arch: String,
        /// The first such tensor.
        tensor: String,
        /// How many there are.
        count: usize,
    },
}

fn and_more(count: usize) -> String {
    if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() }
}

impl LoadError {
    /// A [`LoadError::Value`].
    pub fn value(key: &str, found: impl ToString, expected: impl ToString) -> LoadError {
        LoadError::Value { key: key.to_owned(), expected: expected.to_string(), found: found.to_string() }
    }
}

/// A weight matrix in the mapped file: nothing is copied, nothing is read until it is used.
#[derive(Clone)]
pub struct Weight {
    file: Arc<GgufFile>,
    tensor: usize,
    ty: GgmlType,
    n_cols: usize,
    first_row: usize,
    n_rows: usize,
}

impl Weight {
    /// The matrix, borrowed from the mapping.
    pub fn matrix(&self) -> Matrix<'_> {
        let bytes = self.file.tensor_at(self.tensor).bytes();
        let row = self.ty.row_bytes(self.n_cols).expect("checked when loaded");
        let bytes = &bytes[self.first_row * row..(self.first_row + self.n_rows) * row];
        Matrix::new(self.ty, self.n_cols, self.n_rows, bytes).expect("checked when loaded")
    }

    /// Rows `first..first + n` as a weight of their own.
    ///
    /// # Panics
    /// If the matrix has fewer rows.
    pub fn rows(&self, first: usize, n: usize) -> Weight {
        assert!(first + n <= self.n_rows);
        Weight { first_row: self.first_row + first, n_rows: n, ..self.clone() }
    }

    /// The name of the tensor.
    pub fn name(&self) -> &str {
        self.file.tensor_at(self.tensor).name()
    }

    /// Number of rows: the width of the result.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Row length: the width of the input.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Writes row `i` as f32 (`out.len() == n_cols`).
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, i: usize, out: &mut [f32]) {
        assert!(i < self.n_rows && out.len() == self.n_cols);
        let row = self.ty.row_bytes(self.n_cols).expect("checked when loaded");
        let at = (self.first_row + i) * row;
        let bytes = &self.file.tensor_at(self.tensor).bytes()[at..at + row];
        dequantize_row(self.ty, bytes, out).expect("checked when loaded");
    }
}

/// Hands out the tensors of one file and remembers which were taken.
pub struct Loader<'a> {
    file: &'a Arc<GgufFile>,
    hparams: Hparams,
    taken: HashSet<usize>,
    warnings: Vec<String>,
}

impl<'a> Loader<'a> {
    /// Reads the shared hyper-parameters of `file`.
    pub fn new(file: &'a Arc<GgufFile>, arch: &str) -> Result<Loader<'a>, LoadError> {
        let embeddings = file.require_tensor("token_embd.weight")?;
        let n_vocab = embeddings.shape().get(1).copied().unwrap_or(1) as usize;
        let hparams = Hparams::from_metadata(file.metadata(), arch, n_vocab)?;
        Ok(Loader { file, hparams, taken: HashSet::new(), warnings: Vec::new() })
    }

    /// The hyper-parameters.
    pub fn hparams(&self) -> &Hparams {
        &self.hparams
    }

    /// The metadata of the file.
    pub fn metadata(&self) -> &'a Metadata {
        self.file.metadata()
    }

    /// Records something that the user should be told about this file.
    pub fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    /// What was read, and what there is to tell the user.
    pub fn into_parts(self) -> (Hparams, Vec<String>) {
        (self.hparams, self.warnings)
    }

    /// True if the file has the tensor.
    pub fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// A weight matrix of `n_rows` rows of `n_cols`.
    pub fn matrix(&mut self, name: &str, n_cols: usize, n_rows: usize) -> Result<Weight, LoadError> {
        self.take(name, &[n_cols, n_rows])
    }

    /// [`Loader::matrix`] for a tensor that may be absent.
    pub fn matrix_opt(
        &mut self,
        name: &str,
        n_cols: usize,
        n_rows: usize,
    ) -> Result<Option<Weight>, LoadError> {
        if self.has(name) { self.matrix(name, n_cols, n_rows).map(Some) } else { Ok(None) }
    }

    /// `n_expert` matrices of `n_rows` rows of `n_cols`, one after the other.
    pub fn experts(
        &mut self,
        name: &str,
        n_cols: usize,
        n_rows: usize,
        n_expert: usize,
    ) -> Result<Vec<Weight>, LoadError> {
        let all = self.take(name, &[n_cols, n_rows, n_expert])?;
        Ok((0..n_expert).map(|e| all.rows(e * n_rows, n_rows)).collect())
    }

    /// A vector of `n` values as f32 (norms and biases: these few kilobytes are copied).
    pub fn vector(&mut self, name: &str, n: usize) -> Result<Vec<f32>, LoadError> {
        let weight = self.take(name, &[n])?;
        let mut out = vec![0.0; n];
        weight.row(0, &mut out);
        Ok(out)
    }

    /// [`Loader::vector`] for a tensor that may be absent.
    pub fn vector_opt(&mut self, name: &str, n: usize) -> Result<Option<Vec<f32>>, LoadError> {
        if self.has(name) { self.vector(name, n).map(Some) } else { Ok(None) }
    }

    /// Checks that every tensor of the file was used.
    pub(super) fn finish(&mut self) -> Result<(), LoadError> {
        let unused: Vec<_> = (self.file.tensors().iter().enumerate())
            .filter(|(i, tensor)| !self.taken.contains(i) && !is_derived(&tensor.name))
            .map(|(_, tensor)| &tensor.name)
            .collect();
        match unused.first() {
            None => Ok(()),
            Some(&first) => Err(LoadError::Unused {
                arch: self.hparams.arch.clone(),
                tensor: first.clone(),
                count: unused.len(),
            }),
        }
    }

    fn take(&mut self, name: &str, shape: &[usize]) -> Result<Weight, LoadError> {
        let view = self.file.require_tensor(name)?;
        let expected: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
        if trimmed(view.shape()) != trimmed(&expected) {
            let found = view.shape().to_vec();
            return Err(LoadError::Shape { tensor: name.to_owned(), expected, found });
        }
        let tensor = self.file.tensor_index(name).expect("the view was found by this name");
        let (n_cols, n_rows) = (shape[0], shape[1..].iter().product());
        let ty = view.ty();
        let usable = qgguf_gguf::dequantize::dequantize_supported(ty)
            && Matrix::new(ty, n_cols, n_rows, view.bytes()).is_ok();
        if !usable {
            return Err(LoadError::Type { tensor: name.to_owned(), ty });
        }
        self.taken.insert(tensor);
        Ok(Weight { file: self.file.clone(), tensor, ty, n_cols, first_row: 0, n_rows })
    }
}

/// A shape without its trailing ones: writers differ in keeping them.
fn trimmed(shape: &[u64]) -> &[u64] {
    let n = shape.iter().rposition(|&n| n != 1).map_or(1, |i| i + 1);
    &shape[..n.min(shape.len())]
}

/// Tensors that old converters stored although they follow from the hyper-parameters.
fn is_derived(name: &str) -> bool {
    name.ends_with("rotary_emb.inv_freq") || name.ends_with("attn_rot_embd.weight")
}
