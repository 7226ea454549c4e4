//! A gemma2 model made by hand, small enough for its reference to stand here.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use qgguf::engine::EngineOptions;
use qgguf::model::{Model, ModelOptions};
use qgguf::session::Session;
use qgguf_kernels::{Isa, Kernels, KvType};

use crate::handmade::Gguf;

const N_VOCAB: usize = 40;
const N_EMBD: usize = 32;
const N_FF: usize = 64;
const N_LAYER: usize = 3;
const N_HEAD: usize = 2;
const N_HEAD_KV: usize = 1;
const HEAD_DIM: usize = 16;

/// Whole numbers from -1000 to 1000, thousandths of which are the weights: exact on every machine.
struct Numbers(u64);

impl Numbers {
    fn take(&mut self, n: usize, scale: f32, middle: f32) -> Vec<f32> {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as i64 % 2001 - 1000
        };
        (0..n).map(|_| middle + next() as f32 * scale / 1024.0).collect()
    }
}

/// The width of the window and the caps of scores and logits.
type Written = (u32, f32, f32);

/// Windows of four positions in every second layer, and caps low enough to bend scores and logits.
const TIGHT: Written = (4, 2.0, 3.0);

/// The model, with keys for windows and caps or without.
fn model(dir: &Path, name: &str, written: Option<Written>) -> PathBuf {
    let mut gguf = Gguf::default();
    gguf.string("general.architecture", "gemma2");
    for (key, value) in [
        ("context_length", 8192),
        ("embedding_length", N_EMBD),
        ("block_count", N_LAYER),
        ("feed_forward_length", N_FF),
        ("attention.head_count", N_HEAD),
        ("attention.head_count_kv", N_HEAD_KV),
        ("attention.key_length", HEAD_DIM),
        ("attention.value_length", HEAD_DIM),
    ] {
        gguf.u32(&format!("gemma2.{key}"), value as u32);
    }
    gguf.f32("gemma2.attention.layer_norm_rms_epsilon", 1e-6);
    if let Some((window, score_cap, logit_cap)) = written {
        gguf.u32("gemma2.attention.sliding_window", window);
        gguf.f32("gemma2.attn_logit_softcapping", score_cap);
        gguf.f32("gemma2.final_logit_softcapping", logit_cap);
    }
    gguf.string("tokenizer.ggml.model", "llama");
    let tokens: Vec<String> = (0..N_VOCAB).map(|i| format!("t{i}")).collect();
    gguf.strings("tokenizer.ggml.tokens", &tokens.iter().map(String::as_str).collect::<Vec<_>>());
    gguf.f32s("tokenizer.ggml.scores", &[0.0; N_VOCAB]);

    let mut numbers = Numbers(7);
    let mut matrix = |gguf: &mut Gguf, name: &str, n_cols: usize, n_rows: usize, scale: f32| {
        let values = numbers.take(n_cols * n_rows, scale, 0.0);
        gguf.f32_tensor(name, &[n_cols as u64, n_rows as u64], &values);
    };
    let mut others = Numbers(11);
    let mut norm = |gguf: &mut Gguf, name: &str| {
        gguf.f32_tensor(name, &[N_EMBD as u64], &others.take(N_EMBD, 0.5, 1.0));
    };
    matrix(&mut gguf, "token_embd.weight", N_EMBD, N_VOCAB, 0.5);
    norm(&mut gguf, "output_norm.weight");
    for il in 0..N_LAYER {
        for name in ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"] {
            norm(&mut gguf, &format!("blk.{il}.{name}.weight"));
        }
        for (name, n_cols, n_rows, scale) in [
            ("attn_q", N_EMBD, N_HEAD * HEAD_DIM, 1.0),
            ("attn_k", N_EMBD, N_HEAD_KV * HEAD_DIM, 1.0),
            ("attn_v", N_EMBD, N_HEAD_KV * HEAD_DIM, 0.5),
            ("attn_output", N_HEAD * HEAD_DIM, N_EMBD, 0.5),
            ("ffn_gate", N_EMBD, N_FF, 0.5),
            ("ffn_up", N_EMBD, N_FF, 0.5),
            ("ffn_down", N_FF, N_EMBD, 0.5),
        ] {
            matrix(&mut gguf, &format!("blk.{il}.{name}.weight"), n_cols, n_rows, scale);
        }
    }
    gguf.save(dir, name)
}

/// llama.cpp's logits of `(7 i + 3) mod 40` for i below 12, at the last position: keys and values in f32, one thread.
const LLAMA_CPP: [f32; N_VOCAB] = [
    2.8303, 0.8046, 1.8598, 0.7544, -1.1231, -2.1266, -0.3091, -0.8976, -0.7381, -0.4719, -1.5172, -0.7307,
    0.5698, 1.1508, 0.3940, -1.5860, -0.6559, -1.8011, -1.3192, -0.1040, -0.1471, -1.3488, 1.1576, 0.6645,
    0.5055, -0.4559, -0.3525, 0.6797, -1.1924, 1.7251, -0.0249, -0.0456, -0.6579, -0.7930, 0.5972, 1.5344,
    -2.1973, 0.5531, -0.6025, -1.0420,
];

/// The logits of the last token.
fn logits(path: &Path, tokens: &[u32], options: EngineOptions) -> Vec<f32> {
    let model = Arc::new(Model::open(path, &ModelOptions::default()).unwrap());
    let options = EngineOptions { type_k: KvType::F32, type_v: KvType::F32, ..options };
    Session::new(model, None, &options).unwrap().eval(tokens).unwrap().to_vec()
}

#[test]
fn logits_are_those_of_llama_cpp() {
    let dir = tempfile::tempdir().unwrap();
    let path = model(dir.path(), "tight.gguf", Some(TIGHT));
    let tokens: Vec<u32> = (0..12).map(|i| (7 * i + 3) % 40).collect();
    let expected = logits(&path, &tokens, EngineOptions::default());
    let off = expected.iter().zip(&LLAMA_CPP).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    // llama.cpp takes GELU from a table in half precision.
    assert!(off < 2e-3, "{off}: {expected:?}");
    for isa in Isa::available() {
        for (n_threads, n_ubatch) in [(1, 1), (2, 5), (3, 512)] {
            let kernels = Kernels::new(isa).unwrap();
            let options = EngineOptions { n_threads, n_ubatch, kernels, ..EngineOptions::default() };
            assert_eq!(logits(&path, &tokens, options), expected, "{isa}, {n_threads} threads, {n_ubatch}");
        }
    }
}

#[test]
fn what_no_key_says_is_what_the_family_has() {
    let dir = tempfile::tempdir().unwrap();
    let tokens: Vec<u32> = (0..4200).map(|i| (7 * i + i / 40) % 40).collect();
    let of = |name, written| logits(&model(dir.path(), name, written), &tokens, EngineOptions::default());
    let defaults = of("defaults.gguf", None);
    assert_eq!(defaults, of("written.gguf", Some((4096, 50.0, 30.0))));
    assert_ne!(defaults, of("everything.gguf", Some((0, 50.0, 30.0))));
    assert_ne!(defaults, of("scores.gguf", Some((4096, 0.0, 30.0))));
    assert_ne!(defaults, of("logits.gguf", Some((4096, 50.0, 0.0))));
}
