//! The house: lengths of files, rooms of `unsafe`, directions of arrows, and paths that the documentation names.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const MAX_LINES: usize = 600;
/// Longer files, each for a reason.
const LONG: [(&str, &str); 2] = [
    ("tests/it/quantize.rs", "one command's cases, read from top to bottom"),
    ("tests/it/convert/mod.rs", "one command's cases, read from top to bottom"),
];

/// Where `unsafe` lives.
const UNSAFE: [&str; 17] = [
    "gguf/src/blocks/mod.rs",
    "gguf/src/file.rs",
    "gguf/src/shard.rs",
    "kernels/src/attention/cache.rs",
    "kernels/src/attention/mod.rs",
    "kernels/src/compute.rs",
    "kernels/src/isa/",
    "kernels/src/layout.rs",
    "kernels/src/lib.rs",
    "kernels/src/limits.rs",
    "kernels/src/matmul.rs",
    "kernels/src/quantize.rs",
    "kernels/src/simd.rs",
    "kernels/src/table.rs",
    "kernels/src/team.rs",
    "kernels/src/vocabulary.rs",
    "tests/allocations.rs",
];

/// Rooms, and what their files must not name.
const ARROWS: [(&str, &[&str]); 9] = [
    ("gguf/src", &["qgguf_kernels", "qgguf_convert", "qgguf::"]),
    ("kernels/src", &["qgguf_convert", "qgguf::"]),
    ("convert/src", &["use qgguf::"]),
    ("src/architectures", &["crate::engine", "crate::session", "crate::server", "crate::cli", "Isa"]),
    ("src/tokenizer", &["crate::engine", "crate::model", "crate::architectures", "qgguf_kernels"]),
    ("src/sampler", &["crate::engine", "crate::model", "crate::architectures", "crate::server"]),
    ("src/engine", &["crate::server", "crate::cli", "crate::session", "axum", "tokio", "http"]),
    ("src/answer", &["crate::engine", "crate::server", "crate::model", "qgguf_kernels"]),
    ("src/server", &["qgguf_kernels::Compute", "crate::architectures::Graph", "crate::cli"]),
];

fn sources(under: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(ROOT).join(under)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

fn all_sources() -> Vec<PathBuf> {
    ["gguf", "kernels", "convert", "testing", "src", "tests", "benches"]
        .into_iter()
        .flat_map(sources)
        .collect()
}

fn name(path: &Path) -> String {
    path.strip_prefix(ROOT).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// The lines of a file that are code, without what follows `//`.
fn code(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn files_are_short_enough_to_be_read_in_a_sitting() {
    for path in all_sources() {
        let name = name(&path);
        let n_lines = fs::read_to_string(&path).unwrap().lines().count();
        let excused = LONG.iter().any(|(long, _)| *long == name);
        assert!(n_lines <= MAX_LINES || excused, "{name}: {n_lines} lines");
        assert!(n_lines > MAX_LINES || !excused, "{name} is short now: strike it from the list");
    }
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    for path in all_sources() {
        let name = name(&path);
        let is_unsafe = code(&path).iter().any(|line| {
            ["unsafe {", "unsafe fn ", "unsafe impl ", "unsafe extern "]
                .iter()
                .any(|form| line.contains(form))
        });
        let in_room = UNSAFE.iter().any(|room| name.starts_with(room));
        assert!(!is_unsafe || in_room || name == "tests/it/tidy.rs", "unsafe in {name}");
    }
}

#[test]
fn nothing_is_left_to_do() {
    let forms = [["todo", "!("], ["unimplemented", "!("], ["dbg", "!("]].map(|parts| parts.concat());
    for path in all_sources() {
        let left = code(&path).iter().position(|line| forms.iter().any(|form| line.contains(form)));
        assert_eq!(left, None, "{}", name(&path));
    }
}

#[test]
fn arrows_run_one_way() {
    for (room, forbidden) in ARROWS {
        for path in sources(room) {
            let uses = code(&path);
            let uses =
                uses.iter().filter(|line| line.trim_start().starts_with("use ") || line.contains("::"));
            for line in uses {
                let named = forbidden.iter().find(|name| has_word(line, name));
                assert_eq!(named, None, "{}: {line}", name(&path));
            }
        }
    }
}

/// True if `line` has `word` and not as a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let before = is_part(line[..at].chars().next_back());
        let after = !word.ends_with(':') && is_part(line[at + word.len()..].chars().next());
        !before && !after
    })
}

#[test]
fn paths_in_the_documentation_exist() {
    for document in ["docs/architecture.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(Path::new(ROOT).join(document)).unwrap();
        let quoted = text.split('`').skip(1).step_by(2);
        let paths =
            quoted.filter(|path| path.ends_with(".rs") && path.contains('/') && !path.contains("NAME"));
        for path in paths {
            assert!(Path::new(ROOT).join(path).is_file(), "{document} names {path}");
        }
    }
}
