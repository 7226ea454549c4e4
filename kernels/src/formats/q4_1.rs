//! Q4_1: nibbles and a minimum.

use qgguf_gguf::blocks::BlockQ4_1;

use super::unpack::nibbles;
use crate::bits::two_halves;
use crate::layout::PanelRows;
use crate::quantizers::blocks32::Shape;
use crate::quantizers::{Quantize, Weights, blocks32};
use crate::simd::Simd;
use crate::tile::{BlockFormat, BlockScales, CodeRange, Sink, TileFormat};

impl TileFormat for BlockQ4_1 {
    const CODES: CodeRange = CodeRange::Unsigned { max: 15, offset: 0 };
    const MIN: bool = true;
}

impl BlockFormat for BlockQ4_1 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: BlockScales<'_>, w: &mut impl Sink<S>) {
        two_halves(s, s.gather_one(rows, 0), &mut out.d[0], out.m);
        nibbles(
            s,
            s.gather(rows, 4),
            w,
            #[inline(always)]
            |v, _| v,
        );
    }
}

impl Quantize for BlockQ4_1 {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        blocks32::quantize(s, weights, out, Shape { bits: 4, with_min: true });
    }
}
