//! Normalisation of rows.

use crate::simd::Simd;

/// `out = x / sqrt(mean(x²) + eps) * weight`.
#[inline(always)]
pub(crate) fn rms_norm<S: Simd>(s: S, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let (body, tail) = x.as_chunks::<16>();
    let mut sums = s.splat(0.0);
    for chunk in body {
        let v = s.load(chunk);
        sums = s.mul_add(v, v, sums);
    }
    let mut last = [0.0; 16];
    last[..tail.len()].copy_from_slice(tail);
    let last = s.load(&last);
    let sum = s.sum(s.mul_add(last, last, sums));
    let scale = 1.0 / (sum / x.len() as f32 + eps).sqrt();
    for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * w;
    }
}
