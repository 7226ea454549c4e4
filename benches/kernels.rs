//! The product of weights and activations: every weight type on every instruction set of this CPU, one thread.
//!
//! Decoding is bytes of weights per second, from memory and from the cache; a batch is multiply-adds per second.
//! Quantizing the activations is part of it. `cargo bench --bench kernels -- 'q4_K/avx2'` picks some by name.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use qgguf_gguf::GgmlType;
use qgguf_kernels::{Compute, Isa, Kernels, MatmulJob, Matrix};

/// More than the caches hold, for weights that come from memory as a model's do at each token.
const FROM_MEMORY: usize = 128 << 20;
/// Less than a core's own cache, for what the kernel can do when its weights are at hand.
const FROM_CACHE: usize = 256 << 10;
/// Rows of a model of 1024, and those of small models that no superblock of 256 divides.
const ROW_LENGTHS: [usize; 3] = [1024, 896, 576];

/// What is measured: bytes of weights, tokens, and whether each of [`ROW_LENGTHS`] is worth its time.
const CASES: [(&str, usize, usize, bool); 4] = [
    ("1 token, from memory", FROM_MEMORY, 1, false),
    ("4 tokens, from memory", FROM_MEMORY, 4, false),
    ("1 token, from cache", FROM_CACHE, 1, true),
    ("512 tokens", FROM_CACHE, 512, true),
];

/// Numbers from a fixed sequence (a linear congruential generator).
fn random() -> impl Iterator<Item = u8> {
    std::iter::successors(Some(1u64), |state| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    })
    .map(|state| (state >> 56) as u8)
}

fn products(c: &mut Criterion) {
    // As the last byte of a float of any format, 0x20 to 0x3f makes it a normal number, which NaN and subnormal
    // ones are not in speed; the codes of quantized weights may be anything.
    let bytes: Vec<u8> = random().take(FROM_MEMORY).map(|byte| 0x20 | byte & 0x1f).collect();
    let x: Vec<f32> = random().take(512 * ROW_LENGTHS[0]).map(|byte| f32::from(byte) / 128.0 - 1.0).collect();
    let mut out = Vec::new();
    for ty in GgmlType::all() {
        for isa in Isa::available() {
            let mut compute = Compute::new(Kernels::new(isa).expect("it is available"), 1);
            let mut group = c.benchmark_group(format!("{ty}/{isa}"));
            group.sample_size(10).sampling_mode(SamplingMode::Flat);
            group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
            for (case, n_bytes, n_tokens, every_length) in CASES {
                for n_cols in if every_length { &ROW_LENGTHS[..] } else { &ROW_LENGTHS[..1] } {
                    let Some(w) = matrix(ty, *n_cols, &bytes[..n_bytes]) else { continue };
                    out.resize(n_tokens * w.n_rows(), 0.0);
                    group.throughput(if n_tokens < 512 {
                        Throughput::Bytes(w.n_bytes() as u64)
                    } else {
                        Throughput::Elements((n_tokens * w.n_rows() * n_cols) as u64)
                    });
                    group.bench_function(format!("{case}, rows of {n_cols}"), |b| {
                        b.iter(|| {
                            let x = black_box(&x[..n_tokens * n_cols]);
                            compute.matmul(x, n_tokens, &mut [MatmulJob { w, out: &mut out }]);
                        });
                    });
                }
            }
            group.finish();
        }
    }
}

/// As many rows as `bytes` hold, but a multiple of 16, as a model's are; `None` if the type has no kernel or no
/// such rows.
fn matrix(ty: GgmlType, n_cols: usize, bytes: &[u8]) -> Option<Matrix<'_>> {
    let row = ty.row_bytes(n_cols)?;
    let n_rows = bytes.len() / row / 16 * 16;
    Matrix::new(ty, n_cols, n_rows, &bytes[..n_rows * row]).ok()
}

criterion_group!(benches, products);
criterion_main!(benches);
