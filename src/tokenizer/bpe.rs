//! Byte-pair encoding (`tokenizer.ggml.model` = `gpt2` and relatives): words from the pre-tokenizer, merged by
//! the `tokenizers` crate.
//!
//! GGUF files may have merges of texts that are no tokens. Merging by text, as llama.cpp does, does not care,
//! but merging by id does; so such texts get ids behind the vocabulary, which never leave this module.

use std::collections::hash_map::Entry;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::{HashMap, HashSet};
use qgguf_gguf::{Error, Metadata, StringArray};
use tokenizers::Model as _;
use tokenizers::models::bpe::{BPE, Vocab as Texts};

use super::pre::Pre;
use super::split::Splitter;
use super::vocab::Vocab;
use super::{TokenizerError, bytes};

const MERGES: &str = "tokenizer.ggml.merges";

/// Short texts that get a merger of their own; and how long they may be, in bytes.
const SHORT_TEXTS: usize = 16;
const SHORT: usize = 1024;

/// A byte-pair encoder.
#[derive(Debug)]
pub(super) struct Bpe {
    merges: StringArray,
    /// Knows all merges. Made when there is enough text: it takes longer than reading everything else of a file.
    merger: OnceLock<BPE>,
    n_short: AtomicUsize,
    splitter: Splitter,
    pre: &'static Pre,
}

impl Bpe {
    /// Takes the merges. Without the key there are none, which is an error where they are `required`.
    pub fn new(metadata: &Metadata, pre: &'static Pre, required: bool) -> Result<Bpe, TokenizerError> {
        let merges = match metadata.strings(MERGES)? {
            Some(merges) => merges.clone(),
            None if required => {
                let key = MERGES.to_owned();
                return Err(Error::MissingKey { key, expected: "array of string" }.into());
            }
            None => StringArray::default(),
        };
        if let Some((index, text)) = merges.iter().enumerate().find(|(_, text)| !has_space(text)) {
            return Err(TokenizerError::Merge { index, text: text.chars().take(60).collect() });
        }
        let (merger, n_short) = (OnceLock::new(), AtomicUsize::new(0));
        Ok(Bpe { merges, merger, n_short, splitter: Splitter::new(pre.steps), pre })
    }

    /// Appends the tokens of a text without special tokens. Bytes that are not UTF-8 become U+FFFD each.
    pub fn encode(&self, vocab: &Vocab, text: &[u8], out: &mut Vec<u32>) {
        let mut replaced = String::new();
        let mut text = match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(_) => {
                for chunk in text.utf8_chunks() {
                    replaced.push_str(chunk.valid());
                    replaced.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
                }
                &replaced
            }
        };
        let escaped;
        if self.pre.escape {
            escaped = text.replace(' ', "\u{2581}");
            text = &escaped;
        }
        let mut encoded = String::new();
        let own;
        let merger = match self.merger.get() {
            Some(merger) => merger,
            None if text.len() <= SHORT && self.n_short.fetch_add(1, Ordering::Relaxed) < SHORT_TEXTS => {
                if self.pre.byte_encode {
                    bytes::encode(text, &mut encoded);
                }
                let text = if self.pre.byte_encode { &encoded } else { text };
                own = merger_of_text(vocab, &self.merges, text);
                &own
            }
            None => self.merger.get_or_init(|| merger_of_all(vocab, &self.merges)),
        };
        // Texts repeat their words; the crate's own cache would outlive the tokenizer.
        let mut seen: HashMap<&str, (usize, usize)> = HashMap::new();
        for word in self.splitter.words(text) {
            if let Some(&(start, end)) = seen.get(word) {
                out.extend_from_within(start..end);
                continue;
            }
            let start = out.len();
            if self.pre.byte_encode {
                bytes::encode(word, &mut encoded);
                self.encode_word(vocab, merger, &encoded, out);
            } else {
                self.encode_word(vocab, merger, word, out);
            }
            seen.insert(word, (start, out.len()));
        }
    }

    fn encode_word(&self, vocab: &Vocab, merger: &BPE, word: &str, out: &mut Vec<u32>) {
        let line_breaks = self.pre.escape && word.bytes().all(|byte| byte == b'\n');
        let whole = if self.pre.ignore_merges || line_breaks { vocab.id(word) } else { None };
        if let Some(id) = whole {
            out.push(id);
            return;
        }
        let tokens = merger.tokenize(word).expect("the crate's only error is a missing unknown token");
        for token in tokens {
            if (token.id as usize) < vocab.len() {
                out.push(token.id);
                continue;
            }
            for byte in &word.as_bytes()[token.offsets.0..token.offsets.1] {
                out.extend(if self.pre.escape { vocab.byte_id(*byte) } else { vocab.id([*byte]) });
            }
        }
    }
}

/// The model that merges whatever the vocabulary can spell.
fn merger_of_all(vocab: &Vocab, merges: &StringArray) -> BPE {
    let single = |text: &str| text.chars().next().filter(|c| c.len_utf8() == text.len());
    merger(vocab, merges.iter().filter_map(parse_rule), vocab.texts().filter_map(single))
}

/// The same for one text: what a merge makes of it is part of it, so that most merges need not be known.
fn merger_of_text(vocab: &Vocab, merges: &StringArray, text: &str) -> BPE {
    let pair = |a: u8, b: u8| usize::from(a) << 8 | usize::from(b);
    let mut pairs = vec![false; 1 << 16];
    for [a, b] in text.as_bytes().array_windows() {
        pairs[pair(*a, *b)] = true;
    }
    let mut result = String::new();
    let rules = merges.iter().filter_map(parse_rule).filter(|(left, right)| {
        let (l, r) = (left.as_bytes(), right.as_bytes());
        if !pairs[pair(l[l.len() - 1], r[0])] || !pairs[pair(l[0], *l.get(1).unwrap_or(&r[0]))] {
            return false;
        }
        result.clear();
        result.extend([*left, *right]);
        text.contains(&result)
    });
    merger(vocab, rules, text.chars())
}

/// Whether a merge has a space that can stand between two texts.
fn has_space(merge: &str) -> bool {
    merge.as_bytes().get(1..).is_some_and(|rest| rest.contains(&b' '))
}

/// The two texts of a merge. An entry that does not have two can never apply and is left out.
fn parse_rule(merge: &str) -> Option<(&str, &str)> {
    // The first space after the first byte, as the left text may itself begin with one.
    let space = 1 + merge.bytes().skip(1).position(|byte| byte == b' ')?;
    Some((&merge[..space], &merge[space + 1..])).filter(|(_, right)| !right.is_empty())
}

/// The crate's model over some rules and characters.
fn merger<'m>(
    vocab: &Vocab,
    rules: impl Iterator<Item = (&'m str, &'m str)>,
    characters: impl Iterator<Item = char>,
) -> BPE {
    // The first of equal rules has the rank that counts.
    let mut seen = HashSet::new();
    let rules: Vec<_> = rules.filter(|rule| seen.insert(*rule)).collect();
    let mut texts = Texts::with_capacity(2 * rules.len());
    let mut n_others = 0;
    let mut add = |text: String| {
        if let Entry::Vacant(entry) = texts.entry(text) {
            let id = vocab.id(entry.key()).unwrap_or(vocab.len() as u32 + n_others);
            n_others += u32::from(id >= vocab.len() as u32);
            entry.insert(id);
        }
    };
    characters.for_each(|c| add(c.to_string()));
    for (left, right) in &rules {
        [(*left).to_owned(), (*right).to_owned(), [*left, *right].concat()].into_iter().for_each(&mut add);
    }
    // Stands for every other character, so that it separates its neighbours.
    let mut unknown = String::from("unknown");
    while texts.contains_key(&unknown) {
        unknown.push('?');
    }
    texts.insert(unknown.clone(), u32::MAX);
    BPE::builder()
        .vocab_and_merges(
            texts,
            rules.into_iter().map(|(left, right)| (left.to_owned(), right.to_owned())).collect(),
        )
        .unk_token(unknown)
        .cache_capacity(0)
        .build()
        .expect("parts and results of all merges are in the vocabulary")
}
