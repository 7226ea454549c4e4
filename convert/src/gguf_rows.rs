//! Rows of a tensor in a GGUF file, read as they are needed.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use qgguf_gguf::{Error, GgmlType, GgufFile, TensorInfo};
use qgguf_kernels::Kernels;

use crate::pipeline::{RowSource, SourceError};
use crate::positional::{read_exact_at, will_need};

/// The shards of a model, open for reading.
pub struct Shards {
    files: Vec<Arc<File>>,
    kernels: Kernels,
}

impl Shards {
    /// Opens all files of a model.
    pub fn open(model: &GgufFile, kernels: Kernels) -> Result<Shards, Error> {
        let open = |path: &Path| {
            File::open(path).map(Arc::new).map_err(|source| Error::Io { path: path.to_owned(), source })
        };
        Ok(Shards { files: model.paths().map(open).collect::<Result<_, _>>()?, kernels })
    }

    /// The rows of one of its tensors. The tensor's data must be little-endian.
    pub fn rows(&self, tensor: &TensorInfo) -> GgufRows {
        let row_bytes = tensor.n_bytes.checked_div(tensor.n_rows()).unwrap_or(0);
        GgufRows {
            file: self.files[tensor.shard].clone(),
            offset: tensor.offset,
            row_bytes,
            ty: tensor.ty,
            kernels: self.kernels,
        }
    }
}

/// A tensor as a source of rows.
pub struct GgufRows {
    file: Arc<File>,
    offset: u64,
    row_bytes: u64,
    ty: GgmlType,
    kernels: Kernels,
}

impl RowSource for GgufRows {
    fn read_rows(&self, rows: Range<u64>, out: &mut [f32]) -> Result<(), SourceError> {
        let n_rows = (rows.end - rows.start) as usize;
        let mut bytes = vec![0; n_rows * self.row_bytes as usize];
        self.read_bytes(rows, &mut bytes)?;
        Ok(self.kernels.widen_rows(self.ty, &bytes, out.len() / n_rows.max(1), out)?)
    }

    fn stored(&self) -> Option<GgmlType> {
        Some(self.ty)
    }

    fn read_bytes(&self, rows: Range<u64>, out: &mut [u8]) -> Result<(), SourceError> {
        let at = self.offset + rows.start * self.row_bytes;
        read_exact_at(&self.file, out, at).map_err(|e| format!("cannot read it at byte {at}: {e}").into())
    }

    fn prefetch(&self, rows: Range<u64>) {
        let at = self.offset + rows.start * self.row_bytes;
        will_need(&self.file, at, (rows.end - rows.start) * self.row_bytes);
    }
}
