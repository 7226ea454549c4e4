//! The vector operations that every instruction set provides.
//!
//! The f32 vector is 16 lanes wide everywhere (two AVX registers, four NEON ones, an array in the portable
//! version), because 16 partial sums are part of the arithmetic contract. Every operation is exactly
//! specified, so that all implementations give the same bits.

/// A token that proves its CPU features are present, with the operations they give.
///
/// Implementations are zero-sized and made only after detection (or by the shells in `isa/`), which is
/// what makes the methods safe to call. All methods must be `#[inline(always)]`.
pub trait Simd: Copy {
    /// 16 lanes of f32.
    type F32: Copy;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F32;
    /// Lane i is `x[i]`.
    fn load(self, x: &[f32; 16]) -> Self::F32;
    /// `out[i]` is lane i.
    fn store(self, v: Self::F32, out: &mut [f32; 16]);
    /// `a + b`.
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b`.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;

    /// The sum of the lanes by the contract's tree: lane i with lane i+8, then i+4, i+2, i+1.
    #[inline(always)]
    fn sum(self, v: Self::F32) -> f32 {
        let mut a = [0.0; 16];
        self.store(v, &mut a);
        let mut half = 8;
        while half > 0 {
            for i in 0..half {
                a[i] += a[i + half];
            }
            half /= 2;
        }
        a[0]
    }
}
