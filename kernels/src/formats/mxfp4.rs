//! MXFP4: four-bit floats with a scale for 32.

use qgguf_gguf::blocks::{BlockMXFP4, e8m0_half};

use super::unpack::{FP4_ABOVE, nibbles};
use crate::layout::PanelRows;
use crate::quantizers::blocks32::{BLOCK, PANEL, pack_halves};
use crate::quantizers::groups::*;
use crate::quantizers::{Quantize, Weights, fp4};
use crate::simd::Simd;
use crate::tile::{BlockFormat, BlockScales, CodeRange, Sink, TileFormat};

const BYTES: usize = size_of::<BlockMXFP4>();

impl TileFormat for BlockMXFP4 {
    const CODES: CodeRange = CodeRange::Unsigned { max: 24, offset: 12 };
}

impl BlockFormat for BlockMXFP4 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: BlockScales<'_>, w: &mut impl Sink<S>) {
        for (r, d) in out.d[0].iter_mut().enumerate() {
            *d = e8m0_half(rows.field::<1>(r, 0)[0]);
        }
        nibbles(
            s,
            s.gather(rows, 1),
            w,
            #[inline(always)]
            |v, _| s.lookup(&FP4_ABOVE, v),
        );
    }
}

impl Quantize for BlockMXFP4 {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        let mut room = [0.0; PANEL];
        for (x, out) in weights.x.chunks(PANEL).zip(out.chunks_mut(GROUPS * BYTES)) {
            let mut x = columns::<S, BLOCK>(s, padded(x, &mut room));
            let exponents = array(s, largest_size(s, &x)).map(e8m0);
            fp4::encode(s, &mut x, s.load(&exponents.map(e8m0_half)));
            let codes = rows(s, &x);
            for (g, out) in out.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
                out[0] = exponents[g];
                pack_halves(&codes[g], &mut out[1..]);
            }
        }
    }

    #[inline(always)]
    fn in_range(block: &[u8]) -> bool {
        block[0] != 0xff
    }
}

/// The exponent for a largest weight: 4 to 8 times the scale. That of the logarithm as f32, which may round up.
#[inline(always)]
fn e8m0(largest: f32) -> u8 {
    if largest > 0.0 { ((f64::from(largest).log2() as f32).floor() as i32 - 2 + 127) as u8 } else { 0 }
}
