//! Greedy continuations, to see where two models part.

use std::ops::ControlFlow;

use crate::engine::EvalError;
use crate::session::Session;

/// The `n` likeliest tokens one after the other, after `prompt`; the lowest id among equals. Fewer if `each`, which is asked
/// before every one, breaks off.
///
/// # Errors
/// If the prompt or the tokens do not fit the context.
pub fn greedy(
    session: &mut Session,
    prompt: &[u32],
    n: usize,
    mut each: impl FnMut() -> ControlFlow<()>,
) -> Result<Vec<u32>, EvalError> {
    session.truncate(0);
    let mut tokens: Vec<u32> = Vec::with_capacity(n);
    while tokens.len() < n && each().is_continue() {
        let kernels = session.options().kernels;
        let logits = match tokens.last() {
            None => session.eval(prompt)?,
            Some(&token) => session.eval(&[token])?,
        };
        let (largest, _) = kernels.largest_and_nan(logits);
        tokens.push(logits.iter().position(|&logit| logit == largest).unwrap_or(0) as u32);
    }
    Ok(tokens)
}

/// The first position at which two continuations differ, if they do.
pub fn first_difference(a: &[u32], b: &[u32]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b)
}
