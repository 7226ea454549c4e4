//! JSON Schemas: what is written is checked by a validator that others wrote, what cannot be kept to is refused by its place.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use qgguf::grammar::{Grammar, GrammarError};
use qgguf::sampler::Constraint;
use serde_json::{Value, json};

use super::{KJV, allowed, factory, may_end, takes, tokenizer, write};

fn schema(schema: Value) -> Result<Box<dyn Constraint>, GrammarError> {
    KJV.1.compile(&Grammar::JsonSchema(schema))
}

fn schema_error(of: Value) -> String {
    match schema(of.clone()) {
        Ok(_) => panic!("taken: {of}"),
        Err(error) => error.to_string(),
    }
}

/// Numbers beyond f64 are JSON, but not for this parser.
fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| {
        let exponent = regex::Regex::new("[eE][+-]?[0-9]{3,}").unwrap();
        serde_json::from_str(&exponent.replace_all(text, "e9")).unwrap_or_else(|_| panic!("{error}: {text}"))
    })
}

/// A random schema and a depth that it does not exceed.
fn random_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "null"})),
        Just(json!({"type": "boolean"})),
        (-50i64..50, 0i64..100).prop_map(|(a, n)| json!({"type": "integer", "minimum": a, "maximum": a + n})),
        Just(json!({"type": "integer", "exclusiveMinimum": 3, "multipleOf": 5, "maximum": 1000})),
        (0usize..3, 3usize..9).prop_map(|(a, b)| json!({"type": "string", "minLength": a, "maxLength": b})),
        Just(json!({"type": "string", "pattern": "^[a-c]{2,4}\\d?$"})),
        Just(json!({"enum": ["x", 1, null, true, "é\n\"\\", [1, {"a": 2}]]})),
        Just(json!({"const": {"k": ["v", 0]}})),
        Just(json!({"type": ["string", "null"], "maxLength": 5})),
        Just(json!({"$ref": "#/$defs/item"})),
        Just(json!({"type": "string", "format": "date"})),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        let object = (prop::collection::vec((inner.clone(), any::<bool>()), 0..4), 0..3usize).prop_map(
            |(parts, more)| {
                let names = ["a", "bc", "d e", "\"q\""];
                let required: Vec<&str> =
                    parts.iter().zip(names).filter(|((_, required), _)| *required).map(|(_, name)| name).collect();
                let properties: serde_json::Map<String, Value> =
                    parts.iter().zip(names).map(|((schema, _), name)| (name.to_owned(), schema.clone())).collect();
                let more = [json!(false), json!(true), json!({"type": "boolean"})][more].clone();
                json!({"type": "object", "properties": properties, "required": required, "additionalProperties": more})
            },
        );
        prop_oneof![
            3 => object,
            1 => (inner.clone(), 0usize..3, 0usize..3)
                .prop_map(|(item, a, n)| json!({"type": "array", "items": item, "minItems": a, "maxItems": a + n})),
            1 => prop::collection::vec(inner.clone(), 1..3)
                .prop_map(|items| json!({"type": "array", "prefixItems": items, "items": false})),
            1 => prop::collection::vec(inner.clone(), 1..4).prop_map(|options| json!({"anyOf": options})),
            1 => inner.prop_map(|part| json!({"allOf": [part, {"type": ["object", "array", "string", "integer"]}]})),
        ]
    })
    .prop_map(|mut schema| {
        schema["$defs"] = json!({"item": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/item"}},
            "required": ["v"],
        }});
        schema
    })
}

#[test]
fn every_finished_text_is_what_its_schema_describes() {
    let (tokenizer, factory) = &*KJV;
    let (mut finished, mut refused, mut seed) = (0, 0, 0);
    let mut runner = TestRunner::deterministic();
    for _ in 0..60 {
        let schema = random_schema().new_tree(&mut runner).unwrap().current();
        let oracle = jsonschema::validator_for(&schema).unwrap();
        // Conditions that no value meets are errors, as they should be.
        let Ok(_) = factory.compile(&Grammar::JsonSchema(schema.clone())) else {
            refused += 1;
            continue;
        };
        for _ in 0..3 {
            seed += 1;
            let mut constraint = factory.compile(&Grammar::JsonSchema(schema.clone())).unwrap();
            let Some(text) = write(constraint.as_mut(), tokenizer, seed, 400) else { continue };
            finished += 1;
            let value = parse(&text);
            assert!(oracle.is_valid(&value), "{text}\n{schema}");
        }
    }
    assert!(finished > 90 && refused < 20, "finished {finished}, refused {refused}");
}

/// Each kind of vocabulary: byte-level with and without extra tokens, SentencePiece.
#[test]
fn every_kind_of_vocabulary_writes_json() {
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "n": {"type": "integer"}, "tags": {"type": "array", "items": {"enum": ["ä", "日本", "x y"]}, "maxItems": 3}},
        "required": ["city", "n", "tags"], "additionalProperties": false,
    });
    let oracle = jsonschema::validator_for(&schema).unwrap();
    for name in ["gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "starcoder"] {
        let Some(tokenizer) = tokenizer(name) else { return };
        let factory = factory(tokenizer.clone());
        let mut constraint = factory.compile(&Grammar::JsonSchema(schema.clone())).unwrap();
        // What the model would write itself is allowed, token by token.
        let text = "{\"city\": \"São Paulo, 日本\", \"n\": -17, \"tags\": [\"ä\", \"日本\"]}";
        let tokens = tokenizer.encode_continuation(text.as_bytes());
        assert_eq!(tokenizer.decode_bytes(&tokens, false, true), text.as_bytes(), "{name}");
        assert!(takes(constraint.as_mut(), &tokenizer, &tokens), "{name}");
        assert!(may_end(constraint.as_mut(), &tokenizer), "{name}");
        for seed in 0..3 {
            let mut constraint = factory.compile(&Grammar::JsonSchema(schema.clone())).unwrap();
            if let Some(text) = write(constraint.as_mut(), &tokenizer, seed, 300) {
                assert!(oracle.is_valid(&parse(&text)), "{name}: {text}");
            }
        }
    }
}

#[test]
fn the_empty_schema_is_any_object() {
    let (tokenizer, _) = &*KJV;
    for of in [json!({}), json!({"type": "object"})] {
        let mut constraint = schema(of).unwrap();
        assert!(takes(constraint.as_mut(), tokenizer, &tokenizer.encode_continuation(b"{")));
        assert!(!takes(schema(json!({})).unwrap().as_mut(), tokenizer, &tokenizer.encode_continuation(b"[")));
    }
    assert!(takes(schema(json!(true)).unwrap().as_mut(), tokenizer, &tokenizer.encode_continuation(b"[")));
}

/// A weak model writes blanks for ever where it may.
#[test]
fn white_space_comes_to_an_end() {
    let (tokenizer, _) = &*KJV;
    let mut constraint = schema(json!({"type": "object"})).unwrap();
    assert!(takes(constraint.as_mut(), tokenizer, &tokenizer.encode_continuation(b"{")));
    let blank = |id: &u32| {
        let piece = tokenizer.piece(*id, false);
        !piece.is_empty() && piece.iter().all(u8::is_ascii_whitespace)
    };
    let mut n = 0;
    while let Some(id) = allowed(constraint.mask().unwrap(), tokenizer.n_vocab()).into_iter().find(blank) {
        constraint.accept(id).unwrap();
        n += 1;
        assert!(n < 50);
    }
    assert!(n > 0);
}

/// A name written with an escape would be another property to the grammar, and the same to whoever reads it.
#[test]
fn names_cannot_be_spelled_in_two_ways() {
    let (tokenizer, _) = &*KJV;
    let of = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let mut constraint = schema(of).unwrap();
    assert!(takes(constraint.as_mut(), tokenizer, &tokenizer.encode_continuation(b"{\"\\")));
    let next = allowed(constraint.mask().unwrap(), tokenizer.n_vocab());
    assert!(!next.is_empty() && next.iter().all(|&id| !tokenizer.piece(id, false).starts_with(b"u")));
}

#[test]
fn schemas_that_cannot_be_kept_to_are_refused_by_place() {
    for (of, expected) in [
        (
            json!({"properties": {"a/b": {"not": {}}}}),
            "JSON schema at #/properties/a~1b/not: this keyword is not supported",
        ),
        (
            json!({"items": {"uniqueItems": true}}),
            "JSON schema at #/items/uniqueItems: this keyword is not supported",
        ),
        (json!({"anyOf": [{}, {"if": {}}]}), "JSON schema at #/anyOf/1/if: this keyword is not supported"),
        (
            json!({"$ref": "http://example.com/x"}),
            "JSON schema at #/$ref: only references inside the schema (#/…) are followed",
        ),
        (json!({"$ref": "#/$defs/x"}), "JSON schema at #/$defs/x: a $ref leads here, but there is nothing"),
        (json!({"$ref": "#"}), "JSON schema at #: $ref leads back here without an end"),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}}),
            "JSON schema at #/$defs/a: $ref leads back here without an end",
        ),
        (
            json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {}}}),
            "JSON schema at #/$ref: references with escaped characters (~ or %) are not supported",
        ),
        (
            json!({"type": "string", "pattern": "(?=a)b"}),
            "JSON schema at #/pattern: pattern: look-around, including look-ahead and look-behind, is not supported (byte 0)",
        ),
        (
            json!({"type": "string", "format": "color"}),
            "JSON schema at #/format: unknown format \"color\"; known: date-time, time, date, duration, email, hostname, ipv4, ipv6, uuid, uri",
        ),
        (
            json!({"const": 9_007_199_254_740_993i64}),
            "JSON schema at #/const: 9007199254740993 is beyond the numbers that are exact (2^53)",
        ),
        (json!({"multipleOf": 0}), "JSON schema at #/multipleOf: expected a number above 0, found 0"),
        (
            json!({"maxLength": -1}),
            "JSON schema at #/maxLength: expected an integer from 0 to 1048576, found -1",
        ),
        (
            json!({"maxItems": 1u64 << 40}),
            "JSON schema at #/maxItems: expected an integer from 0 to 1048576, found 1099511627776",
        ),
        (
            json!({"properties": 3}),
            "JSON schema at #/properties: expected an object of schemas, found a number",
        ),
        (
            json!({"x-guidance": {"lenient": true}}),
            "JSON schema at #/x-guidance: options of the grammar engine are not taken from a schema",
        ),
        (json!(false), "JSON schema at #: false allows nothing"),
        (json!("string"), "JSON schema at #: expected a schema, found a text"),
        (
            json!({"properties": {"p": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}}),
            "JSON schema at #/properties/p/oneOf: the alternatives do not exclude each other by type, constant or a required property; anyOf may do",
        ),
        (json!({"type": "strin"}), "the JSON schema cannot be compiled: Invalid type: strin"),
        (
            json!({"type": "integer", "minimum": 3, "maximum": 2}),
            "the JSON schema cannot be compiled: Unsatisfiable schema: minimum (3) is greater than maximum (2)",
        ),
    ] {
        assert_eq!(schema_error(of.clone()), expected, "{of}");
    }
}

#[test]
fn keywords_without_effect_are_no_reason_to_refuse() {
    let of = json!({
        "$schema": "http://json-schema.org/draft-04/schema#", "title": "T", "description": "d", "examples": [{"not": 1}],
        "type": "object", "properties": {"not": {"type": "array", "uniqueItems": false, "items": {"type": "integer", "format": "int32x"}}},
        "additionalProperties": false, "x-order": 1, "default": {"$ref": "nowhere"},
    });
    // Formats are about strings.
    assert!(schema_error(of.clone()).contains("unknown format"));
    let mut of = of;
    of["properties"]["not"]["items"] = json!({"type": "integer"});
    assert!(schema(of).is_ok());
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({"type": "integer"}), |inner, _| json!({"type": "array", "items": inner}))
}

#[test]
fn hostile_schemas_end_with_an_error() {
    assert_eq!(schema_error(nested(100)), "levels of the JSON schema: at most 64 allowed, found 65");
    let names: Vec<String> = (0..30_000).map(|i| i.to_string()).collect();
    assert_eq!(
        schema_error(json!({"enum": names})),
        "values in the JSON schema: at most 20000 allowed, found 20001"
    );
    assert!(
        schema_error(json!({"const": "x".repeat(1 << 20)}))
            .starts_with("bytes of the JSON schema: at most 262144 allowed")
    );
    let chain: serde_json::Map<String, Value> = (0..3_000)
        .map(|i| (format!("d{i}"), json!({"items": {"$ref": format!("#/$defs/d{}", (i + 1) % 3_000)}})))
        .collect();
    let error = schema_error(json!({"$ref": "#/$defs/d0", "$defs": chain}));
    assert_eq!(error, "places that $ref leads to: at most 1000 allowed, found 1001");
    // Alternatives of alternatives, in every combination.
    let choices = json!({"anyOf": (0..20).map(|i| json!({"properties": {format!("p{i}"): {"type": "integer"}}})).collect::<Vec<_>>()});
    let error = schema_error(json!({"allOf": vec![choices; 12]}));
    assert!(error.starts_with("the JSON schema"), "{error}");
    for pattern in ["(a{1000}){1000}", "((a|b)*c(a|b){200}){50}", "(x+x+)+y"] {
        let of = json!({"type": "string", "pattern": pattern, "minLength": 900, "maxLength": 1000});
        if let Err(error) = schema(of) {
            assert!(error.to_string().starts_with("the JSON schema"), "{error}");
        }
    }
    // A thousand references, one after another, are within the limits and must not exhaust the stack.
    let chain: serde_json::Map<String, Value> = (0..900)
        .map(|i| {
            (
                format!("d{i}"),
                json!({"type": "array", "items": {"$ref": format!("#/$defs/d{}", (i + 1) % 900)}}),
            )
        })
        .collect();
    assert!(schema(json!({"$ref": "#/$defs/d0", "$defs": chain})).is_ok());
    assert!(schema(json!({"type": "array", "minItems": 1_000_000, "items": {"type": "integer"}})).is_ok());
}
