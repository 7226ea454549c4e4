//! `olmo2`: norms after the blocks instead of before, and over all query and all key heads at once.

use qgguf_kernels::{RopeLayout, RopeParams};

use super::graph::{Gate, Scores};
use super::layers::{Attention, Ffn, Head, layers, norm};
use super::{Architecture, Graph, LoadError, Loader};

struct Olmo2 {
    head: Head,
    layers: Vec<Layer>,
    /// For the layers that see everything, and for those that see a window (olmo3).
    ropes: [RopeParams; 2],
    scale: f32,
    rms_eps: f32,
}

struct Layer {
    attn: Attention,
    q_norm: Vec<f32>,
    k_norm: Vec<f32>,
    attn_post_norm: Vec<f32>,
    ffn: Ffn,
    ffn_post_norm: Vec<f32>,
    window: Option<usize>,
}

/// One layer in four sees everything when there is a window at all.
const DEFAULT_PERIOD: usize = 4;

pub(super) fn load(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    let hp = l.hparams().clone();
    let global = hp.rope(l.metadata())?;
    let local = RopeParams {
        freq_base: l.metadata().f32(&hp.key("rope.freq_base_swa"))?.unwrap_or(global.freq_base),
        freq_scale: 1.0,
        ext_factor: 0.0,
        attn_factor: 1.0,
        ..global.clone()
    };
    let windows = super::layers::windows(l, 0, DEFAULT_PERIOD)?;
    // No tied embeddings in this family: say so instead of running with the wrong matrix.
    l.matrix("output.weight", hp.n_embd, hp.n_vocab)?;
    Ok(Box::new(Olmo2 {
        head: Head::load(l)?,
        layers: layers(l, |l, il| {
            let attn = Attention::load(l, il)?;
            Ok(Layer {
                q_norm: l.vector(&format!("blk.{il}.attn_q_norm.weight"), attn.wq.n_rows())?,
                k_norm: l.vector(&format!("blk.{il}.attn_k_norm.weight"), attn.wk.n_rows())?,
                attn,
                attn_post_norm: norm(l, il, "post_attention_norm")?,
                ffn: Ffn::load(l, il)?,
                ffn_post_norm: norm(l, il, "post_ffw_norm")?,
                window: windows[il],
            })
        })?,
        ropes: [global, local],
        scale: hp.default_attention_scale(),
        rms_eps: hp.rms_eps,
    }))
}

impl Architecture for Olmo2 {
    fn ropes(&self) -> &[RopeParams] {
        &self.ropes
    }

    fn forward(&self, g: &mut Graph<'_>) {
        g.embed(&self.head.embeddings, 1.0);
        for (il, layer) in self.layers.iter().enumerate() {
            g.layer(il);
            g.read_residual();
            g.qkv(&layer.attn);
            g.qk_norm(&layer.q_norm, &layer.k_norm, self.rms_eps);
            g.rope(usize::from(layer.window.is_some()), &layer.attn, RopeLayout::Neox);
            g.attend(&layer.attn, Scores { scale: self.scale, window: layer.window, softcap: None });
            g.post_norm("attn_post_norm", &layer.attn_post_norm, self.rms_eps);
            g.add_residual("ffn_inp");
            g.read_residual();
            g.ffn(&layer.ffn, Gate::Silu);
            g.post_norm("ffn_post_norm", &layer.ffn_post_norm, self.rms_eps);
            g.add_residual("l_out");
        }
        g.output(&self.head, self.rms_eps);
    }
}
