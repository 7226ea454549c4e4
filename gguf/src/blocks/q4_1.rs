//! Q4_1: four bits, 32 weights to a scale and a minimum.

use super::{Dequantize, block, f16_at, nibble};

block! {
    /// 32 weights of 4 bits, `nibble * d + m`.
    BlockQ4_1: 32 weights, 20 bytes, halves [d, m] {
        /// f16 scale.
        d: [u8; 2],
        /// f16 minimum.
        m: [u8; 2],
        /// Nibbles.
        qs: [u8; 16],
    }
}

impl Dequantize<32> for BlockQ4_1 {
    fn weights(&self, out: &mut [f32; 32]) {
        let (d, m) = (f16_at(self.d), f16_at(self.m));
        *out = std::array::from_fn(|j| nibble(&self.qs, j) as f32 * d + m);
    }
}
