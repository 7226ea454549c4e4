//! From f32 weights to the bytes of block types, the same bytes as ggml's reference quantizers: the searches that several
//! types share. What is a type's own is in its file in `formats/`.
//!
//! The reference is scalar: every sum runs from left to right, nothing is fused. Here each lane of a vector holds
//! one group of weights (a block of 32, or a sub-block of a superblock), so that step `i` handles weight `i` of 16
//! groups while every lane adds in the reference's order. No quantizer uses [`Simd::mul_add`], and whatever depends on
//! order (first of equals, strict comparisons) is the reference's too.

pub(crate) mod affine;
pub(crate) mod blocks32;
pub(crate) mod fp4;
pub(crate) mod groups;
pub(crate) mod nl4;
pub(crate) mod six_bit;
pub(crate) mod super_scales;
pub(crate) mod symmetric;
pub(crate) mod ternary;

use half::f16;
use qgguf_gguf::blocks::Block;

use crate::simd::Simd;

/// Rows to quantize.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    /// `[row][n_cols]`.
    pub(crate) x: &'a [f32],
    /// A multiple of the block.
    pub(crate) n_cols: usize,
    /// How much the error of each column counts.
    pub(crate) importance: Option<&'a [f32]>,
}

/// A type that weights can be quantized to.
pub(crate) trait Quantize: Block {
    /// Writes whole rows of weights as blocks. `out` has room for exactly those.
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]);

    /// True if the scales of a block (or the number that it is) are finite.
    #[inline(always)]
    fn in_range(block: &[u8]) -> bool {
        Self::HALVES.iter().all(|&at| f16::from_le_bytes([block[at], block[at + 1]]).is_finite())
    }

    /// The first of some blocks whose weights were too large or too small for the type.
    fn first_out_of_range(bytes: &[u8]) -> Option<usize> {
        bytes.chunks_exact(size_of::<Self>()).position(|block| !Self::in_range(block))
    }
}

/// [`Quantize::quantize`], for tables of kernels.
#[inline(always)]
pub(crate) fn quantize<S: Simd, B: Quantize>(s: S, weights: Weights<'_>, out: &mut [u8]) {
    B::quantize(s, weights, out);
}
