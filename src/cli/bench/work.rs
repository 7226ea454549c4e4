//! What evaluating tokens costs at least: bytes that have to be read, multiply-adds that have to be made.

use qgguf_gguf::{GgmlType, GgufFile, TensorInfo};
use qgguf_kernels::KvType;

use qgguf::architectures::Hparams;
use qgguf::model::Model;

use super::plan::Test;
use crate::cli::inspect::Part;

/// Bytes and multiply-adds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Bytes to read.
    pub bytes: f64,
    /// Multiply-adds of quantized weights.
    pub int8: f64,
    /// Multiply-adds of other weights, and those of attention.
    pub f32: f64,
}

impl Cost {
    fn add(&mut self, tensor: &TensorInfo, share: f64) {
        self.bytes += tensor.n_bytes as f64 * share;
        // Vectors are added or scaled with, not multiplied by a matrix.
        if tensor.shape.len() > 1 {
            let float = matches!(tensor.ty, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16);
            let multiply_adds = if float { &mut self.f32 } else { &mut self.int8 };
            *multiply_adds += tensor.n_elements() as f64 * share;
        }
    }
}

/// What the passes of a model cost at least.
///
/// The embedding table is not counted (a row of it is nothing), unless it is the output matrix too. Of experts,
/// the share that one token uses is. Where the file names a sliding window every layer is taken to have it.
pub struct Work {
    /// All weights but the output matrix.
    layers: Cost,
    /// The output matrix.
    output: Cost,
    /// Keys and values that a position adds, as numbers.
    keys: f64,
    values: f64,
    /// Multiply-adds of a query position with one key position.
    attention: f64,
    /// Key positions that a query position looks at, at most.
    window: usize,
}

impl Work {
    /// Counts the tensors of a model.
    pub fn of(model: &Model) -> Work {
        let (file, hp) = (model.file(), model.hparams());
        let tied = file.tensor_index("output.weight").is_none();
        let experts = if hp.n_expert > 0 { hp.n_expert_used as f64 / hp.n_expert as f64 } else { 1.0 };
        let (mut layers, mut output) = (Cost::default(), Cost::default());
        for tensor in file.tensors() {
            match Part::of(&tensor.name) {
                Part::Embedding if tied && tensor.name == "token_embd.weight" => output.add(tensor, 1.0),
                Part::Embedding => {}
                Part::Output => output.add(tensor, 1.0),
                _ if tensor.name.contains("_exps.") => layers.add(tensor, experts),
                _ => layers.add(tensor, 1.0),
            }
        }
        let sum = |heads: &[usize], dim: usize| heads.iter().map(|&n| (n * dim) as f64).sum();
        Work {
            layers,
            output,
            keys: sum(&hp.n_head_kv, hp.head_dim_k),
            values: sum(&hp.n_head_kv, hp.head_dim_v),
            attention: sum(&hp.n_head, hp.head_dim_k + hp.head_dim_v),
            window: window(file, hp),
        }
    }

    /// The passes of a test, first to last: the prompt by ubatches, then one token at a time.
    pub fn passes(&self, test: &Test) -> impl Iterator<Item = Cost> {
        let mut passes = Vec::new();
        let mut pos = test.n_depth;
        for start in (0..test.n_prompt).step_by(test.n_batch) {
            let n_batch = test.n_batch.min(test.n_prompt - start);
            for start in (0..n_batch).step_by(test.n_ubatch) {
                let n = test.n_ubatch.min(n_batch - start);
                // Logits are computed for the last token of a batch.
                passes.push((pos, n, start + n == n_batch));
                pos += n;
            }
        }
        passes.extend((0..test.n_gen).map(|i| (pos + i, 1, true)));
        let (type_k, type_v) = (test.type_k, test.type_v);
        passes.into_iter().map(move |(pos, n, output)| self.pass(pos, n, output, type_k, type_v))
    }

    /// `n` tokens together, the first at `pos`; with logits for the last of them or none.
    fn pass(&self, pos: usize, n: usize, output: bool, type_k: KvType, type_v: KvType) -> Cost {
        let seen: usize = (pos..pos + n).map(|pos| (pos + 1).min(self.window)).sum();
        let cached = (pos + n).min(self.window + n - 1) as f64;
        let cache_bytes = cached * (self.keys * bytes_of(type_k) + self.values * bytes_of(type_v));
        let output = if output { self.output } else { Cost::default() };
        Cost {
            bytes: self.layers.bytes + output.bytes + cache_bytes,
            int8: self.layers.int8 * n as f64 + output.int8,
            f32: self.layers.f32 * n as f64 + output.f32 + self.attention * seen as f64,
        }
    }
}

/// Bytes of a number in the cache.
fn bytes_of(ty: KvType) -> f64 {
    ty.row_bytes(ty.granularity()) as f64 / ty.granularity() as f64
}

fn window(file: &GgufFile, hp: &Hparams) -> usize {
    let window = file.metadata().u32(&hp.key("attention.sliding_window")).ok().flatten();
    window.filter(|&n| n > 0).map_or(usize::MAX / 2, |n| n as usize)
}
