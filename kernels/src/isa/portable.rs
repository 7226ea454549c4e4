//! Plain Rust: the meaning of every operation, and the fallback for any CPU.

use half::f16;

use crate::simd::Simd;
use crate::table::stamp;

/// Needs no features.
#[derive(Clone, Copy)]
pub(crate) struct Portable(());

impl Portable {
    /// # Safety
    /// None needed; the signature is that of the other tokens.
    #[inline(always)]
    pub(crate) unsafe fn new_unchecked() -> Portable {
        Portable(())
    }
}

/// i16 lane `j` of 32 bytes.
#[inline(always)]
fn word(v: &[u8; 32], j: usize) -> i32 {
    i16::from_le_bytes([v[2 * j], v[2 * j + 1]]).into()
}

#[inline(always)]
fn from_words(words: [i16; 16]) -> [u8; 32] {
    std::array::from_fn(|i| words[i / 2].to_le_bytes()[i % 2])
}

#[inline(always)]
fn dot(sums: [i32; 8], a: &[u8; 32], scale: &[u8; 32], w: impl Fn(usize) -> i32) -> [i32; 8] {
    std::array::from_fn(|lane| {
        (0..4).fold(sums[lane], |sum, i| {
            let at = 4 * lane + i;
            sum.wrapping_add(w(at) * i32::from(a[at] as i8) * word(scale, at / 2))
        })
    })
}

impl Simd for Portable {
    type F32 = [f32; 16];
    type Bytes = [u8; 32];
    type I32 = [i32; 8];

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 16] {
        [x; 16]
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [f32; 16] {
        *x
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> [f32; 16] {
        std::array::from_fn(|i| self.f16([x[2 * i], x[2 * i + 1]]))
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u8; 32]) -> [f32; 16] {
        std::array::from_fn(|i| f32::from_bits(u32::from(u16::from_le_bytes([x[2 * i], x[2 * i + 1]])) << 16))
    }
    #[inline(always)]
    fn store(self, v: [f32; 16], out: &mut [f32; 16]) {
        *out = v;
    }
    #[inline(always)]
    fn store_f16(self, v: [f32; 16], out: &mut [u8; 32]) {
        for (out, &v) in out.as_chunks_mut::<2>().0.iter_mut().zip(&v) {
            *out = f16::from_f32(v).to_le_bytes();
        }
    }
    #[inline(always)]
    fn add(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn exp2_whole(self, n: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| f32::from_bits((n[i] as i32).wrapping_add(127).wrapping_shl(23) as u32))
    }
    #[inline(always)]
    fn f16(self, bits: [u8; 2]) -> f32 {
        f16::from_le_bytes(bits).to_f32()
    }
    #[inline(always)]
    fn sum(self, v: [f32; 16]) -> f32 {
        let eight: [f32; 8] = std::array::from_fn(|i| v[i] + v[i + 8]);
        let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
        (four[0] + four[2]) + (four[1] + four[3])
    }

    #[inline(always)]
    fn bytes(self, x: &[u8; 32]) -> [u8; 32] {
        *x
    }
    #[inline(always)]
    fn signed_bytes(self, x: &[i8; 32]) -> [u8; 32] {
        x.map(|x| x as u8)
    }
    #[inline(always)]
    fn words(self, x: &[i16; 16]) -> [u8; 32] {
        from_words(*x)
    }
    #[inline(always)]
    fn splat_byte(self, x: u8) -> [u8; 32] {
        [x; 32]
    }
    #[inline(always)]
    fn splat_word(self, x: i16) -> [u8; 32] {
        from_words([x; 16])
    }
    #[inline(always)]
    fn word_halves(self, low: i16, high: i16) -> [u8; 32] {
        from_words(std::array::from_fn(|j| if j < 8 { low } else { high }))
    }
    #[inline(always)]
    fn nibbles(self, x: &[u8; 16]) -> [u8; 32] {
        std::array::from_fn(|i| if i < 16 { x[i] & 15 } else { x[i - 16] >> 4 })
    }
    #[inline(always)]
    fn mask_from_bits(self, bits: u32) -> [u8; 32] {
        std::array::from_fn(|i| if bits >> i & 1 == 1 { 255 } else { 0 })
    }
    #[inline(always)]
    fn shr_and<const SHIFT: i32>(self, v: [u8; 32], mask: u8) -> [u8; 32] {
        v.map(|v| v >> SHIFT & mask)
    }
    #[inline(always)]
    fn shl<const SHIFT: i32>(self, v: [u8; 32]) -> [u8; 32] {
        v.map(|v| v << SHIFT)
    }
    #[inline(always)]
    fn and(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        std::array::from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn or(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: [u8; 32]) -> [u8; 32] {
        v.map(|v| table[usize::from(v & 15)] as u8)
    }

    #[inline(always)]
    fn zero_sums(self) -> [i32; 8] {
        [0; 8]
    }
    #[inline(always)]
    fn dot_unsigned(self, sums: [i32; 8], w: [u8; 32], a: [u8; 32], scale: [u8; 32]) -> [i32; 8] {
        dot(sums, &a, &scale, |i| w[i].into())
    }
    #[inline(always)]
    fn dot_signed(self, sums: [i32; 8], w: [u8; 32], a: [u8; 32], scale: [u8; 32]) -> [i32; 8] {
        dot(sums, &a, &scale, |i| (w[i] as i8).into())
    }
    #[inline(always)]
    fn dot_words(self, sums: [i32; 8], a: [u8; 32], b: [u8; 32]) -> [i32; 8] {
        std::array::from_fn(|lane| {
            let product = |j: usize| word(&a, j) * word(&b, j);
            sums[lane].wrapping_add(product(2 * lane)).wrapping_add(product(2 * lane + 1))
        })
    }
    #[inline(always)]
    fn totals(self, sums: [[i32; 8]; 4]) -> [i32; 4] {
        sums.map(|sums| sums.into_iter().fold(0, i32::wrapping_add))
    }
}

crate::table::kernels!(stamp, Portable, ());
