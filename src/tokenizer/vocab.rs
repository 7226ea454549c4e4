//! The vocabulary: texts, types and scores of the tokens, and the way back from a text to its id.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use qgguf_gguf::{Error, Metadata, MetadataArray, MetadataValue, StringArray};

use super::TokenizerError;

const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";

/// What kind of token an entry is (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// No kind was given.
    Undefined,
    /// Ordinary text.
    Normal,
    /// Stands for text that has no token.
    Unknown,
    /// Structure, such as the end of a turn; never text of its own.
    Control,
    /// Text that is always one token.
    UserDefined,
    /// A place without use.
    Unused,
    /// One byte.
    Byte,
}

impl TokenType {
    fn from_number(number: i32) -> TokenType {
        match number {
            1 => TokenType::Normal,
            2 => TokenType::Unknown,
            3 => TokenType::Control,
            4 => TokenType::UserDefined,
            5 => TokenType::Unused,
            6 => TokenType::Byte,
            _ => TokenType::Undefined,
        }
    }
}

/// All tokens. Ids are positions, texts are distinct.
#[derive(Debug)]
pub(super) struct Vocab {
    texts: StringArray,
    types: Vec<TokenType>,
    /// One for each token, or none if the file has no scores (all are 0 then).
    scores: Vec<f32>,
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    max_len: usize,
}

impl Vocab {
    /// Reads tokens, scores and types; every array is checked against the number of tokens.
    pub fn from_metadata(metadata: &Metadata) -> Result<Vocab, TokenizerError> {
        let tokens = metadata
            .strings(TOKENS)?
            .ok_or(Error::MissingKey { key: TOKENS.to_owned(), expected: "array of string" })?;
        if tokens.is_empty() || u32::try_from(tokens.len()).is_err() {
            return Err(TokenizerError::Empty);
        }
        let texts = if tokens.iter().any(str::is_empty) { name_empty(tokens) } else { tokens.clone() };
        let types = match metadata.i32_array(TOKEN_TYPE)? {
            Some(types) => types[..long_enough(TOKEN_TYPE, types.len(), texts.len())?]
                .iter()
                .map(|&number| TokenType::from_number(number))
                .collect(),
            None => vec![TokenType::Normal; texts.len()],
        };
        let mut vocab = Vocab {
            types,
            scores: scores(metadata, texts.len())?,
            ids: HashTable::with_capacity(texts.len()),
            hasher: DefaultHashBuilder::default(),
            max_len: texts.iter().map(str::len).max().unwrap_or(0),
            texts,
        };
        vocab.index()?;
        Ok(vocab)
    }

    fn index(&mut self) -> Result<(), TokenizerError> {
        let text = |id: u32| self.texts.get(id as usize).unwrap_or_default().as_bytes();
        let hash = |id: &u32| self.hasher.hash_one(text(*id));
        for second in 0..self.texts.len() as u32 {
            let hashed = hash(&second);
            if let Some(&first) = self.ids.find(hashed, |&id| text(id) == text(second)) {
                let text = self.texts.get(second as usize).unwrap_or_default().to_owned();
                return Err(TokenizerError::Duplicate { text, first, second });
            }
            self.ids.insert_unique(hashed, second, hash);
        }
        Ok(())
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// The text of a token as it is stored; empty for an id outside the vocabulary.
    pub fn text(&self, id: u32) -> &str {
        self.texts.get(id as usize).unwrap_or_default()
    }

    /// All texts in order of their ids.
    pub fn texts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts.iter()
    }

    /// The token with exactly this text, of whatever type.
    pub fn id(&self, text: impl AsRef<[u8]>) -> Option<u32> {
        let text = text.as_ref();
        if text.len() > self.max_len {
            return None;
        }
        self.ids.find(self.hasher.hash_one(text), |&id| self.text(id).as_bytes() == text).copied()
    }

    /// The token of a single byte, `<0xHH>`.
    pub fn byte_id(&self, byte: u8) -> Option<u32> {
        self.id(format!("<0x{byte:02X}>"))
    }

    /// The type of a token; undefined for an id outside the vocabulary.
    pub fn token_type(&self, id: u32) -> TokenType {
        self.types.get(id as usize).copied().unwrap_or(TokenType::Undefined)
    }

    /// Changes the type of a token.
    pub fn set_type(&mut self, id: u32, to: TokenType) {
        self.types[id as usize] = to;
    }

    /// The score of a token.
    pub fn score(&self, id: u32) -> f32 {
        self.scores.get(id as usize).copied().unwrap_or(0.0)
    }
}

/// Entries without a text get one, so that all are distinct.
fn name_empty(tokens: &StringArray) -> StringArray {
    let mut named = StringArray::default();
    for (i, text) in tokens.iter().enumerate() {
        if text.is_empty() { named.push(&format!("[EMPTY_{i}]")) } else { named.push(text) }
    }
    named
}

fn scores(metadata: &Metadata, n_tokens: usize) -> Result<Vec<f32>, TokenizerError> {
    if let Some(MetadataValue::Array(MetadataArray::I32(scores))) = metadata.get(SCORES) {
        let n = long_enough(SCORES, scores.len(), n_tokens)?;
        return Ok(scores[..n].iter().map(|&score| score as f32).collect());
    }
    match metadata.f32_array(SCORES)? {
        Some(scores) => Ok(scores[..long_enough(SCORES, scores.len(), n_tokens)?].to_vec()),
        None => Ok(Vec::new()),
    }
}

fn long_enough(key: &'static str, found: usize, expected: usize) -> Result<usize, TokenizerError> {
    if found < expected { Err(TokenizerError::TooShort { key, expected, found }) } else { Ok(expected) }
}
