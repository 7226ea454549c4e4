//! Texts held to a form: whatever the logits say, what comes out keeps to it.

mod schema;
mod tools;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use qgguf::grammar::{Grammar, GrammarFactory, GrammarLimits, Lazy, LazyOptions};
use qgguf::sampler::Constraint;
use qgguf::tokenizer::{TokenType, Tokenizer, TokenizerOptions};
use qgguf_gguf::GgufFile;

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
    // No test may depend on how busy the machine is.
    let limits = GrammarLimits { time: Duration::from_secs(3_600), ..GrammarLimits::default() };
    GrammarFactory::new(tokenizer, n_vocab, limits)
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

#[test]
fn only_so_many_grammars_are_compiled_at_once() {
    let (tokenizer, _) = &*KJV;
    let limits = GrammarLimits { at_once: 0, ..GrammarLimits::default() };
    let factory = GrammarFactory::new(tokenizer.clone(), tokenizer.n_vocab(), limits);
    let error = factory.compile(&Grammar::JsonObject).err().unwrap();
    assert_eq!(error.to_string(), "too many grammars are being compiled at once");
}
