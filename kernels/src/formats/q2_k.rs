//! Q2_K: 16 sub-blocks of 16 with a scale and a minimum each, which are four-bit numbers themselves.

use qgguf_gguf::blocks::BlockQ2K;

use super::unpack::two_bits;
use crate::bits::{bits, pair, signed_byte, two_halves};
use crate::layout::PanelRows;
use crate::quantizers::affine::{Steps, affine};
use crate::quantizers::groups::*;
use crate::quantizers::super_scales::{by_largest, fitted};
use crate::quantizers::{Quantize, Weights};
use crate::simd::Simd;
use crate::tile::{CodeRange, Scales, Sink, SuperblockFormat, TileFormat};

const BYTES: usize = size_of::<BlockQ2K>();

impl TileFormat for BlockQ2K {
    const CODES: CodeRange = CodeRange::Unsigned { max: 3, offset: 0 };
    const QUADS: usize = 4;
    const MIN: bool = true;
}

impl SuperblockFormat for BlockQ2K {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        let packed = s.gather(rows, 0);
        two_halves(s, s.gather_one(rows, 80), &mut out.d[0], &mut out.m[0]);
        out.set_scales::<S, Self>(s, packed.map(|v| bits(s, v, 0, 15)));
        for (q, v) in packed.into_iter().enumerate() {
            let mins = bits(s, v, 4, 15);
            for p in 0..2 {
                let (low, high) = (signed_byte(s, mins, 2 * p), signed_byte(s, mins, 2 * p + 1));
                s.store_i32(pair(s, low, high), &mut out.mins[2 * q + p]);
            }
        }
        two_bits(
            s,
            rows,
            16,
            #[inline(always)]
            |code, _, _, _| code,
            w,
        );
    }
}

impl Quantize for BlockQ2K {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        let (mut room, mut importance_room) = ([0.0; BATCH], [0.0; SUPERBLOCK]);
        let batches = weights.x.chunks(BATCH).zip(out.chunks_mut(GROUPS * BYTES));
        for (b, (x, out)) in batches.enumerate() {
            let n_blocks = x.len() / SUPERBLOCK;
            let x = padded(x, &mut room);
            let mut found = [None; GROUPS];
            let (mut scales, mut mins, mut sums) =
                ([[0.0; GROUPS]; GROUPS], [[0.0; GROUPS]; GROUPS], [[0.0; GROUPS]; GROUPS]);
            let mut variance = [0.0; GROUPS];
            if weights.importance.is_some() {
                variance = superblock_squares(s, x).map(|sum| sum / 256.0);
            }
            for (i, x) in x.as_chunks::<SUPERBLOCK>().0[..n_blocks].iter().enumerate() {
                let of_block = importance(weights, b * BATCH + i * SUPERBLOCK, &mut importance_room);
                let columns = columns::<S, GROUPS>(s, x);
                let (w, steps) = match of_block {
                    Some(q) => {
                        let w = weighted(s, &columns, q, s.splat(variance[i]));
                        (w, Steps { levels: 3.0, first: -0.9, step: 0.05, last: 36, absolute: false })
                    }
                    None => {
                        let mut w = columns;
                        for w in &mut w {
                            *w = abs(s, *w);
                        }
                        (w, Steps { levels: 3.0, first: -0.5, step: 0.1, last: 15, absolute: true })
                    }
                };
                let best = affine(s, &columns, &w, steps);
                s.store(best.scale, &mut scales[i]);
                s.store(best.min, &mut mins[i]);
                s.store(sum(s, &w), &mut sums[i]);
                found[i] = Some(best);
            }
            let (scales, mins) = match weights.importance {
                Some(_) => (fitted(s, &scales, &sums, 15.0), fitted(s, &mins, &sums, 15.0)),
                None => (by_largest(&scales, 15.0, 255), by_largest(&mins, 15.0, 255)),
            };
            for (i, out) in out.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
                let (scale, scale_bytes) = half(scales.d[i]);
                let (min, min_bytes) = half(mins.d[i]);
                let d = s.load(&scales.codes[i].map(|code| scale * f32::from(code)));
                let m = s.load(&mins.codes[i].map(|code| min * f32::from(code)));
                let kept = s.eq(d, s.splat(0.0));
                let best = found[i].as_ref().expect("a block that was searched");
                let mut codes = columns::<S, GROUPS>(s, &x[i * SUPERBLOCK..][..SUPERBLOCK]);
                for code in &mut codes {
                    let x = *code;
                    *code = s.select(kept, best.code(s, x), requantized(s, x, d, m, 0.0, 3.0));
                }
                for (g, out) in out[..16].iter_mut().enumerate() {
                    *out = scales.codes[i][g] | mins.codes[i][g] << 4;
                }
                let codes = rows(s, &codes);
                pack_pairs(codes.as_flattened().first_chunk().expect("a superblock"), &mut out[16..80]);
                out[80..82].copy_from_slice(&scale_bytes);
                out[82..84].copy_from_slice(&min_bytes);
            }
        }
    }
}
