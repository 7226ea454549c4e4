//! The sampler against exact probabilities.

use super::*;

mod reference;

const LOGITS: [f32; 5] = [2.0, 1.0, 0.5, 0.0, -1.0];

fn sampler(params: SamplerParams) -> Sampler {
    Sampler::new(params, Some(1)).unwrap()
}

/// The tokens seen in 10,000 draws.
fn support(params: SamplerParams, logits: &[f32]) -> Vec<u32> {
    let mut sampler = sampler(params);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..10_000 {
        seen.insert(sampler.sample(logits).unwrap());
    }
    seen.into_iter().collect()
}

/// The set that is left, and that it is what the draws see.
fn kept(params: SamplerParams, logits: &[f32]) -> Vec<u32> {
    let mut kept: Vec<u32> =
        sampler(params.clone()).distribution(logits).unwrap().iter().map(|&(id, _)| id).collect();
    kept.sort_unstable();
    assert_eq!(support(params, logits), kept);
    kept
}

fn softmax(logits: &[f32], temperature: f64) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f64> = logits.iter().map(|&l| (f64::from(l - max) / temperature).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}

#[test]
fn top_k_two_keeps_two() {
    assert_eq!(kept(SamplerParams { top_k: 2, ..SamplerParams::neutral() }, &LOGITS), [0, 1]);
}

#[test]
fn top_p_keeps_the_crossing_token() {
    assert_eq!(kept(SamplerParams { top_p: 0.9, ..SamplerParams::neutral() }, &LOGITS), [0, 1, 2, 3]);
    let half = SamplerParams { top_p: 0.5, ..SamplerParams::neutral() };
    assert_eq!(kept(half.clone(), &LOGITS), [0]);
    // The temperature counts where it comes first.
    let hot = SamplerParams { temperature: 2.0, ..half };
    assert_eq!(kept(hot.clone(), &LOGITS), [0]);
    assert_eq!(kept(SamplerParams { order: vec![Stage::Temperature, Stage::TopP], ..hot }, &LOGITS), [0, 1]);
}

#[test]
fn top_p_keeps_at_least_one_and_is_exact_on_equal_logits() {
    assert_eq!(kept(SamplerParams { top_p: 0.0, ..SamplerParams::neutral() }, &LOGITS), [0]);
    for (p, n) in [(0.1, 1), (0.3, 3), (0.6, 6), (0.61, 7), (0.7, 7), (0.9, 9), (0.99, 10), (1.0, 10)] {
        let want: Vec<u32> = (0..n).collect();
        assert_eq!(kept(SamplerParams { top_p: p, ..SamplerParams::neutral() }, &[0.25; 10]), want, "{p}");
    }
}

#[test]
fn top_k_one_does_not_depend_on_top_p() {
    for top_p in [0.0, 0.01, 0.5, 0.9, 1.0] {
        assert_eq!(kept(SamplerParams { top_k: 1, top_p, ..SamplerParams::neutral() }, &LOGITS), [0]);
    }
}

#[test]
fn top_k_zero_negative_or_the_vocabulary_is_off() {
    let draws = |top_k| {
        let mut sampler = sampler(SamplerParams { top_k, ..SamplerParams::neutral() });
        (0..200).map(|_| sampler.sample(&LOGITS).unwrap()).collect::<Vec<_>>()
    };
    let off = draws(0);
    for top_k in [-1, i32::MIN, 5, 6, i32::MAX] {
        assert_eq!(draws(top_k), off, "{top_k}");
        assert_eq!(kept(SamplerParams { top_k, ..SamplerParams::neutral() }, &LOGITS), [0, 1, 2, 3, 4]);
    }
}

#[test]
fn top_p_after_top_k_sees_the_renormalised_rest() {
    // Of {0, 1} token 0 has 0.731 (of all five 0.563), so it alone reaches 0.7.
    let params = SamplerParams { top_k: 2, top_p: 0.7, ..SamplerParams::neutral() };
    assert_eq!(kept(params.clone(), &LOGITS), [0]);
    let order = "top_p;top_k".parse::<Order>().unwrap().stages;
    assert_eq!(kept(SamplerParams { order, ..params }, &LOGITS), [0, 1]);
}

#[test]
fn temperature_zero_is_the_lowest_best_token_whatever_else() {
    let logits = [0.0, 3.0, -1.0, 3.0, 3.0];
    for order in ["", "top_k;typ_p;top_p", "typ_p", "penalties;temperature;min_p"] {
        let order = order.parse::<Order>().unwrap().stages;
        let params = SamplerParams {
            temperature: 0.0,
            top_k: 2,
            top_p: 0.1,
            typical_p: 0.1,
            min_p: 1.0,
            order,
            ..SamplerParams::default()
        };
        assert_eq!(support(params, &logits), [1]);
    }
    let params = SamplerParams { temperature: -1.0, ..SamplerParams::default() };
    assert_eq!(support(params, &[0.0, -0.0, -1.0]), [0]);
    assert_eq!(support(SamplerParams::greedy(), &[-0.0, 0.0]), [0]);
}

#[test]
fn temperature_moves_probability_monotonically() {
    let of_best = |temperature| {
        sampler(SamplerParams { temperature, ..SamplerParams::neutral() }).distribution(&LOGITS).unwrap()[0].1
    };
    assert!(of_best(0.5) > of_best(1.0) && of_best(1.0) > of_best(2.0));
    assert_eq!(of_best(1e-38), 1.0);
    assert_eq!(of_best(f32::MIN_POSITIVE / 1024.0), 1.0);
    assert!((of_best(f32::MAX) - 0.2).abs() < 1e-6);
}

#[test]
fn huge_logits_are_fine() {
    let logits = [1e4, -1e4, 0.0];
    for temperature in [0.1, 1.0, 2.0] {
        let params = SamplerParams { temperature, ..SamplerParams::neutral() };
        assert_eq!(sampler(params).distribution(&logits).unwrap(), [(0, 1.0)]);
    }
    let flat = SamplerParams { temperature: 1e6, ..SamplerParams::neutral() };
    for (id, p) in sampler(flat).distribution(&logits).unwrap() {
        assert!((p - softmax(&logits, 1e6)[id as usize]).abs() < 1e-7);
    }
    assert_eq!(support(SamplerParams::neutral(), &[f32::MAX, f32::MIN, 0.0]), [0]);
}

/// The chi-square statistic of 10,000 draws against exact probabilities stays below the quantile 0.999.
#[test]
fn frequencies_agree_with_the_exact_probabilities() {
    // Quantiles of chi-square with 1..=4 degrees of freedom.
    const LIMIT: [f64; 4] = [10.83, 13.82, 16.27, 18.47];
    let neutral = SamplerParams::neutral();
    let cases = [
        (neutral.clone(), 1.0, 5),
        (SamplerParams { temperature: 0.5, ..neutral.clone() }, 0.5, 5),
        (SamplerParams { temperature: 2.0, ..neutral.clone() }, 2.0, 5),
        (SamplerParams { top_k: 3, ..neutral.clone() }, 1.0, 3),
        (SamplerParams { top_p: 0.9, ..neutral.clone() }, 1.0, 4),
        (SamplerParams { top_k: 4, top_p: 0.8, temperature: 2.0, ..neutral.clone() }, 2.0, 3),
        (SamplerParams { min_p: 0.3, ..neutral }, 1.0, 2),
    ];
    for (params, temperature, n) in cases {
        let exact = softmax(&LOGITS[..n], temperature);
        let label = params.to_string();
        let mut sampler = Sampler::new(params, Some(20)).unwrap();
        for (&(id, p), want) in sampler.distribution(&LOGITS).unwrap().iter().zip(&exact) {
            assert!((p - want).abs() < 1e-7, "{label}: token {id} has {p}, want {want}");
        }
        let mut seen = [0u32; 5];
        for _ in 0..10_000 {
            seen[sampler.sample(&LOGITS).unwrap() as usize] += 1;
        }
        assert!(seen[n..].iter().all(|&c| c == 0), "{label}: {seen:?}");
        let statistic: f64 =
            exact.iter().zip(seen).map(|(p, c)| (f64::from(c) - p * 1e4).powi(2) / (p * 1e4)).sum();
        assert!(statistic < LIMIT[n - 2], "{label}: chi-square {statistic} of {seen:?}");
    }
}

#[test]
fn nan_and_infinite_logits_are_errors_that_say_so() {
    let mut logits = vec![0.5; 1000];
    for value in [f32::NAN, f32::INFINITY] {
        logits[777] = value;
        for params in [SamplerParams::default(), SamplerParams::greedy(), SamplerParams::neutral()] {
            let error = sampler(params).sample(&logits).unwrap_err().to_string();
            assert!(error.contains("token 777") && error.contains(&value.to_string()), "{error}");
        }
    }
    for params in [SamplerParams::default(), SamplerParams::greedy(), SamplerParams::neutral()] {
        assert_eq!(sampler(params.clone()).sample(&[f32::NEG_INFINITY; 70]), Err(SamplerError::NoCandidates));
        assert_eq!(sampler(params).sample(&[]), Err(SamplerError::NoLogits));
    }
}

#[test]
fn banned_tokens_are_never_chosen() {
    let logits = [f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, 1.0];
    for top_k in [0, 1, 3, 4] {
        let params = SamplerParams { top_k, ..SamplerParams::neutral() };
        assert!(kept(params, &logits).iter().all(|&id| id % 2 == 1));
    }
}

#[test]
fn a_mask_takes_tokens_out_before_every_stage() {
    // Tokens 1, 2 and 4: the two best of these are 1 and 2, with odds of e^0.5.
    let params = SamplerParams { top_k: 2, ..SamplerParams::neutral() };
    let mut seen = [0u32; 5];
    let mut within = sampler(params.clone());
    for _ in 0..10_000 {
        seen[within.sample_within(&LOGITS, &[0b10110]).unwrap() as usize] += 1;
    }
    assert_eq!((seen[0], seen[3], seen[4]), (0, 0, 0));
    assert!((f64::from(seen[1]) / f64::from(seen[2]) - 0.5f64.exp()).abs() < 0.1, "{seen:?}");
    // A mask that allows all changes nothing, not even the random numbers.
    let (mut all, mut none) = (sampler(params.clone()), sampler(params.clone()));
    for _ in 0..50 {
        assert_eq!(all.sample_within(&LOGITS, &[u32::MAX]), none.sample(&LOGITS));
    }
    // A bias does not bring a forbidden token back; greedy is bound by the mask too.
    let biased = SamplerParams { logit_bias: vec![(0, 99.0)], ..SamplerParams::greedy() };
    assert_eq!(sampler(biased).sample_within(&LOGITS, &[0b11000]), Ok(3));
}

#[test]
fn a_mask_is_read_by_its_bits_and_no_further() {
    let logits: Vec<f32> = (0..70).map(|i| i as f32).collect();
    let mut best = sampler(SamplerParams::greedy());
    for token in 0..70u32 {
        let mut mask = [0u32; 3];
        mask[token as usize / 32] = 1 << (token % 32);
        assert_eq!(best.sample_within(&logits, &mask), Ok(token));
    }
    // Tokens beyond the mask are forbidden, bits beyond the vocabulary mean nothing.
    assert_eq!(best.sample_within(&logits, &[0, u32::MAX]), Ok(63));
    for mask in [&[0, 0, 0b1100_0000][..], &[0, 0, 0, 1], &[]] {
        assert_eq!(best.sample_within(&logits, mask), Err(SamplerError::NothingAllowed));
    }
    let banned = vec![f32::NEG_INFINITY; 40];
    assert_eq!(best.sample_within(&banned, &[1]), Err(SamplerError::NoCandidates));
}

#[test]
fn a_clone_goes_on_alike_and_apart() {
    let params = SamplerParams { repeat_penalty: 1.5, temperature: 2.0, ..SamplerParams::neutral() };
    let mut first = sampler(params);
    for token in [0, 1, 0] {
        first.sample(&LOGITS).unwrap();
        first.accept(token);
    }
    let mut second = first.clone();
    let draws = |sampler: &mut Sampler| {
        let mut next = || {
            let token = sampler.sample(&LOGITS).unwrap();
            sampler.accept(token);
            token
        };
        (0..40).map(|_| next()).collect::<Vec<_>>()
    };
    assert_eq!(draws(&mut first), draws(&mut second));
}

#[test]
fn repetition_penalty_divides_positive_and_multiplies_negative() {
    let params = SamplerParams { repeat_penalty: 2.0, ..SamplerParams::neutral() };
    let mut sampler = sampler(params);
    sampler.accept(0);
    sampler.accept(4);
    let got = sampler.distribution(&LOGITS).unwrap();
    let want = softmax(&[1.0, 1.0, 0.5, 0.0, -2.0], 1.0);
    for (id, p) in got {
        assert!((p - want[id as usize]).abs() < 1e-7);
    }
}

#[test]
fn frequency_counts_and_presence_does_not() {
    let params = SamplerParams { frequency_penalty: 0.5, presence_penalty: 0.25, ..SamplerParams::neutral() };
    let mut sampler = sampler(params);
    for token in [0, 0, 0, 2] {
        sampler.accept(token);
    }
    let want = softmax(&[2.0 - 1.75, 1.0, 0.5 - 0.75, 0.0, -1.0], 1.0);
    for (id, p) in sampler.distribution(&LOGITS).unwrap() {
        assert!((p - want[id as usize]).abs() < 1e-7);
    }
}

#[test]
fn the_penalty_window_slides() {
    let params = SamplerParams { repeat_penalty: 1e6, penalty_last_n: 2, ..SamplerParams::greedy() };
    let mut sampler = sampler(params);
    let best = |sampler: &mut Sampler| sampler.sample(&[3.0, 2.0, 1.0]).unwrap();
    assert_eq!(best(&mut sampler), 0);
    for (accepted, then) in [(0, 1), (0, 1), (1, 2), (2, 0), (2, 0), (7, 0), (0, 1)] {
        sampler.accept(accepted);
        assert_eq!(best(&mut sampler), then);
    }
    sampler.forget();
    assert_eq!(best(&mut sampler), 0);
}

#[test]
fn penalties_are_off_without_window_or_stage() {
    let on = SamplerParams { repeat_penalty: 1e6, ..SamplerParams::greedy() };
    let unlisted = SamplerParams { order: vec![Stage::TopK], ..on.clone() };
    for params in [SamplerParams { penalty_last_n: 0, ..on }, unlisted] {
        let mut sampler = sampler(params);
        sampler.accept(0);
        assert_eq!(sampler.sample(&LOGITS), Ok(0));
    }
}

#[test]
fn logit_bias_comes_first() {
    let params = SamplerParams {
        logit_bias: vec![(0, f32::NEG_INFINITY), (4, 3.5)],
        top_k: 2,
        ..SamplerParams::neutral()
    };
    assert_eq!(kept(params.clone(), &LOGITS), [1, 4]);
    assert_eq!(sampler(SamplerParams { temperature: 0.0, ..params.clone() }).sample(&LOGITS), Ok(4));
    let error = sampler(params).sample(&LOGITS[..3]).unwrap_err();
    assert_eq!(error.to_string(), "logit_bias of token 4: the vocabulary has 3 tokens, from 0 to 2");
}

#[test]
fn penalties_after_the_temperature_act_on_scaled_logits() {
    let order = "temperature;penalties".parse::<Order>().unwrap().stages;
    let params = SamplerParams { temperature: 2.0, presence_penalty: 1.0, order, ..SamplerParams::neutral() };
    let mut sampler = sampler(params);
    sampler.accept(0);
    let want = softmax(&[0.0, 0.5, 0.25, 0.0, -0.5], 1.0);
    for (id, p) in sampler.distribution(&LOGITS).unwrap() {
        assert!((p - want[id as usize]).abs() < 1e-7);
    }
}

#[test]
fn typical_prefers_the_expected_surprise() {
    // Entropy 1.24 nats; surprises 0.57, 1.57, 2.07, 2.57, 3.57: token 1 is the nearest, then 0, 2, 3, 4.
    for (p, want) in [(0.1, &[1][..]), (0.5, &[0, 1]), (0.8, &[0, 1, 2]), (1.0, &[0, 1, 2, 3, 4])] {
        assert_eq!(kept(SamplerParams { typical_p: p, ..SamplerParams::neutral() }, &LOGITS), want, "{p}");
    }
}

#[test]
fn top_n_sigma_counts_deviations_below_the_best() {
    // Mean 0.5, deviation 1: with half of it 2..=1.5 stay, with one 2..=1, with two 2..=0.
    for (n, want) in [(0.5, &[0][..]), (1.0, &[0, 1]), (2.0, &[0, 1, 2, 3]), (0.0, &[0, 1, 2, 3, 4])] {
        let params = SamplerParams { top_n_sigma: n, temperature: 3.0, ..SamplerParams::neutral() };
        assert_eq!(kept(params, &LOGITS), want, "{n}");
    }
    // Banned tokens are no part of the mean: 1 and 0 are left, and a deviation is half their distance.
    let banned = [f32::NEG_INFINITY, 1.0, 0.0];
    assert_eq!(kept(SamplerParams { top_n_sigma: 1.9, ..SamplerParams::neutral() }, &banned), [1]);
    assert_eq!(kept(SamplerParams { top_n_sigma: 2.0, ..SamplerParams::neutral() }, &banned), [1, 2]);
}

#[test]
fn xtc_leaves_the_last_of_the_top_choices() {
    // Probabilities 0.563, 0.207, 0.126, 0.076, 0.028.
    for (threshold, want) in
        [(0.5, &[0, 1, 2, 3, 4][..]), (0.2, &[1, 2, 3, 4]), (0.1, &[2, 3, 4]), (0.0, &[4])]
    {
        let params =
            SamplerParams { xtc_probability: 1.0, xtc_threshold: threshold, ..SamplerParams::neutral() };
        assert_eq!(kept(params, &LOGITS), want, "{threshold}");
    }
    let greedy = SamplerParams { xtc_probability: 1.0, xtc_threshold: 0.2, ..SamplerParams::greedy() };
    assert_eq!(sampler(greedy).sample(&LOGITS), Ok(1));
}

#[test]
fn xtc_acts_as_often_as_asked_and_leaves_the_draws_their_numbers() {
    let params = SamplerParams { xtc_probability: 0.25, xtc_threshold: 0.1, ..SamplerParams::neutral() };
    let (mut with, mut without) = (sampler(params), sampler(SamplerParams::neutral()));
    let mut acted = 0;
    for _ in 0..4000 {
        let left = with.distribution(&LOGITS).unwrap();
        let token = with.sample(&LOGITS).unwrap();
        assert!(left.iter().any(|&(id, _)| id == token), "the distribution is that of the next draw");
        let plain = without.sample(&LOGITS).unwrap();
        acted += usize::from(left.len() < 5);
        assert!(left.len() < 5 || token == plain);
    }
    assert!((900..1100).contains(&acted), "{acted}");
}

#[test]
fn the_temperature_follows_the_entropy() {
    // What the logits were divided by shows in the odds of two tokens.
    let heat = |logits: &[f32], range: f32, exponent: f32| {
        let params = SamplerParams {
            temperature: 1.0,
            dynatemp_range: range,
            dynatemp_exponent: exponent,
            ..SamplerParams::neutral()
        };
        let p = sampler(params).distribution(logits).unwrap();
        f64::from(logits[0] - logits[1]) / (p[0].1 / p[1].1).ln()
    };
    let p = softmax(&LOGITS, 1.0);
    let share = -p.iter().map(|p| p * p.ln()).sum::<f64>() / 5f64.ln();
    for (range, exponent) in [(0.5, 1.0), (0.5, 2.0), (2.0, 1.0)] {
        let (low, high) = ((1.0 - f64::from(range)).max(0.0), 1.0 + f64::from(range));
        let want = low + (high - low) * share.powf(f64::from(exponent));
        let got = heat(&LOGITS, range, exponent);
        assert!((got - want).abs() < 1e-5, "{range} {exponent}: {got}, want {want}");
    }
}

#[test]
fn dry_takes_from_what_would_go_on_with_a_repetition() {
    let dry = DryParams { multiplier: 0.5, base: 2.0, ..DryParams::default() };
    let params = SamplerParams { dry, ..SamplerParams::neutral() };
    let mut sampler = sampler(params);
    for token in [3, 4, 2, 0, 1, 3, 4, 2] {
        sampler.accept(token);
    }
    // Three tokens are repeated, one beyond the two that are allowed: 0 loses 0.5·2.
    let want = softmax(&[1.0, 1.0, 0.5, 0.0, -1.0], 1.0);
    for (id, p) in sampler.distribution(&LOGITS).unwrap() {
        assert!((p - want[id as usize]).abs() < 1e-7);
    }
    sampler.forget();
    assert!((sampler.distribution(&LOGITS).unwrap()[0].1 - softmax(&LOGITS, 1.0)[0]).abs() < 1e-7);
}

#[test]
fn mirostat_two_keeps_what_surprises_less_than_the_bound() {
    // Surprises 0.83, 2.27, 3.0, 3.7, 5.2 bits; the bound starts at twice the target.
    for (tau, want) in [(0.1, &[0][..]), (1.2, &[0, 1]), (1.6, &[0, 1, 2]), (3.0, &[0, 1, 2, 3, 4])] {
        let params = SamplerParams { mirostat: Mirostat::V2, mirostat_tau: tau, ..SamplerParams::neutral() };
        let left = sampler(params).distribution(&LOGITS).unwrap();
        let ids: Vec<u32> = left.iter().map(|&(id, _)| id).collect();
        assert_eq!(ids, want, "{tau}");
    }
}

#[test]
fn mirostat_one_keeps_by_the_slope_after_the_temperature() {
    // Probabilities fall as i^-4, at temperature 2 as i^-2: k = sqrt(2^10 / (1 - 1/1000)).
    let logits: Vec<f32> = (1..=1000).map(|i| -4.0 * (i as f32).ln()).collect();
    let params = SamplerParams { mirostat: Mirostat::V1, temperature: 2.0, ..SamplerParams::neutral() };
    let left = sampler(params).distribution(&logits).unwrap();
    assert_eq!(left.iter().map(|&(id, _)| id).collect::<Vec<_>>(), (0..32).collect::<Vec<_>>());
}

#[test]
fn mirostat_moves_its_bound_by_the_error() {
    for mirostat in [Mirostat::V1, Mirostat::V2] {
        let params = SamplerParams {
            mirostat,
            mirostat_tau: 3.0,
            mirostat_eta: 0.5,
            top_k: 1,
            ..SamplerParams::neutral()
        };
        let mut sampler = sampler(params);
        let left = sampler.distribution(&LOGITS).unwrap();
        assert!(left.len() > 1, "other stages are off");
        let token = sampler.sample(&LOGITS).unwrap();
        let p = left.iter().find(|&&(id, _)| id == token).unwrap().1;
        assert!((sampler.selector.mu - (6.0 - 0.5 * (-p.log2() - 3.0))).abs() < 1e-9);
        sampler.forget();
        assert_eq!(sampler.selector.mu, 6.0);
    }
}

#[test]
fn adaptive_p_prefers_the_target_and_adapts() {
    let mut order = Stage::default_order();
    order.insert(0, Stage::AdaptiveP);
    let params = SamplerParams { adaptive_target: 0.2, order, ..SamplerParams::neutral() };
    let mut adaptive = sampler(params.clone());
    let preferred = |sampler: &mut Sampler| sampler.distribution(&LOGITS).unwrap()[0].0;
    assert_eq!(preferred(&mut adaptive), 1, "0.207 is nearest to 0.2");
    // After improbable tokens it aims higher.
    while preferred(&mut adaptive) != 0 {
        adaptive.selector.draw(4, 0.0);
        adaptive.accept(4);
    }
    adaptive.forget();
    assert_eq!(preferred(&mut adaptive), 1);
    let off = SamplerParams { adaptive_target: -1.0, ..params };
    assert!((sampler(off).distribution(&LOGITS).unwrap()[0].1 - softmax(&LOGITS, 1.0)[0]).abs() < 1e-7);
}

#[test]
fn adaptive_p_has_the_published_curve() {
    let order = vec![Stage::Temperature, Stage::AdaptiveP];
    let params = SamplerParams { adaptive_target: 0.3, temperature: 2.0, order, ..SamplerParams::neutral() };
    let curve = |p: &f64| {
        let distance = (p - 0.3).abs() / 0.3;
        (5.0 - 10.0 * distance * distance / (1.0 + distance)) as f32
    };
    let want = softmax(&softmax(&LOGITS, 2.0).iter().map(curve).collect::<Vec<_>>(), 1.0);
    for (id, p) in sampler(params).distribution(&LOGITS).unwrap() {
        assert!((p - want[id as usize]).abs() < 1e-6, "{id}: {p}, want {}", want[id as usize]);
    }
}

#[test]
fn xtc_does_not_see_the_numbers_of_the_draws() {
    assert_ne!(generator(1, Stream::Draws).next_u64(), generator(1, Stream::Xtc).next_u64());
}

#[test]
fn a_seed_fixes_the_draws_everywhere() {
    let params = SamplerParams { temperature: 3.0, ..SamplerParams::neutral() };
    let draws = |seed| {
        let mut sampler = Sampler::new(params.clone(), Some(seed)).unwrap();
        (0..24).map(|_| sampler.sample(&LOGITS).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draws(42), [1, 0, 1, 1, 3, 0, 1, 0, 1, 3, 2, 3, 1, 1, 1, 0, 1, 0, 2, 2, 3, 0, 2, 1]);
    assert_ne!(draws(42), draws(43));
}

#[test]
fn a_random_seed_is_told_and_can_be_used_again() {
    let mut first = Sampler::new(SamplerParams::neutral(), None).unwrap();
    let mut again = Sampler::new(SamplerParams::neutral(), Some(first.seed())).unwrap();
    assert!(first.to_string().ends_with(&format!("(seed {})", first.seed())));
    for _ in 0..50 {
        assert_eq!(first.sample(&LOGITS), again.sample(&LOGITS));
    }
}

#[test]
fn settings_are_shown_in_order() {
    assert_eq!(
        SamplerParams::default().to_string(),
        "penalties off > dry off > top_n_sigma off > top_k 40 > typ_p off > top_p 0.95 > min_p 0.05 > xtc off \
         > temperature 0.8 > draw"
    );
    let mut params =
        SamplerParams { repeat_penalty: 1.1, order: vec![Stage::Penalties], ..Default::default() };
    let penalties = "penalties over the last 64 (repeat 1.1, frequency 0, presence 0)";
    assert_eq!(params.to_string(), format!("{penalties} > draw"));
    params.temperature = 0.0;
    assert_eq!(params.to_string(), format!("{penalties} > the largest logit (temperature 0)"));
    Preset::Qwen3Thinking.apply(&mut params);
    assert_eq!((params.temperature, params.top_p, params.top_k, params.min_p), (0.6, 0.95, 20, 0.0));
    "qwen3".parse::<Preset>().unwrap().apply(&mut params);
    assert_eq!((params.temperature, params.top_p, params.top_k, params.min_p), (0.7, 0.8, 20, 0.0));
}

#[test]
fn names_of_stages_are_llama_cpps() {
    let order: Order = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature".parse().unwrap();
    use Stage::*;
    assert_eq!(order.stages, [Penalties, Dry, TopNSigma, TopK, TypicalP, TopP, MinP, Xtc, Temperature]);
    assert_eq!(order.stages, Stage::default_order());
    assert_eq!(Order::from_letters("edskypmxt").unwrap(), order);
    assert_eq!(Order::from_letters("kiat").unwrap().stages, [TopK, AdaptiveP, Temperature]);
    assert_eq!("infill;top_k".parse::<Order>().unwrap().left_out, ["infill"]);
    let error = Order::from_letters("kq").unwrap_err().to_string();
    assert!(
        error.starts_with("unknown letter 'q' for a sampling stage; known: e (penalties), d (dry)"),
        "{error}"
    );
    assert_eq!("Top-K; nucleus;temp".parse::<Order>().unwrap().stages, [TopK, TopP, Temperature]);
    let error = "top_k;topq".parse::<Order>().unwrap_err().to_string();
    assert!(error.starts_with("unknown sampling stage 'topq'; known: penalties, dry"), "{error}");
    assert!("qwen9".parse::<Preset>().unwrap_err().to_string().contains("qwen3-thinking, qwen3"));
}

#[test]
fn values_without_meaning_are_refused_by_name() {
    type Change = fn(&mut SamplerParams);
    let cases: [(&str, Change); 15] = [
        ("temperature", |p| p.temperature = f32::NAN),
        ("top_p", |p| p.top_p = -0.1),
        ("typical_p", |p| p.typical_p = f32::NAN),
        ("min_p", |p| p.min_p = 1.5),
        ("repeat_penalty", |p| p.repeat_penalty = 0.0),
        ("frequency_penalty", |p| p.frequency_penalty = f32::INFINITY),
        ("presence_penalty", |p| p.presence_penalty = f32::NAN),
        ("xtc_probability", |p| p.xtc_probability = 1.5),
        ("xtc_threshold", |p| p.xtc_threshold = f32::NAN),
        ("adaptive_target", |p| p.adaptive_target = 1.5),
        ("adaptive_decay", |p| p.adaptive_decay = 1.0),
        ("top_n_sigma", |p| p.top_n_sigma = f32::NAN),
        ("dry_base", |p| p.dry.base = f32::INFINITY),
        ("mirostat_tau", |p| p.mirostat_tau = f32::NAN),
        ("logit_bias of token 9", |p| p.logit_bias = vec![(9, f32::NAN)]),
    ];
    for (name, change) in cases {
        let mut params = SamplerParams::default();
        change(&mut params);
        let error = Sampler::new(params, None).unwrap_err().to_string();
        assert!(error.starts_with(&format!("sampling setting {name}: expected ")), "{error}");
    }
}
