//! Plain Rust: the meaning of every operation, and the fallback for any CPU.

use crate::simd::Simd;
use crate::table::stamp;

/// Needs no features.
#[derive(Clone, Copy)]
pub(crate) struct Portable(());

impl Portable {
    /// # Safety
    /// None needed; the signature is that of the other tokens.
    #[inline(always)]
    pub(crate) unsafe fn new_unchecked() -> Portable {
        Portable(())
    }
}

impl Simd for Portable {
    type F32 = [f32; 16];

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 16] {
        [x; 16]
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [f32; 16] {
        *x
    }
    #[inline(always)]
    fn store(self, v: [f32; 16], out: &mut [f32; 16]) {
        *out = v;
    }
    #[inline(always)]
    fn add(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn mul(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
}

crate::table::kernels!(stamp, Portable, ());
