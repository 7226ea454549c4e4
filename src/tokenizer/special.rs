//! Tokens with a job: which ones they are, and which of them end a generation.

use qgguf_gguf::Metadata;

use super::TokenizerError;
use super::vocab::{TokenType, Vocab};

/// End-of-sentence text of the DeepSeek models.
const DEEPSEEK_EOS: &str = "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>";

/// Texts by which an end of turn is recognised, the preferred one first.
const EOT: [&str; 11] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    DEEPSEEK_EOS,
    "<end_of_utterance>",
];

/// Texts that end a generation wherever they are in a vocabulary.
const EOG: [&str; 22] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    DEEPSEEK_EOS,
    "[e~[",
];

/// Tokens of fill-in-the-middle prompts: the keys that may name them, the texts they are recognised by, and
/// whether they end a generation.
const FIM: [(&[&str], &[&str], bool); 6] = [
    (
        &["fim_pre_token_id", "prefix_token_id"],
        &["<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>"],
        false,
    ),
    (
        &["fim_suf_token_id", "suffix_token_id"],
        &["<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>"],
        false,
    ),
    (
        &["fim_mid_token_id", "middle_token_id"],
        &["<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>"],
        false,
    ),
    (&["fim_pad_token_id"], &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"], true),
    (&["fim_rep_token_id"], &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<reponame>", "<REPO>"], true),
    (&["fim_sep_token_id"], &["<|file_sep|>"], true),
];

/// Control tokens of the harmony format that are part of what people read.
const SHOWN: [&str; 4] = ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// Ids of the special tokens; all are inside the vocabulary.
#[derive(Clone, Debug, Default)]
pub(super) struct SpecialTokens {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub eot: Option<u32>,
    pub eom: Option<u32>,
    /// In the order of [`FIM`].
    pub fim: [Option<u32>; FIM.len()],
    /// Tokens that end a generation, ascending.
    pub eog: Vec<u32>,
}

impl SpecialTokens {
    /// Reads the ids over the given defaults, finds by text what no key names, and gives tokens that were found
    /// so the type that their job needs.
    pub fn find(
        metadata: &Metadata,
        defaults: SpecialTokens,
        vocab: &mut Vocab,
        warnings: &mut Vec<String>,
    ) -> Result<SpecialTokens, TokenizerError> {
        let n_tokens = vocab.len() as u32;
        warnings.extend(beyond_the_vocabulary(metadata, n_tokens));
        let read = |key: &str| token_id(metadata, key, n_tokens);
        let or_default = |found: Option<u32>, default: Option<u32>| {
            found.or(default.filter(|default| *default < n_tokens))
        };
        let mut special = SpecialTokens {
            bos: or_default(read("bos_token_id")?, defaults.bos),
            eos: or_default(read("eos_token_id")?, defaults.eos),
            unknown: or_default(read("unknown_token_id")?, defaults.unknown),
            eot: read("eot_token_id")?,
            eom: read("eom_token_id")?,
            fim: [None; FIM.len()],
            eog: Vec::new(),
        };
        special.eot = special.eot.or_else(|| by_text(vocab, &EOT));
        special.eom = special.eom.or_else(|| by_text(vocab, &["<|eom_id|>"]));
        for (i, (keys, texts, ends)) in FIM.into_iter().enumerate() {
            let mut named = None;
            for key in keys {
                named = named.or(read(key)?);
            }
            let token = named.or_else(|| by_text(vocab, texts));
            special.fim[i] = token;
            special.eog.extend(token.filter(|_| ends));
        }
        special.find_eog(vocab);
        Ok(special)
    }

    fn find_eog(&mut self, vocab: &mut Vocab) {
        for text in EOG {
            self.eog.extend(by_text(vocab, &[text]));
        }
        for id in SHOWN.iter().filter_map(|text| vocab.id(text)).collect::<Vec<_>>() {
            vocab.set_type(id, TokenType::UserDefined);
        }
        self.eog.extend([self.eos, self.eot, self.eom].into_iter().flatten());
        self.eog.sort_unstable();
        self.eog.dedup();
        let ends = |text: &str| vocab.id(text).is_some_and(|id| self.eog.contains(&id));
        // Vocabularies with calls use <|end|> between the messages of one answer.
        let calls = ends("<|calls|>");
        let has_calls = ends("<|return|>") && (ends("<|call|>") || calls) || calls && ends("<|flush|>");
        let has_own_end = ends("<|tool_response>") || ends("<|plamo:eos|>");
        if has_calls {
            self.goes_on(vocab, "<|end|>", TokenType::UserDefined);
        }
        if has_own_end {
            self.goes_on(vocab, "</s>", TokenType::Normal);
        }
    }

    /// A token that does not end a generation after all.
    fn goes_on(&mut self, vocab: &mut Vocab, text: &str, becomes: TokenType) {
        let Some(id) = vocab.id(text) else { return };
        if let Ok(at) = self.eog.binary_search(&id) {
            self.eog.remove(at);
            vocab.set_type(id, becomes);
        }
    }
}

/// The first of these texts that the vocabulary has; it becomes a control token.
fn by_text(vocab: &mut Vocab, texts: &[&str]) -> Option<u32> {
    let id = texts.iter().find_map(|text| vocab.id(text))?;
    vocab.set_type(id, TokenType::Control);
    Some(id)
}

/// Tells of each key that names an id behind the last token; that id is not used. -1 stands for none.
fn beyond_the_vocabulary(metadata: &Metadata, n_tokens: u32) -> impl Iterator<Item = String> + '_ {
    let keys =
        metadata.iter().filter(|(key, _)| key.starts_with("tokenizer.ggml.") && key.ends_with("_token_id"));
    keys.filter_map(move |(key, value)| {
        let id = value.as_integer().filter(|&id| id >= i128::from(n_tokens))?;
        Some(format!("{key} is {id}, but there are only {n_tokens} tokens: it is not used"))
    })
}

/// A token id out of the metadata; an integer that is not a token (-1 often means none) is as good as no key.
fn token_id(metadata: &Metadata, key: &str, n_tokens: u32) -> Result<Option<u32>, TokenizerError> {
    let key = format!("tokenizer.ggml.{key}");
    if let Some(integer) = metadata.get(&key).and_then(|value| value.as_integer()) {
        return Ok(u32::try_from(integer).ok().filter(|id| *id < n_tokens));
    }
    Ok(metadata.u32(&key)?)
}
