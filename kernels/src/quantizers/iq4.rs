//! IQ4_NL and IQ4_XS: codes of 16 values that are closer around zero, in blocks and sub-blocks of 32.

use qgguf_gguf::blocks::{BlockIQ4NL, BlockIQ4XS, NL4};

use super::Weights;
use super::lanes::*;
use super::legacy::{BLOCK, PANEL, pack_halves};
use crate::simd::Simd;

/// Candidates on either side of the scale that makes the largest weight the first value.
const TRIES: i8 = 7;

/// The code whose value is nearest, the higher of two as near.
#[inline(always)]
fn nearest_code<S: Simd>(s: S, v: S::F32) -> S::F32 {
    let mut code = s.splat(0.0);
    for k in 1..16u8 {
        code = s.select(s.gt(middle(s, k), v), code, s.splat(f32::from(k)));
    }
    code
}

/// The value that is nearest, the higher of two as near.
#[inline(always)]
fn nearest_value<S: Simd>(s: S, v: S::F32) -> S::F32 {
    let mut value = s.splat(f32::from(NL4[0]));
    for k in 1..16u8 {
        value = s.select(s.gt(middle(s, k), v), value, s.splat(f32::from(NL4[usize::from(k)])));
    }
    value
}

/// What is from here on is nearer to value `k` than to the one before.
#[inline(always)]
fn middle<S: Simd>(s: S, k: u8) -> S::F32 {
    s.splat((f32::from(NL4[usize::from(k)]) + f32::from(NL4[usize::from(k) - 1])) / 2.0)
}

/// The scale of each lane, by weighted least squares among 16 candidates; 0 for zeros.
#[inline(always)]
fn scale_of<S: Simd>(s: S, x: &[S::F32; BLOCK], w: &[S::F32; BLOCK]) -> S::F32 {
    let nothing = s.splat(0.0);
    let (largest, size) = extreme(s, x);
    let first = s.div(s.splat(1.0), s.div(largest, s.splat(-f32::from(NL4[0]))));
    let (mut sum_vx, mut sum_v2) = (nothing, nothing);
    for i in 0..BLOCK {
        let v = nearest_value(s, s.mul(first, x[i]));
        let wv = s.mul(w[i], v);
        sum_vx = s.add(sum_vx, s.mul(wv, x[i]));
        sum_v2 = s.add(sum_v2, s.mul(wv, v));
    }
    let fit = s.div(sum_vx, sum_v2);
    let mut scale = s.select(s.gt(sum_v2, nothing), fit, nothing);
    let mut best = s.mul(scale, sum_vx);

    // From the first candidate to the last a weight moves by less than from one middle to the next, so that it has
    // one of two values that are neighbours, or the same.
    let by_try = |t: i8| f32::from(t) + f32::from(NL4[0]);
    let (start, end) = (s.div(s.splat(by_try(-TRIES)), largest), s.div(s.splat(by_try(TRIES)), largest));
    let (mut low, mut high, mut between) = (*x, *x, *x);
    for i in 0..BLOCK {
        let (a, b) = (nearest_value(s, s.mul(start, x[i])), nearest_value(s, s.mul(end, x[i])));
        low[i] = s.min(a, b);
        high[i] = s.max(a, b);
        between[i] = s.mul(s.add(a, b), s.splat(0.5));
    }
    for t in -TRIES..=TRIES {
        let candidate = s.div(s.splat(by_try(t)), largest);
        let (mut sum_vx, mut sum_v2) = (nothing, nothing);
        for i in 0..BLOCK {
            let v = s.select(s.gt(between[i], s.mul(candidate, x[i])), low[i], high[i]);
            let wv = s.mul(w[i], v);
            sum_vx = s.add(sum_vx, s.mul(wv, x[i]));
            sum_v2 = s.add(sum_v2, s.mul(wv, v));
        }
        let better = s.both(s.gt(sum_v2, nothing), s.gt(s.mul(sum_vx, sum_vx), s.mul(best, sum_v2)));
        let fit = s.div(sum_vx, sum_v2);
        scale = s.select(better, fit, scale);
        best = s.select(better, s.mul(fit, sum_vx), best);
    }
    s.select(s.gt(s.splat(TINY), size), nothing, scale)
}

/// Without importance each weight counts by its square.
#[inline(always)]
fn squares<S: Simd>(s: S, x: &[S::F32; BLOCK]) -> [S::F32; BLOCK] {
    let mut w = *x;
    for w in &mut w {
        *w = s.mul(*w, *w);
    }
    w
}

/// Quantizes to IQ4_NL.
#[inline(always)]
pub(crate) fn iq4_nl<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
    const BYTES: usize = size_of::<BlockIQ4NL>();
    let (mut room, mut importance_room) = ([0.0; PANEL], [0.0; PANEL]);
    for (p, (x, out)) in weights.x.chunks(PANEL).zip(out.chunks_mut(GROUPS * BYTES)).enumerate() {
        let mut x = columns::<S, BLOCK>(s, padded(x, &mut room));
        let w = match importance(weights, p * PANEL, &mut importance_room) {
            Some(q) => {
                let variance = s.mul(sum_of_squares(s, &x), s.splat(2.0 / BLOCK as f32));
                weighted(s, &x, q, variance)
            }
            None => squares(s, &x),
        };
        let d = scale_of(s, &x, &w);
        let by = inverse(s, d);
        for x in &mut x {
            *x = nearest_code(s, s.mul(by, *x));
        }
        let (d, codes) = (halves(s, d), rows(s, &x));
        for (g, out) in out.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
            out[..2].copy_from_slice(&d[g]);
            pack_halves(&codes[g], &mut out[2..]);
        }
    }
}

/// Quantizes to IQ4_XS.
#[inline(always)]
pub(crate) fn iq4_xs<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
    const BYTES: usize = size_of::<BlockIQ4XS>();
    let (mut room, mut importance_room) = ([0.0; BATCH], [0.0; PANEL]);
    let batches = weights.x.chunks(BATCH).zip(out.chunks_mut(GROUPS * BYTES));
    for (b, (x, out)) in batches.enumerate() {
        let x = padded(x, &mut room);
        let mut variance = [0.0; GROUPS];
        if weights.importance.is_some() {
            variance = superblock_squares(s, x).map(|sum| sum * (2.0 / SUPERBLOCK as f32));
        }
        let panels = x.as_chunks::<PANEL>().0.iter().zip(out.chunks_mut(2 * BYTES));
        for (p, (x, out)) in panels.enumerate() {
            let x = columns::<S, BLOCK>(s, x);
            let w = match importance(weights, b * BATCH + p * PANEL, &mut importance_room) {
                Some(q) => weighted(s, &x, q, of_superblock::<S, BLOCK>(s, &variance, p)),
                None => squares(s, &x),
            };
            let scales = array(s, scale_of(s, &x, &w));
            let (mut steps, mut heads) = ([[0.0; 8]; 2], [[0; 8]; 2]);
            for ((scales, steps), head) in scales.as_chunks::<8>().0.iter().zip(&mut steps).zip(&mut heads) {
                *head = super_scale(scales, steps);
            }
            let by = inverse(s, s.load(steps.as_flattened().first_chunk().expect("16 steps")));
            let mut codes = x;
            for code in &mut codes {
                *code = nearest_code(s, s.mul(by, *code));
            }
            let codes = rows(s, &codes);
            for (i, out) in out.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
                out[..8].copy_from_slice(&heads[i]);
                for (g, out) in out[8..].as_chunks_mut::<16>().0.iter_mut().enumerate() {
                    pack_halves(&codes[8 * i + g], out);
                }
            }
        }
    }
}

/// Quantizes the scales of a superblock to six bits: the bytes before the nibbles, and the scales that the codes are
/// made with, which are not those of the rounded super-scale.
#[inline(always)]
fn super_scale(scales: &[f32; 8], steps: &mut [f32; 8]) -> [u8; 8] {
    let mut extreme = 0f32;
    for &scale in scales {
        extreme = if scale.abs() > extreme.abs() { scale } else { extreme };
    }
    let d = -extreme / 32.0;
    let by = if d != 0.0 { 1.0 / d } else { 0.0 };
    let mut head = [0; 8];
    head[..2].copy_from_slice(&half(d).1);
    let mut high = 0u16;
    for (g, (scale, step)) in scales.iter().zip(steps).enumerate() {
        let code = nearest(by * scale).clamp(-32, 31);
        *step = d * code as f32;
        let code = (code + 32) as u8;
        head[4 + g / 2] |= (code & 15) << (4 * (g % 2));
        high |= u16::from(code >> 4) << (2 * g);
    }
    head[2..4].copy_from_slice(&high.to_le_bytes());
    head
}
