//! Q1_0 and Q2_0: one and two bits for each weight, and a scale for 128 or 64.

use half::f16;
use qgguf_gguf::blocks::{BlockQ1_0, BlockQ2_0};

use super::Weights;
use crate::simd::Simd;

/// Quantizes to Q1_0: the signs, and the mean size.
#[inline(always)]
pub(crate) fn q1_0<S: Simd>(_: S, weights: Weights<'_>, out: &mut [u8]) {
    const BYTES: usize = size_of::<BlockQ1_0>();
    for (x, out) in weights.x.as_chunks::<128>().0.iter().zip(out.as_chunks_mut::<BYTES>().0) {
        let mut sum = 0.0;
        for x in x {
            sum += x.abs();
        }
        out[..2].copy_from_slice(&f16::from_f32(sum / 128.0).to_le_bytes());
        for (x, out) in x.as_chunks::<8>().0.iter().zip(&mut out[2..]) {
            *out = 0;
            for (j, &x) in x.iter().enumerate() {
                *out |= u8::from(x >= 0.0) << j;
            }
        }
    }
}

/// Quantizes to Q2_0: multiples of the largest size, rounded.
#[inline(always)]
pub(crate) fn q2_0<S: Simd>(_: S, weights: Weights<'_>, out: &mut [u8]) {
    const BYTES: usize = size_of::<BlockQ2_0>();
    for (x, out) in weights.x.as_chunks::<64>().0.iter().zip(out.as_chunks_mut::<BYTES>().0) {
        let mut largest = 0f32;
        for x in x {
            largest = if x.abs() > largest { x.abs() } else { largest };
        }
        let inverse = if largest > 0.0 { 1.0 / largest } else { 0.0 };
        out[..2].copy_from_slice(&f16::from_f32(largest).to_le_bytes());
        for (x, out) in x.as_chunks::<4>().0.iter().zip(&mut out[2..]) {
            *out = 0;
            for (j, &x) in x.iter().enumerate() {
                // At most 1 in size: rounding away from 0 is a comparison. Where the inverse is infinite codes are 0.
                let v = x * inverse;
                let code = match () {
                    _ if !v.is_finite() || v <= -0.5 => 0,
                    _ if v >= 0.5 => 2,
                    _ => 1,
                };
                *out |= code << (2 * j);
            }
        }
    }
}
