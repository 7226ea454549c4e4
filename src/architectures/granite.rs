//! `granite`: llama with constant factors on embeddings, residual additions and logits.
//!
//! The fourth, on attention scores, is `attention.scale`, which llama reads too.

use super::llama::Llama;
use super::{Architecture, LoadError, Loader};

pub(super) fn load(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    let mut model = Llama::load(l)?;
    let (hp, metadata) = (l.hparams(), l.metadata());
    let logit_key = hp.key("logit_scale");
    let logit_scale = metadata.require_f32(&logit_key)?;
    if logit_scale == 0.0 || !logit_scale.is_finite() {
        return Err(LoadError::value(&logit_key, logit_scale, "a finite number other than 0"));
    }
    model.head.logit_scale = 1.0 / logit_scale;
    let factor = |name: &str| -> Result<f32, LoadError> {
        let value = metadata.f32(&hp.key(name))?;
        Ok(value.filter(|&v| v != 0.0).unwrap_or(1.0))
    };
    model.embedding_scale = factor("embedding_scale")?;
    model.residual_scale = factor("residual_scale")?;
    // Granite states with this key whether it rotates at all.
    let rotates = metadata.bool(&hp.key("rope.scaling.finetuned"))?.unwrap_or(true);
    model.layers.iter_mut().for_each(|layer| layer.rotate = rotates);
    Ok(Box::new(model))
}
