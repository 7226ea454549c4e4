//! The quantization of the scales (or minima) of a superblock: whole numbers from 0 and one scale, by weighted least
//! squares. A lane holds a superblock, a vector one of its sub-blocks.

use super::groups::{Fit, GROUPS, TINY, byte, columns, differ, nearest, round_any, rows};
use crate::simd::Simd;

/// The scales of 16 superblocks: the common scale of each, and codes from 0 to `levels`.
pub(crate) struct SuperScales<const N: usize> {
    pub(crate) d: [f32; GROUPS],
    pub(crate) codes: [[u8; N]; GROUPS],
}

/// Maps the largest to `levels`, for the `N` scales of each of up to 16 superblocks, as a weightless search does.
/// Codes wrap to bytes and end at `most`.
#[inline(always)]
pub(crate) fn by_largest<const N: usize>(
    values: &[[f32; N]; GROUPS],
    levels: f32,
    most: u8,
) -> SuperScales<N> {
    let mut out = SuperScales { d: [0.0; GROUPS], codes: [[0; N]; GROUPS] };
    for (values, (d, codes)) in values.iter().zip(out.d.iter_mut().zip(&mut out.codes)) {
        let mut largest = 0.0;
        for &v in values {
            largest = if v > largest { v } else { largest };
        }
        if largest > 0.0 {
            let inverse = levels / largest;
            *d = largest / levels;
            for (code, v) in codes.iter_mut().zip(values) {
                *code = (nearest(inverse * v) as u8).min(most);
            }
        }
    }
    out
}

/// The weighted error of the codes that `inverse` gives, up to `most`, or wrapped to bytes.
#[inline(always)]
fn error<S: Simd, const N: usize>(
    s: S,
    x: &[S::F32; N],
    w: &[S::F32; N],
    inverse: S::F32,
    most: S::F32,
    wrap: bool,
) -> S::F32 {
    let scale = s.div(s.splat(1.0), inverse);
    let mut sum = s.splat(0.0);
    for i in 0..N {
        let l = round_any(s, s.mul(inverse, x[i]));
        let l = if wrap { wrapped(s, l) } else { s.min(l, most) };
        let e = s.sub(x[i], s.mul(scale, l));
        sum = s.add(sum, s.mul(s.mul(w[i], e), e));
    }
    sum
}

/// A byte that a whole number is stored in, as a number again.
#[inline(always)]
fn wrapped<S: Simd>(s: S, v: S::F32) -> S::F32 {
    s.sub(s.of_bits(s.or(byte(s, v), s.splat_i32(0x4b00_0000))), s.splat(8_388_608.0))
}

/// The least squares fit, with the weight of each value.
#[inline(always)]
pub(crate) fn fitted<S: Simd, const N: usize>(
    s: S,
    values: &[[f32; N]; GROUPS],
    weights: &[[f32; N]; GROUPS],
    levels: f32,
) -> SuperScales<N> {
    let nothing = s.splat(0.0);
    let x = columns::<S, N>(s, values.as_flattened());
    let w = columns::<S, N>(s, weights.as_flattened());
    let most = s.splat(levels);
    let mut largest = nothing;
    for &x in &x {
        largest = s.max(x, largest);
    }

    let mut inverse = s.div(most, largest);
    let mut best = error(s, &x, &w, inverse, most, true);
    for step in -4i8..=4 {
        if step == 0 {
            continue;
        }
        let candidate = s.div(s.splat(0.1 * f32::from(step) + levels), largest);
        let new = error(s, &x, &w, candidate, most, false);
        let better = s.gt(best, new);
        best = s.select(better, new, best);
        inverse = s.select(better, candidate, inverse);
    }

    let (mut codes, mut fit) = ([nothing; N], Fit::nothing(s));
    for i in 0..N {
        let l = s.min(round_any(s, s.mul(inverse, x[i])), most);
        codes[i] = wrapped(s, l);
        fit = fit.with(s, w[i], x[i], l);
    }
    // A lane without a change has none in the next sweep either, so that all may go on until none has.
    for _ in 0..5 {
        let mut changed = false;
        for i in 0..N {
            let (x, w, l) = (x[i], w[i], codes[i]);
            let others = fit.without(s, w, x, l);
            let new = s.min(round_any(s, s.div(s.mul(x, others.l2), others.lx)), most);
            let with_new = others.with(s, w, x, new);
            let possible = s.both(s.gt(others.lx, nothing), s.gt(others.l2, nothing));
            let better = s.both(s.both(possible, with_new.beats(s, fit)), differ(s, new, l));
            codes[i] = s.select(better, wrapped(s, new), l);
            fit = with_new.or(s, better, fit);
            changed |= s.any(better);
        }
        if !changed {
            break;
        }
    }
    let zero = s.gt(s.splat(TINY), largest);
    for code in &mut codes {
        *code = s.select(zero, nothing, *code);
    }
    let mut out = SuperScales { d: [0.0; GROUPS], codes: rows(s, &codes) };
    s.store(s.select(zero, nothing, fit.scale(s)), &mut out.d);
    out
}
