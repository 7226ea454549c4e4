//! Q6_K: 16 sub-blocks of 16 with a scale each, which is a signed byte itself.

use qgguf_gguf::blocks::BlockQ6K;

use super::Weights;
use super::lanes::*;
use super::symmetric::symmetric;
use crate::simd::Simd;

const BYTES: usize = size_of::<BlockQ6K>();

/// Quantizes to Q6_K.
#[inline(always)]
pub(crate) fn q6_k<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
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
