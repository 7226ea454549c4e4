//! The GGUF container: what is in a model file, without touching the weights.
//!
//! [`GgufFile`] maps a file (or all its shards), checks every header field and gives typed metadata and
//! borrowed tensor views; [`GgufWriter`] writes one. [`blocks`] has the layouts, [`dequantize`] their meaning.
//! No SIMD, no threads, no knowledge of models.

pub mod blocks;
pub mod dequantize;
mod error;
mod file;
mod metadata;
mod reader;
mod split;
mod temporary;
mod types;
mod writer;

pub use error::{Error, Fault};
pub use file::{GgufFile, TensorInfo, TensorView};
pub use metadata::{Metadata, MetadataArray, MetadataValue, StringArray};
pub use split::shard_path;
pub use temporary::{Temporary, TemporaryFolder, remove_temporaries};
pub use types::{GgmlType, file_type_name};
pub use writer::{CompleteFile, GgufWriter, TensorSpec, WriteError, follow_links, in_memory, planned};
