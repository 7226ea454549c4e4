//! Activations, quantized once per row for the integer kernels.
//!
//! Two forms. For the formats of 32 weights (and NVFP4): blocks of 32, scale `max |x| / 127`. For the formats of 256: blocks of
//! 256, scale `-x / 127` of the largest value (the first of equals), which becomes -127. Scales stay f32; codes
//! are rounded to nearest even and lie in -127..=127. A block with a value that is not finite has a NaN scale.

use crate::simd::Simd;

/// How activations are quantized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partner {
    /// Not at all.
    F32,
    /// Blocks of 32.
    Q8,
    /// Blocks of 256.
    Q8K,
}

impl Partner {
    /// Values per scale.
    pub(crate) fn block(self) -> usize {
        if self == Partner::Q8K { 256 } else { 32 }
    }

    /// Values per sum.
    pub(crate) fn group(self) -> usize {
        if self == Partner::Q8K { 16 } else { 32 }
    }
}

/// Which row of the activations a token has: its own, or the one that a list says.
#[derive(Clone, Copy, Default)]
pub(crate) struct Order<'a>(Option<&'a [u32]>);

impl<'a> Order<'a> {
    /// Token t has row `rows[t]`.
    pub(crate) fn new(rows: &'a [u32]) -> Order<'a> {
        Order(Some(rows))
    }

    #[inline(always)]
    pub(crate) fn row(self, t: usize) -> usize {
        self.0.map_or(t, |rows| rows[t] as usize)
    }
}

/// Rows that are not quantized.
#[derive(Clone, Copy)]
pub(crate) struct Floats<'a> {
    /// `[row][n_cols]`.
    pub(crate) x: &'a [f32],
    pub(crate) order: Order<'a>,
}

/// Quantized rows.
#[derive(Clone, Copy)]
pub(crate) struct Codes<'a> {
    /// Codes in a row, a multiple of 256; what is past the activations is not used.
    pub(crate) n_cols: usize,
    /// `[row][n_cols]`.
    pub(crate) q: &'a [i8],
    /// One scale per block, `[row][n_cols / block]`.
    pub(crate) d: &'a [f32],
    /// Sums of codes, `[row][n_cols / group]`.
    pub(crate) sums: &'a [i16],
    pub(crate) order: Order<'a>,
}

/// One row being quantized: the parts of [`Codes`], to write.
pub(crate) struct CodesMut<'a> {
    pub(crate) q: &'a mut [i8],
    pub(crate) d: &'a mut [f32],
    pub(crate) sums: &'a mut [i16],
}

/// Adding and subtracting this rounds to nearest even, for |x| < 2^22.
const ROUND: f32 = 12_582_912.0;

/// Codes of `x * inverse`; anything that is not a number becomes 0.
#[inline(always)]
fn encode<S: Simd>(_: S, x: &[f32], inverse: f32, q: &mut [i8]) {
    for (q, &x) in q.iter_mut().zip(x) {
        let scaled = x * inverse;
        let clamped = if scaled > 127.0 { 127.0 } else { scaled };
        let clamped = if clamped < -127.0 { -127.0 } else { clamped };
        *q = ((clamped + ROUND) - ROUND) as i8;
    }
}

#[inline(always)]
fn sum(q: &[i8]) -> i16 {
    q.iter().map(|&q| i16::from(q)).sum()
}

/// True if every value is finite; written to be vectorised.
#[inline(always)]
fn all_finite(x: &[f32]) -> bool {
    x.iter().fold(true, |ok, x| ok & (x.abs() < f32::INFINITY))
}

/// Quantizes one row in blocks of 32; a whole number of blocks.
#[inline(always)]
pub(crate) fn quantize_q8<S: Simd>(s: S, x: &[f32], out: CodesMut<'_>) {
    let blocks = x.as_chunks::<32>().0.iter().zip(out.q.as_chunks_mut::<32>().0);
    for ((x, q), (d, sums)) in blocks.zip(out.d.iter_mut().zip(out.sums)) {
        let largest = x.iter().fold(0f32, |m, x| if x.abs() > m { x.abs() } else { m });
        let finite = all_finite(x);
        *d = if finite { largest / 127.0 } else { f32::NAN };
        let inverse = if largest > 0.0 && finite { 127.0 / largest } else { 0.0 };
        encode(s, x, inverse, q);
        *sums = sum(q);
    }
}

/// Quantizes one row in blocks of 256; a whole number of blocks.
#[inline(always)]
pub(crate) fn quantize_q8k<S: Simd>(s: S, x: &[f32], out: CodesMut<'_>) {
    let blocks = x.as_chunks::<256>().0.iter().zip(out.q.as_chunks_mut::<256>().0);
    for ((x, q), (d, sums)) in blocks.zip(out.d.iter_mut().zip(out.sums.as_chunks_mut::<16>().0)) {
        let largest = x.iter().fold(0f32, |m, x| if x.abs() > m { x.abs() } else { m });
        let finite = all_finite(x);
        let extreme = x.iter().copied().find(|x| x.abs() == largest).unwrap_or(0.0);
        let inverse = if largest > 0.0 && finite { -127.0 / extreme } else { 0.0 };
        *d = match inverse {
            _ if !finite => f32::NAN,
            0.0 => 0.0,
            inverse => 1.0 / inverse,
        };
        encode(s, x, inverse, q);
        for (sums, q) in sums.iter_mut().zip(q.as_chunks::<16>().0) {
            *sums = sum(q);
        }
    }
}
