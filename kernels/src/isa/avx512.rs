//! x86-64 with AVX-512 F, BW, DQ and VL: one 512-bit register for 16 lanes. With AVX-512 VNNI, one instruction
//! multiplies and adds four bytes.

use std::arch::asm;
use std::arch::x86_64::*;

use super::avx2::{dot, four_words};
use crate::layout::PanelRows;
use crate::simd::Simd;

/// Proof that the CPU has the features of one of the modules below.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const DOT: u8>(());

impl<const DOT: u8> Avx512<DOT> {
    /// # Safety
    /// The CPU has every feature of the module with this `DOT`.
    #[inline(always)]
    pub(crate) unsafe fn new_unchecked() -> Self {
        Avx512(())
    }
}

/// AVX-512 without VNNI (Skylake-SP).
pub(super) mod words {
    type Token = super::Avx512<{ super::dot::WORDS }>;
    crate::isa::isa_table!(
        Token, detect: is_x86_feature_detected,
        "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "f16c"
    );
}

/// AVX-512 with VNNI (Cascade Lake, Ice Lake, Zen 4 and later).
pub(super) mod vnni {
    type Token = super::Avx512<{ super::dot::VNNI }>;
    crate::isa::isa_table!(
        Token, products beside: super::words::TABLE, detect: is_x86_feature_detected,
        "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx2", "fma", "f16c"
    );
}

impl<const DOT: u8> Simd for Avx512<DOT> {
    type F32 = __m512;
    type I32 = __m512i;
    type Mask = __mmask16;

    const WORD_CHAINS: bool = DOT == dot::WORDS;
    const SIGNED_CHAINS: bool = DOT == dot::WORDS;
    const TOKENS: usize = 8;
    const FLOAT_TOKENS: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> __m512 {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> __m512 {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u8; 32]) -> __m512 {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        unsafe {
            let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
        }
    }
    #[inline(always)]
    fn store(self, v: __m512, out: &mut [f32; 16]) {
        // SAFETY: the array has room for all that is written; the token proves the features.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), v) }
    }
    #[inline(always)]
    fn store_f16(self, v: __m512, out: &mut [u8; 32]) {
        // SAFETY: the array has room for all that is written; the token proves the features.
        unsafe {
            let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), halves);
        }
    }
    #[inline(always)]
    fn store_i8(self, v: __m512, out: &mut [i8; 16]) {
        // SAFETY: the array has room for all that is written; the token proves the features.
        unsafe {
            let bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v));
            _mm_storeu_si128(out.as_mut_ptr().cast(), bytes);
        }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn sqrt(self, v: __m512) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_sqrt_ps(v) }
    }
    #[inline(always)]
    fn gt(self, a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b) }
    }
    #[inline(always)]
    fn eq(self, a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b) }
    }
    #[inline(always)]
    fn both(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }
    #[inline(always)]
    fn any(self, m: __mmask16) -> bool {
        m != 0
    }
    #[inline(always)]
    fn select(self, m: __mmask16, a: __m512, b: __m512) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_mask_blend_ps(m, b, a) }
    }
    #[inline(always)]
    fn bits(self, v: __m512) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_castps_si512(v) }
    }
    #[inline(always)]
    fn of_bits(self, v: __m512i) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_castsi512_ps(v) }
    }
    #[inline(always)]
    fn exp2_whole(self, n: __m512) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvttps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn largest(self, v: __m512) -> f32 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let eight = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn load_i32(self, x: &[u8; 64]) -> __m512i {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
    }
    #[inline(always)]
    fn store_i32(self, v: __m512i, out: &mut [u8; 64]) {
        // SAFETY: the array has room for all that is written; the token proves the features.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), v) }
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    fn gather(self, rows: PanelRows<'_>, at: usize) -> [__m512i; 4] {
        let (p, stride) = rows.at(at, 16);
        // SAFETY: all rows have these bytes, which `PanelRows::at` has checked; the token proves the features.
        unsafe {
            // Rows i, i + 4, i + 8 and i + 12 in one register; then four rows of four lanes are transposed.
            let mut z = [_mm512_setzero_si512(); 4];
            for (i, z) in z.iter_mut().enumerate() {
                let p = p.add(i * stride);
                let v = _mm512_castsi128_si512(_mm_loadu_si128(p.cast()));
                let v = _mm512_inserti32x4::<1>(v, _mm_loadu_si128(p.add(4 * stride).cast()));
                let v = _mm512_inserti32x4::<2>(v, _mm_loadu_si128(p.add(8 * stride).cast()));
                *z = _mm512_inserti32x4::<3>(v, _mm_loadu_si128(p.add(12 * stride).cast()));
            }
            let (a, b) = (_mm512_unpacklo_epi32(z[0], z[1]), _mm512_unpackhi_epi32(z[0], z[1]));
            let (c, d) = (_mm512_unpacklo_epi32(z[2], z[3]), _mm512_unpackhi_epi32(z[2], z[3]));
            [
                _mm512_unpacklo_epi64(a, c),
                _mm512_unpackhi_epi64(a, c),
                _mm512_unpacklo_epi64(b, d),
                _mm512_unpackhi_epi64(b, d),
            ]
        }
    }
    #[inline(always)]
    fn gather_one(self, rows: PanelRows<'_>, at: usize) -> __m512i {
        let (p, stride) = rows.at(at, 4);
        // SAFETY: all rows have these bytes, which `PanelRows::at` has checked; the token proves the features.
        unsafe {
            let v = _mm512_castsi128_si512(four_words(p, stride));
            let v = _mm512_inserti32x4::<1>(v, four_words(p.add(4 * stride), stride));
            let v = _mm512_inserti32x4::<2>(v, four_words(p.add(8 * stride), stride));
            _mm512_inserti32x4::<3>(v, four_words(p.add(12 * stride), stride))
        }
    }
    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_xor_si512(a, b) }
    }
    #[inline(always)]
    fn shl(self, v: __m512i, n: u32) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_sll_epi32(v, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    fn shr(self, v: __m512i, n: u32) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_srl_epi32(v, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    fn sar(self, v: __m512i, n: u32) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_sra_epi32(v, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    fn sub_i32(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_sub_epi32(a, b) }
    }
    #[inline(always)]
    fn min_bytes(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_min_epu8(a, b) }
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: __m512i) -> __m512i {
        // SAFETY: the array has all bytes that are read; the token proves the features.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, v)
        }
    }
    #[inline(always)]
    fn repeat_byte(self, v: __m512i, j: usize) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let j = 0x0101_0101 * j as i32;
            let order = _mm_set_epi32(0x0c0c_0c0c + j, 0x0808_0808 + j, 0x0404_0404 + j, j);
            _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(order))
        }
    }
    #[inline(always)]
    fn halves(self, v: __m512i) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)) }
    }
    #[inline(always)]
    fn i32_to_f32(self, v: __m512i) -> __m512 {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_cvtepi32_ps(v) }
    }

    #[inline(always)]
    fn chain_start(self, from: __m512i) -> __m512i {
        if Self::WORD_CHAINS { self.splat_i32(0) } else { from }
    }
    #[inline(always)]
    fn chain(self, sums: __m512i, w: __m512i, a: i32) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let a = _mm512_set1_epi32(a);
            match DOT {
                dot::WORDS => _mm512_add_epi16(sums, _mm512_maddubs_epi16(w, a)),
                dot::VNNI => vpdpbusd(sums, w, a),
                _ => dpbusd_of_words(sums, w, a),
            }
        }
    }
    #[inline(always)]
    fn chain_signed(self, sums: __m512i, w: __m512i, a: i32) -> __m512i {
        // |w| <= 128 as an unsigned byte; its sign moves to `a`. Pairs stay below 2 * 128 * 127.
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let a = _mm512_set1_epi32(a);
            let a = _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w), _mm512_setzero_si512(), a);
            let pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(w), a);
            _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))
        }
    }
    #[inline(always)]
    fn pinned(self, v: __m512i) -> __m512i {
        // SAFETY: the token proves the features.
        unsafe { pin(v) }
    }
    #[inline(always)]
    fn chain_end(self, from: __m512i, sums: __m512i) -> __m512i {
        if !Self::WORD_CHAINS {
            return sums;
        }
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_add_epi32(from, _mm512_madd_epi16(sums, _mm512_set1_epi16(1))) }
    }
    #[inline(always)]
    fn chain_scale(self, v: __m512i) -> __m512i {
        if !Self::WORD_CHAINS {
            return v;
        }
        self.or(self.and(v, self.splat_i32(0xffff)), self.shl(v, 16))
    }
    #[inline(always)]
    fn chain_scaled(self, acc: __m512i, sums: __m512i, scale: __m512i) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let scaled = if Self::WORD_CHAINS {
                _mm512_madd_epi16(sums, scale)
            } else {
                _mm512_mullo_epi32(sums, scale)
            };
            _mm512_add_epi32(acc, scaled)
        }
    }
    #[inline(always)]
    fn chain_scaled_i32(self, acc: __m512i, sums: __m512i, scale: __m512i) -> __m512i {
        let scale = if Self::WORD_CHAINS { self.sar(scale, 16) } else { scale };
        // SAFETY: no memory is touched; the token proves the features.
        unsafe { _mm512_add_epi32(acc, _mm512_mullo_epi32(sums, scale)) }
    }
    #[inline(always)]
    fn dot_pairs(self, acc: __m512i, w: __m512i, a: i32) -> __m512i {
        // SAFETY: no memory is touched; the token proves the features.
        unsafe {
            let a = _mm512_set1_epi32(a);
            match DOT {
                dot::VNNI => vpdpwssd(acc, w, a),
                _ => _mm512_add_epi32(acc, _mm512_madd_epi16(w, a)),
            }
        }
    }
    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        // SAFETY: any address may be asked for; the token proves the features.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
}

/// Its argument, which the compiler cannot compute later.
///
/// # Safety
/// The CPU has AVX-512 F.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn pin(mut v: __m512i) -> __m512i {
    // SAFETY: it is no instruction.
    unsafe { asm!("/* {0} */", inout(zmm_reg) v, options(nomem, nostack, preserves_flags)) };
    v
}

/// `vpdpbusd` of AVX-512 VNNI.
///
/// # Safety
/// The CPU has AVX-512 VNNI.
#[inline(always)]
unsafe fn vpdpbusd(sums: __m512i, w: __m512i, a: __m512i) -> __m512i {
    // SAFETY: promised by the caller.
    unsafe { _mm512_dpbusd_epi32(sums, w, a) }
}

/// `vpdpwssd` of AVX-512 VNNI.
///
/// # Safety
/// The CPU has AVX-512 VNNI.
#[inline(always)]
unsafe fn vpdpwssd(sums: __m512i, w: __m512i, a: __m512i) -> __m512i {
    // SAFETY: promised by the caller.
    unsafe { _mm512_dpwssd_epi32(sums, w, a) }
}

/// What `vpdpbusd` computes, from products of words.
///
/// # Safety
/// The CPU has AVX-512 BW.
#[inline(always)]
unsafe fn dpbusd_of_words(sums: __m512i, w: __m512i, a: __m512i) -> __m512i {
    // SAFETY: promised by the caller.
    unsafe {
        let even = _mm512_madd_epi16(
            _mm512_and_si512(w, _mm512_set1_epi16(0xff)),
            _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(a)),
        );
        let odd = _mm512_madd_epi16(_mm512_srli_epi16::<8>(w), _mm512_srai_epi16::<8>(a));
        _mm512_add_epi32(sums, _mm512_add_epi32(even, odd))
    }
}

/// AVX-512 with an emulated VNNI.
#[cfg(test)]
pub(super) mod emulated {
    type Token = super::Avx512<{ super::dot::EMULATED }>;
    crate::isa::isa_table!(
        Token, products beside: super::words::TABLE, detect: is_x86_feature_detected,
        "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "f16c"
    );
}
