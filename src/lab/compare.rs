//! How the answers of two models differ.

use std::ops::ControlFlow;

use super::relative_error;
use crate::engine::EvalError;
use crate::session::Session;

/// What a model makes of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The logits after the prompt.
    pub logits: Vec<f32>,
    /// The tokens of greedy decoding, ends of generation among them.
    pub greedy: Vec<u32>,
}

/// How an answer differs from the original's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// `‖b - a‖ / ‖a‖` of the logits after the prompt.
    pub relative_rms: f64,
    /// The cosine of the angle between them.
    pub cosine: f64,
    /// The likeliest token is the same.
    pub same_argmax: bool,
    /// Greedy tokens compared.
    pub n_tokens: usize,
    /// Equal tokens before the first that differs; `None` if none does.
    pub first_divergence: Option<usize>,
}

/// Evaluates a prompt in an empty session and then `n` greedy tokens, until `each` breaks off; `None` if it does.
pub fn answer(
    session: &mut Session,
    prompt: &[u32],
    n: usize,
    mut each: impl FnMut() -> ControlFlow<()>,
) -> Result<Option<Answer>, EvalError> {
    session.truncate(0);
    let logits = session.eval(prompt)?.to_vec();
    let mut greedy = vec![argmax(&logits)];
    while greedy.len() < n {
        if each().is_break() {
            return Ok(None);
        }
        let last = greedy[greedy.len() - 1];
        greedy.push(argmax(session.eval(&[last])?));
    }
    Ok(Some(Answer { logits, greedy }))
}

/// The largest value's place, the first among equals.
fn argmax(logits: &[f32]) -> u32 {
    let best = (1..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
    best as u32
}

impl Answer {
    /// How `other` differs from this, the original's.
    pub fn difference(&self, other: &Answer) -> Difference {
        let equal = self.greedy.iter().zip(&other.greedy).take_while(|(a, b)| a == b).count();
        let n_tokens = self.greedy.len().min(other.greedy.len());
        Difference {
            relative_rms: relative_error(&self.logits, &other.logits),
            cosine: cosine(&self.logits, &other.logits),
            same_argmax: argmax(&self.logits) == argmax(&other.logits),
            n_tokens,
            first_divergence: (equal < n_tokens).then_some(equal),
        }
    }

    /// The share of the first `n` greedy tokens that are the same in the same place, 0 to 1.
    pub fn share_of_equal(&self, other: &Answer, n: usize) -> f64 {
        let pairs = || self.greedy.iter().zip(&other.greedy).take(n);
        pairs().filter(|(a, b)| a == b).count() as f64 / pairs().count().max(1) as f64
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(logits: &[f32], greedy: &[u32]) -> Answer {
        Answer { logits: logits.to_vec(), greedy: greedy.to_vec() }
    }

    #[test]
    fn differences_are_counted_from_the_original() {
        let a = of(&[3.0, 4.0, 0.0], &[1, 2, 3, 4]);
        let d = a.difference(&of(&[3.0, 0.0, 3.0], &[1, 2, 9, 4]));
        assert!((d.relative_rms - 1.0).abs() < 1e-12, "{d:?}");
        assert!((d.cosine - 9.0 / (5.0 * 18f64.sqrt())).abs() < 1e-12, "{d:?}");
        assert_eq!((d.same_argmax, d.first_divergence, d.n_tokens), (false, Some(2), 4));
        let b = of(&[3.0, 0.0, 3.0], &[1, 2, 9, 4]);
        assert_eq!((a.share_of_equal(&b, 2), a.share_of_equal(&b, 4)), (1.0, 0.75));
        let same = a.difference(&a);
        assert_eq!((same.relative_rms, same.same_argmax, same.first_divergence), (0.0, true, None));
    }
}
