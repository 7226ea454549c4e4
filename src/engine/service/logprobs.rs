//! Log-probabilities of tokens, as the model has them: before any stage of a sampler.

use qgguf_kernels::Kernels;

/// A token and the logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logprob {
    /// The token.
    pub token: u32,
    /// The natural logarithm of its probability.
    pub logprob: f32,
}

/// What the model thought of a token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// The token that came.
    pub token: Logprob,
    /// The most probable ones, best first; of equals the lowest id.
    pub top: Vec<Logprob>,
}

impl TokenLogprobs {
    /// Log-probabilities of `token` and of the `n_top` most probable ones, by the logits of the whole vocabulary.
    pub fn new(kernels: Kernels, logits: &[f32], token: u32, n_top: usize) -> TokenLogprobs {
        let (largest, _) = kernels.largest_and_nan(logits);
        let mass = kernels.softmax_weights(&mut logits.to_vec(), largest, 1.0);
        let of = |token: u32| {
            let distance = f64::from(logits[token as usize]) - f64::from(largest);
            Logprob { token, logprob: (distance - mass.ln()) as f32 }
        };
        let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
        let by_logit = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        let n_top = n_top.min(ids.len());
        if n_top > 0 {
            ids.select_nth_unstable_by(n_top - 1, by_logit);
        }
        ids.truncate(n_top);
        ids.sort_unstable_by(by_logit);
        TokenLogprobs { token: of(token), top: ids.into_iter().map(of).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        // Probabilities 1/8, 1/2, 1/4, 1/8.
        let logits = [0.0, 4f32.ln(), 2f32.ln(), 0.0];
        let logprobs = TokenLogprobs::new(Kernels::best(), &logits, 3, 3);
        let ids: Vec<u32> = logprobs.top.iter().map(|top| top.token).collect();
        assert_eq!((logprobs.token.token, ids.as_slice()), (3, &[1, 2, 0][..]));
        let expected = [0.5f32, 0.25, 0.125].map(f32::ln);
        for (top, expected) in logprobs.top.iter().zip(expected) {
            assert!((top.logprob - expected).abs() < 1e-6, "{top:?} {expected}");
        }
        assert_eq!(logprobs.token.logprob, logprobs.top[2].logprob);
        assert!(TokenLogprobs::new(Kernels::best(), &logits, 0, 0).top.is_empty());
        assert_eq!(TokenLogprobs::new(Kernels::best(), &logits, 0, 9).top.len(), 4);
    }
}
