//! Q4_0: four bits around zero, 32 weights to a scale.

use super::{Dequantize, block, f16_at, nibble};

block! {
    /// 32 weights of 4 bits, `(nibble - 8) * d`; low nibbles first 16 weights, high nibbles last 16.
    BlockQ4_0: 32 weights, 18 bytes, halves [d] {
        /// f16 scale.
        d: [u8; 2],
        /// Nibbles.
        qs: [u8; 16],
    }
}

impl Dequantize<32> for BlockQ4_0 {
    fn weights(&self, out: &mut [f32; 32]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|j| (nibble(&self.qs, j) - 8) as f32 * d);
    }
}
