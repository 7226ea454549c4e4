//! Every kernel on every instruction set of this CPU: right, and the same bits everywhere.

use qgguf_gguf::GgmlType;
use qgguf_gguf::dequantize::dequantize_row;
use qgguf_kernels::{Compute, Isa, IsaError, Kernels, MatmulJob, Matrix, sin_cos};
use qgguf_testing::{Random, assert_same_bits, f32s, fixtures, ulps};

/// The types of weights that there are kernels for.
fn types() -> impl Iterator<Item = GgmlType> {
    GgmlType::all().filter(|&ty| Matrix::supports(ty))
}

/// Random blocks; with `tame` scales are ordinary numbers, else any bits.
fn weights(random: &mut Random, ty: GgmlType, n: usize, tame: bool) -> Vec<u8> {
    let mut bytes = random.bytes(ty.row_bytes(n).unwrap());
    if !tame {
        return bytes;
    }
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in ty.half_fields() {
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

#[test]
fn products_are_the_same_bits_on_every_instruction_set_and_thread_count() {
    let mut random = Random(1);
    for ty in types() {
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
    for error in Isa::ALL.into_iter().filter_map(|isa| Kernels::new(isa).err()) {
        // Those of other architectures are no part of this one's tests.
        if !matches!(error, IsaError::Missing { feature: "x86_64" | "aarch64", .. }) {
            eprintln!("SKIPPED kernels: {error}");
        }
    }
}

#[test]
fn a_batch_gives_the_bits_of_its_tokens_one_by_one() {
    let mut random = Random(2);
    for ty in types() {
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
    let x = f32s(&read("act.f32.bin"));
    for ty in types().filter(|&ty| ty != GgmlType::F32) {
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
    for ty in types().filter(|ty| ty.block_size() > 1) {
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
fn tanh_is_right_to_four_ulps_also_near_zero() {
    let x: Vec<f32> = (0..200_000).map(|i| (i as f32 - 100_000.0) * 1.1e-4).collect();
    let x = x.iter().flat_map(|&x| [x, x * 1e-3, x * 1e-6]).collect::<Vec<_>>();
    for isa in Isa::available() {
        let mut y = x.clone();
        // With a cap of 1 this is the function itself.
        Compute::new(Kernels::new(isa).unwrap(), 1).softcap(&mut y, 1.0);
        for (&x, &y) in x.iter().zip(&y) {
            assert!(ulps(y, f64::from(x).tanh()) <= 4.0, "{isa}: tanh({x:e}) = {y:e}");
        }
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

#[test]
fn matrices_that_cannot_be_used_are_refused() {
    let refused =
        |ty, n_cols, n_rows, n| Matrix::new(ty, n_cols, n_rows, &vec![0; n]).unwrap_err().to_string();
    assert_eq!(refused(GgmlType::I16, 37, 1, 74), "there is no matrix kernel for type i16");
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
