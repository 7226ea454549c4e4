//! Which tensor gets which type.
//!
//! A file type is a base type and a mixture: tensors that matter more get more bits, by their name, their layer and the
//! shape of the model. The rules, their order and their integer divisions are llama.cpp's, so that files come out the same.

use std::collections::BTreeSet;

use qgguf_gguf::{GgmlType, TensorSpec};
use regex::Regex;

use crate::file_type::FileType::{self, *};
use crate::model_shape::ModelShape;
use crate::split::trimmed;

/// What the user wants.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The file type; without one all tensors stay as they are.
    pub file_type: Option<FileType>,
    /// No mixture: every tensor gets the base type.
    pub pure: bool,
    /// `output.weight` stays as it is.
    pub leave_output_tensor: bool,
    /// The type of `output.weight`, or of the embeddings that stand in for it.
    pub output_tensor_type: Option<GgmlType>,
    /// The type of `token_embd.weight` and `per_layer_token_embd.weight`.
    pub token_embedding_type: Option<GgmlType>,
    /// Types of the tensors in whose names a pattern is found; the first that is counts.
    pub tensor_types: Vec<(Regex, GgmlType)>,
    /// Whether there are importance weights: some mixtures dare more with them.
    pub has_imatrix: bool,
}

impl Recipe {
    /// A file type as it comes, `None` to copy.
    pub fn new(file_type: Option<FileType>) -> Recipe {
        Recipe {
            file_type,
            pure: false,
            leave_output_tensor: false,
            output_tensor_type: None,
            token_embedding_type: None,
            tensor_types: Vec::new(),
            has_imatrix: false,
        }
    }

    /// The types of the tensors of a model. Given are the types they have now, in [`file_order`].
    pub fn types(&self, model: &ModelShape, tensors: &[TensorSpec]) -> Result<Vec<GgmlType>, RecipeError> {
        let Some(file_type) = self.file_type else { return Ok(tensors.iter().map(|t| t.ty).collect()) };
        let mut mixture = Mixture::new(self, file_type, model, tensors);
        tensors.iter().map(|tensor| mixture.type_of(tensor)).collect()
    }

    /// The patterns of [`Recipe::tensor_types`] that decide the type of no tensor, and why: most likely a slip of the pen.
    pub fn idle_patterns(&self, tensors: &[&TensorSpec]) -> Vec<(&str, &'static str)> {
        let decided: BTreeSet<usize> =
            tensors.iter().filter_map(|tensor| self.deciding_pattern(tensor)).collect();
        let patterns = self.tensor_types.iter().enumerate().filter(|(i, _)| !decided.contains(i));
        patterns
            .map(|(_, (pattern, _))| match tensors.iter().any(|tensor| pattern.is_match(&tensor.name)) {
                true => (pattern.as_str(), "the tensors with such names get their types from elsewhere"),
                false => (pattern.as_str(), "no tensor has such a name"),
            })
            .collect()
    }

    /// Which pattern says the type of a tensor.
    fn deciding_pattern(&self, tensor: &TensorSpec) -> Option<usize> {
        let mixes = self.file_type.is_some_and(|ty| ty.base().block_size() > 1);
        let by_flag = match Role::of(&tensor.name) {
            Role::TokenEmbd => self.token_embedding_type.is_some(),
            Role::Output => self.output_tensor_type.is_some(),
            _ => false,
        };
        if !mixes || by_flag || !self.quantizes(tensor) {
            return None;
        }
        self.tensor_types.iter().position(|(pattern, _)| pattern.is_match(&tensor.name))
    }

    fn quantizes(&self, tensor: &TensorSpec) -> bool {
        let left = self.leave_output_tensor && tensor.name == "output.weight";
        !left && trimmed(&tensor.shape).len() >= 2 && is_quantizable_name(&tensor.name)
    }
}

/// Why a recipe does not suit a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// A tensor that belongs to no layer, where the layer decides.
    #[error("tensor \"{tensor}\": expected a name that begins with blk.N., N below {n_layer}")]
    Layer {
        /// The tensor.
        tensor: String,
        /// Layers of the model.
        n_layer: usize,
    },
    /// A type whose blocks do not divide the rows, and no type in its place.
    #[error("tensor \"{tensor}\": rows of {columns} are no whole number of {ty} blocks of {block}")]
    Rows {
        /// The tensor.
        tensor: String,
        /// Row length.
        columns: u64,
        /// The type.
        ty: GgmlType,
        /// Weights in a block of it.
        block: usize,
    },
}

/// Sorts tensors as llama-quantize does: by layer, those without one first, then by name.
pub fn file_order<T>(tensors: &mut [T], name: impl Fn(&T) -> &str) {
    tensors.sort_by(|a, b| (layer(name(a)), name(a)).cmp(&(layer(name(b)), name(b))));
}

/// The N of a leading `blk.N.`.
pub fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// Parts of names of tensors that are small, or not used in matrix products.
const NEVER: [&str; 32] = [
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
];
/// More of them.
const NEVER_TOO: [&str; 3] = [".patch_merger", "a.rvq.codebook", "mm.a.code_embd"];

fn is_quantizable_name(name: &str) -> bool {
    name.ends_with("weight")
        && name != "position_embd.weight"
        && name != "token_types.weight"
        && !NEVER.iter().chain(&NEVER_TOO).any(|part| name.contains(part))
}

/// What a tensor does, by its name.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Output,
    TokenEmbd,
    /// `attn_v`, and the fused tensors that contain it.
    AttnV,
    AttnK,
    AttnQ,
    AttnOutput,
    FfnUp,
    FfnGate,
    FfnDown,
    Other,
}

impl Role {
    fn of(name: &str) -> Role {
        const PARTS: [(&str, Role); 9] = [
            ("attn_qkv.weight", Role::AttnV),
            ("attn_kv_b.weight", Role::AttnV),
            ("attn_v.weight", Role::AttnV),
            ("attn_k.weight", Role::AttnK),
            ("attn_q.weight", Role::AttnQ),
            ("attn_output.weight", Role::AttnOutput),
            ("ffn_up", Role::FfnUp),
            ("ffn_gate", Role::FfnGate),
            ("ffn_down", Role::FfnDown),
        ];
        match name {
            "output.weight" => Role::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Role::TokenEmbd,
            _ => PARTS.iter().find(|(part, _)| name.contains(part)).map_or(Role::Other, |(_, role)| *role),
        }
    }
}

/// A recipe at work: its counters advance with the tensors.
struct Mixture<'a> {
    recipe: &'a Recipe,
    file_type: FileType,
    model: &'a ModelShape,
    /// The embeddings are the output matrix, too.
    tied: bool,
    /// Tensors like `attn_v`, in all and seen so far.
    n_v: usize,
    i_v: usize,
    i_down: usize,
    i_gate: usize,
    i_up: usize,
}

impl<'a> Mixture<'a> {
    fn new(
        recipe: &'a Recipe,
        file_type: FileType,
        model: &'a ModelShape,
        tensors: &[TensorSpec],
    ) -> Mixture<'a> {
        Mixture {
            recipe,
            file_type,
            model,
            tied: tensors.iter().all(|tensor| tensor.name != "output.weight"),
            n_v: tensors.iter().filter(|tensor| Role::of(&tensor.name) == Role::AttnV).count(),
            i_v: 0,
            i_down: 0,
            i_gate: 0,
            i_up: 0,
        }
    }

    fn type_of(&mut self, tensor: &TensorSpec) -> Result<GgmlType, RecipeError> {
        let recipe = self.recipe;
        if !recipe.quantizes(tensor) {
            return Ok(tensor.ty);
        }
        let role = Role::of(&tensor.name);
        let named = recipe.tensor_types.iter().find(|(pattern, _)| pattern.is_match(&tensor.name));
        let goes_on = tensor.name == "per_layer_token_embd.weight" && named.is_some();
        match (role, recipe.token_embedding_type, recipe.output_tensor_type) {
            (Role::TokenEmbd, Some(ty), _) if !goes_on => return Ok(ty),
            (Role::Output, _, Some(ty)) => return Ok(ty),
            _ => {}
        }
        let base = self.file_type.base();
        if base.block_size() == 1 {
            return Ok(base);
        }
        let chosen = match named {
            Some((_, ty)) => *ty,
            None if recipe.pure => base,
            None => self.mixed(role, tensor)?,
        };
        fallback(chosen, tensor)
    }

    /// The type by the rules of the file type.
    fn mixed(&mut self, role: Role, tensor: &TensorSpec) -> Result<GgmlType, RecipeError> {
        let (file_type, base) = (self.file_type, self.file_type.base());
        let columns = tensor.shape.first().copied().unwrap_or(1);
        if role == Role::Output || role == Role::TokenEmbd && self.tied {
            let whole = columns.is_multiple_of(base.block_size() as u64);
            return Ok(match (self.recipe.output_tensor_type, file_type) {
                (Some(ty), _) => ty,
                (_, MXFP4_MOE | Q8_0) => GgmlType::Q8_0,
                _ if self.model.is("falcon") || !whole => GgmlType::Q8_0,
                (_, IQ2_XXS | IQ2_XS | IQ3_XXS | IQ1_S | IQ2_S | IQ2_M | IQ1_M) => GgmlType::Q5_K,
                _ => GgmlType::Q6_K,
            });
        }
        if file_type == MXFP4_MOE {
            let experts = tensor.shape.get(2).is_some_and(|&n| n > 1);
            let ffn = matches!(role, Role::FfnUp | Role::FfnGate | Role::FfnDown);
            let fits = experts && (ffn || !self.model.is("bailingmoe3"));
            return Ok(if fits { GgmlType::MXFP4 } else { GgmlType::Q8_0 });
        }
        if role == Role::TokenEmbd {
            return Ok(match file_type {
                IQ2_XXS | IQ2_XS | IQ1_S | IQ1_M => GgmlType::Q2_K,
                IQ2_S | IQ2_M | IQ3_XXS => GgmlType::IQ3_S,
                TQ1_0 | TQ2_0 | Q2_0 => GgmlType::Q4_K,
                _ => base,
            });
        }
        let tiny = matches!(file_type, IQ2_XXS | IQ2_XS | IQ1_S | IQ1_M | IQ2_S | IQ2_M);
        Ok(match role {
            _ if tiny => self.tiny(role),
            Role::AttnV => self.attn_v(),
            Role::AttnK if self.model.has_8_experts() => GgmlType::Q8_0,
            Role::AttnK | Role::AttnQ => match file_type {
                IQ3_XS => GgmlType::IQ3_XXS,
                IQ3_XXS => GgmlType::IQ2_S,
                _ => base,
            },
            Role::FfnDown => {
                let i = self.layer(self.i_down, tensor)?;
                self.i_down += 1;
                self.ffn_down(i)
            }
            Role::AttnOutput => self.attn_output(),
            Role::FfnGate => {
                let i = self.layer(self.i_gate, tensor)?;
                self.i_gate += 1;
                self.ffn_gate_up(i)
            }
            Role::FfnUp => {
                let i = self.layer(self.i_up, tensor)?;
                self.i_up += 1;
                self.ffn_gate_up(i)
            }
            _ => base,
        })
    }

    /// The layer of an MLP tensor: counted, but read from the name if tensors of experts may be missing or in pieces.
    fn layer(&self, counted: usize, tensor: &TensorSpec) -> Result<usize, RecipeError> {
        if self.model.n_expert <= 1 {
            return Ok(counted);
        }
        let n_layer = self.model.n_layer;
        layer(&tensor.name)
            .filter(|&i| i < n_layer)
            .ok_or_else(|| RecipeError::Layer { tensor: tensor.name.clone(), n_layer })
    }

    /// File types of about two bits and below.
    fn tiny(&mut self, role: Role) -> GgmlType {
        let larger = matches!(self.file_type, IQ2_S | IQ2_M);
        let better = if larger { GgmlType::IQ3_S } else { GgmlType::Q2_K };
        match role {
            Role::AttnV => {
                self.i_v += 1;
                let cheap = self.model.gqa() >= 4 || self.model.n_expert >= 4;
                if cheap { GgmlType::Q4_K } else { better }
            }
            Role::AttnK if self.model.has_8_experts() => GgmlType::Q4_K,
            Role::FfnDown => {
                self.i_down += 1;
                if self.i_down <= self.model.n_layer / 8 { better } else { self.file_type.base() }
            }
            Role::AttnOutput if self.model.has_8_experts() => GgmlType::Q5_K,
            Role::AttnOutput if larger => GgmlType::IQ3_S,
            Role::AttnOutput if matches!(self.file_type, IQ1_S | IQ1_M) => GgmlType::IQ2_XXS,
            _ => self.file_type.base(),
        }
    }

    fn attn_v(&mut self) -> GgmlType {
        let (i, base) = (self.i_v, self.file_type.base());
        let shared = self.model.gqa() >= 4;
        self.i_v += 1;
        let ty = match self.file_type {
            Q2_K if !shared => GgmlType::Q3_K,
            Q2_K | Q2_K_S | IQ3_XXS | IQ3_XS | IQ3_S if shared => GgmlType::Q4_K,
            IQ3_XXS if self.recipe.has_imatrix => GgmlType::IQ3_XXS,
            IQ3_XXS => GgmlType::IQ3_S,
            IQ3_M => GgmlType::Q4_K,
            Q3_K_M => {
                if i < 2 {
                    GgmlType::Q5_K
                } else {
                    GgmlType::Q4_K
                }
            }
            Q3_K_L => GgmlType::Q5_K,
            IQ4_NL | IQ4_XS if shared => GgmlType::Q5_K,
            Q4_K_M | Q5_K_M if more(i, self.n_v) => GgmlType::Q6_K,
            Q4_K_S if i < 4 => GgmlType::Q5_K,
            _ => base,
        };
        match ty {
            _ if self.model.has_8_experts() => GgmlType::Q8_0,
            GgmlType::Q3_K | GgmlType::Q4_K if self.model.is_70b() => GgmlType::Q5_K,
            ty => ty,
        }
    }

    fn ffn_down(&self, i: usize) -> GgmlType {
        let n = self.model.n_layer;
        let falcon = self.model.is("falcon");
        let im = self.recipe.has_imatrix;
        match self.file_type {
            Q2_K => GgmlType::Q3_K,
            Q2_K_S if i < n / 8 => GgmlType::Q4_K,
            IQ3_XXS if !im => {
                if i < n / 8 {
                    GgmlType::Q4_K
                } else {
                    GgmlType::Q3_K
                }
            }
            Q3_K_M if i < n / 16 => GgmlType::Q5_K,
            Q3_K_M if !falcon || more(i, n) => GgmlType::Q4_K,
            IQ3_M if i < n / 8 || self.model.has_8_experts() && more(i, n) => GgmlType::Q4_K,
            Q3_K_L => {
                if falcon {
                    GgmlType::Q4_K
                } else {
                    GgmlType::Q5_K
                }
            }
            Q4_K_M if falcon && i < n / 16 => GgmlType::Q6_K,
            Q4_K_M if more(i, n) => {
                if falcon {
                    GgmlType::Q5_K
                } else {
                    GgmlType::Q6_K
                }
            }
            IQ4_NL | IQ4_XS if !im && i < n / 8 => GgmlType::Q5_K,
            Q5_K_M if more(i, n) => GgmlType::Q6_K,
            Q4_K_S if !falcon && i < n / 8 => GgmlType::Q5_K,
            Q4_0 if im && i < n / 8 => GgmlType::Q4_1,
            Q5_0 if im && i < n / 8 => GgmlType::Q5_1,
            file_type => file_type.base(),
        }
    }

    fn attn_output(&self) -> GgmlType {
        let experts = self.model.has_8_experts();
        match self.file_type {
            Q3_K_L if self.model.is("falcon") => GgmlType::Q4_K,
            file_type if self.model.is("falcon") => file_type.base(),
            Q2_K | IQ3_XS | IQ3_XXS | IQ3_S | IQ3_M | Q3_K_S | Q3_K_M | Q4_K_S | Q4_K_M | IQ4_NL | IQ4_XS
                if experts =>
            {
                GgmlType::Q5_K
            }
            file_type if experts => file_type.base(),
            Q2_K => GgmlType::Q3_K,
            IQ3_XXS => GgmlType::IQ3_S,
            Q3_K_M | IQ3_M => GgmlType::Q4_K,
            Q3_K_L => GgmlType::Q5_K,
            file_type => file_type.base(),
        }
    }

    fn ffn_gate_up(&self, i: usize) -> GgmlType {
        let n = self.model.n_layer;
        match self.file_type {
            IQ3_XS if (n / 8..7 * n / 8).contains(&i) => GgmlType::IQ3_XXS,
            file_type => file_type.base(),
        }
    }
}

/// The layers that get more bits: the first and the last eighth, and every third between.
fn more(i: usize, n: usize) -> bool {
    i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
}

/// Another type if the blocks of `ty` do not divide the rows.
fn fallback(ty: GgmlType, tensor: &TensorSpec) -> Result<GgmlType, RecipeError> {
    use GgmlType as T;
    let columns = tensor.shape.first().copied().unwrap_or(1);
    let fits = |ty: GgmlType| columns.is_multiple_of(ty.block_size() as u64);
    if fits(ty) {
        return Ok(ty);
    }
    let other = match ty {
        T::IQ1_S | T::IQ1_M | T::IQ2_XXS | T::IQ2_XS | T::IQ2_S | T::IQ3_XXS | T::IQ3_S | T::IQ4_XS => {
            T::IQ4_NL
        }
        T::Q2_K | T::Q3_K | T::TQ1_0 | T::TQ2_0 | T::Q2_0 => T::Q4_0,
        T::Q4_K => T::Q5_0,
        T::Q5_K => T::Q5_1,
        T::Q6_K => T::Q8_0,
        ty if ty.block_size() == 32 => ty,
        ty => {
            let (tensor, block) = (tensor.name.clone(), ty.block_size());
            return Err(RecipeError::Rows { tensor, columns, ty, block });
        }
    };
    Ok(if fits(other) { other } else { T::F16 })
}
