//! `{% generation %}`: the tag with which templates mark what the assistant wrote.
//!
//! Training wants the positions; a prompt only wants the text inside. The tag opens a scope of its own, so it is the
//! same as a `with` block without assignments, which the template engine knows. Words are replaced by words of the
//! same length in bytes, so lines and columns in errors stay those of the file.

/// The template with every `generation` block turned into a `with` block.
pub(super) fn as_with_blocks(source: &str) -> String {
    let mut out = source.to_owned();
    let mut rest = 0;
    while let Some(open) = source[rest..].find('{').map(|at| rest + at) {
        rest = match source.as_bytes().get(open + 1) {
            Some(b'#') => after(source, open + 2, "#}"),
            Some(b'{') => end_of_code(source, open + 2, "}}"),
            Some(b'%') => {
                let name = tag_name(source, open + 2);
                let tag = &source[name.clone()];
                let end = end_of_code(source, name.end, "%}");
                match tag {
                    "generation" => out.replace_range(name, "with      "),
                    "endgeneration" => out.replace_range(name, "endwith      "),
                    _ => {}
                }
                if tag == "raw" { end_of_raw(source, end) } else { end }
            }
            _ => open + 1,
        };
    }
    out
}

/// Where the text after the next `mark` begins.
fn after(source: &str, from: usize, mark: &str) -> usize {
    source[from..].find(mark).map_or(source.len(), |at| from + at + mark.len())
}

/// The range of a tag's first word.
fn tag_name(source: &str, from: usize) -> std::ops::Range<usize> {
    let rest = &source[from..];
    let start = from + rest.len() - rest.trim_start_matches(['-', '+']).trim_start().len();
    let len =
        source[start..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(source.len() - start);
    start..start + len
}

/// Where the code that ends with `mark` ends; marks inside string literals do not count.
fn end_of_code(source: &str, from: usize, mark: &str) -> usize {
    let bytes = source.as_bytes();
    let mut quote = None;
    let mut i = from;
    while i < bytes.len() {
        match (quote, bytes[i]) {
            (Some(_), b'\\') => i += 1,
            (Some(open), c) if c == open => quote = None,
            (None, c @ (b'"' | b'\'')) => quote = Some(c),
            (None, _) if bytes[i..].starts_with(mark.as_bytes()) => return i + mark.len(),
            _ => {}
        }
        i += 1;
    }
    source.len()
}

/// Where the `endraw` tag begins that ends a raw block.
fn end_of_raw(source: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(open) = source[at..].find("{%").map(|found| at + found) {
        if &source[tag_name(source, open + 2)] == "endraw" {
            return open;
        }
        at = open + 2;
    }
    source.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tags_change() {
        for (source, expected) in [
            ("{% generation %}a{% endgeneration %}", "{% with       %}a{% endwith       %}"),
            ("{%- generation -%}a{%+endgeneration+%}", "{%- with       -%}a{%+endwith      +%}"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            ("{{ '}} {% generation %}' }}", "{{ '}} {% generation %}' }}"),
            ("{# {% generation %} #}", "{# {% generation %} #}"),
            (
                "{% raw %}{% generation %}{% endraw %}{% generation %}",
                "{% raw %}{% generation %}{% endraw %}{% with       %}",
            ),
            ("{% set x = '%}' %}generation", "{% set x = '%}' %}generation"),
            ("{% generation_x %}", "{% generation_x %}"),
            ("{% set a = 'it\\'s {% generation %}' %}", "{% set a = 'it\\'s {% generation %}' %}"),
            ("{", "{"),
            ("{%", "{%"),
            ("{% raw", "{% raw"),
            ("{# é", "{# é"),
            ("{{ 'é\\", "{{ 'é\\"),
        ] {
            assert_eq!(as_with_blocks(source), expected);
        }
    }
}
