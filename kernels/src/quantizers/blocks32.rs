//! What the types with blocks of 32 weights share: Q4_0 and Q5_0 around zero, Q4_1 and Q5_1 with a minimum. A lane holds
//! a block.

use super::Weights;
use super::affine::{Steps, affine};
use super::groups::*;
use super::symmetric::symmetric;
use crate::simd::Simd;

/// Weights of a block.
pub(crate) const BLOCK: usize = 32;
/// Weights of a panel.
pub(crate) const PANEL: usize = GROUPS * BLOCK;

/// Which of the four types.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Bits of a code, 4 or 5.
    pub(crate) bits: u32,
    /// There are minimums.
    pub(crate) with_min: bool,
}

impl Shape {
    /// Bytes before the nibbles, which are the last 16: scale, minimum, fifth bits.
    #[inline(always)]
    fn head(self) -> usize {
        2 + if self.with_min { 2 } else { 0 } + if self.bits == 5 { 4 } else { 0 }
    }
}

/// Scale, minimum and codes of the blocks of a panel.
type Found<S> = (<S as Simd>::F32, <S as Simd>::F32, [<S as Simd>::F32; BLOCK]);

/// Quantizes to the type of this shape.
#[inline(always)]
pub(crate) fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8], shape: Shape) {
    let bytes = shape.head() + 16;
    let row_bytes = weights.n_cols / BLOCK * bytes;
    let (mut room, mut importance_room) = ([0.0; PANEL], [0.0; PANEL]);
    // The blocks of 16 rows are whole panels, and have 16 variances.
    for (x, out) in weights.x.chunks(GROUPS * weights.n_cols).zip(out.chunks_mut(GROUPS * row_bytes)) {
        let mut variance = [0.0; GROUPS];
        if weights.importance.is_some() {
            variance = row_variances(s, x, weights.n_cols);
        }
        for (p, (x, out)) in x.chunks(PANEL).zip(out.chunks_mut(GROUPS * bytes)).enumerate() {
            let x = columns::<S, BLOCK>(s, padded(x, &mut room));
            let found = match importance(weights, p * PANEL, &mut importance_room) {
                Some(q) => {
                    let mut lanes = [0.0; GROUPS];
                    for (g, lane) in lanes.iter_mut().enumerate() {
                        *lane = variance[((p * PANEL + g * BLOCK) / weights.n_cols).min(GROUPS - 1)];
                    }
                    let w = weighted(s, &x, q, s.load(&lanes));
                    searched(s, &x, &w, shape)
                }
                None => direct(s, &x, shape),
            };
            write(s, found, out, shape);
        }
    }
}

/// The mean square of each of up to 16 rows, summed from the first weight to the last.
#[inline(always)]
fn row_variances<S: Simd>(s: S, x: &[f32], n_cols: usize) -> [f32; GROUPS] {
    let mut sums = [0.0; GROUPS];
    if x.len() == GROUPS * n_cols {
        let mut sum = s.splat(0.0);
        for i in 0..n_cols / 4 {
            for x in s.gather_f32(x, n_cols, 4 * i) {
                sum = s.add(sum, s.mul(x, x));
            }
        }
        s.store(sum, &mut sums);
    } else {
        for (x, sum) in x.chunks_exact(n_cols).zip(&mut sums) {
            for x in x {
                *sum += x * x;
            }
        }
    }
    sums.map(|sum| sum / n_cols as f32)
}

/// By the extremes of each block.
#[inline(always)]
fn direct<S: Simd>(s: S, x: &[S::F32; BLOCK], shape: Shape) -> Found<S> {
    let zero = s.splat(0.0);
    let levels = ((1 << shape.bits) - 1) as f32;
    let (d, min, offset) = if shape.with_min {
        let (low, high) = range(s, x);
        (s.div(s.sub(high, low), s.splat(levels)), low, s.splat(0.5))
    } else {
        let half = (1 << (shape.bits - 1)) as f32;
        (s.div(extreme(s, x).0, s.splat(-half)), zero, s.splat(half + 0.5))
    };
    let by = inverse(s, d);
    let beyond = infinite(s, by);
    let mut codes = *x;
    for code in &mut codes {
        let x = if shape.with_min { s.sub(*code, min) } else { *code };
        let near = floor(s, s.add(s.mul(x, by), offset));
        *code = s.select(beyond, zero, s.min(near, s.splat(levels)));
    }
    (d, min, codes)
}

/// By a search for the least weighted error.
#[inline(always)]
fn searched<S: Simd>(s: S, x: &[S::F32; BLOCK], w: &[S::F32; BLOCK], shape: Shape) -> Found<S> {
    let mut codes = *x;
    if shape.with_min {
        let levels = ((1 << shape.bits) - 1) as f32;
        let best = affine(s, x, w, Steps { levels, first: -0.9, step: 0.05, last: 36, absolute: false });
        for code in &mut codes {
            *code = best.code(s, *code);
        }
        (best.scale, negate(s, best.min), codes)
    } else {
        let best = symmetric(s, x, w, (1 << (shape.bits - 1)) as f32);
        for code in &mut codes {
            *code = best.code(s, *code);
        }
        (best.scale, s.splat(0.0), codes)
    }
}

#[inline(always)]
fn write<S: Simd>(s: S, (d, min, codes): Found<S>, out: &mut [u8], shape: Shape) {
    let (d, min, codes) = (halves(s, d), halves(s, min), rows(s, &codes));
    for (g, out) in out.chunks_exact_mut(shape.head() + 16).enumerate() {
        let codes = &codes[g];
        out[..2].copy_from_slice(&d[g]);
        if shape.with_min {
            out[2..4].copy_from_slice(&min[g]);
        }
        let (head, nibbles) = out.split_at_mut(shape.head());
        if shape.bits == 5 {
            let mut fifths = 0u32;
            for (i, code) in codes.iter().enumerate() {
                fifths |= u32::from(code >> 4) << i;
            }
            head[shape.head() - 4..].copy_from_slice(&fifths.to_le_bytes());
        }
        pack_halves(codes, nibbles);
    }
}

/// Low four bits of 32 codes: the first half in low nibbles, the second in high ones.
#[inline(always)]
pub(crate) fn pack_halves(codes: &[u8], out: &mut [u8]) {
    let (low, high) = codes.split_at(16);
    for (out, (low, high)) in out.iter_mut().zip(low.iter().zip(high)) {
        *out = low & 15 | high << 4;
    }
}
