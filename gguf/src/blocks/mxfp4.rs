//! MXFP4: four-bit floats, 32 to a scale that is a power of two.

use super::{Dequantize, FP4, block, nibble};

block! {
    /// 32 FP4 (E2M1) weights with a power-of-two scale.
    BlockMXFP4: 32 weights, 17 bytes, halves [] {
        /// E8M0 scale.
        e: [u8; 1],
        /// Nibbles.
        qs: [u8; 16],
    }
}

/// Half of an E8M0 scale, `2^(e - 128)`: half, because [`FP4`] holds doubled values.
#[inline(always)]
pub fn e8m0_half(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

impl Dequantize<32> for BlockMXFP4 {
    fn weights(&self, out: &mut [f32; 32]) {
        let d = e8m0_half(self.e[0]);
        *out = std::array::from_fn(|j| f32::from(FP4[nibble(&self.qs, j) as usize]) * d);
    }
}
