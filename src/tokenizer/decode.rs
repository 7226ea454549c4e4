//! Tokens to text: pieces, whole texts, and streams of tokens.

use std::fmt::Write;

use super::vocab::TokenType;
use super::{Algorithm, Tokenizer, bytes};

impl Tokenizer {
    /// The bytes of a token, which may be part of a character. Control and unknown tokens have none unless
    /// `special` asks for their texts; an id outside the vocabulary has none.
    pub fn piece(&self, id: u32, special: bool) -> Vec<u8> {
        let mut piece = Vec::new();
        self.push_piece(id, special, &mut piece);
        piece
    }

    /// Appends [`Tokenizer::piece`] to a buffer.
    pub fn push_piece(&self, id: u32, special: bool, out: &mut Vec<u8>) {
        let text = self.token_text(id);
        match (self.token_type(id), &self.algorithm) {
            (TokenType::Control | TokenType::Unknown, _) if !special => {}
            (TokenType::Control | TokenType::Unknown | TokenType::UserDefined, _) => {
                out.extend(text.as_bytes());
            }
            (TokenType::Byte, _) => out.extend(byte_value(text)),
            (TokenType::Unused | TokenType::Undefined, _) => {}
            (TokenType::Normal, Algorithm::Spm) => push_unescaped(text, out),
            (TokenType::Normal, Algorithm::Bpe(_)) if self.flags.escape => push_unescaped(text, out),
            (TokenType::Normal, Algorithm::Bpe(_)) => push_byte_level(text, out),
        }
    }

    /// The text of a sequence of tokens, special ones included: llama.cpp's detokenization. What is not UTF-8
    /// becomes U+FFFD.
    ///
    /// The space that [`Tokenizer::encode`] put in front of the text is removed, and so are spaces before
    /// punctuation for those byte-pair vocabularies that are declared so; pieces of a stream keep both.
    pub fn decode(&self, tokens: &[u32]) -> String {
        lossy(self.decode_bytes(tokens, false, true))
    }

    /// [`Tokenizer::decode`] to bytes. `remove_special` drops the BOS and EOS that encoding adds, `special` says
    /// whether control tokens have a text.
    pub fn decode_bytes(&self, tokens: &[u32], remove_special: bool, special: bool) -> Vec<u8> {
        let mut tokens = tokens;
        let mut strip_space = self.flags.add_space_prefix;
        if remove_special {
            if self.flags.add_bos && self.bos().is_some() && tokens.first().copied() == self.bos() {
                tokens = &tokens[1..];
                strip_space = false;
            }
            if self.flags.add_eos && self.eos().is_some() && tokens.last().copied() == self.eos() {
                tokens = &tokens[..tokens.len() - 1];
            }
        }
        let mut text = Vec::with_capacity(tokens.len() * 4);
        for (i, &token) in tokens.iter().enumerate() {
            self.push_piece(token, special, &mut text);
            if i == 0 && strip_space && text.first() == Some(&b' ') {
                text.remove(0);
            }
        }
        if self.flags.clean_spaces { clean_spaces(&text) } else { text }
    }

    /// The control tokens among these texts; others have a text always, or are none. For [`Detokenizer::showing`].
    pub fn control_ids<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> Vec<u32> {
        let ids = texts.into_iter().filter_map(|text| self.token_id(text));
        ids.filter(|&id| self.token_type(id) == TokenType::Control).collect()
    }
}

/// Turns a stream of tokens into text, complete characters only.
///
/// Control tokens have no text, but for those that are to be [shown](Detokenizer::showing). A piece that begins with
/// a space keeps it, because what is streamed nearly always continues something; so a text that is streamed from its
/// start has one space more than [`Tokenizer::decode`] gives, if the vocabulary puts one there.
#[derive(Clone, Debug, Default)]
pub struct Detokenizer {
    /// The start of a character whose rest has not come yet.
    held: Vec<u8>,
    /// Control tokens whose texts are wanted; a handful.
    shown: Vec<u32>,
}

impl Detokenizer {
    /// A stream in which these control tokens have their texts: what reads it may part it by them.
    pub fn showing(shown: Vec<u32>) -> Detokenizer {
        Detokenizer { held: Vec::new(), shown }
    }

    /// The text that this token of `tokenizer` completes. Bytes that can never become a character are U+FFFD.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        tokenizer.push_piece(id, self.shown.contains(&id), &mut self.held);
        let mut text = String::new();
        let mut held = Vec::new();
        let mut chunks = self.held.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            if chunks.peek().is_none() && is_incomplete(chunk.invalid()) {
                held = chunk.invalid().to_vec();
            } else if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.held = held;
        text
    }

    /// What is left when no token follows: U+FFFD for a character that was not completed.
    pub fn finish(&mut self) -> String {
        lossy(std::mem::take(&mut self.held))
    }
}

/// True for bytes that more bytes could make a character of.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The byte that `<0xHH>` names.
fn byte_value(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    // The parser would take a sign, too.
    let sound = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| sound)
}

fn push_unescaped(text: &str, out: &mut Vec<u8>) {
    out.extend(text.replace('\u{2581}', " ").as_bytes());
}

/// Characters outside the byte map show as a note, as llama.cpp has it.
fn push_byte_level(text: &str, out: &mut Vec<u8>) {
    for c in text.chars() {
        if let Some(byte) = bytes::decode(c) {
            out.push(byte);
            continue;
        }
        let mut note = String::from("[UNK_BYTE_0x");
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            let _ = write!(note, "{byte:02x}");
        }
        note.extend([text, "]"]);
        out.extend(note.as_bytes());
    }
}

/// Removes the spaces that tokenizers of the old school leave before punctuation and in contractions.
fn clean_spaces(text: &[u8]) -> Vec<u8> {
    let before = |text: &[u8], i: usize| i > 0 && text[i - 1] == b' ';
    // Before ? ! . ,
    let mut first = Vec::with_capacity(text.len());
    for (i, &byte) in text.iter().enumerate() {
        if before(text, i) && matches!(byte, b'?' | b'!' | b'.' | b',') {
            first.pop();
        }
        first.push(byte);
    }
    // On both sides of an apostrophe. The space that is dropped after one does not count for the next.
    let mut second = Vec::with_capacity(first.len());
    let mut i = 0;
    let mut after_dropped = false;
    while i < first.len() {
        let alone =
            first[i] == b'\'' && before(&first, i) && !after_dropped && first.get(i + 1) == Some(&b' ');
        if alone {
            second.pop();
        }
        second.push(first[i]);
        after_dropped = alone;
        i += 1 + usize::from(alone);
    }
    // Before 's 'm 're 've, but not before 't 'd 'll.
    let mut third = Vec::with_capacity(second.len());
    for (i, &byte) in second.iter().enumerate() {
        let contraction = matches!(&second[i..], [b'\'', b's' | b'm', ..] | [b'\'', b'r' | b'v', b'e', ..]);
        if before(&second, i) && contraction {
            third.pop();
        }
        third.push(byte);
    }
    third
}
