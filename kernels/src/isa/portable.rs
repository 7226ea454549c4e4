//! Plain Rust: the meaning of every operation, and the fallback for any CPU.

use half::f16;

use crate::layout::PanelRows;
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

/// The i32 of lane `i`.
#[inline(always)]
fn lane(v: &[u8; 64], i: usize) -> i32 {
    i32::from_le_bytes([v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]])
}

#[inline(always)]
fn from_lanes(f: impl Fn(usize) -> i32) -> [u8; 64] {
    let lanes: [[u8; 4]; 16] = std::array::from_fn(|i| f(i).to_le_bytes());
    std::array::from_fn(|i| lanes[i / 4][i % 4])
}

/// Half `j` of `x`, as an i16.
#[inline(always)]
fn word(x: i32, j: usize) -> i32 {
    i32::from((x >> (16 * j)) as i16)
}

impl Simd for Portable {
    type F32 = [f32; 16];
    type I32 = [u8; 64];
    type Mask = [bool; 16];

    const WORD_CHAINS: bool = false;
    const SIGNED_CHAINS: bool = true;
    const TOKENS: usize = 4;

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
        std::array::from_fn(|i| f16::from_le_bytes([x[2 * i], x[2 * i + 1]]).to_f32())
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
    fn store_i8(self, v: [f32; 16], out: &mut [i8; 16]) {
        *out = v.map(|v| v as i8);
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
    fn sqrt(self, v: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| v[i].sqrt())
    }
    #[inline(always)]
    fn gt(self, a: [f32; 16], b: [f32; 16]) -> [bool; 16] {
        std::array::from_fn(|i| a[i] > b[i])
    }
    #[inline(always)]
    fn eq(self, a: [f32; 16], b: [f32; 16]) -> [bool; 16] {
        std::array::from_fn(|i| a[i] == b[i])
    }
    #[inline(always)]
    fn both(self, a: [bool; 16], b: [bool; 16]) -> [bool; 16] {
        std::array::from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn any(self, m: [bool; 16]) -> bool {
        m.contains(&true)
    }
    #[inline(always)]
    fn select(self, m: [bool; 16], a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| if m[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn bits(self, v: [f32; 16]) -> [u8; 64] {
        from_lanes(|i| v[i].to_bits() as i32)
    }
    #[inline(always)]
    fn of_bits(self, v: [u8; 64]) -> [f32; 16] {
        std::array::from_fn(|i| f32::from_bits(lane(&v, i) as u32))
    }
    #[inline(always)]
    fn exp2_whole(self, n: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| f32::from_bits((n[i] as i32).wrapping_add(127).wrapping_shl(23) as u32))
    }
    #[inline(always)]
    fn sum(self, v: [f32; 16]) -> f32 {
        let eight: [f32; 8] = std::array::from_fn(|i| v[i] + v[i + 8]);
        let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
        (four[0] + four[2]) + (four[1] + four[3])
    }

    #[inline(always)]
    fn largest(self, v: [f32; 16]) -> f32 {
        v.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    fn load_i32(self, x: &[u8; 64]) -> [u8; 64] {
        *x
    }
    #[inline(always)]
    fn store_i32(self, v: [u8; 64], out: &mut [u8; 64]) {
        *out = v;
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> [u8; 64] {
        from_lanes(|_| x)
    }
    #[inline(always)]
    fn gather(self, rows: PanelRows<'_>, at: usize) -> [[u8; 64]; 4] {
        std::array::from_fn(|j| self.gather_one(rows, at + 4 * j))
    }
    #[inline(always)]
    fn gather_f32(self, x: &[f32], stride: usize, at: usize) -> [[f32; 16]; 4] {
        std::array::from_fn(|j| std::array::from_fn(|r| x[r * stride + at + j]))
    }
    #[inline(always)]
    fn gather_one(self, rows: PanelRows<'_>, at: usize) -> [u8; 64] {
        from_lanes(|r| i32::from_le_bytes(rows.field(r, at)))
    }
    #[inline(always)]
    fn and(self, a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        std::array::from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn or(self, a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn xor(self, a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        std::array::from_fn(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    fn shl(self, v: [u8; 64], n: u32) -> [u8; 64] {
        from_lanes(|i| lane(&v, i) << n)
    }
    #[inline(always)]
    fn shr(self, v: [u8; 64], n: u32) -> [u8; 64] {
        from_lanes(|i| (lane(&v, i) as u32 >> n) as i32)
    }
    #[inline(always)]
    fn sar(self, v: [u8; 64], n: u32) -> [u8; 64] {
        from_lanes(|i| lane(&v, i) >> n)
    }
    #[inline(always)]
    fn sub_i32(self, a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        from_lanes(|i| lane(&a, i).wrapping_sub(lane(&b, i)))
    }
    #[inline(always)]
    fn min_bytes(self, a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        std::array::from_fn(|i| a[i].min(b[i]))
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: [u8; 64]) -> [u8; 64] {
        v.map(|v| table[usize::from(v & 15)] as u8)
    }
    #[inline(always)]
    fn repeat_byte(self, v: [u8; 64], j: usize) -> [u8; 64] {
        std::array::from_fn(|i| v[i / 4 * 4 + j])
    }
    #[inline(always)]
    fn halves(self, v: [u8; 64]) -> [f32; 16] {
        std::array::from_fn(|i| f16::from_le_bytes([v[4 * i], v[4 * i + 1]]).to_f32())
    }
    #[inline(always)]
    fn i32_to_f32(self, v: [u8; 64]) -> [f32; 16] {
        std::array::from_fn(|i| lane(&v, i) as f32)
    }

    #[inline(always)]
    fn chain_start(self, from: [u8; 64]) -> [u8; 64] {
        from
    }
    #[inline(always)]
    fn chain(self, sums: [u8; 64], w: [u8; 64], a: i32) -> [u8; 64] {
        // At most 127, so the sign does not matter.
        self.chain_signed(sums, w, a)
    }
    #[inline(always)]
    fn chain_signed(self, sums: [u8; 64], w: [u8; 64], a: i32) -> [u8; 64] {
        let a = a.to_le_bytes();
        from_lanes(|i| {
            (0..4).fold(lane(&sums, i), |sum, j| {
                sum.wrapping_add(i32::from(w[4 * i + j] as i8) * i32::from(a[j] as i8))
            })
        })
    }
    #[inline(always)]
    fn chain_end(self, _: [u8; 64], sums: [u8; 64]) -> [u8; 64] {
        sums
    }
    #[inline(always)]
    fn chain_scale(self, v: [u8; 64]) -> [u8; 64] {
        v
    }
    #[inline(always)]
    fn chain_scaled(self, acc: [u8; 64], sums: [u8; 64], scale: [u8; 64]) -> [u8; 64] {
        from_lanes(|i| lane(&acc, i).wrapping_add(lane(&sums, i).wrapping_mul(lane(&scale, i))))
    }
    #[inline(always)]
    fn dot_pairs(self, acc: [u8; 64], w: [u8; 64], a: i32) -> [u8; 64] {
        from_lanes(|i| {
            let w = lane(&w, i);
            lane(&acc, i).wrapping_add(word(w, 0) * word(a, 0)).wrapping_add(word(w, 1) * word(a, 1))
        })
    }
}

crate::table::kernels!(stamp, Portable, ());
