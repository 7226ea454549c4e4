//! Q8_K: signed bytes, 256 to a scale, with sums: what activations are quantized to, not weights.

use super::{Dequantize, block};

block! {
    /// 256 activations of 8 bits, `q * d`.
    BlockQ8K: 256 weights, 292 bytes, halves [] {
        /// f32 scale.
        d: [u8; 4],
        /// Signed bytes.
        qs: [u8; 256],
        /// 16 i16 sums of 16 codes each.
        bsums: [u8; 32],
    }
}

impl Dequantize<256> for BlockQ8K {
    fn weights(&self, out: &mut [f32; 256]) {
        let d = f32::from_le_bytes(self.d);
        *out = std::array::from_fn(|w| d * f32::from(self.qs[w] as i8));
    }
}
