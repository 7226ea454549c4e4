//! Q1_0: signs, 128 to a magnitude.

use super::{Dequantize, block, f16_at};

block! {
    /// 128 weights of one bit: `d` or `-d`.
    BlockQ1_0: 128 weights, 18 bytes, halves [d] {
        /// f16 magnitude.
        d: [u8; 2],
        /// Bit j mod 8 of byte j / 8 is weight j; set means positive.
        qs: [u8; 16],
    }
}

impl Dequantize<128> for BlockQ1_0 {
    fn weights(&self, out: &mut [f32; 128]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|j| if self.qs[j / 8] >> (j % 8) & 1 == 1 { d } else { -d });
    }
}
