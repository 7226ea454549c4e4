//! Q8_0: signed bytes, 32 to a scale.

use super::{Dequantize, block, f16_at};

block! {
    /// 32 weights of 8 bits, `q * d`.
    BlockQ8_0: 32 weights, 34 bytes, halves [d] {
        /// f16 scale.
        d: [u8; 2],
        /// Signed bytes.
        qs: [u8; 32],
    }
}

impl Dequantize<32> for BlockQ8_0 {
    fn weights(&self, out: &mut [f32; 32]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|j| f32::from(self.qs[j] as i8) * d);
    }
}
