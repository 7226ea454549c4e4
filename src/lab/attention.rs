//! Where attention goes: how much of it each head gives to the first token and to the token it is at.
//!
//! Softmax has to hand out all of its weight; a head that looks for nothing leaves it with the first token, which every
//! position sees (attention sinks: Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023).

use std::sync::{Arc, Mutex, PoisonError};

use crate::architectures::AttentionStep;
use crate::session::Session;
use crate::threads::lock;

/// Attention weights of one query: `weights[p]` is what head `head` of the step's token number `token` gives to
/// position p. `keys` are those of the head's key/value head, `[position][element]`
/// ([`KvLayer::keys`](qgguf_kernels::KvLayer::keys)). Positions outside a sliding window get 0.
pub fn weights(step: &AttentionStep<'_>, keys: &[f32], head: usize, token: usize) -> Vec<f32> {
    let (_, dim, _) = step.kv.dims();
    let query = &step.q[(token * step.params.n_head + head) * dim..][..dim];
    let position = step.pos0 + token;
    let first = first_visible(step, position);
    let mut weights = vec![0.0; first];
    weights.extend(keys.chunks_exact(dim).take(position + 1).skip(first).map(|key| {
        let score = dot(query, key) * step.params.scale;
        step.params.softcap.map_or(score, |cap| cap * (score / cap).tanh())
    }));
    let seen = &mut weights[first..];
    let largest = seen.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    seen.iter_mut().for_each(|w| *w = (*w - largest).exp());
    let sum: f64 = seen.iter().map(|&w| f64::from(w)).sum();
    seen.iter_mut().for_each(|w| *w = (f64::from(*w) / sum) as f32);
    weights
}

/// The first position that `position` sees.
fn first_visible(step: &AttentionStep<'_>, position: usize) -> usize {
    step.params.window.map_or(0, |window| (position + 1).saturating_sub(window))
}

/// Eight sums side by side: the compiler makes vectors of them.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum()
}

/// Mean shares of attention, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// What goes to the first token of all.
    pub first: f64,
    /// What goes to the position itself.
    pub own: f64,
}

impl Share {
    fn add(&mut self, other: Share) {
        self.first += other.first;
        self.own += other.own;
    }

    fn divided(self, n: usize) -> Share {
        Share { first: self.first / n as f64, own: self.own / n as f64 }
    }
}

/// The shares of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerShares {
    /// The layer.
    pub layer: usize,
    /// A position sees itself and the `window - 1` before it; beyond, the first token gets nothing.
    pub window: Option<usize>,
    /// Positions that were measured.
    pub n_positions: usize,
    /// Means over the positions, one for each query head.
    pub heads: Vec<Share>,
    /// What both shares would be if attention were spread evenly over what is visible; that of the first token is 0
    /// where a window hides it.
    pub even: Share,
}

impl LayerShares {
    /// The mean over the heads.
    pub fn mean(&self) -> Share {
        let mut sum = Share::default();
        self.heads.iter().for_each(|&head| sum.add(head));
        sum.divided(self.heads.len())
    }
}

/// Measures a session's attention from a position on.
pub struct Recorder {
    sums: Arc<Mutex<Vec<Sums>>>,
}

impl Recorder {
    /// Watches the following evaluations of `session`: the given layers, positions `from` and later.
    pub fn attach(session: &mut Session, from: usize, layers: &[usize]) -> Recorder {
        let sums = Arc::new(Mutex::new(layers.iter().map(|&layer| Sums::new(layer)).collect::<Vec<_>>()));
        let shared = sums.clone();
        session.engine_mut().set_attention_probe(Some(Box::new(move |step| {
            let mut layers = lock(&shared);
            if let Some(sums) = layers.iter_mut().find(|sums| sums.shares.layer == step.layer) {
                sums.add(step, from);
            }
        })));
        Recorder { sums }
    }

    /// The shares so far, in the order in which the layers were asked for; without the layers of which no position was
    /// measured.
    pub fn shares(&self) -> Vec<LayerShares> {
        lock(&self.sums).iter().filter(|sums| sums.shares.n_positions > 0).map(Sums::means).collect()
    }
}

/// The sums of a layer while positions are evaluated.
struct Sums {
    shares: LayerShares,
}

impl Sums {
    fn new(layer: usize) -> Sums {
        let even = Share::default();
        Sums { shares: LayerShares { layer, window: None, n_positions: 0, heads: Vec::new(), even } }
    }

    fn add(&mut self, step: &AttentionStep<'_>, from: usize) {
        let tokens = from.saturating_sub(step.pos0)..step.n_tokens;
        if tokens.is_empty() {
            return;
        }
        let n_head = step.params.n_head;
        let group = n_head / step.kv.dims().0;
        let heads: Vec<Mutex<Share>> = (0..n_head).map(|_| Mutex::default()).collect();
        step.compute.run(n_head, |head| {
            let keys = step.kv.keys(head / group);
            let mut sum = Share::default();
            for token in tokens.clone() {
                let weights = weights(step, &keys, head, token);
                let own = *weights.last().expect("a position sees itself");
                sum.add(Share { first: weights[0].into(), own: own.into() });
            }
            *lock(&heads[head]) = sum;
        });
        let shares = &mut self.shares;
        shares.n_positions += tokens.len();
        shares.window = step.params.window;
        shares.heads.resize(n_head, Share::default());
        for (head, sum) in shares.heads.iter_mut().zip(heads) {
            head.add(sum.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        for position in tokens.map(|token| step.pos0 + token) {
            let first = first_visible(step, position);
            let even = 1.0 / (position + 1 - first) as f64;
            shares.even.add(Share { first: if first == 0 { even } else { 0.0 }, own: even });
        }
    }

    fn means(&self) -> LayerShares {
        let n = self.shares.n_positions;
        LayerShares {
            heads: self.shares.heads.iter().map(|head| head.divided(n)).collect(),
            even: self.shares.even.divided(n),
            ..self.shares
        }
    }
}
