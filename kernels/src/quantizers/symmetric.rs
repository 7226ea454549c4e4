//! The search for the scale of codes around zero, `x = scale * code`, by weighted least squares.

use super::groups::{Fit, TINY, clamp, differ, extreme, round, round_any};
use crate::simd::Simd;

/// What was found in each lane.
#[derive(Clone, Copy)]
pub(crate) struct Symmetric<S: Simd> {
    pub(crate) scale: S::F32,
    /// What weights were multiplied by to get their codes.
    inverse: S::F32,
    /// Groups of zeros.
    zero: S::Mask,
    /// Codes are from `-half` to `half - 1`.
    half: f32,
}

impl<S: Simd> Symmetric<S> {
    /// The code of a weight, with `half` added; 0 in a group of zeros.
    #[inline(always)]
    pub(crate) fn code(&self, s: S, x: S::F32) -> S::F32 {
        let code = signed_code(s, x, self.inverse, self.half);
        s.select(self.zero, s.splat(0.0), s.add(code, s.splat(self.half)))
    }
}

#[inline(always)]
fn signed_code<S: Simd>(s: S, x: S::F32, inverse: S::F32, half: f32) -> S::F32 {
    clamp(s, round(s, s.mul(inverse, x)), -half, half - 1.0)
}

/// Tries 19 scales for each lane: the one that makes the largest weight `-half`, and some around it.
#[inline(always)]
pub(crate) fn symmetric<S: Simd, const N: usize>(
    s: S,
    x: &[S::F32; N],
    w: &[S::F32; N],
    half: f32,
) -> Symmetric<S> {
    let nothing = s.splat(0.0);
    let (largest, size) = extreme(s, x);
    let mut wx = [nothing; N];
    for i in 0..N {
        wx[i] = s.mul(w[i], x[i]);
    }
    let (mut scale, mut best, mut found) = (nothing, nothing, nothing);
    for step in -10i8..=9 {
        // The plain scale first.
        let step = match step {
            -10 => 0.0,
            0 => continue,
            step => f32::from(step),
        };
        let inverse = s.div(s.splat(-(half + 0.1 * step)), largest);
        let (mut sum_lx, mut sum_l2) = (nothing, nothing);
        for i in 0..N {
            let l = signed_code(s, x[i], inverse, half);
            sum_lx = s.add(sum_lx, s.mul(wx[i], l));
            sum_l2 = s.add(sum_l2, s.mul(s.mul(w[i], l), l));
        }
        let fit = s.div(sum_lx, sum_l2);
        if step == 0.0 {
            scale = s.select(s.eq(sum_l2, nothing), nothing, fit);
            best = s.mul(scale, sum_lx);
            found = inverse;
        } else {
            let better = s.both(s.gt(sum_l2, nothing), s.gt(s.mul(sum_lx, sum_lx), s.mul(best, sum_l2)));
            scale = s.select(better, fit, scale);
            best = s.select(better, s.mul(fit, sum_lx), best);
            found = s.select(better, inverse, found);
        }
    }
    let zero = s.gt(s.splat(TINY), size);
    Symmetric { scale: s.select(zero, nothing, scale), inverse: found, zero, half }
}

/// Improves one code after the other, in up to five sweeps, for codes from -`half` to `half - 1`. Every weight counts
/// by its square. Gives the scale, and the codes with `half` added.
#[inline(always)]
pub(crate) fn sweeps<S: Simd, const N: usize>(s: S, x: &[S::F32; N], half: f32) -> (S::F32, [S::F32; N]) {
    let nothing = s.splat(0.0);
    let (largest, size) = extreme(s, x);
    let inverse = s.div(s.splat(-half), largest);
    let (mut codes, mut fit) = ([nothing; N], Fit::nothing(s));
    for i in 0..N {
        codes[i] = signed_code(s, x[i], inverse, half);
        fit = fit.with(s, s.mul(x[i], x[i]), x[i], codes[i]);
    }
    // A lane without a change has none in the next sweep either, so that all may go on until none has.
    for _ in 0..5 {
        let mut changed = false;
        for i in 0..N {
            let (x, l) = (x[i], codes[i]);
            let w = s.mul(x, x);
            let others = fit.without(s, w, x, l);
            let new = clamp(s, round_any(s, s.div(s.mul(x, others.l2), others.lx)), -half, half - 1.0);
            let with_new = others.with(s, w, x, new);
            let possible = s.both(s.gt(others.lx, nothing), s.gt(with_new.l2, nothing));
            let better = s.both(s.both(possible, with_new.beats(s, fit)), differ(s, new, l));
            codes[i] = s.select(better, new, l);
            fit = with_new.or(s, better, fit);
            changed |= s.any(better);
        }
        if !changed {
            break;
        }
    }
    let zero = s.gt(s.splat(TINY), size);
    for code in &mut codes {
        *code = s.select(zero, nothing, s.add(*code, s.splat(half)));
    }
    (s.select(zero, nothing, fit.scale(s)), codes)
}
