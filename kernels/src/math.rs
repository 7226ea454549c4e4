//! Transcendental functions of our own, so that every machine gives the same bits.

use crate::simd::Simd;

/// Adding and subtracting this rounds to nearest even, for |x| < 2^22.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts; the first has few enough bits for whole multiples of it to be exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Coefficients of exp(r) for |r| <= ln(2)/2: 1 + r + r² (c0 + c1 r + …).
const EXP: [f32; 6] = [0.5, 0.166_666_65, 0.041_666_55, 8.333_452e-3, 1.393_904e-3, 1.982_6e-4];

/// `exp(x)` to 2 ulp; 0 below -104, infinite above 88.73, NaN for NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // The constants come first, so that a NaN in `x` stays.
    let x = s.min(s.splat(90.0), s.max(s.splat(-105.0), x));
    let (n, r) = reduce(s, x);
    let e = s.mul_add(s.mul(r, r), tail(s, r), s.add(r, s.splat(1.0)));
    // 2^n in two steps, since n may be beyond what one f32 power holds.
    let half = whole(s, s.mul(n, s.splat(0.5)));
    s.mul(s.mul(e, s.exp2_whole(half)), s.exp2_whole(s.sub(n, half)))
}

/// `tanh(x) = e / (e + 2)` with `e = exp(2x) - 1`, computed without cancellation: right to 4 ulp, also near 0.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // Beyond these the result is ±1.
    let x = s.min(s.splat(10.0), s.max(s.splat(-10.0), x));
    let (n, r) = reduce(s, s.add(x, x));
    let power = s.exp2_whole(n);
    let e = s.mul_add(s.mul(r, r), tail(s, r), r);
    let e = s.mul_add(power, e, s.sub(power, s.splat(1.0)));
    s.div(e, s.add(e, s.splat(2.0)))
}

/// The whole number n next to `x / ln 2`, and `r = x - n ln 2`.
#[inline(always)]
fn reduce<S: Simd>(s: S, x: S::F32) -> (S::F32, S::F32) {
    let n = whole(s, s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let r = s.mul_add(n, s.splat(-LN2_HIGH), x);
    (n, s.mul_add(n, s.splat(-LN2_LOW), r))
}

/// The nearest whole number, even ones on ties.
#[inline(always)]
fn whole<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.sub(s.add(x, s.splat(ROUND)), s.splat(ROUND))
}

/// `(exp(r) - 1 - r) / r²` for |r| <= ln(2)/2.
#[inline(always)]
fn tail<S: Simd>(s: S, r: S::F32) -> S::F32 {
    let mut p = s.splat(EXP[5]);
    for c in EXP[..5].iter().rev() {
        p = s.mul_add(p, r, s.splat(*c));
    }
    p
}

/// `x / (1 + exp(-x))`.
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let e = exp(s, s.sub(s.splat(0.0), x));
    s.div(x, s.add(e, s.splat(1.0)))
}

/// The tanh form of GELU: `0.5 x (1 + tanh(sqrt(2/pi) x (1 + 0.044715 x²)))`.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let cubic = s.mul_add(s.mul(x, x), s.splat(0.044_715), s.splat(1.0));
    let t = tanh(s, s.mul(s.mul(x, s.splat(0.797_884_6)), cubic));
    s.mul(s.mul(x, s.splat(0.5)), s.add(t, s.splat(1.0)))
}

/// Sine and cosine of `x` radians, computed in f64 without fused operations and rounded to f32.
///
/// Right to the last bit of f32 or next to it for |x| up to 10^7; meant for angles of rotary embeddings.
pub fn sin_cos(x: f32) -> (f32, f32) {
    // π/2 in two parts; the first has 33 bits, so that whole multiples up to 2^20 are exact.
    const HIGH: f64 = 1.570_796_326_734_125_6;
    const LOW: f64 = 6.077_100_506_506_192e-11;
    let x = f64::from(x);
    if !x.is_finite() {
        return (f32::NAN, f32::NAN);
    }
    let n = (x * std::f64::consts::FRAC_2_PI).round();
    let r = (x - n * HIGH) - n * LOW;
    let z = r * r;
    // Taylor polynomials; beyond π/4 ~ 0.785 the next terms are below 1e-14.
    let mut sin = 0.0;
    for k in (1..=8).rev() {
        sin = (1.0 - sin) * z / f64::from((2 * k) * (2 * k + 1));
    }
    let sin = r * (1.0 - sin);
    let mut cos = 0.0;
    for k in (1..=8).rev() {
        cos = (1.0 - cos) * z / f64::from((2 * k - 1) * (2 * k));
    }
    let cos = 1.0 - cos;
    let (sin, cos) = match (n.rem_euclid(4.0)) as u8 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    };
    (sin as f32, cos as f32)
}
