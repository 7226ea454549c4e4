//! From Hugging Face checkpoints to GGUF, and from one quantization to another.
//!
//! [`pipeline`] streams tensors from any [`pipeline::RowSource`] into GGUF files; [`recipe`] says which tensor gets which
//! type; [`imatrix`] has the importance of columns.

pub mod deviation;
pub mod file_type;
pub mod gguf_rows;
pub mod hf;
pub mod imatrix;
pub mod model_shape;
pub mod pipeline;
mod positional;
pub mod quantize;
pub mod recipe;
pub mod split;
