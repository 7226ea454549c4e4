//! SentencePiece-style tokenization (`tokenizer.ggml.model` = `llama`): adjacent pieces are joined, the best
//! score first, and what has no token becomes bytes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::vocab::Vocab;

/// A piece of the text, in a doubly linked list; merged away when `len` is 0.
struct Symbol {
    start: usize,
    len: usize,
    prev: usize,
    next: usize,
}

/// No neighbour.
const NONE: usize = usize::MAX;

/// Two neighbours that together are a token.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
}

impl Ord for Pair {
    /// Highest score first, then leftmost.
    fn cmp(&self, other: &Pair) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Pair) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Pair) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

/// Appends the tokens of `text`, whose spaces have been replaced already. Need not be UTF-8.
///
/// Every merge shortens the list by one and adds two candidates, so the time is O(n log n).
pub(super) fn encode(vocab: &Vocab, unknown: Option<u32>, text: &[u8], out: &mut Vec<u32>) {
    let mut symbols = characters(text);
    let mut queue = BinaryHeap::with_capacity(symbols.len());
    for right in 1..symbols.len() {
        queue.extend(candidate(vocab, text, &symbols, right - 1, right));
    }
    while let Some(Pair { left, right, len, .. }) = queue.pop() {
        let (left_len, right_len) = (symbols[left].len, symbols[right].len);
        if left_len == 0 || right_len == 0 || left_len + right_len != len {
            continue; // One of the two has been merged with somebody else meanwhile.
        }
        let next = symbols[right].next;
        symbols[left].len = len;
        symbols[left].next = next;
        symbols[right].len = 0;
        if next != NONE {
            symbols[next].prev = left;
            queue.extend(candidate(vocab, text, &symbols, left, next));
        }
        if symbols[left].prev != NONE {
            queue.extend(candidate(vocab, text, &symbols, symbols[left].prev, left));
        }
    }
    for symbol in symbols.iter().filter(|symbol| symbol.len > 0) {
        let piece = &text[symbol.start..symbol.start + symbol.len];
        // Pairs are only joined to tokens, so what is not one is a single character.
        match vocab.id(piece) {
            Some(id) => out.push(id),
            None => out.extend(
                piece.iter().filter_map(|&byte| vocab.byte_id(byte).or(vocab.id([byte])).or(unknown)),
            ),
        }
    }
}

/// The text as a list of characters, their lengths as the lead bytes announce them.
fn characters(text: &[u8]) -> Vec<Symbol> {
    let mut symbols = Vec::with_capacity(text.len());
    let mut start = 0;
    while start < text.len() {
        let announced = match text[start] {
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xFF => 4,
            _ => 1,
        };
        let len = announced.min(text.len() - start);
        let i = symbols.len();
        symbols.push(Symbol { start, len, prev: i.wrapping_sub(1), next: i + 1 });
        start += len;
    }
    if let Some(last) = symbols.last_mut() {
        last.next = NONE;
    }
    symbols
}

/// The pair of two neighbours, if it is a token.
fn candidate(vocab: &Vocab, text: &[u8], symbols: &[Symbol], left: usize, right: usize) -> Option<Pair> {
    let len = symbols[left].len + symbols[right].len;
    let start = symbols[left].start;
    let id = vocab.id(&text[start..start + len])?;
    // Adding 0 turns -0 into 0, which are equal scores but not in the total order.
    Some(Pair { score: vocab.score(id) + 0.0, left, right, len })
}
