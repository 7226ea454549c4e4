//! `mistral3`: llama whose queries may grow with the position.

use super::llama::Llama;
use super::{Architecture, LoadError, Loader};

pub(super) fn load(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    let rope = l.hparams().rope_with_yarn_keys(l.metadata())?;
    let mut model = Llama::load_with(l, rope)?;
    let temperature = l.metadata().f32(&l.hparams().key("attention.temperature_scale"))?;
    if let Some(t) = temperature.filter(|&t| t != 0.0) {
        let n_ctx_orig = model.ropes()[0].n_ctx_orig.max(1);
        model.query_temperature = Some((t, n_ctx_orig));
    }
    Ok(Box::new(model))
}
