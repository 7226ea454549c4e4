//! AArch64 with NEON: four 128-bit registers for 16 lanes of f32, two for 32 bytes.
//!
//! Three instruction sets that differ in [`Quad`], the product of bytes, and share everything else.

use std::arch::aarch64::*;
use std::arch::asm;
use std::array::from_fn;
use std::marker::PhantomData;

use crate::simd::Simd;

/// Plain NEON, which every AArch64 CPU has.
pub(super) mod base {
    use crate::isa::isa_table;

    type Token = super::Neon<super::Widening>;
    isa_table!(Token, detect: is_aarch64_feature_detected, "neon");
}

/// With the dot product instructions (Cortex-A76, Neoverse N1, Apple A13 and later).
pub(super) mod dotprod {
    use crate::isa::isa_table;

    type Token = super::Neon<super::Sdot>;
    isa_table!(Token, detect: is_aarch64_feature_detected, "neon", "dotprod");
}

/// Sums of four products of bytes.
pub(crate) trait Quad: Copy {
    /// Lane r of `sums` plus the products of signed bytes 4r to 4r + 3, for `a` without -128.
    ///
    /// # Safety
    /// The CPU has the features of the instruction set that uses this.
    unsafe fn quad(sums: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t;
}

/// By widening: products of i16, added in pairs, then widened again.
#[derive(Clone, Copy)]
pub(crate) struct Widening;

impl Quad for Widening {
    #[inline(always)]
    unsafe fn quad(sums: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
        // SAFETY: the CPU has NEON.
        unsafe {
            let low = vmull_s8(vget_low_s8(w), vget_low_s8(a));
            let high = vmull_high_s8(w, a);
            // Pairs of products stay within -2 * 128 * 127, so in i16.
            vpadalq_s16(sums, vpaddq_s16(low, high))
        }
    }
}

/// By `sdot`.
#[derive(Clone, Copy)]
pub(crate) struct Sdot;

impl Quad for Sdot {
    #[inline(always)]
    unsafe fn quad(sums: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
        // SAFETY: the CPU has `dotprod`.
        unsafe { sdot(sums, w, a) }
    }
}

/// The instruction as a function of its own, with its feature, since inline assembly is checked against the
/// features of the function it ends up in.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut sums: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
    // SAFETY: reads and writes registers only.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sums, in(vreg) w, in(vreg) a,
            options(pure, nomem, nostack, preserves_flags));
    }
    sums
}

/// Proof that the CPU has NEON and what `Q` needs.
#[derive(Clone, Copy)]
pub(crate) struct Neon<Q>(PhantomData<Q>);

impl<Q: Quad> Neon<Q> {
    /// # Safety
    /// The CPU has every feature of the instruction set that multiplies by `Q`.
    #[inline(always)]
    pub(crate) unsafe fn new_unchecked() -> Neon<Q> {
        Neon(PhantomData)
    }
}

// SAFETY of all blocks below: the intrinsics need only the features that the token proves, and the pointers
// come from references to arrays of the size that is read or written.
#[allow(clippy::undocumented_unsafe_blocks)]
impl<Q: Quad> Simd for Neon<Q> {
    type F32 = [float32x4_t; 4];
    type Bytes = [uint8x16_t; 2];
    type I32 = int32x4_t;

    #[inline(always)]
    fn splat(self, x: f32) -> [float32x4_t; 4] {
        unsafe { [vdupq_n_f32(x); 4] }
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [float32x4_t; 4] {
        from_fn(|i| unsafe { vld1q_f32(x.as_ptr().add(4 * i)) })
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> [float32x4_t; 4] {
        from_fn(|i| unsafe { vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(x.as_ptr().add(8 * i)))) })
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u8; 32]) -> [float32x4_t; 4] {
        from_fn(|i| unsafe {
            let words = vreinterpret_u16_u8(vld1_u8(x.as_ptr().add(8 * i)));
            vreinterpretq_f32_u32(vshll_n_u16::<16>(words))
        })
    }
    #[inline(always)]
    fn store(self, v: [float32x4_t; 4], out: &mut [f32; 16]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut::<4>().0) {
            unsafe { vst1q_f32(out.as_mut_ptr(), v) }
        }
    }
    #[inline(always)]
    fn store_f16(self, v: [float32x4_t; 4], out: &mut [u8; 32]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut::<8>().0) {
            unsafe { vst1_u8(out.as_mut_ptr(), vreinterpret_u8_f16(vcvt_f16_f32(v))) }
        }
    }
    #[inline(always)]
    fn add(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        from_fn(|i| unsafe { vaddq_f32(a[i], b[i]) })
    }
    #[inline(always)]
    fn sub(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        from_fn(|i| unsafe { vsubq_f32(a[i], b[i]) })
    }
    #[inline(always)]
    fn mul(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        from_fn(|i| unsafe { vmulq_f32(a[i], b[i]) })
    }
    #[inline(always)]
    fn div(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        from_fn(|i| unsafe { vdivq_f32(a[i], b[i]) })
    }
    #[inline(always)]
    fn mul_add(self, a: [float32x4_t; 4], b: [float32x4_t; 4], c: [float32x4_t; 4]) -> [float32x4_t; 4] {
        from_fn(|i| unsafe { vfmaq_f32(c[i], a[i], b[i]) })
    }
    #[inline(always)]
    fn max(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // Not `fmax`, whose result is NaN if either is.
        from_fn(|i| unsafe { vbslq_f32(vcgtq_f32(a[i], b[i]), a[i], b[i]) })
    }
    #[inline(always)]
    fn min(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        from_fn(|i| unsafe { vbslq_f32(vcltq_f32(a[i], b[i]), a[i], b[i]) })
    }
    #[inline(always)]
    fn exp2_whole(self, n: [float32x4_t; 4]) -> [float32x4_t; 4] {
        from_fn(|i| unsafe {
            let biased = vaddq_s32(vcvtq_s32_f32(n[i]), vdupq_n_s32(127));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased))
        })
    }
    #[inline(always)]
    fn f16(self, bits: [u8; 2]) -> f32 {
        unsafe {
            let half = vreinterpret_f16_u16(vdup_n_u16(u16::from_le_bytes(bits)));
            vgetq_lane_f32::<0>(vcvt_f32_f16(half))
        }
    }
    #[inline(always)]
    fn sum(self, v: [float32x4_t; 4]) -> f32 {
        unsafe {
            let four = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vaddv_f32(two)
        }
    }

    #[inline(always)]
    fn bytes(self, x: &[u8; 32]) -> [uint8x16_t; 2] {
        from_fn(|i| unsafe { vld1q_u8(x.as_ptr().add(16 * i)) })
    }
    #[inline(always)]
    fn signed_bytes(self, x: &[i8; 32]) -> [uint8x16_t; 2] {
        from_fn(|i| unsafe { vld1q_u8(x.as_ptr().add(16 * i).cast()) })
    }
    #[inline(always)]
    fn words(self, x: &[i16; 16]) -> [uint8x16_t; 2] {
        from_fn(|i| unsafe { vreinterpretq_u8_s16(vld1q_s16(x.as_ptr().add(8 * i))) })
    }
    #[inline(always)]
    fn splat_byte(self, x: u8) -> [uint8x16_t; 2] {
        unsafe { [vdupq_n_u8(x); 2] }
    }
    #[inline(always)]
    fn splat_word(self, x: i16) -> [uint8x16_t; 2] {
        self.word_halves(x, x)
    }
    #[inline(always)]
    fn word_halves(self, low: i16, high: i16) -> [uint8x16_t; 2] {
        [low, high].map(|x| unsafe { vreinterpretq_u8_s16(vdupq_n_s16(x)) })
    }
    #[inline(always)]
    fn nibbles(self, x: &[u8; 16]) -> [uint8x16_t; 2] {
        unsafe {
            let both = vld1q_u8(x.as_ptr());
            [vandq_u8(both, vdupq_n_u8(15)), vshrq_n_u8::<4>(both)]
        }
    }
    #[inline(always)]
    fn mask_from_bits(self, bits: u32) -> [uint8x16_t; 2] {
        // Each half of a register gets the byte of `bits` that holds its bits.
        let [a, b, c, d] = bits.to_le_bytes();
        [(a, b), (c, d)].map(|(low, high)| unsafe {
            let bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
            vtstq_u8(vcombine_u8(vdup_n_u8(low), vdup_n_u8(high)), bit)
        })
    }
    #[inline(always)]
    fn shr_and<const SHIFT: i32>(self, v: [uint8x16_t; 2], mask: u8) -> [uint8x16_t; 2] {
        // By a register, since the immediate form has no shift by 0.
        v.map(|v| unsafe { vandq_u8(vshlq_u8(v, vdupq_n_s8(-SHIFT as i8)), vdupq_n_u8(mask)) })
    }
    #[inline(always)]
    fn shl<const SHIFT: i32>(self, v: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
        v.map(|v| unsafe { vshlq_n_u8::<SHIFT>(v) })
    }
    #[inline(always)]
    fn and(self, a: [uint8x16_t; 2], b: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
        from_fn(|i| unsafe { vandq_u8(a[i], b[i]) })
    }
    #[inline(always)]
    fn or(self, a: [uint8x16_t; 2], b: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
        from_fn(|i| unsafe { vorrq_u8(a[i], b[i]) })
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
        v.map(|v| unsafe { vqtbl1q_u8(vld1q_u8(table.as_ptr().cast()), v) })
    }

    #[inline(always)]
    fn zero_sums(self) -> int32x4_t {
        unsafe { vdupq_n_s32(0) }
    }
    #[inline(always)]
    fn dot_unsigned(
        self,
        sums: int32x4_t,
        w: [uint8x16_t; 2],
        a: [uint8x16_t; 2],
        scale: [uint8x16_t; 2],
    ) -> int32x4_t {
        // At most 127, so the same number as a signed byte.
        self.dot_signed(sums, w, a, scale)
    }
    #[inline(always)]
    fn dot_signed(
        self,
        mut sums: int32x4_t,
        w: [uint8x16_t; 2],
        a: [uint8x16_t; 2],
        scale: [uint8x16_t; 2],
    ) -> int32x4_t {
        for i in 0..2 {
            unsafe {
                let products = Q::quad(vdupq_n_s32(0), vreinterpretq_s8_u8(w[i]), vreinterpretq_s8_u8(a[i]));
                // The two lanes of a quad are equal: the upper one, widened.
                let scale = vshrq_n_s32::<16>(vreinterpretq_s32_u8(scale[i]));
                sums = vmlaq_s32(sums, products, scale);
            }
        }
        sums
    }
    #[inline(always)]
    fn dot_words(self, mut sums: int32x4_t, a: [uint8x16_t; 2], b: [uint8x16_t; 2]) -> int32x4_t {
        for i in 0..2 {
            unsafe {
                let (a, b) = (vreinterpretq_s16_u8(a[i]), vreinterpretq_s16_u8(b[i]));
                sums = vmlal_high_s16(vmlal_s16(sums, vget_low_s16(a), vget_low_s16(b)), a, b);
            }
        }
        sums
    }
    #[inline(always)]
    fn totals(self, s: [int32x4_t; 4]) -> [i32; 4] {
        unsafe {
            let four = vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
            let mut out = [0; 4];
            vst1q_s32(out.as_mut_ptr(), four);
            out
        }
    }
}
