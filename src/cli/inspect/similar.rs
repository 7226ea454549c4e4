//! Names that someone may have meant.

/// ` (did you mean "a" or "b"?)`, or nothing.
pub fn hint<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = similar(wanted, names).iter().map(|name| format!("\"{name}\"")).collect();
    if quoted.is_empty() { String::new() } else { format!(" (did you mean {}?)", quoted.join(" or ")) }
}

/// Up to three names that contain the wanted one or differ from it by few letters, the closest first.
fn similar<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    /// Longer names and lists are not worth the time; real ones stay far below.
    const MAX_LEN: usize = 100;
    const MAX_NAMES: usize = 100_000;
    if wanted.is_empty() || wanted.len() > MAX_LEN {
        return Vec::new();
    }
    let wanted = wanted.to_lowercase();
    let mut found: Vec<(usize, &str)> = names
        .take(MAX_NAMES)
        .filter(|name| name.len() <= MAX_LEN)
        .filter_map(|name| {
            let lower = name.to_lowercase();
            let distance = distance(&wanted, &lower);
            (distance <= wanted.len() / 8 + 1 || lower.contains(&wanted)).then_some((distance, name))
        })
        .collect();
    // Stable, so that ties stay in the order of the file.
    found.sort_by_key(|&(distance, _)| distance);
    found.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Levenshtein's distance in bytes: insertions, deletions and replacements.
fn distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.as_bytes().iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshteins() {
        for (a, b, d) in [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2)] {
            assert_eq!((distance(a, b), distance(b, a)), (d, d), "{a} {b}");
        }
    }

    #[test]
    fn the_closest_names_are_suggested() {
        let names =
            ["token_embd.weight", "blk.0.attn_q.weight", "blk.1.attn_q.weight", "blk.0.attn_k.weight"];
        let hint = |wanted| hint(wanted, names.into_iter());
        assert_eq!(
            hint("blk.0.attn_q"),
            " (did you mean \"blk.0.attn_q.weight\"?)",
            "the distance is 7, but it is contained"
        );
        assert_eq!(hint("token_embed.weight"), " (did you mean \"token_embd.weight\"?)");
        assert_eq!(
            hint("blk.0.attn_v.weight"),
            " (did you mean \"blk.0.attn_q.weight\" or \"blk.0.attn_k.weight\" or \"blk.1.attn_q.weight\"?)"
        );
        assert_eq!(hint("lm_head"), "");
        assert_eq!(hint(""), "");
    }
}
