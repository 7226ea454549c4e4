//! From the bytes of whole blocks to f32, for a type that is known when the program runs.

use crate::GgmlType;

/// Why a row cannot be dequantized.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DequantizeError {
    /// The meaning of this type is not known here.
    #[error("type {0} cannot be dequantized")]
    Unsupported(GgmlType),
    /// The bytes are not those of so many weights.
    #[error("{found} bytes are not {weights} weights of type {ty}{}", expected.map_or(String::new(), |n| format!(", which take {n}")))]
    Length {
        /// The type.
        ty: GgmlType,
        /// Number of weights wanted.
        weights: usize,
        /// Bytes they take, `None` if they are no whole number of blocks.
        expected: Option<usize>,
        /// Bytes given.
        found: usize,
    },
}

/// Writes the weights of whole blocks as f32.
///
/// # Errors
/// A type that is not [supported](dequantize_supported), bytes that are not those of `out.len()` weights.
pub fn dequantize_row(ty: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), DequantizeError> {
    let dequantize = ty.dequantize().ok_or(DequantizeError::Unsupported(ty))?;
    let expected = ty.row_bytes(out.len());
    if expected != Some(bytes.len()) {
        return Err(DequantizeError::Length { ty, weights: out.len(), expected, found: bytes.len() });
    }
    dequantize(bytes, out);
    Ok(())
}

/// True if [`dequantize_row`] knows the type.
pub fn dequantize_supported(ty: GgmlType) -> bool {
    ty.dequantize().is_some()
}
