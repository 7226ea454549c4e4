//! Q6_K: six bits around zero, sub-blocks of 16 with eight-bit scales.

use super::{Dequantize, block, f16_at, high, low};

block! {
    /// 256 weights of 6 bits: 16 sub-blocks, `d * scale * (code - 32)`.
    BlockQ6K: 256 weights, 210 bytes, halves [d] {
        /// Low four bits.
        ql: [u8; 128],
        /// High two bits.
        qh: [u8; 64],
        /// 16 signed scales.
        scales: [u8; 16],
        /// f16 scale.
        d: [u8; 2],
    }
}

impl Dequantize<256> for BlockQ6K {
    fn weights(&self, out: &mut [f32; 256]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|w| {
            let (half, run, l) = (w / 128, w % 128 / 32, w % 32);
            let byte = self.ql[64 * half + l + 32 * (run & 1)];
            let code = if run < 2 { low(byte) } else { high(byte) };
            let top = i32::from(self.qh[32 * half + l] >> (2 * run) & 3);
            (d * f32::from(self.scales[w / 16] as i8)) * ((code | top << 4) - 32) as f32
        });
    }
}
