//! One file of a model, mapped or in memory.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapMut};

use crate::Error;
use crate::reader::{self, Header};

/// The bytes of a file, wherever they are.
pub(crate) enum Bytes {
    /// Used in place.
    Mapped(Mmap),
    /// Memory that belongs to no file.
    Anonymous(MmapMut),
    /// On the heap.
    Owned(Vec<u8>),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Anonymous(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

/// One file of a model.
pub(crate) struct Shard {
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    pub(crate) bytes: Bytes,
}

impl Shard {
    pub(crate) fn open(path: &Path) -> Result<Shard, Error> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        // Asked before opening: that of a pipe without a writer would wait for one.
        let kind = std::fs::metadata(path).map_err(io)?;
        if !kind.is_file() {
            return Err(io(std::io::Error::other("not a regular file")));
        }
        let file = File::open(path).map_err(io)?;
        if kind.len() == 0 {
            return Shard::parse(path, Bytes::Owned(Vec::new()));
        }
        // SAFETY: the mapping is private and read-only. Should another process truncate the file meanwhile,
        // reads beyond its end raise SIGBUS; that is the price of using weights in place, as for any peer.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Shard::parse(path, Bytes::Mapped(map))
    }

    pub(crate) fn parse(path: &Path, bytes: Bytes) -> Result<Shard, Error> {
        let header =
            reader::parse(&bytes).map_err(|fault| Error::Malformed { path: path.to_owned(), fault })?;
        Ok(Shard { path: path.to_owned(), header, bytes })
    }
}
