//! Chains in i16 of four tokens, in assembly.
//!
//! Two registers of weights, eight of sums, three for products: the compiler, which adds products up in trees, stores and
//! loads most of them in between. For each quad there are 22 instructions, of which 16 compute; the loop over the scales
//! of a superblock stays a loop, because instructions from the caches behind the decoder come too slowly.

use std::arch::asm;

use super::Pair;
use crate::layout::{COLUMNS, Quad};

/// Quad `$i` meets four tokens.
macro_rules! quad_of_four {
    ($i:literal, $token:ident) => {
        concat!(
            "vmovdqu {w0}, [{w} + 64*",
            $i,
            "]\n",
            "vmovdqu {w1}, [{w} + 64*",
            $i,
            " + 32]\n",
            $token!($i, "0"),
            $token!($i, "1"),
            $token!($i, "2"),
            $token!($i, "3"),
        )
    };
}

/// The first products of token `$t`.
macro_rules! first_of_token {
    ($i:literal, $t:literal) => {
        concat!(
            "vpbroadcastd {x}, [{q",
            $t,
            "} + {i} + 4*",
            $i,
            "]\n",
            "vpmaddubsw {low",
            $t,
            "}, {w0}, {x}\n",
            "vpmaddubsw {high",
            $t,
            "}, {w1}, {x}\n",
        )
    };
}

/// Adds products of token `$t`.
macro_rules! next_of_token {
    ($i:literal, $t:literal) => {
        concat!(
            "vpbroadcastd {x}, [{q",
            $t,
            "} + {i} + 4*",
            $i,
            "]\n",
            "vpmaddubsw {y}, {w0}, {x}\n",
            "vpmaddubsw {x}, {w1}, {x}\n",
            "vpaddw {low",
            $t,
            "}, {low",
            $t,
            "}, {y}\n",
            "vpaddw {high",
            $t,
            "}, {high",
            $t,
            "}, {x}\n",
        )
    };
}

/// Adds the chain of token `$t`, times the scale, to its sum in memory.
macro_rules! end_of_token {
    ($t:literal) => {
        concat!(
            "vpmaddwd {low",
            $t,
            "}, {low",
            $t,
            "}, {w0}\n",
            "vpmaddwd {high",
            $t,
            "}, {high",
            $t,
            "}, {w1}\n",
            "vpaddd {low",
            $t,
            "}, {low",
            $t,
            "}, [{sums} + 64*",
            $t,
            "]\n",
            "vpaddd {high",
            $t,
            "}, {high",
            $t,
            "}, [{sums} + 64*",
            $t,
            " + 32]\n",
            "vmovdqu [{sums} + 64*",
            $t,
            "], {low",
            $t,
            "}\n",
            "vmovdqu [{sums} + 64*",
            $t,
            " + 32], {high",
            $t,
            "}\n",
        )
    };
}

/// [`crate::simd::Simd::chains`] in i16, which begin at zero, for four tokens. False if there is no code for as many quads.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn four_tokens(
    w: &[Quad],
    first: usize,
    codes: &[&[i8; COLUMNS]; 4],
    sums: &mut [Pair; 4],
) -> bool {
    assert!(first + w.len() <= COLUMNS / 4);
    macro_rules! chains {
        ($($i:literal)*) => {
            // SAFETY: all quads that are read are in `w`, and as many in the codes.
            unsafe {
                asm!(
                    quad_of_four!("0", first_of_token),
                    $(quad_of_four!($i, next_of_token),)*
                    w = in(reg) w.as_ptr(), i = in(reg) 4 * first,
                    q0 = in(reg) codes[0], q1 = in(reg) codes[1], q2 = in(reg) codes[2], q3 = in(reg) codes[3],
                    low0 = out(ymm_reg) sums[0][0], high0 = out(ymm_reg) sums[0][1],
                    low1 = out(ymm_reg) sums[1][0], high1 = out(ymm_reg) sums[1][1],
                    low2 = out(ymm_reg) sums[2][0], high2 = out(ymm_reg) sums[2][1],
                    low3 = out(ymm_reg) sums[3][0], high3 = out(ymm_reg) sums[3][1],
                    w0 = out(ymm_reg) _, w1 = out(ymm_reg) _, x = out(ymm_reg) _, y = out(ymm_reg) _,
                    options(readonly, nostack, preserves_flags),
                )
            }
        };
    }
    match w.len() {
        8 => chains!("1" "2" "3" "4" "5" "6" "7"),
        4 => chains!("1" "2" "3"),
        _ => return false,
    }
    true
}

/// [`crate::simd::Simd::scaled_chains`] in i16 for four tokens. False if there is no code for as many steps: for two, the
/// compiler's is faster.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn four_tokens_scaled(
    w: &[Quad; COLUMNS / 4],
    codes: &[&[i8; COLUMNS]; 4],
    scales: &[Quad],
    steps: usize,
    sums: &mut [Pair; 4],
) -> bool {
    macro_rules! chains {
        ($quads:literal: $($first:literal $($next:literal)*;)*) => {
            // SAFETY: each round reads the next scale and as many quads of `w` and of the codes as it has, and all
            // scales together have 64.
            unsafe {
                asm!(
                    "2:",
                    $(
                        quad_of_four!($first, first_of_token),
                        $(quad_of_four!($next, next_of_token),)*
                        "vmovdqu {w0}, [{scale}]",
                        "vmovdqu {w1}, [{scale} + 32]",
                        end_of_token!("0"), end_of_token!("1"), end_of_token!("2"), end_of_token!("3"),
                    )*
                    concat!("add {w}, 64*", $quads),
                    concat!("add {i}, 4*", $quads),
                    "add {scale}, 64",
                    "cmp {i}, 256",
                    "jne 2b",
                    w = inout(reg) w => _, i = inout(reg) 0usize => _, scale = inout(reg) scales.as_ptr() => _,
                    q0 = in(reg) codes[0], q1 = in(reg) codes[1], q2 = in(reg) codes[2], q3 = in(reg) codes[3],
                    sums = in(reg) sums,
                    low0 = out(ymm_reg) _, high0 = out(ymm_reg) _, low1 = out(ymm_reg) _, high1 = out(ymm_reg) _,
                    low2 = out(ymm_reg) _, high2 = out(ymm_reg) _, low3 = out(ymm_reg) _, high3 = out(ymm_reg) _,
                    w0 = out(ymm_reg) _, w1 = out(ymm_reg) _, x = out(ymm_reg) _, y = out(ymm_reg) _,
                    options(nostack),
                )
            }
        };
    }
    match (scales.len(), steps) {
        (8, 8) => chains!("8": "0" "1" "2" "3" "4" "5" "6" "7";),
        (8, 4) => chains!("8": "0" "1" "2" "3"; "4" "5" "6" "7";),
        (16, 4) => chains!("4": "0" "1" "2" "3";),
        _ => return false,
    }
    true
}
