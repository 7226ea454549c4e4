//! Block types, one file each: how a block lies in memory, and what it means as f32.
//!
//! Blocks are byte arrays with alignment 1, so a view is a length check. Field order and sizes are the file format's;
//! multi-byte fields are little-endian bytes. Meanings are written for clarity, from the format alone; the fast paths
//! elsewhere are tested against them. Every product is a single f32 operation in the order written, so results equal
//! ggml's bit for bit.
//!
//! To add a type: its file, and here its module and its line in the list.

use half::f16;

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
mod q8_k;
mod tq1_0;
mod tq2_0;

/// Calls `$apply!` with every type of the format in ascending order: `variant = id, name as llama.cpp prints it, block`,
/// or `weights, bytes` of a block where its fields and their meaning are not known here.
///
/// Source: the GGUF type table. Ids that were removed from the format (4, 5, 31-33, 36-38) and ids from 43 up are not in it.
macro_rules! types {
    ($apply:ident) => {
        $apply! {
            F32 = 0, "f32", numbers::BlockF32;
            F16 = 1, "f16", numbers::BlockF16;
            Q4_0 = 2, "q4_0", q4_0::BlockQ4_0;
            Q4_1 = 3, "q4_1", q4_1::BlockQ4_1;
            Q5_0 = 6, "q5_0", q5_0::BlockQ5_0;
            Q5_1 = 7, "q5_1", q5_1::BlockQ5_1;
            Q8_0 = 8, "q8_0", q8_0::BlockQ8_0;
            Q8_1 = 9, "q8_1", 32, 36;
            Q2_K = 10, "q2_K", q2_k::BlockQ2K;
            Q3_K = 11, "q3_K", q3_k::BlockQ3K;
            Q4_K = 12, "q4_K", q4_k::BlockQ4K;
            Q5_K = 13, "q5_K", q5_k::BlockQ5K;
            Q6_K = 14, "q6_K", q6_k::BlockQ6K;
            Q8_K = 15, "q8_K", q8_k::BlockQ8K;
            IQ2_XXS = 16, "iq2_xxs", 256, 66;
            IQ2_XS = 17, "iq2_xs", 256, 74;
            IQ3_XXS = 18, "iq3_xxs", 256, 98;
            IQ1_S = 19, "iq1_s", 256, 50;
            IQ4_NL = 20, "iq4_nl", iq4_nl::BlockIQ4NL;
            IQ3_S = 21, "iq3_s", 256, 110;
            IQ2_S = 22, "iq2_s", 256, 82;
            IQ4_XS = 23, "iq4_xs", iq4_xs::BlockIQ4XS;
            I8 = 24, "i8", 1, 1;
            I16 = 25, "i16", 1, 2;
            I32 = 26, "i32", 1, 4;
            I64 = 27, "i64", 1, 8;
            F64 = 28, "f64", 1, 8;
            IQ1_M = 29, "iq1_m", 256, 56;
            BF16 = 30, "bf16", numbers::BlockBF16;
            TQ1_0 = 34, "tq1_0", tq1_0::BlockTQ1_0;
            TQ2_0 = 35, "tq2_0", tq2_0::BlockTQ2_0;
            MXFP4 = 39, "mxfp4", mxfp4::BlockMXFP4;
            NVFP4 = 40, "nvfp4", nvfp4::BlockNVFP4;
            Q1_0 = 41, "q1_0", q1_0::BlockQ1_0;
            Q2_0 = 42, "q2_0", q2_0::BlockQ2_0;
        }
    };
}
pub(crate) use types;

macro_rules! export {
    ($($ty:ident = $id:literal, $name:literal, $($module:ident::$block:ident)? $($weights:literal, $bytes:literal)?;)*) => {
        $($(pub use $module::$block;)?)*
    };
}
types!(export);
pub use mxfp4::e8m0_half;
pub use nvfp4::ue4m3_half;

/// A block type: plain bytes of one fixed size.
///
/// # Safety
/// The type must be `repr(C)`, made of bytes only (alignment 1, no padding, every bit pattern valid).
pub unsafe trait Block: Copy + 'static {
    /// Weights per block.
    const WEIGHTS: usize;
    /// Where in a block half-precision numbers lie: its scales and minimums.
    const HALVES: &'static [usize];
}

/// A block type of `N` weights whose meaning is known.
pub(crate) trait Dequantize<const N: usize>: Block {
    /// Writes all weights.
    fn weights(&self, out: &mut [f32; N]);
}

/// Writes the weights of a whole number of blocks.
pub(crate) fn dequantize<B: Dequantize<N>, const N: usize>(bytes: &[u8], out: &mut [f32]) {
    let blocks = blocks::<B>(bytes).expect("the length was checked");
    let (rows, _) = out.as_chunks_mut::<N>();
    blocks.iter().zip(rows).for_each(|(block, out)| block.weights(out));
}

/// Views bytes as blocks of `B`. `None` if the length is no multiple of the block's size.
#[inline]
pub fn blocks<B: Block>(bytes: &[u8]) -> Option<&[B]> {
    let size = size_of::<B>();
    if !bytes.len().is_multiple_of(size) {
        return None;
    }
    // SAFETY: `Block` promises alignment 1, no padding and that all bit patterns are valid; the
    // length covers exactly `len / size` blocks of the borrowed bytes.
    Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<B>(), bytes.len() / size) })
}

/// Defines a block type of byte arrays, and says which fields are half-precision numbers.
macro_rules! block {
    (
        $(#[$doc:meta])*
        $name:ident: $weights:literal weights, $bytes:literal bytes, halves [$($half:ident),*] {
            $($(#[$field_doc:meta])* $field:ident: [u8; $n:literal]),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: [u8; $n],)+
        }
        const _: () = assert!(size_of::<$name>() == $bytes && align_of::<$name>() == 1);
        // SAFETY: `repr(C)` over byte arrays only.
        unsafe impl $crate::blocks::Block for $name {
            const WEIGHTS: usize = $weights;
            const HALVES: &'static [usize] = &[$(std::mem::offset_of!($name, $half)),*];
        }
    };
}
use block;

/// Widens a little-endian half-precision field.
#[inline(always)]
pub fn f16_at(bytes: [u8; 2]) -> f32 {
    f16::from_bits(u16::from_le_bytes(bytes)).to_f32()
}

fn low(byte: u8) -> i32 {
    i32::from(byte & 15)
}

fn high(byte: u8) -> i32 {
    i32::from(byte >> 4)
}

/// Nibble of weight `j` in the layout of the 32-wide types: low nibbles first, high nibbles after.
fn nibble(qs: &[u8; 16], j: usize) -> i32 {
    if j < 16 { low(qs[j]) } else { high(qs[j - 16]) }
}

/// Fifth bit of weight `j`, in place.
fn fifth(qh: [u8; 4], j: usize) -> i32 {
    ((u32::from_le_bytes(qh) >> j & 1) << 4) as i32
}

/// Two-bit code of weight `w` as the 256-wide types pack it: 32 bytes hold four runs of 32 weights.
fn two_bits(qs: &[u8; 64], w: usize) -> i32 {
    i32::from(qs[w / 128 * 32 + w % 32] >> (w % 128 / 32 * 2) & 3)
}

/// The 8 six-bit scales and 8 six-bit mins of [`BlockQ4K`] and [`BlockQ5K`].
fn scales_and_mins(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for g in 0..4 {
        scales[g] = packed[g] & 63;
        mins[g] = packed[g + 4] & 63;
        scales[g + 4] = packed[g + 8] & 15 | packed[g] >> 6 << 4;
        mins[g + 4] = packed[g + 8] >> 4 | packed[g + 4] >> 6 << 4;
    }
    (scales, mins)
}

/// Values of the codes of [`BlockIQ4NL`] and [`BlockIQ4XS`].
pub const NL4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of the E2M1 codes of [`BlockMXFP4`] and [`BlockNVFP4`].
pub const FP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
