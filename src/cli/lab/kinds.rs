//! The quantizations that are compared.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use qgguf::lab::int4::{Int4Error, Int4Matrix, Scheme};
use qgguf::lab::theory::gaussian_row_error;
use qgguf::lab::variant::{EMBEDDINGS, OUTPUT, Original, Quantized};
use qgguf_convert::file_type::FileType;
use qgguf_convert::model_shape::ModelShape;
use qgguf_convert::recipe::{Recipe, file_order};
use qgguf_gguf::dequantize::{DequantizeError, dequantize_row, dequantize_supported};
use qgguf_gguf::{GgmlType, GgufFile, TensorSpec};
use qgguf_kernels::{Kernels, QuantizeError, quantizable};

use crate::cli::error::{Context, Failure, Result};
use crate::cli::terminal;

/// A way to quantize a model.
#[derive(Clone)]
pub enum Kind {
    /// Group-wise, every matrix alike.
    Int4 {
        /// Symmetric or not.
        scheme: Scheme,
        /// Weights that share a scale.
        group: usize,
    },
    /// What another file of the same model has.
    File {
        /// Its name.
        name: String,
        /// The file.
        file: Arc<GgufFile>,
    },
    /// As llama.cpp's file type has it, without an importance matrix.
    Recipe {
        /// Which.
        file_type: FileType,
        /// The types of the tensors.
        types: HashMap<String, GgmlType>,
    },
}

/// Why a matrix cannot be quantized.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    #[error(transparent)]
    Int4(#[from] Int4Error),
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    #[error(transparent)]
    Dequantize(#[from] DequantizeError),
    #[error(transparent)]
    File(#[from] qgguf_gguf::Error),
}

impl Kind {
    /// Another file of the same model.
    ///
    /// # Errors
    /// If it is one of another model: of another architecture or vocabulary, or with matrices of other shapes.
    pub fn file(path: &Path, original: &Original) -> Result<Kind> {
        let file = GgufFile::open(path)?;
        check_vocabulary(&file, original.model().file())
            .and_then(|()| check_matrices(&file, original))
            .context(path.display())?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Kind::File { name, file: Arc::new(file) })
    }

    /// A file type with what its recipe gives the matrices of a model, or the first type that cannot be made.
    pub fn recipe(file_type: FileType, original: &Original) -> Result<Result<Kind, GgmlType>> {
        let file = original.model().file();
        let mut tensors: Vec<TensorSpec> = file.tensors().iter().map(TensorSpec::from).collect();
        // An output projection of its own, if that is what is quantized.
        tensors.extend(original.matrices().filter(|matrix| file.tensor(&matrix.name).is_none()));
        file_order(&mut tensors, |tensor| &tensor.name);
        let shape = ModelShape::from_metadata(file.metadata())?;
        let types = Recipe::new(Some(file_type)).types(&shape, &tensors)?;
        let types: HashMap<String, GgmlType> =
            tensors.into_iter().map(|tensor| tensor.name).zip(types).collect();
        let unknown = original.matrices().map(|matrix| types[&matrix.name]).find(|&ty| !quantizable(ty));
        Ok(unknown.map_or(Ok(Kind::Recipe { file_type, types }), Err))
    }

    /// What it is called in tables.
    pub fn name(&self) -> String {
        match self {
            Kind::Int4 { scheme, group } => format!("{} {group}", scheme.name()),
            Kind::File { name, .. } => terminal::escape(name).into_owned(),
            Kind::Recipe { file_type, .. } => file_type.name().to_owned(),
        }
    }

    /// Scheme and group of a group-wise kind.
    pub fn int4(&self) -> Option<(Scheme, usize)> {
        match *self {
            Kind::Int4 { scheme, group } => Some((scheme, group)),
            _ => None,
        }
    }

    /// The relative error of Gaussian weights in rows of `n_cols`, where there is a theory.
    pub fn theory(&self, n_cols: usize) -> Option<f64> {
        self.int4().map(|(scheme, group)| gaussian_row_error(n_cols, group, scheme))
    }

    /// Quantizes a matrix and says what its weights are then; `None` if it stays as it is.
    pub fn quantize(
        &self,
        kernels: Kernels,
        matrix: &TensorSpec,
        weights: &[f32],
    ) -> Result<Option<Quantized>, KindError> {
        let n_cols = matrix.shape[0] as usize;
        match self {
            Kind::Int4 { scheme, group } => {
                let matrix = Int4Matrix::quantize(weights, n_cols, *group, *scheme)?;
                Ok(Some(Quantized { n_bytes: matrix.bytes() as u64, weights: matrix.dequantize() }))
            }
            Kind::File { file, .. } => {
                let view = file.require_tensor(name_in(file, &matrix.name))?;
                dequantized(view.ty(), view.bytes(), weights.len())
            }
            Kind::Recipe { types, .. } => {
                let ty = types[&matrix.name];
                if ty.block_size() == 1 {
                    return Ok(None);
                }
                let rows = weights.len() / n_cols;
                let mut bytes = vec![0; ty.row_bytes(n_cols).unwrap_or(0) * rows];
                kernels.quantize_rows(ty, weights, n_cols, None, &mut bytes)?;
                dequantized(ty, &bytes, weights.len())
            }
        }
    }
}

/// What a matrix is called in a file: where the output projection is the embeddings, it has their name.
fn name_in<'n>(file: &GgufFile, name: &'n str) -> &'n str {
    if name == OUTPUT && file.tensor(OUTPUT).is_none() { EMBEDDINGS } else { name }
}

/// Fails if files are not of the same architecture and for the same tokens.
fn check_vocabulary(file: &GgufFile, original: &GgufFile) -> Result<()> {
    let (expected, found) = (original.architecture()?, file.architecture()?);
    if found != expected {
        return Err(another_model(format!("architecture {expected}"), found));
    }
    let tokens = |file: &GgufFile| file.metadata().strings("tokenizer.ggml.tokens").map(|t| t.cloned());
    let (expected, found) = (tokens(original)?.unwrap_or_default(), tokens(file)?.unwrap_or_default());
    if found.len() != expected.len() {
        return Err(another_model(format!("a vocabulary of {} tokens", expected.len()), found.len()));
    }
    match expected.iter().zip(found.iter()).enumerate().find(|(_, (expected, found))| expected != found) {
        Some((id, (expected, found))) => Err(another_model(format!("token {id} to be {expected:?}"), found)),
        None => Ok(()),
    }
}

/// Fails if the matrices of the original are not there, in the same shapes and readable.
fn check_matrices(file: &GgufFile, original: &Original) -> Result<()> {
    for matrix in original.matrices() {
        let view = file.require_tensor(name_in(file, &matrix.name))?;
        let failed = match (view.shape() == matrix.shape, dequantize_supported(view.ty())) {
            (true, true) => continue,
            (false, _) => another_model(format!("{:?}", matrix.shape), format!("{:?}", view.shape())),
            (_, false) => DequantizeError::Unsupported(view.ty()).into(),
        };
        return Err(failed).context(format!("tensor \"{}\"", matrix.name));
    }
    Ok(())
}

fn another_model(expected: impl Display, found: impl Display) -> Failure {
    Failure::text(format!("expected {expected} as the original has, found {found}: it is another model"))
}

fn dequantized(ty: GgmlType, bytes: &[u8], n: usize) -> Result<Option<Quantized>, KindError> {
    let mut weights = vec![0.0; n];
    dequantize_row(ty, bytes, &mut weights)?;
    Ok(Some(Quantized { n_bytes: bytes.len() as u64, weights }))
}
