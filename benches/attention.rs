//! Attention over a long cache: one token (decode) and a batch of 128 (prefill), for the shapes of Qwen3-0.6B and
//! SmolLM2-135M, every instruction set of this CPU, one thread.
//!
//! Throughput is counted in multiply-adds for batches, which they should be limited by, and in bytes of keys and
//! values for single tokens, which have to read them all.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use qgguf_kernels::{
    AttentionParams, Compute, Isa, Kernels, KvLayer, KvLayout, KvPool, KvShape, KvType, Span,
};

/// Query heads, key/value heads, and values per head.
const SHAPES: [(usize, usize, usize); 2] = [(16, 8, 128), (9, 3, 64)];
const DEPTHS: [usize; 3] = [512, 4096, 16384];
const BATCHES: [usize; 2] = [1, 128];

/// Numbers from -1 to 1, from a linear congruential generator.
fn numbers(n: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn attention(c: &mut Criterion) {
    for (n_head, n_head_kv, dim) in SHAPES {
        for ty in [KvType::F16, KvType::Q8_0] {
            let mut group = c.benchmark_group(format!("{n_head}/{n_head_kv} heads of {dim}, {}", ty.name()));
            group.sample_size(10);
            // The portable kernels are there to be right.
            for isa in Isa::available().filter(|&isa| isa != Isa::Portable) {
                let mut compute = Compute::new(Kernels::new(isa).expect("it is available"), 1);
                for depth in DEPTHS {
                    let n_kv = depth + BATCHES[1];
                    let kv = numbers(n_kv * n_head_kv * dim);
                    let shape = KvShape { n_head: n_head_kv, head_dim_k: dim, head_dim_v: dim };
                    let layout = KvLayout::new(ty, ty, shape).expect("multiples of 32");
                    let mut layer = KvLayer::new(layout, &KvPool::unlimited());
                    compute.kv_append(&mut layer, &kv, &kv, n_kv);
                    for n in BATCHES {
                        let q = numbers(n * n_head * dim);
                        let mut out = vec![0.0; q.len()];
                        let params = AttentionParams {
                            n_head,
                            scale: 1.0 / (dim as f32).sqrt(),
                            softcap: None,
                            window: None,
                        };
                        let keys: usize = (0..n).map(|i| depth + i + 1).sum();
                        group.throughput(if n == 1 {
                            Throughput::Bytes((2 * keys * n_head_kv * ty.row_bytes(dim)) as u64)
                        } else {
                            Throughput::Elements((2 * keys * n_head * dim) as u64)
                        });
                        let id = BenchmarkId::new(format!("{isa}, {n} at"), depth);
                        group.bench_function(id, |b| {
                            b.iter(|| {
                                let spans = [Span::whole(depth, n)];
                                compute.attention(&spans, |_| &layer, black_box(&q), &params, &mut out);
                            });
                        });
                    }
                }
            }
            group.finish();
        }
    }
}

criterion_group!(benches, attention);
criterion_main!(benches);
