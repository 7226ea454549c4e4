//! `gemma3` (text): norms around every block, most layers see a window and rotate with a base of their own.

use qgguf_kernels::{RopeLayout, RopeParams};

use super::graph::{Gate, Scores};
use super::layers::{Attention, Ffn, Head, layers, norm};
use super::{Architecture, Graph, LoadError, Loader};

struct Gemma3 {
    head: Head,
    layers: Vec<Layer>,
    /// For the layers that see everything, and for those that see a window.
    ropes: [RopeParams; 2],
    scale: f32,
    rms_eps: f32,
}

struct Layer {
    attn_norm: Vec<f32>,
    attn: Attention,
    q_norm: Vec<f32>,
    k_norm: Vec<f32>,
    attn_post_norm: Vec<f32>,
    ffn_norm: Vec<f32>,
    ffn: Ffn,
    ffn_post_norm: Vec<f32>,
    window: Option<usize>,
}

/// One layer in six sees everything, unless `attention.sliding_window_pattern` says otherwise.
const DEFAULT_PERIOD: usize = 6;
/// The rotary base of the windowed layers, unless `rope.freq_base_swa` says otherwise.
const DEFAULT_LOCAL_BASE: f32 = 10_000.0;
/// The 27B model scales by the width per head of the residual stream, not by the head's own.
const LAYERS_OF_27B: usize = 62;

pub(super) fn load(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    let hp = l.hparams().clone();
    let metadata = l.metadata();
    let global = hp.rope(metadata)?;
    let local = RopeParams {
        freq_base: metadata.f32(&hp.key("rope.freq_base_swa"))?.unwrap_or(DEFAULT_LOCAL_BASE),
        freq_scale: 1.0,
        ..global.clone()
    };
    let windows = super::layers::windows(l, DEFAULT_PERIOD)?;
    let scale = if hp.n_layer == LAYERS_OF_27B {
        1.0 / ((hp.n_embd / hp.n_head[0]) as f32).sqrt()
    } else {
        hp.default_attention_scale()
    };
    let mut head = Head::load(l)?;
    head.softcap = metadata.f32(&hp.key("final_logit_softcapping"))?.filter(|&cap| cap != 0.0);
    Ok(Box::new(Gemma3 {
        head,
        layers: layers(l, |l, il| {
            Ok(Layer {
                attn_norm: norm(l, il, "attn_norm")?,
                attn: Attention::load(l, il)?,
                q_norm: l.vector(&format!("blk.{il}.attn_q_norm.weight"), hp.head_dim_k)?,
                k_norm: l.vector(&format!("blk.{il}.attn_k_norm.weight"), hp.head_dim_k)?,
                attn_post_norm: norm(l, il, "post_attention_norm")?,
                ffn_norm: norm(l, il, "ffn_norm")?,
                ffn: Ffn::load(l, il)?,
                ffn_post_norm: norm(l, il, "post_ffw_norm")?,
                window: windows[il],
            })
        })?,
        ropes: [global, local],
        scale,
        rms_eps: hp.rms_eps,
    }))
}

impl Architecture for Gemma3 {
    fn ropes(&self) -> &[RopeParams] {
        &self.ropes
    }

    fn forward(&self, g: &mut Graph<'_>) {
        let n_embd = self.head.embeddings.n_cols();
        g.embed(&self.head.embeddings, (n_embd as f32).sqrt());
        for (il, layer) in self.layers.iter().enumerate() {
            g.layer(il);
            g.norm("attn_norm", &layer.attn_norm, self.rms_eps);
            g.qkv(&layer.attn);
            g.qk_norm(&layer.q_norm, &layer.k_norm, self.rms_eps);
            g.rope(usize::from(layer.window.is_some()), &layer.attn, RopeLayout::Neox);
            g.attend(&layer.attn, Scores { scale: self.scale, window: layer.window });
            g.post_norm("attn_post_norm", &layer.attn_post_norm, self.rms_eps);
            g.add_residual("sa_out");
            g.norm("ffn_norm", &layer.ffn_norm, self.rms_eps);
            g.ffn(&layer.ffn, Gate::Gelu);
            g.post_norm("ffn_post_norm", &layer.ffn_post_norm, self.rms_eps);
            g.add_residual("l_out");
        }
        g.output(&self.head, self.rms_eps);
    }
}
