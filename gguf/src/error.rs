//! What can be wrong with a GGUF file; every text names the place, what was expected and what was found.

use std::path::PathBuf;

/// Why a file cannot be read or a value cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system says no.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// Something in the file is wrong.
    #[error("{path}: {fault}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A shard of a split model is missing, extra or foreign.
    #[error("{path}: {reason}", path = path.display())]
    Split {
        /// The shard.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A required metadata key is absent.
    #[error("metadata key \"{key}\" is missing (expected {expected})")]
    MissingKey {
        /// The key.
        key: String,
        /// The type wanted.
        expected: &'static str,
    },
    /// A metadata value of another type than wanted.
    #[error("metadata key \"{key}\": expected {expected}, found {found}")]
    WrongType {
        /// The key.
        key: String,
        /// The type wanted.
        expected: String,
        /// The type or value in the file.
        found: String,
    },
    /// Tensor data in the other byte order.
    #[error("tensor \"{name}\" is stored big-endian, which can be inspected but not used")]
    BigEndian {
        /// Its name.
        name: String,
    },
    /// A tensor is not in the file.
    #[error("tensor \"{name}\" is missing")]
    MissingTensor {
        /// Its name.
        name: String,
    },
}

/// One fault of the bytes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Not a GGUF.
    #[error("not a GGUF file: expected the magic \"GGUF\", found {0:02x?}")]
    Magic([u8; 4]),
    /// Version 0, 1 or beyond 3.
    #[error("GGUF version {0} is not supported (supported: 2 and 3){hint}", hint = if *.0 == 1 { "; version 1 has 32-bit counts and no current tool reads it" } else { "" })]
    Version(u32),
    /// The file ends too early.
    #[error("truncated at byte {at}: {what} needs {needed} bytes, {left} are left")]
    Truncated {
        /// Where.
        at: u64,
        /// What was being read.
        what: String,
        /// Bytes it takes.
        needed: u64,
        /// Bytes there are.
        left: u64,
    },
    /// A number that no file may have.
    #[error("{what}: expected {expected}, found {found}")]
    Value {
        /// The field.
        what: String,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A key or tensor name twice.
    #[error("{what} \"{name}\" appears twice")]
    Duplicate {
        /// Key or tensor.
        what: &'static str,
        /// Its name.
        name: String,
    },
}

impl Fault {
    pub(crate) fn value(what: impl Into<String>, expected: impl ToString, found: impl ToString) -> Fault {
        Fault::Value { what: what.into(), expected: expected.to_string(), found: found.to_string() }
    }
}
