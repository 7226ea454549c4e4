//! The weight formats as the integer kernels see them: bytes, scales, and an offset or minimum.
//!
//! To add a format: one `impl` here, one line in `table.rs`, one arm in `matrix.rs`.

use qgguf_gguf::blocks::*;

use crate::simd::Simd;

/// A block of 32 weights, `(byte - OFFSET) * d + m`.
pub(crate) trait Small: Block {
    /// Bytes are signed; then there is no offset.
    const SIGNED: bool;
    /// Subtracted from unsigned bytes.
    const OFFSET: i32 = 0;
    /// There is a minimum.
    const MIN: bool = false;

    /// The scale.
    fn d<S: Simd>(&self, s: S) -> f32;

    /// The minimum.
    #[inline(always)]
    fn m<S: Simd>(&self, _: S) -> f32 {
        0.0
    }

    /// The 32 bytes, at most 127 if unsigned.
    fn weights<S: Simd>(&self, s: S) -> S::Bytes;
}

impl Small for BlockQ4_0 {
    const SIGNED: bool = false;
    const OFFSET: i32 = 8;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S) -> S::Bytes {
        s.nibbles(&self.qs)
    }
}

impl Small for BlockQ4_1 {
    const SIGNED: bool = false;
    const MIN: bool = true;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn m<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.m)
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S) -> S::Bytes {
        s.nibbles(&self.qs)
    }
}

/// Nibbles with their fifth bits.
#[inline(always)]
fn five_bits<S: Simd>(s: S, qs: &[u8; 16], qh: [u8; 4]) -> S::Bytes {
    let fifth = s.and(s.mask_from_bits(u32::from_le_bytes(qh)), s.splat_byte(16));
    s.or(s.nibbles(qs), fifth)
}

impl Small for BlockQ5_0 {
    const SIGNED: bool = false;
    const OFFSET: i32 = 16;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S) -> S::Bytes {
        five_bits(s, &self.qs, self.qh)
    }
}

impl Small for BlockQ5_1 {
    const SIGNED: bool = false;
    const MIN: bool = true;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn m<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.m)
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S) -> S::Bytes {
        five_bits(s, &self.qs, self.qh)
    }
}

impl Small for BlockQ8_0 {
    const SIGNED: bool = true;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S) -> S::Bytes {
        s.bytes(&self.qs)
    }
}

impl Small for BlockIQ4NL {
    const SIGNED: bool = true;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S) -> S::Bytes {
        s.lookup(&NL4, s.nibbles(&self.qs))
    }
}

impl Small for BlockMXFP4 {
    const SIGNED: bool = true;
    #[inline(always)]
    fn d<S: Simd>(&self, _: S) -> f32 {
        e8m0_half(self.e[0])
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S) -> S::Bytes {
        s.lookup(&FP4, s.nibbles(&self.qs))
    }
}

/// A block of 256 weights in 16 groups: `d * scale * (byte - OFFSET) - dmin * min`.
pub(crate) trait Super: Block {
    /// Bytes are signed; then there is no offset.
    const SIGNED: bool = false;
    /// Subtracted from unsigned bytes.
    const OFFSET: i16 = 0;
    /// There are minimums.
    const MIN: bool = false;

    /// The scale of the scales.
    fn d<S: Simd>(&self, s: S) -> f32;

    /// The scale of the minimums.
    #[inline(always)]
    fn dmin<S: Simd>(&self, _: S) -> f32 {
        0.0
    }

    /// Integer scales and minimums of the 16 groups.
    fn scales(&self) -> ([i16; 16], [i16; 16]);

    /// Weights `32 g` to `32 g + 31`, at most 127 if unsigned. `g` is below 8.
    fn weights<S: Simd>(&self, s: S, g: usize) -> S::Bytes;
}

/// The 32 bytes from `at`.
#[inline(always)]
fn at<S: Simd, const N: usize>(s: S, bytes: &[u8; N], at: usize) -> S::Bytes {
    s.bytes(bytes[at..at + 32].try_into().expect("32 bytes"))
}

/// Run `g` of two-bit codes: 32 bytes hold runs 4h to 4h + 3.
#[inline(always)]
fn two_bits<S: Simd>(s: S, qs: &[u8; 64], g: usize) -> S::Bytes {
    let v = at(s, qs, g / 4 * 32);
    match g % 4 {
        0 => s.shr_and::<0>(v, 3),
        1 => s.shr_and::<2>(v, 3),
        2 => s.shr_and::<4>(v, 3),
        _ => s.shr_and::<6>(v, 3),
    }
}

/// Bit `g` of each byte.
#[inline(always)]
fn bit<S: Simd>(s: S, v: S::Bytes, g: usize) -> S::Bytes {
    match g {
        0 => s.shr_and::<0>(v, 1),
        1 => s.shr_and::<1>(v, 1),
        2 => s.shr_and::<2>(v, 1),
        3 => s.shr_and::<3>(v, 1),
        4 => s.shr_and::<4>(v, 1),
        5 => s.shr_and::<5>(v, 1),
        6 => s.shr_and::<6>(v, 1),
        _ => s.shr_and::<7>(v, 1),
    }
}

/// Run `g` of nibbles: 32 bytes hold runs 2p (low) and 2p + 1 (high).
#[inline(always)]
fn nibbles<S: Simd>(s: S, qs: &[u8; 128], g: usize) -> S::Bytes {
    let v = at(s, qs, g / 2 * 32);
    if g.is_multiple_of(2) { s.shr_and::<0>(v, 15) } else { s.shr_and::<4>(v, 15) }
}

/// Doubles 8 values of runs of 32 to 16 values of groups of 16.
#[inline(always)]
fn doubled(eight: [u8; 8]) -> [i16; 16] {
    std::array::from_fn(|g| eight[g / 2].into())
}

impl Super for BlockQ2K {
    const MIN: bool = true;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn dmin<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.dmin)
    }
    #[inline(always)]
    fn scales(&self) -> ([i16; 16], [i16; 16]) {
        (self.scales.map(|s| (s & 15).into()), self.scales.map(|s| (s >> 4).into()))
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, g: usize) -> S::Bytes {
        two_bits(s, &self.qs, g)
    }
}

impl Super for BlockQ3K {
    const OFFSET: i16 = 4;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn scales(&self) -> ([i16; 16], [i16; 16]) {
        (self.unpacked_scales().map(i16::from), [0; 16])
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, g: usize) -> S::Bytes {
        let third = s.shl::<2>(bit(s, s.bytes(&self.hmask), g));
        s.or(two_bits(s, &self.qs, g), third)
    }
}

impl Super for BlockQ4K {
    const MIN: bool = true;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn dmin<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.dmin)
    }
    #[inline(always)]
    fn scales(&self) -> ([i16; 16], [i16; 16]) {
        let (scales, mins) = scales_and_mins(&self.scales);
        (doubled(scales), doubled(mins))
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, g: usize) -> S::Bytes {
        nibbles(s, &self.qs, g)
    }
}

impl Super for BlockQ5K {
    const MIN: bool = true;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn dmin<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.dmin)
    }
    #[inline(always)]
    fn scales(&self) -> ([i16; 16], [i16; 16]) {
        let (scales, mins) = scales_and_mins(&self.scales);
        (doubled(scales), doubled(mins))
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, g: usize) -> S::Bytes {
        let fifth = s.shl::<4>(bit(s, s.bytes(&self.qh), g));
        s.or(nibbles(s, &self.qs, g), fifth)
    }
}

impl Super for BlockQ6K {
    const OFFSET: i16 = 32;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn scales(&self) -> ([i16; 16], [i16; 16]) {
        (self.scales.map(|s| (s as i8).into()), [0; 16])
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, g: usize) -> S::Bytes {
        let (half, run) = (g / 4, g % 4);
        let low = at(s, &self.ql, 64 * half + 32 * (run % 2));
        let low = if run < 2 { s.shr_and::<0>(low, 15) } else { s.shr_and::<4>(low, 15) };
        let top = at(s, &self.qh, 32 * half);
        let top = match run {
            0 => s.shr_and::<0>(top, 3),
            1 => s.shr_and::<2>(top, 3),
            2 => s.shr_and::<4>(top, 3),
            _ => s.shr_and::<6>(top, 3),
        };
        s.or(low, s.shl::<4>(top))
    }
}

impl Super for BlockIQ4XS {
    const SIGNED: bool = true;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn scales(&self) -> ([i16; 16], [i16; 16]) {
        let scales = self.unpacked_scales();
        (std::array::from_fn(|g| scales[g / 2].into()), [0; 16])
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, g: usize) -> S::Bytes {
        let qs: &[u8; 16] = self.qs[16 * g..16 * g + 16].try_into().expect("16 bytes");
        s.lookup(&NL4, s.nibbles(qs))
    }
}

impl Super for BlockTQ1_0 {
    const OFFSET: i16 = 1;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn scales(&self) -> ([i16; 16], [i16; 16]) {
        ([1; 16], [0; 16])
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, g: usize) -> S::Bytes {
        let digits: [u8; 32] = std::array::from_fn(|i| {
            let (byte, digit) = match g {
                0..5 => (self.qs[i], g),
                5..7 => (self.qs[32 + i % 16], 2 * (g - 5) + i / 16),
                _ if i < 16 => (self.qs[32 + i], 4),
                _ => (self.qh[i % 4], (i - 16) / 4),
            };
            ternary_digit(byte, digit) as u8
        });
        s.bytes(&digits)
    }
}

impl Super for BlockTQ2_0 {
    const OFFSET: i16 = 1;
    #[inline(always)]
    fn d<S: Simd>(&self, s: S) -> f32 {
        s.f16(self.d)
    }
    #[inline(always)]
    fn scales(&self) -> ([i16; 16], [i16; 16]) {
        ([1; 16], [0; 16])
    }
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, g: usize) -> S::Bytes {
        two_bits(s, &self.qs, g)
    }
}
