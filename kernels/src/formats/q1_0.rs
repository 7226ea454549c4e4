//! Q1_0: signs, and their mean size for 128.

use half::f16;
use qgguf_gguf::blocks::BlockQ1_0;

use crate::quantizers::{Quantize, Weights};
use crate::simd::Simd;

const BYTES: usize = size_of::<BlockQ1_0>();

impl Quantize for BlockQ1_0 {
    #[inline(always)]
    fn quantize<S: Simd>(_: S, weights: Weights<'_>, out: &mut [u8]) {
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
}
