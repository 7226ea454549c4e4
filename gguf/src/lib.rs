//! The GGUF container: what is in a model file, without touching the weights.
//!
//! [`GgufFile`] maps a file (or all its shards), checks every header field and gives typed metadata and
//! borrowed tensor views; [`GgufWriter`] writes one. [`blocks`] has the layout and the meaning of every block type.
//! No SIMD, no threads, no knowledge of models.

pub mod blocks;
pub mod dequantize;
mod error;
mod file;
mod metadata;
mod reader;
mod shard;
mod split;
mod temporary;
mod tensor;
mod types;
mod writer;

pub use error::{Error, Fault};
pub use file::GgufFile;
pub use metadata::{Metadata, MetadataArray, MetadataValue, StringArray};
pub use split::shard_path;
pub use temporary::{Temporary, TemporaryFolder, remove_temporaries};
pub use tensor::{TensorInfo, TensorView};
pub use types::{GgmlType, file_type_name};
pub use writer::{CompleteFile, GgufWriter, TensorSpec, WriteError, follow_links, in_memory, planned};
