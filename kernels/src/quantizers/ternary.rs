//! TQ1_0 and TQ2_0: -1, 0 or 1 times the largest weight of a superblock.

use qgguf_gguf::blocks::{BlockTQ1_0, BlockTQ2_0};

use super::Weights;
use super::lanes::*;
use crate::simd::Simd;

/// Codes 0 to 2 of a superblock, and the bytes of its scale. A lane holds 16 weights.
#[inline(always)]
fn digits<S: Simd>(s: S, x: &[f32; SUPERBLOCK]) -> ([[u8; GROUPS]; GROUPS], [u8; 2]) {
    let mut codes = columns::<S, GROUPS>(s, x);
    let mut largest = 0.0;
    for size in array(s, largest_size(s, &codes)) {
        largest = if size > largest { size } else { largest };
    }
    let by = if largest != 0.0 { 1.0 / largest } else { 0.0 };
    for code in &mut codes {
        let digit = if by.is_infinite() { s.splat(0.0) } else { round_away(s, s.mul(*code, s.splat(by))) };
        *code = s.add(digit, s.splat(1.0));
    }
    (rows(s, &codes), half(largest).1)
}

/// Quantizes to TQ1_0.
#[inline(always)]
pub(crate) fn tq1_0<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
    const BYTES: usize = size_of::<BlockTQ1_0>();
    for (x, out) in weights.x.as_chunks().0.iter().zip(out.as_chunks_mut::<BYTES>().0) {
        let (digits, d) = digits(s, x);
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

/// Quantizes to TQ2_0.
#[inline(always)]
pub(crate) fn tq2_0<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
    const BYTES: usize = size_of::<BlockTQ2_0>();
    for (x, out) in weights.x.as_chunks().0.iter().zip(out.as_chunks_mut::<BYTES>().0) {
        let (digits, d) = digits(s, x);
        pack_pairs(digits.as_flattened().first_chunk().expect("a superblock"), &mut out[..64]);
        out[64..].copy_from_slice(&d);
    }
}
