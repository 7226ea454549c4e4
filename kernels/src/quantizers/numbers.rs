//! Types that are no blocks: f32, f16, bf16, narrowed with rounding to nearest even, widened exactly.

use half::{bf16, f16};

use super::Weights;
use crate::simd::Simd;

/// To f32.
pub(super) fn copy(x: &[f32], out: &mut [u8]) {
    for (out, x) in out.as_chunks_mut().0.iter_mut().zip(x) {
        *out = x.to_le_bytes();
    }
}

/// To f16.
#[inline(always)]
pub(crate) fn narrow_f16<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
    let (x, x_tail) = weights.x.as_chunks::<16>();
    let (body, tail) = out.split_at_mut(32 * x.len());
    for (x, out) in x.iter().zip(body.as_chunks_mut::<32>().0) {
        s.store_f16(s.load(x), out);
    }
    for (x, out) in x_tail.iter().zip(tail.as_chunks_mut().0) {
        *out = f16::from_f32(*x).to_le_bytes();
    }
}

/// To bf16; there is no NaN.
#[inline(always)]
pub(crate) fn narrow_bf16<S: Simd>(_: S, weights: Weights<'_>, out: &mut [u8]) {
    for (x, out) in weights.x.iter().zip(out.as_chunks_mut().0) {
        let bits = x.to_bits();
        *out = (((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16).to_le_bytes();
    }
}

/// From f16, two bytes for each number.
#[inline(always)]
pub(crate) fn widen_f16<S: Simd>(s: S, x: &[u8], out: &mut [f32]) {
    let (body, tail) = out.as_chunks_mut::<16>();
    let (x, x_tail) = x.as_chunks::<32>();
    for (x, out) in x.iter().zip(body) {
        s.store(s.load_f16(x), out);
    }
    for (&x, out) in x_tail.as_chunks().0.iter().zip(tail) {
        *out = f16::from_le_bytes(x).to_f32();
    }
}

/// From bf16, two bytes for each number.
#[inline(always)]
pub(crate) fn widen_bf16<S: Simd>(s: S, x: &[u8], out: &mut [f32]) {
    let (body, tail) = out.as_chunks_mut::<16>();
    let (x, x_tail) = x.as_chunks::<32>();
    for (x, out) in x.iter().zip(body) {
        s.store(s.load_bf16(x), out);
    }
    for (&x, out) in x_tail.as_chunks().0.iter().zip(tail) {
        *out = bf16::from_le_bytes(x).to_f32();
    }
}
