//! From f32 to the bytes of a type and back.

use half::{bf16, f16};
use qgguf_gguf::GgmlType;
use qgguf_gguf::dequantize::{DequantizeError, dequantize_row, dequantize_supported};
use qgguf_kernels::Kernels;

use crate::blocks;

/// Why rows cannot be stored in a type.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Nobody knows how to make this type.
    #[error("type {0} cannot be made yet")]
    Unsupported(GgmlType),
    /// Rows that are no whole number of blocks.
    #[error("rows of {n_columns} weights are no whole number of {ty} blocks")]
    Columns {
        /// The type.
        ty: GgmlType,
        /// Weights in a row.
        n_columns: usize,
    },
    /// Nobody knows what it means.
    #[error(transparent)]
    Decode(#[from] DequantizeError),
}

/// True if [`rows`] can make the type.
pub fn can_make(ty: GgmlType) -> bool {
    matches!(ty, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16) || blocks::is_supported(ty)
}

/// True if [`restore`] can read the type.
pub fn can_restore(ty: GgmlType) -> bool {
    dequantize_supported(ty)
}

/// Writes rows of `n_columns` as blocks of a type; each column weighs as its `importance` says.
pub fn rows(
    _kernels: Kernels,
    ty: GgmlType,
    weights: &[f32],
    n_columns: usize,
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<(), EncodeError> {
    match ty {
        GgmlType::F32 => numbers(weights, out, f32::to_le_bytes),
        GgmlType::F16 => numbers(weights, out, |x| f16::from_f32(x).to_le_bytes()),
        GgmlType::BF16 => numbers(weights, out, |x| bf16::from_f32(x).to_le_bytes()),
        ty => {
            let whole = ty.row_bytes(n_columns).filter(|&n| n > 0);
            let row_bytes = whole.ok_or(EncodeError::Columns { ty, n_columns })?;
            for (row, out) in weights.chunks_exact(n_columns).zip(out.chunks_exact_mut(row_bytes)) {
                blocks::quantize_row(ty, row, importance, out).ok_or(EncodeError::Unsupported(ty))?;
            }
        }
    }
    Ok(())
}

fn numbers<const N: usize>(weights: &[f32], out: &mut [u8], bytes: impl Fn(f32) -> [u8; N]) {
    out.as_chunks_mut().0.iter_mut().zip(weights).for_each(|(out, &x)| *out = bytes(x));
}

/// Writes what blocks mean.
pub fn restore(_kernels: Kernels, ty: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), EncodeError> {
    Ok(dequantize_row(ty, bytes, out)?)
}
