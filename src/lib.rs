//! qgguf: a GGUF-native runtime for CPUs, as a library.

pub mod architectures;
pub mod threads;
