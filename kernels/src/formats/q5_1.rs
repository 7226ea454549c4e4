//! Q5_1: five bits and a minimum.

use qgguf_gguf::blocks::BlockQ5_1;

use super::unpack::five_bits;
use crate::bits::two_halves;
use crate::layout::PanelRows;
use crate::quantizers::blocks32::Shape;
use crate::quantizers::{Quantize, Weights, blocks32};
use crate::simd::Simd;
use crate::tile::{BlockFormat, BlockScales, CodeRange, Sink, TileFormat};

impl TileFormat for BlockQ5_1 {
    const CODES: CodeRange = CodeRange::Unsigned { max: 31, offset: 0 };
    const MIN: bool = true;
}

impl BlockFormat for BlockQ5_1 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: BlockScales<'_>, w: &mut impl Sink<S>) {
        two_halves(s, s.gather_one(rows, 0), &mut out.d[0], out.m);
        five_bits(s, s.gather(rows, 8), s.gather_one(rows, 4), w);
    }
}

impl Quantize for BlockQ5_1 {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        blocks32::quantize(s, weights, out, Shape { bits: 5, with_min: true });
    }
}
