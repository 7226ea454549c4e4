//! Which tensors a GGUF gets from a checkpoint, in what order, and where their rows come from.

use std::collections::{BTreeMap, HashMap, HashSet};

use qgguf_gguf::{GgmlType, TensorSpec};

use super::checkpoint::{Checkpoint, TensorRef};
use super::families::{Change, Dims, Family, TensorRule, fill, template};
use super::rows::{Generated, HfRows, RowOrder, common_dtype};
use super::safetensors::Dtype;
use super::{Config, HfError};
use crate::pipeline::RowSource;

/// A tensor on its way into a GGUF.
pub(crate) struct Planned<'a> {
    pub name: String,
    /// Row length first.
    pub shape: Vec<u64>,
    pub source: Source<'a>,
}

pub(crate) enum Source<'a> {
    Stored { parts: Vec<TensorRef<'a>>, order: RowOrder, part_rows: u64, plus_one: bool },
    Generated(Vec<f32>),
}

impl<'a> Planned<'a> {
    /// The rows.
    pub fn rows(&self) -> Box<dyn RowSource + 'a> {
        match &self.source {
            Source::Generated(values) => Box::new(Generated(values.clone())),
            &Source::Stored { ref parts, order, part_rows, plus_one } => {
                // Elements of a vector are its rows when they are reordered.
                let is_vector = self.shape.len() == 1 && order != RowOrder::Stored;
                let columns = if is_vector { 1 } else { self.shape.first().map_or(1, |&n| n as usize) };
                Box::new(HfRows { parts: parts.clone(), columns, part_rows, order, plus_one })
            }
        }
    }

    /// The number type it is stored in, f32 unless that is a 16-bit one.
    pub fn stored(&self) -> GgmlType {
        match &self.source {
            Source::Stored { parts, .. } => {
                common_dtype(parts).and_then(Dtype::plain).unwrap_or(GgmlType::F32)
            }
            Source::Generated(_) => GgmlType::F32,
        }
    }

    /// Its record if it has this type.
    pub fn spec(&self, ty: GgmlType) -> TensorSpec {
        TensorSpec { name: self.name.clone(), shape: self.shape.clone(), ty }
    }

    /// A vector that is in no checkpoint.
    pub fn generated(name: String, values: Vec<f32>) -> Planned<'a> {
        Planned { name, shape: vec![values.len() as u64], source: Source::Generated(values) }
    }

    fn whole(rule: &TensorRule, numbers: &[u64], tensor: TensorRef<'a>, shape: &[u64]) -> Planned<'a> {
        let part_rows = if shape.len() < 2 { 1 } else { shape[..shape.len() - 1].iter().product() };
        Planned {
            name: fill(rule.gguf, numbers),
            shape: shape.iter().rev().copied().collect(),
            source: Source::Stored {
                parts: vec![tensor],
                order: RowOrder::Stored,
                part_rows,
                plus_one: false,
            },
        }
    }
}

/// Tensors that no runtime needs: masks and frequencies that follow from the configuration.
fn is_derived(name: &str) -> bool {
    [".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Parts of a model that sees or hears: the text model is converted without them.
fn is_other_modality(name: &str) -> bool {
    let name = name.strip_prefix("model.").unwrap_or(name);
    ["visual.", "vision_", "audio", "multi_modal_projector.", "multimodal_projector."]
        .iter()
        .any(|start| name.starts_with(start))
}

/// The tensors of the checkpoint as a GGUF has them, in the order in which they lie there.
pub(crate) fn plan<'a>(
    family: &Family,
    config: &Config,
    dims: &Dims,
    checkpoint: &'a Checkpoint,
) -> Result<Vec<Planned<'a>>, HfError> {
    let rules: HashMap<&str, &TensorRule> = family.rules().map(|rule| (rule.hf, rule)).collect();
    let mut planned = Vec::new();
    let mut experts = Experts::default();
    for tensor in checkpoint.tensors() {
        let stored = tensor.tensor.name.as_str();
        if is_derived(stored) || is_other_modality(stored) {
            continue;
        }
        let name = stored.replace("language_model.", "");
        // Models with several senses have `model.language_model.layers` or `language_model.model.layers`.
        let (pattern, numbers) = template(&name);
        let known =
            rules.get(pattern.as_str()).filter(|_| numbers.first().is_none_or(|&il| il < dims.n_layer));
        let Some(rule) = known else {
            return Err(tensor.wrong(format!(
                "{} has no such tensor in a model of {} layers",
                family.class, dims.n_layer
            )));
        };
        check_shape(config, dims, rule, tensor)?;
        let shape = &tensor.tensor.shape;
        match rule.change {
            Change::Drop => {}
            Change::None => planned.push(Planned::whole(rule, &numbers, tensor, shape)),
            Change::PermuteQ | Change::PermuteK => {
                let mut one = Planned::whole(rule, &numbers, tensor, shape);
                one.source = Source::Stored {
                    parts: vec![tensor],
                    order: RowOrder::Interleaved { head: dims.head_dim },
                    part_rows: shape[0],
                    plus_one: false,
                };
                planned.push(one);
            }
            Change::Expert => planned.extend(experts.add(family, dims, rule, &numbers, tensor)?),
            Change::FusedExperts => planned.extend(split_fused(rule, &numbers, tensor, dims)),
        }
    }
    experts.finish(config)?;
    for tensor in &mut planned {
        if let Source::Stored { plus_one, .. } = &mut tensor.source {
            *plus_one = family.norms_from_one && tensor.name.ends_with("norm.weight");
        }
    }
    complete(family, config, dims, &planned)?;
    Ok(planned)
}

fn check_shape(
    config: &Config,
    dims: &Dims,
    rule: &TensorRule,
    tensor: TensorRef<'_>,
) -> Result<(), HfError> {
    let expected = dims.shape(rule);
    if tensor.tensor.shape != expected {
        return Err(tensor.wrong(format!(
            "shape {:?}, expected {expected:?} by {}",
            tensor.tensor.shape,
            config.path().display()
        )));
    }
    Ok(())
}

/// Every tensor that the family needs is there, and none twice.
fn complete(family: &Family, config: &Config, dims: &Dims, planned: &[Planned<'_>]) -> Result<(), HfError> {
    let mut names: HashSet<&str> = HashSet::new();
    if let Some(twice) = planned.iter().find(|tensor| !names.insert(&tensor.name)) {
        let reason = format!("several tensors of the checkpoint become {}", twice.name);
        return Err(HfError::file(config.path(), reason));
    }
    let dir = config.path().parent().unwrap_or(config.path());
    for rule in family.rules().filter(|rule| !rule.optional) {
        let per_layer = rule.gguf.contains("{}");
        for il in 0..if per_layer { dims.n_layer } else { 1 } {
            if !names.contains(fill(rule.gguf, &[il]).as_str()) {
                let missing = fill(rule.hf, &[il, 0]);
                return Err(HfError::tensor(dir, &missing, "it is missing from the checkpoint"));
            }
        }
    }
    Ok(())
}

/// Gate and up projections of all experts in one tensor: first the gate's rows of an expert, then the other's.
fn split_fused<'a>(
    rule: &TensorRule,
    numbers: &[u64],
    tensor: TensorRef<'a>,
    dims: &Dims,
) -> [Planned<'a>; 2] {
    let half = dims.n_expert_ff;
    [(rule.gguf.to_owned(), 0), (rule.gguf.replace("gate", "up"), half)].map(|(name, first)| Planned {
        name: fill(&name, numbers),
        shape: vec![dims.n_embd, half, dims.n_expert],
        source: Source::Stored {
            parts: vec![tensor],
            order: RowOrder::Part { whole: 2 * half, part: half, first },
            part_rows: half * dims.n_expert,
            plus_one: false,
        },
    })
}

/// Experts read so far, by layer.
#[derive(Default)]
struct Experts<'a> {
    layers: BTreeMap<u64, HashMap<(&'static str, u64), TensorRef<'a>>>,
}

impl<'a> Experts<'a> {
    /// Remembers one; returns the layer's stacks when it was the last.
    fn add(
        &mut self,
        family: &Family,
        dims: &Dims,
        rule: &TensorRule,
        numbers: &[u64],
        tensor: TensorRef<'a>,
    ) -> Result<Vec<Planned<'a>>, HfError> {
        let &[layer, expert] = numbers else {
            return Err(tensor.wrong("expected a layer and an expert in its name"));
        };
        if expert >= dims.n_expert {
            return Err(tensor.wrong(format!("the configuration has only {} experts", dims.n_expert)));
        }
        let parts = self.layers.entry(layer).or_default();
        parts.insert((rule.gguf, expert), tensor);
        let kinds: Vec<_> = family.rules().filter(|rule| rule.change == Change::Expert).collect();
        if parts.len() as u64 != dims.n_expert * kinds.len() as u64 {
            return Ok(Vec::new());
        }
        let parts = self.layers.remove(&layer).expect("it was just added to");
        Ok(kinds
            .into_iter()
            .map(|rule| {
                let shape = dims.shape(rule);
                Planned {
                    name: fill(rule.gguf, &[layer]),
                    shape: vec![shape[1], shape[0], dims.n_expert],
                    source: Source::Stored {
                        parts: (0..dims.n_expert).map(|e| parts[&(rule.gguf, e)]).collect(),
                        order: RowOrder::Stored,
                        part_rows: shape[0],
                        plus_one: false,
                    },
                }
            })
            .collect())
    }

    fn finish(self, config: &Config) -> Result<(), HfError> {
        match self.layers.first_key_value() {
            None => Ok(()),
            Some((layer, parts)) => {
                let reason = format!("layer {layer} has only {} of its experts' tensors", parts.len());
                Err(HfError::file(config.path().parent().unwrap_or(config.path()), reason))
            }
        }
    }
}
