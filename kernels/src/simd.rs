//! The vector operations that every instruction set provides.
//!
//! The f32 vector is 16 lanes wide everywhere (two AVX registers, four NEON ones, an array in the portable
//! version), because 16 partial sums are part of the arithmetic contract; byte vectors are 32 wide, a block of
//! the small formats. Every operation is exactly specified, so that all implementations give the same bits.

/// A token that proves its CPU features are present, with the operations they give.
///
/// Implementations are zero-sized and made only after detection (or by the shells in `isa/`), which is
/// what makes the methods safe to call. All methods must be `#[inline(always)]`.
pub trait Simd: Copy {
    /// 16 lanes of f32.
    type F32: Copy;
    /// 32 bytes, signed or unsigned as the operation says; also 16 lanes of i16.
    type Bytes: Copy;
    /// Partial sums of i32; only their total is meaningful.
    type I32: Copy;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F32;
    /// Lane i is `x[i]`.
    fn load(self, x: &[f32; 16]) -> Self::F32;
    /// Lane i is the half-precision number at bytes `2i`, widened.
    fn load_f16(self, x: &[u8; 32]) -> Self::F32;
    /// Lane i is the bfloat16 number at bytes `2i`, widened.
    fn load_bf16(self, x: &[u8; 32]) -> Self::F32;
    /// `out[i]` is lane i.
    fn store(self, v: Self::F32, out: &mut [f32; 16]);
    /// Lane i rounded to half precision (nearest even) at bytes `2i`.
    fn store_f16(self, v: Self::F32, out: &mut [u8; 32]);
    /// `a + b`.
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a - b`.
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b`.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a / b`.
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `if a > b { a } else { b }`: the second if either is NaN.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `if a < b { a } else { b }`: the second if either is NaN.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `2^n` for whole `n` from -126 to 127; anything for other lanes.
    fn exp2_whole(self, n: Self::F32) -> Self::F32;
    /// One half-precision number, widened.
    fn f16(self, bits: [u8; 2]) -> f32;

    /// The sum of the lanes by the contract's tree: lane i with lane i+8, then i+4, i+2, i+1.
    fn sum(self, v: Self::F32) -> f32;

    /// 32 bytes.
    fn bytes(self, x: &[u8; 32]) -> Self::Bytes;
    /// 32 signed bytes.
    fn signed_bytes(self, x: &[i8; 32]) -> Self::Bytes;
    /// 16 lanes of i16.
    fn words(self, x: &[i16; 16]) -> Self::Bytes;
    /// All bytes `x`.
    fn splat_byte(self, x: u8) -> Self::Bytes;
    /// All i16 lanes `x`.
    fn splat_word(self, x: i16) -> Self::Bytes;
    /// i16 lanes 0 to 7 are `low`, 8 to 15 are `high`.
    fn word_halves(self, low: i16, high: i16) -> Self::Bytes;
    /// Byte i is the low nibble of `x[i]`, byte 16+i its high nibble.
    fn nibbles(self, x: &[u8; 16]) -> Self::Bytes;
    /// Byte i is 255 if bit i of `bits` is set, else 0.
    fn mask_from_bits(self, bits: u32) -> Self::Bytes;
    /// `(byte >> SHIFT) & mask`, for a mask that fits what is left of the byte.
    fn shr_and<const SHIFT: i32>(self, v: Self::Bytes, mask: u8) -> Self::Bytes;
    /// `byte << SHIFT` for bytes that stay below 256.
    fn shl<const SHIFT: i32>(self, v: Self::Bytes) -> Self::Bytes;
    /// Bitwise and.
    fn and(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Bitwise or.
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Byte i is `table[v[i]]`, for bytes below 16.
    fn lookup(self, table: &[i8; 16], v: Self::Bytes) -> Self::Bytes;

    /// No sum yet.
    fn zero_sums(self) -> Self::I32;
    /// `sums` plus the products of unsigned `w` (at most 127) and signed `a` (not -128), each times its
    /// i16 lane of `scale`: lane j scales products 2j and 2j+1.
    fn dot_unsigned(self, sums: Self::I32, w: Self::Bytes, a: Self::Bytes, scale: Self::Bytes) -> Self::I32;
    /// [`Simd::dot_unsigned`] for signed `w`, any value.
    fn dot_signed(self, sums: Self::I32, w: Self::Bytes, a: Self::Bytes, scale: Self::Bytes) -> Self::I32;
    /// `sums` plus the products of i16 lanes.
    fn dot_words(self, sums: Self::I32, a: Self::Bytes, b: Self::Bytes) -> Self::I32;
    /// The total of each of four partial sums.
    fn totals(self, sums: [Self::I32; 4]) -> [i32; 4];
}

/// Loads up to 16 values, the rest 0.
#[inline(always)]
pub(crate) fn load_tail<S: Simd>(s: S, x: &[f32]) -> S::F32 {
    let mut lanes = [0.0; 16];
    lanes[..x.len()].copy_from_slice(x);
    s.load(&lanes)
}

/// Applies `f` to every value of `x` in place, 16 at a time. `f` must be `#[inline(always)]`: a closure has none of
/// its caller's CPU features, so that left out of line each of its operations becomes a call.
#[inline(always)]
pub(crate) fn map_in_place<S: Simd>(s: S, x: &mut [f32], f: impl Fn(S::F32) -> S::F32) {
    let (body, tail) = x.as_chunks_mut::<16>();
    for chunk in body {
        let v = f(s.load(chunk));
        s.store(v, chunk);
    }
    if !tail.is_empty() {
        let mut out = [0.0; 16];
        s.store(f(load_tail(s, tail)), &mut out);
        tail.copy_from_slice(&out[..tail.len()]);
    }
}

/// Sets every value of `x` to `f(x, y)`, 16 at a time; both of one length. `f` as in [`map_in_place`].
#[inline(always)]
pub(crate) fn zip_in_place<S: Simd>(s: S, x: &mut [f32], y: &[f32], f: impl Fn(S::F32, S::F32) -> S::F32) {
    let (body, tail) = x.as_chunks_mut::<16>();
    let (y_body, y_tail) = y.as_chunks::<16>();
    for (chunk, y) in body.iter_mut().zip(y_body) {
        let v = f(s.load(chunk), s.load(y));
        s.store(v, chunk);
    }
    if !tail.is_empty() {
        let mut out = [0.0; 16];
        s.store(f(load_tail(s, tail), load_tail(s, y_tail)), &mut out);
        tail.copy_from_slice(&out[..tail.len()]);
    }
}

/// The dot product by the contract: element i into partial sum i mod 16, then the tree.
#[inline(always)]
pub(crate) fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let (a_body, a_tail) = a.as_chunks::<16>();
    let (b_body, b_tail) = b.as_chunks::<16>();
    let mut sums = s.splat(0.0);
    for (a, b) in a_body.iter().zip(b_body) {
        sums = s.mul_add(s.load(a), s.load(b), sums);
    }
    if !a_tail.is_empty() {
        sums = s.mul_add(load_tail(s, a_tail), load_tail(s, b_tail), sums);
    }
    s.sum(sums)
}
