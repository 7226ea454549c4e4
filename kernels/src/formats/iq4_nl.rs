//! IQ4_NL: codes of 16 values that are closer around zero.

use qgguf_gguf::blocks::{BlockIQ4NL, NL4};

use super::unpack::nibbles;
use crate::bits::signed;
use crate::layout::PanelRows;
use crate::quantizers::blocks32::{BLOCK, PANEL, pack_halves};
use crate::quantizers::groups::*;
use crate::quantizers::nl4::{nearest_code, scale_of, squares};
use crate::quantizers::{Quantize, Weights};
use crate::simd::Simd;
use crate::tile::{BlockFormat, BlockScales, CodeRange, Sink, TileFormat};

const BYTES: usize = size_of::<BlockIQ4NL>();

impl TileFormat for BlockIQ4NL {
    const CODES: CodeRange = CodeRange::Signed;
}

impl BlockFormat for BlockIQ4NL {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: BlockScales<'_>, w: &mut impl Sink<S>) {
        s.store(s.halves(s.gather_one(rows, 0)), &mut out.d[0]);
        nibbles(
            s,
            s.gather(rows, 2),
            w,
            #[inline(always)]
            |v, _| signed(s, s.lookup(&NL4, v)),
        );
    }
}

impl Quantize for BlockIQ4NL {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        let (mut room, mut importance_room) = ([0.0; PANEL], [0.0; PANEL]);
        for (p, (x, out)) in weights.x.chunks(PANEL).zip(out.chunks_mut(GROUPS * BYTES)).enumerate() {
            let mut x = columns::<S, BLOCK>(s, padded(x, &mut room));
            let w = match importance(weights, p * PANEL, &mut importance_room) {
                Some(q) => {
                    let variance = s.mul(sum_of_squares(s, &x), s.splat(2.0 / BLOCK as f32));
                    weighted(s, &x, q, variance)
                }
                None => squares(s, &x),
            };
            let d = scale_of(s, &x, &w);
            let by = inverse(s, d);
            for x in &mut x {
                *x = nearest_code(s, s.mul(by, *x));
            }
            let (d, codes) = (halves(s, d), rows(s, &x));
            for (g, out) in out.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
                out[..2].copy_from_slice(&d[g]);
                pack_halves(&codes[g], &mut out[2..]);
            }
        }
    }
}
