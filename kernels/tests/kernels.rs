//! Every kernel on every instruction set of this CPU: right, and the same bits everywhere.

use std::path::{Path, PathBuf};

use qgguf_gguf::GgmlType;
use qgguf_gguf::dequantize::dequantize_row;
use qgguf_kernels::{
    AttentionParams, Compute, Isa, Kernels, KvLayer, KvType, MatmulJob, Matrix, RopeLayout, RopeParams,
    RopeTable, sin_cos,
};

/// The folder of reference data, or `None` with a visible note; its absence fails in CI.
fn fixtures(test: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("QGGUF_FIXTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures"), PathBuf::from);
    if dir.is_dir() {
        return Some(dir);
    }
    assert!(std::env::var_os("CI").is_none(), "no fixtures at {}", dir.display());
    eprintln!("SKIPPED {test}: no fixtures at {}", dir.display());
    None
}

const TYPES: [GgmlType; 19] = {
    use GgmlType::*;
    [
        F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, TQ1_0,
        TQ2_0, MXFP4, NVFP4,
    ]
};

/// Small numbers from a fixed sequence (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn f32(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn f32s(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.f32()).collect()
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Where the half-precision scales of a block are.
fn scale_fields(ty: GgmlType) -> &'static [usize] {
    match ty {
        GgmlType::Q4_0 | GgmlType::Q5_0 | GgmlType::Q8_0 | GgmlType::IQ4_NL | GgmlType::IQ4_XS => &[0],
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K => &[0, 2],
        GgmlType::Q2_K => &[80, 82],
        GgmlType::Q3_K => &[108],
        GgmlType::Q6_K => &[208],
        GgmlType::TQ1_0 => &[52],
        GgmlType::TQ2_0 => &[64],
        _ => &[],
    }
}

/// Random blocks; with `tame` scales are ordinary numbers, else any bits.
fn weights(random: &mut Random, ty: GgmlType, n: usize, tame: bool) -> Vec<u8> {
    let mut bytes = random.bytes(ty.row_bytes(n).unwrap());
    if !tame {
        return bytes;
    }
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in scale_fields(ty) {
            block[at..at + 2].copy_from_slice(&half::f16::from_f32(random.f32() * 0.1).to_le_bytes());
        }
        match ty {
            GgmlType::F32 => block.copy_from_slice(&random.f32().to_le_bytes()),
            GgmlType::F16 => block.copy_from_slice(&half::f16::from_f32(random.f32()).to_le_bytes()),
            GgmlType::BF16 => block.copy_from_slice(&half::bf16::from_f32(random.f32()).to_le_bytes()),
            GgmlType::MXFP4 => block[0] = 120 + block[0] % 8,
            GgmlType::NVFP4 => block[..4].iter_mut().for_each(|s| *s %= 0x50),
            _ => {}
        }
    }
    bytes
}

fn product(isa: Isa, n_threads: usize, ty: GgmlType, w: &[u8], x: &[f32], n_cols: usize) -> Vec<f32> {
    let mut compute = Compute::new(Kernels::new(isa).unwrap(), n_threads);
    let n_rows = w.len() / ty.row_bytes(n_cols).unwrap();
    let n_tokens = x.len() / n_cols;
    let mut out = vec![0.0; n_rows * n_tokens];
    let w = Matrix::new(ty, n_cols, n_rows, w).unwrap();
    compute.matmul(x, n_tokens, &mut [MatmulJob { w, out: &mut out }]);
    out
}

fn assert_same_bits(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        assert!(same, "{what}: value {i} is {a:e} or {b:e}");
    }
}

#[test]
fn products_are_the_same_bits_on_every_instruction_set_and_thread_count() {
    let mut random = Random(1);
    for ty in TYPES {
        for (n_cols, n_rows) in [(256, 1), (256, 7), (768, 33)] {
            for tame in [true, false] {
                let w = weights(&mut random, ty, n_cols * n_rows, tame);
                let mut x = random.f32s(n_cols * 9);
                if !tame {
                    (x[3], x[n_cols + 5], x[2 * n_cols]) = (f32::NAN, f32::INFINITY, 1e38);
                    x[3 * n_cols..4 * n_cols].fill(0.0);
                    x[4 * n_cols..5 * n_cols].fill(1e-44);
                }
                let portable = product(Isa::Portable, 1, ty, &w, &x, n_cols);
                for isa in Isa::available() {
                    for n_threads in [1, 3] {
                        let out = product(isa, n_threads, ty, &w, &x, n_cols);
                        assert_same_bits(
                            &out,
                            &portable,
                            &format!("{ty} {isa} {n_threads} {n_cols}x{n_rows} {tame}"),
                        );
                    }
                }
            }
        }
    }
    for isa in Isa::ALL.into_iter().filter(|isa| Kernels::new(*isa).is_err()) {
        eprintln!("SKIPPED {isa} kernels: {}", Kernels::new(isa).err().unwrap());
    }
}

#[test]
fn a_batch_gives_the_bits_of_its_tokens_one_by_one() {
    let mut random = Random(2);
    for ty in TYPES {
        let (n_cols, n_rows) = (512, 10);
        let w = weights(&mut random, ty, n_cols * n_rows, true);
        for n_tokens in [2, 3, 5, 8, 17, 130] {
            let x = random.f32s(n_cols * n_tokens);
            let batch = product(Kernels::best().isa(), 2, ty, &w, &x, n_cols);
            let single: Vec<f32> =
                x.chunks(n_cols).flat_map(|x| product(Kernels::best().isa(), 1, ty, &w, x, n_cols)).collect();
            assert_same_bits(&batch, &single, &format!("{ty} {n_tokens}"));
        }
    }
}

/// Codes are within half a step of the activations; a product may differ by what that makes of the weights.
#[test]
fn products_are_near_the_exact_ones() {
    let Some(dir) = fixtures("products_are_near_the_exact_ones") else { return };
    let read = |name: &str| std::fs::read(dir.join("quant").join(name)).unwrap();
    let floats = |bytes: Vec<u8>| -> Vec<f32> {
        bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
    };
    let x = floats(read("act.f32.bin"));
    for ty in TYPES.into_iter().filter(|&ty| ty != GgmlType::F32) {
        let w = read(&format!("{}.bin", ty.name().to_uppercase()));
        let mut exact = vec![0.0; 21 * 1024];
        dequantize_row(ty, &w, &mut exact).unwrap();
        let out = product(Kernels::best().isa(), 1, ty, &w, &x, 1024);
        let mut worst = 0f64;
        for (t, x) in x.chunks(1024).enumerate() {
            for (r, row) in exact.chunks(1024).enumerate() {
                let dot: f64 = row.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
                let norm = |v: &[f32]| v.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
                let scale = norm(row) * norm(x);
                if scale > 0.0 {
                    worst = worst.max((f64::from(out[t * 21 + r]) - dot).abs() / scale);
                }
            }
        }
        // Seen: 3e-7 for the unquantized types, 2e-3 to 6e-3 for codes of 8 bits.
        let limit = if matches!(ty, GgmlType::F16 | GgmlType::BF16) { 1e-6 } else { 1e-2 };
        assert!(worst < limit, "{ty}: {worst:e}");
    }
}

/// The product of quantized activations, computed exactly from the codes that their definition gives.
#[test]
fn integer_products_are_exact() {
    let mut random = Random(3);
    for ty in TYPES.into_iter().skip(3) {
        let (n_cols, n_rows) = (1024, 6);
        let w = weights(&mut random, ty, n_cols * n_rows, true);
        let x = random.f32s(n_cols);
        let mut exact = vec![0.0; n_cols * n_rows];
        dequantize_row(ty, &w, &mut exact).unwrap();
        let block = if ty.block_size() == 256 { 256 } else { 32 };
        let codes: Vec<f64> = x
            .chunks(block)
            .flat_map(|x| {
                let largest = x.iter().fold(0f32, |m, x| m.max(x.abs()));
                let (inverse, d) = if block == 256 {
                    let extreme = x.iter().copied().find(|x| x.abs() == largest).unwrap();
                    (-127.0 / extreme, 1.0 / (-127.0 / extreme))
                } else {
                    (127.0 / largest, largest / 127.0)
                };
                x.iter().map(move |x| {
                    f64::from((x * inverse).round_ties_even().clamp(-127.0, 127.0)) * f64::from(d)
                })
            })
            .collect();
        let out = product(Kernels::best().isa(), 1, ty, &w, &x, n_cols);
        for (row, out) in exact.chunks(n_cols).zip(out) {
            let dot: f64 = row.iter().zip(&codes).map(|(&w, &a)| f64::from(w) * a).sum();
            let size: f64 = row.iter().zip(&codes).map(|(&w, &a)| (f64::from(w) * a).abs()).sum();
            assert!((f64::from(out) - dot).abs() <= 3e-7 * size, "{ty}: {out:e}, exactly {dot:e}");
        }
    }
}

#[test]
fn experts_give_the_bits_of_single_products() {
    let mut random = Random(4);
    let (n_cols, n_rows, n_experts) = (256, 12, 5);
    let w = weights(&mut random, GgmlType::Q4_K, n_cols * n_rows * n_experts, true);
    let size = w.len() / n_experts;
    let experts: Vec<Matrix<'_>> =
        w.chunks(size).map(|w| Matrix::new(GgmlType::Q4_K, n_cols, n_rows, w).unwrap()).collect();
    let x = random.f32s(4 * n_cols);
    let ids = [0, 3, 3, 1, 0, 4, 3, 0];
    let mut out = vec![0.0; ids.len() * n_rows];
    Compute::new(Kernels::best(), 2).matmul_experts(&x, &ids, experts.len(), |e| experts[e], &mut out);
    for (p, out) in out.chunks(n_rows).enumerate() {
        let w = &w[ids[p] as usize * size..][..size];
        let single =
            product(Kernels::best().isa(), 1, GgmlType::Q4_K, w, &x[p / 2 * n_cols..][..n_cols], n_cols);
        assert_same_bits(out, &single, &format!("pair {p}"));
    }
}

/// Distance in units of the last place of the exact value.
fn ulps(value: f32, exact: f64) -> f64 {
    let ulp = f64::from(f32::from_bits((exact as f32).abs().to_bits() + 1)) - f64::from((exact as f32).abs());
    (f64::from(value) - exact).abs() / ulp
}

#[test]
fn exp_is_right_to_two_ulps() {
    let mut random = Random(5);
    let mut x: Vec<f32> = (0..400_000).map(|i| -104.0 + 192.7 * (i as f32 / 400_000.0)).collect();
    x.extend((0..100_000).map(|_| random.f32()));
    for isa in Isa::available() {
        let mut y = x.clone();
        Kernels::new(isa).unwrap().exp(&mut y);
        for (&x, &y) in x.iter().zip(&y) {
            assert!(ulps(y, f64::from(x).exp()) <= 2.0, "{isa}: exp({x}) = {y:e}");
        }
        let mut special = [f32::NEG_INFINITY, -200.0, 0.0, -0.0, 89.0, f32::INFINITY, f32::NAN];
        Kernels::new(isa).unwrap().exp(&mut special);
        assert_eq!(special[..6], [0.0, 0.0, 1.0, 1.0, f32::INFINITY, f32::INFINITY], "{isa}");
        assert!(special[6].is_nan());
    }
}

#[test]
fn sines_are_right_for_large_angles() {
    let mut random = Random(6);
    for i in 0..200_000 {
        let x = random.f32() * 10f32.powi(i % 8);
        let (sin, cos) = sin_cos(x);
        let (exact_sin, exact_cos) = f64::from(x).sin_cos();
        assert!(
            (f64::from(sin) - exact_sin).abs() < 6.1e-8 && (f64::from(cos) - exact_cos).abs() < 6.1e-8,
            "{x}"
        );
    }
}

/// Lengths with and without a rest, each operation against its meaning in f64, and portable by bits.
#[test]
fn row_operations_are_right_and_the_same_bits() {
    let mut random = Random(7);
    for n in (1..70).chain([256, 1000]) {
        let (x, y) = (random.f32s(n), random.f32s(n));
        let run = |isa: Isa| -> Vec<Vec<f32>> {
            let mut c = Compute::new(Kernels::new(isa).unwrap(), 1);
            let mut all = vec![x.clone(); 7];
            c.rms_norm(&x, &y, 1e-5, &mut all[0]);
            c.swiglu(&mut all[1], &y);
            c.geglu(&mut all[2], &y);
            c.softcap(&mut all[3], 0.7);
            c.softmax(&mut all[4], n);
            c.add(&mut all[5], &y);
            c.scale(&mut all[6], 0.3);
            all
        };
        let portable = run(Isa::Portable);
        for isa in Isa::available() {
            for (op, (a, b)) in run(isa).iter().zip(&portable).enumerate() {
                assert_same_bits(a, b, &format!("{isa} operation {op} of {n}"));
            }
        }
        let wide: Vec<f64> = x.iter().map(|&x| x.into()).collect();
        let norm = (wide.iter().map(|x| x * x).sum::<f64>() / n as f64 + 1e-5).sqrt();
        let total: f64 = wide.iter().map(|x| x.exp()).sum();
        for (i, &x) in wide.iter().enumerate() {
            let y = f64::from(y[i]);
            let gelu = 0.5 * x * (1.0 + (0.797_884_560_8 * x * (1.0 + 0.044715 * x * x)).tanh());
            let exact = [
                x / norm * y,
                x / (1.0 + (-x).exp()) * y,
                gelu * y,
                0.7 * (x / 0.7).tanh(),
                x.exp() / total,
                x + y,
                x * 0.3,
            ];
            for (op, exact) in exact.into_iter().enumerate() {
                let found = f64::from(portable[op][i]);
                assert!(
                    (found - exact).abs() <= 4e-7 * exact.abs() + 1.5e-7,
                    "operation {op} of {n}: {found} {exact}"
                );
            }
        }
    }
}

/// What attention over some keys and values is made of.
struct Case {
    k: Vec<f32>,
    v: Vec<f32>,
    q: Vec<f32>,
    n: usize,
    dims: (usize, usize),
    params: AttentionParams,
}

const N_HEAD_KV: usize = 2;

impl Case {
    fn new(
        random: &mut Random,
        n: usize,
        dims: (usize, usize),
        window: Option<usize>,
        softcap: Option<f32>,
    ) -> Case {
        Case {
            k: random.f32s(n * N_HEAD_KV * dims.0),
            v: random.f32s(n * N_HEAD_KV * dims.1),
            q: random.f32s(n * 4 * dims.0),
            n,
            dims,
            params: AttentionParams { n_head: 4, scale: 0.4, softcap, window },
        }
    }

    fn run(&self, isa: Isa, n_threads: usize, batch: usize, ty: KvType) -> Vec<f32> {
        let mut compute = Compute::new(Kernels::new(isa).unwrap(), n_threads);
        let mut kv = KvLayer::new(ty, ty, N_HEAD_KV, self.dims.0, self.dims.1).unwrap();
        let mut out = Vec::new();
        for pos0 in (0..self.n).step_by(batch) {
            let n = batch.min(self.n - pos0);
            let part = |x: &[f32], row: usize| x[pos0 * row..(pos0 + n) * row].to_vec();
            let (row_k, row_v) = (N_HEAD_KV * self.dims.0, N_HEAD_KV * self.dims.1);
            compute.kv_store(&mut kv, pos0, &part(&self.k, row_k), &part(&self.v, row_v), n);
            let mut rows = vec![f32::NAN; n * 4 * self.dims.1];
            compute.attention(&kv, &part(&self.q, 4 * self.dims.0), pos0, n, &self.params, &mut rows);
            out.extend(rows);
        }
        out
    }

    fn exact(&self) -> Vec<f64> {
        let mut out = Vec::new();
        for pos in 0..self.n {
            for head in 0..4 {
                let q = &self.q[(pos * 4 + head) * self.dims.0..][..self.dims.0];
                let first = self.params.window.map_or(0, |w| (pos + 1).saturating_sub(w));
                let weights: Vec<f64> = (first..=pos)
                    .map(|p| {
                        let k = &self.k[(p * N_HEAD_KV + head / 2) * self.dims.0..][..self.dims.0];
                        let dot: f64 = q.iter().zip(k).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
                        let score = dot * f64::from(self.params.scale);
                        self.params
                            .softcap
                            .map_or(score, |c| f64::from(c) * (score / f64::from(c)).tanh())
                            .exp()
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                out.extend((0..self.dims.1).map(|d| {
                    let value = |p: usize| f64::from(self.v[(p * N_HEAD_KV + head / 2) * self.dims.1 + d]);
                    (first..=pos).map(|p| weights[p - first] * value(p)).sum::<f64>() / total
                }));
            }
        }
        out
    }
}

#[test]
fn attention_is_right_and_the_same_bits_however_it_is_split() {
    let mut random = Random(8);
    for (n, dims, window, softcap) in [
        (1, (16, 16), None, None),
        (150, (32, 32), None, None),
        (300, (20, 70), None, Some(2.0)),
        (300, (128, 128), Some(40), None),
        (260, (64, 80), Some(129), None),
    ] {
        let case = Case::new(&mut random, n, dims, window, softcap);
        let reference = case.run(Isa::Portable, 1, n, KvType::F32);
        for (found, exact) in reference.iter().zip(case.exact()) {
            assert!((f64::from(*found) - exact).abs() < 2e-6, "{n} {dims:?}: {found} {exact}");
        }
        for (ty, limit) in [(KvType::F32, 0.0), (KvType::F16, 2e-3), (KvType::Q8_0, 2e-2)] {
            if !dims.0.is_multiple_of(ty.granularity()) || !dims.1.is_multiple_of(ty.granularity()) {
                continue;
            }
            let stored = case.run(Isa::Portable, 1, n, ty);
            for (found, exact) in stored.iter().zip(&reference) {
                assert!((found - exact).abs() <= limit, "{ty:?} {n} {dims:?}: {found} {exact}");
            }
            for isa in Isa::available() {
                for (n_threads, batch) in [(1, 1), (2, 7), (3, 64), (7, 512)] {
                    let what = format!("{isa} {n_threads} {batch} {ty:?} {n} {dims:?}");
                    assert_same_bits(&case.run(isa, n_threads, batch, ty), &stored, &what);
                }
            }
        }
    }
}

#[test]
fn a_cache_grows_with_use_and_shrinks_again() {
    let mut compute = Compute::new(Kernels::best(), 1);
    let mut kv = KvLayer::new(KvType::F16, KvType::F32, 1, 8, 4).unwrap();
    assert_eq!((kv.len(), kv.bytes()), (0, 0));
    compute.kv_store(&mut kv, 0, &[0.5; 8 * 129], &[0.5; 4 * 129], 129);
    assert_eq!((kv.len(), kv.bytes()), (129, 2 * 128 * (8 * 2 + 4 * 4)));
    kv.truncate(128);
    assert_eq!((kv.len(), kv.bytes()), (128, 128 * (8 * 2 + 4 * 4)));
}

#[test]
fn matrices_that_cannot_be_used_are_refused() {
    let refused =
        |ty, n_cols, n_rows, n| Matrix::new(ty, n_cols, n_rows, &vec![0; n]).unwrap_err().to_string();
    assert_eq!(refused(GgmlType::IQ2_XS, 256, 1, 74), "there is no matrix kernel for type iq2_xs");
    assert_eq!(refused(GgmlType::Q4_0, 32, 2, 18), "2 rows of 32 weights of type q4_0 do not take 18 bytes");
    assert_eq!(refused(GgmlType::Q4_0, 33, 1, 18), "1 rows of 33 weights of type q4_0 do not take 18 bytes");
    assert_eq!(refused(GgmlType::F32, 1, 0, 0), "0 rows of 1 weights of type f32 do not take 0 bytes");
}

#[test]
fn instruction_sets_have_names() {
    assert_eq!("AVX2".parse(), Ok(Isa::Avx2));
    let error = "sse9".parse::<Isa>().unwrap_err().to_string();
    assert!(error.starts_with("unknown instruction set \"sse9\" (known: portable, avx2"), "{error}");
}

#[test]
fn an_instruction_set_of_another_architecture_is_refused_by_its_name() {
    let (isa, architecture) =
        if cfg!(target_arch = "x86_64") { (Isa::Neon, "aarch64") } else { (Isa::Avx2, "x86_64") };
    let error = Kernels::new(isa).err().unwrap().to_string();
    assert!(error.contains(&format!("{isa} needs the CPU feature \"{architecture}\"")), "{error}");
}

fn rope(n_dims: usize) -> RopeParams {
    RopeParams {
        n_dims,
        freq_base: 10_000.0,
        freq_scale: 1.0,
        ext_factor: 0.0,
        attn_factor: 1.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        n_ctx_orig: 4096,
        factors: None,
    }
}

/// Rotates two heads of 8 at positions 5 and 6.
fn rotated(params: &RopeParams, layout: RopeLayout, x: &[f32]) -> Vec<f32> {
    let (mut table, mut x) = (RopeTable::default(), x.to_vec());
    params.fill(&mut table, 5, 2);
    Compute::new(Kernels::best(), 1).rope(&mut x, 2, 8, &table, layout);
    x
}

#[test]
fn heads_are_rotated_by_the_angle_of_their_position() {
    let x = Random(9).f32s(32);
    for (layout, n_dims) in
        [(RopeLayout::Norm, 8), (RopeLayout::Neox, 8), (RopeLayout::Norm, 6), (RopeLayout::Neox, 4)]
    {
        let mut params = rope(n_dims);
        params.freq_scale = 0.5;
        params.attn_factor = 1.5;
        params.factors = Some(vec![1.0, 2.0, 3.0, 4.0][..n_dims / 2].to_vec());
        let found = rotated(&params, layout, &x);
        for (i, head) in x.chunks(8).enumerate() {
            let mut exact: Vec<f64> = head.iter().map(|&v| v.into()).collect();
            for pair in 0..n_dims / 2 {
                let frequency = 10_000f64.powf(-2.0 * pair as f64 / n_dims as f64);
                let angle = 0.5 * (5 + i / 2) as f64 * frequency / (pair + 1) as f64;
                let (a, b) = match layout {
                    RopeLayout::Norm => (2 * pair, 2 * pair + 1),
                    RopeLayout::Neox => (pair, pair + n_dims / 2),
                };
                let (x0, x1) = (f64::from(head[a]), f64::from(head[b]));
                exact[a] = 1.5 * (x0 * angle.cos() - x1 * angle.sin());
                exact[b] = 1.5 * (x0 * angle.sin() + x1 * angle.cos());
            }
            for (found, exact) in found[8 * i..].iter().zip(&exact) {
                assert!((f64::from(*found) - exact).abs() < 1e-6, "{layout:?} {n_dims}: {found} {exact}");
            }
        }
    }
}

#[test]
fn yarn_scales_slow_pairs_only() {
    let yarn = RopeParams { freq_scale: 0.25, ext_factor: 1.0, attn_factor: 1.0, n_ctx_orig: 64, ..rope(8) };
    // The fastest pair turns 64 / 2π ~ 10 times over the original context, the slowest 0.01 times: with these
    // borders the first is not scaled at all and the last fully.
    let yarn = RopeParams { beta_fast: 8.0, beta_slow: 0.5, ..yarn };
    let x: Vec<f32> = (0..32).map(|i| if i % 2 == 0 { 1.0 } else { 0.0 }).collect();
    let found = rotated(&yarn, RopeLayout::Norm, &x);
    let magnitude = 1.0 + 0.1 * 4f64.ln();
    let angle = |pair: usize| f64::from(found[2 * pair + 1]).atan2(f64::from(found[2 * pair]));
    assert!((angle(0) - (5.0 - 2.0 * std::f64::consts::PI)).abs() < 1e-5, "{}", angle(0));
    assert!((angle(3) - 0.25 * 5.0 * 1e-3).abs() < 1e-6, "{}", angle(3));
    assert!((f64::from(found[0]).hypot(f64::from(found[1])) - magnitude).abs() < 1e-6);
}
