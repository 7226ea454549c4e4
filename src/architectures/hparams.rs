//! The hyper-parameters that all families share, read from `<architecture>.*` and checked.

use qgguf_gguf::Metadata;
use qgguf_kernels::{KvShape, KvType, RopeParams};

use super::LoadError;

/// Shapes and constants of a model, as every family has them.
#[derive(Clone, Debug)]
pub struct Hparams {
    /// `general.architecture`, the prefix of the keys.
    pub arch: String,
    /// Context length of the training (`context_length`).
    pub n_ctx_train: usize,
    /// Width of the residual stream (`embedding_length`).
    pub n_embd: usize,
    /// Number of layers (`block_count`).
    pub n_layer: usize,
    /// Width of the feed-forward network, per layer (`feed_forward_length`).
    pub n_ff: Vec<usize>,
    /// Query heads, per layer (`attention.head_count`).
    pub n_head: Vec<usize>,
    /// Key/value heads, per layer (`attention.head_count_kv`).
    pub n_head_kv: Vec<usize>,
    /// Width of a query or key head (`attention.key_length`).
    pub head_dim_k: usize,
    /// Width of a value head (`attention.value_length`).
    pub head_dim_v: usize,
    /// `attention.layer_norm_rms_epsilon`.
    pub rms_eps: f32,
    /// Experts per layer, 0 for a dense model (`expert_count`).
    pub n_expert: usize,
    /// Experts used per token (`expert_used_count`).
    pub n_expert_used: usize,
    /// Entries of the vocabulary (rows of `token_embd.weight`).
    pub n_vocab: usize,
}

/// Memory for keys and values when the user states no context size: 2 GiB.
pub const DEFAULT_KV_BUDGET: usize = 2 << 30;
/// More layers than any model has; llama.cpp has the same limit.
const MAX_LAYERS: u32 = 512;
/// Heads wider than this are not attention heads but a broken file.
const MAX_HEAD_DIM: usize = 4096;

impl Hparams {
    /// Reads and checks the shared keys. `n_vocab` is the number of token embeddings.
    pub fn from_metadata(metadata: &Metadata, arch: &str, n_vocab: usize) -> Result<Hparams, LoadError> {
        let key = |name: &str| format!("{arch}.{name}");
        let n_layer = metadata.require_u32(&key("block_count"))?;
        if !(1..=MAX_LAYERS).contains(&n_layer) {
            return Err(LoadError::value(&key("block_count"), n_layer, format!("1 to {MAX_LAYERS}")));
        }
        let n_layer = n_layer as usize;
        let per_layer = |name: &str| -> Result<Option<Vec<usize>>, LoadError> {
            let values = metadata.u32_per_layer(&key(name), n_layer)?;
            Ok(values.map(|values| values.into_iter().map(|v| v as usize).collect()))
        };
        let require =
            |name: &str| -> Result<usize, LoadError> { Ok(metadata.require_u32(&key(name))? as usize) };
        let optional = |name: &str, default: usize| -> Result<usize, LoadError> {
            Ok(metadata.u32(&key(name))?.map_or(default, |v| v as usize))
        };

        let n_embd = require("embedding_length")?;
        let n_head = per_layer("attention.head_count")?
            .ok_or_else(|| LoadError::MissingKey { key: key("attention.head_count") })?;
        let n_head_kv = per_layer("attention.head_count_kv")?.unwrap_or_else(|| n_head.clone());
        for (il, (&n_head, &n_head_kv)) in n_head.iter().zip(&n_head_kv).enumerate() {
            for (name, n) in [("attention.head_count", n_head), ("attention.head_count_kv", n_head_kv)] {
                if n == 0 {
                    return Err(LoadError::value(&key(name), format!("0 in layer {il}"), "at least 1"));
                }
            }
            if n_head % n_head_kv != 0 {
                return Err(LoadError::value(
                    &key("attention.head_count"),
                    format!("{n_head} query and {n_head_kv} key/value heads in layer {il}"),
                    "query heads a multiple of key/value heads",
                ));
            }
        }
        let head_dim_k = optional("attention.key_length", n_embd / n_head[0])?;
        let head_dim_v = optional("attention.value_length", n_embd / n_head[0])?;
        for (name, dim) in [("attention.key_length", head_dim_k), ("attention.value_length", head_dim_v)] {
            if !(1..=MAX_HEAD_DIM).contains(&dim) {
                return Err(LoadError::value(&key(name), dim, format!("1 to {MAX_HEAD_DIM}")));
            }
        }
        let n_expert = optional("expert_count", 0)?;
        let n_expert_used = optional("expert_used_count", 0)?;
        if n_expert_used > n_expert || (n_expert > 0) != (n_expert_used > 0) {
            return Err(LoadError::value(
                &key("expert_used_count"),
                n_expert_used,
                format!("1 to expert_count ({n_expert}), or both 0"),
            ));
        }
        let rms_key = key("attention.layer_norm_rms_epsilon");
        let rms_eps = metadata.require_f32(&rms_key)?;
        if !(rms_eps.is_finite() && rms_eps >= 0.0) {
            return Err(LoadError::value(&rms_key, rms_eps, "a number not below 0"));
        }
        let n_ctx_train = require("context_length")?;
        if n_ctx_train == 0 {
            return Err(LoadError::value(&key("context_length"), 0, "at least 1"));
        }
        Ok(Hparams {
            arch: arch.to_owned(),
            n_ctx_train,
            n_embd,
            n_layer,
            n_ff: per_layer("feed_forward_length")?.unwrap_or_else(|| vec![0; n_layer]),
            n_head,
            n_head_kv,
            head_dim_k,
            head_dim_v,
            rms_eps,
            n_expert,
            n_expert_used,
            n_vocab,
        })
    }

    /// The keys and values of every layer, for families without layers of another kind.
    pub fn kv_shapes(&self) -> Vec<KvShape> {
        let (head_dim_k, head_dim_v) = (self.head_dim_k, self.head_dim_v);
        self.n_head_kv.iter().map(|&n_head| KvShape { n_head, head_dim_k, head_dim_v }).collect()
    }

    /// The context size when none is asked for: what the model was trained with, if its keys and values in
    /// f16 fit [`DEFAULT_KV_BUDGET`]; else as many positions as fit, in steps of 256. The budget is a
    /// constant, so that one file behaves alike on every machine.
    pub fn default_n_ctx(&self) -> usize {
        let bytes = self.kv_shapes().into_iter().map(|shape| shape.position_bytes(KvType::F16, KvType::F16));
        let fits = DEFAULT_KV_BUDGET / bytes.fold(0, usize::saturating_add).max(1);
        self.n_ctx_train.min((fits / 256 * 256).max(256))
    }

    /// A key of this model: `key("rope.freq_base")` is `"llama.rope.freq_base"`.
    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    /// `1 / sqrt(head width)`, the usual scale of attention scores.
    pub fn default_attention_scale(&self) -> f32 {
        1.0 / (self.head_dim_k as f32).sqrt()
    }

    /// The rotary embedding that the `rope.*` keys describe, as llama.cpp reads them for most architectures: of YaRN's
    /// keys the factor and the original context count, and `rope.scaling.attn_factor`; it bends between wave lengths that
    /// fit 32 times and once into that context, and its magnitude is `1 + 0.1 ln(factor)`. What a file says beyond that
    /// (`yarn_attn_factor`, `yarn_beta_fast`, …) is not looked at.
    pub fn rope(&self, metadata: &Metadata) -> Result<RopeParams, LoadError> {
        self.rope_with(metadata, &Yarn::default())
    }

    /// [`Hparams::rope`] for the architectures of which llama.cpp also reads `yarn_beta_fast`, `yarn_beta_slow` and
    /// `yarn_log_multiplier`.
    pub fn rope_with_yarn_keys(&self, metadata: &Metadata) -> Result<RopeParams, LoadError> {
        let default = Yarn::default();
        let yarn = Yarn {
            beta_fast: self.finite(metadata, "rope.scaling.yarn_beta_fast", default.beta_fast)?,
            beta_slow: self.finite(metadata, "rope.scaling.yarn_beta_slow", default.beta_slow)?,
            log_multiplier: self.finite(metadata, "rope.scaling.yarn_log_multiplier", 0.0)?,
        };
        self.rope_with(metadata, &yarn)
    }

    /// A key that holds a finite number.
    fn finite(&self, metadata: &Metadata, name: &str, default: f32) -> Result<f32, LoadError> {
        let key = self.key(name);
        match metadata.f32(&key)?.unwrap_or(default) {
            value if value.is_finite() => Ok(value),
            value => Err(LoadError::value(&key, value, "a finite number")),
        }
    }

    fn rope_with(&self, metadata: &Metadata, yarn: &Yarn) -> Result<RopeParams, LoadError> {
        let f32_or = |name: &str, default: f32| self.finite(metadata, name, default);
        let n_dims_key = self.key("rope.dimension_count");
        let n_dims = metadata.u32(&n_dims_key)?.map_or(self.head_dim_k, |v| v as usize);
        if n_dims == 0 || n_dims % 2 != 0 || n_dims > self.head_dim_k {
            let limit = format!("an even number, at most the head width {}", self.head_dim_k);
            return Err(LoadError::value(&n_dims_key, n_dims, limit));
        }
        let freq_base = f32_or("rope.freq_base", 10_000.0)?;
        if freq_base <= 0.0 {
            return Err(LoadError::value(&self.key("rope.freq_base"), freq_base, "above 0"));
        }
        let scaling_key = self.key("rope.scaling.type");
        let scaling = metadata.str(&scaling_key)?.unwrap_or("linear");
        if !["none", "linear", "yarn", "longrope"].contains(&scaling) {
            return Err(LoadError::value(&scaling_key, scaling, "none, linear, yarn or longrope"));
        }
        let mut factor = f32_or("rope.scaling.factor", f32_or("rope.scale_linear", 0.0)?)?;
        if factor <= 0.0 || scaling == "none" {
            factor = 1.0;
        }
        let n_ctx_orig = metadata
            .u32(&self.key("rope.scaling.original_context_length"))?
            .map_or(self.n_ctx_train, |v| v as usize);
        let ext_factor = if scaling == "yarn" { 1.0 } else { 0.0 };
        let mut attn_factor = 1.0;
        if scaling == "yarn" {
            let magnitude = |k: f32| if factor <= 1.0 { 1.0 } else { 0.1 * k * ln(factor) + 1.0 };
            attn_factor = magnitude(1.0);
            if yarn.log_multiplier != 0.0 {
                attn_factor /= magnitude(yarn.log_multiplier);
            }
            // The rotation itself applies this.
            attn_factor /= 1.0 + 0.1 * ln(factor);
        }
        Ok(RopeParams {
            n_dims,
            freq_base,
            freq_scale: 1.0 / factor,
            ext_factor,
            attn_factor: attn_factor * f32_or("rope.scaling.attn_factor", 1.0)?,
            beta_fast: yarn.beta_fast,
            beta_slow: yarn.beta_slow,
            n_ctx_orig,
            factors: None,
            long_factors: None,
        })
    }
}

/// How YaRN is tuned beyond its factor.
struct Yarn {
    /// Waves that fit so often into the original context are left as they are, …
    beta_fast: f32,
    /// … and those that fit so seldom are stretched.
    beta_slow: f32,
    /// Weakens the magnitude, unless it is 0.
    log_multiplier: f32,
}

impl Default for Yarn {
    fn default() -> Yarn {
        Yarn { beta_fast: 32.0, beta_slow: 1.0, log_multiplier: 0.0 }
    }
}

/// Natural logarithm rounded from f64, so that it does not depend on the platform's `logf`.
fn ln(x: f32) -> f32 {
    f64::from(x).ln() as f32
}
