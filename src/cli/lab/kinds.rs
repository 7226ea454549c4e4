//! The quantizations that are compared.

use qgguf::lab::int4::{Int4Error, Int4Matrix, Scheme};
use qgguf::lab::theory::gaussian_row_error;
use qgguf::lab::variant::Quantized;
use qgguf_gguf::TensorSpec;

/// A way to quantize a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Group-wise, every matrix alike.
    Int4 {
        /// Symmetric or not.
        scheme: Scheme,
        /// Weights that share a scale.
        group: usize,
    },
}

impl Kind {
    /// What it is called in tables.
    pub fn name(&self) -> String {
        match self {
            Kind::Int4 { scheme, group } => format!("{} {group}", scheme.name()),
        }
    }

    /// The relative error of Gaussian weights in rows of `n_cols`, where there is a theory.
    pub fn theory(&self, n_cols: usize) -> Option<f64> {
        match *self {
            Kind::Int4 { scheme, group } => Some(gaussian_row_error(n_cols, group, scheme)),
        }
    }

    /// Quantizes a matrix and says what its weights are then.
    pub fn quantize(&self, matrix: &TensorSpec, weights: &[f32]) -> Result<Option<Quantized>, Int4Error> {
        match *self {
            Kind::Int4 { scheme, group } => {
                let matrix = Int4Matrix::quantize(weights, matrix.shape[0] as usize, group, scheme)?;
                Ok(Some(Quantized { n_bytes: matrix.bytes() as u64, weights: matrix.dequantize() }))
            }
        }
    }
}
