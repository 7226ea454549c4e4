//! Activations, quantized once per row for the integer kernels.
//!
//! Two forms. For the formats of 32 weights (and NVFP4): blocks of 32, scale `max |x| / 127`. For the formats of 256: blocks of
//! 256, scale `-x / 127` of the largest value (the first of equals), which becomes -127. Scales stay f32; codes
//! are rounded to nearest even and lie in -127..=127. A block with a value that is not finite has a NaN scale.

use std::ops::Range;

use crate::layout::COLUMNS;
use crate::simd::Simd;

/// What activations are before they meet weights: the counterpart of a type of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActivationType {
    /// Not quantized.
    F32,
    /// Blocks of 32.
    Q8,
    /// Blocks of 256.
    Q8K,
}

impl ActivationType {
    /// Values per scale.
    pub(crate) fn block(self) -> usize {
        if self == ActivationType::Q8K { 256 } else { 32 }
    }

    /// Values per sum.
    pub(crate) fn group(self) -> usize {
        if self == ActivationType::Q8K { 16 } else { 32 }
    }
}

/// Which row of the activations a token has: its own, or the one that a list says.
#[derive(Clone, Copy, Default)]
pub(crate) struct RowMap<'a>(Option<&'a [u32]>);

impl<'a> RowMap<'a> {
    /// Token t has row `rows[t]`.
    pub(crate) fn new(rows: &'a [u32]) -> RowMap<'a> {
        RowMap(Some(rows))
    }

    #[inline(always)]
    pub(crate) fn row(self, t: usize) -> usize {
        self.0.map_or(t, |rows| rows[t] as usize)
    }
}

/// Rows that are not quantized.
#[derive(Clone, Copy)]
pub(crate) struct FloatRows<'a> {
    /// `[row][n_cols]`.
    pub(crate) x: &'a [f32],
    pub(crate) map: RowMap<'a>,
}

/// Quantized rows.
#[derive(Clone, Copy)]
pub(crate) struct QuantizedRows<'a> {
    /// QuantizedRows in a row, a multiple of 256; what is past the activations is not used.
    pub(crate) n_cols: usize,
    /// `[row][n_cols]`.
    pub(crate) q: &'a [i8],
    /// One scale per block, `[row][n_cols / block]`.
    pub(crate) d: &'a [f32],
    /// Sums of codes, `[row][n_cols / group]`.
    pub(crate) sums: &'a [i16],
    pub(crate) map: RowMap<'a>,
}

impl QuantizedRows<'_> {
    /// Asks for the codes of tokens that meet a tile at `column` to be brought into the L1 cache.
    #[inline(always)]
    pub(crate) fn prefetch<S: Simd>(&self, s: S, tokens: Range<usize>, column: usize) {
        for t in tokens {
            let codes = self.q[self.map.row(t) * self.n_cols + column..].as_ptr();
            for line in (0..COLUMNS).step_by(64) {
                s.prefetch_near(codes.wrapping_add(line).cast());
            }
        }
    }
}

/// One row being quantized: the parts of [`QuantizedRows`], to write.
pub(crate) struct QuantizedRowMut<'a> {
    pub(crate) q: &'a mut [i8],
    pub(crate) d: &'a mut [f32],
    pub(crate) sums: &'a mut [i16],
}

/// Adding and subtracting this rounds to nearest even, for |x| < 2^22.
const ROUND: f32 = 12_582_912.0;

/// QuantizedRows of `x * inverse`, and the same as f32. What is not a number stays so in the latter.
#[inline(always)]
fn encode<S: Simd>(s: S, x: &[f32; 16], inverse: S::F32, q: &mut [i8; 16]) -> S::F32 {
    // The largest may come out above 127 by the rounding of the inverse.
    let scaled = s.min(s.splat(127.0), s.max(s.splat(-127.0), s.mul(s.load(x), inverse)));
    let rounded = s.sub(s.add(scaled, s.splat(ROUND)), s.splat(ROUND));
    s.store_i8(rounded, q);
    rounded
}

/// `numerator / x`, or 0 if there is no such finite number.
#[inline(always)]
fn inverse(numerator: f32, x: f32) -> f32 {
    let inverse = numerator / x;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// Quantizes one row in blocks of 32; a whole number of blocks.
#[inline(always)]
pub(crate) fn quantize_q8<S: Simd>(s: S, x: &[f32], out: QuantizedRowMut<'_>) {
    let blocks = x.as_chunks::<32>().0.iter().zip(out.q.as_chunks_mut::<32>().0);
    for ((x, q), (d, sum)) in blocks.zip(out.d.iter_mut().zip(out.sums)) {
        let (x, q) = (x.as_chunks::<16>().0, q.as_chunks_mut::<16>().0);
        let (a, b) = (s.load(&x[0]), s.load(&x[1]));
        let zero = s.splat(0.0);
        let both = s.max(a, s.max(b, s.max(s.sub(zero, a), s.max(s.sub(zero, b), zero))));
        let largest = s.largest(both);
        let by = s.splat(inverse(127.0, largest));
        let sums = s.sum(s.add(encode(s, &x[0], by, &mut q[0]), encode(s, &x[1], by, &mut q[1])));
        *d = if sums.is_nan() { f32::NAN } else { largest / 127.0 };
        // Whole numbers below 2^12, so exact in any order.
        *sum = sums as i16;
    }
}

/// Quantizes one row in blocks of 256; a whole number of blocks.
#[inline(always)]
pub(crate) fn quantize_q8k<S: Simd>(s: S, x: &[f32], out: QuantizedRowMut<'_>) {
    let blocks = x.as_chunks::<256>().0.iter().zip(out.q.as_chunks_mut::<256>().0);
    for ((x, q), (d, sums)) in blocks.zip(out.d.iter_mut().zip(out.sums.as_chunks_mut::<16>().0)) {
        let extreme = extreme(s, x);
        let by = inverse(-127.0, extreme);
        let lanes = s.splat(by);
        let mut total = 0.0;
        let groups = x.as_chunks::<16>().0.iter().zip(q.as_chunks_mut::<16>().0);
        for ((x, q), sum) in groups.zip(sums) {
            let codes = s.sum(encode(s, x, lanes, q));
            total += codes;
            *sum = codes as i16;
        }
        *d = match by {
            _ if total.is_nan() => f32::NAN,
            0.0 => 0.0,
            by => 1.0 / by,
        };
    }
}

/// The value that is farthest from 0, the first of equals. NaN is passed over.
#[inline(always)]
fn extreme<S: Simd>(s: S, x: &[f32; 256]) -> f32 {
    let zero = s.splat(0.0);
    let (mut high, mut low) = (zero, zero);
    for x in x.as_chunks::<16>().0 {
        let x = s.load(x);
        // The running value comes second: it stays when the new one is NaN.
        (high, low) = (s.max(x, high), s.min(x, low));
    }
    let (high, low) = (s.largest(high), s.largest(s.sub(zero, low)));
    match () {
        _ if high > low => high,
        _ if low > high => -low,
        _ => x.iter().copied().find(|x| x.abs() == high).unwrap_or(0.0),
    }
}
