//! Tiles: [`COLUMNS`] columns of a panel, unpacked from any quantized type, and what a type says of itself to be unpacked.
//!
//! Bytes are gathered from 16 rows first and taken apart in the lanes afterwards, so every operation works on 16 rows at
//! once. Quads of weights go to a [`Sink`] as they are unpacked: to a tile, or straight into the products of a single token.
//!
//! A tile has one *plane* of weights, or two, of low and of high nibbles, where an instruction set cannot add up whole
//! signed bytes.

use std::marker::PhantomData;

use qgguf_gguf::blocks::Block;

use crate::bits::{bits, joined_bits, pair, signed_byte, splat_bytes, two_halves};
use crate::layout::{COLUMNS, PanelRows, Quad};
use crate::simd::Simd;

/// What the bytes of unpacked weights are, before scales.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeRange {
    /// `0..=max`, at most 127, and what is subtracted from them: a power of two where scales are whole numbers.
    Unsigned { max: u8, offset: i32 },
    /// `-128..=127`.
    Signed,
}

/// [`COLUMNS`] columns of 16 rows, unpacked.
#[repr(C, align(64))]
pub(crate) struct Tile {
    /// Quads of weights, or their low nibbles if there are two [`planes`].
    pub(crate) w: [Quad; COLUMNS / 4],
    /// Quads of the high nibbles, if there are two planes.
    pub(crate) high: [Quad; COLUMNS / 4],
    /// What they are multiplied by.
    pub(crate) scales: Scales,
}

/// Scales of a tile. Which parts are used depends on the format.
#[repr(C, align(64))]
pub(crate) struct Scales {
    /// f32 scales, one for every [`BlockFormat::QUADS`] quads; the first is the scale of a superblock's scales.
    pub(crate) d: [[f32; 16]; 16],
    /// f32 minimums, one for every block; the first is the scale of a superblock's minimums.
    pub(crate) m: [[f32; 16]; 8],
    /// Whole scales, for every [`SuperblockFormat::QUADS`] quads, in the form of [`Simd::chain_scale`].
    pub(crate) whole: [Quad; 16],
    /// Pairs of `-offset * scale`, for groups of 16 columns.
    pub(crate) offsets: [Quad; 8],
    /// Pairs of whole minimums, for groups of 16 columns.
    pub(crate) mins: [Quad; 8],
}

impl Tile {
    pub(crate) const EMPTY: Tile = Tile { w: [[0; 64]; 64], high: [[0; 64]; 64], scales: Scales::EMPTY };
}

/// What takes the quads of a block as they are unpacked: part of a tile, or a product with the only token.
pub(crate) trait Sink<S: Simd> {
    /// Takes quad `i`.
    fn put(&mut self, s: S, i: usize, w: S::I32);
}

/// Where the quads of a format are stored.
pub(crate) struct Planes<'a, F> {
    w: &'a mut [Quad],
    high: &'a mut [Quad],
    format: PhantomData<F>,
}

impl<F: TileFormat> Planes<'_, F> {
    /// Into the same quads of both planes.
    #[inline(always)]
    pub(crate) fn new<'a>(w: &'a mut [Quad], high: &'a mut [Quad]) -> Planes<'a, F> {
        Planes { w, high, format: PhantomData }
    }
}

impl<S: Simd, F: TileFormat> Sink<S> for Planes<'_, F> {
    #[inline(always)]
    fn put(&mut self, s: S, i: usize, w: S::I32) {
        let w = s.pinned(w);
        if planes::<S>(F::CODES) == 1 {
            return s.store_i32(w, &mut self.w[i]);
        }
        s.store_i32(bits(s, w, 0, 15), &mut self.w[i]);
        s.store_i32(bits(s, s.xor(w, splat_bytes(s, 128)), 4, 15), &mut self.high[i]);
    }
}

/// Where the scales of one block of 16 rows are unpacked to.
pub(crate) struct BlockScales<'a> {
    pub(crate) d: &'a mut [[f32; 16]],
    pub(crate) m: &'a mut [f32; 16],
}

/// A type of weights that tiles are unpacked from: what both kinds have.
pub(crate) trait TileFormat: Block {
    /// What the bytes are.
    const CODES: CodeRange;
    /// Quads per scale: 4 or 8.
    const QUADS: usize = 8;
    /// There are minimums.
    const MIN: bool = false;
}

/// A type whose scales are f32: `(byte - offset) * d + m`. A block has 32 weights or a multiple of that, up to [`COLUMNS`], and
/// each [`TileFormat::QUADS`] of it a scale, which may be the same number.
pub(crate) trait BlockFormat: TileFormat {
    /// Unpacks one block of 16 rows.
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: BlockScales<'_>, w: &mut impl Sink<S>);
}

/// A type whose scales are whole numbers: `d * scale * (byte - offset) - dmin * min`. A block has [`COLUMNS`] weights.
pub(crate) trait SuperblockFormat: TileFormat {
    /// Unpacks one block of 16 rows.
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: &mut Scales, w: &mut impl Sink<S>);
}

/// Planes of a tile. Signed bytes fill i16 with one step of a chain, so for chains in i16 their nibbles are apart.
#[inline(always)]
pub(crate) const fn planes<S: Simd>(codes: CodeRange) -> usize {
    match codes {
        CodeRange::Signed if S::WORD_CHAINS => 2,
        _ => 1,
    }
}

/// What is subtracted from the bytes of a tile.
#[inline(always)]
pub(crate) const fn offset<S: Simd>(codes: CodeRange) -> i32 {
    match codes {
        CodeRange::Unsigned { offset, .. } => offset,
        CodeRange::Signed if S::SIGNED_CHAINS && !S::WORD_CHAINS => 0,
        CodeRange::Signed => 128,
    }
}

/// Steps after which a chain must end.
#[inline(always)]
pub(crate) const fn chain_steps<S: Simd>(codes: CodeRange) -> usize {
    match codes {
        _ if !S::WORD_CHAINS => 64,
        CodeRange::Signed => 32767 / (2 * 127 * 15),
        // A step adds two products to an i16.
        CodeRange::Unsigned { max, .. } => 32767 / (2 * 127 * max as usize),
    }
}

impl Scales {
    pub(crate) const EMPTY: Scales = Scales {
        d: [[0.0; 16]; 16],
        m: [[0.0; 16]; 8],
        whole: [[0; 64]; 16],
        offsets: [[0; 64]; 8],
        mins: [[0; 64]; 8],
    };

    /// Sets the scale of group `g` of `B` and, from it, the offsets.
    #[inline(always)]
    pub(crate) fn set_scale<S: Simd, B: TileFormat>(&mut self, s: S, g: usize, scale: S::I32) {
        s.store_i32(s.chain_scale(scale), &mut self.whole[g]);
        let times = offset::<S>(B::CODES);
        if times == 0 {
            return;
        }
        // All offsets are powers of two.
        let negative = s.sub_i32(s.splat_i32(0), s.shl(scale, times.trailing_zeros()));
        if B::QUADS == 8 {
            s.store_i32(pair(s, negative, negative), &mut self.offsets[g]);
        } else if g.is_multiple_of(2) {
            s.store_i32(pair(s, negative, s.splat_i32(0)), &mut self.offsets[g / 2]);
        } else {
            let low = s.load_i32(&self.offsets[g / 2]);
            s.store_i32(s.or(low, s.shl(negative, 16)), &mut self.offsets[g / 2]);
        }
    }

    /// Sets all scales of a format with groups of 16 from quads of signed bytes.
    #[inline(always)]
    pub(crate) fn set_scales<S: Simd, B: TileFormat>(&mut self, s: S, quads: [S::I32; 4]) {
        for (q, v) in quads.into_iter().enumerate() {
            for j in 0..4 {
                self.set_scale::<S, B>(s, 4 * q + j, signed_byte(s, v, j));
            }
        }
    }

    /// Scales, minimums and their factors of [`BlockQ4K`] and [`BlockQ5K`], from their first 16 bytes.
    #[inline(always)]
    pub(crate) fn set_six_bit_scales<S: Simd, B: TileFormat>(
        &mut self,
        s: S,
        [d, low, mid, high]: [S::I32; 4],
    ) {
        two_halves(s, d, &mut self.d[0], &mut self.m[0]);
        let scales = [bits(s, low, 0, 63), joined_bits(s, high, 0, low, 6)];
        let mins = [bits(s, mid, 0, 63), joined_bits(s, high, 4, mid, 6)];
        for g in 0..8 {
            self.set_scale::<S, B>(s, g, signed_byte(s, scales[g / 4], g % 4));
            let min = signed_byte(s, mins[g / 4], g % 4);
            s.store_i32(pair(s, min, min), &mut self.mins[g]);
        }
    }

    /// The scale of the scales, half-precision in the low half of each lane.
    #[inline(always)]
    pub(crate) fn set_d<S: Simd>(&mut self, s: S, d: S::I32) {
        s.store(s.halves(d), &mut self.d[0]);
    }
}
