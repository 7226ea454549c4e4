//! The pre-tokenizers by name (`tokenizer.ggml.pre`): how text is cut into words before byte-pair merging.
//!
//! Patterns are written as they are published, except that their lookaheads are replaced: `\s+(?!\S)|\s+` is a
//! plain `\s+` with a [`Spaces`] rule, and `(?=\p{L})[^a-z]` is the class of letters without `a-z`. How the
//! classes work is explained in [`split`](super::split).

use std::fmt::Write;

use super::split::{Spaces, Step};

/// A pre-tokenizer and what it implies for the rest of the tokenizer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pre {
    /// How text is cut into words.
    pub steps: &'static [Step],
    /// A word that is a token is not built by merging.
    pub ignore_merges: bool,
    /// A text starts with BOS unless the file says otherwise.
    pub add_bos: bool,
    /// Decoding removes spaces before punctuation.
    pub clean_spaces: bool,
    /// There is no BOS unless the file names one.
    pub no_bos: bool,
    /// Bytes are mapped to printable characters.
    pub byte_encode: bool,
    /// Spaces are written U+2581, and a word of line breaks that is a token is taken whole.
    pub escape: bool,
}

macro_rules! contractions {
    () => {
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    };
}
macro_rules! word {
    () => {
        r"[^\r\n\p{L}\p{N}]?\p{L}+"
    };
}
macro_rules! symbols_and_spaces {
    () => {
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
    };
}
/// Letters in two alternatives: capitals first, or at least one capital; `$u` are all but `a-z`, `$l` all but
/// `A-Z`, `$tail` what may follow.
macro_rules! camel_case {
    ($u:literal, $l:literal, $tail:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[",
            $u,
            "]*[",
            $l,
            "]+",
            $tail,
            r"|[^\r\n\p{L}\p{N}]?[",
            $u,
            "]+[",
            $l,
            "]*",
            $tail
        )
    };
}
macro_rules! numbers_and_the_rest {
    ($numbers:literal) => {
        concat!("|", $numbers, r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+")
    };
}
macro_rules! gpt4o {
    ($u:literal, $l:literal) => {
        concat!(camel_case!($u, $l, concat!(contractions!(), "?")), numbers_and_the_rest!(r"\p{N}{1,3}"))
    };
}
macro_rules! deepseek3_words {
    () => {
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##
    };
}

use Spaces::{AllButLast, AllButLastUnlessLineBreak, PowersOfTwo, Whole};
use Step::{Categories, DigitsByThree, List, NumbersByThree};

const GPT2_STEP: Step =
    Categories(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+", AllButLast);
const GPT2: &[Step] = &[GPT2_STEP];
const LLAMA3_PATTERN: &str = concat!(contractions!(), "|", word!(), r"|\p{N}{1,3}", symbols_and_spaces!());
const LLAMA3: &[Step] = &[Categories(LLAMA3_PATTERN, AllButLastUnlessLineBreak)];
const QWEN2_STEP: Step = Categories(
    concat!(contractions!(), "|", word!(), r"|\p{N}", symbols_and_spaces!()),
    AllButLastUnlessLineBreak,
);
const QWEN2: &[Step] = &[QWEN2_STEP];
const QWEN35: &[Step] = &[Categories(
    concat!(
        contractions!(),
        r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
    ),
    AllButLastUnlessLineBreak,
)];
const NUMBER: Step = Categories(r"\p{N}", Whole);
const STARCODER: &[Step] = &[NUMBER, GPT2_STEP];
const THREE_DIGITS: Step = Categories("[0-9][0-9][0-9]", Whole);
const DEFAULT: &[Step] =
    &[Categories(r"[\p{P}$+<=>\^~|]+", Whole), GPT2_STEP, Categories(r"\p{N}+", Whole), THREE_DIGITS];
const FALCON: &[Step] = &[Categories(r"[\p{P}$+<=>\^~|`]+", Whole), GPT2_STEP, THREE_DIGITS];
const TEKKEN: &[Step] = &[Categories(
    concat!(camel_case!(r"A-Z\xD2", r"a-z\xD2", ""), numbers_and_the_rest!(r"\p{N}")),
    AllButLastUnlessLineBreak,
)];
const GPT4O: &[Step] = &[Categories(gpt4o!(r"A-Z\xD2", r"a-z\xD2"), AllButLastUnlessLineBreak)];
const GRANITE_EMB: &[Step] = &[Categories(gpt4o!(r"A-Z\xD2\xD4", r"a-z\xD2\xD4"), AllButLastUnlessLineBreak)];
/// All letters are of one case here, because the categories of upper and lower case are not told apart.
const TINY_AYA: &[Step] =
    &[NumbersByThree, Categories(gpt4o!(r"\p{L}\p{M}", r"\p{L}\p{M}"), AllButLastUnlessLineBreak)];
const CJK_AND_HANGUL: Step =
    List(&['\u{4e00}'..='\u{9fa5}', '\u{800}'..='\u{4e00}', '\u{ac00}'..='\u{d7ff}'], r"\xE0+");
const DEEPSEEK_CODER: &[Step] = &[
    Categories(r"[\r\n]", Whole),
    Categories(r"\s?\p{L}+", Whole),
    Categories(r"\s?\p{P}+", Whole),
    CJK_AND_HANGUL,
    NUMBER,
];
const ONE_TO_THREE_NUMBERS: Step = Categories(r"\p{N}{1,3}", Whole);
const HAN_AND_KANA: Step =
    List(&['\u{4e00}'..='\u{9fa5}', '\u{3040}'..='\u{309f}', '\u{30a0}'..='\u{30ff}'], r"\xE0+");
const DEEPSEEK3: &[Step] = &[
    ONE_TO_THREE_NUMBERS,
    HAN_AND_KANA,
    Categories(
        concat!(deepseek3_words!(), r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"),
        AllButLastUnlessLineBreak,
    ),
];
const SPARK: &[Step] = &[
    ONE_TO_THREE_NUMBERS,
    HAN_AND_KANA,
    Categories(concat!(deepseek3_words!(), r"| ?[\p{P}\p{S}]+|[\r\n]|\s+"), AllButLast),
    NUMBER,
];
/// Punctuation of several scripts; the ASCII part of the class is in the pattern.
const BLOOM_STEP: Step = List(
    &[
        '\u{2026}'..='\u{2026}',
        '\u{3002}'..='\u{3002}',
        '\u{ff0c}'..='\u{ff0c}',
        '\u{3001}'..='\u{3001}',
        '\u{964}'..='\u{964}',
        '\u{6d4}'..='\u{6d4}',
        '\u{60c}'..='\u{60c}',
    ],
    r" ?[^(\s|.,!?)\xE0]+",
);
const BLOOM: &[Step] = &[BLOOM_STEP];
const VIKING: &[Step] = &[BLOOM_STEP, NUMBER];
const BAILING: &[Step] = &[Categories(
    concat!(
        r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|",
        word!(),
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+"
    ),
    AllButLastUnlessLineBreak,
)];
const NEWLINES_STEP: Step = Categories(r"[^\n]+|\n+", Whole);
const NEWLINES: &[Step] = &[NEWLINES_STEP];
const SEED_CODER: &[Step] = &[Categories(
    concat!(contractions!(), "|", word!(), r"|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+"),
    AllButLastUnlessLineBreak,
)];
const UFAKZEKA: &[Step] =
    &[Categories(concat!(word!(), r"|\p{N}", symbols_and_spaces!()), AllButLastUnlessLineBreak)];
const LAGUNA: &[Step] = &[NEWLINES_STEP, QWEN2_STEP];
const MINICPM5: &[Step] = &[
    ONE_TO_THREE_NUMBERS,
    Categories(
        concat!(contractions!(), "|", word!(), r"|\p{N}+", symbols_and_spaces!()),
        AllButLastUnlessLineBreak,
    ),
];
const JAIS2: &[Step] = &[Categories(LLAMA3_PATTERN, PowersOfTwo)];
const EXAONE_MOE: &[Step] = &[Categories(
    concat!(
        contractions!(),
        r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+"
    ),
    AllButLastUnlessLineBreak,
)];
const SUPERBPE: &[Step] = &[Categories(r"\p{N}+", Whole), DigitsByThree];
const CHAMELEON: &[Step] = &[
    Categories("<sentinel:[0-9]+>", Whole),
    Categories("(?:IMGIMG)[A-I]{1,4}Z", Whole),
    Categories(r"[\t\n]|    |  ", Whole),
    NUMBER,
    Categories(r"[\p{P}!-/:-@\[-`{-~]", Whole),
    GPT2_STEP,
];
const WHITESPACE: &[Step] = &[Categories(r"\S+", Whole)];

const PLAIN: Pre = Pre {
    steps: DEFAULT,
    ignore_merges: false,
    add_bos: false,
    clean_spaces: true,
    no_bos: false,
    byte_encode: true,
    escape: false,
};
const UNCLEAN: Pre = Pre { clean_spaces: false, ..PLAIN };
const ESCAPED: Pre = Pre { steps: NEWLINES, byte_encode: false, escape: true, ..PLAIN };

/// What stands for the name in a file without one.
pub(super) const DEFAULT_NAME: &str = "default";

/// Every pre-tokenizer whose rule is known, by its names.
const KNOWN: &[(&[&str], Pre)] = &[
    (&[DEFAULT_NAME], PLAIN),
    (
        &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        Pre { steps: LLAMA3, ignore_merges: true, add_bos: true, ..PLAIN },
    ),
    (&["dbrx", "smaug-bpe"], Pre { steps: LLAMA3, ..PLAIN }),
    (&["chatglm-bpe"], Pre { steps: LLAMA3, no_bos: true, ..PLAIN }),
    (&["glm4", "glm5"], Pre { steps: LLAMA3, no_bos: true, ignore_merges: true, ..PLAIN }),
    (
        &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "hunyuan", "solar-open", "grok-2"],
        Pre { steps: QWEN2, ..UNCLEAN },
    ),
    (&["stablelm2", "megrez"], Pre { steps: QWEN2, ..PLAIN }),
    (&["qwen35"], Pre { steps: QWEN35, ..UNCLEAN }),
    (
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
            "mpt",
            "olmo",
            "jais",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
        ],
        Pre { steps: GPT2, ..PLAIN },
    ),
    (&["trillion", "granite-docling"], Pre { steps: GPT2, ..UNCLEAN }),
    (
        &["starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        Pre { steps: STARCODER, ..PLAIN },
    ),
    (&["command-r", "smollm"], Pre { steps: STARCODER, ..UNCLEAN }),
    (&["falcon"], Pre { steps: FALCON, ..PLAIN }),
    (&["tekken"], Pre { steps: TEKKEN, ignore_merges: true, add_bos: true, ..UNCLEAN }),
    (&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], Pre { steps: GPT4O, ..UNCLEAN }),
    (&["granite-embed-multi-97m"], Pre { steps: GRANITE_EMB, ignore_merges: true, ..UNCLEAN }),
    (&["deepseek-coder"], Pre { steps: DEEPSEEK_CODER, ..UNCLEAN }),
    (&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], Pre { steps: DEEPSEEK3, ..UNCLEAN }),
    (&["spark2_5"], Pre { steps: SPARK, ..UNCLEAN }),
    (&["bloom", "gpt3-finnish"], Pre { steps: BLOOM, ..PLAIN }),
    (&["poro-chat"], Pre { steps: BLOOM, ..UNCLEAN }),
    (&["viking"], Pre { steps: VIKING, ..UNCLEAN }),
    (&["bailingmoe", "bailingmoe2", "llada-moe"], Pre { steps: BAILING, ..UNCLEAN }),
    (&["seed-coder"], Pre { steps: SEED_CODER, ..UNCLEAN }),
    (&["ufakzeka"], Pre { steps: UFAKZEKA, ..UNCLEAN }),
    (&["laguna"], Pre { steps: LAGUNA, ..UNCLEAN }),
    (&["minicpm5"], Pre { steps: MINICPM5, ignore_merges: true, ..PLAIN }),
    (&["jais-2"], Pre { steps: JAIS2, ..PLAIN }),
    (&["exaone-moe"], Pre { steps: EXAONE_MOE, ..PLAIN }),
    (&["superbpe"], Pre { steps: SUPERBPE, ..UNCLEAN }),
    (&["tiny_aya", "cohere2moe"], Pre { steps: TINY_AYA, ..UNCLEAN }),
    (&["chameleon"], Pre { steps: CHAMELEON, add_bos: true, ..UNCLEAN }),
    (&["gemma4", "granite-embed-multi-311m"], Pre { add_bos: true, ..ESCAPED }),
    (&["sarvam-moe"], Pre { clean_spaces: false, ..ESCAPED }),
    (&["whitespace"], Pre { steps: WHITESPACE, byte_encode: false, ..PLAIN }),
];

/// The pre-tokenizer of this name.
pub(super) fn by_name(name: &str) -> Option<&'static Pre> {
    KNOWN.iter().find(|(names, _)| names.contains(&name)).map(|(_, pre)| pre)
}

/// All names, for an error.
pub(super) fn known_names() -> String {
    let mut list = String::new();
    for (i, name) in KNOWN.iter().flat_map(|(names, _)| *names).enumerate() {
        let _ = write!(list, "{}{name}", if i == 0 { "" } else { ", " });
    }
    list
}

#[cfg(test)]
mod tests;
