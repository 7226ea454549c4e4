//! Q5_1: five bits, 32 weights to a scale and a minimum.

use super::{Dequantize, block, f16_at, fifth, nibble};

block! {
    /// 32 weights of 5 bits, `(nibble | bit << 4) * d + m`.
    BlockQ5_1: 32 weights, 24 bytes, halves [d, m] {
        /// f16 scale.
        d: [u8; 2],
        /// f16 minimum.
        m: [u8; 2],
        /// Fifth bits, bit j of the u32 for weight j.
        qh: [u8; 4],
        /// Nibbles.
        qs: [u8; 16],
    }
}

impl Dequantize<32> for BlockQ5_1 {
    fn weights(&self, out: &mut [f32; 32]) {
        let (d, m) = (f16_at(self.d), f16_at(self.m));
        *out = std::array::from_fn(|j| (nibble(&self.qs, j) | fifth(self.qh, j)) as f32 * d + m);
    }
}
