//! Rows of a tensor in a GGUF file, read as they are needed.
//!
//! The file is read, not mapped: errors of the disk are errors then, and what was read does not count as memory in use.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use qgguf_gguf::{Error, GgmlType, GgufFile, TensorInfo};
use qgguf_kernels::Kernels;

use crate::pipeline::{RowSource, SourceError};

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

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut out: &mut [u8], mut at: u64) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                out = &mut out[n..];
                at += n as u64;
            }
        }
    }
    Ok(())
}

/// Asks the system to read ahead; it may have better things to do.
#[cfg(target_os = "linux")]
fn will_need(file: &File, at: u64, n: u64) {
    let _ = rustix::fs::fadvise(file, at, std::num::NonZeroU64::new(n), rustix::fs::Advice::WillNeed);
}

#[cfg(not(target_os = "linux"))]
fn will_need(_: &File, _: u64, _: u64) {}
