//! `phi3`: Phi-3 and Phi-3.5: the graph of qwen2, fused projections and one of two sets of rotary factors.

use super::qwen2::Qwen2;
use super::{Architecture, LoadError, Loader};

pub(super) fn load(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    let hp = l.hparams().clone();
    let mut rope = hp.rope(l.metadata())?;
    let short = l.vector_opt("rope_factors_short.weight", rope.n_dims / 2)?;
    let long = l.vector_opt("rope_factors_long.weight", rope.n_dims / 2)?;
    // The size of the context decides, not how much of it is used: the cache holds rotated keys.
    rope.factors = if l.n_ctx() > rope.n_ctx_orig { long } else { short };
    if l.metadata().u32(&hp.key("attention.sliding_window"))?.is_some_and(|n| n > 0) {
        l.warn("the sliding window that this phi3 file names is not used, as in llama.cpp".to_owned());
    }
    Ok(Box::new(Qwen2::load(l, rope)?))
}
