//! Cutting a text at its special tokens, before anything else looks at it.

use std::ops::Range;

use memchr::memmem;

use super::vocab::{TokenType, Vocab};

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fragment {
    /// Bytes to tokenize.
    Raw(Range<usize>),
    /// A special token.
    Token(u32),
}

/// A token that is looked for in the text.
#[derive(Debug)]
struct Candidate {
    id: u32,
    /// Control and unknown tokens are only looked for if special tokens are to be parsed.
    only_if_parsed: bool,
}

/// The special tokens, longest text first.
#[derive(Debug, Default)]
pub(super) struct Partition {
    candidates: Vec<Candidate>,
    /// Tokens that swallow the white space on their left.
    lstrip: Vec<u32>,
    /// Tokens that swallow the white space on their right.
    rstrip: Vec<u32>,
}

impl Partition {
    /// Control, user-defined and unknown tokens are special.
    pub fn new(vocab: &Vocab, lstrip: Vec<u32>, rstrip: Vec<u32>) -> Partition {
        let mut candidates: Vec<Candidate> = (0..vocab.len() as u32)
            .filter_map(|id| match vocab.token_type(id) {
                TokenType::Control | TokenType::Unknown => Some(Candidate { id, only_if_parsed: true }),
                TokenType::UserDefined => Some(Candidate { id, only_if_parsed: false }),
                _ => None,
            })
            .collect();
        candidates.sort_by_key(|candidate| std::cmp::Reverse(vocab.text(candidate.id).len()));
        Partition { candidates, lstrip, rstrip }
    }

    /// Cuts the text: for each special token in turn, the longest first, at all its places that are still raw,
    /// from left to right. So the longest token anywhere wins, not the leftmost.
    pub fn split(&self, vocab: &Vocab, text: &[u8], parse_special: bool) -> Vec<Fragment> {
        let mut fragments = Vec::new();
        push_raw(&mut fragments, 0..text.len());
        let pairs = BytePairs::of(text);
        for candidate in &self.candidates {
            let needle = vocab.text(candidate.id).as_bytes();
            if candidate.only_if_parsed && !parse_special || !pairs.may_contain(needle) {
                continue;
            }
            let finder = memmem::Finder::new(needle);
            let found = |fragment: &Fragment| match fragment {
                Fragment::Raw(raw) => raw.len() >= needle.len() && finder.find(&text[raw.clone()]).is_some(),
                Fragment::Token(_) => false,
            };
            let Some(first) = fragments.iter().position(found) else { continue };
            let rest = fragments.split_off(first);
            for fragment in rest {
                match fragment {
                    Fragment::Raw(raw) if raw.len() >= needle.len() => {
                        self.cut(text, raw, candidate.id, &finder, &mut fragments);
                    }
                    other => fragments.push(other),
                }
            }
        }
        fragments
    }

    /// Cuts one raw fragment at every place of one token.
    fn cut(
        &self,
        text: &[u8],
        mut raw: Range<usize>,
        id: u32,
        finder: &memmem::Finder,
        out: &mut Vec<Fragment>,
    ) {
        while let Some(at) = finder.find(&text[raw.clone()]) {
            let mut left = raw.start..raw.start + at;
            raw.start = left.end + finder.needle().len();
            if self.lstrip.contains(&id) {
                let kept = text[left.clone()].iter().rposition(|byte| !is_space(*byte));
                left.end = kept.map_or(left.start, |last| left.start + last + 1);
            }
            if self.rstrip.contains(&id) {
                let skipped = text[raw.clone()].iter().position(|byte| !is_space(*byte));
                raw.start = skipped.map_or(raw.end, |first| raw.start + first);
            }
            push_raw(out, left);
            out.push(Fragment::Token(id));
        }
        push_raw(out, raw);
    }
}

/// What C calls a space; Rust's own notion leaves out the vertical tab.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn push_raw(fragments: &mut Vec<Fragment>, raw: Range<usize>) {
    if !raw.is_empty() {
        fragments.push(Fragment::Raw(raw));
    }
}

/// Which pairs of neighbouring bytes a text has: rules out nearly all special tokens in one pass.
struct BytePairs {
    seen: Vec<u64>,
    single: Option<u8>,
}

impl BytePairs {
    fn of(text: &[u8]) -> BytePairs {
        let mut seen = vec![0u64; (1 << 16) / 64];
        for pair in text.array_windows() {
            let i = u16::from_le_bytes(*pair) as usize;
            seen[i / 64] |= 1 << (i % 64);
        }
        BytePairs { seen, single: if let [byte] = text { Some(*byte) } else { None } }
    }

    fn may_contain(&self, needle: &[u8]) -> bool {
        match needle {
            [] => false,
            [byte] => self.single.is_none_or(|single| single == *byte),
            _ => needle.array_windows().all(|pair| {
                let i = u16::from_le_bytes(*pair) as usize;
                self.seen[i / 64] >> (i % 64) & 1 == 1
            }),
        }
    }
}
