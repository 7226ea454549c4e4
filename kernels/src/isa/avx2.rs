//! x86-64 with AVX2, FMA and F16C: two 256-bit registers for 16 lanes. With AVX-VNNI, one instruction multiplies and
//! adds four bytes.

mod chains;
mod gather;
mod products;

use std::arch::asm;
use std::arch::x86_64::*;

pub(super) use gather::four_words;
use gather::gather8;

use crate::layout::{COLUMNS, NumberFormat, PanelRows, Quad};
use crate::simd::{Simd, chains_by_quads, scaled_chains_by_quads};

/// How four products of bytes are added.
pub(super) mod dot {
    /// `vpmaddubsw`, in i16.
    pub(crate) const WORDS: u8 = 0;
    /// `vpdpbusd`, in i32.
    pub(crate) const VNNI: u8 = 1;
    /// As `vpdpbusd`, from other instructions: to test the same kernels on CPUs without it.
    #[cfg(test)]
    pub(crate) const EMULATED: u8 = 2;
}

/// Proof that the CPU has the features of one of the modules below.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<const DOT: u8>(());

impl<const DOT: u8> Avx2<DOT> {
    /// # Safety
    /// The CPU has every feature of the module with this `DOT`.
    #[inline(always)]
    pub(crate) unsafe fn new_unchecked() -> Self {
        Avx2(())
    }
}

/// AVX2.
pub(super) mod words {
    type Token = super::Avx2<{ super::dot::WORDS }>;
    crate::isa::isa_table!(Token, detect: is_x86_feature_detected, "avx2", "fma", "f16c");
}

/// AVX2 with AVX-VNNI.
pub(super) mod vnni {
    type Token = super::Avx2<{ super::dot::VNNI }>;
    crate::isa::isa_table!(
        Token, products beside: super::words::TABLE, detect: is_x86_feature_detected,
        "avx2", "fma", "f16c", "avxvnni"
    );
}

/// The two registers that hold 16 lanes.
type Pair = [__m256i; 2];

/// Applies an operation to both registers. (No closure: those have none of their caller's CPU features.)
macro_rules! both {
    (|$i:ident| $op:expr) => {
        [
            {
                let $i = 0;
                $op
            },
            {
                let $i = 1;
                $op
            },
        ]
    };
}

impl<const DOT: u8> Simd for Avx2<DOT> {
    type F32 = [__m256; 2];
    type I32 = Pair;
    type Mask = [__m256; 2];

    const WORD_CHAINS: bool = DOT == dot::WORDS;
    const SIGNED_CHAINS: bool = DOT == dot::WORDS;
    const TOKENS: usize = 4;
    const FLOAT_TOKENS: usize = 3;

    #[inline(always)]
    fn splat(self, x: f32) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [_mm256_set1_ps(x); 2] }
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [__m256; 2] {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))] }
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> [__m256; 2] {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        unsafe {
            let halves = |at: usize| _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().add(at).cast()));
            [halves(0), halves(16)]
        }
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u8; 32]) -> [__m256; 2] {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        unsafe {
            let widened = |at: usize| {
                let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().add(at).cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
            };
            [widened(0), widened(16)]
        }
    }
    #[inline(always)]
    fn store(self, v: [__m256; 2], out: &mut [f32; 16]) {
        // SAFETY: the array has room for all that is written; the token proves the features.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), v[1]);
        }
    }
    #[inline(always)]
    fn store_f16(self, v: [__m256; 2], out: &mut [u8; 32]) {
        // SAFETY: the array has room for all that is written; the token proves the features.
        unsafe {
            _mm_storeu_si128(out.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[0]));
            _mm_storeu_si128(
                out.as_mut_ptr().add(16).cast(),
                _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[1]),
            );
        }
    }
    #[inline(always)]
    fn store_i8(self, v: [__m256; 2], out: &mut [i8; 16]) {
        // SAFETY: the array has room for all that is written; the token proves the features.
        unsafe {
            let words = _mm256_packs_epi32(_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1]));
            // Packed within 128 bits; then the four groups of four are put in order.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(out.as_mut_ptr().cast(), bytes);
        }
    }
    #[inline(always)]
    fn add(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn sub(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn mul(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn div(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn max(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn min(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn mul_add(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }
    #[inline(always)]
    fn sqrt(self, v: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [_mm256_sqrt_ps(v[0]), _mm256_sqrt_ps(v[1])] }
    }
    #[inline(always)]
    fn gt(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_cmp_ps::<_CMP_GT_OQ>(a[i], b[i])) }
    }
    #[inline(always)]
    fn eq(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_cmp_ps::<_CMP_EQ_OQ>(a[i], b[i])) }
    }
    #[inline(always)]
    fn both(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_and_ps(a[i], b[i])) }
    }
    #[inline(always)]
    fn any(self, m: [__m256; 2]) -> bool {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm256_movemask_ps(_mm256_or_ps(m[0], m[1])) != 0 }
    }
    #[inline(always)]
    fn select(self, m: [__m256; 2], a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_blendv_ps(b[i], a[i], m[i])) }
    }
    #[inline(always)]
    fn bits(self, v: [__m256; 2]) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_castps_si256(v[i])) }
    }
    #[inline(always)]
    fn of_bits(self, v: Pair) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_castsi256_ps(v[i])) }
    }
    #[inline(always)]
    fn exp2_whole(self, n: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let power = |n| {
                let biased = _mm256_add_epi32(_mm256_cvttps_epi32(n), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
            };
            [power(n[0]), power(n[1])]
        }
    }
    #[inline(always)]
    fn sum(self, v: [__m256; 2]) -> f32 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let eight = _mm256_add_ps(v[0], v[1]);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn largest(self, v: [__m256; 2]) -> f32 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let eight = _mm256_max_ps(v[0], v[1]);
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn load_i32(self, x: &[u8; 64]) -> Pair {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        unsafe { both!(|i| _mm256_loadu_si256(x.as_ptr().add(32 * i).cast())) }
    }
    #[inline(always)]
    fn store_i32(self, v: Pair, out: &mut [u8; 64]) {
        // SAFETY: the array has room for all that is written; the token proves the features.
        unsafe {
            _mm256_storeu_si256(out.as_mut_ptr().cast(), v[0]);
            _mm256_storeu_si256(out.as_mut_ptr().add(32).cast(), v[1]);
        }
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [_mm256_set1_epi32(x); 2] }
    }
    #[inline(always)]
    fn gather(self, rows: PanelRows<'_>, at: usize) -> [Pair; 4] {
        let (p, stride) = rows.at(at, 16);
        // SAFETY: all rows have these bytes, which `PanelRows::at` has checked; the token proves the features.
        unsafe {
            let (low, high) = (gather8(p, stride), gather8(p.add(8 * stride), stride));
            [[low[0], high[0]], [low[1], high[1]], [low[2], high[2]], [low[3], high[3]]]
        }
    }
    #[inline(always)]
    fn gather_one(self, rows: PanelRows<'_>, at: usize) -> Pair {
        let (p, stride) = rows.at(at, 4);
        // SAFETY: all rows have these bytes, which `PanelRows::at` has checked; the token proves the features.
        unsafe {
            [
                _mm256_set_m128i(four_words(p.add(4 * stride), stride), four_words(p, stride)),
                _mm256_set_m128i(
                    four_words(p.add(12 * stride), stride),
                    four_words(p.add(8 * stride), stride),
                ),
            ]
        }
    }
    #[inline(always)]
    fn and(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_and_si256(a[i], b[i])) }
    }
    #[inline(always)]
    fn or(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_or_si256(a[i], b[i])) }
    }
    #[inline(always)]
    fn xor(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_xor_si256(a[i], b[i])) }
    }
    #[inline(always)]
    fn shl(self, v: Pair, n: u32) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_sll_epi32(v[i], _mm_cvtsi32_si128(n as i32))) }
    }
    #[inline(always)]
    fn shr(self, v: Pair, n: u32) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_srl_epi32(v[i], _mm_cvtsi32_si128(n as i32))) }
    }
    #[inline(always)]
    fn sar(self, v: Pair, n: u32) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_sra_epi32(v[i], _mm_cvtsi32_si128(n as i32))) }
    }
    #[inline(always)]
    fn sub_i32(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_sub_epi32(a[i], b[i])) }
    }
    #[inline(always)]
    fn min_bytes(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_min_epu8(a[i], b[i])) }
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: Pair) -> Pair {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            both!(|i| _mm256_shuffle_epi8(table, v[i]))
        }
    }
    #[inline(always)]
    fn repeat_byte(self, v: Pair, j: usize) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let j = 0x0101_0101 * j as i32;
            let order = _mm_set_epi32(0x0c0c_0c0c + j, 0x0808_0808 + j, 0x0404_0404 + j, j);
            let order = _mm256_broadcastsi128_si256(order);
            both!(|i| _mm256_shuffle_epi8(v[i], order))
        }
    }
    #[inline(always)]
    fn halves(self, v: Pair) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let low = _mm256_set1_epi32(0xffff);
            // Packs within 128 bits; then the four groups of four are put in order.
            let packed = _mm256_packus_epi32(_mm256_and_si256(v[0], low), _mm256_and_si256(v[1], low));
            let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
            [
                _mm256_cvtph_ps(_mm256_castsi256_si128(ordered)),
                _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(ordered)),
            ]
        }
    }
    #[inline(always)]
    fn i32_to_f32(self, v: Pair) -> [__m256; 2] {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { [_mm256_cvtepi32_ps(v[0]), _mm256_cvtepi32_ps(v[1])] }
    }

    #[inline(always)]
    fn chain_start(self, from: Pair) -> Pair {
        if Self::WORD_CHAINS { self.splat_i32(0) } else { from }
    }
    #[inline(always)]
    fn chain(self, sums: Pair, w: Pair, a: i32) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let a = _mm256_set1_epi32(a);
            both!(|i| match DOT {
                dot::WORDS => _mm256_add_epi16(sums[i], _mm256_maddubs_epi16(w[i], a)),
                dot::VNNI => vpdpbusd(sums[i], w[i], a),
                _ => dpbusd_of_words(sums[i], w[i], a),
            })
        }
    }
    #[inline(always)]
    fn chain_signed(self, sums: Pair, w: Pair, a: i32) -> Pair {
        // |w| <= 128 as an unsigned byte; its sign moves to `a`. Pairs stay below 2 * 128 * 127.
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let (a, one) = (_mm256_set1_epi32(a), _mm256_set1_epi16(1));
            both!(|i| {
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w[i]), _mm256_sign_epi8(a, w[i]));
                _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, one))
            })
        }
    }
    #[inline(always)]
    fn chains<const T: usize>(
        self,
        signed: bool,
        w: &[Quad],
        first: usize,
        codes: &[&[i8; COLUMNS]; T],
        sums: &mut [Pair; T],
    ) {
        if let (true, Ok(codes), Ok(sums)) =
            (Self::WORD_CHAINS, (&codes[..]).try_into(), (&mut sums[..]).try_into())
        {
            // SAFETY: the CPU has AVX2.
            if unsafe { chains::four_tokens(w, first, codes, sums) } {
                return;
            }
        }
        chains_by_quads(self, signed, w, first, codes, sums);
    }
    #[inline(always)]
    fn scaled_chains<const T: usize>(
        self,
        signed: bool,
        w: &[Quad; COLUMNS / 4],
        codes: &[&[i8; COLUMNS]; T],
        scales: &[Quad],
        steps: usize,
        sums: &mut [Pair; T],
    ) {
        if let (true, Ok(codes), Ok(sums)) =
            (Self::WORD_CHAINS, (&codes[..]).try_into(), (&mut sums[..]).try_into())
        {
            // SAFETY: the CPU has AVX2.
            if unsafe { chains::four_tokens_scaled(w, codes, scales, steps, sums) } {
                return;
            }
        }
        scaled_chains_by_quads(self, signed, w, codes, scales, steps, sums);
    }
    #[inline(always)]
    fn pinned(self, v: Pair) -> Pair {
        // SAFETY: the token proves the features.
        unsafe { pin(v) }
    }
    #[inline(always)]
    fn chain_end(self, from: Pair, sums: Pair) -> Pair {
        if !Self::WORD_CHAINS {
            return sums;
        }
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_add_epi32(from[i], _mm256_madd_epi16(sums[i], _mm256_set1_epi16(1)))) }
    }
    #[inline(always)]
    fn chain_scale(self, v: Pair) -> Pair {
        if !Self::WORD_CHAINS {
            return v;
        }
        self.or(self.and(v, self.splat_i32(0xffff)), self.shl(v, 16))
    }
    #[inline(always)]
    fn chain_scaled(self, acc: Pair, sums: Pair, scale: Pair) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            both!(|i| {
                let scaled = if Self::WORD_CHAINS {
                    _mm256_madd_epi16(sums[i], scale[i])
                } else {
                    _mm256_mullo_epi32(sums[i], scale[i])
                };
                _mm256_add_epi32(acc[i], scaled)
            })
        }
    }
    #[inline(always)]
    fn chain_scaled_i32(self, acc: Pair, sums: Pair, scale: Pair) -> Pair {
        let scale = if Self::WORD_CHAINS { self.sar(scale, 16) } else { scale };
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { both!(|i| _mm256_add_epi32(acc[i], _mm256_mullo_epi32(sums[i], scale[i]))) }
    }
    #[inline(always)]
    fn float_products<const R: usize, const T: usize>(
        self,
        format: NumberFormat,
        w: &[&[u8]; R],
        x: &[&[f32]; T],
        n_cols: usize,
    ) -> Option<[[[__m256; 2]; T]; R]> {
        let (w, x) = (w[..].try_into().ok()?, x[..].try_into().ok()?);
        // SAFETY: the CPU has AVX2, FMA and F16C.
        let found = unsafe { products::two_by_three(format, w, x, n_cols) };
        let mut sums = [[self.splat(0.0); T]; R];
        for (sums, found) in sums.iter_mut().zip(found) {
            sums.copy_from_slice(&found);
        }
        Some(sums)
    }
    #[inline(always)]
    fn dot_pairs(self, acc: Pair, w: Pair, a: i32) -> Pair {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let a = _mm256_set1_epi32(a);
            both!(|i| _mm256_add_epi32(acc[i], _mm256_madd_epi16(w[i], a)))
        }
    }
    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        // SAFETY: any address may be asked for; the token proves the features.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
    #[inline(always)]
    fn prefetch_near(self, p: *const u8) {
        // SAFETY: any address may be asked for; the token proves the features.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
}

/// Its argument, which the compiler cannot compute later.
///
/// # Safety
/// The CPU has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pin([mut low, mut high]: Pair) -> Pair {
    // SAFETY: it is no instruction.
    unsafe {
        asm!("/* {0} {1} */", inout(ymm_reg) low, inout(ymm_reg) high, options(nomem, nostack, preserves_flags))
    };
    [low, high]
}

/// `vpdpbusd` of AVX-VNNI.
///
/// # Safety
/// The CPU has AVX-VNNI.
#[inline(always)]
unsafe fn vpdpbusd(sums: __m256i, w: __m256i, a: __m256i) -> __m256i {
    // SAFETY: promised by the caller.
    unsafe { _mm256_dpbusd_avx_epi32(sums, w, a) }
}

/// What `vpdpbusd` computes, from products of words.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn dpbusd_of_words(sums: __m256i, w: __m256i, a: __m256i) -> __m256i {
    // SAFETY: promised by the caller.
    unsafe {
        let even = _mm256_madd_epi16(
            _mm256_and_si256(w, _mm256_set1_epi16(0xff)),
            _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(a)),
        );
        let odd = _mm256_madd_epi16(_mm256_srli_epi16::<8>(w), _mm256_srai_epi16::<8>(a));
        _mm256_add_epi32(sums, _mm256_add_epi32(even, odd))
    }
}

/// AVX2 with an emulated AVX-VNNI.
#[cfg(test)]
pub(super) mod emulated {
    type Token = super::Avx2<{ super::dot::EMULATED }>;
    crate::isa::isa_table!(
        Token, products beside: super::words::TABLE, detect: is_x86_feature_detected,
        "avx2", "fma", "f16c"
    );
}
