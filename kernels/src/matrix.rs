//! A weight matrix in place, and the kernel that multiplies with it.

use std::ops::Range;

use qgguf_gguf::GgmlType;

use crate::activations::ActivationType;
use crate::formats::{self, FORMATS};
use crate::table::{FloatProduct, QuantizedProduct, Table};

/// Rows of weights, borrowed from wherever the file is mapped.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    ty: GgmlType,
    /// The place of the type in [`FORMATS`].
    format: usize,
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
    Quantized(QuantizedProduct),
    Float(FloatProduct),
}

impl<'a> Matrix<'a> {
    /// `n_rows` rows of `n_cols` weights; neither may be 0.
    pub fn new(
        ty: GgmlType,
        n_cols: usize,
        n_rows: usize,
        bytes: &'a [u8],
    ) -> Result<Matrix<'a>, MatrixError> {
        let format = format(ty).ok_or(MatrixError::Unsupported(ty))?;
        let size = ty.row_bytes(n_cols).and_then(|row| row.checked_mul(n_rows));
        if size != Some(bytes.len()) || bytes.is_empty() {
            return Err(MatrixError::Size { ty, n_cols, n_rows, found: bytes.len() });
        }
        Ok(Matrix { ty, format, n_cols, n_rows, bytes })
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

    /// True if there is a kernel for the type.
    pub fn supports(ty: GgmlType) -> bool {
        format(ty).is_some()
    }

    /// What activations must be to be multiplied with these weights.
    pub(crate) fn activations(&self) -> ActivationType {
        FORMATS[self.format].activations.expect("checked when made")
    }

    pub(crate) fn kernel(&self, table: &Table) -> PanelKernel {
        match (table.quantized_products[self.format], table.float_products[self.format]) {
            (Some(kernel), _) => PanelKernel::Quantized(kernel),
            (None, Some(kernel)) => PanelKernel::Float(kernel),
            (None, None) => unreachable!("{} has activations, so it has a kernel", self.ty),
        }
    }
}

/// The place of a type that there is a kernel for in [`FORMATS`].
fn format(ty: GgmlType) -> Option<usize> {
    formats::index(ty).filter(|&i| FORMATS[i].activations.is_some())
}
