//! `phi3`: Phi-3 and Phi-3.5: the graph of qwen2, fused projections and one of two sets of rotary factors.

use super::qwen2::Qwen2;
use super::{Architecture, LoadError, Loader};

pub(super) fn load(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    let hp = l.hparams().clone();
    let mut rope = hp.rope(l.metadata())?;
    rope.factors = l.vector_opt("rope_factors_short.weight", rope.n_dims / 2)?;
    rope.long_factors = l.vector_opt("rope_factors_long.weight", rope.n_dims / 2)?;
    if l.metadata().u32(&hp.key("attention.sliding_window"))?.is_some_and(|n| n > 0) {
        l.warn("the sliding window that this phi3 file names is not used, as in llama.cpp".to_owned());
    }
    Ok(Box::new(Qwen2::load(l, rope)?))
}
