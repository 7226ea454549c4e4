//! Writes GGUF files: the header first, then tensor after tensor, in pieces of any size.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use memmap2::MmapOptions;

use crate::metadata::number_types;
use crate::reader::{self, MAX_DIMS, MAX_TENSOR_NAME};
use crate::temporary::{self, Temporary};
use crate::{Error, GgmlType, GgufFile, Metadata, MetadataArray, MetadataValue, TensorInfo};

/// A tensor that will be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name, at most 63 bytes.
    pub name: String,
    /// Its dimensions, row length first; at most 4.
    pub shape: Vec<u64>,
    /// The type of its blocks.
    pub ty: GgmlType,
}

impl From<&TensorInfo> for TensorSpec {
    fn from(info: &TensorInfo) -> TensorSpec {
        TensorSpec { name: info.name.clone(), shape: info.shape.clone(), ty: info.ty }
    }
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The operating system says no.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// What was asked for would be no valid GGUF.
    #[error("{path}: {reason}", path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Writes one GGUF beside its target and puts it there when it is complete.
///
/// Nothing is kept of tensor data. Dropped unfinished, it leaves no trace and the target as it was.
pub struct GgufWriter {
    out: BufWriter<File>,
    temporary: Temporary,
    path: PathBuf,
    alignment: u64,
    /// Bytes written so far.
    at: u64,
    tensors: Vec<(String, u64)>,
    /// The tensor being written, and its bytes that are still to come.
    current: usize,
    missing: u64,
}

impl GgufWriter {
    /// Writes the header of a file of `version` (3, or 2 to keep that of an old file) for `path`.
    ///
    /// Data is aligned to `general.alignment`, to 32 if that is absent.
    pub fn create(
        path: impl AsRef<Path>,
        version: u32,
        metadata: &Metadata,
        tensors: &[TensorSpec],
    ) -> Result<GgufWriter, WriteError> {
        let path = path.as_ref().to_owned();
        let invalid = |reason: String| WriteError::Invalid { path: path.clone(), reason };
        let alignment = reader::alignment(metadata).map_err(|fault| invalid(fault.to_string()))?;
        let header = header(version, metadata, tensors, alignment).map_err(invalid)?;
        let sizes =
            tensors.iter().map(|t| (t.name.clone(), size(t).expect("checked for the header"))).collect();
        let io = |source| WriteError::Io { path: path.clone(), source };
        // What stands there, if anything, must be a file.
        let path = match std::fs::metadata(&path) {
            Ok(old) if old.is_dir() => Err(io::Error::other("is a folder")),
            Ok(old) if !old.is_file() => Err(io::Error::other("not a regular file")),
            _ => follow_links(&path),
        }
        .map_err(io)?;
        let (file, temporary) = Temporary::beside(&path).map_err(|e| {
            let folder = temporary::folder(&path).display();
            io(io::Error::new(e.kind(), format!("cannot create a file in {folder}: {e}")))
        })?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(&header).map_err(io)?;
        let mut writer = GgufWriter {
            out,
            temporary,
            alignment: alignment.into(),
            at: header.len() as u64,
            tensors: sizes,
            current: 0,
            missing: 0,
            path,
        };
        // A file without tensors ends with its metadata, as Python's writer (which makes all vocabularies) has it.
        if !tensors.is_empty() {
            writer.pad()?;
        }
        writer.start();
        Ok(writer)
    }

    /// Writes the next bytes of tensor data; tensors follow each other in the order given.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            if self.current == self.tensors.len() {
                return Err(self.invalid("more data than the tensors take".to_owned()));
            }
            let n = self.missing.min(bytes.len() as u64) as usize;
            let (now, later) = bytes.split_at(n);
            self.put(now)?;
            self.missing -= n as u64;
            bytes = later;
            self.end_tensor()?;
        }
        Ok(())
    }

    /// Pads the header of a file without tensors, too, as ggml's writer does.
    pub fn pad_empty(&mut self) -> Result<(), WriteError> {
        if self.tensors.is_empty() { self.pad() } else { Ok(()) }
    }

    /// Puts the file in its place.
    pub fn finish(self) -> Result<(), WriteError> {
        self.complete()?.persist()
    }

    /// Ends the file without putting it in its place yet.
    pub fn complete(mut self) -> Result<CompleteFile, WriteError> {
        if let Some((name, size)) = self.tensors.get(self.current) {
            let reason = format!("tensor \"{name}\" got {} of {size} bytes", size - self.missing);
            return Err(self.invalid(reason));
        }
        let path = std::mem::take(&mut self.path);
        let io = |source| WriteError::Io { path: path.clone(), source };
        let file = self.out.into_inner().map_err(|e| io(e.into_error()))?;
        file.sync_all().map_err(io)?;
        keep_mode(&file, &path).map_err(io)?;
        Ok(CompleteFile { temporary: self.temporary, path })
    }

    /// Moves on past complete tensors.
    fn end_tensor(&mut self) -> Result<(), WriteError> {
        if self.missing == 0 && self.current < self.tensors.len() {
            self.pad()?;
            self.current += 1;
            self.start();
        }
        Ok(())
    }

    /// Begins the current tensor; those without data are complete at once.
    fn start(&mut self) {
        while self.tensors.get(self.current).is_some_and(|(_, size)| *size == 0) {
            self.current += 1;
        }
        self.missing = self.tensors.get(self.current).map_or(0, |(_, size)| *size);
    }

    fn pad(&mut self) -> Result<(), WriteError> {
        let n = self.at.next_multiple_of(self.alignment) - self.at;
        self.put(&vec![0; n as usize])
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|source| WriteError::Io { path: self.path.clone(), source })
    }

    fn invalid(&self, reason: String) -> WriteError {
        WriteError::Invalid { path: self.path.clone(), reason }
    }
}

/// A file with all its bytes, still beside its target. Dropped, it leaves no trace.
#[must_use]
pub struct CompleteFile {
    temporary: Temporary,
    path: PathBuf,
}

impl CompleteFile {
    /// Puts the file in its place.
    pub fn persist(self) -> Result<(), WriteError> {
        let path = self.path;
        self.temporary.persist(&path).map_err(|source| WriteError::Io { path, source })
    }
}

/// Where a file for `path` really goes: a symbolic link is followed, to a file that does not exist yet, too. Links that
/// lead in a circle are an error, and so is `name/` without such a folder.
pub fn follow_links(path: &Path) -> io::Result<PathBuf> {
    /// Links that Linux follows.
    const MAX: usize = 40;
    match std::fs::metadata(path) {
        Ok(_) => {}
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        // `name/` and `name/.` are folders.
        Err(_) if path.components().as_path().as_os_str() != path.as_os_str() => {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no such folder"));
        }
        Err(_) => {}
    }
    let mut place = path.to_owned();
    for _ in 0..MAX {
        match std::fs::read_link(&place) {
            Ok(to) => place = place.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(place),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// The bytes of a GGUF (version 3) with these tensors. `fill(i, bytes)` writes the data of tensor i, which is zeros before.
///
/// Errors name the file `name`, which does not have to exist.
pub fn in_memory<E: From<WriteError>>(
    name: impl AsRef<Path>,
    metadata: &Metadata,
    tensors: &[TensorSpec],
    mut fill: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
) -> Result<Vec<u8>, E> {
    let invalid = |reason: String| WriteError::Invalid { path: name.as_ref().to_owned(), reason };
    let alignment = reader::alignment(metadata).map_err(|fault| invalid(fault.to_string()))?;
    let header = header(3, metadata, tensors, alignment).map_err(invalid)?;
    let alignment = alignment as usize;
    let sizes: Vec<usize> =
        tensors.iter().map(|t| size(t).expect("checked for the header") as usize).collect();
    let data: usize = sizes.iter().map(|size| size.next_multiple_of(alignment)).sum();
    // Zeros cost nothing until they are written to.
    let mut bytes = vec![0; header.len().next_multiple_of(alignment) + data];
    bytes[..header.len()].copy_from_slice(&header);
    let mut at = header.len().next_multiple_of(alignment);
    for (i, size) in sizes.into_iter().enumerate() {
        fill(i, &mut bytes[at..at + size])?;
        at += size.next_multiple_of(alignment);
    }
    Ok(bytes)
}

/// A GGUF (version 3) that is not written yet: its header is what [`GgufWriter`] would write, its data are zeros that take
/// no memory. Whoever can open it will be able to open the file. `None` if there are not as many addresses.
///
/// Errors name the file `name`, which does not have to exist.
pub fn planned<E: From<WriteError> + From<Error>>(
    name: impl AsRef<Path>,
    metadata: &Metadata,
    tensors: &[TensorSpec],
) -> Result<Option<GgufFile>, E> {
    let name = name.as_ref();
    let invalid = |reason: String| WriteError::Invalid { path: name.to_owned(), reason };
    let alignment = reader::alignment(metadata).map_err(|fault| invalid(fault.to_string()))?;
    let header = header(3, metadata, tensors, alignment).map_err(invalid)?;
    let alignment = u64::from(alignment);
    let sizes = tensors.iter().map(|t| size(t).expect("checked for the header").next_multiple_of(alignment));
    let n_bytes = (header.len() as u64).next_multiple_of(alignment) + sizes.sum::<u64>();
    let map = |n: usize| MmapOptions::new().len(n).no_reserve_swap().map_anon().ok();
    let Some(mut map) = usize::try_from(n_bytes).ok().and_then(map) else { return Ok(None) };
    map[..header.len()].copy_from_slice(&header);
    Ok(Some(GgufFile::from_map(name, map)?))
}

/// A file that replaces another keeps the other's permissions.
fn keep_mode(file: &File, target: &Path) -> io::Result<()> {
    match std::fs::metadata(target) {
        Ok(old) => file.set_permissions(old.permissions()),
        Err(_) => Ok(()),
    }
}

/// Bytes of a tensor's data.
fn size(tensor: &TensorSpec) -> Option<u64> {
    let row = usize::try_from(tensor.shape.first().copied().unwrap_or(1)).ok()?;
    let rows = tensor.shape.iter().skip(1).try_fold(1u64, |n, &dim| n.checked_mul(dim))?;
    (tensor.ty.row_bytes(row)? as u64).checked_mul(rows)
}

fn header(
    version: u32,
    metadata: &Metadata,
    tensors: &[TensorSpec],
    alignment: u32,
) -> Result<Vec<u8>, String> {
    if !(2..=3).contains(&version) {
        return Err(format!("GGUF version {version} cannot be written (possible: 2 and 3)"));
    }
    let mut out = b"GGUF".to_vec();
    out.extend(version.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata.iter() {
        string(&mut out, key);
        out.extend(value.type_id().to_le_bytes());
        put_value(&mut out, value);
    }
    let mut offset = 0u64;
    let mut names = HashSet::new();
    for tensor in tensors {
        if !names.insert(&tensor.name) {
            return Err(format!("tensor \"{}\" would be in the file twice", tensor.name));
        }
        if tensor.name.len() > MAX_TENSOR_NAME || tensor.shape.len() > MAX_DIMS {
            return Err(format!(
                "tensor \"{}\": names have at most {MAX_TENSOR_NAME} bytes, shapes at most {MAX_DIMS} dimensions",
                tensor.name
            ));
        }
        let size = size(tensor).ok_or_else(|| {
            format!(
                "tensor \"{}\": no whole number of {} blocks in {:?}",
                tensor.name, tensor.ty, tensor.shape
            )
        })?;
        string(&mut out, &tensor.name);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
        out.extend(tensor.ty.id().to_le_bytes());
        out.extend(offset.to_le_bytes());
        let end = offset.checked_add(size).and_then(|end| end.checked_next_multiple_of(alignment.into()));
        offset = end.ok_or_else(|| format!("tensor \"{}\" ends beyond 2^64 bytes", tensor.name))?;
    }
    Ok(out)
}

fn string(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &MetadataValue) {
    macro_rules! values {
        ($(($v:ident, $t:ty, $id:literal, $name:literal)),*) => {
            match value {
                $(MetadataValue::$v(v) => out.extend(v.to_le_bytes()),)*
                MetadataValue::Bool(v) => out.push((*v).into()),
                MetadataValue::String(v) => string(out, v),
                MetadataValue::Array(array) => put_array(out, array),
            }
        };
    }
    number_types!(values);
}

fn put_array(out: &mut Vec<u8>, array: &MetadataArray) {
    out.extend(array.type_id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    macro_rules! arrays {
        ($(($v:ident, $t:ty, $id:literal, $name:literal)),*) => {
            match array {
                $(MetadataArray::$v(a) => a.iter().for_each(|v| out.extend(v.to_le_bytes())),)*
                MetadataArray::Bool(a) => out.extend(a.iter().map(|&v| u8::from(v))),
                MetadataArray::String(a) => a.iter().for_each(|s| string(out, s)),
            }
        };
    }
    number_types!(arrays);
}
