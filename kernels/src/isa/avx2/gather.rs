//! Bytes of several rows, a row in each lane.

use std::arch::x86_64::*;

/// 16 bytes of 8 rows, `stride` apart: lane r of register j has bytes `4j` to `4j + 3` of row r.
///
/// # Safety
/// The rows have these bytes, and the CPU has AVX2.
#[inline(always)]
pub(super) unsafe fn gather8(p: *const u8, stride: usize) -> [__m256i; 4] {
    // SAFETY: promised by the caller.
    unsafe {
        // Rows i and i + 4 in one register; then four rows of four lanes are transposed.
        let (p4, z) = (p.add(4 * stride), [_mm_setzero_si128(); 4]);
        let mut low = z;
        let mut high = z;
        for i in 0..4 {
            low[i] = _mm_loadu_si128(p.add(i * stride).cast());
            high[i] = _mm_loadu_si128(p4.add(i * stride).cast());
        }
        let z = [
            _mm256_set_m128i(high[0], low[0]),
            _mm256_set_m128i(high[1], low[1]),
            _mm256_set_m128i(high[2], low[2]),
            _mm256_set_m128i(high[3], low[3]),
        ];
        let (a, b) = (_mm256_unpacklo_epi32(z[0], z[1]), _mm256_unpackhi_epi32(z[0], z[1]));
        let (c, d) = (_mm256_unpacklo_epi32(z[2], z[3]), _mm256_unpackhi_epi32(z[2], z[3]));
        [
            _mm256_unpacklo_epi64(a, c),
            _mm256_unpackhi_epi64(a, c),
            _mm256_unpacklo_epi64(b, d),
            _mm256_unpackhi_epi64(b, d),
        ]
    }
}

/// 4 bytes of 4 rows, `stride` apart.
///
/// # Safety
/// The rows have these bytes.
#[inline(always)]
pub(in crate::isa) unsafe fn four_words(p: *const u8, stride: usize) -> __m128i {
    // SAFETY: promised by the caller; SSE2 is always there.
    unsafe {
        let [a, b, c, d] = [0, 1, 2, 3].map(|r| _mm_loadu_si32(p.add(r * stride)));
        _mm_unpacklo_epi64(_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d))
    }
}
