//! An open model file: one GGUF or all shards of a split one, mapped.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use memmap2::{Mmap, MmapMut};

use crate::shard::{Bytes, Shard};
use crate::tensor::{TensorInfo, TensorView};
use crate::{Error, Metadata, split};

/// A GGUF model file with all its shards.
pub struct GgufFile {
    shards: Vec<Shard>,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

impl GgufFile {
    /// Maps the file and reads its header. For one shard of a split model, maps its siblings too.
    ///
    /// The cost is that of the metadata; tensor data is not touched.
    pub fn open(path: impl AsRef<Path>) -> Result<GgufFile, Error> {
        let first = Shard::open(path.as_ref())?;
        Ok(GgufFile::from_shards(split::open_all(first)?))
    }

    /// [`GgufFile::open`] for a file whose tensors will all be used. What the system has not cached is read from front to
    /// back first, if there is room: it lies in larger pieces then than if pages came one by one as they are touched, and
    /// that makes it up to a third faster to use.
    pub fn open_for_use(path: impl AsRef<Path>) -> Result<GgufFile, Error> {
        let path = path.as_ref();
        // Before anything else touches the file. A file that cannot be read ahead is read when it is used.
        let _ = read_through(path);
        let file = GgufFile::open(path)?;
        for shard in file.shards.iter().filter(|shard| shard.path != path) {
            let _ = read_through(&shard.path);
        }
        Ok(file)
    }

    /// Reads a GGUF in memory; `name` stands for the path in errors.
    pub fn from_bytes(name: impl AsRef<Path>, bytes: Vec<u8>) -> Result<GgufFile, Error> {
        Ok(GgufFile::from_shards(vec![Shard::parse(name.as_ref(), Bytes::Owned(bytes))?]))
    }

    /// [`GgufFile::from_bytes`] for memory of the system.
    pub(crate) fn from_map(name: &Path, map: MmapMut) -> Result<GgufFile, Error> {
        Ok(GgufFile::from_shards(vec![Shard::parse(name, Bytes::Anonymous(map))?]))
    }

    /// `shards` have no tensor twice.
    fn from_shards(shards: Vec<Shard>) -> GgufFile {
        let mut tensors: Vec<TensorInfo> = Vec::new();
        let mut index = HashMap::new();
        for (i, shard) in shards.iter().enumerate() {
            for tensor in &shard.header.tensors {
                index.insert(tensor.name.clone(), tensors.len());
                tensors.push(TensorInfo { shard: i, ..tensor.clone() });
            }
        }
        GgufFile { shards, tensors, index }
    }

    fn first(&self) -> &Shard {
        &self.shards[0]
    }

    /// The path of the (first) file.
    pub fn path(&self) -> &Path {
        &self.first().path
    }

    /// The paths of all shards.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.shards.iter().map(|shard| shard.path.as_path())
    }

    /// GGUF version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.first().header.version
    }

    /// True if numbers (of the first file) are stored most significant byte first.
    pub fn big_endian(&self) -> bool {
        self.first().header.big_endian
    }

    /// Alignment of tensor data.
    pub fn alignment(&self) -> u32 {
        self.first().header.alignment
    }

    /// Where the tensor data of the (first) file begins.
    pub fn data_offset(&self) -> u64 {
        self.first().header.data_offset
    }

    /// The metadata (of the first shard).
    pub fn metadata(&self) -> &Metadata {
        &self.first().header.metadata
    }

    /// `general.architecture`.
    pub fn architecture(&self) -> Result<&str, Error> {
        self.metadata().require_str("general.architecture")
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The place of a tensor in [`GgufFile::tensors`].
    pub fn tensor_index(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// Tensor number `index`.
    ///
    /// # Panics
    /// If there are not that many.
    pub fn tensor_at(&self, index: usize) -> TensorView<'_> {
        let info = &self.tensors[index];
        let start = info.offset as usize;
        let bytes = &self.shards[info.shard].bytes[start..start + info.n_bytes as usize];
        TensorView { info, bytes }
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        self.tensor_index(name).map(|index| self.tensor_at(index))
    }

    /// The tensor called `name`, or an error. Data of big-endian files cannot be used.
    pub fn require_tensor(&self, name: &str) -> Result<TensorView<'_>, Error> {
        let view = self.tensor(name).ok_or_else(|| Error::MissingTensor { name: name.to_owned() })?;
        if self.shards[view.info.shard].header.big_endian && view.ty().block_bytes() > 1 {
            return Err(Error::BigEndian { name: name.to_owned() });
        }
        Ok(view)
    }

    /// Bytes mapped, over all shards.
    pub fn mapped_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.bytes.len() as u64).sum()
    }

    /// Copies what is mapped to memory of this process, in huge pages where the system gives them: reading is up to a
    /// quarter faster then, but the memory is shared with nobody.
    pub fn copy_to_memory(&mut self) -> Result<(), Error> {
        for shard in &mut self.shards {
            if let Bytes::Mapped(map) = &shard.bytes {
                let copy = copy(map).map_err(|source| Error::Io { path: shard.path.clone(), source })?;
                shard.bytes = Bytes::Anonymous(copy);
            }
        }
        Ok(())
    }

    /// Locks the mapping in memory, so that it is never paged out.
    pub fn mlock(&self) -> Result<(), Error> {
        for shard in &self.shards {
            if let Bytes::Mapped(map) = &shard.bytes {
                lock(map).map_err(|source| Error::Io { path: shard.path.clone(), source })?;
            }
        }
        Ok(())
    }
}

/// Reads a file, unless the system has cached it or has no room for it, and forgets what it read.
fn read_through(path: &Path) -> std::io::Result<()> {
    let kind = std::fs::metadata(path)?;
    // A larger file would push its own beginning out again.
    if !kind.is_file() || available_memory().is_none_or(|available| kind.len() > available) {
        return Ok(());
    }
    let file = File::open(path)?;
    // SAFETY: the mapping is private, and nothing is read through it.
    if is_cached(&unsafe { Mmap::map(&file) }?) {
        return Ok(());
    }
    // The larger the reads, the larger the pieces in the system's cache.
    let mut buffer = vec![0; 16 << 20];
    let mut rest = file.take(kind.len());
    while rest.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Bytes that the system can give without paging others out, where it tells.
fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// True if most of some pages, spread over the file, are in the system's cache.
#[cfg(target_os = "linux")]
fn is_cached(map: &Mmap) -> bool {
    const SAMPLES: usize = 64;
    // No page is larger than this, so an address at a multiple of it is one at a multiple of a page.
    const PAGE: usize = 64 << 10;
    let n_cached = (0..SAMPLES)
        .filter(|i| {
            let at = map.len() / SAMPLES * i / PAGE * PAGE;
            let mut state = 0u8;
            // SAFETY: asks about one byte of the mapping, so about one page, whose state fits the one byte given.
            let known = unsafe { libc::mincore(map.as_ptr().add(at).cast_mut().cast(), 1, &mut state) == 0 };
            !known || state & 1 == 1
        })
        .count();
    n_cached > SAMPLES / 2
}

#[cfg(not(target_os = "linux"))]
fn is_cached(_: &Mmap) -> bool {
    true
}

fn copy(map: &Mmap) -> std::io::Result<MmapMut> {
    let mut copy = MmapMut::map_anon(map.len())?;
    // Ordinary pages do as well, only slower.
    #[cfg(target_os = "linux")]
    let _ = copy.advise(memmap2::Advice::HugePage);
    copy.copy_from_slice(map);
    Ok(copy)
}

#[cfg(unix)]
fn lock(map: &Mmap) -> std::io::Result<()> {
    map.lock().map_err(|e| std::io::Error::new(e.kind(), format!("cannot lock the model in memory: {e}")))
}

#[cfg(not(unix))]
fn lock(_: &Mmap) -> std::io::Result<()> {
    Err(std::io::Error::other("locking memory is not supported on this system"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_that_was_forgotten_is_cached_after_it_was_opened_for_use() {
        use std::os::fd::AsRawFd;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &vec![7; 64 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        // SAFETY: advice on an open file; file systems without a disk ignore it.
        unsafe { libc::posix_fadvise(file.as_file().as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert!(GgufFile::open_for_use(file.path()).is_err(), "it is no GGUF");
        // SAFETY: nobody else has this file.
        assert!(is_cached(&unsafe { Mmap::map(file.as_file()) }.unwrap()));
    }
}
