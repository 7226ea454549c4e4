//! Attention over contexts of growing length: every type of cache on every instruction set of this CPU, one thread.
//!
//! One token reads keys and values at bytes per second; a batch computes with them at multiply-adds per second.
//! The heads are Qwen3-0.6B's. `cargo bench --bench attention -- 'f16/avx2'` picks some by name.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use qgguf_kernels::{AttentionParams, Compute, Isa, Kernels, KvLayer, KvType};

const N_HEAD: usize = 16;
const N_HEAD_KV: usize = 8;
const HEAD_DIM: usize = 128;

/// Tokens in the context, those that attend included.
const DEPTHS: [usize; 3] = [512, 4096, 16384];
/// Tokens of a batch: enough that all are computed together, few enough for a bench of a second.
const N_BATCH: usize = 32;

/// Values between -1 and 1 from a fixed sequence (a linear congruential generator).
fn random(n: usize) -> Vec<f32> {
    let next = |state: &u64| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    };
    std::iter::successors(Some(1u64), next)
        .map(|state| (state >> 40) as f32 / (1 << 23) as f32 - 1.0)
        .take(n)
        .collect()
}

fn attention(c: &mut Criterion) {
    let params = AttentionParams {
        n_head: N_HEAD,
        scale: (HEAD_DIM as f32).sqrt().recip(),
        softcap: None,
        window: None,
    };
    let kv_rows = random(DEPTHS[2] * N_HEAD_KV * HEAD_DIM);
    let q = random(N_BATCH * N_HEAD * HEAD_DIM);
    let mut out = vec![0.0; q.len()];
    for ty in KvType::ALL {
        for isa in Isa::available() {
            let mut compute = Compute::new(Kernels::new(isa).expect("it is available"), 1);
            let mut group = c.benchmark_group(format!("{}/{isa}", ty.name()));
            group.sample_size(10).sampling_mode(SamplingMode::Flat);
            group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
            for depth in DEPTHS {
                let mut kv = KvLayer::new(ty, ty, N_HEAD_KV, HEAD_DIM, HEAD_DIM).expect("heads of 128");
                let rows = &kv_rows[..depth * N_HEAD_KV * HEAD_DIM];
                compute.kv_store(&mut kv, 0, rows, rows, depth);
                for (case, n_tokens) in [("1 token", 1), ("32 tokens", N_BATCH)] {
                    let bytes = 2 * depth * N_HEAD_KV * ty.row_bytes(HEAD_DIM);
                    let positions: usize = (0..n_tokens).map(|i| depth - i).sum();
                    group.throughput(if n_tokens == 1 {
                        Throughput::Bytes(bytes as u64)
                    } else {
                        Throughput::Elements((2 * positions * N_HEAD * HEAD_DIM) as u64)
                    });
                    let n = n_tokens * N_HEAD * HEAD_DIM;
                    group.bench_function(format!("{case}, depth {depth}"), |b| {
                        b.iter(|| {
                            let pos0 = depth - n_tokens;
                            compute.attention(
                                &kv,
                                black_box(&q[..n]),
                                pos0,
                                n_tokens,
                                &params,
                                &mut out[..n],
                            );
                        });
                    });
                }
            }
            group.finish();
        }
    }
}

criterion_group!(benches, attention);
criterion_main!(benches);
