//! Types that are plain numbers: f32, f16 and bf16, as blocks of one.

use super::{Dequantize, block, f16_at};

block! {
    /// A single-precision number.
    BlockF32: 1 weights, 4 bytes, halves [] {
        /// Its bytes.
        x: [u8; 4],
    }
}

impl Dequantize<1> for BlockF32 {
    fn weights(&self, out: &mut [f32; 1]) {
        *out = [f32::from_le_bytes(self.x)];
    }
}

block! {
    /// A half-precision number.
    BlockF16: 1 weights, 2 bytes, halves [x] {
        /// Its bytes.
        x: [u8; 2],
    }
}

impl Dequantize<1> for BlockF16 {
    fn weights(&self, out: &mut [f32; 1]) {
        *out = [f16_at(self.x)];
    }
}

block! {
    /// A bfloat16 number: the upper half of a single-precision one.
    BlockBF16: 1 weights, 2 bytes, halves [] {
        /// Its bytes.
        x: [u8; 2],
    }
}

impl Dequantize<1> for BlockBF16 {
    fn weights(&self, out: &mut [f32; 1]) {
        let [low, high] = self.x;
        *out = [f32::from_le_bytes([0, 0, low, high])];
    }
}
