//! `smollm3`: llama in which every fourth layer has no rotary embedding.

use super::llama::Llama;
use super::{Architecture, LoadError, Loader};

const NO_ROPE_PERIOD: usize = 4;

pub(super) fn load(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    let mut model = Llama::load(l)?;
    for (il, layer) in model.layers.iter_mut().enumerate() {
        layer.rotate = !(il + 1).is_multiple_of(NO_ROPE_PERIOD);
    }
    Ok(Box::new(model))
}
