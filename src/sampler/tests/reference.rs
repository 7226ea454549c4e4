//! The sets that a sampler leaves, against a reference that sorts and sums everything.

use super::*;
use proptest::prelude::*;

/// What is left by the definition of each stage: everything sorted, everything summed.
fn reference(params: &SamplerParams, logits: &[f32]) -> Vec<u32> {
    let mut temperature = 1.0f32;
    let mut left: Vec<u32> =
        (0..logits.len() as u32).filter(|&i| logits[i as usize] > f32::NEG_INFINITY).collect();
    let by_logit =
        |a: &u32, b: &u32| logits[*b as usize].partial_cmp(&logits[*a as usize]).unwrap().then(a.cmp(b));
    for &stage in &params.order {
        left.sort_by(by_logit);
        let max = logits[left[0] as usize];
        let mut weights: Vec<f32> = left.iter().map(|&i| logits[i as usize]).collect();
        qgguf_kernels::Kernels::best().softmax_weights(&mut weights, max, 1.0 / temperature);
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        let total: f64 = weights.iter().sum();
        match stage {
            Stage::Penalties => {}
            Stage::Temperature => temperature *= params.temperature,
            Stage::TopK if params.top_k > 0 => left.truncate(params.top_k as usize),
            Stage::TopP if params.top_p < 1.0 => {
                let mut mass = 0.0;
                let reached = weights.iter().position(|w| {
                    mass += w;
                    (mass / total) as f32 >= params.top_p
                });
                left.truncate(reached.unwrap() + 1);
            }
            Stage::MinP => {
                let n = weights.iter().filter(|&&w| w >= f64::from(params.min_p)).count();
                left.truncate(n);
            }
            _ => {}
        }
    }
    left.sort_unstable();
    left
}

fn assert_equals_reference(params: SamplerParams, logits: &[f32]) {
    let want = reference(&params, logits);
    let mut sampler = sampler(params);
    let got = sampler.distribution(logits).unwrap();
    let sum: f64 = got.iter().map(|&(_, p)| p).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    assert!(got.windows(2).all(|pair| pair[0].1 >= pair[1].1));
    let mut ids: Vec<u32> = got.iter().map(|&(id, _)| id).collect();
    ids.sort_unstable();
    assert!(ids == want, "{}: {} tokens left, want {}", sampler.params, ids.len(), want.len());
    for _ in 0..20 {
        let token = sampler.sample(logits).unwrap();
        assert!(ids.binary_search(&token).is_ok(), "{token} was drawn and is not in the set");
    }
}

/// Orders in which a stage works on the whole vocabulary, on a cut one and on a list.
const ORDERS: [&str; 5] = [
    "temperature;top_k;top_p;min_p",
    "top_p;temperature;top_p;min_p",
    "min_p;top_p;top_k;temperature",
    "top_p;top_k;temperature;top_p",
    "top_p;min_p;top_p",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_set_is_that_of_a_full_sort(
        seed in any::<u64>(),
        n in 1usize..900,
        // Coarse steps make ties, also at the cuts.
        step in prop_oneof![Just(0.0f32), Just(0.25), Just(2.0)],
        spread in 0.1f32..6.0,
        temperature in 0.3f32..3.0,
        top_k in 0i32..300,
        top_p in 0.0f32..=1.0,
        min_p in 0.0f32..0.2,
        order in 0..ORDERS.len(),
    ) {
        let logits = noise(seed, n, spread, step);
        let order = ORDERS[order].parse::<Order>().unwrap().stages;
        let params = SamplerParams { temperature, top_k, top_p, min_p, order, ..SamplerParams::neutral() };
        assert_equals_reference(params, &logits);
    }
}

/// Logits with a bell-shaped spread, rounded to multiples of `step` unless it is 0.
fn noise(seed: u64, n: usize, spread: f32, step: f32) -> Vec<f32> {
    let mut rng = generator(seed, Stream::Draws);
    let mut uniform = || (rng.next_u64() >> 40) as f32 / (1 << 24) as f32;
    let bell = (0..n).map(|_| (0..6).map(|_| uniform()).sum::<f32>() - 3.0);
    bell.map(|x| if step > 0.0 { (x * spread / step).round() * step } else { x * spread }).collect()
}

#[test]
fn large_vocabularies_keep_the_set_of_a_full_sort() {
    const N: usize = 151_936;
    let tied = vec![1.5; N];
    let rising: Vec<f32> = (0..N).map(|i| i as f32 * 1e-4).collect();
    let cases = [noise(1, N, 1.4, 0.0), noise(2, N, 5.0, 0.0), noise(3, N, 1.4, 0.5), tied, rising];
    for (i, logits) in cases.iter().enumerate() {
        for j in [i, i + 1] {
            let order = ORDERS[j % ORDERS.len()].parse::<Order>().unwrap().stages;
            let top_p = [0.95, 0.5, 0.999, 0.05, 0.8][(2 * i + j) % 5];
            let params = SamplerParams {
                top_p,
                min_p: 1e-3,
                top_k: [40, 20_000][j % 2],
                temperature: 1.3,
                order,
                ..SamplerParams::neutral()
            };
            assert_equals_reference(params, logits);
        }
    }
}
