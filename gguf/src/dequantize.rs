//! What blocks mean: from bytes to f32, one weight after the other.
//!
//! Written for clarity, from the format alone; the fast paths elsewhere are tested against it. Every product
//! is a single f32 operation in the order written, so results equal ggml's bit for bit.

use half::f16;

use crate::GgmlType;
use crate::blocks::*;

/// Why a row cannot be dequantized.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DequantizeError {
    /// The meaning of this type is not known here.
    #[error("type {0} cannot be dequantized")]
    Unsupported(GgmlType),
    /// The bytes are not those of so many weights.
    #[error("{found} bytes are not {weights} weights of type {ty}{}", expected.map_or(String::new(), |n| format!(", which take {n}")))]
    Length {
        /// The type.
        ty: GgmlType,
        /// Number of weights wanted.
        weights: usize,
        /// Bytes they take, `None` if they are no whole number of blocks.
        expected: Option<usize>,
        /// Bytes given.
        found: usize,
    },
}

type Row = fn(&[u8], &mut [f32]);

/// Writes the weights of whole blocks as f32.
pub fn dequantize_row(ty: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), DequantizeError> {
    let row = function(ty).ok_or(DequantizeError::Unsupported(ty))?;
    let expected = ty.row_bytes(out.len());
    if expected != Some(bytes.len()) {
        return Err(DequantizeError::Length { ty, weights: out.len(), expected, found: bytes.len() });
    }
    row(bytes, out);
    Ok(())
}

/// True if [`dequantize_row`] knows the type.
pub fn dequantize_supported(ty: GgmlType) -> bool {
    function(ty).is_some()
}

fn function(ty: GgmlType) -> Option<Row> {
    Some(match ty {
        GgmlType::F32 => |b, out| numbers(b, out, f32::from_le_bytes),
        GgmlType::F16 => |b, out| numbers(b, out, |v| f16::from_le_bytes(v).to_f32()),
        GgmlType::BF16 => |b, out| numbers(b, out, |[low, high]| f32::from_le_bytes([0, 0, low, high])),
        GgmlType::Q4_0 => each::<BlockQ4_0, 32>(),
        GgmlType::Q4_1 => each::<BlockQ4_1, 32>(),
        GgmlType::Q5_0 => each::<BlockQ5_0, 32>(),
        GgmlType::Q5_1 => each::<BlockQ5_1, 32>(),
        GgmlType::Q8_0 => each::<BlockQ8_0, 32>(),
        GgmlType::Q2_K => each::<BlockQ2K, 256>(),
        GgmlType::Q3_K => each::<BlockQ3K, 256>(),
        GgmlType::Q4_K => each::<BlockQ4K, 256>(),
        GgmlType::Q5_K => each::<BlockQ5K, 256>(),
        GgmlType::Q6_K => each::<BlockQ6K, 256>(),
        GgmlType::Q8_K => each::<BlockQ8K, 256>(),
        GgmlType::IQ4_NL => each::<BlockIQ4NL, 32>(),
        GgmlType::IQ4_XS => each::<BlockIQ4XS, 256>(),
        GgmlType::TQ1_0 => each::<BlockTQ1_0, 256>(),
        GgmlType::TQ2_0 => each::<BlockTQ2_0, 256>(),
        GgmlType::MXFP4 => each::<BlockMXFP4, 32>(),
        GgmlType::NVFP4 => each::<BlockNVFP4, 64>(),
        GgmlType::Q1_0 => each::<BlockQ1_0, 128>(),
        GgmlType::Q2_0 => each::<BlockQ2_0, 64>(),
        _ => return None,
    })
}

fn numbers<const N: usize>(bytes: &[u8], out: &mut [f32], read: impl Fn([u8; N]) -> f32) {
    let (values, _) = bytes.as_chunks::<N>();
    out.iter_mut().zip(values).for_each(|(out, &v)| *out = read(v));
}

/// A block type of `N` weights whose meaning is known.
trait Dequantize<const N: usize>: Block {
    fn weights(&self, out: &mut [f32; N]);
}

fn each<B: Dequantize<N>, const N: usize>() -> Row {
    |bytes, out| {
        let blocks = blocks::<B>(bytes).expect("the length was checked");
        let (rows, _) = out.as_chunks_mut::<N>();
        blocks.iter().zip(rows).for_each(|(block, out)| block.weights(out));
    }
}

fn low(byte: u8) -> i32 {
    i32::from(byte & 15)
}

fn high(byte: u8) -> i32 {
    i32::from(byte >> 4)
}

/// Nibble of weight `j` in the layout of the 32-wide types: low nibbles first, high nibbles after.
fn nibble(qs: &[u8; 16], j: usize) -> i32 {
    if j < 16 { low(qs[j]) } else { high(qs[j - 16]) }
}

impl Dequantize<32> for BlockQ4_0 {
    fn weights(&self, out: &mut [f32; 32]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|j| (nibble(&self.qs, j) - 8) as f32 * d);
    }
}

impl Dequantize<32> for BlockQ4_1 {
    fn weights(&self, out: &mut [f32; 32]) {
        let (d, m) = (f16_at(self.d), f16_at(self.m));
        *out = std::array::from_fn(|j| nibble(&self.qs, j) as f32 * d + m);
    }
}

/// Fifth bit of weight `j`, in place.
fn fifth(qh: [u8; 4], j: usize) -> i32 {
    ((u32::from_le_bytes(qh) >> j & 1) << 4) as i32
}

impl Dequantize<32> for BlockQ5_0 {
    fn weights(&self, out: &mut [f32; 32]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|j| ((nibble(&self.qs, j) | fifth(self.qh, j)) - 16) as f32 * d);
    }
}

impl Dequantize<32> for BlockQ5_1 {
    fn weights(&self, out: &mut [f32; 32]) {
        let (d, m) = (f16_at(self.d), f16_at(self.m));
        *out = std::array::from_fn(|j| (nibble(&self.qs, j) | fifth(self.qh, j)) as f32 * d + m);
    }
}

impl Dequantize<32> for BlockQ8_0 {
    fn weights(&self, out: &mut [f32; 32]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|j| f32::from(self.qs[j] as i8) * d);
    }
}

impl Dequantize<32> for BlockIQ4NL {
    fn weights(&self, out: &mut [f32; 32]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|j| d * f32::from(NL4[nibble(&self.qs, j) as usize]));
    }
}

impl Dequantize<32> for BlockMXFP4 {
    fn weights(&self, out: &mut [f32; 32]) {
        let d = e8m0_half(self.e[0]);
        *out = std::array::from_fn(|j| f32::from(FP4[nibble(&self.qs, j) as usize]) * d);
    }
}

impl Dequantize<64> for BlockNVFP4 {
    fn weights(&self, out: &mut [f32; 64]) {
        *out = std::array::from_fn(|w| {
            let (sub, j) = (w / 16, w % 16);
            let byte = self.qs[8 * sub + j % 8];
            let code = if j < 8 { low(byte) } else { high(byte) };
            f32::from(FP4[code as usize]) * ue4m3_half(self.scales[sub])
        });
    }
}

/// Two-bit code of weight `w` as the 256-wide types pack it: 32 bytes hold four runs of 32 weights.
fn two_bits(qs: &[u8; 64], w: usize) -> i32 {
    i32::from(qs[w / 128 * 32 + w % 32] >> (w % 128 / 32 * 2) & 3)
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

impl Dequantize<256> for BlockQ5K {
    fn weights(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (f16_at(self.d), f16_at(self.dmin));
        let (scales, mins) = scales_and_mins(&self.scales);
        *out = std::array::from_fn(|w| {
            let byte = self.qs[w / 64 * 32 + w % 32];
            let code = if w % 64 < 32 { low(byte) } else { high(byte) };
            let code = code + (i32::from(self.qh[w % 32] >> (w / 32) & 1) << 4);
            (d * f32::from(scales[w / 32])) * code as f32 - dmin * f32::from(mins[w / 32])
        });
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

impl Dequantize<256> for BlockQ8K {
    fn weights(&self, out: &mut [f32; 256]) {
        let d = f32::from_le_bytes(self.d);
        *out = std::array::from_fn(|w| d * f32::from(self.qs[w] as i8));
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

impl Dequantize<256> for BlockTQ1_0 {
    fn weights(&self, out: &mut [f32; 256]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|w| {
            let (byte, digit) = match w {
                0..160 => (self.qs[w % 32], w / 32),
                160..240 => (self.qs[32 + (w - 160) % 16], (w - 160) / 16),
                _ => (self.qh[(w - 240) % 4], (w - 240) / 4),
            };
            f32::from(ternary_digit(byte, digit) - 1) * d
        });
    }
}

impl Dequantize<256> for BlockTQ2_0 {
    fn weights(&self, out: &mut [f32; 256]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|w| (two_bits(&self.qs, w) - 1) as f32 * d);
    }
}

impl Dequantize<128> for BlockQ1_0 {
    fn weights(&self, out: &mut [f32; 128]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|j| if self.qs[j / 8] >> (j % 8) & 1 == 1 { d } else { -d });
    }
}

impl Dequantize<64> for BlockQ2_0 {
    fn weights(&self, out: &mut [f32; 64]) {
        let d = f16_at(self.d);
        *out = std::array::from_fn(|j| (i32::from(self.qs[j / 4] >> (2 * (j % 4)) & 3) - 1) as f32 * d);
    }
}
