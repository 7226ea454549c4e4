//! Sequences that nobody works on, kept because a later prompt may begin like them.

use crate::engine::Sequence;

/// Kept sequences, the least recently used first.
#[derive(Default)]
pub(super) struct Prefixes {
    kept: Vec<Sequence>,
}

impl Prefixes {
    /// Keeps a sequence. Those that it begins with need no place of their own any more.
    pub fn keep(&mut self, sequence: Sequence) {
        if sequence.is_empty() {
            return;
        }
        self.kept.retain(|old| sequence.common_prefix(old.tokens()) < old.len());
        let contained = |old: &mut Sequence| old.common_prefix(sequence.tokens()) == sequence.len();
        match self.kept.iter_mut().position(contained) {
            // It is the longer one's start: that was used just now.
            Some(at) => {
                let longer = self.kept.remove(at);
                self.kept.push(longer);
            }
            None => self.kept.push(sequence),
        }
    }

    /// The length of the longest common start of `tokens` and a kept sequence.
    pub fn longest(&self, tokens: &[u32]) -> usize {
        self.kept.iter().map(|kept| kept.common_prefix(tokens)).max().unwrap_or(0)
    }

    /// A sequence of the first `n` of `tokens`, which a kept one must begin with.
    pub fn take(&mut self, tokens: &[u32], n: usize) -> Option<Sequence> {
        let at = self.kept.iter().position(|kept| kept.common_prefix(tokens) >= n)?;
        let kept = self.kept.remove(at);
        if kept.len() == n {
            return Some(kept);
        }
        let fork = kept.fork(n);
        self.kept.push(kept);
        Some(fork)
    }

    /// Drops the least recently used sequence; false if there is none.
    pub fn drop_oldest(&mut self) -> bool {
        let any = !self.kept.is_empty();
        if any {
            self.kept.remove(0);
        }
        any
    }
}
