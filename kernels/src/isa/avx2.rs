//! x86-64 with AVX2, FMA and F16C: two 256-bit registers for 16 lanes, one for 32 bytes.

use std::arch::x86_64::*;

use super::isa_table;
use crate::simd::Simd;
use crate::table::stamp;

isa_table!(Avx2, detect: is_x86_feature_detected, "avx2", "fma", "f16c");

/// Proof that the CPU has the features listed above.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The CPU has every feature in [`FEATURES`].
    #[inline(always)]
    pub(crate) unsafe fn new_unchecked() -> Avx2 {
        Avx2(())
    }
}

// SAFETY of all blocks below: the intrinsics need only the features that the token proves, and the pointers
// come from references to arrays of the size that is read or written.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Avx2 {
    type F32 = [__m256; 2];
    type Bytes = __m256i;
    type I32 = __m256i;

    #[inline(always)]
    fn splat(self, x: f32) -> [__m256; 2] {
        unsafe { [_mm256_set1_ps(x); 2] }
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [__m256; 2] {
        unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))] }
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> [__m256; 2] {
        unsafe {
            let halves = |at: usize| _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().add(at).cast()));
            [halves(0), halves(16)]
        }
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u8; 32]) -> [__m256; 2] {
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
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), v[1]);
        }
    }
    #[inline(always)]
    fn store_f16(self, v: [__m256; 2], out: &mut [u8; 32]) {
        unsafe {
            _mm_storeu_si128(out.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[0]));
            _mm_storeu_si128(
                out.as_mut_ptr().add(16).cast(),
                _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[1]),
            );
        }
    }
    #[inline(always)]
    fn add(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn sub(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        unsafe { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn mul(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn div(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        unsafe { [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn max(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn min(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        unsafe { [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn mul_add(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }
    #[inline(always)]
    fn exp2_whole(self, n: [__m256; 2]) -> [__m256; 2] {
        unsafe {
            let power = |n| {
                let biased = _mm256_add_epi32(_mm256_cvttps_epi32(n), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
            };
            [power(n[0]), power(n[1])]
        }
    }
    #[inline(always)]
    fn f16(self, bits: [u8; 2]) -> f32 {
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(u16::from_le_bytes(bits).into()))) }
    }
    #[inline(always)]
    fn sum(self, v: [__m256; 2]) -> f32 {
        unsafe {
            let eight = _mm256_add_ps(v[0], v[1]);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn bytes(self, x: &[u8; 32]) -> __m256i {
        unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
    }
    #[inline(always)]
    fn signed_bytes(self, x: &[i8; 32]) -> __m256i {
        unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
    }
    #[inline(always)]
    fn words(self, x: &[i16; 16]) -> __m256i {
        unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
    }
    #[inline(always)]
    fn splat_byte(self, x: u8) -> __m256i {
        unsafe { _mm256_set1_epi8(x as i8) }
    }
    #[inline(always)]
    fn splat_word(self, x: i16) -> __m256i {
        unsafe { _mm256_set1_epi16(x) }
    }
    #[inline(always)]
    fn word_halves(self, low: i16, high: i16) -> __m256i {
        unsafe { _mm256_set_m128i(_mm_set1_epi16(high), _mm_set1_epi16(low)) }
    }
    #[inline(always)]
    fn nibbles(self, x: &[u8; 16]) -> __m256i {
        unsafe {
            let low = _mm_loadu_si128(x.as_ptr().cast());
            let both = _mm256_set_m128i(_mm_srli_epi16::<4>(low), low);
            _mm256_and_si256(both, _mm256_set1_epi8(15))
        }
    }
    #[inline(always)]
    fn mask_from_bits(self, bits: u32) -> __m256i {
        unsafe {
            // Each byte gets the byte of `bits` that holds its bit, then keeps that bit alone.
            let spread =
                _mm256_set_epi64x(0x0303_0303_0303_0303, 0x0202_0202_0202_0202, 0x0101_0101_0101_0101, 0);
            let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), spread);
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit)
        }
    }
    #[inline(always)]
    fn shr_and<const SHIFT: i32>(self, v: __m256i, mask: u8) -> __m256i {
        unsafe { _mm256_and_si256(_mm256_srli_epi16::<SHIFT>(v), _mm256_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    fn shl<const SHIFT: i32>(self, v: __m256i) -> __m256i {
        unsafe { _mm256_slli_epi16::<SHIFT>(v) }
    }
    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_and_si256(a, b) }
    }
    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: __m256i) -> __m256i {
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, v)
        }
    }

    #[inline(always)]
    fn zero_sums(self) -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    fn dot_unsigned(self, sums: __m256i, w: __m256i, a: __m256i, scale: __m256i) -> __m256i {
        // Pairs of products stay below 2 * 127 * 127, within i16.
        unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), scale)) }
    }
    #[inline(always)]
    fn dot_signed(self, sums: __m256i, w: __m256i, a: __m256i, scale: __m256i) -> __m256i {
        // |w| <= 128 as an unsigned byte; its sign moves to `a`. Pairs stay below 2 * 128 * 127.
        unsafe {
            let products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
            _mm256_add_epi32(sums, _mm256_madd_epi16(products, scale))
        }
    }
    #[inline(always)]
    fn dot_words(self, sums: __m256i, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(a, b)) }
    }
    #[inline(always)]
    fn totals(self, s: [__m256i; 4]) -> [i32; 4] {
        unsafe {
            let pairs = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
            let four = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs));
            let mut out = [0; 4];
            _mm_storeu_si128(out.as_mut_ptr().cast(), four);
            out
        }
    }
}
