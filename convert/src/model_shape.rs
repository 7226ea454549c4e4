//! The few figures of a model that recipes depend on.

use qgguf_gguf::{Error, Metadata};

/// What recipes need to know of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// `general.architecture`.
    pub architecture: String,
    /// Layers, those for predicting further tokens included.
    pub n_layer: usize,
    /// Attention heads of the first layer, 0 if there are none.
    pub n_head: u32,
    /// Key-value heads of the first layer.
    pub n_head_kv: u32,
    /// Experts, 0 if there are none.
    pub n_expert: u32,
}

impl ModelShape {
    /// Reads it from the metadata of a model.
    pub fn from_metadata(metadata: &Metadata) -> Result<ModelShape, Error> {
        let architecture = metadata.require_str("general.architecture")?.to_owned();
        let key = |name: &str| format!("{architecture}.{name}");
        let n_layer = metadata.require_u32(&key("block_count"))? as usize;
        let first = |name: &str| -> Result<Option<u32>, Error> {
            let key = key(name);
            // Only the first layer counts, so the length of an array is nobody's business here.
            let n = match metadata.get(&key) {
                Some(qgguf_gguf::MetadataValue::Array(array)) => array.len(),
                _ => 1,
            };
            Ok(metadata.u32_per_layer(&key, n)?.and_then(|heads| heads.first().copied()))
        };
        let n_head = first("attention.head_count")?.unwrap_or(0);
        Ok(ModelShape {
            n_head_kv: first("attention.head_count_kv")?.unwrap_or(n_head),
            n_expert: metadata.u32(&key("expert_count"))?.unwrap_or(0),
            n_layer,
            n_head,
            architecture,
        })
    }

    pub(crate) fn is(&self, architecture: &str) -> bool {
        self.architecture == architecture
    }

    /// Attention heads that share a key-value head.
    pub(crate) fn gqa(&self) -> u32 {
        self.n_head.checked_div(self.n_head_kv).unwrap_or(0)
    }

    pub(crate) fn has_8_experts(&self) -> bool {
        self.n_expert == 8
    }

    /// Models of about 70 B parameters, whose `attn_v` is small beside everything else.
    pub(crate) fn is_70b(&self) -> bool {
        match self.architecture.as_str() {
            "llama" => self.n_layer == 80 && self.n_head != self.n_head_kv,
            "qwen2" | "deci" | "olmo" => self.n_layer == 80,
            "jais2" => self.n_layer == 68,
            _ => false,
        }
    }
}
