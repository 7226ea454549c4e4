//! What MXFP4 and NVFP4 share: the codes of four-bit floats.

use qgguf_gguf::blocks::FP4;

use super::groups::abs;
use crate::simd::Simd;

/// Replaces weights by the codes with the least error, the first of equals.
#[inline(always)]
pub(crate) fn encode<S: Simd>(s: S, x: &mut [S::F32], scale: S::F32) {
    for x in x {
        let (mut code, mut least) = (s.splat(0.0), abs(s, *x));
        // Code 8 is minus zero, as far away as the first.
        for k in (1..8u8).chain(9..16) {
            let error = abs(s, s.sub(s.mul(s.splat(f32::from(FP4[usize::from(k)])), scale), *x));
            let better = s.gt(least, error);
            code = s.select(better, s.splat(f32::from(k)), code);
            least = s.select(better, error, least);
        }
        *x = code;
    }
}
