//! Q2_0: two bits around zero, 64 weights to a scale.

use super::{Dequantize, block, f16_at};

block! {
    /// 64 weights of 2 bits, `(code - 1) * d`.
    BlockQ2_0: 64 weights, 18 bytes, halves [d] {
        /// f16 scale.
        d: [u8; 2],
        /// 2-bit codes, four consecutive weights to a byte.
        qs: [u8; 16],
    }
}

impl Dequantize<64> for BlockQ2_0 {
    fn weights(&self, out: &mut [f32; 64]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|j| (i32::from(self.qs[j / 4] >> (2 * (j % 4)) & 3) - 1) as f32 * d);
    }
}
