//! What IQ4_NL and IQ4_XS share: the search for the scale of 32 codes that stand for 16 values, closer around zero.

use qgguf_gguf::blocks::NL4;

use super::blocks32::BLOCK;
use super::groups::*;
use crate::simd::Simd;

/// Candidates on either side of the scale that makes the largest weight the first value.
const TRIES: i8 = 7;

/// The code whose value is nearest, the higher of two as near.
#[inline(always)]
pub(crate) fn nearest_code<S: Simd>(s: S, v: S::F32) -> S::F32 {
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
pub(crate) fn scale_of<S: Simd>(s: S, x: &[S::F32; BLOCK], w: &[S::F32; BLOCK]) -> S::F32 {
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
pub(crate) fn squares<S: Simd>(s: S, x: &[S::F32; BLOCK]) -> [S::F32; BLOCK] {
    let mut w = *x;
    for w in &mut w {
        *w = s.mul(*w, *w);
    }
    w
}
