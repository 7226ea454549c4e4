//! What `config.json` says and a GGUF has no place for: runtimes do what is usual for the architecture.

use super::config::describe;
use super::families::{Dims, Family, GEMMA_27B};
use super::{Config, HfError, hparams};

/// Keys of architectures, and what runtimes do, as JSON.
const USUAL: [(&[&str], &str, &str); 5] = [
    (&["gemma3"], "attn_logit_softcapping", "null"),
    (&["qwen3moe"], "norm_topk_prob", "true"),
    (&["qwen3moe"], "mlp_only_layers", "[]"),
    (&["qwen3moe"], "decoder_sparse_step", "1"),
    (&["qwen2", "qwen3", "qwen3moe", "smollm3"], "use_sliding_window", "false"),
];
/// Names of activations that are one to runtimes, the usual first.
const SILU: &[&str] = &["\"silu\"", "\"swish\""];
/// Configurations often name the form without tanh for models that were trained with the other.
const GELU: &[&str] = &["\"gelu_pytorch_tanh\"", "\"gelu_new\"", "\"gelu\""];

/// A warning for each key that says something else than what runtimes do.
pub(crate) fn warnings(family: &Family, config: &Config, dims: &Dims) -> Result<Vec<String>, HfError> {
    let architecture = family.architecture;
    let mut warnings = Vec::new();
    let mut warn = |key: &str, found: &str, usual: &str| {
        let path = config.path().display();
        warnings.push(format!(
            "{path}: {key} is {found}, which a GGUF of {architecture} cannot say: the model will be run with {usual}"
        ));
    };

    if let Some((key, found)) = config.entry(&["hidden_activation", "hidden_act"]) {
        let usual = if family.norms_from_one { GELU } else { SILU };
        if !found.is_string() {
            return Err(config.wrong(key, "a string"));
        }
        if !usual.contains(&found.to_string().as_str()) {
            warn(key, &describe(found), usual[0]);
        }
    }
    for (_, key, usual) in USUAL.iter().filter(|(architectures, ..)| architectures.contains(&architecture)) {
        if let Some(found) = config.get(&[key]).map(describe).filter(|found| found != usual) {
            warn(key, &found, usual);
        }
    }
    if family.norms_from_one
        && let Some(found) = config.f32(&["query_pre_attn_scalar"])?
    {
        let is_27b = GEMMA_27B.contains(&(architecture, dims.n_layer));
        let usual = if is_27b { dims.n_embd / dims.n_head } else { dims.head_dim };
        if found != usual as f32 {
            warn("query_pre_attn_scalar", &found.to_string(), &usual.to_string());
        }
    }
    if ["mistral", "mixtral", "ministral3", "mistral3"].contains(&family.model_type)
        && let (Some(window), Some(context)) =
            (config.u32(&["sliding_window"])?, config.u32(hparams::CONTEXT)?)
        && window < context
    {
        warn("sliding_window", &window.to_string(), "null");
    }
    let rope = config.rope()?.kind();
    if !hparams::says_rope(architecture, rope) {
        warn("rope_type", &describe(&rope.into()), "\"default\"");
    }
    Ok(warnings)
}
