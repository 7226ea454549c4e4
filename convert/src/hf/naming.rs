//! What a model's name says: base name, size, version, fine-tune. Everything in `general.*` that llama.cpp derives.

use std::sync::LazyLock;

use regex::Regex;

/// A model id taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdParts {
    /// All of it but the organization.
    pub name: Option<String>,
    /// What stands before the slash.
    pub organization: Option<String>,
    /// E.g. `Qwen3`.
    pub basename: Option<String>,
    /// E.g. `Instruct`.
    pub finetune: Option<String>,
    /// E.g. `v0.3`.
    pub version: Option<String>,
    /// E.g. `0.6B`.
    pub size_label: Option<String>,
}

fn regex(cell: &'static LazyLock<Regex>) -> &'static Regex {
    cell
}

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        fn $name() -> &'static Regex {
            static CELL: LazyLock<Regex> =
                LazyLock::new(|| Regex::new(concat!("(?i)^(?:", $text, ")$")).expect("a valid pattern"));
            regex(&CELL)
        }
    };
}
pattern!(version, r"(?:v|iter)?\d+(?:\.\d+)*");
pattern!(number_type, r"i?q\d(?:_\w)*|b?fp?(?:16|32)");
pattern!(size, r"(?:(?:a|\d+x)?\d+(?:[._]\d+)?[kmbt]\d?|small|mini|medium|large|x?xl)");
pattern!(known_finetune, r"chat|instruct|vision|lora");
pattern!(not_a_title, r"v\d+(?:\.\d+)*|\d.*");

/// What a part of an id can be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unknown,
    Version,
    NumberType,
    Size,
    Finetune,
}

/// Takes an id apart at its hyphens. `n_params` tells sizes from context lengths.
pub fn parts(id: &str, n_params: u64) -> IdParts {
    if id.contains(' ') {
        return IdParts { name: Some(id.to_owned()), ..IdParts::default() };
    }
    let (organization, full) = match id.split_once('/') {
        Some((org, name)) => (Some(org).filter(|org| !org.is_empty() && !org.starts_with('.')), name),
        None => (None, id),
    };
    let mut words: Vec<(String, Kind)> = full
        .split('-')
        .filter(|word| !word.is_empty())
        .enumerate()
        .map(|(i, word)| classify(i, word, n_params))
        .collect();
    let is_size = |word: &(String, Kind)| word.1 == Kind::Size;
    if words.iter().any(|word| is_size(word) && word.0.contains(|c: char| c.is_ascii_digit())) {
        let in_words = |word: &&mut (String, Kind)| is_size(word) && word.0.chars().all(char::is_alphabetic);
        words.iter_mut().filter(in_words).for_each(|word| word.1 = Kind::Unknown);
    }
    // The beginning is the base name, with versions inside but not after it.
    let leads = |(word, kind): &&(String, Kind)| match kind {
        Kind::Unknown => word.starts_with(char::is_alphabetic),
        kind => *kind == Kind::Version,
    };
    let n_lead = words.iter().take_while(leads).count();
    let trailing = words[..n_lead].iter().rev().take_while(|word| word.1 == Kind::Version).count();
    // Only versions at the very end of the name are set apart.
    let n_base = if n_lead == words.len() { n_lead - trailing } else { n_lead };
    let (base, rest) = words.split_at(n_base);
    let join = |kinds: &[Kind]| {
        let mut found: Vec<&str> = Vec::new();
        for (word, kind) in rest {
            if kinds.contains(kind) && !(*kind == Kind::Size && found.contains(&word.as_str())) {
                found.push(word);
            }
        }
        Some(found.join("-")).filter(|text| !text.is_empty())
    };
    let (size_label, finetune, version) =
        (join(&[Kind::Size]), join(&[Kind::Finetune, Kind::Unknown]), join(&[Kind::Version]));
    let is_clear = size_label.is_some() || finetune.is_some() || version.is_some();
    let basename = base.iter().map(|word| word.0.as_str()).collect::<Vec<_>>().join("-");
    IdParts {
        name: Some(full.to_owned()),
        organization: organization.map(str::to_owned),
        basename: Some(basename).filter(|name| is_clear && !name.is_empty()),
        finetune,
        version,
        size_label,
    }
}

fn classify(i: usize, word: &str, n_params: u64) -> (String, Kind) {
    if version().is_match(word) {
        return (word.to_owned(), Kind::Version);
    }
    if number_type().is_match(word) {
        return (word.to_uppercase(), Kind::NumberType);
    }
    if i > 0 && size().is_match(word) {
        return classify_size(word, n_params);
    }
    let kind = if i > 0 && known_finetune().is_match(word) { Kind::Finetune } else { Kind::Unknown };
    (word.to_owned(), kind)
}

/// Writes a size as `1.5B`; one far from the real size is a context length.
fn classify_size(word: &str, n_params: u64) -> (String, Kind) {
    let mut word = word.replace('_', ".");
    let bytes = word.as_bytes();
    let n = bytes.len();
    // `7b1` is 7.1B.
    if n >= 2 && bytes[n - 1].is_ascii_digit() {
        word = format!("{}.{}{}", &word[..n - 2], bytes[n - 1] as char, bytes[n - 2] as char);
    }
    let n = word.len();
    if n >= 2 && word.as_bytes()[n - 2].is_ascii_digit() {
        let unit = word[n - 1..].to_uppercase();
        word.replace_range(n - 1.., &unit);
    }
    let (number, unit) = word.split_at(n - 1);
    let power = " KMBT".find(unit);
    if let (true, Ok(number), Some(power)) = (n_params > 0, number.parse::<f64>(), power) {
        let stated = number * 1000f64.powi(power as i32);
        if (stated - n_params as f64).abs() > (7 * n_params / 8) as f64 {
            return (format!("{}{}", &word[..n - 1], unit.to_lowercase()), Kind::Finetune);
        }
    }
    (word, Kind::Size)
}

/// An id as a title: `qwen3-tiny` is `Qwen3 Tiny`.
pub fn title(id: &str) -> String {
    let capital = |word: &str| {
        let is_lower = word.chars().any(char::is_lowercase) && !word.chars().any(char::is_uppercase);
        if !is_lower || not_a_title().is_match(word) {
            return word.to_owned();
        }
        let mut out = String::new();
        let mut inside = false;
        for c in word.chars() {
            match inside {
                true => out.push(c),
                false => out.extend(c.to_uppercase()),
            }
            inside = c.is_alphabetic();
        }
        out
    };
    id.trim().replace('-', " ").split_whitespace().map(capital).collect::<Vec<_>>().join(" ")
}

/// `1.2B`, `135M`; for experts `8x7B`: the size that one expert makes with what all share.
pub fn size_label(tensors: impl Iterator<Item = (String, Vec<u64>)>) -> Option<String> {
    let (mut shared, mut per_expert, mut experts, mut n_stacks) = (0u64, 0u64, 0u64, 0u64);
    for (name, shape) in tensors {
        let n: u64 = shape.iter().product();
        match shape.get(2) {
            Some(&n_expert @ 1..) if name.contains("_exps.") => {
                per_expert += n / n_expert;
                experts += n_expert;
                n_stacks += 1;
            }
            _ => shared += n,
        }
    }
    let size = rounded(shared + per_expert);
    match experts.checked_div(n_stacks) {
        _ if shared + per_expert == 0 => None,
        Some(n) => Some(format!("{n}x{size}")),
        None => Some(size),
    }
}

/// At least two digits and a unit.
fn rounded(n: u64) -> String {
    let n = n as f64;
    let (scaled, unit) = match n {
        n if n > 1e12 => (n * 1e-12, 'T'),
        n if n > 1e9 => (n * 1e-9, 'B'),
        n if n > 1e6 => (n * 1e-6, 'M'),
        n => (n * 1e-3, 'K'),
    };
    let whole = scaled.round_ties_even();
    let digits = if whole == 0.0 { 0 } else { format!("{whole:.0}").len() };
    format!("{scaled:.*}{unit}", 2usize.saturating_sub(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(id: &str, n_params: u64) -> [String; 5] {
        let p = parts(id, n_params);
        [p.organization, p.basename, p.finetune, p.version, p.size_label].map(Option::unwrap_or_default)
    }

    #[test]
    fn real_ids_are_taken_apart() {
        assert_eq!(all("Qwen/Qwen3-0.6B", 596_000_000), ["Qwen", "Qwen3", "", "", "0.6B"]);
        assert_eq!(all("Mistral-7B-Instruct-v0.3", 7_250_000_000), ["", "Mistral", "Instruct", "v0.3", "7B"]);
        assert_eq!(all("SmolLM2-135M-Instruct", 134_515_008), ["", "SmolLM2", "Instruct", "", "135M"]);
        assert_eq!(all("Phi-3-mini-4k-instruct", 3_821_079_552), ["", "Phi-3", "4k-instruct", "", "mini"]);
        assert_eq!(all("bloom-7b1-fp16", 7_000_000_000), ["", "bloom", "", "", "7.1B"]);
        assert_eq!(all("Mixtral-8x7B-v0.1", 46_700_000_000), ["", "Mixtral", "", "v0.1", "8x7B"]);
        assert_eq!(all("qwen3-tiny", 1_400_000), [""; 5].map(str::to_owned));
    }

    #[test]
    fn titles_capitalise_what_is_all_lower_case() {
        assert_eq!(title("qwen3moe-tiny"), "Qwen3Moe Tiny");
        assert_eq!(title("Mistral-7B-instruct-v0.3-4k"), "Mistral 7B Instruct v0.3 4k");
    }

    #[test]
    fn sizes_have_two_digits() {
        let label = |n: u64| size_label([("a".to_owned(), vec![n])].into_iter()).unwrap();
        assert_eq!(label(134_515_008), "135M");
        assert_eq!(label(1_235_814_432), "1.2B");
        assert_eq!(label(8_030_261_312), "8.0B");
        assert_eq!(label(70_553_706_496), "71B");
        assert_eq!(label(232_000), "232K");
        assert_eq!(label(300), "0.30K");
    }
}
