//! IQ4_XS: four bits that stand for uneven values, sub-blocks of 32 with six-bit scales.

use super::{Dequantize, NL4, block, f16_at, high, low};

block! {
    /// 256 weights of 4 bits through a fixed table: 8 sub-blocks, `d * (scale - 32) * table[nibble]`.
    BlockIQ4XS: 256 weights, 136 bytes, halves [d] {
        /// f16 scale.
        d: [u8; 2],
        /// High two bits of the 8 scales.
        scales_h: [u8; 2],
        /// Low four bits of the 8 scales.
        scales_l: [u8; 4],
        /// Nibbles.
        qs: [u8; 128],
    }
}

impl BlockIQ4XS {
    /// The 8 scales, -32 to 31.
    #[inline(always)]
    pub fn unpacked_scales(&self) -> [i8; 8] {
        let high = u16::from_le_bytes(self.scales_h);
        std::array::from_fn(|g| {
            let low = self.scales_l[g / 2] >> (4 * (g % 2)) & 15;
            (low | ((high >> (2 * g) & 3) as u8) << 4) as i8 - 32
        })
    }
}

impl Dequantize<256> for BlockIQ4XS {
    fn weights(&self, out: &mut [f32; 256]) {
        let d = f16_at(self.d);
        let scales = self.unpacked_scales();
        *out = std::array::from_fn(|w| {
            let (g, j) = (w / 32, w % 32);
            let byte = self.qs[16 * g + j % 16];
            let code = if j < 16 { low(byte) } else { high(byte) };
            (d * f32::from(scales[g])) * f32::from(NL4[code as usize])
        });
    }
}
