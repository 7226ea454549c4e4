//! TQ2_0: ternary weights, four to a byte.

use qgguf_gguf::blocks::BlockTQ2_0;

use super::unpack::two_bits;
use crate::layout::PanelRows;
use crate::quantizers::groups::*;
use crate::quantizers::{Quantize, Weights, ternary};
use crate::simd::Simd;
use crate::tile::{CodeRange, Scales, Sink, SuperblockFormat, TileFormat};

const BYTES: usize = size_of::<BlockTQ2_0>();

impl TileFormat for BlockTQ2_0 {
    const CODES: CodeRange = CodeRange::Unsigned { max: 2, offset: 1 };
}

impl SuperblockFormat for BlockTQ2_0 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        out.set_d(s, s.shr(s.gather_one(rows, 62), 16));
        let one = s.splat_i32(1);
        (0..8).for_each(|g| out.set_scale::<S, Self>(s, g, one));
        two_bits(
            s,
            rows,
            0,
            #[inline(always)]
            |code, _, _, _| code,
            w,
        );
    }
}

impl Quantize for BlockTQ2_0 {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        for (x, out) in weights.x.as_chunks().0.iter().zip(out.as_chunks_mut::<BYTES>().0) {
            let (digits, d) = ternary::digits(s, x);
            pack_pairs(digits.as_flattened().first_chunk().expect("a superblock"), &mut out[..64]);
            out[64..].copy_from_slice(&d);
        }
    }
}
