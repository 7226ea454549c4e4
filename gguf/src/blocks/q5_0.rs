//! Q5_0: five bits around zero, 32 weights to a scale.

use super::{Dequantize, block, f16_at, fifth, nibble};

block! {
    /// 32 weights of 5 bits, `((nibble | bit << 4) - 16) * d`.
    BlockQ5_0: 32 weights, 22 bytes, halves [d] {
        /// f16 scale.
        d: [u8; 2],
        /// Fifth bits, bit j of the u32 for weight j.
        qh: [u8; 4],
        /// Nibbles.
        qs: [u8; 16],
    }
}

impl Dequantize<32> for BlockQ5_0 {
    fn weights(&self, out: &mut [f32; 32]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|j| ((nibble(&self.qs, j) | fifth(self.qh, j)) - 16) as f32 * d);
    }
}
