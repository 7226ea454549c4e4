//! What differs in the text of a template between Jinja and the engine.
//!
//! Jinja reads all line ends as `\n`, and keeps the line end after `{% raw %}` although it drops it after other tags.
//! The tag `{% generation %}`, with which templates mark what the assistant wrote, comes with the reference renderer.
//! Training wants the positions; a prompt only wants the text inside. It opens a scope of its own, so it is the same as
//! a `with` block without assignments, which the engine knows. No edit moves anything to another line.

use super::TemplateError;

/// Longer templates are refused, bytes: the engine counts lines and columns in 16 bits. Real ones have half of it at most.
pub(super) const MAX_SOURCE: usize = u16::MAX as usize - 1;

/// Tags with more operators are refused: the engine's compiler takes quadratic time for long chains of them. Real ones
/// have a few dozen.
const MAX_OPERATORS: usize = 128;

/// Tags with more code, string literals aside, are refused for the same reason, bytes.
const MAX_CODE: usize = 8 << 10;

/// The template as the engine is to read it.
///
/// # Errors
/// A template that is too large, or that has too large a tag.
pub(super) fn for_engine(source: &str) -> Result<String, TemplateError> {
    if source.len() > MAX_SOURCE {
        let detail =
            format!("the template has {} bytes, more than {MAX_SOURCE} are not accepted", source.len());
        return Err(TemplateError::limit(None, detail));
    }
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let (mut copied, mut at) = (0, 0);
    while let Some(open) = source[at..].find('{').map(|found| at + found) {
        at = match source.as_bytes().get(open + 1) {
            Some(b'#') => after(&source, open + 2, "#}"),
            Some(b'{') => end_of_code(&source, open + 2, "}}")?,
            Some(b'%') => {
                let name = tag_name(&source, open + 2);
                let tag = &source[name.clone()];
                let end = end_of_code(&source, name.end, "%}")?;
                let (replacement, until) = match tag {
                    "generation" => ("with", name.end),
                    "endgeneration" => ("endwith", name.end),
                    "raw" if source[name.end..end].trim_start() == "%}" => ("raw +%}", end),
                    _ => (tag, name.end),
                };
                out.extend([&source[copied..name.start], replacement]);
                copied = until;
                if tag == "raw" { end_of_raw(&source, end) } else { end }
            }
            _ => open + 1,
        };
    }
    Ok(out + &source[copied..])
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
fn end_of_code(source: &str, from: usize, mark: &str) -> Result<usize, TemplateError> {
    let bytes = source.as_bytes();
    let mut quote = None;
    let (mut code, mut operators) = (0, 0);
    let mut i = from;
    while i < bytes.len() {
        match (quote, bytes[i]) {
            (Some(_), b'\\') => i += 1,
            (Some(open), c) if c == open => quote = None,
            (None, c @ (b'"' | b'\'')) => quote = Some(c),
            (None, _) if bytes[i..].starts_with(mark.as_bytes()) => return Ok(i + mark.len()),
            (None, c) => {
                code += 1;
                operators += usize::from(b"+-*/%~<>=".contains(&c));
            }
            _ => {}
        }
        if code > MAX_CODE || operators > MAX_OPERATORS {
            let line = 1 + source[..from].matches('\n').count();
            let detail =
                format!("a tag with more than {MAX_OPERATORS} operators or {MAX_CODE} bytes of code");
            return Err(TemplateError::limit(Some(line), detail));
        }
        i += 1;
    }
    Ok(source.len())
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
            ("{% generation %}a{% endgeneration %}", "{% with %}a{% endwith %}"),
            ("{%- generation -%}a{%+endgeneration+%}", "{%- with -%}a{%+endwith+%}"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            ("{{ '}} {% generation %}' }}", "{{ '}} {% generation %}' }}"),
            ("{# {% generation %} #}", "{# {% generation %} #}"),
            (
                "{% raw %}{% generation %}{% endraw %}{% generation %}",
                "{% raw +%}{% generation %}{% endraw %}{% with %}",
            ),
            ("{% set x = '%}' %}generation", "{% set x = '%}' %}generation"),
            ("{% generation_x %}", "{% generation_x %}"),
            ("{% set a = 'it\\'s {% generation %}' %}", "{% set a = 'it\\'s {% generation %}' %}"),
            ("{% raw %}\n{% endraw %}{%- raw -%} a", "{% raw +%}\n{% endraw %}{%- raw -%} a"),
            ("a\r\nb\rc\n", "a\nb\nc\n"),
            ("{", "{"),
            ("{%", "{%"),
            ("{% raw", "{% raw"),
            ("{# é", "{# é"),
            ("{{ 'é\\", "{{ 'é\\"),
        ] {
            assert_eq!(for_engine(source).unwrap(), expected);
        }
    }
}
