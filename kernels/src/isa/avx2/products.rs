//! Unquantized rows times f32 activations, in assembly.
//!
//! Twelve sums, two registers of weights, one of activations: the compiler, given as many, moves sums from register to
//! register between the products.

use std::arch::asm;
use std::arch::x86_64::__m256;

use crate::layout::NumberFormat;

/// Eight f16, widened.
macro_rules! f16 {
    ($w:literal, $at:literal) => {
        concat!("vcvtph2ps {", $w, "}, [{p", $w, "} + {i} + ", $at, "/2]\n")
    };
}

/// Eight bf16, widened.
macro_rules! bf16 {
    ($w:literal, $at:literal) => {
        concat!(
            "vpmovzxwd {",
            $w,
            "}, [{p",
            $w,
            "} + {i} + ",
            $at,
            "/2]\nvpslld {",
            $w,
            "}, {",
            $w,
            "}, 16\n"
        )
    };
}

/// Eight f32.
macro_rules! f32 {
    ($w:literal, $at:literal) => {
        concat!("vmovups {", $w, "}, [{p", $w, "} + {i} + ", $at, "]\n")
    };
}

/// Products of both rows and token `$t`: the half of the sums that belongs to columns from byte `$at` of the token's 16.
macro_rules! token {
    ($times:literal, $half:literal, $at:literal, $t:literal) => {
        concat!(
            "vmovups {x}, [{x",
            $t,
            "} + ",
            $times,
            "*{i} + ",
            $at,
            "]\n",
            "vfmadd231ps {a",
            $t,
            $half,
            "}, {x}, {wa}\n",
            "vfmadd231ps {b",
            $t,
            $half,
            "}, {x}, {wb}\n",
        )
    };
}

/// Eight columns.
macro_rules! half {
    ($load:ident, $times:literal, $half:literal, $at:literal) => {
        concat!(
            $load!("wa", $at),
            $load!("wb", $at),
            token!($times, $half, $at, "0"),
            token!($times, $half, $at, "1"),
            token!($times, $half, $at, "2"),
        )
    };
}

/// The sums of the products of two rows and the first `n_cols` values, a multiple of 16, of three tokens.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn two_by_three(
    format: NumberFormat,
    w: &[&[u8]; 2],
    x: &[&[f32]; 3],
    n_cols: usize,
) -> [[[__m256; 2]; 3]; 2] {
    assert!(n_cols.is_multiple_of(16) && x.iter().all(|x| x.len() >= n_cols));
    macro_rules! products {
        ($load:ident, $bytes:literal, $times:literal) => {{
            let end = $bytes * n_cols;
            assert!(w.iter().all(|w| w.len() >= end));
            let [[a00, a01, a10, a11, a20, a21], [b00, b01, b10, b11, b20, b21]]: [[__m256; 6]; 2];
            // SAFETY: it reads `end` bytes of each row and `n_cols` values of each token.
            unsafe {
                asm!(
                    "vxorps {a00}, {a00}, {a00}", "vxorps {a01}, {a01}, {a01}",
                    "vxorps {a10}, {a10}, {a10}", "vxorps {a11}, {a11}, {a11}",
                    "vxorps {a20}, {a20}, {a20}", "vxorps {a21}, {a21}, {a21}",
                    "vxorps {b00}, {b00}, {b00}", "vxorps {b01}, {b01}, {b01}",
                    "vxorps {b10}, {b10}, {b10}", "vxorps {b11}, {b11}, {b11}",
                    "vxorps {b20}, {b20}, {b20}", "vxorps {b21}, {b21}, {b21}",
                    "xor {i:e}, {i:e}",
                    "test {end}, {end}",
                    "jz 3f",
                    "2:",
                    half!($load, $times, "0", "0"),
                    half!($load, $times, "1", "32"),
                    concat!("add {i}, 16*", $bytes),
                    "cmp {i}, {end}",
                    "jne 2b",
                    "3:",
                    pwa = in(reg) w[0].as_ptr(), pwb = in(reg) w[1].as_ptr(),
                    x0 = in(reg) x[0].as_ptr(), x1 = in(reg) x[1].as_ptr(), x2 = in(reg) x[2].as_ptr(),
                    i = out(reg) _, end = in(reg) end,
                    a00 = out(ymm_reg) a00, a01 = out(ymm_reg) a01, a10 = out(ymm_reg) a10,
                    a11 = out(ymm_reg) a11, a20 = out(ymm_reg) a20, a21 = out(ymm_reg) a21,
                    b00 = out(ymm_reg) b00, b01 = out(ymm_reg) b01, b10 = out(ymm_reg) b10,
                    b11 = out(ymm_reg) b11, b20 = out(ymm_reg) b20, b21 = out(ymm_reg) b21,
                    wa = out(ymm_reg) _, wb = out(ymm_reg) _, x = out(ymm_reg) _,
                    options(readonly, nostack),
                )
            }
            [[[a00, a01], [a10, a11], [a20, a21]], [[b00, b01], [b10, b11], [b20, b21]]]
        }};
    }
    match format {
        NumberFormat::F32 => products!(f32, 4, "1"),
        NumberFormat::F16 => products!(f16, 2, "2"),
        NumberFormat::Bf16 => products!(bf16, 2, "2"),
    }
}
