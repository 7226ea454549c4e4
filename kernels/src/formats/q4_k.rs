//! Q4_K: nibbles in 8 sub-blocks of 32 with a scale and a minimum each.

use qgguf_gguf::blocks::BlockQ4K;

use super::unpack::runs_of_nibbles;
use crate::layout::PanelRows;
use crate::quantizers::affine::Steps;
use crate::quantizers::{Quantize, Weights, six_bit};
use crate::simd::Simd;
use crate::tile::{CodeRange, Scales, Sink, SuperblockFormat, TileFormat};

impl TileFormat for BlockQ4K {
    const CODES: CodeRange = CodeRange::Unsigned { max: 15, offset: 0 };
    const QUADS: usize = 8;
    const MIN: bool = true;
}

impl SuperblockFormat for BlockQ4K {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        out.set_six_bit_scales::<S, Self>(s, s.gather(rows, 0));
        runs_of_nibbles(
            s,
            rows,
            16,
            w,
            #[inline(always)]
            |v, _, _| v,
        );
    }
}

impl Quantize for BlockQ4K {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        let steps = Steps { levels: 15.0, first: -1.0, step: 0.1, last: 20, absolute: false };
        six_bit::quantize::<S, { size_of::<BlockQ4K>() }>(s, weights, out, steps);
    }
}
