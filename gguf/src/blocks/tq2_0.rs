//! TQ2_0: ternary weights, four to a byte.

use super::{Dequantize, block, f16_at, two_bits};

block! {
    /// 256 ternary weights, four to a byte.
    BlockTQ2_0: 256 weights, 66 bytes, halves [d] {
        /// 2-bit codes.
        qs: [u8; 64],
        /// f16 scale.
        d: [u8; 2],
    }
}

impl Dequantize<256> for BlockTQ2_0 {
    fn weights(&self, out: &mut [f32; 256]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|w| (two_bits(&self.qs, w) - 1) as f32 * d);
    }
}
