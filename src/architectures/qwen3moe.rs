//! `qwen3moe`: qwen3 with a mixture of experts in every layer.

use super::layers::{Mlp, Moe};
use super::qwen3::Qwen3;
use super::{Architecture, LoadError, Loader};

pub(super) fn load(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    let hp = l.hparams().clone();
    let n_ff = l.metadata().u32(&hp.key("expert_feed_forward_length"))?.map(|n| n as usize);
    Ok(Box::new(Qwen3::load(l, |l, il| {
        let n_ff = n_ff.unwrap_or(hp.n_ff[il] / hp.n_expert_used.max(1));
        Ok(Mlp::Experts(Box::new(Moe::load(l, il, n_ff)?)))
    })?))
}
