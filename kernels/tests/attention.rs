//! Attention, its cache, and rotary embeddings: right, and the same bits however the work is split.

use qgguf_kernels::{
    AttentionParams, CHUNK, Compute, Isa, Kernels, KvLayer, KvLayout, KvPool, KvShape, KvType, RopeLayout,
    RopeParams, RopeTable, Span,
};

use qgguf_testing::{Random, assert_same_bits};

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

/// An empty cache with memory of its own.
fn cache(k: KvType, v: KvType, n_head: usize, head_dim_k: usize, head_dim_v: usize) -> KvLayer {
    let shape = KvShape { n_head, head_dim_k, head_dim_v };
    KvLayer::new(KvLayout::new(k, v, shape).unwrap(), &KvPool::unlimited())
}

impl Case {
    fn new(
        random: &mut Random,
        n: usize,
        n_head: usize,
        dims: (usize, usize),
        window: Option<usize>,
        softcap: Option<f32>,
    ) -> Case {
        Case {
            k: random.f32s(n * N_HEAD_KV * dims.0),
            v: random.f32s(n * N_HEAD_KV * dims.1),
            q: random.f32s(n * n_head * dims.0),
            n,
            dims,
            params: AttentionParams { n_head, scale: 0.4, softcap, window },
        }
    }

    fn run(&self, isa: Isa, n_threads: usize, batch: usize, ty: KvType) -> Vec<f32> {
        let mut compute = Compute::new(Kernels::new(isa).unwrap(), n_threads);
        let mut kv = cache(ty, ty, N_HEAD_KV, self.dims.0, self.dims.1);
        let mut out = Vec::new();
        for pos0 in (0..self.n).step_by(batch) {
            let n = batch.min(self.n - pos0);
            let part = |x: &[f32], row: usize| x[pos0 * row..(pos0 + n) * row].to_vec();
            let (row_k, row_v) = (N_HEAD_KV * self.dims.0, N_HEAD_KV * self.dims.1);
            compute.kv_append(&mut kv, &part(&self.k, row_k), &part(&self.v, row_v), n);
            let n_head = self.params.n_head;
            let mut rows = vec![f32::NAN; n * n_head * self.dims.1];
            compute.attention(
                &[Span::whole(pos0, n)],
                |_| &kv,
                &part(&self.q, n_head * self.dims.0),
                &self.params,
                &mut rows,
            );
            out.extend(rows);
        }
        out
    }

    fn exact(&self) -> Vec<f64> {
        let (mut out, n_head) = (Vec::new(), self.params.n_head);
        let group = n_head / N_HEAD_KV;
        for pos in 0..self.n {
            for head in 0..n_head {
                let q = &self.q[(pos * n_head + head) * self.dims.0..][..self.dims.0];
                let first = self.params.window.map_or(0, |w| (pos + 1).saturating_sub(w));
                let weights: Vec<f64> = (first..=pos)
                    .map(|p| {
                        let k = &self.k[(p * N_HEAD_KV + head / group) * self.dims.0..][..self.dims.0];
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
                    let value =
                        |p: usize| f64::from(self.v[(p * N_HEAD_KV + head / group) * self.dims.1 + d]);
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
    for (n, n_head, dims, window, softcap) in [
        (1, 4, (16, 16), None, None),
        (150, 2, (32, 32), None, None),
        (300, 4, (20, 70), None, Some(2.0)),
        (300, 4, (128, 128), Some(40), None),
        (260, 6, (64, 80), Some(129), None),
        (140, 10, (32, 64), Some(1), None),
        (130, 80, (8, 3), None, None),
    ] {
        let case = Case::new(&mut random, n, n_head, dims, window, softcap);
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

/// Keys and values of the positions outside `seen` are not numbers.
fn poisoned(case: &Case, seen: std::ops::Range<usize>) -> [Vec<f32>; 2] {
    let poison = |x: &[f32], dim: usize| {
        let row = N_HEAD_KV * dim;
        let unseen = |i: usize| !seen.contains(&(i / row));
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX];
        x.iter().enumerate().map(|(i, &x)| if unseen(i) { odd[i % 4] } else { x }).collect()
    };
    [poison(&case.k, case.dims.0), poison(&case.v, case.dims.1)]
}

#[test]
fn positions_that_a_token_does_not_see_do_not_matter() {
    let case = Case::new(&mut Random(10), 290, 4, (32, 48), Some(70), None);
    for (isa, n_threads) in Isa::available().flat_map(|isa| [(isa, 1), (isa, 5)]) {
        for ty in [KvType::F16, KvType::F32] {
            let run = |k: &[f32], v: &[f32]| {
                let mut compute = Compute::new(Kernels::new(isa).unwrap(), n_threads);
                let mut kv = cache(ty, ty, N_HEAD_KV, 32, 48);
                compute.kv_append(&mut kv, k, v, case.n);
                let mut out = vec![f32::NAN; 30 * 4 * 48];
                let q = &case.q[200 * 4 * 32..230 * 4 * 32];
                compute.attention(&[Span::whole(200, 30)], |_| &kv, q, &case.params, &mut out);
                out
            };
            // The token at 200 sees from 131 on, the one at 229 is the last.
            let [k, v] = poisoned(&case, 131..230);
            assert_same_bits(&run(&k, &v), &run(&case.k, &case.v), &format!("{isa} {n_threads} {ty:?}"));
            let [k, v] = poisoned(&case, 132..230);
            assert!(run(&k, &v)[0].is_nan(), "position 131 is seen");
        }
    }
}

/// Results of so many chunks that they cannot all be kept until they are merged.
#[test]
fn long_contexts_are_merged_in_rounds() {
    let case = Case::new(&mut Random(11), 700, 4, (16, 1024), None, None);
    let run = |n_threads| {
        let mut compute = Compute::new(Kernels::best(), n_threads);
        let mut kv = cache(KvType::F16, KvType::F16, N_HEAD_KV, 16, 1024);
        compute.kv_append(&mut kv, &case.k, &case.v, case.n);
        let mut out = vec![f32::NAN; 96 * 4 * 1024];
        compute.attention(&[Span::whole(604, 96)], |_| &kv, &case.q[604 * 4 * 16..], &case.params, &mut out);
        out
    };
    assert_same_bits(&run(7), &run(1), "7 threads");
}

/// One position's weight is 1, so its value comes out as it was stored.
#[test]
fn q8_0_rounds_as_gguf_has_it() {
    let mut x = Random(12).f32s(64);
    // A tie of a code, and a block with nothing in it.
    x[..3].copy_from_slice(&[127.0, 2.5, -2.5]);
    let mut values = x.clone();
    values.extend([0.0; 32]);
    let mut compute = Compute::new(Kernels::best(), 1);
    let mut kv = cache(KvType::F16, KvType::Q8_0, 1, 1, 96);
    compute.kv_append(&mut kv, &[1.0], &values, 1);
    let mut out = vec![0.0; 96];
    let params = AttentionParams { n_head: 1, scale: 1.0, softcap: None, window: None };
    compute.attention(&[Span::whole(0, 1)], |_| &kv, &[1.0], &params, &mut out);
    for (block, found) in x.chunks(32).zip(out.chunks(32)) {
        let d = block.iter().fold(0f32, |m, x| m.max(x.abs())) / 127.0;
        for (x, found) in block.iter().zip(found) {
            // Halves go away from zero.
            let code = (f64::from(x.abs() * (1.0 / d)) + 0.5).floor().copysign(f64::from(*x));
            assert_eq!(f64::from(*found), code * half::f16::from_f32(d).to_f64(), "{x}");
        }
    }
    assert_eq!((out[1], out[2], &out[64..]), (3.0, -3.0, &[0.0; 32][..]));

    values[40] = f32::INFINITY;
    kv.truncate(0);
    compute.kv_append(&mut kv, &[1.0], &values, 1);
    compute.attention(&[Span::whole(0, 1)], |_| &kv, &[1.0], &params, &mut out);
    assert!(out[32..64].iter().all(|x| x.is_nan()) && out[..32].iter().all(|x| x.is_finite()));
}

#[test]
fn heads_that_do_not_fit_the_type_of_the_cache_are_refused() {
    let shape = KvShape { n_head: 1, head_dim_k: 80, head_dim_v: 32 };
    let error = |k, v| KvLayout::new(k, v, shape).unwrap_err().to_string();
    assert_eq!(
        error(KvType::Q8_0, KvType::F16),
        "keys of 80 values per head cannot be stored as q8_0, which takes 32 at a time; f16 and f32 take any"
    );
    assert!(KvLayout::new(KvType::F16, KvType::Q8_0, shape).is_ok());
    assert_eq!("Q8_0".parse(), Ok(KvType::Q8_0));
    assert_eq!("q4_0".parse::<KvType>().unwrap_err(), "unknown cache type \"q4_0\" (known: f16, f32, q8_0)");
}

#[test]
fn a_cache_grows_with_use_and_shrinks_again() {
    let mut compute = Compute::new(Kernels::best(), 1);
    let mut kv = cache(KvType::F16, KvType::F32, 1, 8, 4);
    assert_eq!((kv.len(), kv.bytes()), (0, 0));
    compute.kv_append(&mut kv, &[0.5; 8 * 129], &[0.5; 4 * 129], 129);
    assert_eq!((kv.len(), kv.bytes()), (129, 2 * 128 * (8 * 2 + 4 * 4)));
    kv.truncate(128);
    assert_eq!((kv.len(), kv.bytes()), (128, 128 * (8 * 2 + 4 * 4)));
}

/// Several sequences in one batch, of very different lengths: every one as if it were alone.
#[test]
fn sequences_do_not_see_each_other() {
    let mut random = Random(14);
    let dims = (32, 64);
    let cases: Vec<Case> =
        [300, 1, 130, 64].map(|n| Case::new(&mut random, n, 6, dims, Some(150), None)).into();
    // The last tokens of each, as many as a prompt's piece or a single one.
    let last = [40, 1, 1, 64];
    for (isa, n_threads) in Isa::available().flat_map(|isa| [(isa, 1), (isa, 5)]) {
        for ty in [KvType::F16, KvType::Q8_0] {
            let mut compute = Compute::new(Kernels::new(isa).unwrap(), n_threads);
            let mut caches = Vec::new();
            let (mut spans, mut q, mut alone) = (Vec::new(), Vec::new(), Vec::new());
            for (case, n) in cases.iter().zip(last) {
                let mut kv = cache(ty, ty, N_HEAD_KV, dims.0, dims.1);
                compute.kv_append(&mut kv, &case.k, &case.v, case.n);
                let first = spans.last().map_or(0, |span: &Span| span.tokens().end);
                spans.push(Span { first, n_tokens: n, pos0: case.n - n });
                q.extend_from_slice(&case.q[(case.n - n) * 6 * dims.0..]);
                alone.extend_from_slice(&case.run(isa, 1, case.n, ty)[(case.n - n) * 6 * dims.1..]);
                caches.push(kv);
            }
            let mut together = vec![f32::NAN; alone.len()];
            compute.attention(&spans, |i| &caches[i], &q, &cases[0].params, &mut together);
            assert_same_bits(&together, &alone, &format!("{isa} {n_threads} {ty:?}"));
        }
    }
}

#[test]
fn forks_share_pages_until_one_writes() {
    let case = Case::new(&mut Random(15), CHUNK + 20, 2, (8, 8), None, None);
    let row = N_HEAD_KV * 8;
    let part = |x: &[f32], from: usize, to: usize| x[from * row..to * row].to_vec();
    let shape = KvShape { n_head: N_HEAD_KV, head_dim_k: 8, head_dim_v: 8 };
    let layout = KvLayout::new(KvType::F16, KvType::F16, shape).unwrap();
    let pool = KvPool::new(4 * layout.page_bytes());
    let mut compute = Compute::new(Kernels::best(), 1);
    let mut kv = KvLayer::new(layout, &pool);
    compute.kv_append(&mut kv, &part(&case.k, 0, CHUNK + 10), &part(&case.v, 0, CHUNK + 10), CHUNK + 10);
    let keys = kv.keys(1);
    let mut fork = kv.fork(CHUNK + 5);
    assert_eq!((fork.len(), pool.bytes_in_use()), (CHUNK + 5, 2 * layout.page_bytes()));
    assert_eq!((fork.missing_pages(1), kv.missing_pages(1)), (1, 1), "the page that both would write to");
    compute.kv_append(&mut fork, &[9.0; 2 * 8], &[9.0; 2 * 8], 1);
    assert_eq!((fork.missing_pages(1), pool.bytes_in_use()), (0, 3 * layout.page_bytes()));
    assert_eq!(kv.keys(1), keys);
    assert_eq!(fork.keys(1)[..(CHUNK + 5) * 8], keys[..(CHUNK + 5) * 8]);
    assert_eq!(fork.keys(1)[(CHUNK + 5) * 8..], [9.0; 8]);
    // The first page is still shared, the pool has room for one more.
    let full = fork.reserve(2 * CHUNK).unwrap_err();
    assert_eq!(
        full.to_string(),
        format!(
            "the cache is full: {0} of {0} bytes are in use, {1} more are needed",
            4 * layout.page_bytes(),
            layout.page_bytes()
        )
    );
    assert_eq!(fork.len(), CHUNK + 6);
    drop((kv, fork));
    assert_eq!(pool.bytes_in_use(), 0);
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
        long_factors: None,
    }
}

/// Rotates two heads of 8 at positions 5 and 6.
fn rotated(params: &RopeParams, layout: RopeLayout, x: &[f32]) -> Vec<f32> {
    let (mut table, mut x) = (RopeTable::default(), x.to_vec());
    params.fill(&mut table, [(5, 4096), (6, 4096)]);
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
fn rotations_are_the_same_bits_on_every_instruction_set() {
    let mut random = Random(13);
    for (head_dim, n_dims) in [(8, 8), (64, 64), (70, 46), (128, 32), (24, 22)] {
        let x = random.f32s(3 * 5 * head_dim);
        for layout in [RopeLayout::Norm, RopeLayout::Neox] {
            let run = |isa, n_threads| {
                let (mut table, mut x) = (RopeTable::default(), x.clone());
                rope(n_dims).fill(&mut table, (1000..1005).map(|pos| (pos, 4096)));
                Compute::new(Kernels::new(isa).unwrap(), n_threads).rope(&mut x, 3, head_dim, &table, layout);
                x
            };
            let portable = run(Isa::Portable, 1);
            for isa in Isa::available() {
                assert_same_bits(&run(isa, 3), &portable, &format!("{isa} {layout:?} {head_dim} {n_dims}"));
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
