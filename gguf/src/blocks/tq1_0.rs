//! TQ1_0: ternary weights, five to a byte.

use super::{Dequantize, block, f16_at};

block! {
    /// 256 ternary weights, five to a byte (base 3).
    BlockTQ1_0: 256 weights, 54 bytes, halves [d] {
        /// Weights 0..240.
        qs: [u8; 48],
        /// Weights 240..256.
        qh: [u8; 4],
        /// f16 scale.
        d: [u8; 2],
    }
}

impl BlockTQ1_0 {
    /// Digit `n` (0 first) of a byte, 0 to 2.
    #[inline(always)]
    pub fn digit(byte: u8, n: usize) -> i8 {
        const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
        ((u16::from(byte.wrapping_mul(POWERS[n])) * 3) >> 8) as i8
    }
}

impl Dequantize<256> for BlockTQ1_0 {
    fn weights(&self, out: &mut [f32; 256]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|w| {
            let (byte, digit) = match w {
                0..160 => (self.qs[w % 32], w / 32),
                160..240 => (self.qs[32 + (w - 160) % 16], (w - 160) / 16),
                _ => (self.qh[(w - 240) % 4], (w - 240) / 4),
            };
            f32::from(BlockTQ1_0::digit(byte, digit) - 1) * d
        });
    }
}
