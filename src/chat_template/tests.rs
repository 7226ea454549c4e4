use std::path::PathBuf;

use qgguf_testing::fixtures;
use serde_json::Value as Json;

use super::*;

mod conversations;
mod hostile;

fn data_dir() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/chat"))
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
    assert_eq!(check_folder(&data_dir()), (3, 29));
}

/// What Jinja itself (3.1, set up as `transformers` does) makes of small templates over a few variables.
#[test]
fn small_templates_mean_what_they_mean_in_jinja() {
    let data = read_json(&data_dir().join("semantics.json"));
    let options =
        RenderOptions { kwargs: data["variables"].as_object().unwrap().clone(), ..RenderOptions::default() };
    let cases = data["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 528);
    for case in cases {
        let source = case["template"].as_str().unwrap();
        let result =
            ChatTemplate::new(source, SpecialTokens::default()).and_then(|t| t.render(&[], &options));
        match (result, case["expected"].as_str()) {
            (Ok(text), Some(expected)) => assert_eq!(text, expected, "{source}"),
            (Err(_), None) => {}
            (result, _) => panic!("{source}: got {result:?}, Jinja {case}"),
        }
    }
}

fn rendered(source: &str) -> Result<String, TemplateError> {
    let template = ChatTemplate::new(source, SpecialTokens::new("<s>", "</s>"))?;
    let options = RenderOptions { now: Some(fixed_time()), ..RenderOptions::default() };
    template.render(&[Message::new("user", "Hi")], &options)
}

#[test]
fn the_context_is_that_of_the_reference() {
    let source = "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ tools }}{{ documents }}\
                  {{ add_generation_prompt }}{{ messages }}{{ strftime_now('%d %b %Y') }}";
    let expected = "<s></s>FalseNoneNoneFalse[{'role': 'user', 'content': 'Hi'}]15 Jan 2025";
    assert_eq!(rendered(source).unwrap(), expected);
    let template = ChatTemplate::new("{{ a }}{{ bos_token }}", SpecialTokens::new("<s>", "")).unwrap();
    let kwargs = serde_json::Map::from_iter([("bos_token".into(), "!".into()), ("a".into(), 1.into())]);
    assert_eq!(template.render(&[], &RenderOptions { kwargs, ..RenderOptions::default() }).unwrap(), "1!");
    assert_eq!(
        rendered("{% generation %}\n{% set x = 1 %}a{% endgeneration %}\n{{ x is defined }}").unwrap(),
        "aFalse"
    );
}

#[test]
fn errors_are_one_line_and_name_the_line() {
    use TemplateErrorKind::{Raised, Render, Syntax};
    for (source, kind, text) in [
        (
            "a\n{{ x",
            Syntax,
            "chat template, line 2: syntax error: unexpected end of input, expected end of variable block, in `x`",
        ),
        (
            "\n\n{% if x %}",
            Syntax,
            "chat template, line 3: syntax error: unexpected end of input, expected end of block, in `%}`",
        ),
        (
            "\n{% set a.b.c = 1 %}",
            Syntax,
            "chat template, line 2: syntax error: only attributes of a namespace variable can be set",
        ),
        ("\n{{ messages[0].a.b }}", Render, "chat template, line 2: undefined value, in `.a.b`"),
        ("\n{{ nothing.a }}", Render, "chat template, line 2: undefined value, in `nothing.a`"),
        (
            "{% macro m() %}\n{{ raise_exception('No\n\x1b[31mway') }}{% endmacro %}\n{{ m() }}",
            Raised,
            "chat template, line 2: the template says: No\\n\\u{1b}[31mway",
        ),
        (
            "\n{{ 'x'|nosuch }}",
            Render,
            "chat template, line 2: unknown filter: filter nosuch is unknown, in `nosuch`",
        ),
        (
            "\n{{ 'x' is nosuch }}",
            Render,
            "chat template, line 2: unknown test: test nosuch is unknown, in `nosuch`",
        ),
        (
            "\n{{ nosuch() }}",
            Render,
            "chat template, line 2: unknown function: nosuch is unknown, in `nosuch()`",
        ),
        (
            "\n{{ 'x'.nosuch() }}",
            Render,
            "chat template, line 2: unknown method: string has no method named nosuch, in `.nosuch()`",
        ),
        (
            "\n{{ messages.append(1) }}",
            Render,
            "chat template, line 2: unknown method: sequence has no method named append, in `.append(1)`",
        ),
        (
            "\n{% include 'x' %}",
            Render,
            "chat template, line 2: template not found: tried to include non-existing template 'x', in `include 'x'`",
        ),
        (
            "\n{{ nothing|tojson }}",
            Render,
            "chat template, line 2: could not serialize to value: tojson: a value of type undefined has no JSON form, in `tojson`",
        ),
        (
            "\n{{ strftime_now('%Q') }}",
            Render,
            "chat template, line 2: invalid operation: strftime_now(\"%Q\"): ",
        ),
        (
            "\n{{ bos_token + 1 }}",
            Render,
            "chat template, line 2: invalid operation: + does not work on string and number, in `bos_token + 1`",
        ),
        (
            "\n{% for x in tools %}{% endfor %}",
            Render,
            "chat template, line 2: invalid operation: none cannot be iterated over, in `tools`",
        ),
        (
            "\n{{ messages[0].content < 1 }}",
            Render,
            "chat template, line 2: invalid operation: < does not work on string and number, in `{{ messages[0].content < 1`",
        ),
    ] {
        let error = rendered(source).expect_err(source);
        assert_eq!(error.kind(), kind, "{source}");
        assert!(error.to_string().starts_with(text), "{error}");
    }
}

#[test]
fn long_conversations_stay_within_the_budget() {
    let long: Vec<Message> = (0..2_000)
        .map(|i| Message::new(["user", "assistant"][i % 2], "Some words, and some more of them.\n"))
        .collect();
    let large = [Message::new("user", &"Ещё слова. ".repeat(400_000))];
    for entry in std::fs::read_dir(data_dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "jinja") {
            let source = std::fs::read_to_string(&path).unwrap();
            let template = ChatTemplate::new(&source, SpecialTokens::new("<s>", "</s>")).unwrap();
            for messages in [&long[..], &large] {
                let prompt = template.render(messages, &RenderOptions::default());
                let content: usize =
                    messages.iter().filter_map(|m| m.content()).map(|text| text.trim().len()).sum();
                assert!(prompt.unwrap_or_else(|e| panic!("{}: {e}", path.display())).len() > content);
            }
        }
    }
}
