//! One draw from a vocabulary of 151,936 tokens (Qwen's), for flat and for peaked logits.

use criterion::{Criterion, criterion_group, criterion_main};
use qgguf::sampler::{Sampler, SamplerParams};
use std::hint::black_box;

const N_VOCAB: usize = 151_936;

/// Bell-shaped logits with a standard deviation of `spread`, from a linear congruential generator. A language
/// model's have 2 to 3 and a few tokens that stand out, which `peaks` adds.
fn logits(spread: f32, peaks: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let mut logits: Vec<f32> =
        (0..N_VOCAB).map(|_| ((0..12).map(|_| uniform()).sum::<f32>() - 6.0) * spread).collect();
    for i in 0..peaks {
        logits[(i * 7919 + 13) % N_VOCAB] = 12.0 + 8.0 / (1.0 + i as f32);
    }
    logits
}

fn draws(c: &mut Criterion) {
    let off = SamplerParams::neutral();
    let settings = [
        ("top_k 40 + top_p 0.95", SamplerParams { top_k: 40, top_p: 0.95, ..off.clone() }),
        ("top_p 0.95", SamplerParams { top_p: 0.95, ..off.clone() }),
        ("nothing cut off", off),
        ("defaults", SamplerParams::default()),
        ("greedy", SamplerParams::greedy()),
    ];
    for (shape, logits) in [("peaked", logits(2.5, 50)), ("flat", logits(1.0, 0))] {
        let mut group = c.benchmark_group(shape);
        for (name, params) in &settings {
            let mut sampler = Sampler::new(params.clone(), Some(1)).expect("the settings are valid");
            group.bench_function(*name, |b| {
                b.iter(|| sampler.sample(black_box(&logits)).expect("finite logits"))
            });
        }
        group.finish();
    }
}

criterion_group!(benches, draws);
criterion_main!(benches);
