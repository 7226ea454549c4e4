//! A weight matrix in place, and the kernel that multiplies with it.

use std::ops::Range;

use qgguf_gguf::GgmlType;

use crate::quantize::{Codes, Floats, Partner};
use crate::table::Table;
use crate::tile::Panel;
use crate::weights::Tile;

/// Rows of weights, borrowed from wherever the file is mapped.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    ty: GgmlType,
    n_cols: usize,
    n_rows: usize,
    bytes: &'a [u8],
}

/// Why bytes are no matrix to compute with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixError {
    /// There is no kernel for the type.
    #[error("there is no matrix kernel for type {0}")]
    Unsupported(GgmlType),
    /// The size does not fit.
    #[error("{n_rows} rows of {n_cols} weights of type {ty} do not take {found} bytes")]
    Size {
        /// The type.
        ty: GgmlType,
        /// Row length.
        n_cols: usize,
        /// Number of rows.
        n_rows: usize,
        /// Bytes given.
        found: usize,
    },
}

/// A kernel for 16 rows: quantized or f32 activations in, `[token][row]` out.
#[derive(Clone, Copy)]
pub(crate) enum PanelKernel {
    Codes(unsafe fn(Panel<'_>, Codes<'_>, &mut Tile, &mut [[f32; 16]])),
    F32(unsafe fn(Panel<'_>, Floats<'_>, &mut [[f32; 16]])),
}

impl<'a> Matrix<'a> {
    /// `n_rows` rows of `n_cols` weights; neither may be 0.
    pub fn new(
        ty: GgmlType,
        n_cols: usize,
        n_rows: usize,
        bytes: &'a [u8],
    ) -> Result<Matrix<'a>, MatrixError> {
        if partner(ty).is_none() {
            return Err(MatrixError::Unsupported(ty));
        }
        let size = ty.row_bytes(n_cols).and_then(|row| row.checked_mul(n_rows));
        if size != Some(bytes.len()) || bytes.is_empty() {
            return Err(MatrixError::Size { ty, n_cols, n_rows, found: bytes.len() });
        }
        Ok(Matrix { ty, n_cols, n_rows, bytes })
    }

    /// The type.
    pub fn ty(&self) -> GgmlType {
        self.ty
    }

    /// Row length.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Bytes of all rows.
    pub fn n_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of some rows.
    ///
    /// # Panics
    /// If the matrix does not have them.
    pub(crate) fn row_bytes(&self, rows: Range<usize>) -> &'a [u8] {
        let row = self.bytes.len() / self.n_rows;
        &self.bytes[rows.start * row..rows.end * row]
    }

    pub(crate) fn partner(&self) -> Partner {
        partner(self.ty).expect("checked when made")
    }

    pub(crate) fn kernel(&self, table: &Table) -> PanelKernel {
        use PanelKernel::{Codes, F32};
        match self.ty {
            GgmlType::F32 => F32(table.f32),
            GgmlType::F16 => F32(table.f16),
            GgmlType::BF16 => F32(table.bf16),
            GgmlType::Q4_0 => Codes(table.q4_0),
            GgmlType::Q4_1 => Codes(table.q4_1),
            GgmlType::Q5_0 => Codes(table.q5_0),
            GgmlType::Q5_1 => Codes(table.q5_1),
            GgmlType::Q8_0 => Codes(table.q8_0),
            GgmlType::IQ4_NL => Codes(table.iq4_nl),
            GgmlType::MXFP4 => Codes(table.mxfp4),
            GgmlType::NVFP4 => Codes(table.nvfp4),
            GgmlType::Q2_K => Codes(table.q2_k),
            GgmlType::Q3_K => Codes(table.q3_k),
            GgmlType::Q4_K => Codes(table.q4_k),
            GgmlType::Q5_K => Codes(table.q5_k),
            GgmlType::Q6_K => Codes(table.q6_k),
            GgmlType::IQ4_XS => Codes(table.iq4_xs),
            GgmlType::TQ1_0 => Codes(table.tq1_0),
            GgmlType::TQ2_0 => Codes(table.tq2_0),
            other => unreachable!("{other} has no partner, so there is no such matrix"),
        }
    }
}

/// The form of activations that weights of a type are multiplied with; `None` if there is no kernel.
fn partner(ty: GgmlType) -> Option<Partner> {
    use GgmlType::*;
    Some(match ty {
        F32 | F16 | BF16 => Partner::F32,
        Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | IQ4_NL | MXFP4 | NVFP4 => Partner::Q8,
        Q2_K | Q3_K | Q4_K | Q5_K | Q6_K | IQ4_XS | TQ1_0 | TQ2_0 => Partner::Q8K,
        _ => return None,
    })
}
