//! Models that contradict themselves, and sessions at their limits.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use qgguf::engine::{EngineOptions, EvalError};
use qgguf::generate::{GenerateOptions, Generation, StopReason, generate};
use qgguf::model::{Model, ModelOptions};
use qgguf::sampler::{Sampler, SamplerParams};
use qgguf::session::Session;
use qgguf_gguf::{GgmlType, GgufFile, GgufWriter, Metadata, MetadataArray, MetadataValue, TensorSpec};

use crate::fixtures::fixtures;
use crate::support::{failure, qgguf, tiny_model};

/// Writes the tiny model with changed metadata and tensor records; data is cut or filled up to fit.
fn changed(to: &Path, metadata: impl FnOnce(&mut Metadata), tensors: impl FnOnce(&mut Vec<TensorSpec>)) {
    let file = GgufFile::open(tiny_model()).unwrap();
    let mut m = file.metadata().clone();
    metadata(&mut m);
    let mut specs: Vec<TensorSpec> = file.tensors().iter().map(TensorSpec::from).collect();
    tensors(&mut specs);
    let mut writer = GgufWriter::create(to, 3, &m, &specs).unwrap();
    for spec in &specs {
        let n = spec.shape[1..].iter().product::<u64>() as usize
            * spec.ty.row_bytes(spec.shape[0] as usize).unwrap();
        let mut bytes = file.tensor(&spec.name).map_or(Vec::new(), |t| t.bytes().to_vec());
        bytes.resize(n, 0);
        writer.write(&bytes).unwrap();
    }
    writer.finish().unwrap();
}

fn refused(metadata: impl FnOnce(&mut Metadata), tensors: impl FnOnce(&mut Vec<TensorSpec>), expected: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.gguf");
    changed(&path, metadata, tensors);
    let error = Model::open(&path, &ModelOptions::default()).err().expect("must be refused").to_string();
    assert_eq!(error.strip_prefix(&format!("{}: ", path.display())), Some(expected), "{error}");
}

fn key(name: &'static str, value: MetadataValue, expected: &str) {
    refused(|m| drop(m.set(name, value)), |_| {}, expected);
}

fn spec<'a>(specs: &'a mut [TensorSpec], name: &str) -> &'a mut TensorSpec {
    specs.iter_mut().find(|t| t.name == name).unwrap()
}

#[test]
fn the_unchanged_model_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("good.gguf");
    changed(&path, |_| {}, |_| {});
    Model::open(&path, &ModelOptions::default()).unwrap();
}

#[test]
fn a_vocabulary_alone_is_told_as_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vocabulary.gguf");
    changed(&path, |_| {}, Vec::clear);
    let expected =
        "this file has a vocabulary and no weights: texts can be tokenized with it, but no model is in it";
    let line = failure(qgguf("run -p And -m").arg(&path), 1);
    assert_eq!(line, format!("qgguf: {}: {expected}", path.display()));
    let text = crate::support::stdout(qgguf("tokenize --ids -p And -m").arg(&path));
    assert!(!text.trim().is_empty());
}

#[test]
fn embeddings_without_tokens_are_told_once_and_have_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fewer.gguf");
    let fewer = |m: &mut Metadata| {
        let tokens = m.strings("tokenizer.ggml.tokens").unwrap().unwrap().iter().take(4095).collect();
        m.set("tokenizer.ggml.tokens", MetadataValue::Array(MetadataArray::String(tokens)));
    };
    changed(&path, fewer, |_| {});
    let model = Model::open(&path, &ModelOptions::default()).unwrap();
    assert_eq!(
        model.warnings(),
        [
            "the vocabulary has 4095 tokens, but there are 4096 token embeddings: ids from 4095 on have no text"
        ]
    );
    assert_eq!(model.tokenizer().piece(4095, true), b"");
    // Every token is one of those.
    let output = qgguf("run -p And --temp 0 -n 3 -l 4095+10000 -m").arg(&path).output().unwrap();
    let (text, notes) = (String::from_utf8(output.stdout.clone()).unwrap(), crate::support::stderr(&output));
    assert_eq!((text.trim(), notes.matches("have no text").count()), ("And", 1), "{notes}");
}

#[test]
fn metadata_that_no_model_can_have() {
    use MetadataValue::{F32, String, U32};
    let known = "gemma2, gemma3, granite, llama, mistral3, olmo2, phi3, qwen2, qwen3, qwen3moe, smollm3";
    key(
        "general.architecture",
        String("mamba".into()),
        &format!("architecture \"mamba\" is not supported (supported: {known})"),
    );
    key("general.type", String("adapter".into()), "this is a GGUF of type \"adapter\", not a model");
    key(
        "general.architecture",
        U32(3),
        "metadata key \"general.architecture\": expected string, found u32 3",
    );
    key("qwen3.block_count", U32(0), "metadata key \"qwen3.block_count\": expected 1 to 512, found 0");
    key(
        "qwen3.block_count",
        U32(u32::MAX),
        "metadata key \"qwen3.block_count\": expected 1 to 512, found 4294967295",
    );
    key("qwen3.block_count", U32(5), "tensor \"blk.4.attn_norm.weight\" is missing");
    key(
        "qwen3.block_count",
        U32(3),
        "architecture \"qwen3\" has no use for tensor \"blk.3.attn_k.weight\" (and 10 more)",
    );
    key(
        "qwen3.context_length",
        U32(0),
        "metadata key \"qwen3.context_length\": expected at least 1, found 0",
    );
    key(
        "qwen3.embedding_length",
        U32(512),
        "tensor \"token_embd.weight\": expected shape [512, 4096], found [256, 4096]",
    );
    key(
        "qwen3.feed_forward_length",
        U32(512),
        "tensor \"blk.0.ffn_gate.weight\": expected shape [256, 512], found [256, 768]",
    );
    key(
        "qwen3.attention.head_count",
        U32(0),
        "metadata key \"qwen3.attention.head_count\": expected at least 1, found 0 in layer 0",
    );
    key(
        "qwen3.attention.head_count_kv",
        MetadataValue::Array(MetadataArray::U32(vec![2, 2, 0, 2])),
        "metadata key \"qwen3.attention.head_count_kv\": expected at least 1, found 0 in layer 2",
    );
    key(
        "qwen3.attention.head_count_kv",
        U32(3),
        "metadata key \"qwen3.attention.head_count\": expected query heads a multiple of key/value heads, found 4 query and 3 key/value heads in layer 0",
    );
    key(
        "qwen3.attention.head_count_kv",
        MetadataValue::Array(MetadataArray::U32(vec![2; 3])),
        "metadata key \"qwen3.attention.head_count_kv\": expected an integer in the range of u32, or an array of 4 of them, found array of u32 of 3",
    );
    key(
        "qwen3.attention.key_length",
        U32(0),
        "metadata key \"qwen3.attention.key_length\": expected 1 to 4096, found 0",
    );
    key(
        "qwen3.attention.key_length",
        U32(64),
        "tensor \"blk.0.attn_q.weight\": expected shape [256, 256], found [256, 512]",
    );
    key(
        "qwen3.attention.layer_norm_rms_epsilon",
        F32(f32::NAN),
        "metadata key \"qwen3.attention.layer_norm_rms_epsilon\": expected a number not below 0, found NaN",
    );
    key(
        "qwen3.rope.freq_base",
        F32(-1.0),
        "metadata key \"qwen3.rope.freq_base\": expected above 0, found -1",
    );
    key(
        "qwen3.rope.dimension_count",
        U32(7),
        "metadata key \"qwen3.rope.dimension_count\": expected an even number, at most the head width 128, found 7",
    );
    key(
        "qwen3.rope.scaling.type",
        String("magic".into()),
        "metadata key \"qwen3.rope.scaling.type\": expected none, linear, yarn or longrope, found magic",
    );
}

#[test]
fn tensors_that_do_not_fit() {
    let tensors = |change: fn(&mut Vec<TensorSpec>), expected: &str| refused(|_| {}, change, expected);
    tensors(|t| t.retain(|t| t.name != "output_norm.weight"), "tensor \"output_norm.weight\" is missing");
    tensors(
        |t| spec(t, "blk.1.attn_k_norm.weight").shape = vec![64],
        "tensor \"blk.1.attn_k_norm.weight\": expected shape [128], found [64]",
    );
    tensors(
        |t| spec(t, "blk.2.attn_v.weight").shape = vec![256, 255],
        "tensor \"blk.2.attn_v.weight\": expected shape [256, 256], found [256, 255]",
    );
    tensors(
        |t| spec(t, "token_embd.weight").shape = vec![256, 4000],
        "the vocabulary has 4096 tokens, but there are only 4000 token embeddings",
    );
    tensors(
        |t| spec(t, "blk.0.ffn_up.weight").ty = GgmlType::IQ2_XS,
        "tensor \"blk.0.ffn_up.weight\" has type iq2_xs, which is not supported for inference",
    );
    tensors(
        |t| spec(t, "blk.0.attn_norm.weight").ty = GgmlType::I32,
        "tensor \"blk.0.attn_norm.weight\" has type i32, which is not supported for inference",
    );
    tensors(
        |t| t.push(TensorSpec { name: "blk.0.attn_q.extra".into(), shape: vec![1], ty: GgmlType::F32 }),
        "architecture \"qwen3\" has no use for tensor \"blk.0.attn_q.extra\"",
    );
}

fn tiny(n_ctx: usize) -> Session {
    let model = Arc::new(Model::open(tiny_model(), &ModelOptions::default()).unwrap());
    Session::new(model, Some(n_ctx), &EngineOptions { n_threads: 1, ..EngineOptions::default() }).unwrap()
}

#[test]
fn a_cache_of_a_type_that_the_heads_do_not_fit_is_refused() {
    let Some(dir) = fixtures("a_cache_of_a_type_that_the_heads_do_not_fit_is_refused") else { return };
    let path = dir.join("gguf/phi3-tiny-F16.gguf");
    let line = failure(qgguf("run -p And -ctk q8_0 -m").arg(&path), 1);
    let expected =
        "phi3-tiny-F16.gguf: keys of 16 values per head cannot be stored as q8_0, which takes 32 at a time";
    assert!(line.contains(expected), "{line}");
}

#[test]
fn tokens_that_cannot_be_evaluated_leave_the_session_as_it_was() {
    let mut session = tiny(8);
    session.eval(&[1, 2, 3]).unwrap();
    assert_eq!(session.eval(&[]), Err(EvalError::Empty));
    assert_eq!(session.eval(&[4096]), Err(EvalError::BadToken { id: 4096, n_vocab: 4096 }));
    let full = session.eval(&[1; 6]).unwrap_err();
    assert_eq!(full.to_string(), "9 tokens do not fit the context of 8");
    assert_eq!(session.eval_prompt(&[1; 9]).unwrap_err(), EvalError::ContextFull { wanted: 9, n_ctx: 8 });
    assert_eq!(session.tokens(), [1, 2, 3]);
    session.eval(&[1; 5]).unwrap();
}

#[test]
fn a_shared_prefix_is_kept_and_changes_nothing() {
    let mut session = tiny(64);
    session.eval(&[5, 6, 7, 8, 9]).unwrap();
    let (logits, kept) = session.eval_prompt(&[5, 6, 7, 20, 21]).unwrap();
    assert_eq!(kept, 3);
    let logits = logits.to_vec();
    assert_eq!(tiny(64).eval(&[5, 6, 7, 20, 21]).unwrap(), logits);
    // Nothing is new: the last token is evaluated again for its logits.
    assert_eq!(session.eval_prompt(&[5, 6, 7]).unwrap().1, 2);
    assert_eq!(session.tokens(), [5, 6, 7]);
}

fn run(session: &mut Session, prompt: &[u32], options: &GenerateOptions) -> Generation {
    let mut sampler = Sampler::new(SamplerParams::greedy(), Some(1)).unwrap();
    generate(session, &mut sampler, prompt, options, |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn a_full_context_ends_the_generation_or_is_shifted() {
    let mut session = tiny(16);
    let prompt = session.model().tokenizer().encode("In the beginning", true, true);
    let options = GenerateOptions { n_predict: Some(40), ignore_eos: true, ..GenerateOptions::default() };
    let stopped = run(&mut session, &prompt, &options);
    assert_eq!(stopped.stop, StopReason::ContextFull(16));
    // The last token is drawn from the logits of the last position.
    assert_eq!(prompt.len() + stopped.tokens.len(), 17);

    let shifting = GenerateOptions { context_shift: true, n_keep: 2, ..options };
    let shifted = run(&mut session, &prompt, &shifting);
    assert_eq!((shifted.stop, shifted.tokens.len()), (StopReason::Length, 40));
    assert_eq!(shifted.tokens[..stopped.tokens.len()], stopped.tokens);
    assert_eq!(session.tokens()[..2], prompt[..2], "the first tokens are kept");
    assert!(session.tokens().len() <= 16);

    // More than the prompt cannot be kept, nor a prompt that fills the context.
    let keep_all = GenerateOptions { n_keep: 999, ..shifting };
    assert_eq!(run(&mut session, &prompt, &keep_all).stop, StopReason::Length);
    assert_eq!(session.tokens()[..prompt.len()], prompt);
    assert_eq!(run(&mut session, &[7; 16], &keep_all).stop, StopReason::Length);
    assert_eq!(run(&mut tiny(1), &[7], &keep_all).stop, StopReason::ContextFull(1));
}

#[test]
fn generation_stops_at_strings_lengths_and_wishes() {
    let mut session = tiny(128);
    let prompt = session.model().tokenizer().encode("In the beginning", true, true);
    let options = |n: usize, stop: &str| GenerateOptions {
        n_predict: Some(n),
        stop: vec![stop.to_owned()],
        ..GenerateOptions::default()
    };
    let stopped = run(&mut session, &prompt, &options(30, "and the"));
    assert_eq!(stopped.text, " of the world, ");
    assert_eq!(stopped.stop, StopReason::StopString("and the".to_owned()));
    assert!(run(&mut session, &prompt, &options(0, "")).tokens.is_empty());
    assert_eq!(run(&mut session, &prompt, &options(3, "")).text, " of the world");

    let mut sampler = Sampler::new(SamplerParams::greedy(), Some(1)).unwrap();
    let options = options(30, "");
    let stopped =
        generate(&mut session, &mut sampler, &prompt, &options, |_| ControlFlow::Break(())).unwrap();
    assert_eq!((stopped.stop, stopped.tokens.len()), (StopReason::Interrupted, 1));
}
