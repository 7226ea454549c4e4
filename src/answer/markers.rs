//! Markers in text that comes in pieces.

/// Whether a text begins with a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    Yes,
    No,
    /// The text is too short to tell.
    Unclear,
}

pub(super) fn begins(text: &str, marker: &str) -> Begins {
    if text.starts_with(marker) {
        Begins::Yes
    } else if marker.starts_with(text) {
        Begins::Unclear
    } else {
        Begins::No
    }
}

/// Where the first of the markers begins, or may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The marker begins here.
    At(usize),
    /// From here on more text is needed to tell; the text's length if all of it is clear.
    MaybeAt(usize),
}

pub(super) fn find(text: &str, markers: &[&str]) -> Found {
    for (at, _) in text.char_indices() {
        let rest = &text[at..];
        for marker in markers {
            match begins(rest, marker) {
                Begins::Yes => return Found::At(at),
                Begins::Unclear => return Found::MaybeAt(at),
                Begins::No => {}
            }
        }
    }
    Found::MaybeAt(text.len())
}

/// Length of the white space at the beginning.
pub(super) fn blank_prefix(text: &str) -> usize {
    text.len() - text.trim_start().len()
}
