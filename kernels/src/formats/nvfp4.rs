//! NVFP4: four-bit floats with a scale for 16.

use qgguf_gguf::blocks::{BlockNVFP4, ue4m3_half};

use super::unpack::FP4_ABOVE;
use crate::bits::bits;
use crate::layout::PanelRows;
use crate::quantizers::groups::*;
use crate::quantizers::{Quantize, Weights, fp4};
use crate::simd::Simd;
use crate::tile::{BlockFormat, BlockScales, CodeRange, Sink, TileFormat};

const BYTES: usize = size_of::<BlockNVFP4>();

impl TileFormat for BlockNVFP4 {
    const CODES: CodeRange = CodeRange::Unsigned { max: 24, offset: 12 };
    const QUADS: usize = 4;
}

impl BlockFormat for BlockNVFP4 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: BlockScales<'_>, w: &mut impl Sink<S>) {
        for (sub, d) in out.d.iter_mut().enumerate() {
            for (r, d) in d.iter_mut().enumerate() {
                *d = ue4m3_half(rows.field::<1>(r, sub)[0]);
            }
        }
        for half in 0..2 {
            // In each 8 bytes the low nibbles come first, then the high ones.
            for (j, v) in s.gather(rows, 4 + 16 * half).into_iter().enumerate() {
                let at = 8 * half + j / 2 * 4 + j % 2;
                w.put(s, at, s.lookup(&FP4_ABOVE, bits(s, v, 0, 15)));
                w.put(s, at + 2, s.lookup(&FP4_ABOVE, bits(s, v, 4, 15)));
            }
        }
    }
}

impl Quantize for BlockNVFP4 {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        // Four blocks of four sub-blocks of 16.
        let mut room = [0.0; SUPERBLOCK];
        for (x, out) in weights.x.chunks(SUPERBLOCK).zip(out.chunks_mut(4 * BYTES)) {
            let mut x = columns::<S, GROUPS>(s, padded(x, &mut room));
            let scales = array(s, s.div(largest_size(s, &x), s.splat(6.0))).map(ue4m3);
            fp4::encode(s, &mut x, s.load(&scales.map(ue4m3_half)));
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
