//! Instruction sets: which there are, which this CPU has, and their kernel tables.
//!
//! One file per instruction set; each implements [`crate::simd::Simd`] for its token, lists its features
//! once, and stamps its table. These files hold the only intrinsics of the project.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod portable;

pub(crate) use portable::Portable;

use crate::table::Table;

/// A CPU feature's name, and whether this CPU has it.
type Feature = (&'static str, fn() -> bool);

/// Lists an instruction set's features once: for detection and for the shells' `target_feature`. One that differs from
/// another only in how products are added, with that one's features among its own, shares its table's other kernels.
#[allow(unused_macros, reason = "on some architectures there is only the portable one")]
macro_rules! isa_table {
    ($token:ident, detect: $detect:ident, $($feature:tt),*) => {
        $crate::isa::isa_features!($detect, $($feature),*);
        use $crate::table::stamp;
        $crate::table::kernels!(stamp, $token, ($(#[target_feature(enable = $feature)])*));
    };
    ($token:ident, products beside: $base:path, detect: $detect:ident, $($feature:tt),*) => {
        $crate::isa::isa_features!($detect, $($feature),*);
        use $crate::table::stamp_products;
        $crate::table::kernels!(stamp_products, $token, ($(#[target_feature(enable = $feature)])*), ($base));
    };
}
#[allow(unused_imports, reason = "as above")]
use isa_table;

#[allow(unused_macros, reason = "as above")]
macro_rules! isa_features {
    ($detect:ident, $($feature:tt),*) => {
        /// The features this instruction set needs, each with its test.
        pub(crate) const FEATURES: &[$crate::isa::Feature] =
            &[$(($feature, || std::arch::$detect!($feature))),*];
    };
}
#[allow(unused_imports, reason = "as above")]
use isa_features;

/// The features and the table of an instruction set, or the name of its architecture where this is another one.
type Found = Result<(&'static [Feature], &'static Table), &'static str>;

/// [`Found`] for the instruction set in a module that exists on one architecture.
macro_rules! found_on {
    ($arch:literal, $($isa:ident)::+) => {{
        #[cfg(all(target_arch = $arch, target_endian = "little"))]
        let found: Found = Ok(($($isa)::+::FEATURES, &$($isa)::+::TABLE));
        #[cfg(not(all(target_arch = $arch, target_endian = "little")))]
        let found: Found = Err($arch);
        found
    }};
}

/// An instruction set, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust, any CPU.
    Portable,
    /// x86-64 with AVX2, FMA and F16C (Haswell, Zen and later).
    Avx2,
    /// AVX2 with AVX-VNNI (Alder Lake, Zen 5 and later).
    AvxVnni,
    /// x86-64 with AVX-512 F, BW, DQ and VL (Skylake-SP).
    Avx512,
    /// AVX-512 with VNNI (Cascade Lake, Ice Lake, Zen 4 and later).
    Avx512Vnni,
    /// AArch64 with NEON (any such CPU).
    Neon,
    /// AArch64 with NEON and its dot products (Cortex-A76, Neoverse N1, Apple M1 and later).
    NeonDotprod,
    /// AArch64 with NEON, its dot products and its products of matrices (Neoverse V1 and N2, Apple M2 and later).
    NeonI8mm,
}

/// Why an instruction set cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IsaError {
    /// The name is not one of [`Isa::ALL`].
    #[error("unknown instruction set \"{0}\" (known: {known})", known = Isa::ALL.map(Isa::name).join(", "))]
    Unknown(String),
    /// The CPU lacks a feature.
    #[error("instruction set {isa} needs the CPU feature \"{feature}\", which this CPU does not have")]
    Missing {
        /// The instruction set asked for.
        isa: Isa,
        /// The first of its features that is missing.
        feature: &'static str,
    },
}

impl Isa {
    /// All instruction sets, worst first.
    pub const ALL: [Isa; 8] = [
        Isa::Portable,
        Isa::Avx2,
        Isa::AvxVnni,
        Isa::Avx512,
        Isa::Avx512Vnni,
        Isa::Neon,
        Isa::NeonDotprod,
        Isa::NeonI8mm,
    ];

    /// The name, as `QGGUF_ISA` and `--isa` take it.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avxvnni",
            Isa::Avx512 => "avx512",
            Isa::Avx512Vnni => "avx512vnni",
            Isa::Neon => "neon",
            Isa::NeonDotprod => "neon-dotprod",
            Isa::NeonI8mm => "neon-i8mm",
        }
    }

    /// The instruction sets that this CPU has, worst first.
    pub fn available() -> impl Iterator<Item = Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.table().is_ok())
    }

    pub(crate) fn table(self) -> Result<&'static Table, IsaError> {
        let found: Found = match self {
            Isa::Portable => Ok((&[], &portable::TABLE)),
            Isa::Avx2 => found_on!("x86_64", avx2::words),
            Isa::AvxVnni => found_on!("x86_64", avx2::vnni),
            Isa::Avx512 => found_on!("x86_64", avx512::words),
            Isa::Avx512Vnni => found_on!("x86_64", avx512::vnni),
            Isa::Neon => found_on!("aarch64", neon::base),
            Isa::NeonDotprod => found_on!("aarch64", neon::dotprod),
            Isa::NeonI8mm => found_on!("aarch64", neon::i8mm),
        };
        let (features, table) = found.map_err(|feature| IsaError::Missing { isa: self, feature })?;
        match features.iter().find(|(_, present)| !present()) {
            Some(&(feature, _)) => Err(IsaError::Missing { isa: self, feature }),
            None => Ok(table),
        }
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Isa {
    type Err = IsaError;

    fn from_str(name: &str) -> Result<Isa, IsaError> {
        Isa::ALL
            .into_iter()
            .find(|isa| isa.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| IsaError::Unknown(name.to_owned()))
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
