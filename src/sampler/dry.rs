//! DRY: a token that would go on with a repetition loses the more, the longer the repeated text already is.
//!
//! The recent tokens, read backwards from the last one, are compared with themselves from every earlier place; the
//! token after such a place would lengthen the repetition by one. Breakers (line ends, quotes, …) end what may count as
//! one repetition.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::tokenizer::Tokenizer;

/// What DRY is told. The defaults are llama.cpp's.
#[derive(Clone, Debug, PartialEq)]
pub struct DryParams {
    /// Scales the penalty; 0: off.
    pub multiplier: f32,
    /// The penalty grows by this factor with every repeated token; below 1: off.
    pub base: f32,
    /// Repetitions of this many tokens may go on once without more than `multiplier`; shorter ones cost nothing.
    pub allowed_length: u32,
    /// How many of the last accepted tokens (prompt included) are searched; 0: off.
    pub penalty_last_n: u32,
    /// What ends a repetition. [`Breakers::new`] makes them from texts, usually [`Breakers::DEFAULT`].
    pub breakers: Arc<Breakers>,
}

impl Default for DryParams {
    fn default() -> DryParams {
        DryParams {
            multiplier: 0.0,
            base: 1.75,
            allowed_length: 2,
            penalty_last_n: 64,
            breakers: Arc::default(),
        }
    }
}

impl DryParams {
    /// Whether it changes anything.
    pub fn is_on(&self) -> bool {
        self.multiplier != 0.0 && self.base >= 1.0 && self.penalty_last_n > 0
    }

    /// What is subtracted from the logit of a token that would lengthen a repetition of `n` tokens.
    fn penalty(&self, n: u32) -> f32 {
        // The logarithm of the largest f32: beyond it the power would be infinite.
        const LARGEST: f64 = 88.722_839_1;
        let base = f64::from(self.base);
        let exponent = f64::from(n - self.allowed_length);
        let exponent =
            if base > 1.000_001 { exponent.min((LARGEST / libm::log(base)).floor()) } else { exponent };
        self.multiplier * libm::pow(base, exponent) as f32
    }
}

/// Token sequences that end a repetition: by their first token, what has to follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakers {
    tails: HashMap<u32, Vec<Vec<u32>>>,
}

impl Breakers {
    /// llama.cpp's texts.
    pub const DEFAULT: [&str; 4] = ["\n", ":", "\"", "*"];

    /// Bytes of a text that count, and tokens after the first one.
    const MAX_BYTES: usize = 40;
    const MAX_TAIL: usize = 20;

    /// The ways in which tokens can hold or begin `texts`; empty texts are passed over.
    pub fn new<'a>(tokenizer: &Tokenizer, texts: impl IntoIterator<Item = &'a str>) -> Breakers {
        let pieces: Vec<Vec<u8>> =
            (0..tokenizer.n_vocab() as u32).map(|id| tokenizer.piece(id, true)).collect();
        let mut breakers = Breakers::default();
        for text in texts {
            breakers.add(text.as_bytes(), &pieces, |rest| tokenizer.encode_bytes(rest, false, false));
        }
        breakers
    }

    /// Adds the tokens that contain `text`, and those whose end is its start, followed by the tokens of the rest.
    fn add(&mut self, text: &[u8], pieces: &[Vec<u8>], encode: impl Fn(&[u8]) -> Vec<u32>) {
        let text = &text[..text.len().min(Breakers::MAX_BYTES)];
        if text.is_empty() {
            return;
        }
        for (id, piece) in (0u32..).zip(pieces) {
            let whole = piece.windows(text.len()).any(|part| part == text);
            let starts = (1..text.len()).filter(|&n| !whole && piece.ends_with(&text[..n]));
            for n in starts.chain(whole.then_some(text.len())) {
                let mut tail = encode(&text[n..]);
                tail.truncate(Breakers::MAX_TAIL);
                let known = self.tails.entry(id).or_default();
                if !known.contains(&tail) {
                    known.push(tail);
                }
            }
        }
    }

    /// Whether `token` is a breaker all by itself.
    fn is_breaker(&self, token: u32) -> bool {
        self.tails.get(&token).is_some_and(|tails| tails.iter().any(Vec::is_empty))
    }

    /// How many of the last tokens come after the last breaker; `recent` begins with the last token.
    fn reach(&self, recent: &[u32]) -> usize {
        let after = |(at, token): (usize, &u32)| {
            let follows = |tail: &&Vec<u32>| {
                tail.len() <= at && tail.iter().eq(recent[at - tail.len()..at].iter().rev())
            };
            self.tails.get(token)?.iter().filter(follows).map(|tail| at - tail.len()).min()
        };
        recent.iter().enumerate().find_map(after).unwrap_or(recent.len())
    }
}

/// The recent tokens and room to compare them.
#[derive(Clone, Debug, Default)]
pub(super) struct Dry {
    tokens: VecDeque<u32>,
    recent: Vec<u32>,
    repeats: Vec<usize>,
    penalties: Vec<(u32, u32)>,
}

impl Dry {
    pub fn push(&mut self, token: u32, params: &DryParams) {
        if self.tokens.len() == params.penalty_last_n as usize {
            self.tokens.pop_back();
        }
        self.tokens.push_front(token);
    }

    pub fn forget(&mut self) {
        self.tokens.clear();
    }

    /// The tokens that would lengthen a repetition, and what each loses.
    pub fn penalties(&mut self, params: &DryParams) -> impl Iterator<Item = (u32, f32)> {
        self.recent.clear();
        self.recent.extend(&self.tokens);
        self.penalties.clear();
        let reach = params.breakers.reach(&self.recent);
        if reach >= params.allowed_length as usize {
            common_prefixes(&self.recent, &mut self.repeats);
            let tokens = self.recent.iter().zip(self.repeats.iter().skip(1));
            let longer = tokens.map(|(&token, &n)| (token, n.min(reach) as u32));
            self.penalties.extend(longer.filter(|&(token, n)| {
                n > 0 && n >= params.allowed_length && !params.breakers.is_breaker(token)
            }));
            // The longest repetition of each token first, and only that one kept.
            self.penalties.sort_unstable_by_key(|&(token, n)| (token, u32::MAX - n));
            self.penalties.dedup_by_key(|&mut (token, _)| token);
        }
        self.penalties.iter().map(|&(token, n)| (token, params.penalty(n)))
    }
}

/// `lengths[k]`: how far `tokens[k..]` agrees with `tokens` from its start (the Z function), in linear time.
fn common_prefixes(tokens: &[u32], lengths: &mut Vec<usize>) {
    lengths.clear();
    lengths.resize(tokens.len(), 0);
    // The known match that ends furthest: tokens[start..end] is tokens[..end - start].
    let (mut start, mut end) = (0, 0);
    for k in 1..tokens.len() {
        let mut n = if k < end { lengths[k - start].min(end - k) } else { 0 };
        while k + n < tokens.len() && tokens[n] == tokens[k + n] {
            n += 1;
        }
        lengths[k] = n;
        if k + n > end {
            (start, end) = (k, k + n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens are letters; the last one in `text` is the last token.
    fn lengths(text: &str, params: &DryParams) -> Vec<(char, u32)> {
        let mut dry = Dry::default();
        text.bytes().for_each(|b| dry.push(u32::from(b), params));
        dry.penalties(params).for_each(drop);
        dry.penalties.iter().map(|&(token, n)| (char::from(token as u8), n)).collect()
    }

    fn on() -> DryParams {
        DryParams { multiplier: 0.8, allowed_length: 1, penalty_last_n: 100, ..DryParams::default() }
    }

    fn with_breakers(texts: &[&str]) -> DryParams {
        let pieces: Vec<Vec<u8>> = (0..128u8).map(|b| vec![b]).collect();
        let mut breakers = Breakers::default();
        for text in texts {
            breakers.add(text.as_bytes(), &pieces, |rest| rest.iter().map(|&b| u32::from(b)).collect());
        }
        DryParams { breakers: Arc::new(breakers), ..on() }
    }

    #[test]
    fn what_would_lengthen_a_repetition_is_found_with_its_length() {
        // "abc" was followed by c, "bc" by y, and "c" alone by b.
        assert_eq!(lengths("abccbcyabc", &on()), [('b', 1), ('c', 3), ('y', 2)]);
        assert_eq!(lengths("abccbcyabc", &DryParams { allowed_length: 3, ..on() }), [('c', 3)]);
        assert_eq!(lengths("aaaa", &on()), [('a', 3)]);
        assert_eq!(lengths("abcd", &on()), []);
        assert_eq!(lengths("", &on()), []);
    }

    #[test]
    fn only_the_last_tokens_are_searched() {
        assert_eq!(lengths("abxxxab", &on()), [('x', 2)]);
        assert_eq!(lengths("abxxxab", &DryParams { penalty_last_n: 6, ..on() }), [('x', 1)]);
        assert_eq!(lengths("abxxxab", &DryParams { penalty_last_n: 5, ..on() }), []);
    }

    #[test]
    fn a_breaker_ends_a_repetition_and_is_never_penalised() {
        assert_eq!(lengths("ab:cdxab:cd", &on()), [('x', 5)]);
        assert_eq!(lengths("ab:cdxab:cd", &with_breakers(&[":"])), [('x', 2)]);
        assert_eq!(lengths("ab:cab", &on()), [(':', 2)]);
        assert_eq!(lengths("ab:cab", &with_breakers(&[":"])), []);
        assert_eq!(lengths("abab:", &with_breakers(&[":"])), []);
    }

    #[test]
    fn a_breaker_of_several_tokens_has_to_be_complete() {
        // The text after "**" is "d"; a single '*' breaks nothing.
        assert_eq!(lengths("a**dxa**d", &with_breakers(&["**"])), [('x', 1)]);
        assert_eq!(lengths("a*dxa*d", &with_breakers(&["**"])), [('x', 3)]);
        assert_eq!(lengths("a*xa*", &with_breakers(&["**"])), [('x', 2)]);
    }

    #[test]
    fn breakers_are_found_inside_and_at_the_end_of_tokens() {
        let pieces: Vec<Vec<u8>> =
            ["a", "b", "xab", "xa", "ab", "ba"].map(|s| s.as_bytes().to_vec()).to_vec();
        let mut breakers = Breakers::default();
        breakers.add(b"ab", &pieces, |rest| if rest.is_empty() { vec![] } else { vec![1] });
        let tails = |id| breakers.tails.get(&id).cloned().unwrap_or_default();
        assert_eq!((tails(0), tails(1), tails(2)), (vec![vec![1]], vec![], vec![vec![]]));
        assert_eq!((tails(3), tails(4), tails(5)), (vec![vec![1]], vec![vec![]], vec![vec![1]]));
    }

    #[test]
    fn the_penalty_grows_by_the_base_and_stays_finite() {
        let params = DryParams { multiplier: 0.8, ..DryParams::default() };
        assert_eq!(params.penalty(2), 0.8);
        assert!((params.penalty(4) - 0.8 * 1.75 * 1.75).abs() < 1e-6);
        assert!(params.penalty(u32::MAX).is_finite());
        assert_eq!(DryParams { base: 1.0, ..params }.penalty(99), 0.8);
    }

    #[test]
    fn prefixes_agree_with_a_plain_comparison() {
        for text in ["", "a", "aaaaa", "abcabcabcd", "aabaabaaab", "abacabadabacaba"] {
            let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
            let mut got = Vec::new();
            common_prefixes(&tokens, &mut got);
            let plain = |k: usize| tokens[k..].iter().zip(&tokens).take_while(|(a, b)| a == b).count();
            let want: Vec<usize> = (0..tokens.len()).map(|k| if k == 0 { 0 } else { plain(k) }).collect();
            assert_eq!(got, want, "{text}");
        }
    }
}
