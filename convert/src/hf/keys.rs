//! The `<architecture>.*` keys of a GGUF and the names that configurations have for them: one list for both directions.

use qgguf_gguf::{GgmlType, GgufFile, Metadata, MetadataValue};

use super::error::ExportError;
use super::{Config, HfError};

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A u32.
    Integer,
    /// A u32 above 0, which every model has.
    Required,
    /// An f32.
    Float,
}

/// A key and its names in `config.json`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Without the architecture in front.
    pub gguf: &'static str,
    pub kind: Kind,
    /// Names in the configuration, in the order in which they are looked for.
    pub names: &'static [&'static str],
    /// The name in an exported configuration.
    pub exported: &'static str,
}

const fn key(kind: Kind, gguf: &'static str, names: &'static [&'static str]) -> Key {
    Key { gguf, kind, names, exported: names[0] }
}

impl Key {
    const fn exported_as(self, exported: &'static str) -> Key {
        Key { exported, ..self }
    }
}

pub(crate) const CONTEXT_LENGTH: Key = key(
    Kind::Required,
    "context_length",
    &[
        "max_position_embeddings",
        "n_ctx",
        "n_positions",
        "max_length",
        "max_sequence_length",
        "model_max_length",
    ],
);
pub(crate) const BLOCK_COUNT: Key =
    key(Kind::Integer, "block_count", &["n_layers", "num_hidden_layers", "n_layer", "num_layers"])
        .exported_as("num_hidden_layers");
pub(crate) const EMBEDDING_LENGTH: Key =
    key(Kind::Integer, "embedding_length", &["hidden_size", "n_embd", "dim"]);
pub(crate) const FEED_FORWARD_LENGTH: Key = key(
    Kind::Integer,
    "feed_forward_length",
    &[
        "prefix_dense_intermediate_size",
        "dense_intermediate_size",
        "intermediate_size",
        "n_inner",
        "hidden_dim",
    ],
)
.exported_as("intermediate_size");
pub(crate) const HEAD_COUNT: Key =
    key(Kind::Integer, "attention.head_count", &["num_attention_heads", "n_head", "n_heads"]);
pub(crate) const HEAD_COUNT_KV: Key =
    key(Kind::Integer, "attention.head_count_kv", &["num_key_value_heads", "n_kv_heads"]);
pub(crate) const RMS_EPSILON: Key =
    key(Kind::Float, "attention.layer_norm_rms_epsilon", &["rms_norm_eps", "norm_eps"]);
pub(crate) const KEY_LENGTH: Key = key(Kind::Integer, "attention.key_length", &["head_dim"]);
pub(crate) const VALUE_LENGTH: Key = key(Kind::Integer, "attention.value_length", &["head_dim"]);
pub(crate) const EXPERT_COUNT: Key =
    key(Kind::Integer, "expert_count", &["num_local_experts", "num_experts", "n_routed_experts"]);
pub(crate) const EXPERT_USED_COUNT: Key = key(
    Kind::Integer,
    "expert_used_count",
    &["num_experts_per_tok", "num_experts_per_token", "top_k_experts"],
);
pub(crate) const EXPERT_FF_LENGTH: Key =
    key(Kind::Integer, "expert_feed_forward_length", &["moe_intermediate_size"]);
pub(crate) const SHARED_FF_LENGTH: Key =
    key(Kind::Integer, "expert_shared_feed_forward_length", &["shared_expert_intermediate_size"]);
pub(crate) const SLIDING_WINDOW: Key = key(Kind::Integer, "attention.sliding_window", &["sliding_window"]);
pub(crate) const VOCAB_SIZE: Key = key(Kind::Integer, "vocab_size", &["vocab_size"]);
pub(crate) const ATTENTION_SOFTCAP: Key =
    key(Kind::Float, "attn_logit_softcapping", &["attn_logit_softcapping"]);
pub(crate) const FINAL_SOFTCAP: Key =
    key(Kind::Float, "final_logit_softcapping", &["final_logit_softcapping"]);

/// What is exported under its name wherever a file has it.
pub(crate) const EXPORTED: [Key; 13] = [
    EMBEDDING_LENGTH,
    FEED_FORWARD_LENGTH,
    BLOCK_COUNT,
    HEAD_COUNT,
    HEAD_COUNT_KV,
    CONTEXT_LENGTH,
    EXPERT_USED_COUNT,
    EXPERT_FF_LENGTH,
    SHARED_FF_LENGTH,
    SLIDING_WINDOW,
    RMS_EPSILON,
    ATTENTION_SOFTCAP,
    FINAL_SOFTCAP,
];

/// Writes the keys of one architecture.
pub(crate) struct KeyWriter<'a> {
    pub architecture: &'static str,
    pub config: &'a Config,
    pub file_type: u32,
    pub metadata: &'a mut Metadata,
}

impl KeyWriter<'_> {
    /// One key, whatever the configuration says.
    pub fn set(&mut self, key: &str, value: MetadataValue) {
        self.metadata.set(&format!("{}.{key}", self.architecture), value);
    }

    /// One number, if there is one.
    pub fn set_f32(&mut self, key: &str, value: Option<f32>) {
        if let Some(x) = value {
            self.set(key, MetadataValue::F32(x));
        }
    }

    /// Those of some keys that the configuration has, in this order.
    pub fn write(&mut self, keys: &[Key]) -> Result<(), HfError> {
        for key in keys {
            let value = match key.kind {
                Kind::Integer => self.config.u32(key.names)?.map(MetadataValue::U32),
                Kind::Required => Some(MetadataValue::U32(self.config.require(key.names)?)),
                Kind::Float => self.config.f32(key.names)?.map(MetadataValue::F32),
            };
            if let Some(value) = value {
                self.set(key.gguf, value);
            }
        }
        Ok(())
    }

    /// `general.file_type`, which stands among the keys of the architecture.
    pub fn file_type(&mut self) {
        self.metadata.set("general.file_type", MetadataValue::U32(self.file_type));
    }
}

/// Reads the keys of one architecture, and the vectors that stand for some.
#[derive(Clone, Copy)]
pub(crate) struct KeyReader<'a> {
    pub architecture: &'a str,
    pub file: &'a GgufFile,
}

impl<'a> KeyReader<'a> {
    /// The whole key.
    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub fn u64(&self, key: &str) -> Result<Option<u64>, ExportError> {
        Ok(self.file.metadata().u64(&self.name(key))?)
    }

    pub fn f32(&self, key: &str) -> Result<Option<f32>, ExportError> {
        Ok(self.file.metadata().f32(&self.name(key))?)
    }

    pub fn str(&self, key: &str) -> Result<Option<&'a str>, ExportError> {
        Ok(self.file.metadata().str(&self.name(key))?)
    }

    /// Whether the file has a key, of whatever type.
    pub fn has(&self, key: &str) -> bool {
        self.file.metadata().get(&self.name(key)).is_some()
    }

    /// The number of layers, in bounds that no model leaves.
    pub fn n_layer(&self) -> Result<u64, ExportError> {
        Ok(self.u64(BLOCK_COUNT.gguf)?.unwrap_or(0).min(u64::from(u16::MAX)))
    }

    /// The numbers of a tensor that follows from the configuration, if it is there.
    pub fn factors(&self, name: &str) -> Result<Option<Vec<f32>>, ExportError> {
        let Some(tensor) = self.file.tensor(name) else { return Ok(None) };
        if tensor.ty() != GgmlType::F32 || tensor.shape().len() != 1 {
            return Err(ExportError::Model(format!(
                "tensor \"{name}\": expected a vector of F32, found {} {:?}",
                tensor.ty(),
                tensor.shape()
            )));
        }
        let (numbers, _) = tensor.bytes().as_chunks::<4>();
        Ok(Some(numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()))
    }
}
