//! Q4_K: four bits, sub-blocks of 32 with six-bit scales and minimums.

use super::{Dequantize, block, f16_at, high, low, scales_and_mins};

block! {
    /// 256 weights of 4 bits: 8 sub-blocks, `d * scale * nibble - dmin * min`.
    BlockQ4K: 256 weights, 144 bytes, halves [d, dmin] {
        /// f16 scale of the scales.
        d: [u8; 2],
        /// f16 scale of the mins.
        dmin: [u8; 2],
        /// 8 six-bit scales and 8 six-bit mins.
        scales: [u8; 12],
        /// Nibbles.
        qs: [u8; 128],
    }
}

impl Dequantize<256> for BlockQ4K {
    fn weights(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (f16_at(self.d), f16_at(self.dmin));
        let (scales, mins) = scales_and_mins(&self.scales);
        *out = std::array::from_fn(|w| {
            let byte = self.qs[w / 64 * 32 + w % 32];
            let code = if w % 64 < 32 { low(byte) } else { high(byte) };
            (d * f32::from(scales[w / 32])) * code as f32 - dmin * f32::from(mins[w / 32])
        });
    }
}
