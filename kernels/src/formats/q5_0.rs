//! Q5_0: five bits around zero.

use qgguf_gguf::blocks::BlockQ5_0;

use super::unpack::five_bits;
use crate::layout::PanelRows;
use crate::quantizers::blocks32::Shape;
use crate::quantizers::{Quantize, Weights, blocks32};
use crate::simd::Simd;
use crate::tile::{BlockFormat, BlockScales, CodeRange, Sink, TileFormat};

impl TileFormat for BlockQ5_0 {
    const CODES: CodeRange = CodeRange::Unsigned { max: 31, offset: 16 };
}

impl BlockFormat for BlockQ5_0 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: BlockScales<'_>, w: &mut impl Sink<S>) {
        s.store(s.halves(s.gather_one(rows, 0)), &mut out.d[0]);
        five_bits(s, s.gather(rows, 6), s.gather_one(rows, 2), w);
    }
}

impl Quantize for BlockQ5_0 {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        blocks32::quantize(s, weights, out, Shape { bits: 5, with_min: false });
    }
}
