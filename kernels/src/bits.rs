//! Taking bytes apart in the lanes of 16 rows: fields of bits, signed bytes, half-precision numbers.

use crate::simd::Simd;

/// `x` in all bytes.
#[inline(always)]
pub(crate) fn splat_bytes<S: Simd>(s: S, x: u8) -> S::I32 {
    s.splat_i32(i32::from_le_bytes([x; 4]))
}

/// `(v >> n) & mask` in every byte, for a mask that fits what is left of the byte.
#[inline(always)]
pub(crate) fn bits<S: Simd>(s: S, v: S::I32, n: u32, mask: u8) -> S::I32 {
    s.and(s.shr(v, n), splat_bytes(s, mask))
}

/// In every byte four bits of `low` from bit `n`, then two of `high` from bit `m`.
#[inline(always)]
pub(crate) fn joined_bits<S: Simd>(s: S, low: S::I32, n: u32, high: S::I32, m: u32) -> S::I32 {
    let high = if m < 4 { s.shl(high, 4 - m) } else { s.shr(high, m - 4) };
    s.or(bits(s, low, n, 15), s.and(high, splat_bytes(s, 0x30)))
}

/// The signed byte `j` of each lane.
#[inline(always)]
pub(crate) fn signed_byte<S: Simd>(s: S, v: S::I32, j: usize) -> S::I32 {
    s.sar(s.shl(v, 24 - 8 * j as u32), 24)
}

/// Two i16 in each lane.
#[inline(always)]
pub(crate) fn pair<S: Simd>(s: S, low: S::I32, high: S::I32) -> S::I32 {
    s.or(s.and(low, s.splat_i32(0xffff)), s.shl(high, 16))
}

/// Signed bytes as the ISA's chains take them.
#[inline(always)]
pub(crate) fn signed<S: Simd>(s: S, v: S::I32) -> S::I32 {
    if S::SIGNED_CHAINS { v } else { s.xor(v, splat_bytes(s, 128)) }
}

/// The half-precision number in the low half of each lane to `low`, that in the high half to `high`.
#[inline(always)]
pub(crate) fn two_halves<S: Simd>(s: S, v: S::I32, low: &mut [f32; 16], high: &mut [f32; 16]) {
    s.store(s.halves(v), low);
    s.store(s.halves(s.shr(v, 16)), high);
}
