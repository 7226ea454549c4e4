//! Rows of f32 to blocks of any type, and back: checks, and the way to the kernels.

use qgguf_gguf::GgmlType;
use qgguf_gguf::dequantize::{DequantizeError, dequantize_row};

use crate::Kernels;
use crate::formats::{self, FORMATS};
use crate::quantizers::Weights;

/// Why rows cannot be quantized.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// The type's search is not known here, or the type is not one of weights.
    #[error("quantizing to {ty} is not possible{}", if is_codebook(*ty) { " yet" } else { "" })]
    Unsupported {
        /// The type.
        ty: GgmlType,
    },
    /// Rows that are no whole number of blocks.
    #[error("rows of {n_cols} weights are not whole blocks of {ty}, which hold {}", ty.block_size())]
    Columns {
        /// The type.
        ty: GgmlType,
        /// Weights in a row.
        n_cols: usize,
    },
    /// The weights are no whole number of rows, or the space for the blocks is not theirs.
    #[error("{weights} weights in rows of {n_cols} do not fill {bytes} bytes of {ty}")]
    Length {
        /// The type.
        ty: GgmlType,
        /// Weights given.
        weights: usize,
        /// Weights in a row.
        n_cols: usize,
        /// Bytes given for the blocks.
        bytes: usize,
    },
    /// The importance is not one number for each column.
    #[error("the importance has {found} values for rows of {n_cols} weights")]
    Importance {
        /// Weights in a row.
        n_cols: usize,
        /// Values found.
        found: usize,
    },
    /// An importance that is not finite.
    #[error("the importance of column {column} is {value}")]
    ImportanceNotFinite {
        /// Which column.
        column: usize,
        /// What it is.
        value: f32,
    },
    /// A weight that is not finite.
    #[error("the weight in row {row}, column {column} is {value}")]
    NotFinite {
        /// Which row.
        row: usize,
        /// Which column.
        column: usize,
        /// What it is.
        value: f32,
    },
    /// The type has no finite number that is near a weight, or near the scale of a block.
    #[error("the weights of row {row} from column {column} on are too large or too small for {ty}")]
    Range {
        /// The type.
        ty: GgmlType,
        /// Which row.
        row: usize,
        /// The first column of the block.
        column: usize,
    },
}

/// True if [`Kernels::quantize_rows`] knows the type.
pub fn quantizable(ty: GgmlType) -> bool {
    formats::index(ty).is_some_and(|i| FORMATS[i].first_out_of_range.is_some())
}

/// The types of one to three bits that look their weights up in a book of grids.
fn is_codebook(ty: GgmlType) -> bool {
    use GgmlType::*;
    matches!(ty, IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S)
}

impl Kernels {
    /// Quantizes whole rows of `n_cols` weights, on one thread. `importance` has a value for each column, never
    /// negative; Q8_0, Q1_0, Q2_0, ternary, FP4 and unquantized types ignore it. Faster with 16 rows or more at a time.
    ///
    /// The bytes are those of ggml's reference for x86-64, whatever the instruction set.
    ///
    /// # Errors
    /// A type that is not [`quantizable`], lengths that do not fit, numbers that are not finite, and weights whose
    /// scale the type cannot hold. `out` is garbage then.
    pub fn quantize_rows(
        self,
        ty: GgmlType,
        x: &[f32],
        n_cols: usize,
        importance: Option<&[f32]>,
        out: &mut [u8],
    ) -> Result<(), QuantizeError> {
        if let Some(i) = first_not_finite(x) {
            return Err(QuantizeError::NotFinite {
                row: i / n_cols.max(1),
                column: i % n_cols.max(1),
                value: x[i],
            });
        }
        self.quantize_rows_as_they_are(ty, x, n_cols, importance, out)?;
        let first_out_of_range = formats::index(ty).and_then(|i| FORMATS[i].first_out_of_range);
        match first_out_of_range.and_then(|first| first(out)) {
            Some(block) => {
                let at = block * ty.block_size();
                Err(QuantizeError::Range { ty, row: at / n_cols, column: at % n_cols })
            }
            None => Ok(()),
        }
    }

    /// [`Kernels::quantize_rows`] for callers that look at the numbers themselves: what is not finite, or too large for
    /// the type, gives blocks that are not finite or mean nothing.
    ///
    /// # Errors
    /// A type that is not [`quantizable`], lengths that do not fit, an importance that is not finite.
    pub fn quantize_rows_as_they_are(
        self,
        ty: GgmlType,
        x: &[f32],
        n_cols: usize,
        importance: Option<&[f32]>,
        out: &mut [u8],
    ) -> Result<(), QuantizeError> {
        let quantizer = formats::index(ty).and_then(|i| self.table().quantizers[i]);
        let Some(quantizer) = quantizer else { return Err(QuantizeError::Unsupported { ty }) };
        if n_cols == 0 || !n_cols.is_multiple_of(ty.block_size()) {
            return Err(QuantizeError::Columns { ty, n_cols });
        }
        if !x.len().is_multiple_of(n_cols) || ty.row_bytes(x.len()) != Some(out.len()) {
            return Err(QuantizeError::Length { ty, weights: x.len(), n_cols, bytes: out.len() });
        }
        if let Some(importance) = importance {
            if importance.len() != n_cols {
                return Err(QuantizeError::Importance { n_cols, found: importance.len() });
            }
            if let Some(column) = first_not_finite(importance) {
                return Err(QuantizeError::ImportanceNotFinite { column, value: importance[column] });
            }
        }
        // SAFETY: the table belongs to this CPU.
        unsafe { quantizer(Weights { x, n_cols, importance }, out) };
        Ok(())
    }

    /// Writes the weights of whole rows of any type as f32, exactly. `n_cols` is the length of a row.
    ///
    /// # Errors
    /// As [`dequantize_row`] for each row.
    pub fn widen_rows(
        self,
        ty: GgmlType,
        bytes: &[u8],
        n_cols: usize,
        out: &mut [f32],
    ) -> Result<(), DequantizeError> {
        let whole = n_cols > 0 && out.len().is_multiple_of(n_cols);
        let row_bytes = ty.row_bytes(n_cols).filter(|_| whole);
        let expected = row_bytes.and_then(|row| row.checked_mul(out.len() / n_cols));
        if expected != Some(bytes.len()) {
            return Err(DequantizeError::Length { ty, weights: out.len(), expected, found: bytes.len() });
        }
        match ty {
            // SAFETY: the table belongs to this CPU, and there are two bytes for each number.
            GgmlType::F16 => unsafe { (self.table().widen_f16)(bytes, out) },
            // SAFETY: the table belongs to this CPU, and there are two bytes for each number.
            GgmlType::BF16 => unsafe { (self.table().widen_bf16)(bytes, out) },
            _ => dequantize_row(ty, bytes, out)?,
        }
        Ok(())
    }
}

/// The index of the first number that is infinite or not a number.
fn first_not_finite(x: &[f32]) -> Option<usize> {
    // Without an early end this is a few vectors at a time.
    let bad = |x: &f32| x.to_bits() & 0x7f80_0000 == 0x7f80_0000;
    let chunk = x.chunks(1024).position(|x| x.iter().fold(false, |any, x| any | bad(x)))?;
    (1024 * chunk..x.len()).find(|&i| bad(&x[i]))
}
