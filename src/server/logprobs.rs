//! Logarithms of probabilities as the families write them.

use serde_json::{Map, Value, json};

use crate::engine::service::{Logprob, TokenLogprobs};
use crate::tokenizer::Tokenizer;

/// What stands for minus infinity, which JSON has not.
const IMPOSSIBLE: f32 = -9999.0;

/// The entries of OpenAI's `logprobs.content`.
pub fn content(tokenizer: &Tokenizer, logprobs: &[TokenLogprobs]) -> Value {
    let entry = |one: &TokenLogprobs| {
        let mut entry = token(tokenizer, one.token);
        let top: Vec<Value> = one.top.iter().map(|&top| token(tokenizer, top).into()).collect();
        entry.insert("top_logprobs".to_owned(), top.into());
        Value::from(entry)
    };
    logprobs.iter().map(entry).collect()
}

fn token(tokenizer: &Tokenizer, one: Logprob) -> Map<String, Value> {
    let bytes = tokenizer.piece(one.token, true);
    Map::from_iter([
        ("id".to_owned(), one.token.into()),
        ("token".to_owned(), String::from_utf8_lossy(&bytes).into()),
        ("bytes".to_owned(), bytes.into()),
        ("logprob".to_owned(), finite(one.logprob)),
    ])
}

fn finite(logprob: f32) -> Value {
    f64::from(logprob.max(IMPOSSIBLE)).into()
}

/// The legacy object of completions: four lists with an entry for each token.
#[derive(Debug, Default)]
pub struct Legacy {
    tokens: Vec<Value>,
    logprobs: Vec<Value>,
    top: Vec<Value>,
    offsets: Vec<usize>,
    /// Characters of the tokens so far.
    length: usize,
}

impl Legacy {
    /// Lists whose texts begin after so many characters.
    pub fn at(offset: usize) -> Legacy {
        Legacy { length: offset, ..Legacy::default() }
    }

    /// A token whose probability nobody knows, as the first one of a prompt.
    pub fn unknown(&mut self, tokenizer: &Tokenizer, id: u32) {
        self.text(&text(tokenizer, id));
        self.logprobs.push(Value::Null);
        self.top.push(Value::Null);
    }

    /// Further tokens.
    pub fn extend(&mut self, tokenizer: &Tokenizer, logprobs: &[TokenLogprobs], n_top: usize) {
        for one in logprobs {
            self.text(&text(tokenizer, one.token.token));
            self.logprobs.push(finite(one.token.logprob));
            let mut top = Map::new();
            // Different tokens may have one text; the more probable one counts.
            for top_one in one.top.iter().take(n_top).chain([&one.token]) {
                top.entry(text(tokenizer, top_one.token)).or_insert_with(|| finite(top_one.logprob));
            }
            self.top.push(top.into());
        }
    }

    fn text(&mut self, text: &str) {
        self.tokens.push(text.into());
        self.offsets.push(self.length);
        self.length += text.chars().count();
    }

    /// The characters so far.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The object.
    pub fn json(self) -> Value {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.logprobs,
            "top_logprobs": self.top,
            "text_offset": self.offsets,
        })
    }
}

/// A token as text; bytes that are no character by themselves as OpenAI writes them, `bytes:\xe2\x82`.
fn text(tokenizer: &Tokenizer, id: u32) -> String {
    match String::from_utf8(tokenizer.piece(id, true)) {
        Ok(text) => text,
        Err(error) => {
            let digits: String = error.as_bytes().iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("bytes:{digits}")
        }
    }
}
