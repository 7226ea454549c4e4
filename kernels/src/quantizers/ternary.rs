//! What TQ1_0 and TQ2_0 share: -1, 0 or 1 times the largest weight of a superblock.

use super::groups::*;
use crate::simd::Simd;

/// Codes 0 to 2 of a superblock, and the bytes of its scale. A lane holds 16 weights.
#[inline(always)]
pub(crate) fn digits<S: Simd>(s: S, x: &[f32; SUPERBLOCK]) -> ([[u8; GROUPS]; GROUPS], [u8; 2]) {
    let mut codes = columns::<S, GROUPS>(s, x);
    let mut largest = 0.0;
    for size in array(s, largest_size(s, &codes)) {
        largest = if size > largest { size } else { largest };
    }
    let by = if largest != 0.0 { 1.0 / largest } else { 0.0 };
    for code in &mut codes {
        let digit = if by.is_infinite() { s.splat(0.0) } else { round_away(s, s.mul(*code, s.splat(by))) };
        *code = s.add(digit, s.splat(1.0));
    }
    (rows(s, &codes), half(largest).1)
}
