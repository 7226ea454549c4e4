//! The list of kernels, once: it becomes the table's fields and, for each instruction set, its shells.
//!
//! To add a kernel: write the generic body `fn name<S: Simd>(s: S, args…)` with `#[inline(always)]` and add
//! its line to `kernels!`, among the products if it uses [`Simd`](crate::simd::Simd)'s chains. Entries are called where the lengths of their arguments have been checked.

/// Calls `$apply! { $args… ; products { … } others { … } }` with one line per kernel. The body's first argument is
/// the ISA token. Products are the kernels that use its chains of products of bytes: all that differs between
/// instruction sets that are siblings.
macro_rules! kernels {
    ($apply:ident $(, $arg:tt)*) => {
        $apply! { $($arg)* ;
            products {
                fn q4_0(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::small::<_, qgguf_gguf::blocks::BlockQ4_0>;
                fn q4_1(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::small::<_, qgguf_gguf::blocks::BlockQ4_1>;
                fn q5_0(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::small::<_, qgguf_gguf::blocks::BlockQ5_0>;
                fn q5_1(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::small::<_, qgguf_gguf::blocks::BlockQ5_1>;
                fn q8_0(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::small::<_, qgguf_gguf::blocks::BlockQ8_0>;
                fn iq4_nl(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::small::<_, qgguf_gguf::blocks::BlockIQ4NL>;
                fn mxfp4(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::small::<_, qgguf_gguf::blocks::BlockMXFP4>;
                fn nvfp4(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::small::<_, qgguf_gguf::blocks::BlockNVFP4>;
                fn q2_k(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::superblocks::<_, qgguf_gguf::blocks::BlockQ2K>;
                fn q3_k(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::superblocks::<_, qgguf_gguf::blocks::BlockQ3K>;
                fn q4_k(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::superblocks::<_, qgguf_gguf::blocks::BlockQ4K>;
                fn q5_k(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::superblocks::<_, qgguf_gguf::blocks::BlockQ5K>;
                fn q6_k(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::superblocks::<_, qgguf_gguf::blocks::BlockQ6K>;
                fn iq4_xs(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::superblocks::<_, qgguf_gguf::blocks::BlockIQ4XS>;
                fn tq1_0(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::superblocks::<_, qgguf_gguf::blocks::BlockTQ1_0>;
                fn tq2_0(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Codes<'_>, tile: &mut $crate::weights::Tile, out: &mut [[f32; 16]]) => $crate::tile::superblocks::<_, qgguf_gguf::blocks::BlockTQ2_0>;
                fn multiply_bytes(codes: &[[i8; $crate::weights::COLUMNS]; $crate::limits::TOKENS], weights: &[$crate::weights::Quad; $crate::limits::QUADS], rounds: usize) -> i32 => $crate::limits::multiply_bytes;
            }
            others {
                fn quantize_q8(x: &[f32], out: $crate::quantize::CodesMut<'_>) => $crate::quantize::quantize_q8;
                fn quantize_q8k(x: &[f32], out: $crate::quantize::CodesMut<'_>) => $crate::quantize::quantize_q8k;

                fn f32(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Floats<'_>, out: &mut [[f32; 16]]) => $crate::wide::wide::<_, $crate::wide::WideF32>;
                fn f16(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Floats<'_>, out: &mut [[f32; 16]]) => $crate::wide::wide::<_, $crate::wide::WideF16>;
                fn bf16(panel: $crate::tile::Panel<'_>, x: $crate::quantize::Floats<'_>, out: &mut [[f32; 16]]) => $crate::wide::wide::<_, $crate::wide::WideBf16>;

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

                fn widen_f16(x: &[u8], out: &mut [f32]) => $crate::quantizers::widen_f16;
                fn widen_bf16(x: &[u8], out: &mut [f32]) => $crate::quantizers::widen_bf16;
                fn narrow_f16(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::narrow_f16;
                fn narrow_bf16(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::narrow_bf16;
                fn to_q4_0(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::q4_0;
                fn to_q4_1(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::q4_1;
                fn to_q5_0(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::q5_0;
                fn to_q5_1(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::q5_1;
                fn to_q8_0(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::q8_0;
                fn to_q2_k(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::q2_k;
                fn to_q3_k(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::q3_k;
                fn to_q4_k(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::q4_k;
                fn to_q5_k(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::q5_k;
                fn to_q6_k(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::q6_k;
                fn to_iq4_nl(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::iq4_nl;
                fn to_iq4_xs(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::iq4_xs;
                fn to_tq1_0(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::tq1_0;
                fn to_tq2_0(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::tq2_0;
                fn to_mxfp4(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::mxfp4;
                fn to_nvfp4(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::nvfp4;
                fn to_q1_0(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::q1_0;
                fn to_q2_0(weights: $crate::quantizers::Weights<'_>, out: &mut [u8]) => $crate::quantizers::q2_0;

                fn read(x: &[u8]) -> u8 => $crate::limits::read;
                fn multiply_floats(values: &[[f32; 16]; $crate::limits::VECTORS], weights: &[f32; 16], rounds: usize) -> f32 => $crate::limits::multiply_floats;
            }
        }
    };
}
pub(crate) use kernels;

macro_rules! define_table {
    (; $($group:ident { $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? => $body:path;)* })*) => {
        /// One instruction set's kernels. Calling an entry requires the features of its instruction set.
        pub(crate) struct Table {
            $($(pub(crate) $name: unsafe fn($($ty),*) $(-> $ret)?,)*)*
        }
    };
}
kernels!(define_table);

/// `stamp!(Token, (attributes))`: a `static TABLE` of shells that carry the attributes and call the bodies.
macro_rules! stamp {
    ($token:ident $attrs:tt ; $($group:ident { $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? => $body:path;)* })*) => {
        pub(crate) static TABLE: $crate::table::Table = $crate::table::Table {
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
