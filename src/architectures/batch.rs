//! What one forward pass evaluates: the next tokens of some sequences, each with a memory of its own.

use qgguf_kernels::{KvLayer, Span};

/// What is wanted of the tokens of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// Nothing: the tokens only go into the cache.
    None,
    /// The logits after the last token.
    Last,
    /// The logits after the token of this index and after all that follow.
    From(usize),
    /// The residual stream after the last norm, for every token.
    Hidden,
}

impl Outputs {
    /// Rows of logits and of hidden states that this leaves of `n` tokens.
    pub fn n_rows(self, n: usize) -> [usize; 2] {
        match self {
            Outputs::None => [0, 0],
            Outputs::Last => [1, 0],
            Outputs::From(first) => [n - first, 0],
            Outputs::Hidden => [0, n],
        }
    }
}

/// The tokens of a forward pass, those of one sequence after those of another.
///
/// Results do not depend on what else is in the batch, not in a single bit.
#[derive(Default)]
pub struct Batch {
    tokens: Vec<u32>,
    /// One per sequence.
    spans: Vec<Span>,
    /// Size of the context of each sequence.
    n_ctx: Vec<usize>,
    /// What the layers of each sequence remember.
    memories: Vec<Vec<KvLayer>>,
    /// Tokens whose logits are wanted, ascending.
    logits: Vec<usize>,
    /// Tokens whose hidden state is wanted, ascending.
    hidden: Vec<usize>,
}

impl Batch {
    /// Forgets the last pass.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.spans.clear();
        self.n_ctx.clear();
        self.memories.clear();
        self.logits.clear();
        self.hidden.clear();
    }

    /// Adds the next tokens of a sequence, which begin at position `pos0` of a context of `n_ctx`.
    ///
    /// # Panics
    /// If there are no tokens, or more are wanted than there are.
    pub fn push(
        &mut self,
        tokens: &[u32],
        pos0: usize,
        n_ctx: usize,
        outputs: Outputs,
        memory: Vec<KvLayer>,
    ) {
        assert!(!tokens.is_empty(), "a sequence in a batch has tokens");
        let span = Span { first: self.tokens.len(), n_tokens: tokens.len(), pos0 };
        self.tokens.extend_from_slice(tokens);
        match outputs {
            Outputs::None => {}
            Outputs::Last => self.logits.push(span.tokens().end - 1),
            Outputs::From(from) => {
                assert!(from <= tokens.len());
                self.logits.extend(span.first + from..span.tokens().end);
            }
            Outputs::Hidden => self.hidden.extend(span.tokens()),
        }
        self.spans.push(span);
        self.n_ctx.push(n_ctx);
        self.memories.push(memory);
    }

    /// Gives back the memory of sequence `i`, with what the pass added.
    pub fn take_memory(&mut self, i: usize) -> Vec<KvLayer> {
        std::mem::take(&mut self.memories[i])
    }

    /// The tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Where each sequence's tokens are.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Position and context size of every token.
    pub fn positions(&self) -> impl Iterator<Item = (usize, usize)> {
        let spans = self.spans.iter().zip(&self.n_ctx);
        spans.flat_map(|(span, &n_ctx)| (span.pos0..span.pos0 + span.n_tokens).map(move |pos| (pos, n_ctx)))
    }

    /// Tokens whose logits are wanted, ascending.
    pub fn logits(&self) -> &[usize] {
        &self.logits
    }

    /// Tokens whose hidden state is wanted, ascending.
    pub fn hidden(&self) -> &[usize] {
        &self.hidden
    }

    /// The cache of layer `il` of sequence `i`.
    pub fn cache(&self, i: usize, il: usize) -> &KvLayer {
        &self.memories[i][il]
    }

    /// The spans, with the caches of layer `il`.
    pub fn caches_mut(&mut self, il: usize) -> impl Iterator<Item = (Span, &mut KvLayer)> {
        let caches = self.memories.iter_mut().map(move |memory| &mut memory[il]);
        self.spans.iter().copied().zip(caches)
    }
}
