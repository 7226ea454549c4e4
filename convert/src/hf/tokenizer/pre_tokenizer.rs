//! How text is cut into words, as `tokenizer.json` says it: published patterns by the names of `tokenizer.ggml.pre`, in
//! both directions.

use serde_json::{Map, Value, json};

use super::super::config::describe;
use super::fingerprint;

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
pub(crate) struct PreTokenizer {
    pub normalizer: Value,
    pub pre_tokenizer: Value,
    pub ignore_merges: bool,
}

/// That of a name.
pub(crate) fn by_name(name: &str) -> Option<PreTokenizer> {
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
pub(crate) fn names() -> Vec<&'static str> {
    KNOWN.iter().flat_map(|pre| pre.names).copied().collect()
}

/// What a `tokenizer.json` turns out to be.
pub(super) enum Recognized {
    /// Text is prepared exactly as by the pre-tokenizer of this name.
    As(&'static str),
    /// The nearest one, and in what it differs.
    Near(&'static str, String),
}

/// Compares the structure of a `tokenizer.json` with those that are known. Of several names that stand for one structure
/// one of `preferred` is taken, else the first.
pub(super) fn recognize(tokenizer: &Map<String, Value>, preferred: &[&str]) -> Recognized {
    let found = Structure::read(tokenizer);
    let named = KNOWN.iter().filter_map(|pre| Some((pre, pre.written_as(preferred)?)));
    let compared = named.map(|(pre, name)| {
        let known = Structure::of(pre);
        (found.differences(&known, name), found.common_prefix(&known), name)
    });
    let nearest = compared.min_by_key(|(differences, prefix, _)| (differences.len(), usize::MAX - prefix));
    match nearest.expect("some structures are known") {
        (differences, _, name) if differences.is_empty() => Recognized::As(name),
        (differences, _, name) => Recognized::Near(name, differences.join("; ")),
    }
}

impl Pre {
    /// The name that a converter writes for it, if there is one.
    fn written_as(&self, preferred: &[&str]) -> Option<&'static str> {
        let written = fingerprint::names();
        let mut names = self.names.iter().copied().filter(|name| written.contains(name));
        let first = names.clone().next();
        names.find(|name| preferred.contains(name)).or(first)
    }
}

/// Everything that happens to a text before words are merged.
#[derive(PartialEq)]
struct Structure {
    /// What is done to the characters, in order.
    normalizer: Vec<String>,
    /// The patterns by which it is cut, one after the other, and steps of other kinds as they are written.
    cuts: Vec<String>,
    /// Bytes become characters.
    byte_level: bool,
    ignore_merges: bool,
    byte_fallback: bool,
    /// Texts that mark words inside or at their end.
    affixes: Vec<String>,
}

impl Structure {
    fn of(pre: &Pre) -> Structure {
        let cuts = match pre.cut {
            Cut::Gpt2 => vec![GPT2],
            Cut::Digits => vec![r"\p{N}", GPT2],
            Cut::Patterns(patterns) => patterns.to_vec(),
        };
        Structure {
            normalizer: if pre.nfc { vec!["NFC".to_owned()] } else { Vec::new() },
            cuts: cuts.into_iter().map(str::to_owned).collect(),
            byte_level: true,
            ignore_merges: pre.ignore_merges,
            byte_fallback: false,
            affixes: Vec::new(),
        }
    }

    fn read(tokenizer: &Map<String, Value>) -> Structure {
        let part = |key: &str| tokenizer.get(key).unwrap_or(&Value::Null);
        let model = part("model");
        let flag = |key: &str| model.get(key).and_then(Value::as_bool).unwrap_or(false);
        let normalizer = steps(part("normalizer"), "normalizers");
        let affixes = ["continuing_subword_prefix", "end_of_word_suffix"];
        let affixes = affixes.iter().filter_map(|key| model.get(*key).and_then(Value::as_str));
        let mut structure = Structure {
            normalizer: normalizer.into_iter().map(name_of_step).collect(),
            cuts: Vec::new(),
            byte_level: false,
            ignore_merges: flag("ignore_merges"),
            byte_fallback: flag("byte_fallback"),
            affixes: affixes.filter(|text| !text.is_empty()).map(str::to_owned).collect(),
        };
        let steps = steps(part("pre_tokenizer"), "pretokenizers");
        let n_cuts = steps.iter().filter(|step| step["type"] != "ByteLevel").count();
        steps.into_iter().for_each(|step| structure.add(step, n_cuts == 1));
        structure
    }

    /// One step of the pre-tokenizer, `alone` if no other one cuts.
    fn add(&mut self, step: &Value, alone: bool) {
        let is = |key: &str, value: bool| step[key].as_bool() == Some(value);
        let isolates = match step["behavior"].as_str() {
            Some("Isolated") => true,
            // What the pattern leaves over is taken away, and these patterns leave nothing over.
            Some("Removed") => is("invert", true) && alone,
            _ => false,
        };
        match (step["type"].as_str(), step["pattern"]["Regex"].as_str()) {
            (Some("Split"), Some(regex)) if isolates => self.cuts.push(regex.to_owned()),
            (Some("Digits"), _) if is("individual_digits", true) => self.cuts.push(r"\p{N}".to_owned()),
            (Some("Digits"), _) => self.cuts.push(r"\p{N}+".to_owned()),
            (Some("ByteLevel"), _) if !is("add_prefix_space", true) => {
                if !is("use_regex", false) {
                    self.cuts.push(GPT2.to_owned());
                }
                self.byte_level = true;
            }
            _ => self.cuts.push(step.to_string()),
        }
    }

    /// In what it differs from that of `name`, part by part.
    fn differences(&self, known: &Structure, name: &str) -> Vec<String> {
        let mut all = Vec::new();
        let list = |texts: &[String]| describe(&texts.into());
        for (part, found, expected) in [
            ("normalizer", &self.normalizer, &known.normalizer),
            ("pre_tokenizer", &self.cuts, &known.cuts),
            ("affixes of words", &self.affixes, &known.affixes),
        ] {
            if found != expected {
                all.push(format!("its {part} is {}, that of {name} {}", list(found), list(expected)));
            }
        }
        for (part, found, expected) in [
            ("ByteLevel step", self.byte_level, known.byte_level),
            ("ignore_merges", self.ignore_merges, known.ignore_merges),
            ("byte_fallback", self.byte_fallback, known.byte_fallback),
        ] {
            if found != expected {
                all.push(format!("its {part} is {found}, that of {name} {expected}"));
            }
        }
        all
    }

    /// How many bytes the patterns of both have in common from the first on.
    fn common_prefix(&self, other: &Structure) -> usize {
        let (a, b) = (self.cuts.concat(), other.cuts.concat());
        a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
    }
}

/// The steps of a part that may be none, one, or a sequence.
fn steps<'v>(part: &'v Value, key: &str) -> Vec<&'v Value> {
    match part {
        Value::Null => Vec::new(),
        part if part["type"] == "Sequence" => {
            part[key].as_array().into_iter().flatten().flat_map(|one| steps(one, key)).collect()
        }
        part => vec![part],
    }
}

/// Steps without settings by their type, others as they are written.
fn name_of_step(step: &Value) -> String {
    match (step.as_object(), step["type"].as_str()) {
        (Some(fields), Some(kind)) if fields.len() == 1 => kind.to_owned(),
        _ => step.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `tokenizer.json` that prepares text as that of a name.
    fn like(name: &str) -> Map<String, Value> {
        let pre = by_name(name).unwrap();
        let model = json!({ "type": "BPE", "ignore_merges": pre.ignore_merges, "byte_fallback": false });
        let parts = [("normalizer", pre.normalizer), ("pre_tokenizer", pre.pre_tokenizer), ("model", model)];
        Map::from_iter(parts.map(|(key, value)| (key.to_owned(), value)))
    }

    #[test]
    fn every_structure_is_its_own() {
        for pre in KNOWN.iter().filter(|pre| pre.written_as(&[]).is_some()) {
            let found = recognize(&like(pre.names[0]), &[]);
            assert!(matches!(found, Recognized::As(name) if pre.names.contains(&name)), "{}", pre.names[0]);
        }
    }

    #[test]
    fn of_names_for_one_structure_the_preferred_is_taken() {
        for (like_name, preferred, expected) in [
            ("llama3", &[][..], "llama-bpe"),
            ("refact", &[], "smollm"),
            ("smollm", &["refact"], "refact"),
            ("qwen2", &["refact"], "qwen2"),
        ] {
            let found = recognize(&like(like_name), preferred);
            assert!(matches!(found, Recognized::As(name) if name == expected), "{like_name}");
        }
    }

    #[test]
    fn what_differs_is_said() {
        let near = |edit: &dyn Fn(&mut Map<String, Value>)| {
            let mut tokenizer = like("qwen2");
            edit(&mut tokenizer);
            match recognize(&tokenizer, &[]) {
                Recognized::As(name) => panic!("taken for {name}"),
                Recognized::Near(name, differences) => (name, differences),
            }
        };
        let found = near(&|t| t["normalizer"] = json!({ "type": "NFKC" }));
        assert_eq!(found, ("qwen2", r#"its normalizer is ["NFKC"], that of qwen2 ["NFC"]"#.to_owned()));
        let found = near(&|t| t["model"]["ignore_merges"] = true.into());
        assert_eq!(found, ("qwen2", "its ignore_merges is true, that of qwen2 false".to_owned()));
        let (name, found) = near(&|t| {
            t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(?i:'s|'t)|\\p{N}{1,2}".into();
        });
        assert!(
            found.starts_with(&format!(
                r#"its pre_tokenizer is ["(?i:'s|'t)|\\p{{N}}{{1,2}}"], that of {name} ["#
            )),
            "{found}"
        );
        let (_, found) = near(&|t| t["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true.into());
        assert!(found.contains("its ByteLevel step is false"), "{found}");
    }
}
