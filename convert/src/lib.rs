//! From Hugging Face checkpoints to GGUF, and from one quantization to another.
//!
//! The room is reserved; nothing lives here yet.
