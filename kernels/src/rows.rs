//! Operations on rows of f32: norms, activation functions, softmax.

use crate::math;
use crate::simd::{Simd, dot, load_tail, map_in_place, zip_in_place};

/// `x = x / sqrt(mean(x²) + eps) * weight` for one row.
#[inline(always)]
pub(crate) fn rms_norm<S: Simd>(s: S, x: &mut [f32], weight: &[f32], eps: f32) {
    let scale = 1.0 / (dot(s, x, x) / x.len() as f32 + eps).sqrt();
    let scale = s.splat(scale);
    zip_in_place(
        s,
        x,
        weight,
        #[inline(always)]
        |x, w| s.mul(s.mul(x, scale), w),
    );
}

/// `x += y`.
#[inline(always)]
pub(crate) fn add<S: Simd>(s: S, x: &mut [f32], y: &[f32]) {
    zip_in_place(
        s,
        x,
        y,
        #[inline(always)]
        |x, y| s.add(x, y),
    );
}

/// `x *= factor`.
#[inline(always)]
pub(crate) fn scale<S: Simd>(s: S, x: &mut [f32], factor: f32) {
    let factor = s.splat(factor);
    map_in_place(
        s,
        x,
        #[inline(always)]
        |x| s.mul(x, factor),
    );
}

/// `gate = silu(gate) * up`.
#[inline(always)]
pub(crate) fn swiglu<S: Simd>(s: S, gate: &mut [f32], up: &[f32]) {
    zip_in_place(
        s,
        gate,
        up,
        #[inline(always)]
        |gate, up| s.mul(math::silu(s, gate), up),
    );
}

/// `gate = gelu(gate) * up`.
#[inline(always)]
pub(crate) fn geglu<S: Simd>(s: S, gate: &mut [f32], up: &[f32]) {
    zip_in_place(
        s,
        gate,
        up,
        #[inline(always)]
        |gate, up| s.mul(math::gelu(s, gate), up),
    );
}

/// `x = cap * tanh(x / cap)`.
#[inline(always)]
pub(crate) fn softcap<S: Simd>(s: S, x: &mut [f32], cap: f32) {
    let cap = s.splat(cap);
    map_in_place(
        s,
        x,
        #[inline(always)]
        |x| s.mul(cap, math::tanh(s, s.div(x, cap))),
    );
}

/// `x = exp(x)`.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: &mut [f32]) {
    map_in_place(
        s,
        x,
        #[inline(always)]
        |x| math::exp(s, x),
    );
}

/// The largest value; minus infinity for an empty row. NaN is passed over.
#[inline(always)]
pub(crate) fn largest<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (body, tail) = x.as_chunks::<16>();
    let mut lanes = s.splat(f32::NEG_INFINITY);
    for chunk in body {
        // The running value comes second: it stays when the new one is NaN.
        lanes = s.max(s.load(chunk), lanes);
    }
    let mut out = [0.0; 16];
    s.store(lanes, &mut out);
    out.iter().chain(tail).fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m })
}

/// Replaces a row by `exp(x - largest)` and returns `(largest, sum)`; the sum is the contract's.
#[inline(always)]
pub(crate) fn exp_sum<S: Simd>(s: S, x: &mut [f32]) -> (f32, f32) {
    let max = largest(s, x);
    let max_lanes = s.splat(max);
    map_in_place(
        s,
        x,
        #[inline(always)]
        |x| math::exp(s, s.sub(x, max_lanes)),
    );
    let (body, tail) = x.as_chunks::<16>();
    let mut sums = s.splat(0.0);
    for chunk in body {
        sums = s.add(sums, s.load(chunk));
    }
    (max, s.sum(s.add(sums, load_tail(s, tail))))
}

/// `x = exp(x) / sum(exp(x))` for one row.
#[inline(always)]
pub(crate) fn softmax<S: Simd>(s: S, x: &mut [f32]) {
    let (_, sum) = exp_sum(s, x);
    let sum = s.splat(sum);
    map_in_place(
        s,
        x,
        #[inline(always)]
        |x| s.div(x, sum),
    );
}
