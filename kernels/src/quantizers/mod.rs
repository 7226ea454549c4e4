//! From f32 weights to the bytes of every block type, the same bytes as ggml's reference quantizers.
//!
//! The reference is scalar: every sum runs from left to right, nothing is fused. Here each lane of a vector holds
//! one group of weights (a block of 32, or a sub-block of a superblock), so that step `i` handles weight `i` of 16
//! groups while every lane adds in the reference's order. No kernel in this folder uses [`Simd::mul_add`], and
//! whatever depends on order (first of equals, strict comparisons) is the reference's too.
//!
//! [`Simd::mul_add`]: crate::simd::Simd::mul_add

mod affine;
mod bits;
mod fp4;
mod iq4;
mod lanes;
mod legacy;
mod numbers;
mod q2_k;
mod q3_k;
mod q4_k;
mod q6_k;
mod super_scales;
mod symmetric;
mod ternary;

use half::f16;
use qgguf_gguf::GgmlType;
use qgguf_gguf::dequantize::{DequantizeError, dequantize_row};

use crate::Kernels;
use crate::table::Table;

pub(crate) use bits::{q1_0, q2_0};
pub(crate) use fp4::{mxfp4, nvfp4};
pub(crate) use iq4::{iq4_nl, iq4_xs};
pub(crate) use legacy::{q4_0, q4_1, q5_0, q5_1, q8_0};
pub(crate) use numbers::{narrow_bf16, narrow_f16, widen_bf16, widen_f16};
pub(crate) use q2_k::q2_k;
pub(crate) use q3_k::q3_k;
pub(crate) use q4_k::{q4_k, q5_k};
pub(crate) use q6_k::q6_k;
pub(crate) use ternary::{tq1_0, tq2_0};

/// Rows to quantize.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    /// `[row][n_cols]`.
    pub(crate) x: &'a [f32],
    /// A multiple of the block.
    pub(crate) n_cols: usize,
    /// How much the error of each column counts.
    pub(crate) importance: Option<&'a [f32]>,
}

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

type Quantize = unsafe fn(Weights<'_>, &mut [u8]);

/// True if [`Kernels::quantize_rows`] knows the type.
pub fn quantizable(ty: GgmlType) -> bool {
    ty == GgmlType::F32 || of_table(ty).is_some()
}

/// The entry of a table that quantizes to this type.
fn of_table(ty: GgmlType) -> Option<fn(&Table) -> Quantize> {
    Some(match ty {
        GgmlType::F16 => |t| t.narrow_f16,
        GgmlType::BF16 => |t| t.narrow_bf16,
        GgmlType::Q4_0 => |t| t.to_q4_0,
        GgmlType::Q4_1 => |t| t.to_q4_1,
        GgmlType::Q5_0 => |t| t.to_q5_0,
        GgmlType::Q5_1 => |t| t.to_q5_1,
        GgmlType::Q8_0 => |t| t.to_q8_0,
        GgmlType::Q2_K => |t| t.to_q2_k,
        GgmlType::Q3_K => |t| t.to_q3_k,
        GgmlType::Q4_K => |t| t.to_q4_k,
        GgmlType::Q5_K => |t| t.to_q5_k,
        GgmlType::Q6_K => |t| t.to_q6_k,
        GgmlType::IQ4_NL => |t| t.to_iq4_nl,
        GgmlType::IQ4_XS => |t| t.to_iq4_xs,
        GgmlType::TQ1_0 => |t| t.to_tq1_0,
        GgmlType::TQ2_0 => |t| t.to_tq2_0,
        GgmlType::MXFP4 => |t| t.to_mxfp4,
        GgmlType::NVFP4 => |t| t.to_nvfp4,
        GgmlType::Q1_0 => |t| t.to_q1_0,
        GgmlType::Q2_0 => |t| t.to_q2_0,
        _ => return None,
    })
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
        match first_out_of_range(ty, out) {
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
        if !quantizable(ty) {
            return Err(QuantizeError::Unsupported { ty });
        }
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
        match of_table(ty) {
            // SAFETY: the table belongs to this CPU.
            Some(entry) => unsafe { entry(self.table())(Weights { x, n_cols, importance }, out) },
            None => numbers::copy(x, out),
        }
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
            // SAFETY: as above.
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

/// The first block with a scale (or number) that is not finite.
fn first_out_of_range(ty: GgmlType, bytes: &[u8]) -> Option<usize> {
    let scales: &[usize] = match ty {
        GgmlType::F16
        | GgmlType::Q4_0
        | GgmlType::Q5_0
        | GgmlType::Q8_0
        | GgmlType::IQ4_NL
        | GgmlType::IQ4_XS
        | GgmlType::Q1_0
        | GgmlType::Q2_0 => &[0],
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K => &[0, 2],
        GgmlType::Q2_K => &[80, 82],
        GgmlType::Q3_K => &[108],
        GgmlType::Q6_K => &[208],
        GgmlType::TQ1_0 => &[52],
        GgmlType::TQ2_0 => &[64],
        GgmlType::BF16 => {
            return bytes.as_chunks().0.iter().position(|&b| !half::bf16::from_le_bytes(b).is_finite());
        }
        GgmlType::MXFP4 => return bytes.iter().step_by(ty.block_bytes()).position(|&e| e == 0xff),
        _ => return None,
    };
    bytes.chunks_exact(ty.block_bytes()).position(|block| {
        scales.iter().any(|&at| !f16::from_le_bytes([block[at], block[at + 1]]).is_finite())
    })
}
