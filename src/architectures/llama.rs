//! `llama`: Llama 1 to 3, Mistral, Mixtral, SmolLM2, TinyLlama and everything built like them.

use qgguf_kernels::{RopeLayout, RopeParams};

use super::graph::Scores;
use super::layers::{Attention, Ffn, Head, Mlp, Moe, layers, norm};
use super::{Architecture, Graph, LoadError, Loader};

pub(super) struct Llama {
    pub(super) head: Head,
    pub(super) layers: Vec<Layer>,
    ropes: Vec<RopeParams>,
    scores: Scores,
    rms_eps: f32,
    /// Factor on the embeddings (granite).
    pub(super) embedding_scale: f32,
    /// Factor on what blocks add to the residual stream (granite).
    pub(super) residual_scale: f32,
    /// Queries at position p are multiplied by `1 + t ln(1 + floor(p / n))` (mistral3): `(t, n)`.
    pub(super) query_temperature: Option<(f32, usize)>,
}

pub(super) struct Layer {
    attn_norm: Vec<f32>,
    attn: Attention,
    ffn_norm: Vec<f32>,
    ffn: Mlp,
    pub(super) rotate: bool,
}

pub(super) fn load(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    Ok(Box::new(Llama::load(l)?))
}

impl Llama {
    /// Also the base of the families that differ from llama by a constant or two.
    pub(super) fn load(l: &mut Loader<'_>) -> Result<Llama, LoadError> {
        let rope = l.hparams().rope(l.metadata())?;
        Llama::load_with(l, rope)
    }

    /// [`Llama::load`] with another rotary embedding.
    pub(super) fn load_with(l: &mut Loader<'_>, mut rope: RopeParams) -> Result<Llama, LoadError> {
        let hp = l.hparams().clone();
        rope.factors = l.vector_opt("rope_freqs.weight", rope.n_dims / 2)?;
        let scale = l.metadata().f32(&hp.key("attention.scale"))?.filter(|&scale| scale != 0.0);
        Ok(Llama {
            head: Head::load(l)?,
            layers: layers(l, |l, il| {
                Ok(Layer {
                    attn_norm: norm(l, il, "attn_norm")?,
                    attn: Attention::load(l, il)?,
                    ffn_norm: norm(l, il, "ffn_norm")?,
                    ffn: if hp.n_expert > 0 {
                        Mlp::Experts(Box::new(Moe::load(l, il, hp.n_ff[il])?))
                    } else {
                        Mlp::Dense(Box::new(Ffn::load(l, il)?))
                    },
                    rotate: true,
                })
            })?,
            ropes: vec![rope],
            scores: Scores {
                scale: scale.unwrap_or(hp.default_attention_scale()),
                window: None,
                softcap: None,
            },
            rms_eps: hp.rms_eps,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            query_temperature: None,
        })
    }
}

impl Architecture for Llama {
    fn ropes(&self) -> &[RopeParams] {
        &self.ropes
    }

    fn forward(&self, g: &mut Graph<'_>) {
        g.residual_scale = self.residual_scale;
        g.embed(&self.head.embeddings, self.embedding_scale);
        for (il, layer) in self.layers.iter().enumerate() {
            g.layer(il);
            g.norm("attn_norm", &layer.attn_norm, self.rms_eps);
            g.qkv(&layer.attn);
            if layer.rotate {
                g.rope(0, &layer.attn, RopeLayout::Norm);
            }
            if let Some((t, n)) = self.query_temperature {
                g.scale_queries(|pos| 1.0 + t * ((1 + pos / n) as f64).ln() as f32);
            }
            g.attend(&layer.attn, self.scores);
            g.add_residual("ffn_inp");
            g.norm("ffn_norm", &layer.ffn_norm, self.rms_eps);
            g.mlp(&layer.ffn);
            g.add_residual("l_out");
        }
        g.output(&self.head, self.rms_eps);
    }
}
