//! The list of kernels, once: it becomes the table's fields and, for each instruction set, its shells. Those of the types of
//! weights come from [`formats`](crate::formats).
//!
//! To add another: write the generic body `fn name<S: Simd>(s: S, args…)` with `#[inline(always)]` and add its line to
//! `kernels!`, among the products if it uses [`Simd`](crate::simd::Simd)'s chains. Entries are called where the lengths of
//! their arguments have been checked.

use crate::activations::{FloatRows, QuantizedRows};
use crate::formats::FORMATS;
use crate::layout::{PANEL, Panel};
use crate::quantizers::Weights;
use crate::tile::Tile;

/// Calls `$apply! { $args… ; products { … } others { … } }` with one line per kernel. The body's first argument is
/// the ISA token. Products are the kernels that use its chains of products of bytes: all that differs between
/// instruction sets that are siblings.
macro_rules! kernels {
    ($apply:ident $(, $arg:tt)*) => {
        $apply! { $($arg)* ;
            products {
                fn multiply_bytes(codes: &[[i8; $crate::layout::COLUMNS]; $crate::limits::TOKENS], weights: &[$crate::layout::Quad; $crate::limits::QUADS], rounds: usize) -> i32 => $crate::limits::multiply_bytes;
            }
            others {
                fn quantize_q8(x: &[f32], out: $crate::activations::QuantizedRowMut<'_>) => $crate::activations::quantize_q8;
                fn quantize_q8k(x: &[f32], out: $crate::activations::QuantizedRowMut<'_>) => $crate::activations::quantize_q8k;

                fn rms_norm(x: &mut [f32], weight: &[f32], eps: f32) => $crate::rows::rms_norm;
                fn add(x: &mut [f32], y: &[f32]) => $crate::rows::add;
                fn scale(x: &mut [f32], factor: f32) => $crate::rows::scale;
                fn swiglu(gate: &mut [f32], up: &[f32]) => $crate::rows::swiglu;
                fn geglu(gate: &mut [f32], up: &[f32]) => $crate::rows::geglu;
                fn softcap(x: &mut [f32], cap: f32) => $crate::rows::softcap;
                fn exp(x: &mut [f32]) => $crate::rows::exp;
                fn softmax(x: &mut [f32]) => $crate::rows::softmax;
                fn rotate(row: &mut [f32], head_dim: usize, angles: [&[f32]; 2], layout: $crate::RopeLayout) => $crate::rope::rotate;
                fn largest(x: &[f32]) -> f32 => $crate::rows::largest;

                fn largest_and_nan(x: &[f32]) -> (f32, bool) => $crate::vocabulary::largest_and_nan;
                fn softmax_weights(x: &mut [f32], largest: f32, inverse_temperature: f32) -> f64 => $crate::vocabulary::softmax_weights;
                fn mass_above(x: &[f32], thresholds: [f32; 2]) -> [$crate::Above; 2] => $crate::vocabulary::mass_above;
                fn indices_within(x: &[f32], low: f32, high: f32, out: &mut Vec<u32>) => $crate::vocabulary::indices_within;
                fn drop_below(x: &mut [f32], floor: f32) -> f64 => $crate::vocabulary::drop_below;

                fn kv_pack(form: $crate::attention::Form, rows: $crate::attention::Rows<'_>, block: &mut [u8]) => $crate::attention::pack;
                fn attend_chunk(queries: &$crate::attention::Queries<'_>, c: usize, scratch: &mut [f32], states: &mut [f32]) => $crate::attention::attend_chunk;
                fn attend_merge(totals: &mut [f32], states: &[f32], state_len: usize) => $crate::attention::merge;
                fn attend_finish(totals: &[f32], out: &mut [f32], dim: usize) => $crate::attention::finish;

                fn widen_f16(x: &[u8], out: &mut [f32]) => $crate::formats::widen_f16;
                fn widen_bf16(x: &[u8], out: &mut [f32]) => $crate::formats::widen_bf16;

                fn read(x: &[u8]) -> u8 => $crate::limits::read;
                fn multiply_floats(values: &[[f32; 16]; $crate::limits::VECTORS], weights: &[f32; 16], rounds: usize) -> f32 => $crate::limits::multiply_floats;
            }
        }
    };
}
pub(crate) use kernels;

/// Multiplies 16 rows of quantized weights with tokens: `[token][row]` out.
pub(crate) type QuantizedProduct = unsafe fn(Panel<'_>, QuantizedRows<'_>, &mut Tile, &mut [[f32; PANEL]]);
/// The same for weights that are not quantized.
pub(crate) type FloatProduct = unsafe fn(Panel<'_>, FloatRows<'_>, &mut [[f32; PANEL]]);
/// Writes rows of weights as blocks.
pub(crate) type Quantizer = unsafe fn(Weights<'_>, &mut [u8]);

macro_rules! define_table {
    (; $($group:ident { $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? => $body:path;)* })*) => {
        /// One instruction set's kernels. Calling an entry requires the features of its instruction set.
        pub(crate) struct Table {
            /// By type of weights, in the order of [`FORMATS`].
            pub(crate) quantized_products: [Option<QuantizedProduct>; FORMATS.len()],
            pub(crate) float_products: [Option<FloatProduct>; FORMATS.len()],
            pub(crate) quantizers: [Option<Quantizer>; FORMATS.len()],
            $($(pub(crate) $name: unsafe fn($($ty),*) $(-> $ret)?,)*)*
        }
    };
}
kernels!(define_table);

/// `stamp!(Token, (attributes))`: a `static TABLE` of shells that carry the attributes and call the bodies.
macro_rules! stamp {
    ($token:ident $attrs:tt ; $($group:ident { $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? => $body:path;)* })*) => {
        pub(crate) static TABLE: $crate::table::Table = $crate::table::Table {
            quantized_products: $crate::formats::formats!([$crate::table::quantized_products], $token, $attrs),
            float_products: $crate::formats::formats!([$crate::table::float_products], $token, $attrs),
            quantizers: $crate::formats::formats!([$crate::table::quantizers], $token, $attrs),
            $($($name: {
                $crate::table::shell! { $token $attrs fn $name($($arg: $ty),*) $(-> $ret)? => $body }
                $name
            },)*)*
        };
    };
}
pub(crate) use stamp;

/// `stamp_products!(Token, (attributes), (table))`: as [`stamp`], with the others of a table that needs no more
/// features.
macro_rules! stamp_products {
    (
        $token:ident $attrs:tt ($base:path) ;
        products { $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? => $body:path;)* }
        others $others:tt
    ) => {
        pub(crate) static TABLE: $crate::table::Table = $crate::table::Table {
            quantized_products: $crate::formats::formats!([$crate::table::quantized_products], $token, $attrs),
            $($name: {
                $crate::table::shell! { $token $attrs fn $name($($arg: $ty),*) $(-> $ret)? => $body }
                $name
            },)*
            ..$base
        };
    };
}
#[allow(unused_imports, reason = "on some architectures there is only the portable one")]
pub(crate) use stamp_products;

/// An array with the shell of each type's product, for types of quantized weights.
macro_rules! quantized_products {
    ($token:ident $attrs:tt ; $($ty:ident: $name:ident, $block:ident, $product:ident, $quantizer:ident;)*) => {
        [$($crate::table::quantized_products!(@ $product $token $attrs $name $block)),*]
    };
    (@ blocks $token:ident $attrs:tt $name:ident $block:ident) => {
        $crate::table::quantized_products!(@@ $token $attrs $name $crate::products::blocks::<_, qgguf_gguf::blocks::$block>)
    };
    (@ superblocks $token:ident $attrs:tt $name:ident $block:ident) => {
        $crate::table::quantized_products!(@@ $token $attrs $name $crate::products::superblocks::<_, qgguf_gguf::blocks::$block>)
    };
    (@ $other:ident $token:ident $attrs:tt $name:ident $block:ident) => { None };
    (@@ $token:ident $attrs:tt $name:ident $body:path) => {{
        $crate::table::shell! { $token $attrs fn $name(
            panel: $crate::layout::Panel<'_>, x: $crate::activations::QuantizedRows<'_>,
            tile: &mut $crate::tile::Tile, out: &mut [[f32; $crate::layout::PANEL]]
        ) => $body }
        Some($name as $crate::table::QuantizedProduct)
    }};
}
pub(crate) use quantized_products;

/// As [`quantized_products`], for types of numbers.
macro_rules! float_products {
    ($token:ident $attrs:tt ; $($ty:ident: $name:ident, $block:ident, $product:ident, $quantizer:ident;)*) => {
        [$($crate::table::float_products!(@ $product $token $attrs $name $block)),*]
    };
    (@ numbers $token:ident $attrs:tt $name:ident $block:ident) => {{
        $crate::table::shell! { $token $attrs fn $name(
            panel: $crate::layout::Panel<'_>, x: $crate::activations::FloatRows<'_>,
            out: &mut [[f32; $crate::layout::PANEL]]
        ) => $crate::float_products::floats::<_, qgguf_gguf::blocks::$block> }
        Some($name as $crate::table::FloatProduct)
    }};
    (@ $other:ident $token:ident $attrs:tt $name:ident $block:ident) => { None };
}
pub(crate) use float_products;

/// As [`quantized_products`], for what makes the types.
macro_rules! quantizers {
    ($token:ident $attrs:tt ; $($ty:ident: $name:ident, $block:ident, $product:ident, $quantizer:ident;)*) => {
        [$($crate::table::quantizers!(@ $quantizer $token $attrs $name $block)),*]
    };
    (@ quantizer $token:ident $attrs:tt $name:ident $block:ident) => {{
        $crate::table::shell! { $token $attrs fn $name(
            weights: $crate::quantizers::Weights<'_>, out: &mut [u8]
        ) => $crate::quantizers::quantize::<_, qgguf_gguf::blocks::$block> }
        Some($name as $crate::table::Quantizer)
    }};
    (@ none $token:ident $attrs:tt $name:ident $block:ident) => { None };
}
pub(crate) use quantizers;

macro_rules! shell {
    ($token:ident ($(#[$attr:meta])*) fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? => $body:path) => {
        $(#[$attr])*
        unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: whoever calls through the table has checked the CPU for this token's features.
            $body(unsafe { $token::new_unchecked() }, $($arg),*)
        }
    };
}
pub(crate) use shell;
