//! Q2_0: multiples of the largest size of 64, rounded.

use half::f16;
use qgguf_gguf::blocks::BlockQ2_0;

use crate::quantizers::{Quantize, Weights};
use crate::simd::Simd;

const BYTES: usize = size_of::<BlockQ2_0>();

impl Quantize for BlockQ2_0 {
    #[inline(always)]
    fn quantize<S: Simd>(_: S, weights: Weights<'_>, out: &mut [u8]) {
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
}
