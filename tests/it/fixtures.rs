//! The big sets of reference data, which are not in the repository.

pub use qgguf_testing::fixtures;
