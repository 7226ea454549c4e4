//! The cache of keys and values: how they lie in memory, how they get in, and how they come out as f32.
//!
//! Chunks of [`CHUNK`] positions hold `[head][block of 32 positions]`. In a block, values lie as
//! `[position][element]`, keys as `[element][position]`: both are then the right factor of a matrix product
//! (scores = queries · keys, result = weights · values) with its columns side by side. With [`KvType::Q8_0`] a block
//! is cut into pieces of 32 elements, each with its 32 scales before its codes.

use std::sync::Arc;

use half::f16;

use super::pages::{KvPool, KvPoolFull, Page};
use crate::isa::Portable;
use crate::simd::{Simd, load_tail};
use crate::table::Table;
use crate::team::Team;

/// Positions per chunk.
pub const CHUNK: usize = 128;
/// Positions per block.
pub(super) const BLOCK: usize = 32;
/// Blocks per chunk and head.
pub(super) const BLOCKS: usize = CHUNK / BLOCK;
/// Values that share a scale in [`KvType::Q8_0`], and the bytes of that scale.
const QUANTS: usize = 32;
const SCALE: usize = 2;

/// How keys or values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// Half precision.
    F16,
    /// Single precision.
    F32,
    /// 8 bits, with a half-precision scale for every 32 values of a head.
    Q8_0,
}

impl KvType {
    /// All types.
    pub const ALL: [KvType; 3] = [KvType::F16, KvType::F32, KvType::Q8_0];

    /// The name, as `-ctk` and `-ctv` take it.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F16 => "f16",
            KvType::F32 => "f32",
            KvType::Q8_0 => "q8_0",
        }
    }

    /// Heads must be a multiple of this many values long.
    pub fn granularity(self) -> usize {
        match self {
            KvType::F16 | KvType::F32 => 1,
            KvType::Q8_0 => QUANTS,
        }
    }

    /// Bytes for `n` values of a head, a multiple of the [granularity](KvType::granularity).
    pub fn row_bytes(self, n: usize) -> usize {
        match self {
            KvType::F16 => n * 2,
            KvType::F32 => n * 4,
            KvType::Q8_0 => n / QUANTS * (SCALE + QUANTS),
        }
    }
}

impl std::str::FromStr for KvType {
    type Err = String;

    fn from_str(name: &str) -> Result<KvType, String> {
        KvType::ALL.into_iter().find(|ty| ty.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            format!("unknown cache type \"{name}\" (known: {})", KvType::ALL.map(KvType::name).join(", "))
        })
    }
}

/// Heads of a model that cannot be stored as a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} of {dim} values per head cannot be stored as {name}, which takes {granularity} at a time; f16 and f32 take any",
    what = if *keys { "keys" } else { "values" },
    name = ty.name(),
    granularity = ty.granularity(),
)]
pub struct KvTypeError {
    /// Keys, or else values.
    pub keys: bool,
    /// The type.
    pub ty: KvType,
    /// Values per head.
    pub dim: usize,
}

/// Which half of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Keys,
    Values,
}

/// What all blocks of one half have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(super) side: Side,
    pub(super) ty: KvType,
    pub(super) dim: usize,
}

impl Form {
    fn block_bytes(self) -> usize {
        BLOCK * self.ty.row_bytes(self.dim)
    }

    /// Vectors of 16 per row of an unpacked block: positions of a key's element, elements of a value.
    pub(super) fn width(self) -> usize {
        match self.side {
            Side::Keys => BLOCK / 16,
            Side::Values => self.dim.div_ceil(16),
        }
    }

    /// Values of an unpacked block.
    pub(super) fn panel(self) -> usize {
        match self.side {
            Side::Keys => self.dim * BLOCK,
            Side::Values => self.width() * 16 * BLOCK,
        }
    }
}

/// The keys and values that a layer has for each position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Key/value heads.
    pub n_head: usize,
    /// Values of a key head.
    pub head_dim_k: usize,
    /// Values of a value head.
    pub head_dim_v: usize,
}

impl KvShape {
    /// Bytes of one position when keys and values are stored as these types.
    pub fn position_bytes(self, k: KvType, v: KvType) -> usize {
        self.n_head.saturating_mul(k.row_bytes(self.head_dim_k) + v.row_bytes(self.head_dim_v))
    }
}

/// How the keys and values of one layer lie in memory.
#[derive(Clone, Copy, Debug)]
pub struct KvLayout {
    pub(super) k: Form,
    pub(super) v: Form,
    n_head: usize,
}

impl KvLayout {
    /// The layout of keys and values stored as these types.
    ///
    /// # Errors
    /// If a type's [granularity](KvType::granularity) does not divide its head dimension.
    pub fn new(k: KvType, v: KvType, shape: KvShape) -> Result<KvLayout, KvTypeError> {
        let form = |side, ty: KvType, dim: usize| {
            if dim.is_multiple_of(ty.granularity()) {
                Ok(Form { side, ty, dim })
            } else {
                Err(KvTypeError { keys: side == Side::Keys, ty, dim })
            }
        };
        Ok(KvLayout {
            k: form(Side::Keys, k, shape.head_dim_k)?,
            v: form(Side::Values, v, shape.head_dim_v)?,
            n_head: shape.n_head,
        })
    }

    /// Bytes of a page, which holds [`CHUNK`] positions.
    pub fn page_bytes(&self) -> usize {
        self.bytes_of(self.k) + self.bytes_of(self.v)
    }

    /// Bytes of one half of a page.
    fn bytes_of(&self, form: Form) -> usize {
        self.n_head * BLOCKS * form.block_bytes()
    }

    /// Heads, values of a key, values of a value.
    fn dims(&self) -> (usize, usize, usize) {
        (self.n_head, self.k.dim, self.v.dim)
    }
}

/// Keys and values of one layer of a sequence.
#[derive(Debug)]
pub struct KvLayer {
    pub(super) layout: KvLayout,
    pages: Vec<Arc<Page>>,
    pool: KvPool,
    len: usize,
}

impl KvLayer {
    /// An empty cache that takes its pages from `pool`.
    pub fn new(layout: KvLayout, pool: &KvPool) -> KvLayer {
        KvLayer { layout, pages: Vec::new(), pool: pool.clone(), len: 0 }
    }

    /// Positions held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no position is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets positions from `n` on and gives back their pages.
    pub fn truncate(&mut self, n: usize) {
        self.len = self.len.min(n);
        self.pages.truncate(self.len.div_ceil(CHUNK));
    }

    /// A cache of the first `n` positions, at most all, whose pages both share until one of them writes.
    pub fn fork(&self, n: usize) -> KvLayer {
        let len = self.len.min(n);
        let pages = self.pages[..len.div_ceil(CHUNK)].to_vec();
        KvLayer { layout: self.layout, pages, pool: self.pool.clone(), len }
    }

    /// Bytes of its pages, shared ones included.
    pub fn bytes(&self) -> usize {
        self.pages.len() * self.layout.page_bytes()
    }

    /// Pages that have to be taken from the pool before `n` more positions can be written.
    pub fn missing_pages(&self, n: usize) -> usize {
        let wanted = (self.len + n).div_ceil(CHUNK);
        let first = self.len / CHUNK;
        let shared = self.pages.iter().take(wanted).skip(first).filter(|page| Arc::strong_count(page) > 1);
        shared.count() + wanted.saturating_sub(self.pages.len())
    }

    /// Makes room for `n` more positions: new pages, and copies of those that others read too.
    ///
    /// # Errors
    /// If the pool has no room. What was there is as before.
    pub fn reserve(&mut self, n: usize) -> Result<(), KvPoolFull> {
        let bytes = self.layout.page_bytes();
        let first = self.len / CHUNK;
        for page in self.pages.iter_mut().skip(first) {
            if Arc::get_mut(page).is_none() {
                let mut copy = self.pool.page(bytes)?;
                let target = Arc::get_mut(&mut copy).expect("nobody else knows a new page");
                target.bytes.copy_from_slice(&page.bytes);
                *page = copy;
            }
        }
        while self.pages.len() * CHUNK < self.len + n {
            self.pages.push(self.pool.page(bytes)?);
        }
        Ok(())
    }

    /// Block `b` of chunk `c` for one head.
    #[inline(always)]
    pub(super) fn block(&self, form: Form, c: usize, head: usize, b: usize) -> &[u8] {
        let bytes = form.block_bytes();
        let start = match form.side {
            Side::Keys => 0,
            Side::Values => self.layout.bytes_of(self.layout.k),
        };
        &self.pages[c].bytes[start + (head * BLOCKS + b) * bytes..][..bytes]
    }

    /// The keys of one head as attention sees them, `[position][element]`.
    ///
    /// A copy for looking at; attention itself works on the cache in place.
    pub fn keys(&self, head: usize) -> Vec<f32> {
        // SAFETY: the portable token needs no CPU feature.
        let s = unsafe { Portable::new_unchecked() };
        let form = self.layout.k;
        assert!(head < self.layout.n_head);
        let mut panel = vec![[0.0; 16]; form.panel() / 16];
        let mut keys = Vec::with_capacity(self.len * form.dim);
        for start in (0..self.len).step_by(BLOCK) {
            let block = self.block(form, start / CHUNK, head, start % CHUNK / BLOCK);
            unpack(s, form, block, &mut panel);
            for at in 0..BLOCK.min(self.len - start) {
                keys.extend((0..form.dim).map(|e| panel.as_flattened()[e * BLOCK + at]));
            }
        }
        keys
    }

    /// Heads, values of a key, values of a value.
    pub fn dims(&self) -> (usize, usize, usize) {
        self.layout.dims()
    }

    /// Writes keys and values (`[token][head][element]`) of the next `n` positions.
    pub(crate) fn append(&mut self, (team, table): (&Team, &Table), k: &[f32], v: &[f32], n: usize) {
        self.reserve(n).expect("room is made before an evaluation");
        let (layout, pos0) = (self.layout, self.len);
        for (c, page) in self.pages.iter_mut().enumerate().skip(pos0 / CHUNK) {
            let page = Arc::get_mut(page).expect("pages to write to are not shared");
            let (keys, values) = page.bytes.split_at_mut(layout.bytes_of(layout.k));
            for (form, x, blocks) in [(layout.k, k, keys), (layout.v, v, values)] {
                let stride = layout.n_head * form.dim;
                let pack = |i: usize, block: &mut [u8]| {
                    let (head, start) = (i / BLOCKS, c * CHUNK + i % BLOCKS * BLOCK);
                    let (from, to) = (pos0.max(start), (pos0 + n).min(start + BLOCK));
                    if from < to {
                        let x = &x[(from - pos0) * stride + head * form.dim..];
                        let rows = Rows { x, stride, first: from - start, n: to - from };
                        // SAFETY: the table belongs to this CPU.
                        unsafe { (table.kv_pack)(form, rows, block) }
                    }
                };
                // One position is less work than waking a thread.
                if n == 1 {
                    blocks.chunks_exact_mut(form.block_bytes()).enumerate().for_each(|(i, b)| pack(i, b));
                } else {
                    team.run_chunks(blocks, form.block_bytes(), pack);
                }
            }
        }
        self.len = pos0 + n;
    }
}

/// Rows to be stored in a block: `n` of them from position `first` on, `stride` values apart.
pub(crate) struct Rows<'a> {
    x: &'a [f32],
    stride: usize,
    first: usize,
    n: usize,
}

/// Stores rows in a block.
#[inline(always)]
pub(crate) fn pack<S: Simd>(s: S, form: Form, rows: Rows<'_>, block: &mut [u8]) {
    let Form { side, ty, dim } = form;
    for i in 0..rows.n {
        let at = rows.first + i;
        let x = &rows.x[i * rows.stride..][..dim];
        if side == Side::Values && ty != KvType::Q8_0 {
            encode(s, ty, x, &mut block[at * ty.row_bytes(dim)..][..ty.row_bytes(dim)]);
            continue;
        }
        let tiles = block.chunks_mut(ty.row_bytes(QUANTS) * BLOCK);
        for (x, tile) in x.chunks(QUANTS).zip(tiles) {
            let mut piece = [0; 4 * QUANTS];
            encode(s, ty, x, &mut piece);
            match ty {
                KvType::F16 => scatter::<2>(&piece, tile, at),
                KvType::F32 => scatter::<4>(&piece, tile, at),
                KvType::Q8_0 => {
                    let (scales, codes) = tile.split_at_mut(SCALE * BLOCK);
                    scatter::<SCALE>(&piece, scales, at);
                    let piece = &piece[SCALE..][..QUANTS];
                    match side {
                        Side::Keys => scatter::<1>(piece, codes, at),
                        Side::Values => codes[at * QUANTS..][..QUANTS].copy_from_slice(piece),
                    }
                }
            }
        }
    }
}

/// Puts each number of `N` bytes at position `at` of its row of 32; as many as there are rows.
#[inline(always)]
fn scatter<const N: usize>(numbers: &[u8], tile: &mut [u8], at: usize) {
    let rows = tile.as_chunks_mut::<N>().0.as_chunks_mut::<BLOCK>().0;
    for (number, row) in numbers.as_chunks::<N>().0.iter().zip(rows) {
        row[at] = *number;
    }
}

/// Values as `ty`, the first bytes of `out`; up to 32 of them if they share a scale.
#[inline(always)]
fn encode<S: Simd>(s: S, ty: KvType, x: &[f32], out: &mut [u8]) {
    match ty {
        KvType::F32 => {
            for (out, x) in out.as_chunks_mut::<4>().0.iter_mut().zip(x) {
                *out = x.to_le_bytes();
            }
        }
        KvType::F16 => {
            let (body, tail) = x.as_chunks::<16>();
            let (out_body, out_tail) = out.split_at_mut(32 * body.len());
            for (x, out) in body.iter().zip(out_body.as_chunks_mut::<32>().0) {
                s.store_f16(s.load(x), out);
            }
            if !tail.is_empty() {
                let mut last = [0; 32];
                s.store_f16(load_tail(s, tail), &mut last);
                out_tail[..2 * tail.len()].copy_from_slice(&last[..2 * tail.len()]);
            }
        }
        KvType::Q8_0 => {
            let (Some(x), Some((d, codes))) =
                (x.first_chunk::<QUANTS>(), out.split_first_chunk_mut::<SCALE>())
            else {
                unreachable!("heads are whole blocks")
            };
            // The bits of numbers without a sign are ordered as the numbers are, infinity and NaN above all.
            let largest = x.iter().fold(0, |m, x| m.max(x.abs().to_bits()));
            let largest = f32::from_bits(largest);
            // GGUF's rule for the type, with a scale of NaN to keep values that are not finite visible.
            let scale = if largest.is_finite() { largest / 127.0 } else { f32::NAN };
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            *d = f16::from_f32(scale).to_le_bytes();
            for (code, x) in codes.iter_mut().zip(x) {
                *code = (x * inverse).round() as i8 as u8;
            }
        }
    }
}

/// Widens a block to f32: rows of [`Form::width`] vectors, the last one padded with zeros.
#[inline(always)]
pub(super) fn unpack<S: Simd>(s: S, form: Form, block: &[u8], panel: &mut [[f32; 16]]) {
    let row_bytes = form.ty.row_bytes(form.dim);
    match (form.side, form.ty) {
        // Rows without padding are one long row.
        (Side::Keys, KvType::F16 | KvType::F32) => widen(s, form.ty, block, panel),
        (Side::Values, KvType::F16 | KvType::F32) if form.dim.is_multiple_of(16) => {
            widen(s, form.ty, block, panel);
        }
        (Side::Values, KvType::F16 | KvType::F32) => {
            for (row, out) in block.chunks_exact(row_bytes).zip(panel.chunks_exact_mut(form.width())) {
                widen(s, form.ty, row, out);
            }
        }
        (side, KvType::Q8_0) => {
            for (p, piece) in block.as_chunks::<{ (SCALE + QUANTS) * BLOCK }>().0.iter().enumerate() {
                let (scales, codes) = piece.split_at(SCALE * BLOCK);
                let scales = [0, 1].map(
                    #[inline(always)]
                    |i| s.load_f16(&scales.as_chunks::<32>().0[i]),
                );
                let rows = codes.as_chunks::<32>().0.iter().map(|row| row.as_chunks::<16>().0);
                match side {
                    Side::Keys => {
                        for (codes, out) in rows.zip(panel[p * QUANTS * 2..].as_chunks_mut::<2>().0) {
                            for i in 0..2 {
                                s.store(s.mul(widen_codes(s, &codes[i]), scales[i]), &mut out[i]);
                            }
                        }
                    }
                    Side::Values => {
                        let mut by_position = [[0.0; 16]; 2];
                        s.store(scales[0], &mut by_position[0]);
                        s.store(scales[1], &mut by_position[1]);
                        let outs = panel.chunks_exact_mut(form.width());
                        for ((codes, out), &scale) in rows.zip(outs).zip(by_position.as_flattened()) {
                            for i in 0..2 {
                                let value = s.mul(widen_codes(s, &codes[i]), s.splat(scale));
                                s.store(value, &mut out[2 * p + i]);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// One row of numbers that have no scales.
#[inline(always)]
fn widen<S: Simd>(s: S, ty: KvType, row: &[u8], out: &mut [[f32; 16]]) {
    if ty == KvType::F32 {
        for (bytes, out) in row.as_chunks::<4>().0.iter().zip(out.as_flattened_mut()) {
            *out = f32::from_le_bytes(*bytes);
        }
        return;
    }
    let (body, tail) = row.as_chunks::<32>();
    let (out_body, out_tail) = out.split_at_mut(body.len());
    for (bytes, out) in body.iter().zip(out_body) {
        s.store(s.load_f16(bytes), out);
    }
    for out in out_tail {
        let mut padded = [0; 32];
        padded[..tail.len()].copy_from_slice(tail);
        s.store(s.load_f16(&padded), out);
    }
}

/// 16 codes as f32; the loop becomes two or three vector operations.
#[inline(always)]
fn widen_codes<S: Simd>(s: S, codes: &[u8; 16]) -> S::F32 {
    let mut lanes = [0.0; 16];
    for (lane, &code) in lanes.iter_mut().zip(codes) {
        *lane = f32::from(code as i8);
    }
    s.load(&lanes)
}
