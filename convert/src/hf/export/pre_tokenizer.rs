//! How text is cut into words, as `tokenizer.json` says it: published patterns by the names of `tokenizer.ggml.pre`.

use serde_json::{Value, json};

/// One way to cut, and the names that stand for it.
struct Pre {
    names: &'static [&'static str],
    cut: Cut,
    /// A word that is a token is not built by merging.
    ignore_merges: bool,
    /// Text is composed (NFC) first.
    nfc: bool,
}

/// Cuts before the bytes become characters.
enum Cut {
    /// GPT-2's pattern, which the byte level brings along.
    Gpt2,
    /// Every digit alone, then GPT-2's.
    Digits,
    /// These patterns, one after the other.
    Patterns(&'static [&'static str]),
}

macro_rules! words_and_the_rest {
    ($numbers:literal) => {
        concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $numbers,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}
macro_rules! camel_case {
    ($tail:literal, $numbers:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $tail,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $tail,
            "|",
            $numbers,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: Cut = Cut::Patterns(&[words_and_the_rest!(r"\p{N}{1,3}")]);

const KNOWN: [Pre; 12] = [
    Pre {
        names: &["llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "lfm2"],
        cut: LLAMA3,
        ignore_merges: true,
        nfc: false,
    },
    Pre { names: &["dbrx"], cut: LLAMA3, ignore_merges: false, nfc: true },
    Pre { names: &["smaug-bpe"], cut: LLAMA3, ignore_merges: false, nfc: false },
    Pre {
        names: &["qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan"],
        cut: Cut::Patterns(&[words_and_the_rest!(r"\p{N}")]),
        ignore_merges: false,
        nfc: true,
    },
    Pre {
        names: &["qwen35"],
        cut: Cut::Patterns(&[concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )]),
        ignore_merges: false,
        nfc: true,
    },
    Pre {
        names: &["gpt-2", "phi-2", "olmo", "mpt", "exaone4", "modern-bert"],
        cut: Cut::Gpt2,
        ignore_merges: false,
        nfc: false,
    },
    Pre {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"],
        cut: Cut::Digits,
        ignore_merges: false,
        nfc: false,
    },
    Pre {
        names: &["tekken"],
        cut: Cut::Patterns(&[camel_case!("", r"\p{N}")]),
        ignore_merges: true,
        nfc: false,
    },
    Pre {
        names: &["gpt-4o", "llama4"],
        cut: Cut::Patterns(&[camel_case!("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}")]),
        ignore_merges: false,
        nfc: false,
    },
    Pre {
        names: &["deepseek-v3"],
        cut: Cut::Patterns(&[
            r"\p{N}{1,3}",
            "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+",
            concat!(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
                r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            ),
        ]),
        ignore_merges: false,
        nfc: false,
    },
    Pre {
        names: &["falcon"],
        cut: Cut::Patterns(&[r"[\p{P}$+<=>\^~|`]+", GPT2, "[0-9][0-9][0-9]"]),
        ignore_merges: false,
        nfc: false,
    },
    Pre {
        names: &["default"],
        cut: Cut::Patterns(&[r"[\p{P}$+<=>\^~|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
        ignore_merges: false,
        nfc: false,
    },
];

/// What `tokenizer.json` says about words.
pub(super) struct PreTokenizer {
    pub normalizer: Value,
    pub pre_tokenizer: Value,
    pub ignore_merges: bool,
}

/// That of a name.
pub(super) fn by_name(name: &str) -> Option<PreTokenizer> {
    let pre = KNOWN.iter().find(|pre| pre.names.contains(&name))?;
    let byte_level = |use_regex: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex });
    let steps = match pre.cut {
        Cut::Gpt2 => vec![byte_level(true)],
        Cut::Digits => vec![json!({ "type": "Digits", "individual_digits": true }), byte_level(true)],
        Cut::Patterns(patterns) => {
            let split = |pattern: &&str| {
                json!({
                    "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false,
                })
            };
            patterns.iter().map(split).chain([byte_level(false)]).collect()
        }
    };
    Some(PreTokenizer {
        normalizer: if pre.nfc { json!({ "type": "NFC" }) } else { Value::Null },
        pre_tokenizer: json!({ "type": "Sequence", "pretokenizers": steps }),
        ignore_merges: pre.ignore_merges,
    })
}

/// All names, for an error.
pub(super) fn names() -> Vec<&'static str> {
    KNOWN.iter().flat_map(|pre| pre.names).copied().collect()
}
