//! NVFP4: four-bit floats, 16 to a scale that is an eight-bit float.

use super::{Dequantize, FP4, block, high, low};

block! {
    /// 64 FP4 (E2M1) weights, 4 sub-blocks of 16 with an unsigned E4M3 scale each.
    BlockNVFP4: 64 weights, 36 bytes, halves [] {
        /// UE4M3 scales.
        scales: [u8; 4],
        /// Nibbles, 8 bytes a sub-block.
        qs: [u8; 32],
    }
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

impl Dequantize<64> for BlockNVFP4 {
    fn weights(&self, out: &mut [f32; 64]) {
        *out = std::array::from_fn(|w| {
            let (sub, j) = (w / 16, w % 16);
            let byte = self.qs[8 * sub + j % 8];
            let code = if j < 8 { low(byte) } else { high(byte) };
            f32::from(FP4[code as usize]) * ue4m3_half(self.scales[sub])
        });
    }
}
