//! Text to tokens and back, from GGUF metadata alone, with llama.cpp's results.
//!
//! A text is first cut at its special tokens (`partition`). What lies between them is merged from characters,
//! either by score (SentencePiece style, `spm`) or by rank inside words (byte-pair encoding: `pre` names the
//! rules by which `split` makes words, `bpe` merges them on the `tokenizers` crate).

mod bpe;
mod bytes;
mod decode;
mod error;
mod partition;
mod pre;
mod special;
mod split;
mod spm;
mod vocab;

use qgguf_gguf::Metadata;

pub use decode::Detokenizer;
pub use error::TokenizerError;
pub use vocab::TokenType;

use bpe::Bpe;
use partition::{Fragment, Partition};
use pre::Pre;
use special::SpecialTokens;
use vocab::Vocab;

/// What the caller may decide about a tokenizer.
#[derive(Clone, Debug, Default)]
pub struct TokenizerOptions {
    /// Name of the pre-tokenizer to use instead of the one in the file.
    pub pre_override: Option<String>,
}

/// A tokenizer as a GGUF file describes it.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    algorithm: Algorithm,
    special: SpecialTokens,
    partition: Partition,
    flags: Flags,
    warnings: Vec<String>,
}

#[derive(Debug)]
enum Algorithm {
    Spm,
    Bpe(Box<Bpe>),
}

#[derive(Clone, Copy, Debug)]
struct Flags {
    add_bos: bool,
    add_eos: bool,
    add_space_prefix: bool,
    clean_spaces: bool,
    /// Pieces have U+2581 for spaces.
    escape: bool,
}

impl AsRef<Tokenizer> for Tokenizer {
    fn as_ref(&self) -> &Tokenizer {
        self
    }
}

impl Tokenizer {
    /// Reads the `tokenizer.ggml.*` keys.
    ///
    /// # Errors
    /// A missing or malformed key, an unknown algorithm or pre-tokenizer, or a vocabulary that contradicts itself.
    pub fn from_metadata(
        metadata: &Metadata,
        options: &TokenizerOptions,
    ) -> Result<Tokenizer, TokenizerError> {
        let model = metadata.require_str("tokenizer.ggml.model")?;
        let mut warnings = Vec::new();
        let pre = match model {
            "llama" => None,
            "gpt2" | "gemma4" | "hybriddna" | "whitespace" => {
                Some(find_pre(metadata, options, model, &mut warnings)?)
            }
            other => return Err(TokenizerError::UnknownModel(other.to_owned())),
        };
        if let (None, Some(name)) = (pre, &options.pre_override) {
            warnings.push(format!("pre-tokenizer {name} is not used: this vocabulary needs none"));
        }
        let mut vocab = Vocab::from_metadata(metadata)?;
        let algorithm = match pre {
            None => Algorithm::Spm,
            Some(pre) => Algorithm::Bpe(Box::new(Bpe::new(metadata, pre, model != "whitespace")?)),
        };
        let special = SpecialTokens::find(metadata, default_ids(model, pre), &mut vocab, &mut warnings)?;
        let (lstrip, rstrip) = stripping(metadata, &vocab)?;
        let partition = Partition::new(&vocab, lstrip, rstrip);
        let flags = flags(metadata, model, pre)?;
        Ok(Tokenizer { vocab, algorithm, special, partition, flags, warnings })
    }

    /// The tokens of a text.
    ///
    /// `add_special` adds BOS and EOS where the file asks for them, whatever the text begins and ends with.
    /// `parse_special` makes tokens of the texts of control tokens; without it they are ordinary text (texts of
    /// user-defined tokens are tokens always).
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Vec<u32> {
        self.encode_bytes(text.as_bytes(), add_special, parse_special)
    }

    /// [`Tokenizer::encode`] for text that may not be UTF-8: what is not becomes byte tokens where the vocabulary
    /// is SentencePiece-style, and one U+FFFD for each byte where it is not.
    pub fn encode_bytes(&self, text: &[u8], add_special: bool, parse_special: bool) -> Vec<u32> {
        let mut tokens = Vec::new();
        if add_special && self.flags.add_bos {
            tokens.extend(self.special.bos);
        }
        self.encode_fragments(text, true, parse_special, &mut tokens);
        if add_special && self.flags.add_eos {
            tokens.extend(self.special.eos);
        }
        tokens
    }

    /// The tokens of text in the middle of a longer one: nothing is put in front, texts of control tokens are ordinary text.
    pub fn encode_continuation(&self, text: &[u8]) -> Vec<u32> {
        let mut tokens = Vec::new();
        self.encode_fragments(text, false, false, &mut tokens);
        tokens
    }

    fn encode_fragments(
        &self,
        text: &[u8],
        mut after_special: bool,
        parse_special: bool,
        tokens: &mut Vec<u32>,
    ) {
        for fragment in self.partition.split(&self.vocab, text, parse_special) {
            match fragment {
                Fragment::Token(id) => tokens.push(id),
                Fragment::Raw(ref raw) => self.encode_raw(&text[raw.clone()], after_special, tokens),
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
    }

    fn encode_raw(&self, text: &[u8], after_special: bool, tokens: &mut Vec<u32>) {
        match &self.algorithm {
            Algorithm::Bpe(bpe) => bpe.encode(&self.vocab, text, tokens),
            Algorithm::Spm => {
                let mut escaped = Vec::with_capacity(text.len() + text.len() / 2 + 3);
                let prefix: &[u8] = if self.flags.add_space_prefix && after_special { b" " } else { b"" };
                for &byte in prefix.iter().chain(text) {
                    match byte {
                        b' ' => escaped.extend("\u{2581}".as_bytes()),
                        _ => escaped.push(byte),
                    }
                }
                spm::encode(&self.vocab, self.special.unknown, &escaped, tokens);
            }
        }
    }

    /// Number of tokens.
    pub fn n_vocab(&self) -> usize {
        self.vocab.len()
    }

    /// The text of a token as the file has it; empty for an id outside the vocabulary.
    pub fn token_text(&self, id: u32) -> &str {
        self.vocab.text(id)
    }

    /// The type of a token; undefined for an id outside the vocabulary.
    pub fn token_type(&self, id: u32) -> TokenType {
        self.vocab.token_type(id)
    }

    /// The token with this text in the file's spelling, if there is one.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.vocab.id(text)
    }

    /// True if this token ends a generation.
    pub fn is_eog(&self, id: u32) -> bool {
        self.special.eog.binary_search(&id).is_ok()
    }

    /// All tokens that end a generation (end of sentence, turn, message, padding of infills), ascending.
    pub fn eog_ids(&self) -> &[u32] {
        &self.special.eog
    }

    /// Beginning of a text.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// End of a text.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// End of a turn.
    pub fn eot(&self) -> Option<u32> {
        self.special.eot
    }

    /// True if [`Tokenizer::encode`] begins with BOS when it adds special tokens.
    pub fn add_bos(&self) -> bool {
        self.flags.add_bos && self.special.bos.is_some()
    }

    /// True if [`Tokenizer::encode`] ends with EOS when it adds special tokens.
    pub fn add_eos(&self) -> bool {
        self.flags.add_eos && self.special.eos.is_some()
    }

    /// What the user should know about the file's tokenizer.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// The pre-tokenizer of a file with byte-pair encoding.
fn find_pre(
    metadata: &Metadata,
    options: &TokenizerOptions,
    model: &str,
    warnings: &mut Vec<String>,
) -> Result<&'static Pre, TokenizerError> {
    let name = match (&options.pre_override, model) {
        (Some(name), _) => name,
        (None, "gemma4" | "whitespace") => model,
        (None, _) => metadata.str("tokenizer.ggml.pre")?.unwrap_or_else(|| {
            let default = pre::DEFAULT_NAME;
            warnings.push(format!("tokenizer.ggml.pre is missing, using \"{default}\"; --pre names another"));
            default
        }),
    };
    pre::by_name(name).ok_or_else(|| TokenizerError::UnknownPre { found: name.to_owned() })
}

/// The ids that hold where the file names none.
fn default_ids(model: &str, pre: Option<&Pre>) -> SpecialTokens {
    let (bos, eos, unknown) = match model {
        "llama" => (Some(1), Some(2), Some(0)),
        "gemma4" => (None, None, None),
        _ => (Some(11).filter(|_| !pre.is_some_and(|pre| pre.no_bos)), Some(11), None),
    };
    SpecialTokens { bos, eos, unknown, ..SpecialTokens::default() }
}

fn flags(metadata: &Metadata, model: &str, pre: Option<&Pre>) -> Result<Flags, TokenizerError> {
    let flag = |key: &str, default: bool| {
        Ok::<_, TokenizerError>(metadata.bool(&format!("tokenizer.ggml.{key}"))?.unwrap_or(default))
    };
    let forced_bos = model == "gemma4";
    Ok(Flags {
        add_bos: flag("add_bos_token", pre.is_none_or(|pre| pre.add_bos))? || forced_bos,
        add_eos: flag("add_eos_token", false)?,
        add_space_prefix: flag("add_space_prefix", pre.is_none())?,
        clean_spaces: pre.is_some_and(|pre| pre.clean_spaces),
        escape: pre.is_none_or(|pre| pre.escape),
    })
}

/// Which special tokens swallow white space on their left, and on their right. No key says so; llama.cpp knows
/// the families.
fn stripping(metadata: &Metadata, vocab: &Vocab) -> Result<(Vec<u32>, Vec<u32>), TokenizerError> {
    let name = metadata.str("general.name")?.unwrap_or_default().to_ascii_lowercase();
    let architecture = metadata.str("general.architecture")?.unwrap_or_default();
    let pre = metadata.str("tokenizer.ggml.pre")?.unwrap_or_default();
    let mut lstrip = Vec::new();
    if ["jina-v2-de", "jina-v2-es", "jina-v2-code"].contains(&pre)
        || ["nomic-bert-moe", "jina-bert-v3"].contains(&architecture)
    {
        lstrip.extend(vocab.id("<mask>"));
    }
    if pre == "modern-bert" {
        lstrip.extend(vocab.id("[MASK]"));
    }
    let mut rstrip = Vec::new();
    if name.contains("phi-3") || name.contains("phi3") {
        let kept = ["<unk>", "<s>", "<|endoftext|>"];
        rstrip.extend((0..vocab.len() as u32).filter(|&id| {
            let special = matches!(
                vocab.token_type(id),
                TokenType::Control | TokenType::UserDefined | TokenType::Unknown
            );
            let text = vocab.text(id);
            (special || text == "</s>") && !kept.contains(&text)
        }));
    }
    Ok((lstrip, rstrip))
}
