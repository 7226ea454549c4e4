//! The model's vocabulary as the engine wants it: the bytes of every token in a tree, and the way from bytes to tokens.

use std::sync::Arc;

use toktrie::{TokRxInfo, TokTrie, TokenizerEnv};

use super::GrammarError;
use crate::tokenizer::{TokenType, Tokenizer};

/// Who holds the tokenizer: a model, or the tokenizer itself.
pub(super) type Owner = Arc<dyn AsRef<Tokenizer> + Send + Sync>;

/// Longest token that enters the tree, in bytes; the tree stores depths in few bits.
const MAX_TOKEN: usize = 512;
/// Bytes of all tokens together; the tree stores the sizes of its branches in 22 bits.
const MAX_BYTES: usize = (1 << 22) - 2;
/// Forced bytes that are tokenized together: only the first tokens are used, and a constant in a schema may be long.
const MAX_FORCED: usize = 256;

/// A tokenizer and the tree of its tokens.
pub(super) struct Vocabulary {
    owner: Owner,
    trie: TokTrie,
}

impl Vocabulary {
    /// The tree over `n_vocab` tokens, of which the tokenizer may know fewer.
    pub fn new(owner: Owner, n_vocab: usize) -> Result<Vocabulary, GrammarError> {
        let tokenizer: &Tokenizer = (*owner).as_ref();
        let words: Vec<Vec<u8>> = (0..n_vocab as u32).map(|id| word(tokenizer, id)).collect();
        let n_bytes: usize = words.iter().map(Vec::len).sum();
        if n_bytes > MAX_BYTES {
            return Err(GrammarError::TooLarge {
                what: "bytes of all tokens",
                limit: MAX_BYTES,
                found: n_bytes,
            });
        }
        let ends: Vec<u32> =
            tokenizer.eog_ids().iter().copied().filter(|&id| (id as usize) < n_vocab).collect();
        let Some(&first) = ends.first() else {
            return Err(GrammarError::Vocabulary("it has no end-of-generation token".to_owned()));
        };
        let info =
            TokRxInfo::new(n_vocab as u32, tokenizer.eos().filter(|id| ends.contains(id)).unwrap_or(first));
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
        Ok(Vocabulary { owner, trie })
    }

    fn tokenizer(&self) -> &Tokenizer {
        (*self.owner).as_ref()
    }
}

/// What a token adds to the text, or its name behind the marker that no text contains. Empty for tokens that can never be
/// chosen: those without text, parts of no UTF-8 text, and those too long for the tree.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let special =
        tokenizer.is_eog(id) || matches!(tokenizer.token_type(id), TokenType::Control | TokenType::Unknown);
    let mut word = Vec::new();
    if special {
        word.push(TokTrie::SPECIAL_TOKEN_MARKER);
        word.extend(tokenizer.token_text(id).as_bytes());
    } else {
        tokenizer.push_piece(id, false, &mut word);
        if word.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
            word.clear();
        }
    }
    if word.len() > MAX_TOKEN {
        word.clear();
    }
    word
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// The model's own tokens for forced text, so that it sees the text as it was trained to. Where they do not give the
    /// bytes back (unknown characters), the longest tokens that fit.
    fn tokenize_bytes(&self, text: &[u8]) -> Vec<u32> {
        let text = &text[..text.len().min(MAX_FORCED)];
        let tokens = self.tokenizer().encode_continuation(text);
        if self.trie.decode_raw(&tokens) == text { tokens } else { self.trie.greedy_tokenize(text) }
    }
}
