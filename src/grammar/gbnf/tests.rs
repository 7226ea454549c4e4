//! Grammars against a naive matcher, and what is said about wrong ones.

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use proptest::prelude::*;
use toktrie::ApproximateTokEnv;

use super::{lexemes, naive, parse, to_lark};

fn no_token(_: &str) -> Option<u32> {
    None
}

/// A matcher whose tokens are bytes.
fn matcher(text: &str) -> Matcher {
    let mut factory = ParserFactory::new_simple(&ApproximateTokEnv::single_byte_env()).unwrap();
    factory.quiet();
    let lark = to_lark(text, &no_token).unwrap();
    let matcher = Matcher::new(factory.create_parser(TopLevelGrammar::from_lark(lark.clone())));
    assert!(!matcher.is_error(), "{:?}\n{text}\n{lark}", matcher.get_error());
    matcher
}

fn accepts(matcher: &Matcher, text: &str) -> bool {
    let mut matcher = matcher.deep_clone();
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    let taken = matcher.try_consume_tokens(&tokens).unwrap();
    taken == tokens.len() && (matcher.is_stopped() || matcher.is_accepting().unwrap())
}

fn check(grammar: &str, good: &[&str], bad: &[&str]) {
    let matcher = matcher(grammar);
    let rules = parse::parse(grammar, &no_token).unwrap();
    for (texts, expected) in [(good, true), (bad, false)] {
        for text in texts {
            assert_eq!(naive::accepts(&rules, text), expected, "naive: {text:?} in {grammar}");
            assert_eq!(accepts(&matcher, text), expected, "{text:?} in {grammar}");
        }
    }
}

#[test]
fn literals_classes_and_escapes() {
    check(
        r#"root ::= "a\x41\u00e9\U0001F600\t\"\\" [^a-c\]\n] [x-] ."#,
        &["aAé😀\t\"\\d-ü", "aAé😀\t\"\\-x\n"],
        &["aAé😀\t\"\\a-ü", "aAé😀\t\"\\]-ü", "aAé😀\t\"\\d-", "aA"],
    );
}

#[test]
fn repetitions() {
    check(
        "root ::= \"ab\"{2} [c]{1,} \"d\"{0,2} \"e\"? (\"f\" \"g\")+ \"h\"*",
        &["ababcfg", "ababccddefgfghh"],
        &["abcfg", "ababfg", "ababcdddfg", "ababcfgf"],
    );
    check("root ::= \"a\"{,2}", &["", "a", "aa"], &["aaa"]);
}

#[test]
fn rules_go_on_in_parentheses_and_after_bars() {
    let grammar = "# first\nroot ::= ( # second\n  x |\n  y\n) \"!\"\n\nx ::= \"x\" |\n  \"X\"\ny-1 ::= \"z\"\ny ::= y-1\n";
    check(grammar, &["x!", "X!", "z!"], &["y!", "x", "!"]);
}

#[test]
fn recursion() {
    check("root ::= \"(\" root \")\" root | \"\"", &["", "()", "(())()", "()()"], &["(", ")", "(()"]);
    check("root ::= root \"+\" n | n\nn ::= [0-9]+", &["1", "12+3+45"], &["", "1+", "+1"]);
    check("root ::= \"a\" x | \"b\"\nx ::= \"\" | root", &["a", "ab", "aaab", "b"], &["", "ba"]);
}

/// The longest lexeme is not always the right one.
#[test]
fn a_longer_match_does_not_take_what_follows() {
    check(
        "root ::= \"ab\" \"c\" root | \"a\" \"bcd\" root | \".\"",
        &["abc.", "abcd.", "abcdabc."],
        &["ab.", "abcd"],
    );
    check("root ::= [a-z]+ \"x\" root? | \"1\"", &["ax", "axx", "axyx1", "1"], &["x", "a", "ax2"]);
    check("root ::= [a-b]* \"b\" (\"(\" root \")\")?", &["b", "abb", "ab(b)"], &["a", "b()"]);
}

/// The grammar of JSON that llama.cpp has, in own words.
const JSON: &str = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"#;

#[test]
fn json() {
    let good = ["{}", "{ }", "{\"a\": [1, -2.5e3, true, {\"b\":null}],\n  \"c\":\"\\u00e9\"} "];
    check(JSON, &good, &["[]", "{\"a\"}", "{\"a\":01}", "{\"a\":1,}", "{  }"]);
}

/// Strings stay one lexeme: otherwise a mask would walk over every character of every token.
#[test]
fn strings_of_json_are_one_lexeme() {
    let plan = lexemes::plan(&parse::parse(JSON, &no_token).unwrap()).unwrap();
    assert!(
        plan.lexemes.iter().any(|lexeme| lexeme.regex.contains("\\x{22}") && lexeme.regex.contains("{4,4}"))
    );
    assert!(plan.lexemes.len() < 30, "{}", plan.lexemes.len());
}

#[test]
fn errors_name_the_place() {
    let error = |grammar: &str| to_lark(grammar, &no_token).unwrap_err().to_string();
    assert_eq!(error("root = \"a\""), "grammar at line 1, column 6: expected ::=, found '='");
    assert_eq!(error("root ::= x\n"), "grammar: the rule \"x\" is used, but not defined");
    assert_eq!(error("a ::= \"x\""), "grammar: there is no rule \"root\"");
    assert_eq!(error(""), "grammar: there is no rule \"root\"");
    assert_eq!(error("root ::= \"a"), "grammar at line 1, column 12: expected '\"', found the end");
    assert_eq!(error("root ::= (\"a\"\n"), "grammar at line 2, column 1: expected ')', found the end");
    assert_eq!(error("root ::= *"), "grammar at line 1, column 10: expected something to repeat, found '*'");
    assert_eq!(
        error("root ::= [b-a]"),
        "grammar at line 1, column 14: a range of characters that ends before it begins"
    );
    assert_eq!(error("root ::= []"), "grammar at line 1, column 12: a class without any character");
    assert_eq!(
        error("root ::= \"\\q\""),
        "grammar at line 1, column 12: expected one of t r n x u U \\ \" [ ] after a backslash, found 'q'"
    );
    assert_eq!(error("root ::= \"\\uD800\""), "grammar at line 1, column 17: U+D800 is not a character");
    assert_eq!(
        error("root ::= \"a\"{99999}"),
        "grammar at line 1, column 19: at most 2000 repetitions, found 99999"
    );
    assert_eq!(
        error("root ::= <think>"),
        "grammar at line 1, column 17: <think> is not a token of this model"
    );
    assert_eq!(
        error("root ::= \"a\"\nroot ::= \"b\""),
        "grammar at line 2, column 5: the rule \"root\" is defined twice"
    );
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(1000), ")".repeat(1000));
    assert_eq!(error(&deep), "grammar at line 1, column 75: more than 64 parentheses inside each other");
}

#[test]
fn what_would_grow_without_end_is_refused() {
    let mut doubling = String::from("root ::= a0 a0\n");
    for i in 0..60 {
        doubling += &format!("a{i} ::= a{} a{}\n", i + 1, i + 1);
    }
    doubling += "a60 ::= \"x\"\n";
    let error = to_lark(&doubling, &no_token).unwrap_err().to_string();
    assert!(
        error.starts_with("symbols of the grammar with its rules written out: at most 10000 allowed"),
        "{error}"
    );
    let mut long = String::from("root ::= a0\n");
    for i in 0..1_500 {
        long += &format!("a{i} ::= \"x\" a{}?\n", i + 1);
    }
    long += "a1500 ::= \"x\"\n";
    let error = to_lark(&long, &no_token).unwrap_err().to_string();
    assert!(error.contains("at most"), "{error}");
}

/// A part of a grammar over a, b and c in GBNF, with the rules `root`, `r1` and `r2`.
fn part() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => Just("\"a\"".to_owned()),
        2 => Just("\"bc\"".to_owned()),
        2 => Just("[ab]".to_owned()),
        1 => Just("[^a]".to_owned()),
        1 => Just("\"\"".to_owned()),
        2 => Just("r1".to_owned()),
        2 => Just("r2".to_owned()),
        1 => Just("root".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let repeat = prop::sample::select(vec!["*", "+", "?", "{2}", "{1,2}", "{2,}", "{0,3}"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|items| format!("({})", items.join(" "))),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|items| format!("({})", items.join(" | "))),
            (inner, repeat).prop_map(|(item, repeat)| format!("({item}){repeat}")),
        ]
    })
}

/// Every text over a, b and c of up to this many characters.
fn texts(max: usize) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut from = 0;
    for _ in 0..max {
        let to = texts.len();
        for i in from..to {
            texts.extend(["a", "b", "c"].map(|c| format!("{}{c}", texts[i])));
        }
        from = to;
    }
    texts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_grammars_accept_what_the_naive_matcher_accepts(root in part(), r1 in part(), r2 in part()) {
        let grammar = format!("root ::= {root}\nr1 ::= {r1}\nr2 ::= {r2} | \"c\"\n");
        let rules = parse::parse(&grammar, &no_token).unwrap();
        let texts = texts(5);
        let mut expected = texts.iter().map(|text| (text, naive::accepts(&rules, text)));
        let any = expected.clone().any(|(_, accepted)| accepted);
        // A grammar that accepts nothing is an error of the engine; what only longer texts match says little.
        prop_assume!(any);
        let matcher = matcher(&grammar);
        let wrong = expected.find(|&(text, accepted)| accepts(&matcher, text) != accepted);
        prop_assert_eq!(wrong, None, "{}", grammar);
    }
}
