use std::path::PathBuf;

use serde_json::Value as Json;

use super::*;

/// Where the large fixtures are; `None` (after a visible line) where they are absent.
fn fixtures(test: &str) -> Option<PathBuf> {
    let default = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/fixtures"));
    let dir = std::env::var_os("QGGUF_FIXTURES").map_or_else(default, PathBuf::from);
    if dir.is_dir() {
        return Some(dir);
    }
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci.is_empty()),
        "{test}: no fixtures at {}",
        dir.display()
    );
    eprintln!("SKIPPED {test}: no fixtures at {}", dir.display());
    None
}

fn read_json(path: &std::path::Path) -> Json {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn messages(value: &Json) -> Vec<Message> {
    serde_json::from_value(value.clone()).unwrap()
}

fn fixed_time() -> LocalTime {
    LocalTime::new(2025, 1, 15, 12, 34, 56).unwrap()
}

/// Renders every case of a folder of templates; gives (templates, cases).
fn check_folder(dir: &std::path::Path) -> (usize, usize) {
    let (mut templates, mut cases) = (0, 0);
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "jinja") {
            continue;
        }
        templates += 1;
        let source = std::fs::read_to_string(&path).unwrap();
        for case in read_json(&path.with_extension("json"))["cases"].as_array().unwrap() {
            cases += 1;
            check_case(&source, case, &format!("{}: {}", path.display(), case["name"]));
        }
    }
    (templates, cases)
}

fn check_case(source: &str, case: &Json, what: &str) {
    let mut specials = SpecialTokens::default();
    for (name, text) in case["special_tokens"].as_object().unwrap() {
        specials = specials.with(name, text.as_str().unwrap());
    }
    let template = ChatTemplate::new(source, specials).unwrap_or_else(|e| panic!("{what}: {e}"));
    let options = RenderOptions {
        tools: case.get("tools").cloned(),
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
        kwargs: case["kwargs"].as_object().unwrap().clone(),
        now: Some(fixed_time()),
    };
    let result = template.render(&messages(&case["messages"]), &options);
    match (result, case["expected"].as_str(), case["error"].as_str()) {
        (Ok(prompt), Some(expected), None) => assert_eq!(prompt, expected, "{what}"),
        (Err(error), None, Some(expected)) => {
            assert_eq!((error.kind(), error.detail()), (TemplateErrorKind::Raised, expected), "{what}");
            assert!(error.line().is_some(), "{what}");
        }
        (result, expected, error) => {
            panic!("{what}: got {result:?}, expected {expected:?} or error {error:?}")
        }
    }
}

#[test]
fn every_fixture_renders_to_the_byte() {
    if let Some(dir) = fixtures("every_fixture_renders_to_the_byte") {
        assert_eq!(check_folder(&dir.join("chat")), (19, 161));
    }
}

#[test]
fn the_templates_kept_here_render_to_the_byte() {
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/chat"));
    assert_eq!(check_folder(&dir), (3, 29));
}
