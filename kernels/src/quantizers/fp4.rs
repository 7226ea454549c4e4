//! MXFP4 and NVFP4: four-bit floats with a scale for 32 or for 16 weights.

use qgguf_gguf::blocks::{BlockMXFP4, BlockNVFP4, FP4, e8m0_half, ue4m3_half};

use super::Weights;
use super::lanes::*;
use super::legacy::{BLOCK, PANEL, pack_halves};
use crate::simd::Simd;

/// Replaces weights by the codes with the least error, the first of equals.
#[inline(always)]
fn encode<S: Simd>(s: S, x: &mut [S::F32], scale: S::F32) {
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

/// Quantizes to MXFP4.
#[inline(always)]
pub(crate) fn mxfp4<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
    const BYTES: usize = size_of::<BlockMXFP4>();
    let mut room = [0.0; PANEL];
    for (x, out) in weights.x.chunks(PANEL).zip(out.chunks_mut(GROUPS * BYTES)) {
        let mut x = columns::<S, BLOCK>(s, padded(x, &mut room));
        let exponents = array(s, largest_size(s, &x)).map(e8m0);
        encode(s, &mut x, s.load(&exponents.map(e8m0_half)));
        let codes = rows(s, &x);
        for (g, out) in out.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
            out[0] = exponents[g];
            pack_halves(&codes[g], &mut out[1..]);
        }
    }
}

/// The exponent for a largest weight: 4 to 8 times the scale. That of the logarithm as f32, which may round up.
#[inline(always)]
fn e8m0(largest: f32) -> u8 {
    if largest > 0.0 { ((f64::from(largest).log2() as f32).floor() as i32 - 2 + 127) as u8 } else { 0 }
}

/// Quantizes to NVFP4.
#[inline(always)]
pub(crate) fn nvfp4<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
    const BYTES: usize = size_of::<BlockNVFP4>();
    // Four blocks of four sub-blocks of 16.
    let mut room = [0.0; SUPERBLOCK];
    for (x, out) in weights.x.chunks(SUPERBLOCK).zip(out.chunks_mut(4 * BYTES)) {
        let mut x = columns::<S, GROUPS>(s, padded(x, &mut room));
        let scales = array(s, s.div(largest_size(s, &x), s.splat(6.0))).map(ue4m3);
        encode(s, &mut x, s.load(&scales.map(ue4m3_half)));
        let codes = rows(s, &x);
        for (b, out) in out.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
            out[..4].copy_from_slice(&scales[4 * b..4 * b + 4]);
            for (i, out) in out[4..].as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let (low, high) = codes[4 * b + i].split_at(8);
                for (out, (low, high)) in out.iter_mut().zip(low.iter().zip(high)) {
                    *out = low & 15 | high << 4;
                }
            }
        }
    }
}

/// The unsigned number of four exponent and three mantissa bits that is nearest; halves go up, 448 is the most.
#[inline(always)]
fn ue4m3(x: f32) -> u8 {
    if x <= 0.0 {
        return 0;
    }
    let bits = x.min(448.0).to_bits();
    let exponent = (bits >> 23) as i32 - 127 + 7;
    if exponent <= 0 {
        return (x * 512.0 + 0.5).min(7.0) as u8;
    }
    // A carry out of the mantissa goes to the exponent.
    let number = (exponent << 3 | (bits >> 20 & 7) as i32) + (bits >> 19 & 1) as i32;
    number.min(0x7e) as u8
}
