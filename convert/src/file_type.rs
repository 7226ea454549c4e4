//! What a file can be quantized to: llama.cpp's file types, their numbers, names and base types.

use std::collections::HashMap;

use qgguf_gguf::{GgmlType, file_type_name};
use qgguf_kernels::quantizable;

macro_rules! file_types {
    ($($name:ident = $id:literal: $base:ident),* $(,)?) => {
        /// A file type (`general.file_type`): a base type and the rules by which some tensors get another one.
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FileType {
            $($name = $id,)*
        }

        impl FileType {
            /// All of them, in ascending order of their numbers.
            pub const ALL: [FileType; [$($id),*].len()] = [$(FileType::$name),*];

            /// The type that tensors have unless a rule says another.
            pub fn base(self) -> GgmlType {
                match self {
                    $(FileType::$name => GgmlType::$base,)*
                }
            }
        }
    };
}

// The number of each, and its base type.
file_types! {
    F32 = 0: F32,
    F16 = 1: F16,
    Q4_0 = 2: Q4_0,
    Q4_1 = 3: Q4_1,
    Q8_0 = 7: Q8_0,
    Q5_0 = 8: Q5_0,
    Q5_1 = 9: Q5_1,
    Q2_K = 10: Q2_K,
    Q3_K_S = 11: Q3_K,
    Q3_K_M = 12: Q3_K,
    Q3_K_L = 13: Q3_K,
    Q4_K_S = 14: Q4_K,
    Q4_K_M = 15: Q4_K,
    Q5_K_S = 16: Q5_K,
    Q5_K_M = 17: Q5_K,
    Q6_K = 18: Q6_K,
    IQ2_XXS = 19: IQ2_XXS,
    IQ2_XS = 20: IQ2_XS,
    Q2_K_S = 21: Q2_K,
    IQ3_XS = 22: IQ3_S,
    IQ3_XXS = 23: IQ3_XXS,
    IQ1_S = 24: IQ1_S,
    IQ4_NL = 25: IQ4_NL,
    IQ3_S = 26: IQ3_S,
    IQ3_M = 27: IQ3_S,
    IQ2_S = 28: IQ2_XS,
    IQ2_M = 29: IQ2_S,
    IQ4_XS = 30: IQ4_XS,
    IQ1_M = 31: IQ1_M,
    BF16 = 32: BF16,
    TQ1_0 = 36: TQ1_0,
    TQ2_0 = 37: TQ2_0,
    MXFP4_MOE = 38: MXFP4,
    Q1_0 = 40: Q1_0,
    Q2_0 = 41: Q2_0,
}

use FileType::*;

impl FileType {
    /// The number in `general.file_type`.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The name, e.g. `Q4_K_M`.
    pub fn name(self) -> &'static str {
        file_type_name(self.id()).expect("every file type has a name")
    }

    /// The type of this name (upper or lower case, `Q4_K` for `Q4_K_M`) or number.
    pub fn parse(text: &str) -> Option<FileType> {
        let name = match text.to_ascii_uppercase().as_str() {
            "Q3_K" => "Q3_K_M".to_owned(),
            "Q4_K" => "Q4_K_M".to_owned(),
            "Q5_K" => "Q5_K_M".to_owned(),
            name => name.to_owned(),
        };
        let id = text.parse().ok();
        FileType::ALL.into_iter().find(|ty| ty.name() == name || Some(ty.id()) == id)
    }

    /// Those that can be made here, in ascending order of their numbers.
    pub fn that_can_be_made() -> impl Iterator<Item = FileType> {
        FileType::ALL.into_iter().filter(|ty| ty.can_be_made())
    }

    /// Whether tensors of its base type can be made here.
    pub fn can_be_made(self) -> bool {
        quantizable(self.base())
    }

    /// The number for a file that does not say what it is: that of its most frequent tensor type, of equally frequent
    /// ones the one that had so many first.
    pub fn guess(types: impl Iterator<Item = GgmlType>) -> u32 {
        /// Says that the number was guessed.
        const GUESSED: u32 = 1024;
        let mut counts = HashMap::new();
        let mut most = (0, GgmlType::F32);
        for ty in types {
            let n = counts.entry(ty).or_insert(0);
            *n += 1;
            if *n > most.0 {
                most = (*n, ty);
            }
        }
        let id = match most.1 {
            GgmlType::Q3_K => Q3_K_M.id(),
            GgmlType::Q4_K => Q4_K_M.id(),
            GgmlType::Q5_K => Q5_K_M.id(),
            GgmlType::IQ2_S => IQ2_S.id(),
            GgmlType::IQ3_S => IQ3_S.id(),
            GgmlType::NVFP4 => 39,
            ty => FileType::ALL.into_iter().find(|file_type| file_type.base() == ty).map_or(0, FileType::id),
        };
        id | GUESSED
    }
}

impl std::fmt::Display for FileType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_short_names_are_understood() {
        for ty in FileType::ALL {
            assert_eq!(FileType::parse(ty.name()), Some(ty));
            assert_eq!(FileType::parse(&ty.name().to_lowercase()), Some(ty));
            assert_eq!(FileType::parse(&ty.id().to_string()), Some(ty));
        }
        assert_eq!(FileType::parse("q4_k"), Some(Q4_K_M));
        assert_eq!(FileType::parse("Q4_K_XL"), None);
        assert_eq!(FileType::parse("4"), None);
    }

    #[test]
    fn the_most_frequent_type_makes_the_guess() {
        let guess = |types: &[GgmlType]| FileType::guess(types.iter().copied());
        assert_eq!(guess(&[GgmlType::F32, GgmlType::Q4_K, GgmlType::Q4_K]), 1024 + 15);
        assert_eq!(guess(&[GgmlType::F16, GgmlType::F32, GgmlType::F32, GgmlType::F16]), 1024);
        assert_eq!(guess(&[GgmlType::IQ3_S]), 1024 + 26);
        assert_eq!(guess(&[GgmlType::I32]), 1024);
    }
}
