//! The parts that layers are made of: their weights, and how they are found in a file.

use super::{LoadError, Loader, Weight};

/// The weights of one attention block.
pub struct Attention {
    /// Query projection, `n_head * head_dim_k` rows.
    pub wq: Weight,
    /// Key projection, `n_head_kv * head_dim_k` rows.
    pub wk: Weight,
    /// Value projection, `n_head_kv * head_dim_v` rows.
    pub wv: Weight,
    /// Output projection, `n_embd` rows.
    pub wo: Weight,
    /// Query bias.
    pub bq: Option<Vec<f32>>,
    /// Key bias.
    pub bk: Option<Vec<f32>>,
    /// Value bias.
    pub bv: Option<Vec<f32>>,
    /// Output bias.
    pub bo: Option<Vec<f32>>,
    /// Query heads.
    pub n_head: usize,
    /// Key/value heads.
    pub n_head_kv: usize,
    /// Width of a query or key head.
    pub head_dim_k: usize,
    /// Width of a value head.
    pub head_dim_v: usize,
}

impl Attention {
    /// `blk.{il}.attn_{q,k,v,output}` or the fused `attn_qkv`, with biases where the file has them.
    pub fn load(l: &mut Loader<'_>, il: usize) -> Result<Attention, LoadError> {
        let hp = l.hparams();
        let (n_embd, n_head, n_head_kv) = (hp.n_embd, hp.n_head[il], hp.n_head_kv[il]);
        let (head_dim_k, head_dim_v) = (hp.head_dim_k, hp.head_dim_v);
        let (n_q, n_k, n_v) = (n_head * head_dim_k, n_head_kv * head_dim_k, n_head_kv * head_dim_v);
        let name = |part: &str, kind: &str| format!("blk.{il}.attn_{part}.{kind}");
        let fused = name("qkv", "weight");
        let (wq, wk, wv, bq, bk, bv) = if l.has(&fused) {
            let all = l.matrix(&fused, n_embd, n_q + n_k + n_v)?;
            let bias = l.vector_opt(&name("qkv", "bias"), n_q + n_k + n_v)?;
            let part = |first: usize, n: usize| bias.as_ref().map(|bias| bias[first..first + n].to_vec());
            let (bq, bk, bv) = (part(0, n_q), part(n_q, n_k), part(n_q + n_k, n_v));
            (all.rows(0, n_q), all.rows(n_q, n_k), all.rows(n_q + n_k, n_v), bq, bk, bv)
        } else {
            (
                l.matrix(&name("q", "weight"), n_embd, n_q)?,
                l.matrix(&name("k", "weight"), n_embd, n_k)?,
                l.matrix(&name("v", "weight"), n_embd, n_v)?,
                l.vector_opt(&name("q", "bias"), n_q)?,
                l.vector_opt(&name("k", "bias"), n_k)?,
                l.vector_opt(&name("v", "bias"), n_v)?,
            )
        };
        let wo = l.matrix(&name("output", "weight"), n_head * head_dim_v, n_embd)?;
        let bo = l.vector_opt(&name("output", "bias"), n_embd)?;
        Ok(Attention { wq, wk, wv, wo, bq, bk, bv, bo, n_head, n_head_kv, head_dim_k, head_dim_v })
    }
}

/// The weights of a gated feed-forward network.
pub struct Ffn {
    /// Gate projection, `n_ff` rows.
    pub gate: Weight,
    /// Up projection, `n_ff` rows.
    pub up: Weight,
    /// Down projection, `n_embd` rows.
    pub down: Weight,
    /// Gate bias.
    pub gate_bias: Option<Vec<f32>>,
    /// Up bias.
    pub up_bias: Option<Vec<f32>>,
    /// Down bias.
    pub down_bias: Option<Vec<f32>>,
}

impl Ffn {
    /// `blk.{il}.ffn_{gate,up,down}`, or `ffn_up` with twice the rows, the gate's first.
    pub fn load(l: &mut Loader<'_>, il: usize) -> Result<Ffn, LoadError> {
        let (n_embd, n_ff) = (l.hparams().n_embd, l.hparams().n_ff[il]);
        if n_ff == 0 {
            return Err(LoadError::value(&l.hparams().key("feed_forward_length"), n_ff, "at least 1"));
        }
        let name = |part: &str, kind: &str| format!("blk.{il}.ffn_{part}.{kind}");
        let (gate, up) = if l.has(&name("gate", "weight")) {
            (l.matrix(&name("gate", "weight"), n_embd, n_ff)?, l.matrix(&name("up", "weight"), n_embd, n_ff)?)
        } else {
            let both = l.matrix(&name("up", "weight"), n_embd, 2 * n_ff)?;
            (both.rows(0, n_ff), both.rows(n_ff, n_ff))
        };
        Ok(Ffn {
            gate,
            up,
            down: l.matrix(&name("down", "weight"), n_ff, n_embd)?,
            gate_bias: l.vector_opt(&name("gate", "bias"), n_ff)?,
            up_bias: l.vector_opt(&name("up", "bias"), n_ff)?,
            down_bias: l.vector_opt(&name("down", "bias"), n_embd)?,
        })
    }
}

/// The weights of a mixture of gated feed-forward networks.
pub struct Moe {
    /// One row per expert.
    pub router: Weight,
    /// Gate projection of each expert.
    pub gate: Vec<Weight>,
    /// Up projection of each expert.
    pub up: Vec<Weight>,
    /// Down projection of each expert.
    pub down: Vec<Weight>,
    /// Experts used per token.
    pub n_used: usize,
}

impl Moe {
    /// `blk.{il}.ffn_gate_inp` and `ffn_{gate,up,down}_exps`, `n_ff` wide each.
    pub fn load(l: &mut Loader<'_>, il: usize, n_ff: usize) -> Result<Moe, LoadError> {
        let (n_embd, n_expert, n_used) =
            (l.hparams().n_embd, l.hparams().n_expert, l.hparams().n_expert_used);
        if n_expert == 0 {
            return Err(LoadError::MissingKey { key: l.hparams().key("expert_count") });
        }
        let name = |part: &str| format!("blk.{il}.ffn_{part}.weight");
        Ok(Moe {
            router: l.matrix(&name("gate_inp"), n_embd, n_expert)?,
            gate: l.experts(&name("gate_exps"), n_embd, n_ff, n_expert)?,
            up: l.experts(&name("up_exps"), n_embd, n_ff, n_expert)?,
            down: l.experts(&name("down_exps"), n_ff, n_embd, n_expert)?,
            n_used,
        })
    }
}

/// The feed-forward part of a layer.
pub enum Mlp {
    /// One network.
    Dense(Box<Ffn>),
    /// A few of many.
    Experts(Box<Moe>),
}

/// What stands around the layers: embeddings before, norm and projection after.
pub struct Head {
    /// One row per token of the vocabulary.
    pub embeddings: Weight,
    /// Weight of the last norm.
    pub norm: Vec<f32>,
    /// The output projection: `output.weight`, or the embeddings again.
    pub output: Weight,
    /// `output.bias`.
    pub bias: Option<Vec<f32>>,
    /// Factor on the logits.
    pub logit_scale: f32,
    /// Logits become `cap * tanh(logit / cap)`.
    pub softcap: Option<f32>,
}

impl Head {
    /// `token_embd`, `output_norm` and `output` (tied to the embeddings when absent).
    pub fn load(l: &mut Loader<'_>) -> Result<Head, LoadError> {
        let (n_embd, n_vocab) = (l.hparams().n_embd, l.hparams().n_vocab);
        let embeddings = l.matrix("token_embd.weight", n_embd, n_vocab)?;
        let output = l.matrix_opt("output.weight", n_embd, n_vocab)?.unwrap_or_else(|| embeddings.clone());
        Ok(Head {
            norm: l.vector("output_norm.weight", n_embd)?,
            bias: l.vector_opt("output.bias", n_vocab)?,
            embeddings,
            output,
            logit_scale: 1.0,
            softcap: None,
        })
    }
}

/// `blk.{il}.{name}.weight`, a norm over the residual stream.
pub fn norm(l: &mut Loader<'_>, il: usize, name: &str) -> Result<Vec<f32>, LoadError> {
    let n_embd = l.hparams().n_embd;
    l.vector(&format!("blk.{il}.{name}.weight"), n_embd)
}

/// Loads every layer with `load(loader, il)`.
pub fn layers<T>(
    l: &mut Loader<'_>,
    mut load: impl FnMut(&mut Loader<'_>, usize) -> Result<T, LoadError>,
) -> Result<Vec<T>, LoadError> {
    (0..l.hparams().n_layer).map(|il| load(l, il)).collect()
}

/// The sliding window of every layer, `None` where a layer sees everything.
///
/// `attention.sliding_window` is the width (absent: `default`; 0: no windows). Of every `period` layers the last sees
/// everything; `attention.sliding_window_pattern` may give another period, or a flag per layer.
pub fn windows(l: &Loader<'_>, default: u32, period: usize) -> Result<Vec<Option<usize>>, LoadError> {
    let (hp, metadata) = (l.hparams(), l.metadata());
    let width = metadata.u32(&hp.key("attention.sliding_window"))?.unwrap_or(default);
    let window = Some(width as usize).filter(|&n| n > 0);
    let key = hp.key("attention.sliding_window_pattern");
    let windowed: Vec<bool> = match metadata.get(&key) {
        Some(value) if value.is_array() => {
            metadata.bool_per_layer(&key, hp.n_layer)?.unwrap_or_else(|| vec![false; hp.n_layer])
        }
        _ => {
            let period = metadata.u32(&key)?.map_or(period, |n| n as usize);
            (0..hp.n_layer).map(|il| period == 0 || il % period < period - 1).collect()
        }
    };
    Ok(windowed.into_iter().map(|windowed| window.filter(|_| windowed)).collect())
}
