//! The sizes of a model, by which the shapes of its tensors are checked.

use super::super::keys::{
    BLOCK_COUNT, EMBEDDING_LENGTH, EXPERT_COUNT, EXPERT_FF_LENGTH, FEED_FORWARD_LENGTH, HEAD_COUNT,
    HEAD_COUNT_KV, VOCAB_SIZE,
};
use super::super::{Config, HfError};
use super::rules::{Dim, TensorRule};

/// The sizes behind [`Dim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Dims {
    pub n_layer: u64,
    pub n_vocab: u64,
    pub n_embd: u64,
    pub n_ff: u64,
    pub n_head: u64,
    pub n_head_kv: u64,
    pub head_dim: u64,
    pub n_expert: u64,
    pub n_expert_ff: u64,
}

impl Dims {
    /// The size of a dimension.
    pub fn size(&self, dim: Dim) -> u64 {
        match dim {
            Dim::Vocab => self.n_vocab,
            Dim::Embd => self.n_embd,
            Dim::Ff => self.n_ff,
            Dim::TwoFf => 2 * self.n_ff,
            Dim::Q => self.n_head * self.head_dim,
            Dim::Kv => self.n_head_kv * self.head_dim,
            Dim::Qkv => (self.n_head + 2 * self.n_head_kv) * self.head_dim,
            Dim::Head => self.head_dim,
            Dim::Expert => self.n_expert,
            Dim::ExpertFf => self.n_expert_ff,
            Dim::TwoExpertFf => 2 * self.n_expert_ff,
        }
    }

    /// The shape of a tensor, row length last.
    pub fn shape(&self, rule: &TensorRule) -> Vec<u64> {
        rule.shape.iter().map(|&dim| self.size(dim)).collect()
    }

    /// Reads them from a configuration.
    pub fn of(config: &Config) -> Result<Dims, HfError> {
        let n_embd = config.require(EMBEDDING_LENGTH.names)?;
        let n_head = config.require(HEAD_COUNT.names)?;
        let n_head_kv = config.u32(HEAD_COUNT_KV.names)?.unwrap_or(n_head);
        if n_head_kv == 0 || n_head % n_head_kv != 0 {
            return Err(config.wrong("num_key_value_heads", &format!("a divisor of the {n_head} heads")));
        }
        let head_dim = match config.u32(&["head_dim"])? {
            Some(0) => return Err(config.wrong("head_dim", "an integer above 0")),
            Some(head_dim) => head_dim,
            None => n_embd / n_head,
        };
        let n_expert = config.u32(EXPERT_COUNT.names)?.unwrap_or(0);
        let n_expert_ff = config.u32(EXPERT_FF_LENGTH.names)?.unwrap_or(0);
        Ok(Dims {
            n_layer: config.require(BLOCK_COUNT.names)?.into(),
            n_vocab: config.require(VOCAB_SIZE.names)?.into(),
            n_embd: n_embd.into(),
            n_ff: config.require(FEED_FORWARD_LENGTH.names)?.into(),
            n_head: n_head.into(),
            n_head_kv: n_head_kv.into(),
            head_dim: head_dim.into(),
            n_expert: n_expert.into(),
            n_expert_ff: n_expert_ff.into(),
        })
    }
}
