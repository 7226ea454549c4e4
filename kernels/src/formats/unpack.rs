//! What types of weights have in common in how they pack their codes.

use qgguf_gguf::blocks::FP4;

use crate::bits::{bits, splat_bytes};
use crate::layout::PanelRows;
use crate::simd::Simd;
use crate::tile::Sink;

/// Runs the block with 0 to 3, written out, for loops may stay loops: what is found by a number that the compiler knows
/// stays in registers.
macro_rules! four_times {
    (|$i:ident| $block:block) => {{
        four_times!(@ $i $block 0 1 2 3);
    }};
    (@ $i:ident $block:block $($n:literal)*) => {
        $({
            let $i: usize = $n;
            $block
        })*
    };
}
pub(super) use four_times;

/// Unpacks 16 bytes of each row to 32 nibbles, the low ones first, and puts `f(nibbles, index of the quad)`.
#[inline(always)]
pub(super) fn nibbles<S: Simd>(
    s: S,
    packed: [S::I32; 4],
    w: &mut impl Sink<S>,
    f: impl Fn(S::I32, usize) -> S::I32,
) {
    four_times!(|j| {
        w.put(s, j, f(bits(s, packed[j], 0, 15), j));
        w.put(s, j + 4, f(bits(s, packed[j], 4, 15), j + 4));
    });
}

/// Nibbles with their fifth bits: bit i of `high` belongs to weight i.
#[inline(always)]
pub(super) fn five_bits<S: Simd>(s: S, packed: [S::I32; 4], high: S::I32, w: &mut impl Sink<S>) {
    // Each byte gets one of these bits, and 16 if it is set.
    let mask = s.splat_i32(i32::from_le_bytes([0x10, 0x20, 0x40, 0x80]));
    let sixteen = splat_bytes(s, 16);
    // Bits 0 to 3 of each byte moved to where bits 4 to 7 are.
    let shifted = s.shl(high, 4);
    nibbles(
        s,
        packed,
        w,
        #[inline(always)]
        |v, j| {
            let bits = s.repeat_byte(if j % 2 == 0 { shifted } else { high }, j / 2);
            s.or(v, s.min_bytes(s.and(bits, mask), sixteen))
        },
    );
}

/// Unpacks 64 bytes at `at` of two-bit codes: 32 bytes hold four runs of 32 codes. `f` gets the codes and where they
/// are: the half of the block, the run in it, the quad in that.
#[inline(always)]
pub(super) fn two_bits<S: Simd>(
    s: S,
    rows: PanelRows<'_>,
    at: usize,
    f: impl Fn(S::I32, usize, usize, usize) -> S::I32,
    w: &mut impl Sink<S>,
) {
    four_times!(|i| {
        let (half, part) = (i / 2, i % 2);
        let packed = s.gather(rows, at + 16 * i);
        four_times!(|q| {
            let quad = 4 * part + q;
            four_times!(|run| {
                let code = f(bits(s, packed[q], 2 * run as u32, 3), half, run, quad);
                w.put(s, 32 * half + 8 * run + quad, code);
            });
        });
    });
}

/// Unpacks 128 bytes at `at` of nibbles: 32 bytes hold two runs of 32. `f` gets them, the run, and the quad in it.
#[inline(always)]
pub(super) fn runs_of_nibbles<S: Simd>(
    s: S,
    rows: PanelRows<'_>,
    at: usize,
    w: &mut impl Sink<S>,
    f: impl Fn(S::I32, usize, usize) -> S::I32,
) {
    four_times!(|p| {
        let [packed, then] = [s.gather(rows, at + 32 * p), s.gather(rows, at + 32 * p + 16)];
        four_times!(|q| {
            w.put(s, 16 * p + q, f(bits(s, packed[q], 0, 15), 2 * p, q));
            w.put(s, 16 * p + 8 + q, f(bits(s, packed[q], 4, 15), 2 * p + 1, q));
        });
        four_times!(|q| {
            w.put(s, 16 * p + 4 + q, f(bits(s, then[q], 0, 15), 2 * p, 4 + q));
            w.put(s, 16 * p + 12 + q, f(bits(s, then[q], 4, 15), 2 * p + 1, 4 + q));
        });
    });
}

/// [`FP4`] with 12 added.
pub(super) const FP4_ABOVE: [i8; 16] = {
    let mut table = FP4;
    let mut i = 0;
    while i < 16 {
        table[i] += 12;
        i += 1;
    }
    table
};
