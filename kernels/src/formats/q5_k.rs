//! Q5_K: five bits in 8 sub-blocks of 32 with a scale and a minimum each.

use qgguf_gguf::blocks::BlockQ5K;

use super::unpack::runs_of_nibbles;
use crate::bits::splat_bytes;
use crate::layout::PanelRows;
use crate::quantizers::affine::Steps;
use crate::quantizers::{Quantize, Weights, six_bit};
use crate::simd::Simd;
use crate::tile::{CodeRange, Scales, Sink, SuperblockFormat, TileFormat};

impl TileFormat for BlockQ5K {
    const CODES: CodeRange = CodeRange::Unsigned { max: 31, offset: 0 };
    const QUADS: usize = 8;
    const MIN: bool = true;
}

impl SuperblockFormat for BlockQ5K {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        out.set_six_bit_scales::<S, Self>(s, s.gather(rows, 0));
        let high = [s.gather(rows, 16), s.gather(rows, 32)];
        runs_of_nibbles(
            s,
            rows,
            48,
            w,
            #[inline(always)]
            |v, run, quad| {
                let high = high[quad / 4][quad % 4];
                let fifth = if run < 4 { s.shl(high, 4 - run as u32) } else { s.shr(high, run as u32 - 4) };
                s.or(v, s.and(fifth, splat_bytes(s, 16)))
            },
        );
    }
}

impl Quantize for BlockQ5K {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        let steps = Steps { levels: 31.0, first: -0.5, step: 0.1, last: 15, absolute: false };
        six_bit::quantize::<S, { size_of::<BlockQ5K>() }>(s, weights, out, steps);
    }
}
