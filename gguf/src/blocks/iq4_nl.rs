//! IQ4_NL: four bits that stand for uneven values, 32 weights to a scale.

use super::{Dequantize, NL4, block, f16_at, nibble};

block! {
    /// 32 weights of 4 bits through a fixed table, `table[nibble] * d`.
    BlockIQ4NL: 32 weights, 18 bytes, halves [d] {
        /// f16 scale.
        d: [u8; 2],
        /// Nibbles.
        qs: [u8; 16],
    }
}

impl Dequantize<32> for BlockIQ4NL {
    fn weights(&self, out: &mut [f32; 32]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|j| d * f32::from(NL4[nibble(&self.qs, j) as usize]));
    }
}
