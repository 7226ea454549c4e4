//! Texts as vectors.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use tokio::sync::mpsc;

use crate::engine::service::{Event, Request, Task};

use super::backend::Running;
use super::error::{ApiError, Result};
use super::state::Served;

/// Inputs that one request has in the engine at once.
const AT_ONCE: usize = 16;

/// Embeddings of several inputs, and the number of their tokens.
#[derive(Debug)]
pub struct Embeddings {
    /// A vector for each input, not normalised.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all inputs.
    pub n_tokens: usize,
}

/// An input that is being evaluated; dropped, it is cancelled.
struct Pending {
    ticket: Box<dyn Running>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.ticket.cancel();
    }
}

/// Evaluates all inputs, several at once.
///
/// # Errors
/// An input that is empty or too long, a full queue, a failure of the engine.
pub async fn embed(served: &Served, inputs: Vec<Vec<u32>>) -> Result<Embeddings> {
    let n_ctx = served.n_ctx();
    if let Some(i) = inputs.iter().position(Vec::is_empty) {
        return Err(ApiError::field(format!("input[{i}]"), "expected a text of at least one token"));
    }
    if let Some(long) = inputs.iter().find(|input| input.len() > n_ctx) {
        return Err(ApiError::context(long.len(), n_ctx));
    }
    let n_tokens = inputs.iter().map(Vec::len).sum();
    let mut pending: VecDeque<Pending> = VecDeque::new();
    let mut vectors = Vec::with_capacity(inputs.len());
    for input in inputs {
        if pending.len() == AT_ONCE
            && let Some(oldest) = pending.pop_front()
        {
            vectors.push(finish(oldest).await?);
        }
        pending.push_back(submit(served, input)?);
    }
    for rest in pending {
        vectors.push(finish(rest).await?);
    }
    Ok(Embeddings { vectors, n_tokens })
}

fn submit(served: &Served, prompt: Vec<u32>) -> Result<Pending> {
    let (sender, events) = mpsc::unbounded_channel();
    let sink = Box::new(move |event| match sender.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    });
    let request = Request { prompt, task: Task::Embed(served.pooling), cache_prompt: false, sink };
    Ok(Pending { ticket: served.backend.submit(request)?, events })
}

async fn finish(mut pending: Pending) -> Result<Vec<f32>> {
    while let Some(event) = pending.events.recv().await {
        match event {
            Event::Embedding(vector) => return Ok(vector),
            Event::Failed(error) => return Err(ApiError::internal(error.to_string())),
            _ => {}
        }
    }
    Err(ApiError::internal("the engine has stopped"))
}

/// How a vector is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Not at all.
    None,
    /// The largest component becomes 32760, as 16-bit integers have room for.
    Largest,
    /// The sum of the `p`th powers becomes 1.
    P(u32),
}

impl Norm {
    /// llama.cpp's number: -1 none, 0 largest, `p` otherwise.
    pub fn of(number: i64) -> Norm {
        match number {
            ..0 => Norm::None,
            0 => Norm::Largest,
            p => Norm::P(u32::try_from(p).unwrap_or(u32::MAX)),
        }
    }

    /// Scales a vector; one of zeros stays as it is.
    pub fn apply(self, vector: &mut [f32]) {
        let largest = vector.iter().fold(0f64, |max, x| max.max(f64::from(*x).abs()));
        let length = match self {
            Norm::None => return,
            Norm::Largest => largest / 32760.0,
            Norm::P(2) => vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt(),
            Norm::P(p) => {
                let p = f64::from(p);
                vector.iter().map(|x| f64::from(*x).abs().powf(p)).sum::<f64>().powf(1.0 / p)
            }
        };
        if length > 0.0 {
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_scaled_by_their_norm() {
        for (number, expected) in
            [(-1, [3.0, -4.0]), (0, [24570.0, -32760.0]), (1, [3.0 / 7.0, -4.0 / 7.0]), (2, [0.6, -0.8])]
        {
            let mut vector = [3.0, -4.0];
            Norm::of(number).apply(&mut vector);
            assert_eq!(vector, expected, "{number}");
        }
        let mut zeros = [0.0; 3];
        Norm::P(2).apply(&mut zeros);
        assert_eq!(zeros, [0.0; 3]);
    }
}
