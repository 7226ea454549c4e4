//! `qwen3`: every query and key head is normalised before it is rotated. `qwen3moe` shares the attention.

use qgguf_kernels::{RopeLayout, RopeParams};

use super::graph::Scores;
use super::layers::{Attention, Ffn, Head, Mlp, layers, norm};
use super::{Architecture, Graph, LoadError, Loader};

pub(super) struct Qwen3 {
    head: Head,
    layers: Vec<Layer>,
    ropes: [RopeParams; 1],
    scores: Scores,
    rms_eps: f32,
}

struct Layer {
    attn_norm: Vec<f32>,
    attn: Attention,
    q_norm: Vec<f32>,
    k_norm: Vec<f32>,
    ffn_norm: Vec<f32>,
    ffn: Mlp,
}

pub(super) fn load(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    Ok(Box::new(Qwen3::load(l, |l, il| Ok(Mlp::Dense(Box::new(Ffn::load(l, il)?))))?))
}

impl Qwen3 {
    pub(super) fn load(
        l: &mut Loader<'_>,
        mut mlp: impl FnMut(&mut Loader<'_>, usize) -> Result<Mlp, LoadError>,
    ) -> Result<Qwen3, LoadError> {
        let hp = l.hparams().clone();
        Ok(Qwen3 {
            ropes: [hp.rope(l.metadata())?],
            scores: Scores { scale: hp.default_attention_scale(), window: None, softcap: None },
            rms_eps: hp.rms_eps,
            head: Head::load(l)?,
            layers: layers(l, |l, il| {
                Ok(Layer {
                    attn_norm: norm(l, il, "attn_norm")?,
                    attn: Attention::load(l, il)?,
                    q_norm: l.vector(&format!("blk.{il}.attn_q_norm.weight"), hp.head_dim_k)?,
                    k_norm: l.vector(&format!("blk.{il}.attn_k_norm.weight"), hp.head_dim_k)?,
                    ffn_norm: norm(l, il, "ffn_norm")?,
                    ffn: mlp(l, il)?,
                })
            })?,
        })
    }
}

impl Architecture for Qwen3 {
    fn ropes(&self) -> &[RopeParams] {
        &self.ropes
    }

    fn forward(&self, g: &mut Graph<'_>) {
        g.embed(&self.head.embeddings, 1.0);
        for (il, layer) in self.layers.iter().enumerate() {
            g.layer(il);
            g.norm("attn_norm", &layer.attn_norm, self.rms_eps);
            g.qkv(&layer.attn);
            g.qk_norm(&layer.q_norm, &layer.k_norm, self.rms_eps);
            g.rope(0, &layer.attn, RopeLayout::Neox);
            g.attend(&layer.attn, self.scores);
            g.add_residual("ffn_inp");
            g.norm("ffn_norm", &layer.ffn_norm, self.rms_eps);
            g.mlp(&layer.ffn);
            g.add_residual("l_out");
        }
        g.output(&self.head, self.rms_eps);
    }
}
