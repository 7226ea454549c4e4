//! The same model with other weights.
//!
//! A variant has the weights that some quantization stands for as f32 in memory, so that its forward pass is the
//! original's and the weights are all that differs: activations are not rounded.

use std::sync::Arc;

use qgguf_gguf::dequantize::dequantize_row;
use qgguf_gguf::{GgmlType, GgufFile, TensorInfo, TensorSpec, TensorView, WriteError, in_memory};

use super::relative_error;
use crate::model::{Model, ModelErrorKind, ModelOptions};

/// Which matrices get other weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every matrix that tokens are multiplied with, and the embeddings.
    All,
    /// The output projection only. One that is the embeddings again becomes a tensor of its own, and what tokens are
    /// looked up in stays.
    OnlyOutput,
    /// Every matrix but the output projection and the embeddings.
    ExceptOutput,
}

/// Why there is no variant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VariantError {
    /// The weights were quantized before.
    #[error(
        "tensor \"{tensor}\" is {ty}; expected f16, bf16 or f32: what is quantized already says little about quantization (qgguf lab dither makes an original of it)"
    )]
    NotOriginal {
        /// The tensor.
        tensor: String,
        /// Its type.
        ty: GgmlType,
    },
    /// Weights that a quantization refuses.
    #[error("tensor \"{tensor}\": {source}")]
    Weights {
        /// The tensor.
        tensor: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] qgguf_gguf::Error),
    /// The variant cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The variant is no model.
    #[error(transparent)]
    Model(#[from] ModelErrorKind),
}

/// What became of one matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Its name.
    pub tensor: String,
    /// Row length.
    pub n_cols: usize,
    /// Number of weights.
    pub n_weights: usize,
    /// Bytes of its quantized weights.
    pub n_bytes: u64,
    /// The Frobenius norm of the original weights.
    pub norm: f64,
    /// The relative error of the weights, in that norm.
    pub error: f64,
}

/// Weights that a quantization stands for, and the bytes it takes.
pub struct Quantized {
    /// As many as before.
    pub weights: Vec<f32>,
    /// Bytes of blocks, codes, scales.
    pub n_bytes: u64,
}

/// A model with other weights.
pub struct Variant {
    /// Runs like the original.
    pub model: Arc<Model>,
    /// The matrices that were changed.
    pub changed: Vec<Changed>,
    /// Bytes of tensor data of a file with these weights.
    pub n_bytes: u64,
}

impl Variant {
    /// The relative error of all changed weights together, if `error` gives that of a matrix.
    pub fn total(&self, error: impl Fn(&Changed) -> f64) -> f64 {
        let norm = |changed: &Changed| changed.norm * changed.norm;
        let size: f64 = self.changed.iter().map(norm).sum();
        let sum: f64 = self.changed.iter().map(|changed| error(changed).powi(2) * norm(changed)).sum();
        if size > 0.0 { (sum / size).sqrt() } else { 0.0 }
    }
}

/// A model with weights as they were trained, or nearly so.
pub struct Original {
    model: Arc<Model>,
    matrices: Vec<Matrix>,
}

/// A matrix to be changed.
struct Matrix {
    /// What it is called in the variant.
    name: String,
    /// Where its weights are.
    source: usize,
}

/// The output projection, in files that have one of its own.
pub const OUTPUT: &str = "output.weight";
/// What tokens are looked up in, and the output projection of files without one.
pub const EMBEDDINGS: &str = "token_embd.weight";

impl Original {
    /// Takes a model whose chosen matrices are f16, bf16 or f32.
    pub fn new(model: Arc<Model>, selection: Selection) -> Result<Original, VariantError> {
        let file = model.file();
        let tied = file.tensor(OUTPUT).is_none();
        let chosen = |info: &TensorInfo| {
            let around = info.name == OUTPUT || info.name == EMBEDDINGS;
            is_matrix(info)
                && match selection {
                    Selection::All => true,
                    Selection::OnlyOutput => info.name == if tied { EMBEDDINGS } else { OUTPUT },
                    Selection::ExceptOutput => !around,
                }
        };
        let mut matrices = Vec::new();
        for (source, info) in file.tensors().iter().enumerate().filter(|(_, info)| chosen(info)) {
            if !matches!(info.ty, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16) {
                return Err(VariantError::NotOriginal { tensor: info.name.clone(), ty: info.ty });
            }
            let alone = selection == Selection::OnlyOutput && tied;
            let name = if alone { OUTPUT } else { &info.name }.to_owned();
            matrices.push(Matrix { name, source });
        }
        Ok(Original { model, matrices })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The matrices that variants change, under their names there.
    pub fn matrices(&self) -> impl ExactSizeIterator<Item = TensorSpec> {
        let tensors = self.model.file().tensors();
        self.matrices.iter().map(|m| TensorSpec { name: m.name.clone(), ..(&tensors[m.source]).into() })
    }

    /// Bytes of tensor data.
    pub fn n_bytes(&self) -> u64 {
        self.model.file().tensors().iter().map(|t| t.n_bytes).sum()
    }

    /// Number of weights.
    pub fn n_weights(&self) -> u64 {
        self.model.file().tensors().iter().map(TensorInfo::n_elements).sum()
    }

    /// Makes a variant: `quantize(matrix, weights)` is called for every chosen matrix, with its weights row by row.
    /// A matrix for which it gives `None` stays as it is.
    pub fn variant<E>(
        &self,
        options: &ModelOptions,
        mut quantize: impl FnMut(&TensorSpec, &[f32]) -> Result<Option<Quantized>, E>,
    ) -> Result<Variant, VariantError>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let file = self.model.file();
        let mut changed = Vec::new();
        let mut n_bytes = self.n_bytes();
        let new = || self.matrices().map(|spec| TensorSpec { ty: GgmlType::F32, ..spec });
        let unchanged: Vec<TensorView<'_>> = (0..file.tensors().len())
            .map(|i| file.tensor_at(i))
            .filter(|view| self.matrices.iter().all(|matrix| matrix.name != view.name()))
            .collect();
        let specs: Vec<TensorSpec> = new().chain(unchanged.iter().map(|view| view.info().into())).collect();
        let bytes = in_memory(file.path(), file.metadata(), &specs, |i, out| {
            let Some(matrix) = self.matrices.get(i) else {
                out.copy_from_slice(unchanged[i - self.matrices.len()].bytes());
                return Ok::<_, VariantError>(());
            };
            let info = &file.tensors()[matrix.source];
            let mut weights = weights(file, matrix.source)?;
            let spec = TensorSpec { name: matrix.name.clone(), ..info.into() };
            let quantized = quantize(&spec, &weights).map_err(|source| VariantError::Weights {
                tensor: spec.name.clone(),
                source: source.into(),
            })?;
            if let Some(quantized) = quantized {
                n_bytes += quantized.n_bytes;
                n_bytes -= if matrix.name == info.name { info.n_bytes } else { 0 };
                changed.push(Changed {
                    tensor: spec.name,
                    n_cols: info.row_len() as usize,
                    n_weights: weights.len(),
                    n_bytes: quantized.n_bytes,
                    norm: weights.iter().map(|&w| f64::from(w) * f64::from(w)).sum::<f64>().sqrt(),
                    error: relative_error(&weights, &quantized.weights),
                });
                weights = quantized.weights;
            }
            let out = out.as_chunks_mut::<4>().0.iter_mut();
            out.zip(weights).for_each(|(out, w)| *out = w.to_le_bytes());
            Ok(())
        })?;
        let model = Arc::new(Model::from_file(GgufFile::from_bytes(file.path(), bytes)?, options)?);
        Ok(Variant { model, changed, n_bytes })
    }
}

/// A matrix that activations are multiplied with or tokens are looked up in; routers of experts stay exact, as in every
/// quantized file.
fn is_matrix(info: &TensorInfo) -> bool {
    let name = &info.name;
    info.n_rows() > 1
        && name.ends_with(".weight")
        && !name.contains("_norm.")
        && !name.ends_with("ffn_gate_inp.weight")
}

fn weights(file: &GgufFile, index: usize) -> Result<Vec<f32>, VariantError> {
    let view = file.require_tensor(&file.tensors()[index].name)?;
    let mut weights = vec![0.0; view.info().n_elements() as usize];
    dequantize_row(view.ty(), view.bytes(), &mut weights)
        .map_err(|source| VariantError::Weights { tensor: view.name().to_owned(), source: source.into() })?;
    Ok(weights)
}
