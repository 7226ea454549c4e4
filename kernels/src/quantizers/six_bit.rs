//! What Q4_K and Q5_K share: 8 sub-blocks of 32 with a scale and a minimum each, which are six-bit numbers themselves.

use qgguf_gguf::blocks::BlockQ4K;

use super::Weights;
use super::affine::{Affine, Steps, affine};
use super::groups::*;
use super::super_scales::{by_largest, fitted};
use crate::simd::Simd;

/// Sub-blocks of 32 weights; a panel has those of two superblocks.
const SUB: usize = 32;
const PANEL: usize = GROUPS * SUB;
const PANELS: usize = BATCH / PANEL;

/// Quantizes to the type whose blocks take `BYTES`.
#[inline(always)]
pub(crate) fn quantize<S: Simd, const BYTES: usize>(
    s: S,
    weights: Weights<'_>,
    out: &mut [u8],
    steps: Steps,
) {
    let (mut room, mut importance_room) = ([0.0; BATCH], [0.0; PANEL]);
    let batches = weights.x.chunks(BATCH).zip(out.chunks_mut(GROUPS * BYTES));
    for (b, (x, out)) in batches.enumerate() {
        let n_panels = x.len().div_ceil(PANEL);
        let x = padded(x, &mut room);
        let mut found = [None; PANELS];
        let (mut scales, mut mins, mut sums) = ([[0.0; 8]; GROUPS], [[0.0; 8]; GROUPS], [[0.0; 8]; GROUPS]);
        let mut variance = [0.0; GROUPS];
        if weights.importance.is_some() {
            variance = superblock_squares(s, x).map(|sum| 2.0 * sum / 256.0);
        }
        for (p, x) in x.as_chunks::<PANEL>().0[..n_panels].iter().enumerate() {
            let of_panel = importance(weights, b * BATCH + p * PANEL, &mut importance_room);
            let columns = columns::<S, SUB>(s, x);
            let (w, steps) = match of_panel {
                Some(q) => {
                    let w = weighted(s, &columns, q, of_superblock::<S, SUB>(s, &variance, p));
                    (w, Steps { first: -0.9, step: 0.05, last: 36, ..steps })
                }
                None => (by_size(s, &columns), steps),
            };
            let best = affine(s, &columns, &w, steps);
            s.store(
                best.scale,
                scales.as_flattened_mut()[p * GROUPS..].first_chunk_mut().expect("16 scales"),
            );
            s.store(best.min, mins.as_flattened_mut()[p * GROUPS..].first_chunk_mut().expect("16 minima"));
            s.store(sum(s, &w), sums.as_flattened_mut()[p * GROUPS..].first_chunk_mut().expect("16 sums"));
            found[p] = Some(best);
        }
        let (scales, mins) = match weights.importance {
            Some(_) => (fitted(s, &scales, &sums, 63.0), fitted(s, &mins, &sums, 63.0)),
            None => (by_largest(&scales, 63.0, 63), by_largest(&mins, 63.0, 63)),
        };
        for (p, out) in out.chunks_mut(2 * BYTES).enumerate() {
            let (mut d, mut m, mut heads) = ([[0.0; 8]; 2], [[0.0; 8]; 2], [[0; 16]; 2]);
            for (i, head) in heads.iter_mut().enumerate() {
                let block = 2 * p + i;
                let (scale, scale_bytes) = half(scales.d[block]);
                let (min, min_bytes) = half(mins.d[block]);
                d[i] = scales.codes[block].map(|code| scale * f32::from(code));
                m[i] = mins.codes[block].map(|code| min * f32::from(code));
                head[..2].copy_from_slice(&scale_bytes);
                head[2..4].copy_from_slice(&min_bytes);
                head[4..].copy_from_slice(&packed(&scales.codes[block], &mins.codes[block]));
            }
            let best = found[p].as_ref().expect("a panel that was searched");
            let x = columns::<S, SUB>(s, &x[p * PANEL..][..PANEL]);
            let codes = codes(s, &x, best, d.as_flattened(), m.as_flattened(), steps.levels);
            for (i, out) in out.chunks_exact_mut(BYTES).enumerate() {
                out[..16].copy_from_slice(&heads[i]);
                let codes = codes.as_flattened()[i * SUPERBLOCK..].first_chunk().expect("a superblock");
                if BYTES == size_of::<BlockQ4K>() {
                    pack_nibbles(codes, &mut out[16..]);
                } else {
                    let (fifths, nibbles) = out[16..].split_at_mut(32);
                    pack_nibbles(codes, nibbles);
                    pack_fifths(codes, fifths);
                }
            }
        }
    }
}

/// Each weight counts by the root of its sub-block's mean square plus its size.
#[inline(always)]
fn by_size<S: Simd>(s: S, x: &[S::F32; SUB]) -> [S::F32; SUB] {
    let average = s.sqrt(s.div(sum_of_squares(s, x), s.splat(SUB as f32)));
    let mut w = *x;
    for w in &mut w {
        *w = s.add(average, abs(s, *w));
    }
    w
}

/// The final codes: by the quantized scales and minima, where a scale is not 0.
#[inline(always)]
fn codes<S: Simd>(
    s: S,
    x: &[S::F32; SUB],
    found: &Affine<S>,
    d: &[f32],
    m: &[f32],
    levels: f32,
) -> [[u8; SUB]; GROUPS] {
    let d = s.load(d.first_chunk().expect("16 scales"));
    let m = s.load(m.first_chunk().expect("16 minima"));
    let kept = s.eq(d, s.splat(0.0));
    let mut codes = *x;
    for code in &mut codes {
        let x = *code;
        *code = s.select(kept, found.code(s, x), requantized(s, x, d, m, 0.0, levels));
    }
    rows(s, &codes)
}

/// Six-bit scales and minima in 12 bytes.
#[inline(always)]
fn packed(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut out = [0; 12];
    for g in 0..4 {
        out[g] = scales[g] | scales[g + 4] >> 4 << 6;
        out[g + 4] = mins[g] | mins[g + 4] >> 4 << 6;
        out[g + 8] = scales[g + 4] & 15 | (mins[g + 4] & 15) << 4;
    }
    out
}

/// Low four bits of the codes: sub-block after sub-block, two to a byte.
#[inline(always)]
fn pack_nibbles(codes: &[u8; SUPERBLOCK], out: &mut [u8]) {
    for (codes, out) in codes.as_chunks::<64>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        for i in 0..32 {
            out[i] = codes[i] & 15 | codes[i + 32] << 4;
        }
    }
}

/// Fifth bits: bit g for sub-block g.
#[inline(always)]
fn pack_fifths(codes: &[u8; SUPERBLOCK], out: &mut [u8]) {
    out.fill(0);
    for (g, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
        for (out, code) in out.iter_mut().zip(codes) {
            *out |= code >> 4 << g;
        }
    }
}
