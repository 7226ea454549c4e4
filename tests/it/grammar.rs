//! Texts held to a form: whatever the logits say, what comes out keeps to it.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use qgguf::answer::{Tool, ToolFormat};
use qgguf::grammar::{
    CallGrammar, Grammar, GrammarError, GrammarFactory, GrammarLimits, Lazy, LazyOptions, ToolChoice,
};
use qgguf::sampler::Constraint;
use qgguf::tokenizer::{TokenType, Tokenizer, TokenizerOptions};
use qgguf_gguf::GgufFile;
use serde_json::{Value, json};

use crate::fixtures::fixtures;

/// A tokenizer out of the reference data.
fn tokenizer(name: &str) -> Option<Arc<Tokenizer>> {
    let path = fixtures("grammar")?.join(format!("tokenizer/ggml-vocab-{name}.gguf"));
    let file = GgufFile::open(path).unwrap();
    Some(Arc::new(Tokenizer::from_metadata(file.metadata(), &TokenizerOptions::default()).unwrap()))
}

/// The tokenizer of the built-in model: no reference data needed.
static KJV: LazyLock<(Arc<Tokenizer>, GrammarFactory)> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-tiny-Q4_K_M.gguf");
    let file = GgufFile::open(path).unwrap();
    let tokenizer =
        Arc::new(Tokenizer::from_metadata(file.metadata(), &TokenizerOptions::default()).unwrap());
    (tokenizer.clone(), factory(tokenizer))
});

fn factory(tokenizer: Arc<Tokenizer>) -> GrammarFactory {
    let n_vocab = tokenizer.n_vocab();
    GrammarFactory::new(tokenizer, n_vocab, GrammarLimits::default())
}

fn allowed(mask: &[u32], n_vocab: usize) -> Vec<u32> {
    (0..n_vocab as u32).filter(|&id| mask[id as usize / 32] >> (id % 32) & 1 == 1).collect()
}

/// A small generator of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

/// Writes at random within a constraint, ending where it may end at times; `None` if it does not end in `max` tokens.
fn write(constraint: &mut dyn Constraint, tokenizer: &Tokenizer, seed: u64, max: usize) -> Option<String> {
    let mut random = Random(seed);
    let mut bytes = Vec::new();
    for _ in 0..max {
        let allowed = allowed(constraint.mask().unwrap(), tokenizer.n_vocab());
        let end = allowed.iter().copied().find(|&id| tokenizer.is_eog(id));
        let token = match end {
            Some(end) if allowed.len() == 1 || random.below(3) == 0 => end,
            // Short tokens more often than there are of them: texts are to come to an end.
            _ => {
                let length = |id: &u32| tokenizer.piece(*id, true).len();
                let shortest = allowed.iter().map(length).min().unwrap();
                let short: Vec<u32> = allowed.iter().copied().filter(|id| length(id) == shortest).collect();
                let from = if random.below(2) == 0 { &short } else { &allowed };
                from[random.below(from.len())]
            }
        };
        constraint.accept(token).unwrap();
        if tokenizer.is_eog(token) {
            return Some(String::from_utf8(bytes).unwrap());
        }
        tokenizer.push_piece(token, true, &mut bytes);
    }
    None
}

/// Feeds a text; false if some token of it is not allowed. Then says whether it may end there.
fn takes(constraint: &mut dyn Constraint, tokenizer: &Tokenizer, tokens: &[u32]) -> bool {
    for &token in tokens {
        if !allowed(constraint.mask().unwrap(), tokenizer.n_vocab()).contains(&token) {
            return false;
        }
        constraint.accept(token).unwrap();
    }
    constraint.mask().unwrap();
    true
}

fn may_end(constraint: &mut dyn Constraint, tokenizer: &Tokenizer) -> bool {
    allowed(constraint.mask().unwrap(), tokenizer.n_vocab()).iter().any(|&id| tokenizer.is_eog(id))
}

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
    for _ in 0..150 {
        let schema = random_schema().new_tree(&mut runner).unwrap().current();
        let oracle = jsonschema::validator_for(&schema).unwrap();
        // Conditions that no value meets are errors, as they should be.
        let Ok(_) = factory.compile(&Grammar::JsonSchema(schema.clone())) else {
            refused += 1;
            continue;
        };
        for _ in 0..4 {
            seed += 1;
            let mut constraint = factory.compile(&Grammar::JsonSchema(schema.clone())).unwrap();
            let Some(text) = write(constraint.as_mut(), tokenizer, seed, 400) else { continue };
            finished += 1;
            let value = parse(&text);
            assert!(oracle.is_valid(&value), "{text}\n{schema}");
        }
    }
    assert!(finished > 300 && refused < 50, "finished {finished}, refused {refused}");
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
fn what_is_forced_comes_in_the_models_own_tokens() {
    let Some(tokenizer) = tokenizer("qwen2") else { return };
    let factory = factory(tokenizer.clone());
    let mut constraint = factory.compile(&Grammar::Regex("The quick brown fox[.!]".to_owned())).unwrap();
    let expected = tokenizer.encode_continuation(b"The quick brown");
    for token in expected {
        assert_eq!(allowed(constraint.mask().unwrap(), tokenizer.n_vocab()), [token]);
        constraint.accept(token).unwrap();
    }
}

#[test]
fn a_text_ends_where_it_may_and_nowhere_else() {
    let (tokenizer, factory) = &*KJV;
    let mut constraint = factory.compile(&Grammar::JsonObject).unwrap();
    assert!(!may_end(constraint.as_mut(), tokenizer));
    assert!(takes(constraint.as_mut(), tokenizer, &tokenizer.encode_continuation(b"{\"a\":[1]}")));
    let rest = allowed(constraint.mask().unwrap(), tokenizer.n_vocab());
    assert_eq!(rest, tokenizer.eog_ids());
    constraint.accept(rest[0]).unwrap();
    assert_eq!(allowed(constraint.mask().unwrap(), tokenizer.n_vocab()), tokenizer.eog_ids());
    let mut constraint = factory.compile(&Grammar::JsonObject).unwrap();
    let wrong = constraint.accept(tokenizer.eog_ids()[0]).unwrap_err();
    assert!(wrong.to_string().starts_with("the constraint on the text cannot be kept: "), "{wrong}");
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

#[test]
fn hostile_expressions_end_with_an_error_or_can_be_followed() {
    let (tokenizer, factory) = &*KJV;
    let error = |regex: &str| match factory.compile(&Grammar::Regex(regex.to_owned())) {
        Ok(_) => panic!("taken: {regex}"),
        Err(error) => error.to_string(),
    };
    assert_eq!(error("a("), "regular expression: unclosed group (byte 1)");
    assert_eq!(error(r"(a)\1"), "regular expression: backreferences are not supported (byte 3)");
    let deep = error(&format!("{}a{}", "(".repeat(1000), ")".repeat(1000)));
    assert!(deep.starts_with("regular expression: exceed"), "{deep}");
    assert!(error(&"a".repeat(1 << 20)).starts_with("bytes of the regular expression: at most 262144"));
    for regex in ["(a{1000}){1000}", "((a|b)*c(a|b){300}){50}", "(.*a){40}", "[^x]{1,100000}y"] {
        let compiled = factory.compile(&Grammar::Regex(regex.to_owned()));
        let Ok(mut constraint) = compiled else { continue };
        let mut random = Random(7);
        for _ in 0..100 {
            // It may be too complex to go on with; that is an error, too.
            let Ok(mask) = constraint.mask() else { break };
            let allowed = allowed(mask, tokenizer.n_vocab());
            if constraint.accept(allowed[random.below(allowed.len())]).is_err() {
                break;
            }
        }
    }
}

#[test]
fn gbnf_speaks_of_tokens() {
    let Some(tokenizer) = tokenizer("qwen2") else { return };
    let factory = factory(tokenizer.clone());
    let special = tokenizer.token_id("<|im_start|>").unwrap();
    let grammar = format!("root ::= <|im_start|> [a-z]+ <[{special}]> !<|im_start|> \".\"");
    let mut constraint = factory.compile(&Grammar::Gbnf(grammar)).unwrap();
    let word = tokenizer.encode_continuation(b"hello");
    assert_eq!(allowed(constraint.mask().unwrap(), tokenizer.n_vocab()), [special]);
    constraint.accept(special).unwrap();
    assert!(takes(constraint.as_mut(), &tokenizer, &word));
    assert!(takes(constraint.as_mut(), &tokenizer, &[special]));
    let next = allowed(constraint.mask().unwrap(), tokenizer.n_vocab());
    assert!(!next.contains(&special) && next.contains(&word[0]));
    assert!(takes(constraint.as_mut(), &tokenizer, &word));
    assert!(takes(constraint.as_mut(), &tokenizer, &tokenizer.encode_continuation(b".")));
    assert!(may_end(constraint.as_mut(), &tokenizer));
    let error = factory.compile(&Grammar::Gbnf("root ::= <nope>".to_owned())).err().unwrap();
    assert_eq!(error.to_string(), "grammar at line 1, column 16: <nope> is not a token of this model");
}

#[test]
fn a_lazy_constraint_waits_for_its_text() {
    let (tokenizer, factory) = &*KJV;
    let object = || factory.compile(&Grammar::JsonObject).unwrap();
    let options = LazyOptions { triggers: vec!["ANSWER:".to_owned()], must_come: true, blanks: 2 };
    let mut lazy = Lazy::new(factory, &options, object()).unwrap();
    assert!(!may_end(&mut lazy, tokenizer));
    // Whatever the tokens, the trigger ends with one.
    assert!(takes(&mut lazy, tokenizer, &tokenizer.encode_continuation(b"And he said: AN ANSWER")));
    assert!(!lazy.is_armed());
    let colon = allowed(lazy.mask().unwrap(), tokenizer.n_vocab());
    let beyond =
        |id: &u32| tokenizer.piece(*id, false).starts_with(b":") && tokenizer.piece(*id, false).len() > 1;
    assert!(!colon.iter().any(beyond));
    assert!(takes(&mut lazy, tokenizer, &tokenizer.encode_continuation(b":")));
    assert!(lazy.is_armed());
    assert!(takes(&mut lazy, tokenizer, &tokenizer.encode_continuation(b" ")));
    assert!(!takes(&mut lazy, tokenizer, &tokenizer.encode_continuation(b"x")));
    assert!(takes(&mut lazy, tokenizer, &tokenizer.encode_continuation(b"{\"a\": true}")));
    assert!(may_end(&mut lazy, tokenizer));
    let free = LazyOptions { triggers: vec!["ANSWER:".to_owned()], ..LazyOptions::default() };
    let mut lazy = Lazy::new(factory, &free, object()).unwrap();
    assert!(may_end(&mut lazy, tokenizer));
}

#[test]
fn a_lazy_constraint_waits_for_its_token() {
    let Some(tokenizer) = tokenizer("llama-bpe") else { return };
    let factory = factory(tokenizer.clone());
    let trigger = "<|start_header_id|>";
    let options = LazyOptions { triggers: vec![trigger.to_owned()], ..LazyOptions::default() };
    let mut lazy = Lazy::new(&factory, &options, factory.compile(&Grammar::JsonObject).unwrap()).unwrap();
    assert!(takes(&mut lazy, &tokenizer, &tokenizer.encode_continuation(b"free text {")));
    let id = tokenizer.token_id(trigger).unwrap();
    assert_eq!(tokenizer.token_type(id), TokenType::Control);
    assert!(takes(&mut lazy, &tokenizer, &[id]));
    assert!(!takes(&mut lazy, &tokenizer, &tokenizer.encode_continuation(b"free")));
}

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

#[test]
fn only_so_many_grammars_are_compiled_at_once() {
    let (tokenizer, _) = &*KJV;
    let limits = GrammarLimits { at_once: 0, ..GrammarLimits::default() };
    let factory = GrammarFactory::new(tokenizer.clone(), tokenizer.n_vocab(), limits);
    let error = factory.compile(&Grammar::JsonObject).err().unwrap();
    assert_eq!(error.to_string(), "too many grammars are being compiled at once");
}
