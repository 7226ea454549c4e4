//! AArch64 with NEON: four 128-bit registers for 16 lanes.
//!
//! Three instruction sets that differ in [`Products`] of bytes and share everything else.

use std::arch::aarch64::*;
use std::arch::asm;
use std::array::from_fn;
use std::marker::PhantomData;

use crate::layout::{COLUMNS, PanelRows, Quad};
use crate::simd::{Simd, chains_by_quads};

/// Plain NEON, which every AArch64 CPU has.
pub(super) mod base {
    type Token = super::Neon<super::Widening>;
    crate::isa::isa_table!(Token, detect: is_aarch64_feature_detected, "neon");
}

/// With the dot product instructions (Cortex-A76, Neoverse N1, Apple A13 and later).
pub(super) mod dotprod {
    type Token = super::Neon<super::Sdot>;
    crate::isa::isa_table!(
        Token, products beside: super::base::TABLE, detect: is_aarch64_feature_detected,
        "neon", "dotprod"
    );
}

/// With the matrix instructions too (Neoverse V1 and N2, Apple A15 and M2 and later).
pub(super) mod i8mm {
    type Token = super::Neon<super::Smmla>;
    crate::isa::isa_table!(
        Token, products beside: super::base::TABLE, detect: is_aarch64_feature_detected,
        "neon", "dotprod", "i8mm"
    );
}

/// How products of bytes are added.
pub(crate) trait Products: Copy {
    /// Lane r of `sums` plus the products of signed bytes 4r to 4r + 3, for `a` without -128.
    ///
    /// # Safety
    /// The CPU has the features of the instruction set that uses this.
    unsafe fn quad(sums: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t;

    /// [`Simd::chains`].
    ///
    /// # Safety
    /// As for [`Products::quad`].
    #[inline(always)]
    unsafe fn chains<const T: usize>(
        s: Neon<Self>,
        w: &[Quad],
        first: usize,
        codes: &[&[i8; COLUMNS]; T],
        sums: &mut [[int32x4_t; 4]; T],
    ) {
        chains_by_quads(s, true, w, first, codes, sums);
    }
}

/// By widening: products of i16, added in pairs, then widened again.
#[derive(Clone, Copy)]
pub(crate) struct Widening;

impl Products for Widening {
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

impl Products for Sdot {
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

/// By `smmla` for pairs of tokens, by `sdot` for a single one.
#[derive(Clone, Copy)]
pub(crate) struct Smmla;

impl Products for Smmla {
    #[inline(always)]
    unsafe fn quad(sums: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
        // SAFETY: the CPU has `dotprod`.
        unsafe { sdot(sums, w, a) }
    }

    #[inline(always)]
    unsafe fn chains<const T: usize>(
        s: Neon<Smmla>,
        w: &[Quad],
        first: usize,
        codes: &[&[i8; COLUMNS]; T],
        sums: &mut [[int32x4_t; 4]; T],
    ) {
        let (pairs, rest) = w.as_chunks::<2>();
        if !matches!(T, 2 | TOKENS) || !rest.is_empty() {
            return chains_by_quads(s, true, w, first, codes, sums);
        }
        // SAFETY: the CPU has `i8mm`; eight codes are read where there are eight.
        unsafe {
            // For two tokens and two rows each: rows 0 and 1 with tokens 0 and 1, and so on.
            let mut squares = [[vdupq_n_s32(0); 8]; TOKENS / 2];
            for (i, [even, odd]) in pairs.iter().enumerate() {
                let (even, odd) = (s.load_i32(even), s.load_i32(odd));
                let at = 4 * (first + 2 * i);
                for (squares, codes) in squares.iter_mut().zip(codes.as_chunks::<2>().0) {
                    let eight = |t: usize| vld1_s8(codes[t][at..at + 8].as_ptr());
                    let a = vcombine_s8(eight(0), eight(1));
                    for j in 0..4 {
                        let (low, high) = (vzip1q_s32(even[j], odd[j]), vzip2q_s32(even[j], odd[j]));
                        squares[2 * j] = smmla(squares[2 * j], vreinterpretq_s8_s32(low), a);
                        squares[2 * j + 1] = smmla(squares[2 * j + 1], vreinterpretq_s8_s32(high), a);
                    }
                }
            }
            for (squares, sums) in squares.iter().zip(sums.as_chunks_mut::<2>().0) {
                for j in 0..4 {
                    let (low, high) = (squares[2 * j], squares[2 * j + 1]);
                    sums[0][j] = vaddq_s32(sums[0][j], vuzp1q_s32(low, high));
                    sums[1][j] = vaddq_s32(sums[1][j], vuzp2q_s32(low, high));
                }
            }
        }
    }
}

/// As [`sdot`]: lanes are the products of two rows of eight bytes of `w` with two of `a`.
#[inline]
#[target_feature(enable = "neon,i8mm")]
fn smmla(mut sums: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
    // SAFETY: reads and writes registers only.
    unsafe {
        asm!("smmla {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sums, in(vreg) w, in(vreg) a,
            options(pure, nomem, nostack, preserves_flags));
    }
    sums
}

/// Tokens that meet a tile at a time: with four registers each, half of them.
const TOKENS: usize = 4;

/// Proof that the CPU has NEON and what `P` needs.
#[derive(Clone, Copy)]
pub(crate) struct Neon<P>(PhantomData<P>);

impl<P: Products> Neon<P> {
    /// # Safety
    /// The CPU has every feature of the instruction set that multiplies by `P`.
    #[inline(always)]
    pub(crate) unsafe fn new_unchecked() -> Neon<P> {
        Neon(PhantomData)
    }
}

impl<P: Products> Simd for Neon<P> {
    type F32 = [float32x4_t; 4];
    type I32 = [int32x4_t; 4];
    type Mask = [uint32x4_t; 4];

    const WORD_CHAINS: bool = false;
    const SIGNED_CHAINS: bool = true;
    const TOKENS: usize = TOKENS;

    #[inline(always)]
    fn splat(self, x: f32) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [vdupq_n_f32(x); 4] }
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [float32x4_t; 4] {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        from_fn(|i| unsafe { vld1q_f32(x.as_ptr().add(4 * i)) })
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> [float32x4_t; 4] {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        from_fn(|i| unsafe { vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(x.as_ptr().add(8 * i)))) })
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u8; 32]) -> [float32x4_t; 4] {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        from_fn(|i| unsafe {
            let words = vreinterpret_u16_u8(vld1_u8(x.as_ptr().add(8 * i)));
            vreinterpretq_f32_u32(vshll_n_u16::<16>(words))
        })
    }
    #[inline(always)]
    fn store(self, v: [float32x4_t; 4], out: &mut [f32; 16]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut::<4>().0) {
            // SAFETY: the array has room for all that is written; the token proves the features.
            unsafe { vst1q_f32(out.as_mut_ptr(), v) }
        }
    }
    #[inline(always)]
    fn store_f16(self, v: [float32x4_t; 4], out: &mut [u8; 32]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut::<8>().0) {
            // SAFETY: the array has room for all that is written; the token proves the features.
            unsafe { vst1_u8(out.as_mut_ptr(), vreinterpret_u8_f16(vcvt_f16_f32(v))) }
        }
    }
    #[inline(always)]
    fn store_i8(self, v: [float32x4_t; 4], out: &mut [i8; 16]) {
        // SAFETY: the array has room for all that is written; the token proves the features.
        unsafe {
            let words = |i: usize| vqmovn_s32(vcvtnq_s32_f32(v[i]));
            let low = vqmovn_s16(vcombine_s16(words(0), words(1)));
            let high = vqmovn_s16(vcombine_s16(words(2), words(3)));
            vst1q_s8(out.as_mut_ptr(), vcombine_s8(low, high));
        }
    }
    #[inline(always)]
    fn add(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vaddq_f32(a[i], b[i]) })
    }
    #[inline(always)]
    fn sub(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vsubq_f32(a[i], b[i]) })
    }
    #[inline(always)]
    fn mul(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vmulq_f32(a[i], b[i]) })
    }
    #[inline(always)]
    fn div(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vdivq_f32(a[i], b[i]) })
    }
    #[inline(always)]
    fn mul_add(self, a: [float32x4_t; 4], b: [float32x4_t; 4], c: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vfmaq_f32(c[i], a[i], b[i]) })
    }
    #[inline(always)]
    fn max(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // Not `fmax`, whose result is NaN if either is.
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vbslq_f32(vcgtq_f32(a[i], b[i]), a[i], b[i]) })
    }
    #[inline(always)]
    fn min(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vbslq_f32(vcltq_f32(a[i], b[i]), a[i], b[i]) })
    }
    #[inline(always)]
    fn sqrt(self, v: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vsqrtq_f32(v[i]) })
    }
    #[inline(always)]
    fn gt(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [uint32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vcgtq_f32(a[i], b[i]) })
    }
    #[inline(always)]
    fn eq(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [uint32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vceqq_f32(a[i], b[i]) })
    }
    #[inline(always)]
    fn both(self, a: [uint32x4_t; 4], b: [uint32x4_t; 4]) -> [uint32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vandq_u32(a[i], b[i]) })
    }
    #[inline(always)]
    fn any(self, m: [uint32x4_t; 4]) -> bool {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { vmaxvq_u32(vorrq_u32(vorrq_u32(m[0], m[1]), vorrq_u32(m[2], m[3]))) != 0 }
    }
    #[inline(always)]
    fn select(self, m: [uint32x4_t; 4], a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vbslq_f32(m[i], a[i], b[i]) })
    }
    #[inline(always)]
    fn bits(self, v: [float32x4_t; 4]) -> [int32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        v.map(|v| unsafe { vreinterpretq_s32_f32(v) })
    }
    #[inline(always)]
    fn of_bits(self, v: [int32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        v.map(|v| unsafe { vreinterpretq_f32_s32(v) })
    }
    #[inline(always)]
    fn exp2_whole(self, n: [float32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe {
            let biased = vaddq_s32(vcvtq_s32_f32(n[i]), vdupq_n_s32(127));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased))
        })
    }
    #[inline(always)]
    fn sum(self, v: [float32x4_t; 4]) -> f32 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let four = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vaddv_f32(two)
        }
    }

    #[inline(always)]
    fn largest(self, v: [float32x4_t; 4]) -> f32 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { vmaxvq_f32(vmaxq_f32(vmaxq_f32(v[0], v[1]), vmaxq_f32(v[2], v[3]))) }
    }

    #[inline(always)]
    fn load_i32(self, x: &[u8; 64]) -> [int32x4_t; 4] {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        from_fn(|i| unsafe { vreinterpretq_s32_u8(vld1q_u8(x.as_ptr().add(16 * i))) })
    }
    #[inline(always)]
    fn store_i32(self, v: [int32x4_t; 4], out: &mut [u8; 64]) {
        for (v, out) in v.into_iter().zip(out.as_chunks_mut::<16>().0) {
            // SAFETY: the array has room for all that is written; the token proves the features.
            unsafe { vst1q_u8(out.as_mut_ptr(), vreinterpretq_u8_s32(v)) }
        }
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> [int32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [vdupq_n_s32(x); 4] }
    }
    #[inline(always)]
    fn gather(self, rows: PanelRows<'_>, at: usize) -> [[int32x4_t; 4]; 4] {
        let (p, stride) = rows.at(at, 16);
        // Four rows of four lanes at a time, transposed.
        // SAFETY: all rows have these bytes, which `PanelRows::at` has checked; the token proves the features.
        let fours: [[int32x4_t; 4]; 4] = from_fn(|i| unsafe {
            let [a, b, c, d] =
                [0, 1, 2, 3].map(|r| vreinterpretq_s32_u8(vld1q_u8(p.add((4 * i + r) * stride))));
            let (even, odd) = ([vtrn1q_s32(a, b), vtrn1q_s32(c, d)], [vtrn2q_s32(a, b), vtrn2q_s32(c, d)]);
            let [even, odd] = [even, odd].map(|v| v.map(|v| vreinterpretq_s64_s32(v)));
            [
                vtrn1q_s64(even[0], even[1]),
                vtrn1q_s64(odd[0], odd[1]),
                vtrn2q_s64(even[0], even[1]),
                vtrn2q_s64(odd[0], odd[1]),
            ]
            .map(|v| vreinterpretq_s32_s64(v))
        });
        from_fn(|j| fours.map(|four| four[j]))
    }
    #[inline(always)]
    fn gather_one(self, rows: PanelRows<'_>, at: usize) -> [int32x4_t; 4] {
        let (p, stride) = rows.at(at, 4);
        // SAFETY: all rows have these bytes, which `PanelRows::at` has checked; the token proves the features.
        from_fn(|i| unsafe {
            let four = [0, 1, 2, 3].map(|r| p.add((4 * i + r) * stride).cast::<i32>().read_unaligned());
            vld1q_s32(four.as_ptr())
        })
    }
    #[inline(always)]
    fn and(self, a: [int32x4_t; 4], b: [int32x4_t; 4]) -> [int32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vandq_s32(a[i], b[i]) })
    }
    #[inline(always)]
    fn or(self, a: [int32x4_t; 4], b: [int32x4_t; 4]) -> [int32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vorrq_s32(a[i], b[i]) })
    }
    #[inline(always)]
    fn xor(self, a: [int32x4_t; 4], b: [int32x4_t; 4]) -> [int32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { veorq_s32(a[i], b[i]) })
    }
    #[inline(always)]
    fn shl(self, v: [int32x4_t; 4], n: u32) -> [int32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        v.map(|v| unsafe { vshlq_s32(v, vdupq_n_s32(n as i32)) })
    }
    #[inline(always)]
    fn shr(self, v: [int32x4_t; 4], n: u32) -> [int32x4_t; 4] {
        // A negative shift to the left, since the form with a constant has no shift by 0.
        // SAFETY: no memory is touched; the token proves the features.
        v.map(|v| unsafe {
            vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(v), vdupq_n_s32(-(n as i32))))
        })
    }
    #[inline(always)]
    fn sar(self, v: [int32x4_t; 4], n: u32) -> [int32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        v.map(|v| unsafe { vshlq_s32(v, vdupq_n_s32(-(n as i32))) })
    }
    #[inline(always)]
    fn sub_i32(self, a: [int32x4_t; 4], b: [int32x4_t; 4]) -> [int32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vsubq_s32(a[i], b[i]) })
    }
    #[inline(always)]
    fn min_bytes(self, a: [int32x4_t; 4], b: [int32x4_t; 4]) -> [int32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe {
            vreinterpretq_s32_u8(vminq_u8(vreinterpretq_u8_s32(a[i]), vreinterpretq_u8_s32(b[i])))
        })
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: [int32x4_t; 4]) -> [int32x4_t; 4] {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        v.map(|v| unsafe {
            vreinterpretq_s32_s8(vqtbl1q_s8(vld1q_s8(table.as_ptr()), vreinterpretq_u8_s32(v)))
        })
    }
    #[inline(always)]
    fn repeat_byte(self, v: [int32x4_t; 4], j: usize) -> [int32x4_t; 4] {
        let order: [u8; 16] = from_fn(|i| (i / 4 * 4 + j) as u8);
        // SAFETY: the array has all bytes that are read; the token proves the features.
        v.map(|v| unsafe {
            vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(v), vld1q_u8(order.as_ptr())))
        })
    }
    #[inline(always)]
    fn halves(self, v: [int32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        v.map(|v| unsafe { vcvt_f32_f16(vreinterpret_f16_s16(vmovn_s32(v))) })
    }
    #[inline(always)]
    fn i32_to_f32(self, v: [int32x4_t; 4]) -> [float32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        v.map(|v| unsafe { vcvtq_f32_s32(v) })
    }

    #[inline(always)]
    fn chain_start(self, from: [int32x4_t; 4]) -> [int32x4_t; 4] {
        from
    }
    #[inline(always)]
    fn chain(self, sums: [int32x4_t; 4], w: [int32x4_t; 4], a: i32) -> [int32x4_t; 4] {
        // At most 127, so the same number as a signed byte.
        self.chain_signed(sums, w, a)
    }
    #[inline(always)]
    fn chain_signed(self, mut sums: [int32x4_t; 4], w: [int32x4_t; 4], a: i32) -> [int32x4_t; 4] {
        // No closure: those have none of their caller's CPU features.
        for (sums, w) in sums.iter_mut().zip(w) {
            // SAFETY: no memory is touched; the token proves the features.
            unsafe {
                *sums = P::quad(*sums, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(vdupq_n_s32(a)));
            }
        }
        sums
    }
    #[inline(always)]
    fn chains<const T: usize>(
        self,
        _signed: bool,
        w: &[Quad],
        first: usize,
        codes: &[&[i8; COLUMNS]; T],
        sums: &mut [[int32x4_t; 4]; T],
    ) {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { P::chains(self, w, first, codes, sums) }
    }
    #[inline(always)]
    fn chain_end(self, _: [int32x4_t; 4], sums: [int32x4_t; 4]) -> [int32x4_t; 4] {
        sums
    }
    #[inline(always)]
    fn chain_scale(self, v: [int32x4_t; 4]) -> [int32x4_t; 4] {
        v
    }
    #[inline(always)]
    fn chain_scaled(
        self,
        acc: [int32x4_t; 4],
        sums: [int32x4_t; 4],
        scale: [int32x4_t; 4],
    ) -> [int32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe { vmlaq_s32(acc[i], sums[i], scale[i]) })
    }
    #[inline(always)]
    fn dot_pairs(self, acc: [int32x4_t; 4], w: [int32x4_t; 4], a: i32) -> [int32x4_t; 4] {
        // SAFETY: no memory is touched; the token proves the features.
        from_fn(|i| unsafe {
            let (w, a) = (vreinterpretq_s16_s32(w[i]), vreinterpretq_s16_s32(vdupq_n_s32(a)));
            let (low, high) = (vmull_s16(vget_low_s16(w), vget_low_s16(a)), vmull_high_s16(w, a));
            vaddq_s32(acc[i], vpaddq_s32(low, high))
        })
    }
    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        // SAFETY: any address may be asked for; the token proves the features.
        unsafe { asm!("prfm pldl2keep, [{}]", in(reg) p, options(readonly, nostack, preserves_flags)) }
    }
}
