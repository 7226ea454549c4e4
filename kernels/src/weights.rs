//! The weight formats as tiles see them: 16 rows unpacked side by side, a lane for each row.
//!
//! Bytes are gathered from 16 rows first and taken apart in the lanes afterwards, so every operation works on 16
//! rows at once. A tile's column of four weights is a *quad*: lane r holds the four bytes of row r.
//!
//! To add a format: one `impl` here, one line in `table.rs`, one arm in `matrix.rs`.

use std::marker::PhantomData;

use qgguf_gguf::blocks::*;

use crate::simd::{Rows, Simd};

/// 16 lanes of 32 bits in memory.
pub(crate) type Quad = [u8; 64];

/// Columns that are unpacked at a time.
pub(crate) const COLUMNS: usize = 256;

/// What a format's bytes are, before scales.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codes {
    /// `0..=max`, and what is subtracted from them.
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
    /// f32 scales, one for every [`Small::QUADS`] quads; the first is the scale of a superblock's scales.
    pub(crate) d: [[f32; 16]; 16],
    /// f32 minimums, one for every block; the first is the scale of a superblock's minimums.
    pub(crate) m: [[f32; 16]; 8],
    /// Whole scales, for every [`Super::QUADS`] quads, in the form of [`Simd::chain_scale`].
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
    fn put(&mut self, s: S, i: usize, w: S::Lanes);
}

/// Where the quads of a format are stored.
pub(crate) struct Planes<'a, F> {
    w: &'a mut [Quad],
    high: &'a mut [Quad],
    format: PhantomData<F>,
}

impl<F: Format> Planes<'_, F> {
    /// Into the same quads of both planes.
    #[inline(always)]
    pub(crate) fn new<'a>(w: &'a mut [Quad], high: &'a mut [Quad]) -> Planes<'a, F> {
        Planes { w, high, format: PhantomData }
    }
}

impl<S: Simd, F: Format> Sink<S> for Planes<'_, F> {
    #[inline(always)]
    fn put(&mut self, s: S, i: usize, w: S::Lanes) {
        let w = s.here(w);
        if planes::<S>(F::CODES) == 1 {
            return s.store_lanes(w, &mut self.w[i]);
        }
        s.store_lanes(bits(s, w, 0, 15), &mut self.w[i]);
        s.store_lanes(bits(s, s.xor(w, splat_bytes(s, 128)), 4, 15), &mut self.high[i]);
    }
}

/// Where the scales of one block of 16 rows are unpacked to.
pub(crate) struct SmallScales<'a> {
    pub(crate) d: &'a mut [[f32; 16]],
    pub(crate) m: &'a mut [f32; 16],
}

/// What both kinds of formats have.
pub(crate) trait Format: Block {
    /// What the bytes are.
    const CODES: Codes;
    /// Quads per scale: 4 or 8.
    const QUADS: usize = 8;
    /// There are minimums.
    const MIN: bool = false;
}

/// A format whose scales are f32: `(byte - offset) * d + m`.
pub(crate) trait Small: Format {
    /// Unpacks one block of 16 rows.
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: SmallScales<'_>, w: &mut impl Sink<S>);
}

/// A format whose scales are whole numbers: `d * scale * (byte - offset) - dmin * min`.
pub(crate) trait Super: Format {
    /// Unpacks one block of 16 rows.
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: &mut Scales, w: &mut impl Sink<S>);
}

/// Planes of a tile. Signed bytes fill i16 with one step of a chain, so for chains in i16 their nibbles are apart.
#[inline(always)]
pub(crate) const fn planes<S: Simd>(codes: Codes) -> usize {
    match codes {
        Codes::Signed if S::WORD_CHAINS => 2,
        _ => 1,
    }
}

/// What is subtracted from the bytes of a tile.
#[inline(always)]
pub(crate) const fn offset<S: Simd>(codes: Codes) -> i32 {
    match codes {
        Codes::Unsigned { offset, .. } => offset,
        Codes::Signed if S::SIGNED_CHAINS && !S::WORD_CHAINS => 0,
        Codes::Signed => 128,
    }
}

/// Steps after which a chain must end.
#[inline(always)]
pub(crate) const fn chain_steps<S: Simd>(codes: Codes) -> usize {
    match codes {
        _ if !S::WORD_CHAINS => 64,
        Codes::Signed => 32767 / (2 * 127 * 15),
        // A step adds two products to an i16.
        Codes::Unsigned { max, .. } => 32767 / (2 * 127 * max as usize),
    }
}

#[inline(always)]
fn splat_bytes<S: Simd>(s: S, x: u8) -> S::Lanes {
    s.splat_lanes(i32::from_le_bytes([x; 4]))
}

/// `(v >> n) & mask` in every byte, for a mask that fits what is left of the byte.
#[inline(always)]
fn bits<S: Simd>(s: S, v: S::Lanes, n: u32, mask: u8) -> S::Lanes {
    s.and(s.shr(v, n), splat_bytes(s, mask))
}

/// In every byte four bits of `low` from bit `n`, then two of `high` from bit `m`.
#[inline(always)]
fn joined_bits<S: Simd>(s: S, low: S::Lanes, n: u32, high: S::Lanes, m: u32) -> S::Lanes {
    let high = if m < 4 { s.shl(high, 4 - m) } else { s.shr(high, m - 4) };
    s.or(bits(s, low, n, 15), s.and(high, splat_bytes(s, 0x30)))
}

/// Signed bytes as the ISA's chains take them.
#[inline(always)]
fn signed<S: Simd>(s: S, v: S::Lanes) -> S::Lanes {
    if S::SIGNED_CHAINS { v } else { s.xor(v, splat_bytes(s, 128)) }
}

/// Runs the block with 0 to 3, written out, for loops may stay loops: what is found by a number that the compiler knows
/// stays in registers.
macro_rules! four_times {
    (|$i:ident| $block:block) => {{
        four_times!(@ $i $block 0 1 2 3);
    }};
    (@ $i:ident $block:block $($n:literal)*) => {
        $({
            let $i: usize = $n;
            $block
        })*
    };
}

/// Unpacks 16 bytes of each row to 32 nibbles, the low ones first, and puts `f(nibbles, index of the quad)`.
#[inline(always)]
fn nibbles<S: Simd>(
    s: S,
    packed: [S::Lanes; 4],
    w: &mut impl Sink<S>,
    f: impl Fn(S::Lanes, usize) -> S::Lanes,
) {
    four_times!(|j| {
        w.put(s, j, f(bits(s, packed[j], 0, 15), j));
        w.put(s, j + 4, f(bits(s, packed[j], 4, 15), j + 4));
    });
}

/// The half-precision number in the low half of each lane to `low`, that in the high half to `high`.
#[inline(always)]
fn two_halves<S: Simd>(s: S, v: S::Lanes, low: &mut [f32; 16], high: &mut [f32; 16]) {
    s.store(s.halves(v), low);
    s.store(s.halves(s.shr(v, 16)), high);
}

impl Format for BlockQ4_0 {
    const CODES: Codes = Codes::Unsigned { max: 15, offset: 8 };
}

impl Small for BlockQ4_0 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: SmallScales<'_>, w: &mut impl Sink<S>) {
        s.store(s.halves(s.gather_one(rows, 0)), &mut out.d[0]);
        nibbles(
            s,
            s.gather(rows, 2),
            w,
            #[inline(always)]
            |v, _| v,
        );
    }
}

impl Format for BlockQ4_1 {
    const CODES: Codes = Codes::Unsigned { max: 15, offset: 0 };
    const MIN: bool = true;
}

impl Small for BlockQ4_1 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: SmallScales<'_>, w: &mut impl Sink<S>) {
        two_halves(s, s.gather_one(rows, 0), &mut out.d[0], out.m);
        nibbles(
            s,
            s.gather(rows, 4),
            w,
            #[inline(always)]
            |v, _| v,
        );
    }
}

/// Nibbles with their fifth bits: bit i of `high` belongs to weight i.
#[inline(always)]
fn five_bits<S: Simd>(s: S, packed: [S::Lanes; 4], high: S::Lanes, w: &mut impl Sink<S>) {
    // Each byte gets one of these bits, and 16 if it is set.
    let mask = s.splat_lanes(i32::from_le_bytes([0x10, 0x20, 0x40, 0x80]));
    let sixteen = splat_bytes(s, 16);
    // Bits 0 to 3 of each byte moved to where bits 4 to 7 are.
    let shifted = s.shl(high, 4);
    nibbles(
        s,
        packed,
        w,
        #[inline(always)]
        |v, j| {
            let bits = s.repeat_byte(if j % 2 == 0 { shifted } else { high }, j / 2);
            s.or(v, s.min_bytes(s.and(bits, mask), sixteen))
        },
    );
}

impl Format for BlockQ5_0 {
    const CODES: Codes = Codes::Unsigned { max: 31, offset: 16 };
}

impl Small for BlockQ5_0 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: SmallScales<'_>, w: &mut impl Sink<S>) {
        s.store(s.halves(s.gather_one(rows, 0)), &mut out.d[0]);
        five_bits(s, s.gather(rows, 6), s.gather_one(rows, 2), w);
    }
}

impl Format for BlockQ5_1 {
    const CODES: Codes = Codes::Unsigned { max: 31, offset: 0 };
    const MIN: bool = true;
}

impl Small for BlockQ5_1 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: SmallScales<'_>, w: &mut impl Sink<S>) {
        two_halves(s, s.gather_one(rows, 0), &mut out.d[0], out.m);
        five_bits(s, s.gather(rows, 8), s.gather_one(rows, 4), w);
    }
}

impl Format for BlockQ8_0 {
    const CODES: Codes = Codes::Signed;
}

impl Small for BlockQ8_0 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: SmallScales<'_>, w: &mut impl Sink<S>) {
        s.store(s.halves(s.gather_one(rows, 0)), &mut out.d[0]);
        let [packed, then] = [s.gather(rows, 2), s.gather(rows, 18)];
        four_times!(|j| { w.put(s, j, signed(s, packed[j])) });
        four_times!(|j| { w.put(s, 4 + j, signed(s, then[j])) });
    }
}

impl Format for BlockIQ4NL {
    const CODES: Codes = Codes::Signed;
}

impl Small for BlockIQ4NL {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: SmallScales<'_>, w: &mut impl Sink<S>) {
        s.store(s.halves(s.gather_one(rows, 0)), &mut out.d[0]);
        nibbles(
            s,
            s.gather(rows, 2),
            w,
            #[inline(always)]
            |v, _| signed(s, s.lookup(&NL4, v)),
        );
    }
}

/// [`FP4`] with 12 added.
const FP4_ABOVE: [i8; 16] = {
    let mut table = FP4;
    let mut i = 0;
    while i < 16 {
        table[i] += 12;
        i += 1;
    }
    table
};

impl Format for BlockMXFP4 {
    const CODES: Codes = Codes::Unsigned { max: 24, offset: 12 };
}

impl Small for BlockMXFP4 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: SmallScales<'_>, w: &mut impl Sink<S>) {
        for (r, d) in out.d[0].iter_mut().enumerate() {
            *d = e8m0_half(rows.field::<1>(r, 0)[0]);
        }
        nibbles(
            s,
            s.gather(rows, 1),
            w,
            #[inline(always)]
            |v, _| s.lookup(&FP4_ABOVE, v),
        );
    }
}

impl Format for BlockNVFP4 {
    const CODES: Codes = Codes::Unsigned { max: 24, offset: 12 };
    const QUADS: usize = 4;
}

impl Small for BlockNVFP4 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: SmallScales<'_>, w: &mut impl Sink<S>) {
        for (sub, d) in out.d.iter_mut().enumerate() {
            for (r, d) in d.iter_mut().enumerate() {
                *d = ue4m3_half(rows.field::<1>(r, sub)[0]);
            }
        }
        for half in 0..2 {
            // In each 8 bytes the low nibbles come first, then the high ones.
            for (j, v) in s.gather(rows, 4 + 16 * half).into_iter().enumerate() {
                let at = 8 * half + j / 2 * 4 + j % 2;
                w.put(s, at, s.lookup(&FP4_ABOVE, bits(s, v, 0, 15)));
                w.put(s, at + 2, s.lookup(&FP4_ABOVE, bits(s, v, 4, 15)));
            }
        }
    }
}

/// The signed byte `j` of each lane.
#[inline(always)]
fn signed_byte<S: Simd>(s: S, v: S::Lanes, j: usize) -> S::Lanes {
    s.sar(s.shl(v, 24 - 8 * j as u32), 24)
}

/// Two i16 in each lane.
#[inline(always)]
fn pair<S: Simd>(s: S, low: S::Lanes, high: S::Lanes) -> S::Lanes {
    s.or(s.and(low, s.splat_lanes(0xffff)), s.shl(high, 16))
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
    fn set_scale<S: Simd, B: Format>(&mut self, s: S, g: usize, scale: S::Lanes) {
        s.store_lanes(s.chain_scale(scale), &mut self.whole[g]);
        let times = offset::<S>(B::CODES);
        if times == 0 {
            return;
        }
        // All offsets are powers of two.
        let negative = s.sub_lanes(s.splat_lanes(0), s.shl(scale, times.trailing_zeros()));
        if B::QUADS == 8 {
            s.store_lanes(pair(s, negative, negative), &mut self.offsets[g]);
        } else if g.is_multiple_of(2) {
            s.store_lanes(pair(s, negative, s.splat_lanes(0)), &mut self.offsets[g / 2]);
        } else {
            let low = s.lanes(&self.offsets[g / 2]);
            s.store_lanes(s.or(low, s.shl(negative, 16)), &mut self.offsets[g / 2]);
        }
    }

    /// Sets all scales of a format with groups of 16 from quads of signed bytes.
    #[inline(always)]
    fn set_scales<S: Simd, B: Format>(&mut self, s: S, quads: [S::Lanes; 4]) {
        for (q, v) in quads.into_iter().enumerate() {
            for j in 0..4 {
                self.set_scale::<S, B>(s, 4 * q + j, signed_byte(s, v, j));
            }
        }
    }

    /// Scales, minimums and their factors of [`BlockQ4K`] and [`BlockQ5K`], from their first 16 bytes.
    #[inline(always)]
    fn set_six_bit_scales<S: Simd, B: Format>(&mut self, s: S, [d, low, mid, high]: [S::Lanes; 4]) {
        two_halves(s, d, &mut self.d[0], &mut self.m[0]);
        let scales = [bits(s, low, 0, 63), joined_bits(s, high, 0, low, 6)];
        let mins = [bits(s, mid, 0, 63), joined_bits(s, high, 4, mid, 6)];
        for g in 0..8 {
            self.set_scale::<S, B>(s, g, signed_byte(s, scales[g / 4], g % 4));
            let min = signed_byte(s, mins[g / 4], g % 4);
            s.store_lanes(pair(s, min, min), &mut self.mins[g]);
        }
    }

    /// The scale of the scales, half-precision in the low half of each lane.
    #[inline(always)]
    fn set_d<S: Simd>(&mut self, s: S, d: S::Lanes) {
        s.store(s.halves(d), &mut self.d[0]);
    }
}

/// Unpacks 64 bytes at `at` of two-bit codes: 32 bytes hold four runs of 32 codes. `f` gets the codes and where they
/// are: the half of the block, the run in it, the quad in that.
#[inline(always)]
fn two_bits<S: Simd>(
    s: S,
    rows: Rows<'_>,
    at: usize,
    f: impl Fn(S::Lanes, usize, usize, usize) -> S::Lanes,
    w: &mut impl Sink<S>,
) {
    four_times!(|i| {
        let (half, part) = (i / 2, i % 2);
        let packed = s.gather(rows, at + 16 * i);
        four_times!(|q| {
            let quad = 4 * part + q;
            four_times!(|run| {
                let code = f(bits(s, packed[q], 2 * run as u32, 3), half, run, quad);
                w.put(s, 32 * half + 8 * run + quad, code);
            });
        });
    });
}

impl Format for BlockQ2K {
    const CODES: Codes = Codes::Unsigned { max: 3, offset: 0 };
    const QUADS: usize = 4;
    const MIN: bool = true;
}

impl Super for BlockQ2K {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        let packed = s.gather(rows, 0);
        two_halves(s, s.gather_one(rows, 80), &mut out.d[0], &mut out.m[0]);
        out.set_scales::<S, Self>(s, packed.map(|v| bits(s, v, 0, 15)));
        for (q, v) in packed.into_iter().enumerate() {
            let mins = bits(s, v, 4, 15);
            for p in 0..2 {
                let (low, high) = (signed_byte(s, mins, 2 * p), signed_byte(s, mins, 2 * p + 1));
                s.store_lanes(pair(s, low, high), &mut out.mins[2 * q + p]);
            }
        }
        two_bits(
            s,
            rows,
            16,
            #[inline(always)]
            |code, _, _, _| code,
            w,
        );
    }
}

impl Format for BlockQ3K {
    const CODES: Codes = Codes::Unsigned { max: 7, offset: 4 };
    const QUADS: usize = 4;
}

impl Super for BlockQ3K {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        // The last 16 bytes: two of codes, 12 of scales, two of `d`.
        let end = s.gather(rows, 94);
        out.set_d(s, s.shr(end[3], 16));
        let [low, mid, top] = [0, 1, 2].map(|j| s.or(s.shr(end[j], 16), s.shl(end[j + 1], 16)));
        let scales = [(low, 0, 0), (mid, 0, 2), (low, 4, 4), (mid, 4, 6)].map(|(v, n, m)| {
            let code = joined_bits(s, v, n, top, m);
            // Less 32: no byte borrows from the next with the top bit set, which is then put right.
            let biased = s.sub_lanes(s.or(code, splat_bytes(s, 128)), splat_bytes(s, 32));
            s.xor(biased, splat_bytes(s, 128))
        });
        out.set_scales::<S, Self>(s, scales);
        let masks = [s.gather(rows, 0), s.gather(rows, 16)];
        two_bits(
            s,
            rows,
            32,
            #[inline(always)]
            |code, half, run, quad| {
                let third = bits(s, masks[quad / 4][quad % 4], (4 * half + run) as u32, 1);
                s.or(code, s.shl(third, 2))
            },
            w,
        );
    }
}

/// Unpacks 128 bytes at `at` of nibbles: 32 bytes hold two runs of 32. `f` gets them, the run, and the quad in it.
#[inline(always)]
fn runs_of_nibbles<S: Simd>(
    s: S,
    rows: Rows<'_>,
    at: usize,
    w: &mut impl Sink<S>,
    f: impl Fn(S::Lanes, usize, usize) -> S::Lanes,
) {
    four_times!(|p| {
        let [packed, then] = [s.gather(rows, at + 32 * p), s.gather(rows, at + 32 * p + 16)];
        four_times!(|q| {
            w.put(s, 16 * p + q, f(bits(s, packed[q], 0, 15), 2 * p, q));
            w.put(s, 16 * p + 8 + q, f(bits(s, packed[q], 4, 15), 2 * p + 1, q));
        });
        four_times!(|q| {
            w.put(s, 16 * p + 4 + q, f(bits(s, then[q], 0, 15), 2 * p, 4 + q));
            w.put(s, 16 * p + 12 + q, f(bits(s, then[q], 4, 15), 2 * p + 1, 4 + q));
        });
    });
}

impl Format for BlockQ4K {
    const CODES: Codes = Codes::Unsigned { max: 15, offset: 0 };
    const QUADS: usize = 8;
    const MIN: bool = true;
}

impl Super for BlockQ4K {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        out.set_six_bit_scales::<S, Self>(s, s.gather(rows, 0));
        runs_of_nibbles(
            s,
            rows,
            16,
            w,
            #[inline(always)]
            |v, _, _| v,
        );
    }
}

impl Format for BlockQ5K {
    const CODES: Codes = Codes::Unsigned { max: 31, offset: 0 };
    const QUADS: usize = 8;
    const MIN: bool = true;
}

impl Super for BlockQ5K {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        out.set_six_bit_scales::<S, Self>(s, s.gather(rows, 0));
        let high = [s.gather(rows, 16), s.gather(rows, 32)];
        runs_of_nibbles(
            s,
            rows,
            48,
            w,
            #[inline(always)]
            |v, run, quad| {
                let high = high[quad / 4][quad % 4];
                let fifth = if run < 4 { s.shl(high, 4 - run as u32) } else { s.shr(high, run as u32 - 4) };
                s.or(v, s.and(fifth, splat_bytes(s, 16)))
            },
        );
    }
}

impl Format for BlockQ6K {
    const CODES: Codes = Codes::Unsigned { max: 63, offset: 32 };
    const QUADS: usize = 4;
}

impl Super for BlockQ6K {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        out.set_scales::<S, Self>(s, s.gather(rows, 192));
        out.set_d(s, s.shr(s.gather_one(rows, 206), 16));
        four_times!(|i| {
            let (half, part) = (i / 2, i % 2);
            let top = s.gather(rows, 128 + 16 * i);
            let at = 64 * half + 16 * part;
            let low = [s.gather(rows, at), s.gather(rows, at + 32)];
            four_times!(|q| {
                four_times!(|run| {
                    let code = joined_bits(s, low[run % 2][q], run as u32 / 2 * 4, top[q], 2 * run as u32);
                    w.put(s, 32 * half + 8 * run + 4 * part + q, code);
                });
            });
        });
    }
}

impl Format for BlockIQ4XS {
    const CODES: Codes = Codes::Signed;
}

impl Super for BlockIQ4XS {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        let [first, low, _, _] = s.gather(rows, 0);
        out.set_d(s, first);
        for g in 0..8 {
            let low = s.and(s.shr(low, 4 * g), s.splat_lanes(15));
            let high = s.and(s.shr(first, 16 + 2 * g), s.splat_lanes(3));
            let scale = s.sub_lanes(s.or(low, s.shl(high, 4)), s.splat_lanes(32));
            out.set_scale::<S, Self>(s, g as usize, scale);
        }
        four_times!(|i| {
            let [packed, then] = [s.gather(rows, 8 + 32 * i), s.gather(rows, 8 + 32 * i + 16)];
            four_times!(|j| {
                w.put(s, 16 * i + j, signed(s, s.lookup(&NL4, bits(s, packed[j], 0, 15))));
                w.put(s, 16 * i + 4 + j, signed(s, s.lookup(&NL4, bits(s, packed[j], 4, 15))));
            });
            four_times!(|j| {
                w.put(s, 16 * i + 8 + j, signed(s, s.lookup(&NL4, bits(s, then[j], 0, 15))));
                w.put(s, 16 * i + 12 + j, signed(s, s.lookup(&NL4, bits(s, then[j], 4, 15))));
            });
        });
    }
}

impl Format for BlockTQ1_0 {
    const CODES: Codes = Codes::Unsigned { max: 2, offset: 1 };
}

impl Super for BlockTQ1_0 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        out.set_d(s, s.shr(s.gather_one(rows, 50), 16));
        let one = s.splat_lanes(1);
        (0..8).for_each(|g| out.set_scale::<S, Self>(s, g, one));
        let mut quads = [[0; 64]; 64];
        for r in 0..16 {
            let (qs, qh) = (rows.field::<48>(r, 0), rows.field::<4>(r, 48));
            for i in 0..256 {
                let (byte, digit) = match i {
                    0..160 => (qs[i % 32], i / 32),
                    160..240 => (qs[32 + i % 16], (i - 160) / 16),
                    _ => (qh[i % 4], (i - 240) / 4),
                };
                quads[i / 4][4 * r + i % 4] = ternary_digit(byte, digit) as u8;
            }
        }
        for (i, quad) in quads.iter().enumerate() {
            w.put(s, i, s.lanes(quad));
        }
    }
}

impl Format for BlockTQ2_0 {
    const CODES: Codes = Codes::Unsigned { max: 2, offset: 1 };
}

impl Super for BlockTQ2_0 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        out.set_d(s, s.shr(s.gather_one(rows, 62), 16));
        let one = s.splat_lanes(1);
        (0..8).for_each(|g| out.set_scale::<S, Self>(s, g, one));
        two_bits(
            s,
            rows,
            0,
            #[inline(always)]
            |code, _, _, _| code,
            w,
        );
    }
}
