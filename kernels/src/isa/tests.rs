//! The kernels that use `vpdpbusd`, with that one instruction emulated: CPUs without it test the rest of them too.

use qgguf_gguf::GgmlType;

use super::{Feature, avx2, avx512};
use crate::table::Table;
use crate::{Compute, Isa, Kernels, MatmulJob, Matrix};

fn product(kernels: Kernels, w: Matrix<'_>, x: &[f32], n_tokens: usize) -> Vec<u32> {
    let mut out = vec![0.0; n_tokens * w.n_rows()];
    Compute::new(kernels, 1).matmul(x, n_tokens, &mut [MatmulJob { w, out: &mut out }]);
    out.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn emulated_vnni_gives_the_portable_bits() {
    let mut tables: Vec<(&str, &[Feature], &'static Table)> = vec![
        ("avxvnni", avx2::emulated::FEATURES, &avx2::emulated::TABLE),
        ("avx512vnni", avx512::emulated::FEATURES, &avx512::emulated::TABLE),
    ];
    tables.retain(|(name, features, _)| {
        let missing = features.iter().find(|(_, present)| !present());
        missing.inspect(|(feature, _)| eprintln!("SKIPPED emulated {name}: no {feature}")).is_none()
    });
    let (n_cols, n_rows, n_tokens) = (512, 33, 15);
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let x: Vec<f32> = (0..n_cols * n_tokens).map(|_| random() as f32 / (1u32 << 30) as f32 - 1.0).collect();
    for ty in GgmlType::all().filter(|&ty| ty.block_size() > 1 && Matrix::supports(ty)) {
        // Exponents of any half-precision number among random bytes stay below infinity.
        let bytes: Vec<u8> = (0..ty.row_bytes(n_cols).expect("whole blocks") * n_rows)
            .map(|_| random() as u8 & 0xbb)
            .collect();
        let w = Matrix::new(ty, n_cols, n_rows, &bytes).expect("a matrix");
        let portable = product(Kernels::new(Isa::Portable).expect("needs nothing"), w, &x, n_tokens);
        for &(name, _, table) in &tables {
            let emulated = product(Kernels { isa: Isa::Portable, table }, w, &x, n_tokens);
            assert!(emulated == portable, "{ty} {name}");
        }
    }
}
