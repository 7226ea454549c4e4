//! Q8_0: signed bytes.

use qgguf_gguf::blocks::BlockQ8_0;

use super::unpack::four_times;
use crate::bits::signed;
use crate::layout::PanelRows;
use crate::quantizers::blocks32::{BLOCK, PANEL};
use crate::quantizers::groups::*;
use crate::quantizers::{Quantize, Weights};
use crate::simd::Simd;
use crate::tile::{BlockFormat, BlockScales, CodeRange, Sink, TileFormat};

const BYTES: usize = size_of::<BlockQ8_0>();

impl TileFormat for BlockQ8_0 {
    const CODES: CodeRange = CodeRange::Signed;
}

impl BlockFormat for BlockQ8_0 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: BlockScales<'_>, w: &mut impl Sink<S>) {
        s.store(s.halves(s.gather_one(rows, 0)), &mut out.d[0]);
        let [packed, then] = [s.gather(rows, 2), s.gather(rows, 18)];
        four_times!(|j| { w.put(s, j, signed(s, packed[j])) });
        four_times!(|j| { w.put(s, 4 + j, signed(s, then[j])) });
    }
}

impl Quantize for BlockQ8_0 {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        let mut room = [0.0; PANEL];
        for (x, out) in weights.x.chunks(PANEL).zip(out.chunks_mut(GROUPS * BYTES)) {
            let mut codes = columns::<S, BLOCK>(s, padded(x, &mut room));
            let d = s.div(largest_size(s, &codes), s.splat(127.0));
            let by = inverse(s, d);
            let beyond = infinite(s, by);
            for code in &mut codes {
                *code = s.select(beyond, s.splat(0.0), round_away(s, s.mul(*code, by)));
            }
            let (d, codes) = (halves(s, d), rows(s, &codes));
            for (g, out) in out.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
                out[..2].copy_from_slice(&d[g]);
                out[2..].copy_from_slice(&codes[g]);
            }
        }
    }
}
