//! The types of weights, one file each: how kernels unpack it, and how it is made from f32. And the list of them, once:
//! tables, look-ups and tests follow from it.
//!
//! To add a type: its file, and here its module and its line in the list. A type of weights is one of
//!
//! - `numbers`: not quantized. [`FloatFormat`](crate::float_products::FloatFormat) widens them.
//! - `blocks`: [`BlockFormat`](crate::tile::BlockFormat), f32 scales, with activations in blocks of 32.
//! - `superblocks`: [`SuperblockFormat`](crate::tile::SuperblockFormat), 256 weights with whole scales times one f32, with
//!   activations in blocks of 256.
//! - `none`: there is no kernel that multiplies with it.
//!
//! and has a `quantizer` ([`Quantize`](crate::quantizers::Quantize)) or `none`.
//!
//! Codes need not be computed: `unpack` may look up whole quads of each row in a grid, and put those. What a code stands for
//! must be a byte; fractions (deltas of an eighth, each for 8 weights) become whole in codes that are eight times as large,
//! with an eighth of the scale.
//!
//! A kernel that is a type's own (one that reads its rows as they lie in memory, say) is in the type's file, too: a method of
//! its trait whose default is that there is none, asked for first in [`products`](crate::products).

mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod numbers;
mod nvfp4;
mod q1_0;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod tq1_0;
mod tq2_0;
mod unpack;

use qgguf_gguf::GgmlType;

use crate::activations::ActivationType;
use crate::quantizers::Quantize;

pub(crate) use numbers::{widen_bf16, widen_f16};

/// `formats!([apply], args…)` calls `apply! { args… ; … }` with every type of weights: `type: name of its kernels, block, products, quantizer`.
macro_rules! formats {
    ([$($apply:tt)+] $(, $arg:tt)*) => {
        $($apply)+! { $($arg)* ;
            F32: f32, BlockF32, numbers, quantizer;
            F16: f16, BlockF16, numbers, quantizer;
            BF16: bf16, BlockBF16, numbers, quantizer;
            Q4_0: q4_0, BlockQ4_0, blocks, quantizer;
            Q4_1: q4_1, BlockQ4_1, blocks, quantizer;
            Q5_0: q5_0, BlockQ5_0, blocks, quantizer;
            Q5_1: q5_1, BlockQ5_1, blocks, quantizer;
            Q8_0: q8_0, BlockQ8_0, blocks, quantizer;
            IQ4_NL: iq4_nl, BlockIQ4NL, blocks, quantizer;
            MXFP4: mxfp4, BlockMXFP4, blocks, quantizer;
            NVFP4: nvfp4, BlockNVFP4, blocks, quantizer;
            Q2_K: q2_k, BlockQ2K, superblocks, quantizer;
            Q3_K: q3_k, BlockQ3K, superblocks, quantizer;
            Q4_K: q4_k, BlockQ4K, superblocks, quantizer;
            Q5_K: q5_k, BlockQ5K, superblocks, quantizer;
            Q6_K: q6_k, BlockQ6K, superblocks, quantizer;
            IQ4_XS: iq4_xs, BlockIQ4XS, superblocks, quantizer;
            TQ1_0: tq1_0, BlockTQ1_0, superblocks, quantizer;
            TQ2_0: tq2_0, BlockTQ2_0, superblocks, quantizer;
            Q1_0: q1_0, BlockQ1_0, none, quantizer;
            Q2_0: q2_0, BlockQ2_0, none, quantizer;
        }
    };
}
pub(crate) use formats;

/// The index of a block, if there is such a one among the bytes of some.
type FirstOutOfRange = fn(&[u8]) -> Option<usize>;

/// What is known of a type beside its kernels.
pub(crate) struct FormatInfo {
    ty: GgmlType,
    /// What activations are when they meet its weights; `None` if no kernel multiplies with it.
    pub(crate) activations: Option<ActivationType>,
    /// [`Quantize::first_out_of_range`], if it has a quantizer.
    pub(crate) first_out_of_range: Option<FirstOutOfRange>,
}

macro_rules! describe {
    (; $($ty:ident: $name:ident, $block:ident, $product:ident, $quantizer:ident;)*) => {
        /// The types, in the order of the list. Tables of kernels have the same.
        pub(crate) const FORMATS: &[FormatInfo] = &[$(FormatInfo {
            ty: GgmlType::$ty,
            activations: describe!(@activations $product),
            first_out_of_range: describe!(@range $quantizer $block),
        }),*];
    };
    (@activations numbers) => { Some(ActivationType::F32) };
    (@activations blocks) => { Some(ActivationType::Q8) };
    (@activations superblocks) => { Some(ActivationType::Q8K) };
    (@activations none) => { None };
    (@range quantizer $block:ident) => { Some(<qgguf_gguf::blocks::$block as Quantize>::first_out_of_range) };
    (@range none $block:ident) => { None };
}
formats!([describe]);

/// The place of a type in [`FORMATS`] and in tables of kernels, if it is there.
pub(crate) fn index(ty: GgmlType) -> Option<usize> {
    FORMATS.iter().position(|format| format.ty == ty)
}
