//! Groups of weights, one in each lane of a vector, the way there and back, and the reference's ways to round.

use super::Weights;
use crate::simd::Simd;

/// Groups that a panel holds: one in each lane.
pub(crate) const GROUPS: usize = 16;

/// Below this a group counts as zeros.
pub(crate) const TINY: f32 = 1e-15;

/// Sums over a group that say how well its codes fit: of `w * x * code` and of `w * code * code`.
#[derive(Clone, Copy)]
pub(crate) struct Fit<S: Simd> {
    pub(crate) lx: S::F32,
    pub(crate) l2: S::F32,
}

impl<S: Simd> Fit<S> {
    /// No weight yet.
    #[inline(always)]
    pub(crate) fn nothing(s: S) -> Fit<S> {
        Fit { lx: s.splat(0.0), l2: s.splat(0.0) }
    }

    /// With one more weight.
    #[inline(always)]
    pub(crate) fn with(self, s: S, w: S::F32, x: S::F32, code: S::F32) -> Fit<S> {
        Fit { lx: s.add(self.lx, s.mul(s.mul(w, x), code)), l2: s.add(self.l2, s.mul(s.mul(w, code), code)) }
    }

    /// Without one of its weights.
    #[inline(always)]
    pub(crate) fn without(self, s: S, w: S::F32, x: S::F32, code: S::F32) -> Fit<S> {
        Fit { lx: s.sub(self.lx, s.mul(s.mul(w, x), code)), l2: s.sub(self.l2, s.mul(s.mul(w, code), code)) }
    }

    /// Where these codes fit better than others.
    #[inline(always)]
    pub(crate) fn beats(self, s: S, other: Fit<S>) -> S::Mask {
        s.gt(s.mul(s.mul(self.lx, self.lx), other.l2), s.mul(s.mul(other.lx, other.lx), self.l2))
    }

    /// This where the mask is true, the other elsewhere.
    #[inline(always)]
    pub(crate) fn or(self, s: S, mask: S::Mask, other: Fit<S>) -> Fit<S> {
        Fit { lx: s.select(mask, self.lx, other.lx), l2: s.select(mask, self.l2, other.l2) }
    }

    /// The scale that fits best, 0 where there is none.
    #[inline(always)]
    pub(crate) fn scale(self, s: S) -> S::F32 {
        let nothing = s.splat(0.0);
        s.select(s.gt(self.l2, nothing), s.div(self.lx, self.l2), nothing)
    }
}

/// Where whole numbers differ.
#[inline(always)]
pub(crate) fn differ<S: Simd>(s: S, a: S::F32, b: S::F32) -> S::Mask {
    let between = s.sub(a, b);
    s.gt(s.mul(between, between), s.splat(0.0))
}

/// Adding this, or adding and subtracting it, rounds to nearest even where |x| < 2^22.
const ROUND: f32 = 12_582_912.0;

/// 16 groups of `N` weights, one after the other, as `N` vectors: lane g of vector i is weight i of group g.
#[inline(always)]
pub(crate) fn columns<S: Simd, const N: usize>(s: S, x: &[f32]) -> [S::F32; N] {
    let mut columns = [s.splat(0.0); N];
    for i in 0..N / 4 {
        let four = s.gather_f32(x, N, 4 * i);
        columns[4 * i..4 * i + 4].copy_from_slice(&four);
    }
    columns
}

/// The reverse of [`columns`] for codes: whole numbers from -128 to 255, as bytes.
#[inline(always)]
pub(crate) fn rows<S: Simd, const N: usize>(s: S, codes: &[S::F32; N]) -> [[u8; N]; GROUPS] {
    let mut rows = [[0; N]; GROUPS];
    for (i, four) in codes.as_chunks::<4>().0.iter().enumerate() {
        let low = s.or(byte(s, four[0]), s.shl(byte(s, four[1]), 8));
        let high = s.or(s.shl(byte(s, four[2]), 16), s.shl(byte(s, four[3]), 24));
        let mut words = [0; 64];
        s.store_i32(s.or(low, high), &mut words);
        for (row, word) in rows.iter_mut().zip(words.as_chunks::<4>().0) {
            row[4 * i..4 * i + 4].copy_from_slice(word);
        }
    }
    rows
}

/// The low byte of a whole number, |v| < 2^22.
#[inline(always)]
pub(crate) fn byte<S: Simd>(s: S, v: S::F32) -> S::I32 {
    s.and(s.bits(s.add(v, s.splat(ROUND))), s.splat_i32(0xff))
}

/// The lanes as an array.
#[inline(always)]
pub(crate) fn array<S: Simd>(s: S, v: S::F32) -> [f32; GROUPS] {
    let mut out = [0.0; GROUPS];
    s.store(v, &mut out);
    out
}

/// Half-precision bytes of each lane.
#[inline(always)]
pub(crate) fn halves<S: Simd>(s: S, v: S::F32) -> [[u8; 2]; GROUPS] {
    let mut bytes = [0; 32];
    s.store_f16(v, &mut bytes);
    let mut out = [[0; 2]; GROUPS];
    out.copy_from_slice(bytes.as_chunks().0);
    out
}

/// The first `N` weights of `x`, with zeros for those that are missing.
#[inline(always)]
pub(crate) fn padded<'a, const N: usize>(x: &'a [f32], room: &'a mut [f32; N]) -> &'a [f32; N] {
    if let Some(whole) = x.first_chunk() {
        return whole;
    }
    room[..x.len()].copy_from_slice(x);
    room[x.len()..].fill(0.0);
    room
}

/// The importance of `N` weights from weight `start` on. Rows are multiples of 32, and so is `start`.
#[inline(always)]
pub(crate) fn importance<'a, const N: usize>(
    weights: Weights<'a>,
    start: usize,
    room: &'a mut [f32; N],
) -> Option<&'a [f32; N]> {
    let importance = weights.importance?;
    let column = start % weights.n_cols;
    if let Some(inside) = importance[column..].first_chunk() {
        return Some(inside);
    }
    for (i, room) in room.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let column = (start + 32 * i) % weights.n_cols;
        room.copy_from_slice(&importance[column..column + 32]);
    }
    Some(room)
}

/// Rounds to nearest even, for |v| < 2^22.
#[inline(always)]
pub(crate) fn round<S: Simd>(s: S, v: S::F32) -> S::F32 {
    s.sub(s.add(v, s.splat(ROUND)), s.splat(ROUND))
}

/// Rounds to nearest even, for |v| < 2^22. What is farther, or not a number, becomes the whole number that is
/// read from the low bits of the sum, as in the reference.
#[inline(always)]
pub(crate) fn round_any<S: Simd>(s: S, v: S::F32) -> S::F32 {
    let low = s.and(s.bits(s.add(v, s.splat(ROUND))), s.splat_i32(0x007f_ffff));
    // 2^23 plus these bits, as a number.
    s.sub(s.of_bits(s.or(low, s.splat_i32(0x4b00_0000))), s.splat(ROUND))
}

/// [`round_any`] for one number.
#[inline(always)]
pub(crate) fn nearest(v: f32) -> i32 {
    ((v + ROUND).to_bits() & 0x007f_ffff) as i32 - 0x0040_0000
}

/// Rounds halves away from zero, for |v| < 2^22.
#[inline(always)]
pub(crate) fn round_away<S: Simd>(s: S, v: S::F32) -> S::F32 {
    let size = abs(s, v);
    let even = round(s, size);
    let below = s.eq(s.sub(size, even), s.splat(0.5));
    let away = s.select(below, s.add(even, s.splat(1.0)), even);
    s.select(s.gt(s.splat(0.0), v), s.sub(s.splat(0.0), away), away)
}

/// Rounds down, for 0 <= v < 2^22.
#[inline(always)]
pub(crate) fn floor<S: Simd>(s: S, v: S::F32) -> S::F32 {
    let near = round(s, v);
    s.select(s.gt(near, v), s.sub(near, s.splat(1.0)), near)
}

/// `v`, or the bound that it is beyond.
#[inline(always)]
pub(crate) fn clamp<S: Simd>(s: S, v: S::F32, low: f32, high: f32) -> S::F32 {
    s.max(s.min(v, s.splat(high)), s.splat(low))
}

/// The size of each lane.
#[inline(always)]
pub(crate) fn abs<S: Simd>(s: S, v: S::F32) -> S::F32 {
    s.of_bits(s.and(s.bits(v), s.splat_i32(0x7fff_ffff)))
}

/// `-v`.
#[inline(always)]
pub(crate) fn negate<S: Simd>(s: S, v: S::F32) -> S::F32 {
    s.of_bits(s.xor(s.bits(v), s.splat_i32(i32::MIN)))
}

/// `1 / v`, or 0 for 0.
#[inline(always)]
pub(crate) fn inverse<S: Simd>(s: S, v: S::F32) -> S::F32 {
    s.select(s.eq(v, s.splat(0.0)), s.splat(0.0), s.div(s.splat(1.0), v))
}

/// True where `v` is infinite.
#[inline(always)]
pub(crate) fn infinite<S: Simd>(s: S, v: S::F32) -> S::Mask {
    s.eq(abs(s, v), s.splat(f32::INFINITY))
}

/// Largest size in each lane.
#[inline(always)]
pub(crate) fn largest_size<S: Simd>(s: S, x: &[S::F32]) -> S::F32 {
    let mut largest = s.splat(0.0);
    for &x in x {
        largest = s.max(largest, abs(s, x));
    }
    largest
}

/// The value that is farthest from 0 in each lane, the first of equals, and its size.
#[inline(always)]
pub(crate) fn extreme<S: Simd>(s: S, x: &[S::F32]) -> (S::F32, S::F32) {
    let (mut extreme, mut size) = (s.splat(0.0), s.splat(0.0));
    for &x in x {
        let this = abs(s, x);
        let larger = s.gt(this, size);
        extreme = s.select(larger, x, extreme);
        size = s.select(larger, this, size);
    }
    (extreme, size)
}

/// Smallest and largest value in each lane.
#[inline(always)]
pub(crate) fn range<S: Simd>(s: S, x: &[S::F32]) -> (S::F32, S::F32) {
    let (mut low, mut high) = (x[0], x[0]);
    for &x in &x[1..] {
        low = s.min(x, low);
        high = s.max(x, high);
    }
    (low, high)
}

/// Sum of squares in each lane, from the first to the last.
#[inline(always)]
pub(crate) fn sum_of_squares<S: Simd>(s: S, x: &[S::F32]) -> S::F32 {
    let mut sum = s.splat(0.0);
    for &x in x {
        sum = s.add(sum, s.mul(x, x));
    }
    sum
}

/// `importance * sqrt(variance + x * x)`: how much the error of each weight counts.
#[inline(always)]
pub(crate) fn weighted<S: Simd, const N: usize>(
    s: S,
    x: &[S::F32; N],
    importance: &[f32],
    variance: S::F32,
) -> [S::F32; N] {
    let mut w = columns::<S, N>(s, importance);
    for i in 0..N {
        w[i] = s.mul(w[i], s.sqrt(s.add(variance, s.mul(x[i], x[i]))));
    }
    w
}

/// Weights of a superblock.
pub(crate) const SUPERBLOCK: usize = 256;

/// Weights of as many superblocks as there are lanes: what is quantized in one go.
pub(crate) const BATCH: usize = GROUPS * SUPERBLOCK;

/// The sum of squares of each superblock, from the first weight to the last.
#[inline(always)]
pub(crate) fn superblock_squares<S: Simd>(s: S, x: &[f32; BATCH]) -> [f32; GROUPS] {
    let mut sum = s.splat(0.0);
    for i in 0..SUPERBLOCK / 4 {
        for x in s.gather_f32(x, SUPERBLOCK, 4 * i) {
            sum = s.add(sum, s.mul(x, x));
        }
    }
    array(s, sum)
}

/// Lane g is the value of the superblock that group g of panel `panel` is in, for groups of `N`.
#[inline(always)]
pub(crate) fn of_superblock<S: Simd, const N: usize>(s: S, values: &[f32; GROUPS], panel: usize) -> S::F32 {
    let mut lanes = [0.0; GROUPS];
    for (g, lane) in lanes.iter_mut().enumerate() {
        *lane = values[(panel * GROUPS + g) * N / SUPERBLOCK];
    }
    s.load(&lanes)
}

/// The codes of sub-blocks whose scale is not 0: `(x + min) / scale`, rounded, between `low` and `high`.
#[inline(always)]
pub(crate) fn requantized<S: Simd>(
    s: S,
    x: S::F32,
    scale: S::F32,
    min: S::F32,
    low: f32,
    high: f32,
) -> S::F32 {
    clamp(s, round_any(s, s.div(s.add(x, min), scale)), low, high)
}

/// The number that a half-precision field holds after rounding, and its bytes.
#[inline(always)]
pub(crate) fn half(v: f32) -> (f32, [u8; 2]) {
    let half = half::f16::from_f32(v);
    (half.to_f32(), half.to_le_bytes())
}

/// The sum of each lane, from the first to the last.
#[inline(always)]
pub(crate) fn sum<S: Simd>(s: S, x: &[S::F32]) -> S::F32 {
    let mut sum = s.splat(0.0);
    for &x in x {
        sum = s.add(sum, x);
    }
    sum
}

/// The low two bits of the codes of a superblock: four runs of 32 weights in 32 bytes.
#[inline(always)]
pub(crate) fn pack_pairs(codes: &[u8; SUPERBLOCK], out: &mut [u8]) {
    for (codes, out) in codes.as_chunks::<128>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        for i in 0..32 {
            out[i] =
                codes[i] & 3 | (codes[i + 32] & 3) << 2 | (codes[i + 64] & 3) << 4 | (codes[i + 96] & 3) << 6;
        }
    }
}
