//! Phi 3 and 4: projections are fused, and rotary embeddings have a factor per pair of dimensions, one set for long
//! contexts and one for short ones.

use qgguf_gguf::{Metadata, MetadataValue};
use serde_json::{Map, Value};

use super::super::error::ExportError;
use super::super::json::number;
use super::super::keys::{
    BLOCK_COUNT, CONTEXT_LENGTH, EMBEDDING_LENGTH, FEED_FORWARD_LENGTH, HEAD_COUNT, HEAD_COUNT_KV, Key,
    KeyReader, KeyWriter, Kind, RMS_EPSILON, SLIDING_WINDOW,
};
use super::super::{Config, HfError};
use super::dims::Dims;
use super::family::Fallback::Number;
use super::family::{ALL_HEADS, COMMON, Derived, EPS_5, Family, ROPE_10K, Vocabulary};
use super::rules::Dim::{Embd, Ff, Q, Qkv, TwoFf};
use super::rules::{ENDS, PRE_NORMS, TensorRule, rule};

pub(super) const PHI3: Family = Family {
    class: "Phi3ForCausalLM",
    model_type: "phi3",
    architecture: "phi3",
    vocabulary: Vocabulary::Phi3,
    tensors: &[ENDS, PRE_NORMS, FUSED_ATTENTION, FUSED_MLP],
    defaults: &[
        ("max_position_embeddings", Number(4096.0)),
        ROPE_10K,
        ALL_HEADS,
        EPS_5,
        (ORIGINAL_CONTEXT.exported, Number(4096.0)),
        ("partial_rotary_factor", Number(1.0)),
    ],
    scalings: &["yarn", "su", "longrope"],
    derived: &[LONG, SHORT],
    derive,
    write_keys,
    export,
    ..COMMON
};

const LONG: &str = "rope_factors_long.weight";
const SHORT: &str = "rope_factors_short.weight";
const ORIGINAL_CONTEXT: Key = Key {
    gguf: "rope.scaling.original_context_length",
    kind: Kind::Integer,
    names: &["original_max_position_embeddings"],
    exported: "original_max_position_embeddings",
};

const FUSED_ATTENTION: &[TensorRule] = &[
    rule("model.layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight", &[Qkv, Embd]),
    rule("model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", &[Embd, Q]),
];
const FUSED_MLP: &[TensorRule] = &[
    rule("model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight", &[TwoFf, Embd]),
    rule("model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", &[Embd, Ff]),
];

fn write_keys(keys: &mut KeyWriter<'_>, dims: &Dims) -> Result<(), HfError> {
    keys.write(&[
        CONTEXT_LENGTH,
        ORIGINAL_CONTEXT,
        EMBEDDING_LENGTH,
        FEED_FORWARD_LENGTH,
        BLOCK_COUNT,
        HEAD_COUNT,
        HEAD_COUNT_KV,
        RMS_EPSILON,
    ])?;
    keys.set("rope.dimension_count", MetadataValue::U32(rotated(keys.config, dims)? as u32));
    keys.set_f32("rope.freq_base", keys.config.rope()?.theta()?);
    keys.file_type();
    // No window is written as a window of 0, by which llama.cpp knows Phi-4.
    let window = keys.config.u32(SLIDING_WINDOW.names)?.unwrap_or(0);
    keys.set(SLIDING_WINDOW.gguf, MetadataValue::U32(window));
    Ok(())
}

/// Dimensions of a head that are rotated.
fn rotated(config: &Config, dims: &Dims) -> Result<u64, HfError> {
    let factor = config.get(&["partial_rotary_factor"]).and_then(Value::as_f64).unwrap_or(1.0);
    if !(factor > 0.0 && factor <= 1.0) {
        return Err(config.wrong("partial_rotary_factor", "a number above 0, at most 1"));
    }
    Ok((factor * dims.n_embd as f64) as u64 / dims.n_head)
}

/// The factors, and the magnitude that belongs to them.
fn derive(config: &Config, dims: &Dims, metadata: &mut Metadata) -> Result<Derived, HfError> {
    let rope = config.rope()?;
    let n = (rotated(config, dims)? / 2) as usize;
    let (Some(long), Some(short)) = (rope.factors("long_factor", n)?, rope.factors("short_factor", n)?)
    else {
        return Ok(Vec::new());
    };
    let context = f64::from(config.require(CONTEXT_LENGTH.names)?);
    let original = f64::from(config.require(ORIGINAL_CONTEXT.names)?);
    let scale = context / original;
    let attn_factor = match rope.kind() {
        "su" | "longrope" if scale > 1.0 => (1.0 + scale.ln() / original.ln()).sqrt(),
        "su" | "longrope" => 1.0,
        "yarn" if scale > 1.0 => 0.1 * scale.ln() + 1.0,
        "yarn" => 1.0,
        other => {
            let reason =
                format!("rope type \"{}\" has no meaning here (expected longrope, su or yarn)", other);
            return Err(HfError::file(config.path(), reason));
        }
    };
    metadata.set("phi3.rope.scaling.attn_factor", MetadataValue::F32(attn_factor as f32));
    Ok(vec![(LONG.to_owned(), long), (SHORT.to_owned(), short)])
}

fn export(keys: &KeyReader<'_>, config: &mut Map<String, Value>) -> Result<(), ExportError> {
    // A window of 0 stands for none.
    if keys.u64(SLIDING_WINDOW.gguf)? == Some(0) {
        config.insert("sliding_window".to_owned(), Value::Null);
    }
    let rotated = keys.u64("rope.dimension_count")?.zip(keys.u64(HEAD_COUNT.gguf)?);
    if let (Some((rotated, heads)), Some(width @ 1..)) = (rotated, keys.u64(EMBEDDING_LENGTH.gguf)?)
        && rotated.checked_mul(heads).is_some_and(|n| n < width)
    {
        let factor = rotated as f64 * heads as f64 / width as f64;
        config.insert("partial_rotary_factor".to_owned(), factor.into());
    }
    if let Some(context) = keys.u64(ORIGINAL_CONTEXT.gguf)? {
        config.insert(ORIGINAL_CONTEXT.exported.to_owned(), context.into());
    }
    if let (Some(long), Some(short)) = (keys.factors(LONG)?, keys.factors(SHORT)?) {
        let scaling = config.entry("rope_scaling").or_insert_with(|| Map::new().into());
        for kind in ["rope_type", "type"] {
            scaling[kind] = "longrope".into();
        }
        scaling["long_factor"] = long.into_iter().map(number).collect();
        scaling["short_factor"] = short.into_iter().map(number).collect();
    }
    Ok(())
}
