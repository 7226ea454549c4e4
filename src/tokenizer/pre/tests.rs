//! The splitter against the published patterns on an engine that backtracks.

use fancy_regex::Regex;
use proptest::prelude::*;

use super::*;
use crate::tokenizer::split::Splitter;

const C: &str = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const TAIL: &str = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TAIL_OF_4O: &str = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_WORDS: &str =
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##;

/// The published patterns, lookaheads and all, for an engine that backtracks.
fn published(name: &str) -> Vec<String> {
    let llama3 = |numbers: &str| format!(r"{C}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}{TAIL}");
    let camel = |letters: &str, tail: &str, numbers: &str| {
        let upper = format!("(?:(?=[{letters}])[^a-z])");
        let lower = format!("(?:(?=[{letters}])[^A-Z])");
        let first = r"[^\r\n\p{L}\p{N}]?";
        format!("{first}{upper}*{lower}+{tail}|{first}{upper}+{lower}*{tail}|{numbers}{TAIL_OF_4O}")
    };
    let list = |patterns: &[&str]| patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    match name {
        "gpt-2" => list(&[GPT2]),
        "llama-bpe" => vec![llama3(r"\p{N}{1,3}")],
        "qwen2" => vec![llama3(r"\p{N}")],
        "qwen35" => vec![format!(
            r"{C}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}{}",
            TAIL.replace(r"\p{L}", r"\p{L}\p{M}")
        )],
        "starcoder" => list(&[r"\p{N}", GPT2]),
        "default" => list(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
        "falcon" => list(&[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
        "tekken" => vec![camel(r"\p{L}", "", r"\p{N}")],
        "gpt-4o" => vec![camel(r"\p{L}", &format!("{C}?"), r"\p{N}{1,3}")],
        "granite-embed-multi-97m" => {
            vec![camel(r"\p{L}\p{M}", &format!("{C}?"), r"\p{N}{1,3}")]
        }
        "deepseek-coder" => list(&[
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            r"[[\u{800}-\u{9fa5}\u{ac00}-\u{d7ff}]&&\S]+",
            r"\p{N}",
        ]),
        "deepseek-v3" => vec![
            r"\p{N}{1,3}".to_owned(),
            "[一-龥\u{3040}-ゟ゠-ヿ]+".to_owned(),
            format!(r"{DEEPSEEK_WORDS}| ?[\p{{P}}\p{{S}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
        ],
        "spark2_5" => vec![
            r"\p{N}{1,3}".to_owned(),
            "[一-龥\u{3040}-ゟ゠-ヿ]+".to_owned(),
            format!(r"{DEEPSEEK_WORDS}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+"),
            r"\p{N}".to_owned(),
        ],
        "viking" => list(&[r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"]),
        "bailingmoe" => vec![format!(
            r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{}",
            TAIL.replace(r"\s*[\r\n]+", r"\s*[\r\n]")
        )],
        "seed-coder" => vec![llama3(r"\p{N}").replace(r"\p{N}]+[\r\n]*", r"\p{N}\r\n]+")],
        "ufakzeka" => vec![llama3(r"\p{N}").replace(&format!("{C}|"), "")],
        "laguna" => vec![r"[^\n]+|[\n]+".to_owned(), llama3(r"\p{N}")],
        "minicpm5" => vec![r"\p{N}{1,3}".to_owned(), llama3(r"\p{N}+")],
        "jais-2" => {
            let powers: String = (2..=9).rev().map(|n| format!(r"|\s{{{}}}(?!\S)", 1 << n)).collect();
            let spaces = format!(r"{powers}|\s{{1,2}}(?!\S)|\s{{1}}");
            vec![llama3(r"\p{N}{1,3}").replace(r"|\s+(?!\S)|\s+", &spaces)]
        }
        "exaone-moe" => vec![format!(
            r"{C}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}{}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
        )],
        "tiny_aya" => vec![
            r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))".to_owned(),
            format!(
                r"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]*[\p{{L}}\p{{M}}]+{C}?|{}{TAIL_OF_4O}",
                r"\p{N}{1,3}"
            ),
        ],
        "superbpe" => list(&[r"\p{N}+", r"(?=([0-9]{3})+(?![0-9]))"]),
        "chameleon" => list(&[
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT2,
        ]),
        "gemma4" => list(&[r"[^\n]+|[\n]+"]),
        "whitespace" => list(&[r"\S+"]),
        _ => panic!("{name} is not in this test"),
    }
}

const COMPARED: [&str; 26] = [
    "gpt-2",
    "llama-bpe",
    "qwen2",
    "qwen35",
    "starcoder",
    "default",
    "falcon",
    "tekken",
    "gpt-4o",
    "granite-embed-multi-97m",
    "deepseek-coder",
    "deepseek-v3",
    "spark2_5",
    "viking",
    "bailingmoe",
    "seed-coder",
    "ufakzeka",
    "laguna",
    "minicpm5",
    "jais-2",
    "exaone-moe",
    "tiny_aya",
    "superbpe",
    "chameleon",
    "gemma4",
    "whitespace",
];

/// Splits as the patterns are defined: one after the other, what they do not match is kept.
fn split_by_backtracking<'t>(patterns: &[Regex], text: &'t str) -> Vec<&'t str> {
    let mut pieces = vec![text];
    for regex in patterns {
        let mut split = Vec::new();
        for piece in pieces {
            let mut last = 0;
            for found in regex.find_iter(piece).map(Result::unwrap) {
                split.extend([&piece[last..found.start()], found.as_str()]);
                last = found.end();
            }
            split.push(&piece[last..]);
        }
        split.retain(|piece| !piece.is_empty());
        pieces = split;
    }
    pieces
}

#[rustfmt::skip]
const PIECES: &[&str] = &[
    " ", "  ", "\t", "\n", "\r\n", "\u{85}", "\u{a0}", "\u{3000}", "\u{1c}", "\0", "a", "Z", "word",
    "CamelCase", "'s", "'LL", "'", "é", "É", "ß", "я", "Ж", "中文", "テ", "한", "\u{301}", "\u{308}",
    "1", "234", "56789", "٣", "½", ".", ",", "!?", "...", "-", "/", "$", "+=", "^", "~", "`", "|",
    "(", "]", "_", "€", "。", "，", "🦙", "\u{200d}", "\u{fe0f}", "\u{378}", "\u{e000}", "𐐀",
    "<sentinel:12>", "IMGIMGABZ", "    ", "\n\n\n",
];

/// Texts of pieces that patterns care about.
fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn words_are_those_of_the_published_patterns(text in text()) {
        thread_local! {
            static COMPILED: Vec<(&'static str, Splitter, Vec<Regex>)> = COMPARED
                .iter()
                .map(|name| {
                    let patterns = published(name).iter().map(|p| Regex::new(p).unwrap()).collect();
                    (*name, Splitter::new(by_name(name).unwrap().steps), patterns)
                })
                .collect();
        }
        COMPILED.with(|compiled| {
            for (name, splitter, patterns) in compiled {
                let words: Vec<&str> = splitter.words(&text).collect();
                prop_assert_eq!(words, split_by_backtracking(patterns, &text), "{}: {:?}", name, &text);
            }
            Ok(())
        })?;
    }
}

#[test]
fn names_are_unique_and_their_patterns_compile() {
    let names: Vec<&str> = KNOWN.iter().flat_map(|(names, _)| *names).copied().collect();
    for (i, name) in names.iter().enumerate() {
        assert!(!names[..i].contains(name), "{name}");
        let text = "Ünïcödé text, 12345\n\n  and\u{3000}more";
        let splitter = Splitter::new(by_name(name).unwrap().steps);
        assert_eq!(splitter.words(text).collect::<String>(), text, "{name}");
    }
}

#[test]
fn a_run_of_white_space_is_split_in_linear_time() {
    let spaces = " ".repeat(1 << 20);
    let count = |name: &str, text: &str| Splitter::new(by_name(name).unwrap().steps).words(text).count();
    for name in ["gpt-2", "llama-bpe", "qwen35", "tekken", "deepseek-v3", "tiny_aya"] {
        assert_eq!(count(name, &format!("{spaces}x")), 2, "{name}");
    }
    assert_eq!(count("jais-2", &spaces), (1 << 20) / 512);
    assert_eq!(count("gpt-2", &"\n".repeat(100_000)), 1);
}
