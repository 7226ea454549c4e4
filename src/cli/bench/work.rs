//! What evaluating tokens costs at least: bytes that have to be read, multiply-adds that have to be made.

use std::ops::Range;

use qgguf::architectures::Hparams;
use qgguf::model::Model;
use qgguf_gguf::{GgmlType, GgufFile, TensorInfo};

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
    /// Heads of keys and of values that a position adds, and their widths.
    n_head_kv: usize,
    head_dim_k: usize,
    head_dim_v: usize,
    /// Bytes of the activations of a position.
    activations: usize,
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
        Work {
            layers,
            output,
            n_head_kv: hp.n_head_kv.iter().sum(),
            head_dim_k: hp.head_dim_k,
            head_dim_v: hp.head_dim_v,
            activations: size_of::<f32>() * (3 * hp.n_embd + 2 * hp.n_ff.iter().max().unwrap_or(&0)),
            attention: (hp.n_head.iter().sum::<usize>() * (hp.head_dim_k + hp.head_dim_v)) as f64,
            window: window(file, hp),
        }
    }

    /// The passes of a test, first to last: the prompt by ubatches, then one token at a time.
    pub fn passes<'a>(&'a self, test: &'a Test) -> impl Iterator<Item = Cost> + 'a {
        let n_prompt = test.n_prompt;
        let prompt = (0..n_prompt).step_by(test.n_batch).flat_map(move |batch| {
            let end = n_prompt.min(batch + test.n_batch);
            (batch..end).step_by(test.n_ubatch).map(move |start| start..end.min(start + test.n_ubatch)).map(
                // Logits are computed for the last token of a batch.
                move |tokens| self.pass(test, tokens.clone(), tokens.end == end),
            )
        });
        let generation = (n_prompt..test.n_tokens()).map(move |i| self.pass(test, i..i + 1, true));
        prompt.chain(generation)
    }

    /// Bytes of memory that a test needs at least: its keys and values, and the activations of a ubatch.
    pub fn memory_bytes(&self, test: &Test) -> u64 {
        let bytes = |n: usize, each: usize| (n as u64).saturating_mul(each as u64);
        bytes(test.n_ctx(), self.position_bytes(test))
            .saturating_add(bytes(test.n_together(), self.activations))
    }

    /// Bytes of the keys and values of one position.
    fn position_bytes(&self, test: &Test) -> usize {
        let heads = test.type_k.row_bytes(self.head_dim_k) + test.type_v.row_bytes(self.head_dim_v);
        self.n_head_kv * heads
    }

    /// These tokens of a test together, with logits for the last of them or none.
    fn pass(&self, test: &Test, tokens: Range<usize>, output: bool) -> Cost {
        let (start, end) = (test.n_depth + tokens.start, test.n_depth + tokens.end);
        let seen: usize = (start..end).map(|pos| self.window.min(pos + 1)).sum();
        let cached = end - (start + 1).saturating_sub(self.window);
        let output = if output { self.output } else { Cost::default() };
        let n = tokens.len() as f64;
        Cost {
            bytes: self.layers.bytes + output.bytes + (cached * self.position_bytes(test)) as f64,
            int8: self.layers.int8 * n + output.int8,
            f32: self.layers.f32 * n + output.f32 + self.attention * seen as f64,
        }
    }
}

fn window(file: &GgufFile, hp: &Hparams) -> usize {
    let window = file.metadata().u32(&hp.key("attention.sliding_window")).ok().flatten();
    window.filter(|&n| n > 0).map_or(usize::MAX, |n| n as usize)
}

#[cfg(test)]
mod tests {
    use qgguf::model::ModelOptions;
    use qgguf_kernels::KvType;

    use super::*;
    use crate::cli::bench::plan::LoadMode;

    fn test(n_depth: usize, n_prompt: usize, n_gen: usize) -> Test {
        Test {
            model: concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-tiny-Q4_K_M.gguf").into(),
            n_gpu_layers: -1,
            load_mode: LoadMode::Auto,
            n_batch: 8,
            n_ubatch: 4,
            type_k: KvType::F16,
            type_v: KvType::F32,
            flash_attn: -1,
            n_threads: 1,
            n_depth,
            n_prompt,
            n_gen,
        }
    }

    #[test]
    fn a_generated_token_reads_every_weight_and_the_cache() {
        let test = test(10, 0, 2);
        let model = Model::open(&test.model, &ModelOptions::default()).unwrap();
        let passes: Vec<Cost> = Work::of(&model).passes(&test).collect();
        let hp = model.hparams();
        let n_bytes: u64 = model.file().tensors().iter().map(|tensor| tensor.n_bytes).sum();
        let position: usize = hp.n_head_kv.iter().map(|n| n * (2 * hp.head_dim_k + 4 * hp.head_dim_v)).sum();
        assert_eq!(passes[0].bytes, n_bytes as f64 + 11.0 * position as f64);
        assert_eq!(passes[1].bytes - passes[0].bytes, position as f64);
        let scores: usize = hp.n_head.iter().map(|n| n * (hp.head_dim_k + hp.head_dim_v)).sum();
        assert_eq!(passes[1].f32 - passes[0].f32, scores as f64);
        let matrices = model.file().tensors().iter().filter(|tensor| tensor.shape.len() > 1);
        assert_eq!(passes[0].int8, matrices.map(|tensor| tensor.n_elements()).sum::<u64>() as f64);
    }

    #[test]
    fn a_prompt_passes_by_ubatches_and_has_logits_once_a_batch() {
        let test = test(0, 14, 1);
        let model = Model::open(&test.model, &ModelOptions::default()).unwrap();
        let work = Work::of(&model);
        let passes: Vec<Cost> = work.passes(&test).collect();
        let tokens: Vec<f64> = passes.iter().map(|pass| pass.int8 / work.layers.int8).collect();
        let outputs = work.output.int8 / work.layers.int8;
        let expected = [4.0, 4.0 + outputs, 4.0, 2.0 + outputs, 1.0 + outputs];
        assert!(tokens.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{tokens:?} {expected:?}");
        assert_eq!(passes.len(), 5);
        assert!(outputs > 0.0);
    }

    #[test]
    fn a_window_bounds_what_is_seen_and_read() {
        let cost = Cost { bytes: 100.0, int8: 0.0, f32: 0.0 };
        let work = Work {
            layers: cost,
            output: cost,
            n_head_kv: 1,
            head_dim_k: 1,
            head_dim_v: 0,
            activations: 0,
            attention: 1.0,
            window: 3,
        };
        let passes: Vec<Cost> = work.passes(&test(0, 8, 1)).collect();
        assert_eq!(passes.iter().map(|pass| pass.f32).collect::<Vec<_>>(), [9.0, 12.0, 3.0]);
        assert_eq!(passes.iter().map(|pass| pass.bytes).collect::<Vec<_>>(), [108.0, 212.0, 206.0]);
    }
}
