//! Byte-pair encoding (`tokenizer.ggml.model` = `gpt2` and relatives): words from the pre-tokenizer, merged by
//! the `tokenizers` crate.
//!
//! GGUF files may have merges of texts that are no tokens. Merging by text, as llama.cpp does, does not care,
//! but merging by id does; so such texts get ids behind the vocabulary, which never leave this module.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet};
use qgguf_gguf::{Error, Metadata, StringArray};
use tokenizers::Model as _;
use tokenizers::models::bpe::{BPE, Vocab as Texts};

use super::pre::Pre;
use super::split::Splitter;
use super::vocab::Vocab;
use super::{TokenizerError, bytes};

const MERGES: &str = "tokenizer.ggml.merges";

/// A byte-pair encoder.
#[derive(Debug)]
pub(super) struct Bpe {
    merger: BPE,
    splitter: Splitter,
    pre: &'static Pre,
}

impl Bpe {
    /// Reads the merges. Without the key there are none, which is an error where they are `required`.
    pub fn new(
        metadata: &Metadata,
        vocab: &Vocab,
        pre: &'static Pre,
        required: bool,
    ) -> Result<Bpe, TokenizerError> {
        let none = StringArray::default();
        let merges = match metadata.strings(MERGES)? {
            Some(merges) => merges,
            None if required => {
                let key = MERGES.to_owned();
                return Err(Error::MissingKey { key, expected: "array of string" }.into());
            }
            None => &none,
        };
        Ok(Bpe { merger: merger(vocab, merges, pre), splitter: Splitter::new(pre.steps), pre })
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
        // Texts repeat their words; the crate's own cache would outlive the tokenizer.
        let mut seen: HashMap<&str, (usize, usize)> = HashMap::new();
        let mut encoded = String::new();
        for word in self.splitter.words(text) {
            if let Some(&(start, end)) = seen.get(word) {
                out.extend_from_within(start..end);
                continue;
            }
            let start = out.len();
            if self.pre.byte_encode {
                bytes::encode(word, &mut encoded);
                self.encode_word(vocab, &encoded, out);
            } else {
                self.encode_word(vocab, word, out);
            }
            seen.insert(word, (start, out.len()));
        }
    }

    fn encode_word(&self, vocab: &Vocab, word: &str, out: &mut Vec<u32>) {
        let line_breaks = self.pre.escape && word.bytes().all(|byte| byte == b'\n');
        let whole = if self.pre.ignore_merges || line_breaks { vocab.id(word) } else { None };
        if let Some(id) = whole {
            out.push(id);
            return;
        }
        let tokens = self.merger.tokenize(word).expect("the crate's only error is a missing unknown token");
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

/// The crate's model over the vocabulary and, where they are needed, the other texts that merges name.
fn merger(vocab: &Vocab, merges: &StringArray, pre: &Pre) -> BPE {
    let rules = || merges.iter().filter_map(parse_rule);
    // Nearly every file has only merges of tokens, each once. Those are spared a look at every text. The crate
    // reports a result that is not in the vocabulary, but fails on one that is longer than everything there.
    let fits = |(left, right): (&str, &str)| left.len() + right.len() <= vocab.max_len();
    if rules().all(fits) && !may_repeat(rules()) {
        let (texts, unknown) = texts(vocab, pre, std::iter::empty());
        if let Ok(merger) = build(texts, unknown, rules()) {
            return merger;
        }
    }
    // The first of equal rules has the rank that counts.
    let mut seen = HashSet::with_capacity(merges.len());
    let rules: Vec<_> = rules().filter(|rule| seen.insert(*rule)).collect();
    let (texts, unknown) = texts(vocab, pre, rules.iter().copied());
    build(texts, unknown, rules.into_iter()).expect("parts and results of all merges are in the vocabulary")
}

/// The two texts of a merge. An entry that does not have two can never apply and is left out.
fn parse_rule(merge: &str) -> Option<(&str, &str)> {
    // The first space after the first byte, as the left text may itself begin with one.
    let space = 1 + merge.bytes().skip(1).position(|byte| byte == b' ')?;
    Some((&merge[..space], &merge[space + 1..])).filter(|(_, right)| !right.is_empty())
}

/// False if no two rules are equal. May be wrong the other way.
fn may_repeat<'m>(rules: impl Iterator<Item = (&'m str, &'m str)>) -> bool {
    let hasher = DefaultHashBuilder::default();
    let mut hashes: Vec<u64> = rules.map(|rule| hasher.hash_one(rule)).collect();
    hashes.sort_unstable();
    hashes.array_windows().any(|[a, b]| a == b)
}

/// All texts with their ids: the vocabulary's, then what the rules need besides, and last one that stands for
/// every character without an id, so that it separates its neighbours.
fn texts<'m>(vocab: &Vocab, pre: &Pre, rules: impl Iterator<Item = (&'m str, &'m str)>) -> (Texts, String) {
    let mut texts = Texts::with_capacity(vocab.len() + 257);
    texts.extend(vocab.texts().zip(0..).map(|(text, id)| (text.to_owned(), id)));
    let add = |texts: &mut Texts, text: &str| {
        if !texts.contains_key(text) {
            texts.insert(text.to_owned(), texts.len() as u32);
        }
    };
    if pre.byte_encode {
        bytes::alphabet().for_each(|c| add(&mut texts, c.encode_utf8(&mut [0; 4])));
    }
    for (left, right) in rules {
        [left, right, &[left, right].concat()].into_iter().for_each(|text| add(&mut texts, text));
    }
    let mut unknown = String::from("unknown");
    while texts.contains_key(&unknown) {
        unknown.push('?');
    }
    add(&mut texts, &unknown);
    (texts, unknown)
}

/// Fails if a rule names a text that is not in `texts`.
fn build<'m>(
    texts: Texts,
    unknown: String,
    rules: impl Iterator<Item = (&'m str, &'m str)>,
) -> tokenizers::Result<BPE> {
    BPE::builder()
        .vocab_and_merges(texts, rules.map(|(left, right)| (left.to_owned(), right.to_owned())).collect())
        .unk_token(unknown)
        .cache_capacity(0)
        .build()
}
