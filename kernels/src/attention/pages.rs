//! Memory for keys and values: pages of [`CHUNK`](super::CHUNK) positions of a layer, counted against one limit and
//! shared between sequences that begin alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory that the caches of several sequences take their pages from. Clones are the same pool.
#[derive(Clone, Debug)]
pub struct KvPool(Arc<Counter>);

#[derive(Debug)]
struct Counter {
    limit: usize,
    in_use: AtomicUsize,
}

/// A pool has no room for another page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache is full: {in_use} of {limit} bytes are in use, {wanted} more are needed")]
pub struct KvPoolFull {
    /// Bytes asked for.
    pub wanted: usize,
    /// Bytes taken.
    pub in_use: usize,
    /// The pool's size in bytes.
    pub limit: usize,
}

impl KvPool {
    /// A pool of `limit` bytes. Nothing is taken yet.
    pub fn new(limit: usize) -> KvPool {
        KvPool(Arc::new(Counter { limit, in_use: AtomicUsize::new(0) }))
    }

    /// A pool that only the machine's memory limits.
    pub fn unlimited() -> KvPool {
        KvPool::new(usize::MAX)
    }

    /// Its size in bytes.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Bytes of the pages that are in use; one that several sequences share counts once.
    pub fn bytes_in_use(&self) -> usize {
        self.0.in_use.load(Ordering::Relaxed)
    }

    /// A page of zeros.
    pub(super) fn page(&self, bytes: usize) -> Result<Arc<Page>, KvPoolFull> {
        let Counter { limit, in_use } = &*self.0;
        let take = |used: usize| used.checked_add(bytes).filter(|used| used <= limit);
        match in_use.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(Arc::new(Page { bytes: vec![0; bytes].into_boxed_slice(), pool: self.clone() })),
            Err(in_use) => Err(KvPoolFull { wanted: bytes, in_use, limit: *limit }),
        }
    }
}

/// Keys, then values, of some successive positions.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) bytes: Box<[u8]>,
    pool: KvPool,
}

impl Drop for Page {
    fn drop(&mut self) {
        self.pool.0.in_use.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}
