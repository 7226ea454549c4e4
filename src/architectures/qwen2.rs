//! `qwen2`: Qwen2 and Qwen2.5, biases on queries, keys and values. `phi3` has the same graph.

use qgguf_kernels::{RopeLayout, RopeParams};

use super::graph::{Gate, Scores};
use super::layers::{Attention, Ffn, Head, layers, norm};
use super::{Architecture, Graph, LoadError, Loader};

pub(super) struct Qwen2 {
    head: Head,
    layers: Vec<Layer>,
    ropes: [RopeParams; 1],
    scores: Scores,
    rms_eps: f32,
}

struct Layer {
    attn_norm: Vec<f32>,
    attn: Attention,
    ffn_norm: Vec<f32>,
    ffn: Ffn,
}

pub(super) fn load(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    let rope = l.hparams().rope(l.metadata())?;
    Ok(Box::new(Qwen2::load(l, rope)?))
}

impl Qwen2 {
    pub(super) fn load(l: &mut Loader<'_>, rope: RopeParams) -> Result<Qwen2, LoadError> {
        Ok(Qwen2 {
            ropes: [rope],
            scores: Scores { scale: l.hparams().default_attention_scale(), window: None, softcap: None },
            rms_eps: l.hparams().rms_eps,
            head: Head::load(l)?,
            layers: layers(l, |l, il| {
                Ok(Layer {
                    attn_norm: norm(l, il, "attn_norm")?,
                    attn: Attention::load(l, il)?,
                    ffn_norm: norm(l, il, "ffn_norm")?,
                    ffn: Ffn::load(l, il)?,
                })
            })?,
        })
    }
}

impl Architecture for Qwen2 {
    fn ropes(&self) -> &[RopeParams] {
        &self.ropes
    }

    fn forward(&self, g: &mut Graph<'_>) {
        g.embed(&self.head.embeddings, 1.0);
        for (il, layer) in self.layers.iter().enumerate() {
            g.layer(il);
            g.norm("attn_norm", &layer.attn_norm, self.rms_eps);
            g.qkv(&layer.attn);
            g.rope(0, &layer.attn, RopeLayout::Neox);
            g.attend(&layer.attn, self.scores);
            g.add_residual("ffn_inp");
            g.norm("ffn_norm", &layer.ffn_norm, self.rms_eps);
            g.ffn(&layer.ffn, Gate::Silu);
            g.add_residual("l_out");
        }
        g.output(&self.head, self.rms_eps);
    }
}
