//! The ggml tensor types: ids, names and block sizes.

use crate::blocks::{self, Block};

/// From bytes of whole blocks to f32.
type Dequantize = fn(&[u8], &mut [f32]);

/// What is known of a type.
struct Info {
    ty: GgmlType,
    name: &'static str,
    block_size: usize,
    block_bytes: usize,
    half_fields: &'static [usize],
    dequantize: Option<Dequantize>,
}

macro_rules! define_types {
    ($($ty:ident = $id:literal, $name:literal, $($module:ident::$block:ident)? $($weights:literal, $bytes:literal)?;)*) => {
        /// A ggml tensor type as stored in a tensor record.
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum GgmlType {
            $($ty = $id,)*
        }

        const TYPES: &[Info] = &[$(Info {
            ty: GgmlType::$ty,
            name: $name,
            $(
                block_size: blocks::$block::WEIGHTS,
                block_bytes: size_of::<blocks::$block>(),
                half_fields: blocks::$block::HALVES,
                dequantize: Some(blocks::dequantize::<blocks::$block, { blocks::$block::WEIGHTS }>),
            )?
            $(block_size: $weights, block_bytes: $bytes, half_fields: &[], dequantize: None,)?
        },)*];
    };
}
blocks::types!(define_types);

impl GgmlType {
    /// Every type, in ascending order of id.
    pub fn all() -> impl Iterator<Item = GgmlType> {
        TYPES.iter().map(|info| info.ty)
    }

    /// The type with this id, if the format has one.
    pub fn from_id(id: u32) -> Option<GgmlType> {
        GgmlType::all().find(|ty| ty.id() == id)
    }

    /// The type with this name, upper or lower case (`q4_K`, `Q4_K`, `f16`).
    pub fn from_name(name: &str) -> Option<GgmlType> {
        GgmlType::all().find(|ty| ty.name().eq_ignore_ascii_case(name))
    }

    /// The number stored in the file.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The name as llama.cpp prints it, e.g. `q4_K`.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Weights per block (1 for plain number types). The row length of a tensor is a multiple of it.
    pub fn block_size(self) -> usize {
        self.info().block_size
    }

    /// Bytes per block.
    pub fn block_bytes(self) -> usize {
        self.info().block_bytes
    }

    /// Where in a block half-precision numbers lie: its scales and minimums, in bytes from its beginning. Of a type whose
    /// layout is not known here, none.
    pub fn half_fields(self) -> &'static [usize] {
        self.info().half_fields
    }

    /// Bytes of a row of `n` weights, or `None` if `n` is no multiple of the block or the size overflows.
    pub fn row_bytes(self, n: usize) -> Option<usize> {
        let Info { block_size, block_bytes, .. } = *self.info();
        if !n.is_multiple_of(block_size) {
            return None;
        }
        (n / block_size).checked_mul(block_bytes)
    }

    /// What writes the weights of whole blocks, if their meaning is known.
    pub(crate) fn dequantize(self) -> Option<Dequantize> {
        self.info().dequantize
    }

    fn info(self) -> &'static Info {
        TYPES.iter().find(|info| info.ty == self).expect("every variant comes from the list")
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
