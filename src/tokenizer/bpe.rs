//! Byte-pair encoding (`tokenizer.ggml.model` = `gpt2` and relatives): words from the pre-tokenizer, merged by
//! the `tokenizers` crate.
//!
//! GGUF files may have merges of texts that are no tokens. Merging by text, as llama.cpp does, does not care,
//! but merging by id does; so such texts get ids behind the vocabulary, which never leave this module.

use hashbrown::HashMap;
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
        if self.pre.ignore_merges || line_breaks {
            if let Some(id) = vocab.id(word) {
                out.push(id);
                return;
            }
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

/// The crate's model, over the vocabulary and whatever else the merges name.
fn merger(vocab: &Vocab, merges: &StringArray, pre: &Pre) -> BPE {
    let mut texts = Texts::with_capacity(vocab.len() + vocab.len() / 8);
    texts.extend(vocab.texts().zip(0..).map(|(text, id)| (text.to_owned(), id)));
    let add = |texts: &mut Texts, text: &str| {
        if !texts.contains_key(text) {
            texts.insert(text.to_owned(), texts.len() as u32);
        }
    };
    if pre.byte_encode {
        bytes::alphabet().for_each(|c| add(&mut texts, c.encode_utf8(&mut [0; 4])));
    }
    let mut pairs = Vec::with_capacity(merges.len());
    let mut seen = HashMap::with_capacity(merges.len());
    let mut joined = String::new();
    for merge in merges.iter() {
        // The first space at or after the second byte, as the left text may itself begin with one.
        let Some(space) = merge.bytes().skip(1).position(|byte| byte == b' ') else { continue };
        let (left, right) = (&merge[..space + 1], &merge[space + 2..]);
        if right.is_empty() || seen.insert(merge, ()).is_some() {
            continue;
        }
        joined.clear();
        joined.extend([left, right]);
        [left, right, &joined].into_iter().for_each(|text| add(&mut texts, text));
        pairs.push((left.to_owned(), right.to_owned()));
    }
    // Characters that neither a token nor a merge has still separate their neighbours.
    let mut unknown = String::from("unknown");
    while texts.contains_key(&unknown) {
        unknown.push('?');
    }
    add(&mut texts, &unknown);
    BPE::builder()
        .vocab_and_merges(texts, pairs)
        .unk_token(unknown)
        .cache_capacity(0)
        .build()
        .expect("all parts and results of the merges are in the vocabulary")
}
