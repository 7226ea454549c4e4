//! From f32 to the bytes of a type and back: what the kernels do, with one error for both ways.

use qgguf_gguf::GgmlType;
use qgguf_gguf::dequantize::{DequantizeError, dequantize_supported};
use qgguf_kernels::{Kernels, QuantizeError, quantizable};

/// Why rows cannot be stored in a type, or read from one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Rows cannot be stored.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// Bytes cannot be read.
    #[error(transparent)]
    Decode(#[from] DequantizeError),
}

/// True if [`rows`] can make the type.
pub fn can_make(ty: GgmlType) -> bool {
    quantizable(ty)
}

/// True if [`restore`] can read the type.
pub fn can_restore(ty: GgmlType) -> bool {
    dequantize_supported(ty)
}

/// Writes rows of `n_columns` as blocks of a type; each column weighs as its `importance` says. What is not finite
/// is the caller's business.
pub fn rows(
    kernels: Kernels,
    ty: GgmlType,
    weights: &[f32],
    n_columns: usize,
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<(), EncodeError> {
    Ok(kernels.quantize_rows_as_they_are(ty, weights, n_columns, importance, out)?)
}

/// Writes what blocks mean, in rows of `n_columns`.
pub fn restore(
    kernels: Kernels,
    ty: GgmlType,
    bytes: &[u8],
    n_columns: usize,
    out: &mut [f32],
) -> Result<(), EncodeError> {
    Ok(kernels.widen_rows(ty, bytes, n_columns, out)?)
}
