//! Checkpoints of Hugging Face: read, checked, and turned into GGUF, and back.
//!
//! [`checkpoint`] finds and opens the files ([`safetensors`]), [`families`] knows the model classes as data,
//! [`convert`] puts metadata and tensors together and hands them to the pipeline; [`export`] is the way back.

pub mod checkpoint;
mod config;
pub mod convert;
mod error;
pub mod export;
pub mod families;
mod general;
mod json;
mod keys;
mod losses;
pub mod naming;
pub mod overrides;
mod quantization;
mod rope;
mod rows;
pub mod safetensors;
mod sampling;
mod tensors;
mod tokenizer;
pub mod verify;

pub use config::Config;
pub use error::HfError;
pub use general::General;
pub use tokenizer::{END_TEXTS, pre_tokenizers};
