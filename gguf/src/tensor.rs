//! A tensor of a file: its record and its data.

use crate::GgmlType;

/// What a file says about one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, e.g. `blk.0.attn_q.weight`.
    pub name: String,
    /// Its dimensions as stored, row length first; may be empty, which means one element.
    pub shape: Vec<u64>,
    /// The type of its blocks.
    pub ty: GgmlType,
    /// Where its data begins in its file.
    pub offset: u64,
    /// Bytes of data.
    pub n_bytes: u64,
    /// Which shard it lies in, counted from 0.
    pub shard: usize,
}

impl TensorInfo {
    /// Number of elements.
    pub fn n_elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Row length.
    pub fn row_len(&self) -> u64 {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Number of rows. Of a tensor without elements, whose other dimensions may be anything, at most `u64::MAX`.
    pub fn n_rows(&self) -> u64 {
        self.shape.iter().skip(1).fold(1, |n, &dim| n.saturating_mul(dim))
    }
}

/// A tensor's record and data, borrowed from the mapping.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    pub(crate) info: &'a TensorInfo,
    pub(crate) bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// The record.
    pub fn info(&self) -> &'a TensorInfo {
        self.info
    }

    /// The name.
    pub fn name(&self) -> &'a str {
        &self.info.name
    }

    /// The type.
    pub fn ty(&self) -> GgmlType {
        self.info.ty
    }

    /// The dimensions as stored, row length first.
    pub fn shape(&self) -> &'a [u64] {
        &self.info.shape
    }

    /// The data, in the file's own layout.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_of_an_empty_tensor_do_not_overflow() {
        let shape = vec![0, 1 << 62, 1 << 62];
        let tensor =
            TensorInfo { name: String::new(), shape, ty: GgmlType::F32, offset: 0, n_bytes: 0, shard: 0 };
        assert_eq!((tensor.n_elements(), tensor.row_len(), tensor.n_rows()), (0, 0, u64::MAX));
    }
}
