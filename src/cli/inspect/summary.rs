//! Sums over the tensor table: where the parameters are and which types they have.

use qgguf_gguf::{GgmlType, GgufFile, TensorInfo};

/// What a tensor is for, told by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Embedding,
    Attention,
    Mlp,
    Norms,
    Output,
    Other,
}

impl Part {
    /// All parts, in the order in which they are shown.
    pub const ALL: [Part; 6] =
        [Part::Embedding, Part::Attention, Part::Mlp, Part::Norms, Part::Output, Part::Other];

    /// The name people read.
    pub fn name(self) -> &'static str {
        match self {
            Part::Embedding => "embedding",
            Part::Attention => "attention",
            Part::Mlp => "MLP",
            Part::Norms => "norms",
            Part::Output => "output",
            Part::Other => "other",
        }
    }

    /// The part that a tensor of this name belongs to.
    pub fn of(tensor: &str) -> Part {
        let stem = [".weight", ".bias", ".scale", ".input_scale"]
            .iter()
            .find_map(|suffix| tensor.strip_suffix(suffix))
            .unwrap_or(tensor);
        let last = stem.rsplit('.').next().unwrap_or(stem);
        match last {
            _ if last.contains("norm") => Part::Norms,
            _ if last.contains("attn") => Part::Attention,
            _ if last.starts_with("ffn_") || last == "exp_probs_b" => Part::Mlp,
            _ if last.contains("embd") || last == "token_types" => Part::Embedding,
            _ if stem == "output" => Part::Output,
            _ => Part::Other,
        }
    }
}

/// Sums over some tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub n_tensors: usize,
    pub n_parameters: u64,
    pub n_bytes: u64,
}

impl Totals {
    fn add(&mut self, tensor: &TensorInfo) {
        self.n_tensors += 1;
        self.n_parameters = self.n_parameters.saturating_add(tensor.n_elements());
        self.n_bytes = self.n_bytes.saturating_add(tensor.n_bytes);
    }

    /// Bits per weight on average, if there are weights.
    pub fn bits_per_weight(&self) -> Option<f64> {
        (self.n_parameters > 0).then(|| self.n_bytes as f64 * 8.0 / self.n_parameters as f64)
    }

    /// The share of these parameters in all, 0 to 1.
    pub fn share(&self, all: &Totals) -> f64 {
        if all.n_parameters == 0 { 0.0 } else { self.n_parameters as f64 / all.n_parameters as f64 }
    }
}

/// Parameters that take part in one token of a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    pub n_parameters: u64,
    pub n_experts_used: u32,
    pub n_experts: u32,
}

/// All sums of a file.
pub struct Summary {
    pub all: Totals,
    /// For each of [`Part::ALL`].
    pub parts: [Totals; Part::ALL.len()],
    /// For each type in use, in order of their ids.
    pub types: Vec<(GgmlType, Totals)>,
    pub active: Option<Active>,
    /// There is no output matrix of its own: the embedding is used again.
    pub tied: bool,
}

impl Summary {
    /// Sums over all tensors of a file.
    pub fn of(file: &GgufFile) -> Summary {
        let mut all = Totals::default();
        let mut parts = [Totals::default(); Part::ALL.len()];
        let mut types = std::collections::BTreeMap::<GgmlType, Totals>::new();
        for tensor in file.tensors() {
            all.add(tensor);
            parts[Part::of(&tensor.name) as usize].add(tensor);
            types.entry(tensor.ty).or_default().add(tensor);
        }
        Summary {
            all,
            parts,
            types: types.into_iter().collect(),
            active: active(file, &all),
            tied: file.tensor_index("token_embd.weight").is_some()
                && file.tensor_index("output.weight").is_none(),
        }
    }
}

fn active(file: &GgufFile, all: &Totals) -> Option<Active> {
    let arch = file.architecture().ok()?;
    let number = |key: &str| file.metadata().u32(&format!("{arch}.{key}")).ok()?.filter(|&n| n > 0);
    let (n_experts, n_experts_used) = (number("expert_count")?, number("expert_used_count")?);
    let mut experts = Totals::default();
    file.tensors().iter().filter(|t| t.name.contains("_exps.")).for_each(|t| experts.add(t));
    let idle = n_experts.saturating_sub(n_experts_used);
    let n_idle = u128::from(experts.n_parameters) * u128::from(idle) / u128::from(n_experts);
    Some(Active { n_parameters: all.n_parameters - n_idle as u64, n_experts_used, n_experts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_part() {
        let cases = [
            (
                Part::Embedding,
                "token_embd.weight per_layer_token_embd.weight position_embd.weight token_types.weight",
            ),
            (
                Part::Attention,
                "blk.0.attn_q.weight blk.11.attn_qkv.bias blk.0.attn_output.weight blk.0.attn_sinks.weight enc.blk.0.attn_rel_b.weight dec.blk.1.cross_attn_k.weight",
            ),
            (
                Part::Mlp,
                "blk.0.ffn_down.weight blk.0.ffn_gate_inp.weight blk.0.ffn_up_exps.weight blk.0.ffn_up_exps.scale blk.3.exp_probs_b.bias",
            ),
            (
                Part::Norms,
                "output_norm.weight blk.0.attn_norm.weight blk.0.attn_q_norm.weight blk.0.post_attention_norm.weight token_embd_norm.bias blk.2.ffn_norm.weight blk.0.ssm_norm.weight",
            ),
            (Part::Output, "output.weight output.bias"),
            (Part::Other, "rope_freqs.weight blk.0.ssm_in.weight blk.0.output.weight v.patch  "),
        ];
        for (part, names) in cases {
            for name in names.split(' ') {
                let expected = if name.is_empty() { Part::Other } else { part };
                assert_eq!(Part::of(name), expected, "{name}");
            }
        }
        assert!(Part::ALL.iter().enumerate().all(|(i, &part)| part as usize == i));
    }
}
