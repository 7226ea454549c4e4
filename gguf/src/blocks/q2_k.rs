//! Q2_K: two bits, sub-blocks of 16 with four-bit scales and minimums.

use super::{Dequantize, block, f16_at, high, low, two_bits};

block! {
    /// 256 weights of 2 bits: 16 sub-blocks, `d * scale * code - dmin * min`.
    BlockQ2K: 256 weights, 84 bytes, halves [d, dmin] {
        /// Per sub-block: scale in the low nibble, min in the high one.
        scales: [u8; 16],
        /// 2-bit codes.
        qs: [u8; 64],
        /// f16 scale of the scales.
        d: [u8; 2],
        /// f16 scale of the mins.
        dmin: [u8; 2],
    }
}

impl Dequantize<256> for BlockQ2K {
    fn weights(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (f16_at(self.d), f16_at(self.dmin));
        *out = std::array::from_fn(|w| {
            let s = self.scales[w / 16];
            (d * low(s) as f32) * two_bits(&self.qs, w) as f32 - dmin * high(s) as f32
        });
    }
}
