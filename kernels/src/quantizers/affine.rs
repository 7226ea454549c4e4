//! The search for a scale and a minimum, `x = scale * code - min`, by weighted least squares.

use super::groups::{abs, clamp, negate, range, round_any};
use crate::simd::Simd;

/// Which scales are tried, and how errors are measured.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    /// The largest code.
    pub(crate) levels: f32,
    /// The first candidate maps the range to `levels + first` codes.
    pub(crate) first: f32,
    /// The next ones to so many more each.
    pub(crate) step: f32,
    /// How many follow the first.
    pub(crate) last: u8,
    /// Errors count by their size, not by their square.
    pub(crate) absolute: bool,
}

/// What was found in each lane.
#[derive(Clone, Copy)]
pub(crate) struct Affine<S: Simd> {
    pub(crate) scale: S::F32,
    /// Never negative.
    pub(crate) min: S::F32,
    offset: S::F32,
    inverse: S::F32,
    levels: f32,
}

impl<S: Simd> Affine<S> {
    /// The code of a weight.
    #[inline(always)]
    pub(crate) fn code(&self, s: S, x: S::F32) -> S::F32 {
        affine_code(s, x, self.offset, self.inverse, self.levels)
    }
}

#[inline(always)]
fn affine_code<S: Simd>(s: S, x: S::F32, offset: S::F32, inverse: S::F32, levels: f32) -> S::F32 {
    clamp(s, round_any(s, s.mul(inverse, s.sub(x, offset))), 0.0, levels)
}

/// The scale and the minimum of each lane.
#[inline(always)]
pub(crate) fn affine<S: Simd, const N: usize>(
    s: S,
    x: &[S::F32; N],
    w: &[S::F32; N],
    steps: Steps,
) -> Affine<S> {
    let Steps { levels, .. } = steps;
    let nothing = s.splat(0.0);
    let (low, high) = range(s, x);
    let (mut sum_w, mut sum_x) = (w[0], s.mul(w[0], x[0]));
    for i in 1..N {
        sum_w = s.add(sum_w, w[i]);
        sum_x = s.add(sum_x, s.mul(w[i], x[i]));
    }
    let low = s.select(s.gt(low, nothing), nothing, low);
    let flat = s.eq(low, high);

    let mut codes = [nothing; N];
    let first = s.div(s.splat(levels), s.sub(high, low));
    for i in 0..N {
        codes[i] = affine_code(s, x[i], low, first, levels);
    }
    let mut scale = s.div(s.splat(1.0), first);
    let mut best = error(s, x, w, &codes, scale, low, steps.absolute);
    let (mut current, mut inverse, mut offset) = (low, first, low);
    for k in 0..=steps.last {
        let spread = steps.first + steps.step * f32::from(k) + levels;
        let candidate = s.div(s.splat(spread), s.sub(high, current));
        let (mut sum_l, mut sum_l2, mut sum_xl) = (nothing, nothing, nothing);
        for i in 0..N {
            let l = affine_code(s, x[i], current, candidate, levels);
            codes[i] = l;
            let wl = s.mul(w[i], l);
            sum_l = s.add(sum_l, wl);
            sum_l2 = s.add(sum_l2, s.mul(wl, l));
            sum_xl = s.add(sum_xl, s.mul(wl, x[i]));
        }
        let d = s.sub(s.mul(sum_w, sum_l2), s.mul(sum_l, sum_l));
        let new_scale = s.div(s.sub(s.mul(sum_w, sum_xl), s.mul(sum_x, sum_l)), d);
        let new_min = s.div(s.sub(s.mul(sum_l2, sum_x), s.mul(sum_l, sum_xl)), d);
        let above = s.gt(new_min, nothing);
        let new_scale = s.select(above, s.div(sum_xl, sum_l2), new_scale);
        let new_min = s.select(above, nothing, new_min);
        let new_error = error(s, x, w, &codes, new_scale, new_min, steps.absolute);
        let better = s.both(s.gt(d, nothing), s.gt(best, new_error));
        best = s.select(better, new_error, best);
        scale = s.select(better, new_scale, scale);
        inverse = s.select(better, candidate, inverse);
        offset = s.select(better, current, offset);
        current = s.select(better, new_min, current);
    }
    Affine {
        scale: s.select(flat, nothing, scale),
        min: negate(s, s.select(flat, low, current)),
        offset,
        inverse: s.select(flat, nothing, inverse),
        levels,
    }
}

/// The weighted error of `scale * code + min`.
#[inline(always)]
fn error<S: Simd, const N: usize>(
    s: S,
    x: &[S::F32; N],
    w: &[S::F32; N],
    codes: &[S::F32; N],
    scale: S::F32,
    min: S::F32,
    absolute: bool,
) -> S::F32 {
    let mut sum = s.splat(0.0);
    for i in 0..N {
        let e = s.sub(s.add(s.mul(scale, codes[i]), min), x[i]);
        let e = if absolute { abs(s, e) } else { s.mul(e, e) };
        sum = s.add(sum, s.mul(w[i], e));
    }
    sum
}
