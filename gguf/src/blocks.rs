//! Block layouts of the quantized types: byte arrays with alignment 1, so a view is a length check.
//!
//! Field order and sizes are the file format's; multi-byte fields are little-endian bytes.
//! `f16` fields are read with [`f16_at`]. What the fields mean is in [`crate::dequantize`].

use half::f16;

/// A block type: plain bytes of one fixed size.
///
/// # Safety
/// The type must be `repr(C)`, made of bytes only (alignment 1, no padding, every bit pattern valid).
pub unsafe trait Block: Copy + 'static {
    /// The tensor type that is made of these blocks.
    const TYPE: crate::GgmlType;
    /// Weights per block.
    const WEIGHTS: usize;
}

/// Widens a little-endian half-precision field.
#[inline(always)]
pub fn f16_at(bytes: [u8; 2]) -> f32 {
    f16::from_bits(u16::from_le_bytes(bytes)).to_f32()
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

macro_rules! block {
    ($(#[$doc:meta])* $name:ident = $ty:ident, $weights:literal weights, $bytes:literal bytes { $($(#[$fdoc:meta])* $field:ident: [u8; $n:literal]),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(C)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: [u8; $n],)+
        }
        const _: () = assert!(size_of::<$name>() == $bytes && align_of::<$name>() == 1);
        // SAFETY: `repr(C)` over byte arrays only.
        unsafe impl Block for $name {
            const TYPE: crate::GgmlType = crate::GgmlType::$ty;
            const WEIGHTS: usize = $weights;
        }
    };
}

block!(/// 32 weights of 4 bits, `(nibble - 8) * d`; low nibbles first 16 weights, high nibbles last 16.
BlockQ4_0 = Q4_0, 32 weights, 18 bytes { /// f16 scale.
    d: [u8; 2], /// Nibbles.
    qs: [u8; 16] });
block!(/// 32 weights of 4 bits, `nibble * d + m`.
BlockQ4_1 = Q4_1, 32 weights, 20 bytes { /// f16 scale.
    d: [u8; 2], /// f16 minimum.
    m: [u8; 2], /// Nibbles.
    qs: [u8; 16] });
block!(/// 32 weights of 5 bits, `((nibble | bit << 4) - 16) * d`.
BlockQ5_0 = Q5_0, 32 weights, 22 bytes { /// f16 scale.
    d: [u8; 2], /// Fifth bits, bit j of the u32 for weight j.
    qh: [u8; 4], /// Nibbles.
    qs: [u8; 16] });
block!(/// 32 weights of 5 bits, `(nibble | bit << 4) * d + m`.
BlockQ5_1 = Q5_1, 32 weights, 24 bytes { /// f16 scale.
    d: [u8; 2], /// f16 minimum.
    m: [u8; 2], /// Fifth bits, bit j of the u32 for weight j.
    qh: [u8; 4], /// Nibbles.
    qs: [u8; 16] });
block!(/// 32 weights of 8 bits, `q * d`.
BlockQ8_0 = Q8_0, 32 weights, 34 bytes { /// f16 scale.
    d: [u8; 2], /// Signed bytes.
    qs: [u8; 32] });
block!(/// 256 weights of 2 bits: 16 sub-blocks, `d * scale * code - dmin * min`.
BlockQ2K = Q2_K, 256 weights, 84 bytes { /// Per sub-block: scale in the low nibble, min in the high one.
    scales: [u8; 16], /// 2-bit codes.
    qs: [u8; 64], /// f16 scale of the scales.
    d: [u8; 2], /// f16 scale of the mins.
    dmin: [u8; 2] });
block!(/// 256 weights of 3 bits: 16 sub-blocks, `d * scale * (code - 4)`.
BlockQ3K = Q3_K, 256 weights, 110 bytes { /// Third bits: bit k of byte w mod 32, k = w / 32.
    hmask: [u8; 32], /// Low two bits.
    qs: [u8; 64], /// 16 six-bit scales, biased by 32.
    scales: [u8; 12], /// f16 scale.
    d: [u8; 2] });
block!(/// 256 weights of 4 bits: 8 sub-blocks, `d * scale * nibble - dmin * min`.
BlockQ4K = Q4_K, 256 weights, 144 bytes { /// f16 scale of the scales.
    d: [u8; 2], /// f16 scale of the mins.
    dmin: [u8; 2], /// 8 six-bit scales and 8 six-bit mins.
    scales: [u8; 12], /// Nibbles.
    qs: [u8; 128] });
block!(/// 256 weights of 5 bits: 8 sub-blocks, `d * scale * code - dmin * min`.
BlockQ5K = Q5_K, 256 weights, 176 bytes { /// f16 scale of the scales.
    d: [u8; 2], /// f16 scale of the mins.
    dmin: [u8; 2], /// 8 six-bit scales and 8 six-bit mins.
    scales: [u8; 12], /// Fifth bits: bit g of byte w mod 32, g = w / 32.
    qh: [u8; 32], /// Nibbles.
    qs: [u8; 128] });
block!(/// 256 weights of 6 bits: 16 sub-blocks, `d * scale * (code - 32)`.
BlockQ6K = Q6_K, 256 weights, 210 bytes { /// Low four bits.
    ql: [u8; 128], /// High two bits.
    qh: [u8; 64], /// 16 signed scales.
    scales: [u8; 16], /// f16 scale.
    d: [u8; 2] });
block!(/// 256 activations of 8 bits, `q * d`.
BlockQ8K = Q8_K, 256 weights, 292 bytes { /// f32 scale.
    d: [u8; 4], /// Signed bytes.
    qs: [u8; 256], /// 16 i16 sums of 16 codes each.
    bsums: [u8; 32] });
block!(/// 32 weights of 4 bits through a fixed table, `table[nibble] * d`.
BlockIQ4NL = IQ4_NL, 32 weights, 18 bytes { /// f16 scale.
    d: [u8; 2], /// Nibbles.
    qs: [u8; 16] });
block!(/// 256 weights of 4 bits through a fixed table: 8 sub-blocks, `d * (scale - 32) * table[nibble]`.
BlockIQ4XS = IQ4_XS, 256 weights, 136 bytes { /// f16 scale.
    d: [u8; 2], /// High two bits of the 8 scales.
    scales_h: [u8; 2], /// Low four bits of the 8 scales.
    scales_l: [u8; 4], /// Nibbles.
    qs: [u8; 128] });
block!(/// 256 ternary weights, five to a byte (base 3).
BlockTQ1_0 = TQ1_0, 256 weights, 54 bytes { /// Weights 0..240.
    qs: [u8; 48], /// Weights 240..256.
    qh: [u8; 4], /// f16 scale.
    d: [u8; 2] });
block!(/// 256 ternary weights, four to a byte.
BlockTQ2_0 = TQ2_0, 256 weights, 66 bytes { /// 2-bit codes.
    qs: [u8; 64], /// f16 scale.
    d: [u8; 2] });
block!(/// 32 FP4 (E2M1) weights with a power-of-two scale.
BlockMXFP4 = MXFP4, 32 weights, 17 bytes { /// E8M0 scale.
    e: [u8; 1], /// Nibbles.
    qs: [u8; 16] });
block!(/// 64 FP4 (E2M1) weights, 4 sub-blocks of 16 with an unsigned E4M3 scale each.
BlockNVFP4 = NVFP4, 64 weights, 36 bytes { /// UE4M3 scales.
    scales: [u8; 4], /// Nibbles, 8 bytes a sub-block.
    qs: [u8; 32] });

block!(/// 128 weights of one bit: `d` or `-d`.
BlockQ1_0 = Q1_0, 128 weights, 18 bytes { /// f16 magnitude.
    d: [u8; 2], /// Bit j mod 8 of byte j / 8 is weight j; set means positive.
    qs: [u8; 16] });
block!(/// 64 weights of 2 bits, `(code - 1) * d`.
BlockQ2_0 = Q2_0, 64 weights, 18 bytes { /// f16 scale.
    d: [u8; 2], /// 2-bit codes, four consecutive weights to a byte.
    qs: [u8; 16] });

/// Values of the codes of [`BlockIQ4NL`] and [`BlockIQ4XS`].
pub const NL4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of the E2M1 codes of [`BlockMXFP4`] and [`BlockNVFP4`].
pub const FP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half of an E8M0 scale, `2^(e - 128)`: half, because [`FP4`] holds doubled values.
#[inline(always)]
pub fn e8m0_half(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

/// Half of an unsigned E4M3 scale: half, because [`FP4`] holds doubled values.
#[inline(always)]
pub fn ue4m3_half(x: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(x >> 3 & 15), f32::from(x & 7));
    match (x, exponent) {
        (0 | 0x7f, _) => 0.0,
        (_, 0) => mantissa * 2f32.powi(-10),
        _ => (1.0 + mantissa / 8.0) * f32::from_bits((exponent + 127 - 8) as u32 * (1 << 23)),
    }
}

/// The 8 six-bit scales and 8 six-bit mins of [`BlockQ4K`] and [`BlockQ5K`].
#[inline(always)]
pub fn scales_and_mins(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for g in 0..4 {
        scales[g] = packed[g] & 63;
        mins[g] = packed[g + 4] & 63;
        scales[g + 4] = packed[g + 8] & 15 | packed[g] >> 6 << 4;
        mins[g + 4] = packed[g + 8] >> 4 | packed[g + 4] >> 6 << 4;
    }
    (scales, mins)
}

impl BlockQ3K {
    /// The 16 scales, -32 to 31.
    #[inline(always)]
    pub fn unpacked_scales(&self) -> [i8; 16] {
        std::array::from_fn(|g| {
            let low = if g < 8 { self.scales[g] & 15 } else { self.scales[g - 8] >> 4 };
            let high = self.scales[8 + g % 4] >> (2 * (g / 4)) & 3;
            (low | high << 4) as i8 - 32
        })
    }
}

impl BlockIQ4XS {
    /// The 8 scales, -32 to 31.
    #[inline(always)]
    pub fn unpacked_scales(&self) -> [i8; 8] {
        let high = u16::from_le_bytes(self.scales_h);
        std::array::from_fn(|g| {
            let low = self.scales_l[g / 2] >> (4 * (g % 2)) & 15;
            (low | ((high >> (2 * g) & 3) as u8) << 4) as i8 - 32
        })
    }
}

/// Digit `n` (0 first) of a byte of [`BlockTQ1_0`], 0 to 2.
#[inline(always)]
pub fn ternary_digit(byte: u8, n: usize) -> i8 {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    ((u16::from(byte.wrapping_mul(POWERS[n])) * 3) >> 8) as i8
}
