//! IQ4_XS: codes of 16 values that are closer around zero, in sub-blocks of 32.

use qgguf_gguf::blocks::{BlockIQ4XS, NL4};

use super::unpack::four_times;
use crate::bits::{bits, signed};
use crate::layout::PanelRows;
use crate::quantizers::blocks32::{BLOCK, PANEL, pack_halves};
use crate::quantizers::groups::*;
use crate::quantizers::nl4::{nearest_code, scale_of, squares};
use crate::quantizers::{Quantize, Weights};
use crate::simd::Simd;
use crate::tile::{CodeRange, Scales, Sink, SuperblockFormat, TileFormat};

const BYTES: usize = size_of::<BlockIQ4XS>();

impl TileFormat for BlockIQ4XS {
    const CODES: CodeRange = CodeRange::Signed;
}

impl SuperblockFormat for BlockIQ4XS {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        let [first, low, _, _] = s.gather(rows, 0);
        out.set_d(s, first);
        for g in 0..8 {
            let low = s.and(s.shr(low, 4 * g), s.splat_i32(15));
            let high = s.and(s.shr(first, 16 + 2 * g), s.splat_i32(3));
            let scale = s.sub_i32(s.or(low, s.shl(high, 4)), s.splat_i32(32));
            out.set_scale::<S, Self>(s, g as usize, scale);
        }
        four_times!(|i| {
            let [packed, then] = [s.gather(rows, 8 + 32 * i), s.gather(rows, 8 + 32 * i + 16)];
            four_times!(|j| {
                w.put(s, 16 * i + j, signed(s, s.lookup(&NL4, bits(s, packed[j], 0, 15))));
                w.put(s, 16 * i + 4 + j, signed(s, s.lookup(&NL4, bits(s, packed[j], 4, 15))));
            });
            four_times!(|j| {
                w.put(s, 16 * i + 8 + j, signed(s, s.lookup(&NL4, bits(s, then[j], 0, 15))));
                w.put(s, 16 * i + 12 + j, signed(s, s.lookup(&NL4, bits(s, then[j], 4, 15))));
            });
        });
    }
}

impl Quantize for BlockIQ4XS {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        let (mut room, mut importance_room) = ([0.0; BATCH], [0.0; PANEL]);
        let batches = weights.x.chunks(BATCH).zip(out.chunks_mut(GROUPS * BYTES));
        for (b, (x, out)) in batches.enumerate() {
            let x = padded(x, &mut room);
            let mut variance = [0.0; GROUPS];
            if weights.importance.is_some() {
                variance = superblock_squares(s, x).map(|sum| sum * (2.0 / SUPERBLOCK as f32));
            }
            let panels = x.as_chunks::<PANEL>().0.iter().zip(out.chunks_mut(2 * BYTES));
            for (p, (x, out)) in panels.enumerate() {
                let x = columns::<S, BLOCK>(s, x);
                let w = match importance(weights, b * BATCH + p * PANEL, &mut importance_room) {
                    Some(q) => weighted(s, &x, q, of_superblock::<S, BLOCK>(s, &variance, p)),
                    None => squares(s, &x),
                };
                let scales = array(s, scale_of(s, &x, &w));
                let (mut steps, mut heads) = ([[0.0; 8]; 2], [[0; 8]; 2]);
                for ((scales, steps), head) in
                    scales.as_chunks::<8>().0.iter().zip(&mut steps).zip(&mut heads)
                {
                    *head = super_scale(scales, steps);
                }
                let by = inverse(s, s.load(steps.as_flattened().first_chunk().expect("16 steps")));
                let mut codes = x;
                for code in &mut codes {
                    *code = nearest_code(s, s.mul(by, *code));
                }
                let codes = rows(s, &codes);
                for (i, out) in out.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
                    out[..8].copy_from_slice(&heads[i]);
                    for (g, out) in out[8..].as_chunks_mut::<16>().0.iter_mut().enumerate() {
                        pack_halves(&codes[8 * i + g], out);
                    }
                }
            }
        }
    }
}

/// Quantizes the scales of a superblock to six bits: the bytes before the nibbles, and the scales that the codes are
/// made with, which are not those of the rounded super-scale.
#[inline(always)]
fn super_scale(scales: &[f32; 8], steps: &mut [f32; 8]) -> [u8; 8] {
    let mut extreme = 0f32;
    for &scale in scales {
        extreme = if scale.abs() > extreme.abs() { scale } else { extreme };
    }
    let d = -extreme / 32.0;
    let by = if d != 0.0 { 1.0 / d } else { 0.0 };
    let mut head = [0; 8];
    head[..2].copy_from_slice(&half(d).1);
    let mut high = 0u16;
    for (g, (scale, step)) in scales.iter().zip(steps).enumerate() {
        let code = nearest(by * scale).clamp(-32, 31);
        *step = d * code as f32;
        let code = (code + 32) as u8;
        head[4 + g / 2] |= (code & 15) << (4 * (g % 2));
        high |= u16::from(code >> 4) << (2 * g);
    }
    head[2..4].copy_from_slice(&high.to_le_bytes());
    head
}
