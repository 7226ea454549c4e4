//! Q4_0: nibbles around zero.

use qgguf_gguf::blocks::BlockQ4_0;

use super::unpack::nibbles;
use crate::layout::PanelRows;
use crate::quantizers::blocks32::Shape;
use crate::quantizers::{Quantize, Weights, blocks32};
use crate::simd::Simd;
use crate::tile::{BlockFormat, BlockScales, CodeRange, Sink, TileFormat};

impl TileFormat for BlockQ4_0 {
    const CODES: CodeRange = CodeRange::Unsigned { max: 15, offset: 8 };
}

impl BlockFormat for BlockQ4_0 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: BlockScales<'_>, w: &mut impl Sink<S>) {
        s.store(s.halves(s.gather_one(rows, 0)), &mut out.d[0]);
        nibbles(
            s,
            s.gather(rows, 2),
            w,
            #[inline(always)]
            |v, _| v,
        );
    }
}

impl Quantize for BlockQ4_0 {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        blocks32::quantize(s, weights, out, Shape { bits: 4, with_min: false });
    }
}
