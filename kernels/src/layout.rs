//! How data lies in memory for kernels: what instruction sets, tiles and activations have in common.
//!
//! A *panel* is 16 rows of weights, one for each lane of a vector. A *quad* is four columns of a panel: lane r holds the four
//! bytes of row r.

use std::hint::black_box;
use std::marker::PhantomData;

/// Rows in a panel.
pub(crate) const PANEL: usize = 16;

/// Four columns of a panel: a vector of 32-bit lanes in memory.
pub(crate) type Quad = [u8; 4 * PANEL];

/// Columns of a panel that are unpacked at a time.
pub(crate) const COLUMNS: usize = 256;

/// How a number that is not quantized lies in memory.
#[derive(Clone, Copy)]
pub(crate) enum NumberFormat {
    F32,
    F16,
    Bf16,
}

/// 16 rows of bytes, `stride` apart: what a tile is unpacked from.
#[derive(Clone, Copy)]
pub struct PanelRows<'a> {
    first: *const u8,
    stride: usize,
    /// Bytes that every row has.
    len: usize,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> PanelRows<'a> {
    /// Rows that start at multiples of `stride` in `bytes`; the last one may be shorter than the others.
    ///
    /// # Panics
    /// If there are fewer than 16.
    #[inline(always)]
    pub fn new(bytes: &'a [u8], stride: usize) -> PanelRows<'a> {
        assert!(15 * stride <= bytes.len());
        PanelRows { first: bytes.as_ptr(), stride, len: bytes.len() - 15 * stride, bytes: PhantomData }
    }

    /// Where `n` bytes from `at` of row 0 are, and the distance to the next row's.
    ///
    /// # Panics
    /// If a row does not have these bytes.
    #[inline(always)]
    pub fn at(self, at: usize, n: usize) -> (*const u8, usize) {
        assert!(at + n <= self.len);
        (self.first.wrapping_add(at), self.stride)
    }

    /// Bytes `at..at + N` of row `r`.
    ///
    /// # Panics
    /// If there are no such.
    #[inline(always)]
    pub fn field<const N: usize>(self, r: usize, at: usize) -> [u8; N] {
        assert!(r < 16);
        let (p, stride) = self.at(at, N);
        // SAFETY: the row has these bytes.
        unsafe { p.add(r * stride).cast::<[u8; N]>().read() }
    }

    /// The `n` bytes of every row that come after the first `skipped`.
    ///
    /// # Panics
    /// If a row does not have these bytes.
    #[inline(always)]
    pub fn block(self, skipped: usize, n: usize) -> PanelRows<'a> {
        let (p, stride) = self.at(skipped, n);
        // Hidden from the compiler, which would keep a pointer to each row from block to block instead of adding up
        // the four that all others can be reached from.
        PanelRows { first: black_box(p), stride, len: n, bytes: PhantomData }
    }
}

/// 16 rows of weights, and what follows them.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a> {
    /// The rows, one after the other.
    pub(crate) w: &'a [u8],
    /// Weights in a row.
    pub(crate) n_cols: usize,
    /// What will be needed next, to be fetched meanwhile.
    pub(crate) next: &'a [u8],
}

impl Panel<'_> {
    /// Where 16 blocks are that will be needed in the place of block `i` of these rows, if they are of its format.
    #[inline(always)]
    pub(crate) fn next<B>(&self, i: usize) -> *const u8 {
        self.next.as_ptr().wrapping_add(PANEL * size_of::<B>() * i)
    }
}
