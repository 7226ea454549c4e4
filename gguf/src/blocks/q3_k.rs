//! Q3_K: three bits around zero, sub-blocks of 16 with six-bit scales.

use super::{Dequantize, block, f16_at, two_bits};

block! {
    /// 256 weights of 3 bits: 16 sub-blocks, `d * scale * (code - 4)`.
    BlockQ3K: 256 weights, 110 bytes, halves [d] {
        /// Third bits: bit k of byte w mod 32, k = w / 32.
        hmask: [u8; 32],
        /// Low two bits.
        qs: [u8; 64],
        /// 16 six-bit scales, biased by 32.
        scales: [u8; 12],
        /// f16 scale.
        d: [u8; 2],
    }
}

impl BlockQ3K {
    /// The 16 scales, -32 to 31.
    #[inline(always)]
    pub fn unpacked_scales(&self) -> [i8; 16] {
        std::array::from_fn(|g| {
            let low = if g < 8 { self.scales[g] & 15 } else { self.scales[g - 8] >> 4 };
            let high = self.scales[8 + g % 4] >> (2 * (g / 4)) & 3;
            (low | high << 4) as i8 - 32
        })
    }
}

impl Dequantize<256> for BlockQ3K {
    fn weights(&self, out: &mut [f32; 256]) {
        let d = f16_at(self.d);
        let scales = self.unpacked_scales();
        *out = std::array::from_fn(|w| {
            let third = if self.hmask[w % 32] >> (w / 32) & 1 == 1 { 0 } else { 4 };
            (d * f32::from(scales[w / 16])) * (two_bits(&self.qs, w) - third) as f32
        });
    }
}
