//! Model families: one file per `general.architecture`, each with its weights and its graph.
//!
//! A family reads what is special about it from the metadata, takes its tensors through [`Loader`] (which
//! checks every shape), and evaluates tokens as a sequence of [`Graph`] steps whose intermediates carry the
//! names GGUF people know. To add one: write the file, add its line to [`FAMILIES`].
//! No instruction sets here, and no file formats.

mod batch;
mod gemma;
mod granite;
mod graph;
mod hparams;
mod layers;
mod llama;
mod loader;
mod mistral3;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3moe;
mod smollm3;

pub use batch::{Batch, Outputs};
pub use graph::{Activations, ActivationsProbe, AttentionProbe, AttentionStep, Buffers, Graph, TraceFn};
pub use hparams::{DEFAULT_KV_BUDGET, Hparams};
pub use loader::{LoadError, Loader, Weight};

use qgguf_kernels::{KvShape, RopeParams};

/// A loaded model family: weights and the order in which they are applied.
pub trait Architecture: Send + Sync {
    /// The rotary embeddings in use; [`Graph::rope`] takes an index into them.
    fn ropes(&self) -> &[RopeParams];

    /// What each layer remembers of a sequence, first to last.
    fn memory(&self, hparams: &Hparams) -> Vec<KvShape> {
        hparams.kv_shapes()
    }

    /// Evaluates the tokens of `g`: appends their keys and values to the cache and leaves the logits.
    fn forward(&self, g: &mut Graph<'_>);
}

type Load = fn(&mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError>;

/// `general.architecture` and the function that loads it.
const FAMILIES: &[(&str, Load)] = &[
    ("gemma2", gemma::load_2),
    ("gemma3", gemma::load_3),
    ("granite", granite::load),
    ("llama", llama::load),
    ("mistral3", mistral3::load),
    ("olmo2", olmo2::load),
    ("phi3", phi3::load),
    ("qwen2", qwen2::load),
    ("qwen3", qwen3::load),
    ("qwen3moe", qwen3moe::load),
    ("smollm3", smollm3::load),
];

/// The names of the architectures that can be run.
pub fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|family| family.0)
}

/// Loads the family called `name`, or says which there are.
pub fn load(name: &str, loader: &mut Loader<'_>) -> Result<Box<dyn Architecture>, LoadError> {
    let (_, load) = FAMILIES.iter().find(|family| family.0 == name).ok_or_else(|| unknown(name))?;
    let architecture = load(loader)?;
    loader.finish()?;
    Ok(architecture)
}

/// The error for a family that is not there.
pub(crate) fn unknown(name: &str) -> LoadError {
    LoadError::UnknownArchitecture { name: name.to_owned(), known: names().collect::<Vec<_>>().join(", ") }
}
