//! qgguf: a GGUF-native runtime for CPUs, as a library.

pub mod architectures;
pub mod chat_template;
pub mod threads;
pub mod tokenizer;
