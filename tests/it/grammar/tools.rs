//! Calls of tools in the notations of models.

use qgguf::answer::{Tool, ToolFormat};
use qgguf::grammar::{CallGrammar, GrammarFactory, ToolChoice};
use qgguf::sampler::Constraint;
use qgguf::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::{KJV, allowed, may_end, write};

fn tools() -> Vec<Tool> {
    vec![
        Tool {
            name: "get_weather".to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "city": {"type": "string", "maxLength": 12},
                    "unit": {"type": "string", "enum": ["C", "F"]},
                    "days": {"type": "integer", "minimum": 1, "maximum": 9},
                },
                "required": ["city", "days"],
                "additionalProperties": false,
            }),
        },
        Tool {
            name: "get".to_owned(),
            parameters: json!({"type": "object", "properties": {}, "additionalProperties": false}),
        },
    ]
}

fn calls(factory: &GrammarFactory, choice: ToolChoice, format: ToolFormat, parallel: bool) -> CallGrammar {
    CallGrammar::new(factory, &tools(), choice, format, parallel).unwrap()
}

/// The text of two calls in each notation.
const CALLS: [(ToolFormat, &str); 6] = [
    (
        ToolFormat::Hermes,
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}\n</tool_call>\n<tool_call>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_call>",
    ),
    (
        ToolFormat::QwenCoder,
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\nYork \"x\" <b>\n</parameter>\n<parameter=unit>\nF\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get>\n</function>\n</tool_call>",
    ),
    (
        ToolFormat::Llama3,
        "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\", \"days\": 3}}; {\"name\": \"get\", \"parameters\": {}}",
    ),
    (
        ToolFormat::MistralArray,
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}, \"id\": \"abcDEF123\"}, {\"name\": \"get\", \"arguments\": {}}]",
    ),
    (
        ToolFormat::MistralArgs,
        "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Rome\", \"days\": 3}[TOOL_CALLS]get[ARGS]{}",
    ),
    (
        ToolFormat::Generic,
        "{\"tool_calls\": [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}, {\"name\": \"get\", \"arguments\": {}}]}",
    ),
];

#[test]
fn calls_of_tools_in_every_notation() {
    let (tokenizer, factory) = &*KJV;
    for (format, text) in CALLS {
        let tokens = tokenizer.encode_continuation(text.as_bytes());
        let grammar = calls(factory, ToolChoice::Any, format, true);
        let mut required = grammar.required(factory).unwrap();
        assert!(takes_bytes(required.as_mut(), tokenizer, text), "{format:?}");
        assert!(may_end(required.as_mut(), tokenizer), "{format:?}");
        let mut required = grammar.required(factory).unwrap();
        assert!(!takes_bytes(required.as_mut(), tokenizer, "I cannot"), "{format:?}");
        let mut optional = grammar.optional(factory).unwrap();
        assert!(takes_bytes(optional.as_mut(), tokenizer, text), "{format:?}");
        assert!(may_end(optional.as_mut(), tokenizer), "{format:?}");
        let free = if format == ToolFormat::Generic { "{\"response\": \"No.\"}" } else { "No, thanks." };
        let mut optional = grammar.optional(factory).unwrap();
        assert!(takes_bytes(optional.as_mut(), tokenizer, free), "{format:?}");
        assert!(may_end(optional.as_mut(), tokenizer), "{format:?}");
        // Neither another tool nor a second call where they are not wanted.
        let mut named = calls(factory, ToolChoice::Named("get"), format, true).required(factory).unwrap();
        assert!(!takes_bytes(named.as_mut(), tokenizer, text), "{format:?}");
        let mut single = calls(factory, ToolChoice::Any, format, false).required(factory).unwrap();
        assert!(!takes_bytes(single.as_mut(), tokenizer, text), "{format:?}");
        assert!(!tokens.is_empty());
    }
}

/// Feeds a text by bytes or the tokens that fit: the constraint may prefer other tokens than the tokenizer.
fn takes_bytes(constraint: &mut dyn Constraint, tokenizer: &Tokenizer, text: &str) -> bool {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let fits = |id: &u32| {
            let piece = tokenizer.piece(*id, true);
            !piece.is_empty() && !tokenizer.is_eog(*id) && rest.starts_with(&piece)
        };
        let best = allowed(constraint.mask().unwrap(), tokenizer.n_vocab())
            .into_iter()
            .filter(fits)
            .max_by_key(|id| tokenizer.piece(*id, true).len());
        let Some(token) = best else { return false };
        constraint.accept(token).unwrap();
        rest = &rest[tokenizer.piece(token, true).len()..];
    }
    constraint.mask().unwrap();
    true
}

#[test]
fn random_calls_have_the_arguments_that_were_asked_for() {
    let (tokenizer, factory) = &*KJV;
    let grammar = calls(factory, ToolChoice::Named("get_weather"), ToolFormat::Hermes, false);
    let oracle = jsonschema::validator_for(&tools()[0].parameters).unwrap();
    let mut finished = 0;
    for seed in 0..20 {
        let mut constraint = grammar.required(factory).unwrap();
        let Some(text) = write(constraint.as_mut(), tokenizer, seed, 300) else { continue };
        finished += 1;
        let json = text.strip_prefix("<tool_call>\n").unwrap().strip_suffix("\n</tool_call>").unwrap();
        let call: Value = serde_json::from_str(json).unwrap();
        assert_eq!(call["name"], "get_weather");
        assert!(oracle.is_valid(&call["arguments"]), "{text}");
    }
    assert!(finished > 10, "{finished}");
}

#[test]
fn tools_that_cannot_be_called_are_named() {
    let (_, factory) = &*KJV;
    let error = |tools: &[Tool], choice| {
        CallGrammar::new(factory, tools, choice, ToolFormat::Hermes, false).unwrap_err().to_string()
    };
    assert_eq!(error(&tools(), ToolChoice::Named("x")), "tool \"x\": there is no such tool");
    let tool = |name: &str, parameters: Value| [Tool { name: name.to_owned(), parameters }];
    assert!(
        error(&tool("a b", json!({})), ToolChoice::Any)
            .starts_with("tool \"a b\": expected a name of 1 to 128 bytes")
    );
    assert_eq!(
        error(&tool("f", json!({"properties": {"x": {"not": {}}}})), ToolChoice::Any),
        "tool \"f\": JSON schema at #/properties/x/not: this keyword is not supported"
    );
    assert_eq!(
        error(&tool("f", json!({"type": "array"})), ToolChoice::Any),
        "tool \"f\": JSON schema at #/type: the arguments of a tool are an object"
    );
}
