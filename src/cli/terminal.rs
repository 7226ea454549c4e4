//! What goes to the terminal besides results: notes on stderr, and text from files made harmless.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Prints a line on stderr; a closed stderr is no reason to fail.
macro_rules! note {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($arg)*);
    }};
}
pub(crate) use note;

/// `text` with everything escaped that could move the cursor, change colours or reorder what is read.
///
/// For text out of files (names, token pieces, error texts that quote them); line breaks count too, since a
/// table row or an error is one line.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            c if is_unsafe(c) => _ = write!(out, "\\u{{{:x}}}", c as u32),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Control characters, and the ones that change the direction of text.
pub fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A token's bytes for a table: quoted, escaped, with `\x..` for what is not UTF-8.
pub fn quote(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        out += &escape(&chunk.valid().replace('\\', "\\\\").replace('"', "\\\""));
        chunk.invalid().iter().for_each(|byte| _ = write!(out, "\\x{byte:02x}"));
    }
    out.push('"');
    out
}

/// A number of bytes as people read it: `3.2 MiB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..0x10_0000 => format!("{:.1} KiB", n as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", n as f64 / 1048576.0),
        _ => format!("{:.2} GiB", n as f64 / 1073741824.0),
    }
}

/// A count as people read it: `5.0 M`.
pub fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1} k", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(escape("a\x1b[31mb\r\n\u{9b}\u{202e}"), "a\\u{1b}[31mb\\r\\n\\u{9b}\\u{202e}");
        assert!(matches!(escape("größe 日本"), Cow::Borrowed(_)));
    }

    #[test]
    fn pieces_that_are_not_utf8_are_shown_as_bytes() {
        assert_eq!(quote(b" a\"\\\n\xe2\x82"), "\" a\\\"\\\\\\n\\xe2\\x82\"");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes(3_355_040), "3.2 MiB");
        assert_eq!(count(4_980_000), "5.0 M");
    }
}
