//! Loading and running the tokenizer: ordinary text, and the inputs that make a careless one quadratic.
//!
//! Uses the vocabulary of the model in `models/`, and the real ones among the reference data where they are.

use std::path::Path;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use qgguf::tokenizer::{Tokenizer, TokenizerOptions};
use qgguf_gguf::GgufFile;

/// Vocabularies by name; those of the reference data may be missing.
fn vocabularies() -> Vec<(&'static str, GgufFile)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fixtures = qgguf_testing::fixtures_path();
    let real = |name: &'static str| (name, fixtures.join(format!("tokenizer/ggml-vocab-{name}.gguf")));
    let mut files = vec![("kjv-tiny", root.join("models/kjv-tiny-Q4_K_M.gguf"))];
    files.extend(["starcoder", "qwen2", "llama-bpe", "llama-spm"].map(real));
    files.into_iter().filter_map(|(name, path)| Some((name, GgufFile::open(path).ok()?))).collect()
}

fn texts() -> [(&'static str, String); 5] {
    let sentence = "In the beginning God created the heaven and the earth; I'm sure it's 12,345 years ago.\n";
    let cjk: String = (0x4e00..0x9fa5).filter_map(char::from_u32).collect();
    let mut megabyte = cjk.repeat(17);
    megabyte.truncate((0..=1 << 20).rev().find(|&at| megabyte.is_char_boundary(at)).unwrap_or(0));
    [
        ("english 1 MiB", sentence.repeat((1 << 20) / sentence.len())),
        ("131072 x Z", "Z".repeat(131_072)),
        ("100000 newlines", "\n".repeat(100_000)),
        ("100000 spaces and a letter", format!("{}x", " ".repeat(100_000))),
        ("cjk 1 MiB", megabyte),
    ]
}

fn benches(c: &mut Criterion) {
    let options = TokenizerOptions::default();
    for (name, file) in vocabularies() {
        let mut group = c.benchmark_group(format!("tokenizer/{name}"));
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(2));
        let load = || Tokenizer::from_metadata(file.metadata(), &options).expect("a sound vocabulary");
        group.bench_function("load", |b| b.iter_batched(|| (), |()| load(), BatchSize::PerIteration));
        let tokenizer = load();
        for (text_name, text) in texts() {
            group.throughput(Throughput::Bytes(text.len() as u64));
            group.bench_function(text_name, |b| b.iter(|| tokenizer.encode(&text, true, true)));
        }
        group.finish();
    }
}

criterion_group!(all, benches);
criterion_main!(all);
