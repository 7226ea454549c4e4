//! Q6_K: 16 sub-blocks of 16 with a scale each, which is a signed byte itself.

use qgguf_gguf::blocks::BlockQ6K;

use super::unpack::four_times;
use crate::bits::joined_bits;
use crate::layout::PanelRows;
use crate::quantizers::groups::*;
use crate::quantizers::symmetric::symmetric;
use crate::quantizers::{Quantize, Weights};
use crate::simd::Simd;
use crate::tile::{CodeRange, Scales, Sink, SuperblockFormat, TileFormat};

const BYTES: usize = size_of::<BlockQ6K>();

impl TileFormat for BlockQ6K {
    const CODES: CodeRange = CodeRange::Unsigned { max: 63, offset: 32 };
    const QUADS: usize = 4;
}

impl SuperblockFormat for BlockQ6K {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        out.set_scales::<S, Self>(s, s.gather(rows, 192));
        out.set_d(s, s.shr(s.gather_one(rows, 206), 16));
        four_times!(|i| {
            let (half, part) = (i / 2, i % 2);
            let top = s.gather(rows, 128 + 16 * i);
            let at = 64 * half + 16 * part;
            let low = [s.gather(rows, at), s.gather(rows, at + 32)];
            four_times!(|q| {
                four_times!(|run| {
                    let code = joined_bits(s, low[run % 2][q], run as u32 / 2 * 4, top[q], 2 * run as u32);
                    w.put(s, 32 * half + 8 * run + 4 * part + q, code);
                });
            });
        });
    }
}

impl Quantize for BlockQ6K {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        let mut importance_room = [0.0; SUPERBLOCK];
        let blocks = weights.x.as_chunks::<SUPERBLOCK>().0.iter().zip(out.as_chunks_mut::<BYTES>().0);
        for (i, (x, out)) in blocks.enumerate() {
            let x = columns::<S, GROUPS>(s, x);
            let mut w = x;
            match importance(weights, i * SUPERBLOCK, &mut importance_room) {
                Some(q) => w = columns::<S, GROUPS>(s, q),
                None => {
                    for w in &mut w {
                        *w = s.mul(*w, *w);
                    }
                }
            }
            let best = symmetric(s, &x, &w, 32.0);
            let scales = array(s, best.scale);
            let mut extreme = 0f32;
            for scale in scales {
                extreme = if scale.abs() > extreme.abs() { scale } else { extreme };
            }
            if extreme.abs() < TINY {
                out.fill(0);
                continue;
            }
            let inverse = -128.0 / extreme;
            let (d, d_bytes) = half(1.0 / inverse);
            let scales = scales.map(|scale| nearest(inverse * scale).min(127) as i8);
            let d = s.load(&scales.map(|scale| d * f32::from(scale)));
            let kept = s.eq(d, s.splat(0.0));
            let mut codes = x;
            for code in &mut codes {
                let new = clamp(s, round_any(s, s.div(*code, d)), -32.0, 31.0);
                *code = s.select(kept, best.code(s, *code), s.add(new, s.splat(32.0)));
            }
            let rows = rows(s, &codes);
            pack(rows.as_flattened().first_chunk().expect("a superblock"), out);
            out[192..208].copy_from_slice(&scales.map(|scale| scale as u8));
            out[208..].copy_from_slice(&d_bytes);
        }
    }
}

/// Low four and high two bits.
#[inline(always)]
fn pack(codes: &[u8; SUPERBLOCK], out: &mut [u8; BYTES]) {
    let (low, high) = out.split_at_mut(128);
    let halves = codes.as_chunks::<128>().0.iter().zip(low.as_chunks_mut::<64>().0);
    for ((codes, low), high) in halves.zip(high[..64].as_chunks_mut::<32>().0) {
        for i in 0..64 {
            low[i] = codes[i] & 15 | codes[i + 64] << 4;
        }
        for i in 0..32 {
            high[i] =
                codes[i] >> 4 | codes[i + 32] >> 4 << 2 | codes[i + 64] >> 4 << 4 | codes[i + 96] >> 4 << 6;
        }
    }
}
