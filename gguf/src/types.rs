//! The ggml tensor types: ids, names and block sizes.

/// A ggml tensor type as stored in a tensor record.
///
/// Source: the GGUF type table (`id`, name, weights per block, bytes per block). Ids that were
/// removed from the format (4, 5, 31-33, 36-38) and ids from 43 up have no variant.
#[allow(non_camel_case_types, missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum GgmlType {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q8_1 = 9,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    Q8_K = 15,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    I8 = 24,
    I16 = 25,
    I32 = 26,
    I64 = 27,
    F64 = 28,
    IQ1_M = 29,
    BF16 = 30,
    TQ1_0 = 34,
    TQ2_0 = 35,
    MXFP4 = 39,
    NVFP4 = 40,
    Q1_0 = 41,
    Q2_0 = 42,
}

/// `(type, name as llama.cpp prints it, weights per block, bytes per block)`.
const TABLE: &[(GgmlType, &str, usize, usize)] = {
    use GgmlType::*;
    &[
        (F32, "f32", 1, 4),
        (F16, "f16", 1, 2),
        (Q4_0, "q4_0", 32, 18),
        (Q4_1, "q4_1", 32, 20),
        (Q5_0, "q5_0", 32, 22),
        (Q5_1, "q5_1", 32, 24),
        (Q8_0, "q8_0", 32, 34),
        (Q8_1, "q8_1", 32, 36),
        (Q2_K, "q2_K", 256, 84),
        (Q3_K, "q3_K", 256, 110),
        (Q4_K, "q4_K", 256, 144),
        (Q5_K, "q5_K", 256, 176),
        (Q6_K, "q6_K", 256, 210),
        (Q8_K, "q8_K", 256, 292),
        (IQ2_XXS, "iq2_xxs", 256, 66),
        (IQ2_XS, "iq2_xs", 256, 74),
        (IQ3_XXS, "iq3_xxs", 256, 98),
        (IQ1_S, "iq1_s", 256, 50),
        (IQ4_NL, "iq4_nl", 32, 18),
        (IQ3_S, "iq3_s", 256, 110),
        (IQ2_S, "iq2_s", 256, 82),
        (IQ4_XS, "iq4_xs", 256, 136),
        (I8, "i8", 1, 1),
        (I16, "i16", 1, 2),
        (I32, "i32", 1, 4),
        (I64, "i64", 1, 8),
        (F64, "f64", 1, 8),
        (IQ1_M, "iq1_m", 256, 56),
        (BF16, "bf16", 1, 2),
        (TQ1_0, "tq1_0", 256, 54),
        (TQ2_0, "tq2_0", 256, 66),
        (MXFP4, "mxfp4", 32, 17),
        (NVFP4, "nvfp4", 64, 36),
        (Q1_0, "q1_0", 128, 18),
        (Q2_0, "q2_0", 64, 18),
    ]
};

impl GgmlType {
    /// Every type, in ascending order of id.
    pub fn all() -> impl Iterator<Item = GgmlType> {
        TABLE.iter().map(|row| row.0)
    }

    /// The type with this id, if the format has one.
    pub fn from_id(id: u32) -> Option<GgmlType> {
        TABLE.iter().find(|row| row.0 as u32 == id).map(|row| row.0)
    }

    /// The type with this name, upper or lower case (`q4_K`, `Q4_K`, `f16`).
    pub fn from_name(name: &str) -> Option<GgmlType> {
        TABLE.iter().find(|row| row.1.eq_ignore_ascii_case(name)).map(|row| row.0)
    }

    /// The number stored in the file.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The name as llama.cpp prints it, e.g. `q4_K`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Weights per block (1 for plain number types). The row length of a tensor is a multiple of it.
    pub fn block_size(self) -> usize {
        self.row().2
    }

    /// Bytes per block.
    pub fn block_bytes(self) -> usize {
        self.row().3
    }

    /// Bytes of a row of `n` weights, or `None` if `n` is no multiple of the block or the size overflows.
    pub fn row_bytes(self, n: usize) -> Option<usize> {
        let (_, _, block, bytes) = *self.row();
        if !n.is_multiple_of(block) {
            return None;
        }
        (n / block).checked_mul(bytes)
    }

    fn row(self) -> &'static (GgmlType, &'static str, usize, usize) {
        TABLE.iter().find(|row| row.0 == self).expect("every variant has a row")
    }
}

impl std::fmt::Display for GgmlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a `general.file_type`, e.g. `Q4_K_M`: what most weights of a file were quantized to.
///
/// Source: llama.cpp's list of file types. 1024 is added to a number that was guessed.
pub fn file_type_name(n: u32) -> Option<&'static str> {
    Some(match n & !1024 {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        19 => "IQ2_XXS",
        20 => "IQ2_XS",
        21 => "Q2_K_S",
        22 => "IQ3_XS",
        23 => "IQ3_XXS",
        24 => "IQ1_S",
        25 => "IQ4_NL",
        26 => "IQ3_S",
        27 => "IQ3_M",
        28 => "IQ2_S",
        29 => "IQ2_M",
        30 => "IQ4_XS",
        31 => "IQ1_M",
        32 => "BF16",
        36 => "TQ1_0",
        37 => "TQ2_0",
        38 => "MXFP4_MOE",
        39 => "NVFP4",
        40 => "Q1_0",
        41 => "Q2_0",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_types_have_the_names_of_llama_cpp() {
        let names: Vec<&str> = (0..50).filter_map(file_type_name).collect();
        assert_eq!(
            names.join(" "),
            "F32 F16 Q4_0 Q4_1 Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K \
             IQ2_XXS IQ2_XS Q2_K_S IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS IQ1_M BF16 \
             TQ1_0 TQ2_0 MXFP4_MOE NVFP4 Q1_0 Q2_0"
        );
        assert_eq!(file_type_name(15), Some("Q4_K_M"));
        assert_eq!(file_type_name(1024 + 15), Some("Q4_K_M"), "a guess has the same name");
        assert_eq!(file_type_name(u32::MAX), None);
    }
}
