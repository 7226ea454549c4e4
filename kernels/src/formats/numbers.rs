//! F32, F16, BF16: types that are plain numbers. Weights are widened exactly, and narrowed with rounding to nearest even.

use half::{bf16, f16};
use qgguf_gguf::blocks::{BlockBF16, BlockF16, BlockF32};

use crate::float_products::FloatFormat;
use crate::layout::NumberFormat;
use crate::quantizers::{Quantize, Weights};
use crate::simd::Simd;

impl FloatFormat for BlockF32 {
    const NUMBERS: NumberFormat = NumberFormat::F32;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F32 {
        s.load(&std::array::from_fn(|i| {
            f32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("4 bytes"))
        }))
    }
}

impl Quantize for BlockF32 {
    #[inline(always)]
    fn quantize<S: Simd>(_: S, weights: Weights<'_>, out: &mut [u8]) {
        for (out, x) in out.as_chunks_mut().0.iter_mut().zip(weights.x) {
            *out = x.to_le_bytes();
        }
    }
}

impl FloatFormat for BlockF16 {
    const NUMBERS: NumberFormat = NumberFormat::F16;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F32 {
        s.load_f16(bytes.try_into().expect("32 bytes"))
    }
}

impl Quantize for BlockF16 {
    #[inline(always)]
    fn quantize<S: Simd>(s: S, weights: Weights<'_>, out: &mut [u8]) {
        let (x, x_tail) = weights.x.as_chunks::<16>();
        let (body, tail) = out.split_at_mut(32 * x.len());
        for (x, out) in x.iter().zip(body.as_chunks_mut::<32>().0) {
            s.store_f16(s.load(x), out);
        }
        for (x, out) in x_tail.iter().zip(tail.as_chunks_mut().0) {
            *out = f16::from_f32(*x).to_le_bytes();
        }
    }
}

impl FloatFormat for BlockBF16 {
    const NUMBERS: NumberFormat = NumberFormat::Bf16;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F32 {
        s.load_bf16(bytes.try_into().expect("32 bytes"))
    }
}

impl Quantize for BlockBF16 {
    /// There is no NaN among the weights.
    #[inline(always)]
    fn quantize<S: Simd>(_: S, weights: Weights<'_>, out: &mut [u8]) {
        for (x, out) in weights.x.iter().zip(out.as_chunks_mut().0) {
            let bits = x.to_bits();
            *out = (((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16).to_le_bytes();
        }
    }

    #[inline(always)]
    fn in_range(block: &[u8]) -> bool {
        bf16::from_le_bytes([block[0], block[1]]).is_finite()
    }
}

/// From f16, two bytes for each number.
#[inline(always)]
pub(crate) fn widen_f16<S: Simd>(s: S, x: &[u8], out: &mut [f32]) {
    let (body, tail) = out.as_chunks_mut::<16>();
    let (x, x_tail) = x.as_chunks::<32>();
    for (x, out) in x.iter().zip(body) {
        s.store(s.load_f16(x), out);
    }
    for (&x, out) in x_tail.as_chunks().0.iter().zip(tail) {
        *out = f16::from_le_bytes(x).to_f32();
    }
}

/// From bf16, two bytes for each number.
#[inline(always)]
pub(crate) fn widen_bf16<S: Simd>(s: S, x: &[u8], out: &mut [f32]) {
    let (body, tail) = out.as_chunks_mut::<16>();
    let (x, x_tail) = x.as_chunks::<32>();
    for (x, out) in x.iter().zip(body) {
        s.store(s.load_bf16(x), out);
    }
    for (&x, out) in x_tail.as_chunks().0.iter().zip(tail) {
        *out = bf16::from_le_bytes(x).to_f32();
    }
}
