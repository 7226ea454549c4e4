//! `gemma2` and `gemma3` (text): norms around every block, many layers see a window only. The second caps its scores,
//! the third norms queries and keys and rotates with a base of its own in the windows.

use qgguf_kernels::{RopeLayout, RopeParams};

use super::graph::{Gate, Scores};
use super::layers::{Attention, Ffn, Head, layers, norm};
use super::{Architecture, Graph, LoadError, Loader};

struct Gemma {
    head: Head,
    layers: Vec<Layer>,
    /// For the layers that see everything, and for those that see a window.
    ropes: [RopeParams; 2],
    scale: f32,
    /// What scores stay below.
    score_cap: Option<f32>,
    rms_eps: f32,
}

struct Layer {
    attn_norm: Vec<f32>,
    attn: Attention,
    /// For queries and for keys.
    qk_norm: Option<[Vec<f32>; 2]>,
    attn_post_norm: Vec<f32>,
    ffn_norm: Vec<f32>,
    ffn: Ffn,
    ffn_post_norm: Vec<f32>,
    window: Option<usize>,
}

/// What the two differ in beyond their keys.
struct Generation {
    /// One layer in so many sees everything, unless `attention.sliding_window_pattern` says otherwise.
    period: usize,
    /// The window where no key says.
    default_window: u32,
    /// The 27B model scales by the width per head of the residual stream, not by the head's own.
    layers_of_27b: usize,
    /// Caps of scores and logits where no key says.
    default_caps: [f32; 2],
    qk_norm: bool,
    /// The rotary base of the windowed layers, unless `rope.freq_base_swa` says otherwise.
    local_base: Option<f32>,
}

pub(super) fn load_2(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    let generation = Generation {
        period: 2,
        default_window: 4096,
        layers_of_27b: 46,
        default_caps: [50.0, 30.0],
        qk_norm: false,
        local_base: None,
    };
    load(l, &generation)
}

pub(super) fn load_3(l: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    let generation = Generation {
        period: 6,
        default_window: 0,
        layers_of_27b: 62,
        default_caps: [0.0, 0.0],
        qk_norm: true,
        local_base: Some(10_000.0),
    };
    load(l, &generation)
}

fn load(l: &mut Loader<'_>, generation: &Generation) -> Result<Box<dyn Architecture>, LoadError> {
    let hp = l.hparams().clone();
    let metadata = l.metadata();
    let global = hp.rope(metadata)?;
    let local = match generation.local_base {
        Some(base) => RopeParams {
            freq_base: metadata.f32(&hp.key("rope.freq_base_swa"))?.unwrap_or(base),
            freq_scale: 1.0,
            ..global.clone()
        },
        None => global.clone(),
    };
    let windows = super::layers::windows(l, generation.default_window, generation.period)?;
    let scale = if hp.n_layer == generation.layers_of_27b {
        1.0 / ((hp.n_embd / hp.n_head[0]) as f32).sqrt()
    } else {
        hp.default_attention_scale()
    };
    let mut caps = generation.default_caps;
    for (cap, key) in caps.iter_mut().zip(["attn_logit_softcapping", "final_logit_softcapping"]) {
        *cap = metadata.f32(&hp.key(key))?.unwrap_or(*cap);
    }
    let [score_cap, logit_cap] = caps.map(|cap| Some(cap).filter(|&cap| cap != 0.0));
    let mut head = Head::load(l)?;
    head.softcap = logit_cap;
    Ok(Box::new(Gemma {
        head,
        layers: layers(l, |l, il| {
            Ok(Layer {
                attn_norm: norm(l, il, "attn_norm")?,
                attn: Attention::load(l, il)?,
                qk_norm: match generation.qk_norm {
                    true => Some([
                        l.vector(&format!("blk.{il}.attn_q_norm.weight"), hp.head_dim_k)?,
                        l.vector(&format!("blk.{il}.attn_k_norm.weight"), hp.head_dim_k)?,
                    ]),
                    false => None,
                },
                attn_post_norm: norm(l, il, "post_attention_norm")?,
                ffn_norm: norm(l, il, "ffn_norm")?,
                ffn: Ffn::load(l, il)?,
                ffn_post_norm: norm(l, il, "post_ffw_norm")?,
                window: windows[il],
            })
        })?,
        ropes: [global, local],
        scale,
        score_cap,
        rms_eps: hp.rms_eps,
    }))
}

impl Architecture for Gemma {
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
            if let Some([q_norm, k_norm]) = &layer.qk_norm {
                g.qk_norm(q_norm, k_norm, self.rms_eps);
            }
            g.rope(usize::from(layer.window.is_some()), &layer.attn, RopeLayout::Neox);
            g.attend(
                &layer.attn,
                Scores { scale: self.scale, window: layer.window, softcap: self.score_cap },
            );
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
