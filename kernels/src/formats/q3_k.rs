//! Q3_K: 16 sub-blocks of 16 with a scale each, which is a six-bit number itself.

use qgguf_gguf::blocks::BlockQ3K;

use super::unpack::two_bits;
use crate::bits::{bits, joined_bits, splat_bytes};
use crate::layout::PanelRows;
use crate::quantizers::groups::*;
use crate::quantizers::symmetric::{sweeps, symmetric};
use crate::quantizers::{Quantize, Weights};
use crate::simd::Simd;
use crate::tile::{CodeRange, Scales, Sink, SuperblockFormat, TileFormat};

const BYTES: usize = size_of::<BlockQ3K>();

impl TileFormat for BlockQ3K {
    const CODES: CodeRange = CodeRange::Unsigned { max: 7, offset: 4 };
    const QUADS: usize = 4;
}

impl SuperblockFormat for BlockQ3K {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        // The last 16 bytes: two of codes, 12 of scales, two of `d`.
        let end = s.gather(rows, 94);
        out.set_d(s, s.shr(end[3], 16));
        let [low, mid, top] = [0, 1, 2].map(|j| s.or(s.shr(end[j], 16), s.shl(end[j + 1], 16)));
        let scales = [(low, 0, 0), (mid, 0, 2), (low, 4, 4), (mid, 4, 6)].map(|(v, n, m)| {
            let code = joined_bits(s, v, n, top, m);
            // Less 32: no byte borrows from the next with the top bit set, which is then put right.
            let biased = s.sub_i32(s.or(code, splat_bytes(s, 128)), splat_bytes(s, 32));
            s.xor(biased, splat_bytes(s, 128))
        });
        out.set_scales::<S, Self>(s, scales);
        let masks = [s.gather(rows, 0), s.gather(rows, 16)];
        two_bits(
            s,
            rows,
            32,
            #[inline(always)]
            |code, half, run, quad| {
                let third = bits(s, masks[quad / 4][quad % 4], (4 * half + run) as u32, 1);
                s.or(code, s.shl(third, 2))
            },
            w,
        );
    }
}

impl Quantize for BlockQ3K {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        let (mut room, mut importance_room) = ([0.0; BATCH], [0.0; SUPERBLOCK]);
        let batches = weights.x.chunks(BATCH).zip(out.chunks_mut(GROUPS * BYTES));
        for (b, (x, out)) in batches.enumerate() {
            let n_blocks = x.len() / SUPERBLOCK;
            let x = padded(x, &mut room);
            let (mut scales, mut sums) = ([[0.0; GROUPS]; GROUPS], [[0.0; GROUPS]; GROUPS]);
            // By the first search: what stays where the quantized scale is 0.
            let mut found = [[[0; GROUPS]; GROUPS]; GROUPS];
            let mut variance = [0.0; GROUPS];
            if weights.importance.is_some() {
                variance = superblock_squares(s, x).map(|sum| 2.0 * sum / 256.0);
            }
            for (i, x) in x.as_chunks::<SUPERBLOCK>().0[..n_blocks].iter().enumerate() {
                let of_block = importance(weights, b * BATCH + i * SUPERBLOCK, &mut importance_room);
                let mut columns = columns::<S, GROUPS>(s, x);
                let scale = match of_block {
                    Some(q) => {
                        let w = weighted(s, &columns, q, s.splat(variance[i]));
                        s.store(sum(s, &w), &mut sums[i]);
                        let best = symmetric(s, &columns, &w, 4.0);
                        for x in &mut columns {
                            *x = best.code(s, *x);
                        }
                        best.scale
                    }
                    None => {
                        let (scale, codes) = sweeps(s, &columns, 4.0);
                        columns = codes;
                        scale
                    }
                };
                s.store(scale, &mut scales[i]);
                found[i] = rows(s, &columns);
            }
            let (d, codes) = match weights.importance {
                Some(_) => {
                    let values = columns::<S, GROUPS>(s, scales.as_flattened());
                    let best = symmetric(s, &values, &columns(s, sums.as_flattened()), 32.0);
                    let mut codes = values;
                    for code in &mut codes {
                        *code = best.code(s, *code);
                    }
                    (array(s, best.scale), rows(s, &codes))
                }
                None => by_extreme(&scales),
            };
            for (i, out) in out.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
                let (scale, scale_bytes) = half(d[i]);
                let d = s.load(&codes[i].map(|code| scale * f32::from(code as i8 - 32)));
                let kept = s.eq(d, s.splat(0.0));
                let before = transposed(s, &found[i]);
                let mut codes_of_weights = columns::<S, GROUPS>(s, &x[i * SUPERBLOCK..][..SUPERBLOCK]);
                for (code, before) in codes_of_weights.iter_mut().zip(before) {
                    let new = clamp(s, round_any(s, s.div(*code, d)), -4.0, 3.0);
                    *code = s.select(kept, before, s.add(new, s.splat(4.0)));
                }
                let rows = rows(s, &codes_of_weights);
                let rows = rows.as_flattened().first_chunk().expect("a superblock");
                pack_thirds(rows, &mut out[..32]);
                pack_pairs(rows, &mut out[32..96]);
                out[96..108].copy_from_slice(&packed(&codes[i]));
                out[108..].copy_from_slice(&scale_bytes);
            }
        }
    }
}

/// Codes back in columns.
#[inline(always)]
fn transposed<S: Simd>(s: S, codes: &[[u8; GROUPS]; GROUPS]) -> [S::F32; GROUPS] {
    columns(s, codes.map(|row| row.map(f32::from)).as_flattened())
}

/// Maps the scale that is farthest from 0 in each superblock, the first of equals, to -32. Codes have 32 added.
#[inline(always)]
fn by_extreme(scales: &[[f32; GROUPS]; GROUPS]) -> ([f32; GROUPS], [[u8; GROUPS]; GROUPS]) {
    let (mut d, mut codes) = ([0.0; GROUPS], [[32; GROUPS]; GROUPS]);
    for (scales, (d, codes)) in scales.iter().zip(d.iter_mut().zip(&mut codes)) {
        let mut extreme = 0f32;
        for &scale in scales {
            extreme = if scale.abs() > extreme.abs() { scale } else { extreme };
        }
        if extreme != 0.0 {
            let inverse = -32.0 / extreme;
            *d = 1.0 / inverse;
            for (code, scale) in codes.iter_mut().zip(scales) {
                *code = (nearest(inverse * scale).clamp(-32, 31) + 32) as u8;
            }
        } else {
            codes.fill(0);
        }
    }
    (d, codes)
}

/// Six-bit scales in 12 bytes.
#[inline(always)]
fn packed(scales: &[u8; GROUPS]) -> [u8; 12] {
    let mut out = [0; 12];
    for (g, &scale) in scales.iter().enumerate() {
        out[g % 8] |= (scale & 15) << (g / 8 * 4);
        out[8 + g % 4] |= scale >> 4 << (g / 4 * 2);
    }
    out
}

/// Third bits: bit k of byte w mod 32 for weight w = 32k + (w mod 32).
#[inline(always)]
fn pack_thirds(codes: &[u8; SUPERBLOCK], out: &mut [u8]) {
    out.fill(0);
    for (k, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
        for (out, code) in out.iter_mut().zip(codes) {
            *out |= code >> 2 << k;
        }
    }
}
