//! One sequence: its tokens, and what the layers remember of them.

use std::sync::Arc;

use qgguf_kernels::{CHUNK, KvLayer, KvLayout, KvPool, KvPoolFull};

/// The tokens evaluated so far and their keys and values. Only the engine that made it evaluates more.
pub struct Sequence {
    tokens: Vec<u32>,
    memory: Vec<KvLayer>,
    n_ctx: usize,
}

impl Sequence {
    pub(super) fn new(layouts: &Arc<[KvLayout]>, pool: &KvPool, n_ctx: usize) -> Sequence {
        let memory = layouts.iter().map(|&layout| KvLayer::new(layout, pool)).collect();
        // Room for what is likely, so that a token never has to make some.
        Sequence { tokens: Vec::with_capacity(n_ctx.min(1 << 16)), memory, n_ctx }
    }

    /// The tokens evaluated so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// True if none was evaluated.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Positions that it may hold.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Bytes of its keys and values, those shared with others included.
    pub fn bytes(&self) -> usize {
        self.memory.iter().map(KvLayer::bytes).sum()
    }

    /// Forgets everything from position `n` on.
    pub fn truncate(&mut self, n: usize) {
        self.tokens.truncate(n);
        self.memory.iter_mut().for_each(|layer| layer.truncate(n));
    }

    /// A sequence of the first `n` tokens, at most all. Both share memory until one of them goes on.
    pub fn fork(&self, n: usize) -> Sequence {
        let n = n.min(self.len());
        Sequence {
            tokens: self.tokens[..n].to_vec(),
            memory: self.memory.iter().map(|layer| layer.fork(n)).collect(),
            n_ctx: self.n_ctx,
        }
    }

    /// Tokens that it has in common with `tokens`, from the start.
    pub fn common_prefix(&self, tokens: &[u32]) -> usize {
        self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count()
    }

    /// Pages of [`CHUNK`] positions, of all layers together, that `n` more tokens need from the pool.
    pub fn missing_pages(&self, n: usize) -> usize {
        self.memory.iter().map(|layer| layer.missing_pages(n)).max().unwrap_or(0)
    }

    /// Pages that it holds, shared ones included.
    pub fn n_pages(&self) -> usize {
        self.len().div_ceil(CHUNK)
    }

    /// Makes room for `n` more tokens.
    pub(super) fn reserve(&mut self, n: usize) -> Result<(), KvPoolFull> {
        self.memory.iter_mut().try_for_each(|layer| layer.reserve(n))
    }

    /// Its memory, for a pass; [`Sequence::extend`] gives it back.
    pub(super) fn lend_memory(&mut self) -> Vec<KvLayer> {
        std::mem::take(&mut self.memory)
    }

    /// Takes back its memory, which now has `tokens` too.
    pub(super) fn extend(&mut self, tokens: &[u32], memory: Vec<KvLayer>) {
        self.tokens.extend_from_slice(tokens);
        self.memory = memory;
    }
}
