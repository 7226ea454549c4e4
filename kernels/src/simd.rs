//! The vector operations that every instruction set provides.
//!
//! The f32 vector is 16 lanes wide everywhere (one AVX-512 register, two AVX ones, four NEON ones, an array in the
//! portable version), because 16 partial sums are part of the arithmetic contract. The integer vector has 16 lanes
//! of 32 bits, one for each row of a tile of weights; its bytes are little-endian. Every operation is exactly
//! specified, so that all implementations give the same bits.
//!
//! A *chain* is the dot product of a run of weight bytes and codes of a token in each lane: one accumulator that takes four
//! products at a time. Instruction sets differ in how wide the accumulator is (i16 must end before it overflows) and in
//! whether weights may be signed.

use crate::layout::{COLUMNS, NumberFormat, PanelRows, Quad};

/// A token that proves its CPU features are present, with the operations they give.
///
/// Implementations are zero-sized and made only after detection (or by the shells in `isa/`), which is
/// what makes the methods safe to call. All methods must be `#[inline(always)]`.
pub trait Simd: Copy {
    /// 16 lanes of f32.
    type F32: Copy;
    /// 16 lanes of 32 bits: four bytes, two i16 or one i32 each, as the operation says.
    type I32: Copy;
    /// The truth of a comparison in 16 lanes.
    type Mask: Copy;

    /// Chains add products in i16, so that they must be short; else in i32.
    const WORD_CHAINS: bool;
    /// Chains take signed weights; else these are given with 128 added.
    const SIGNED_CHAINS: bool;
    /// Tokens that meet a tile at a time: what the registers hold.
    const TOKENS: usize;
    /// Tokens that meet unquantized rows at a time, 2 to 4.
    const FLOAT_TOKENS: usize = 2;

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
    /// Lane i, a whole number from -128 to 127, at `out[i]`; any code for NaN.
    fn store_i8(self, v: Self::F32, out: &mut [i8; 16]);
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
    /// The square root.
    fn sqrt(self, v: Self::F32) -> Self::F32;
    /// `a > b`; false if either is NaN.
    fn gt(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// `a == b`; false if either is NaN.
    fn eq(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// Lanes where both are true.
    fn both(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// True if any lane is.
    fn any(self, m: Self::Mask) -> bool;
    /// `if m { a } else { b }`.
    fn select(self, m: Self::Mask, a: Self::F32, b: Self::F32) -> Self::F32;
    /// The bits of each lane.
    fn bits(self, v: Self::F32) -> Self::I32;
    /// The f32 of these bits.
    fn of_bits(self, v: Self::I32) -> Self::F32;
    /// `2^n` for whole `n` from -126 to 127; anything for other lanes.
    fn exp2_whole(self, n: Self::F32) -> Self::F32;

    /// The sum of the lanes by the contract's tree: lane i with lane i+8, then i+4, i+2, i+1.
    fn sum(self, v: Self::F32) -> f32;

    /// The largest lane; there is no NaN and no -0.
    fn largest(self, v: Self::F32) -> f32;

    /// Lane i is the i32 at bytes `4i`.
    fn load_i32(self, x: &[u8; 64]) -> Self::I32;
    /// The reverse of [`Simd::load_i32`].
    fn store_i32(self, v: Self::I32, out: &mut [u8; 64]);
    /// All lanes `x`.
    fn splat_i32(self, x: i32) -> Self::I32;
    /// Lane r of vector j is bytes `at + 4j` to `at + 4j + 3` of row r.
    fn gather(self, rows: PanelRows<'_>, at: usize) -> [Self::I32; 4];
    /// Lane r of vector j is `x[r * stride + at + j]`.
    #[inline(always)]
    fn gather_f32(self, x: &[f32], stride: usize, at: usize) -> [Self::F32; 4] {
        // SAFETY: any f32 is four bytes, and the slice covers exactly those of `x`.
        let bytes = unsafe { std::slice::from_raw_parts(x.as_ptr().cast::<u8>(), size_of_val(x)) };
        let [a, b, c, d] = self.gather(PanelRows::new(bytes, 4 * stride), 4 * at);
        [self.of_bits(a), self.of_bits(b), self.of_bits(c), self.of_bits(d)]
    }
    /// Lane r is bytes `at` to `at + 3` of row r.
    fn gather_one(self, rows: PanelRows<'_>, at: usize) -> Self::I32;
    /// Bitwise and.
    fn and(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Bitwise or.
    fn or(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Bitwise exclusive or.
    fn xor(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Lanes shifted left by `n` below 32.
    fn shl(self, v: Self::I32, n: u32) -> Self::I32;
    /// Lanes shifted right by `n` below 32, zeros coming in.
    fn shr(self, v: Self::I32, n: u32) -> Self::I32;
    /// Lanes shifted right by `n` below 32, the sign coming in.
    fn sar(self, v: Self::I32, n: u32) -> Self::I32;
    /// The difference of i32 lanes, wrapping.
    fn sub_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// The smaller of unsigned bytes.
    fn min_bytes(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Each byte is `table[byte]`, for bytes below 16.
    fn lookup(self, table: &[i8; 16], v: Self::I32) -> Self::I32;
    /// Byte `j` of each lane, in all four bytes of the lane.
    fn repeat_byte(self, v: Self::I32, j: usize) -> Self::I32;
    /// The low 16 bits of each lane, a half-precision number, widened.
    fn halves(self, v: Self::I32) -> Self::F32;
    /// The i32 of each lane, rounded to f32.
    fn i32_to_f32(self, v: Self::I32) -> Self::F32;

    /// Begins a sum of products: at `from` if chains add in i32, at zero if in i16.
    fn chain_start(self, from: Self::I32) -> Self::I32;
    /// Adds the products of four weight bytes of each lane and the four signed bytes of `a` (not -128). Weights are
    /// at most 127, unsigned; any byte if chains do not take signed ones.
    fn chain(self, sums: Self::I32, w: Self::I32, a: i32) -> Self::I32;
    /// [`Simd::chain`] in i32 for signed weights, if chains take them.
    fn chain_signed(self, sums: Self::I32, w: Self::I32, a: i32) -> Self::I32;
    /// Continues the chains of `T` tokens, by signed weights or not: the first quad of `w` meets the quad `first` of
    /// each token's codes, and so on.
    #[inline(always)]
    fn chains<const T: usize>(
        self,
        signed: bool,
        w: &[Quad],
        first: usize,
        codes: &[&[i8; COLUMNS]; T],
        sums: &mut [Self::I32; T],
    ) {
        chains_by_quads(self, signed, w, first, codes, sums);
    }
    /// `v`, pinned to a register here: the compiler cannot compute it later, holding all that it needs in registers until then.
    #[inline(always)]
    fn pinned(self, v: Self::I32) -> Self::I32 {
        v
    }
    /// Ends a chain that was begun at `from`.
    fn chain_end(self, from: Self::I32, sums: Self::I32) -> Self::I32;
    /// Whole numbers that fit i16, in the form that [`Simd::chain_scaled`] multiplies by.
    fn chain_scale(self, v: Self::I32) -> Self::I32;
    /// `acc` plus `scale` times a chain that was begun at zero.
    fn chain_scaled(self, acc: Self::I32, sums: Self::I32, scale: Self::I32) -> Self::I32;
    /// `acc` plus `scale` times a chain in i32.
    #[inline(always)]
    fn chain_scaled_i32(self, acc: Self::I32, sums: Self::I32, scale: Self::I32) -> Self::I32 {
        self.chain_scaled(acc, sums, scale)
    }
    /// Adds chains of `steps` quads of a tile to the sums of `T` tokens, each times its scale.
    #[inline(always)]
    fn scaled_chains<const T: usize>(
        self,
        signed: bool,
        w: &[Quad; COLUMNS / 4],
        codes: &[&[i8; COLUMNS]; T],
        scales: &[Quad],
        steps: usize,
        sums: &mut [Self::I32; T],
    ) {
        scaled_chains_by_quads(self, signed, w, codes, scales, steps, sums);
    }
    /// The products of unquantized rows, of numbers of one format, and the first `n_cols` values, a multiple of 16, of some tokens, if there is code
    /// for so many that is better than the compiler's.
    #[inline(always)]
    fn float_products<const R: usize, const T: usize>(
        self,
        _format: NumberFormat,
        _w: &[&[u8]; R],
        _x: &[&[f32]; T],
        _n_cols: usize,
    ) -> Option<[[Self::F32; T]; R]> {
        None
    }
    /// Adds the products of the two i16 of each lane and the two of `a`.
    fn dot_pairs(self, acc: Self::I32, w: Self::I32, a: i32) -> Self::I32;

    /// Asks for the cache line at `p` to be brought into the L2 cache. (Into L1 it halves the speed: such requests wait in
    /// the few buffers that loads need.)
    #[inline(always)]
    fn prefetch(self, _: *const u8) {}
    /// Asks for the cache line at `p`, which is in a cache, to be brought into L1.
    #[inline(always)]
    fn prefetch_near(self, _: *const u8) {}
}

/// [`Simd::chains`], a quad at a time.
#[inline(always)]
pub(crate) fn chains_by_quads<S: Simd, const T: usize>(
    s: S,
    signed: bool,
    w: &[Quad],
    first: usize,
    codes: &[&[i8; COLUMNS]; T],
    sums: &mut [S::I32; T],
) {
    for (i, w) in w.iter().enumerate() {
        chain_quad(s, signed, s.load_i32(w), first + i, codes, sums);
    }
}

/// [`Simd::scaled_chains`], a quad at a time.
#[inline(always)]
pub(crate) fn scaled_chains_by_quads<S: Simd, const T: usize>(
    s: S,
    signed: bool,
    w: &[Quad; COLUMNS / 4],
    codes: &[&[i8; COLUMNS]; T],
    scales: &[Quad],
    steps: usize,
    sums: &mut [S::I32; T],
) {
    let quads = w.len() / scales.len();
    for (g, scale) in scales.iter().enumerate() {
        for from in (g * quads..(g + 1) * quads).step_by(steps) {
            let mut chains = [s.chain_start(s.splat_i32(0)); T];
            s.chains(signed, &w[from..from + steps], from, codes, &mut chains);
            for t in 0..T {
                sums[t] = s.chain_scaled(sums[t], chains[t], s.load_i32(scale));
            }
        }
    }
}

/// Quad `i` of a token's codes.
#[inline(always)]
pub(crate) fn quad(codes: &[i8; COLUMNS], i: usize) -> i32 {
    let a = &codes[4 * i..4 * i + 4];
    i32::from_le_bytes([a[0] as u8, a[1] as u8, a[2] as u8, a[3] as u8])
}

/// Continues the chains of `T` tokens, by signed weights or not: `w` meets quad `i` of each token's codes.
#[inline(always)]
fn chain_quad<S: Simd, const T: usize>(
    s: S,
    signed: bool,
    w: S::I32,
    i: usize,
    codes: &[&[i8; COLUMNS]; T],
    sums: &mut [S::I32; T],
) {
    // By index: a zip is not always inlined.
    for t in 0..T {
        let a = quad(codes[t], i);
        sums[t] =
            if signed && S::SIGNED_CHAINS { s.chain_signed(sums[t], w, a) } else { s.chain(sums[t], w, a) };
    }
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
