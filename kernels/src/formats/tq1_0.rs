//! TQ1_0: ternary weights, five to a byte.

use qgguf_gguf::blocks::BlockTQ1_0;

use crate::layout::PanelRows;
use crate::quantizers::{Quantize, Weights, ternary};
use crate::simd::Simd;
use crate::tile::{CodeRange, Scales, Sink, SuperblockFormat, TileFormat};

const BYTES: usize = size_of::<BlockTQ1_0>();

impl TileFormat for BlockTQ1_0 {
    const CODES: CodeRange = CodeRange::Unsigned { max: 2, offset: 1 };
}

impl SuperblockFormat for BlockTQ1_0 {
    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: PanelRows<'_>, out: &mut Scales, w: &mut impl Sink<S>) {
        out.set_d(s, s.shr(s.gather_one(rows, 50), 16));
        let one = s.splat_i32(1);
        (0..8).for_each(|g| out.set_scale::<S, Self>(s, g, one));
        let mut quads = [[0; 64]; 64];
        for r in 0..16 {
            let (qs, qh) = (rows.field::<48>(r, 0), rows.field::<4>(r, 48));
            for i in 0..256 {
                let (byte, digit) = match i {
                    0..160 => (qs[i % 32], i / 32),
                    160..240 => (qs[32 + i % 16], (i - 160) / 16),
                    _ => (qh[i % 4], (i - 240) / 4),
                };
                quads[i / 4][4 * r + i % 4] = BlockTQ1_0::digit(byte, digit) as u8;
            }
        }
        for (i, quad) in quads.iter().enumerate() {
            w.put(s, i, s.load_i32(quad));
        }
    }
}

impl Quantize for BlockTQ1_0 {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        for (x, out) in weights.x.as_chunks().0.iter().zip(out.as_chunks_mut::<BYTES>().0) {
            let (digits, d) = ternary::digits(s, x);
            let digits = digits.as_flattened();
            let (first, rest) = out.split_at_mut(32);
            pack_fives(&digits[..160], first);
            pack_fives(&digits[160..240], &mut rest[..16]);
            for (i, out) in rest[16..20].iter_mut().enumerate() {
                let mut number = 0;
                for n in 0..4 {
                    number = 3 * number + u16::from(digits[240 + 4 * n + i]);
                }
                *out = fraction(3 * number);
            }
            rest[20..].copy_from_slice(&d);
        }
    }
}

/// Five digits to a byte, as far apart as there are bytes.
#[inline(always)]
fn pack_fives(digits: &[u8], out: &mut [u8]) {
    let n_bytes = out.len();
    for (i, out) in out.iter_mut().enumerate() {
        let mut number = 0;
        for n in 0..5 {
            number = 3 * number + u16::from(digits[n_bytes * n + i]);
        }
        *out = fraction(number);
    }
}

/// `number / 243` in 256ths, rounded up, for numbers below 243.
#[inline(always)]
fn fraction(number: u16) -> u8 {
    (number * 256).div_ceil(243) as u8
}
