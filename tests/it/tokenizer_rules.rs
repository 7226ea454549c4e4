//! The tokenizer on small vocabularies made here: rules one by one, and metadata that is broken or hostile.

use proptest::prelude::*;
use qgguf::tokenizer::{Detokenizer, TokenType, Tokenizer, TokenizerError, TokenizerOptions};
use qgguf_gguf::{Metadata, MetadataArray, MetadataValue};

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const BYTE: i32 = 6;

fn strings<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> MetadataValue {
    MetadataValue::Array(MetadataArray::String(texts.into_iter().collect()))
}

fn set(metadata: &mut Metadata, key: &str, value: MetadataValue) {
    metadata.set(&format!("tokenizer.ggml.{key}"), value);
}

/// Metadata with these tokens and types.
fn vocabulary(model: &str, tokens: &[(&str, i32)]) -> Metadata {
    let mut metadata = Metadata::default();
    set(&mut metadata, "model", MetadataValue::String(model.to_owned()));
    set(&mut metadata, "tokens", strings(tokens.iter().map(|(text, _)| *text)));
    let types = tokens.iter().map(|(_, token_type)| *token_type).collect();
    set(&mut metadata, "token_type", MetadataValue::Array(MetadataArray::I32(types)));
    metadata
}

/// Metadata of a byte-pair vocabulary.
fn bpe(pre: &str, tokens: &[(&str, i32)], merges: &[&str]) -> Metadata {
    let mut metadata = vocabulary("gpt2", tokens);
    set(&mut metadata, "pre", MetadataValue::String(pre.to_owned()));
    set(&mut metadata, "merges", strings(merges));
    metadata
}

/// Metadata of a SentencePiece vocabulary: `<unk>`, BOS, EOS, all bytes (ids 3 to 258), then pieces whose scores
/// fall from -1 on.
fn spm(pieces: &[(&str, i32)]) -> Metadata {
    let bytes: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
    let mut tokens = vec![("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)];
    tokens.extend(bytes.iter().map(|text| (text.as_str(), BYTE)));
    tokens.extend(pieces);
    let mut metadata = vocabulary("llama", &tokens);
    let scores =
        (0..tokens.len()).map(|id| if id < FIRST { 0.0 } else { -1.0 - (id - FIRST) as f32 }).collect();
    set(&mut metadata, "scores", MetadataValue::Array(MetadataArray::F32(scores)));
    metadata
}

/// Id of the first piece of [`spm`].
const FIRST: usize = 259;

fn load(metadata: &Metadata) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_metadata(metadata, &TokenizerOptions::default())
}

fn loaded(metadata: &Metadata) -> Tokenizer {
    load(metadata).unwrap()
}

/// The texts of the tokens of a text, joined by `|`; the same again behind a long text, before which tokenizers know
/// only the merges that they need.
fn shown(tokenizer: &Tokenizer, text: &str, parse_special: bool) -> String {
    let tokens = tokenizer.encode(text, false, parse_special);
    tokenizer.encode(&"text ".repeat(1000), false, false);
    assert_eq!(tokenizer.encode(text, false, parse_special), tokens);
    tokens.iter().map(|&id| tokenizer.token_text(id)).collect::<Vec<_>>().join("|")
}

/// The error's text.
fn error(metadata: &Metadata) -> String {
    load(metadata).unwrap_err().to_string()
}

fn plain(texts: &[&'static str]) -> Vec<(&'static str, i32)> {
    texts.iter().map(|text| (*text, NORMAL)).collect()
}

/// A vocabulary that has nothing wrong with it.
fn sound() -> Metadata {
    bpe("gpt-2", &plain(&["a", "b", "c", "ab", "<|im_end|>"]), &["a b"])
}

#[test]
fn the_sound_vocabulary_is_sound() {
    let tokenizer = loaded(&sound());
    assert_eq!(shown(&tokenizer, "abcab", false), "ab|c|ab");
    assert_eq!(tokenizer.n_vocab(), 5);
    assert!(tokenizer.warnings().is_empty());
}

#[test]
fn ids_that_are_no_tokens_are_ignored() {
    let mut metadata = sound();
    set(&mut metadata, "bos_token_id", MetadataValue::U32(5));
    set(&mut metadata, "eos_token_id", MetadataValue::I32(-1));
    set(&mut metadata, "eot_token_id", MetadataValue::U64(u64::MAX));
    set(&mut metadata, "add_bos_token", MetadataValue::Bool(true));
    set(&mut metadata, "add_eos_token", MetadataValue::Bool(true));
    let tokenizer = loaded(&metadata);
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (None, None));
    assert!(!tokenizer.add_bos() && !tokenizer.add_eos());
    assert_eq!(tokenizer.encode("a", true, true), [0]);
    // What no key names is found by its text.
    assert_eq!((tokenizer.eot(), tokenizer.eog_ids()), (Some(4), &[4][..]));
}

#[test]
fn values_of_the_wrong_type_are_errors() {
    let text = || MetadataValue::String("x".to_owned());
    let cases: [(&str, MetadataValue, &str); 7] = [
        ("model", MetadataValue::U32(1), "\"tokenizer.ggml.model\": expected string, found u32 1"),
        ("pre", MetadataValue::Bool(true), "\"tokenizer.ggml.pre\": expected string, found bool"),
        ("tokens", text(), "\"tokenizer.ggml.tokens\": expected array of string, found string"),
        ("merges", text(), "\"tokenizer.ggml.merges\": expected array of string, found string"),
        (
            "token_type",
            MetadataValue::Array(MetadataArray::U32(vec![1; 5])),
            "\"tokenizer.ggml.token_type\": expected array of i32, found array of u32",
        ),
        (
            "scores",
            strings(["1"; 5]),
            "\"tokenizer.ggml.scores\": expected array of f32, found array of string",
        ),
        (
            "bos_token_id",
            text(),
            "\"tokenizer.ggml.bos_token_id\": expected an integer in the range of u32, found string",
        ),
    ];
    for (key, value, expected) in cases {
        let mut metadata = sound();
        set(&mut metadata, key, value);
        assert_eq!(error(&metadata), format!("metadata key {expected}"));
    }
}

#[test]
fn a_vocabulary_that_contradicts_itself_is_an_error() {
    let tokens = bpe("gpt-2", &plain(&["a", "b", "a"]), &[]);
    assert_eq!(
        error(&tokens),
        "tokenizer.ggml.tokens: expected distinct texts, found \"a\" as token 0 and token 2"
    );
    let named = bpe("gpt-2", &plain(&["[EMPTY_1]", ""]), &[]);
    assert!(error(&named).contains("found \"[EMPTY_1]\" as token 0 and token 1"), "{}", error(&named));
    assert_eq!(
        error(&bpe("gpt-2", &[], &[])),
        "tokenizer.ggml.tokens: expected at least one token, found none"
    );
    for (key, value) in [
        ("scores", MetadataArray::F32(vec![0.0; 4])),
        ("scores", MetadataArray::I32(vec![0; 4])),
        ("token_type", MetadataArray::I32(vec![1; 4])),
    ] {
        let mut metadata = sound();
        set(&mut metadata, key, MetadataValue::Array(value));
        let expected =
            format!("tokenizer.ggml.{key}: expected at least 5 entries, one for each token, found 4");
        assert_eq!(error(&metadata), expected);
    }
}

#[test]
fn what_is_missing_is_named() {
    let without = |key: &str| {
        let mut metadata = Metadata::default();
        let full = sound();
        let kept = full.iter().filter(|(name, _)| *name != format!("tokenizer.ggml.{key}"));
        kept.for_each(|(name, value)| _ = metadata.set(name, value.clone()));
        metadata
    };
    for (key, expected) in [("model", "string"), ("tokens", "array of string"), ("merges", "array of string")]
    {
        let text = format!("metadata key \"tokenizer.ggml.{key}\" is missing (expected {expected})");
        assert_eq!(error(&without(key)), text);
    }
    assert!(load(&without("token_type")).is_ok());
    let tokenizer = loaded(&without("pre"));
    assert_eq!(
        tokenizer.warnings(),
        ["tokenizer.ggml.pre is missing, using \"default\"; --pre names another"]
    );
}

#[test]
fn unknown_names_list_the_known_ones() {
    let mut metadata = sound();
    set(&mut metadata, "model", MetadataValue::String("bert".to_owned()));
    assert_eq!(
        error(&metadata),
        "tokenizer.ggml.model: expected one of llama, gpt2, gemma4, hybriddna, whitespace, found \"bert\""
    );
    for name in ["", "kimi-k2", "Qwen2", "no such thing"] {
        let text = error(&bpe(name, &plain(&["a"]), &[]));
        let start =
            format!("tokenizer.ggml.pre: pre-tokenizer \"{name}\" is not known; --pre forces one of ");
        assert!(text.starts_with(&start), "{text}");
        assert!(
            text.contains("the known ones: default, llama3, ") && text.ends_with(", whitespace"),
            "{text}"
        );
    }
    let force = |name: &str| TokenizerOptions { pre_override: Some(name.to_owned()) };
    let unknown = bpe("no such thing", &plain(&["1", "2", "12"]), &["1 2"]);
    let forced = |name: &str| Tokenizer::from_metadata(&unknown, &force(name));
    assert_eq!(shown(&forced("llama-bpe").unwrap(), "12", false), "12");
    assert_eq!(shown(&forced("qwen2").unwrap(), "12", false), "1|2");
    assert!(matches!(forced("x"), Err(TokenizerError::UnknownPre { found }) if found == "x"));
    let unused = Tokenizer::from_metadata(&spm(&[]), &force("qwen2")).unwrap();
    assert_eq!(unused.warnings().len(), 1);
}

#[test]
fn merges_that_cannot_apply_do_nothing() {
    let merges = ["a ", "  ", "a  b", "é b", "x y", "zzzzzzzzzzzzzzzzzzzzz zzzz", "a b"];
    let tokenizer = loaded(&bpe("gpt-2", &plain(&["a", "b", "c", "ab"]), &merges));
    assert_eq!(shown(&tokenizer, "abxyc", false), "ab|c");
}

#[test]
fn a_merge_without_two_texts_is_named() {
    for broken in ["", " ", "ab", " b"] {
        let error = load(&bpe("gpt-2", &plain(&["a", "b", "ab"]), &["a b", broken])).unwrap_err().to_string();
        let expected = format!(
            "tokenizer.ggml.merges: expected two texts with a space between them, found {broken:?} as entry 1"
        );
        assert_eq!(error, expected);
    }
}

#[test]
fn ids_behind_the_last_token_are_told_and_not_used() {
    let mut metadata = spm(&[("a", NORMAL)]);
    let ids = [("bos", 5000), ("eos", 260), ("unknown", u32::MAX), ("padding", 5000), ("eot", 259)];
    for (kind, id) in ids {
        set(&mut metadata, &format!("{kind}_token_id"), MetadataValue::U32(id));
    }
    set(&mut metadata, "mask_token_id", MetadataValue::I32(-1));
    set(&mut metadata, "add_bos_token", MetadataValue::Bool(true));
    let tokenizer = loaded(&metadata);
    let told = |kind: &str, id: u32| {
        format!("tokenizer.ggml.{kind}_token_id is {id}, but there are only 260 tokens: it is not used")
    };
    let expected = [("bos", 5000), ("eos", 260), ("unknown", u32::MAX), ("padding", 5000)];
    assert_eq!(tokenizer.warnings(), expected.map(|(kind, id)| told(kind, id)));
    // What holds where no key says anything.
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.eot()), (Some(1), Some(2), Some(259)));
    assert_eq!(tokenizer.encode("", true, true), [1]);
}

#[test]
fn the_ends_of_generation_that_convert_leaves_to_their_texts_are_known() {
    for text in qgguf_convert::hf::END_TEXTS {
        let tokenizer = loaded(&bpe("gpt-2", &plain(&["a", "b", text]), &[]));
        assert!(tokenizer.is_eog(2), "{text}");
    }
}

#[test]
fn the_first_of_equal_merges_has_the_rank() {
    let tokens = plain(&["a", "b", "c", "ab", "bc"]);
    let tokenizer = loaded(&bpe("gpt-2", &tokens, &["a b", "b c", "a b"]));
    assert_eq!(shown(&tokenizer, "abc", false), "ab|c");
}

#[test]
fn merging_goes_through_texts_that_are_no_tokens() {
    let tokenizer = loaded(&bpe("gpt-2", &plain(&["a", "b", "c", "abc"]), &["a b", "ab c"]));
    assert_eq!(shown(&tokenizer, "abc", false), "abc");
    // A result that is no token falls apart into its bytes, and bytes without a token vanish.
    assert_eq!(shown(&tokenizer, "ab abx", false), "a|b|a|b");
}

#[test]
fn merged_texts_may_be_longer_than_every_token() {
    let merges = ["a a", "aa aa", "aaaa aaaa", "aaaaaaaa aaaaaaaa"];
    let tokenizer = loaded(&bpe("gpt-2", &plain(&["a", "aa", "aaaa", "aaaaaaaa"]), &merges));
    assert_eq!(tokenizer.encode(&"a".repeat(16), false, false), [0; 16]);
}

#[test]
fn a_whole_word_that_is_a_token_needs_no_merges() {
    let tokens = plain(&["a", "b", "c", "ab", "abc"]);
    let merged = |pre| shown(&loaded(&bpe(pre, &tokens, &["a b"])), "abc", false);
    assert_eq!((merged("llama-bpe"), merged("smaug-bpe")), ("abc".to_owned(), "ab|c".to_owned()));
    // A text that only merges name is not a token.
    let through = bpe("llama-bpe", &plain(&["a", "b"]), &["a b"]);
    assert_eq!(shown(&loaded(&through), "ab", false), "a|b");
}

#[test]
fn bos_and_eos_frame_what_asks_for_them() {
    let mut metadata = bpe("llama-bpe", &[("a", NORMAL), ("<bos>", CONTROL), ("<eos>", CONTROL)], &[]);
    set(&mut metadata, "bos_token_id", MetadataValue::U8(1));
    set(&mut metadata, "eos_token_id", MetadataValue::I64(2));
    assert_eq!(loaded(&metadata).encode("a", true, true), [1, 0]);
    set(&mut metadata, "add_eos_token", MetadataValue::Bool(true));
    assert_eq!(loaded(&metadata).encode("a", true, true), [1, 0, 2]);
    assert_eq!(loaded(&metadata).encode("a", false, true), [0]);
    // A text that begins with BOS gets another one.
    assert_eq!(loaded(&metadata).encode("<bos>a", true, true), [1, 1, 0, 2]);
    set(&mut metadata, "add_bos_token", MetadataValue::Bool(false));
    assert_eq!(loaded(&metadata).encode("a", true, true), [0, 2]);
}

#[test]
fn escaped_vocabularies_fall_back_to_bytes_and_keep_line_breaks_whole() {
    let tokens =
        [("<bos>", CONTROL), ("\u{2581}a", NORMAL), ("a", NORMAL), ("\u{2581}", NORMAL), ("\n", NORMAL)];
    let mut tokens = tokens.to_vec();
    tokens.extend([("\n\n\n", NORMAL), ("<0xC3>", BYTE), ("<0xA9>", BYTE)]);
    let mut metadata = vocabulary("gemma4", &tokens);
    set(&mut metadata, "merges", strings(["\u{2581} a", "a a"]));
    set(&mut metadata, "bos_token_id", MetadataValue::U32(0));
    set(&mut metadata, "add_bos_token", MetadataValue::Bool(false));
    let tokenizer = loaded(&metadata);
    // é has no token and keeps its neighbours apart; the pair of a's has none either.
    assert_eq!(tokenizer.encode(" aéa\n\n\n\n\naa", true, true), [0, 1, 6, 7, 2, 4, 4, 4, 4, 4]);
    assert_eq!(tokenizer.encode("\n\n\n a", true, true), [0, 5, 1]);
    assert_eq!(tokenizer.decode(&[1, 6, 7, 2, 5]), " aéa\n\n\n");
}

#[test]
fn pieces_join_by_score_and_then_from_the_left() {
    let pieces = ["a", "b", "c", "\u{2581}", "bc", "ab", "aa", "\u{2581}a"];
    let tokenizer = loaded(&spm(&plain(&pieces)));
    assert_eq!(shown(&tokenizer, "bcab", false), "\u{2581}|bc|ab");
    assert_eq!(shown(&tokenizer, "abc", false), "\u{2581}a|bc");
    assert_eq!(shown(&tokenizer, "baaa", false), "\u{2581}|b|aa|a");
    assert_eq!(shown(&tokenizer, "é", false), "\u{2581}|<0xC3>|<0xA9>");
}

#[test]
fn scores_that_are_not_numbers_do_no_harm() {
    let mut metadata = spm(&plain(&["a", "b", "ab", "ba", "\u{2581}"]));
    let scores = [f32::NAN, -0.0, f32::INFINITY, f32::NEG_INFINITY].into_iter().cycle().take(264).collect();
    set(&mut metadata, "scores", MetadataValue::Array(MetadataArray::F32(scores)));
    assert_eq!(loaded(&metadata).decode(&loaded(&metadata).encode("abbaab", false, false)), "abbaab");
}

#[test]
fn without_byte_tokens_there_is_still_the_unknown_one() {
    let metadata =
        vocabulary("llama", &[("<unk>", UNKNOWN), ("a", NORMAL), ("\u{2581}", NORMAL), ("x", NORMAL)]);
    assert_eq!(loaded(&metadata).encode("aéx", false, false), [2, 1, 0, 0, 3]);
    let metadata = vocabulary("llama", &[("a", NORMAL)]);
    let mut without_unknown = metadata.clone();
    set(&mut without_unknown, "unknown_token_id", MetadataValue::U32(7));
    assert_eq!(loaded(&without_unknown).encode("ab", false, false), [0, 0, 0, 0, 0]);
}

#[test]
fn a_space_is_added_at_the_start_and_after_special_tokens() {
    let mut metadata = spm(&[("\u{2581}", NORMAL), ("a", NORMAL), ("<x>", CONTROL), ("<y>", USER)]);
    let tokenizer = loaded(&metadata);
    assert_eq!(shown(&tokenizer, "a<x>a<y> a", true), "\u{2581}|a|<x>|\u{2581}|a|<y>|\u{2581}|\u{2581}|a");
    assert_eq!(tokenizer.decode(&tokenizer.encode("a", true, true)), "<s> a");
    assert_eq!(tokenizer.decode_bytes(&tokenizer.encode("a", true, true), true, true), b" a");
    assert_eq!(tokenizer.decode(&tokenizer.encode("a", false, true)), "a");
    set(&mut metadata, "add_space_prefix", MetadataValue::Bool(false));
    assert_eq!(shown(&loaded(&metadata), "a<x>a", true), "a|<x>|a");
}

#[test]
fn the_longest_special_token_wins_wherever_it_is() {
    let tokens =
        [("a", NORMAL), ("b", NORMAL), ("aab", CONTROL), ("ba", CONTROL), ("bb", USER), ("c", UNKNOWN)];
    let tokenizer = loaded(&bpe("gpt-2", &tokens, &[]));
    assert_eq!(shown(&tokenizer, "baab", true), "b|aab");
    assert_eq!(shown(&tokenizer, "babbac", true), "ba|b|ba|c");
    // Without parsing only user-defined tokens are special; "c" is looked up like any text.
    assert_eq!(shown(&tokenizer, "babbac", false), "b|a|bb|a|c");
    assert_eq!(shown(&tokenizer, "aab", false), "a|a|b");
}

#[test]
fn special_tokens_of_phi3_swallow_white_space_on_their_right() {
    let mut metadata = spm(&[("\u{2581}", NORMAL), ("a", NORMAL), ("<|end|>", CONTROL)]);
    let spaced = "<|end|> \n\x0b a<s> a</s> ";
    assert_eq!(shown(&loaded(&metadata), spaced, true), "<|end|>|▁|▁|<0x0A>|<0x0B>|▁|a|<s>|▁|▁|a|</s>|▁|▁");
    metadata.set("general.name", MetadataValue::String("My Phi3".to_owned()));
    assert_eq!(shown(&loaded(&metadata), spaced, true), "<|end|>|▁|a|<s>|▁|▁|a|</s>");
}

#[test]
fn generation_ends_at_more_than_eos() {
    let ends = |texts: &[&'static str]| {
        let tokenizer = loaded(&bpe("gpt-2", &plain(texts), &[]));
        texts
            .iter()
            .filter(|text| tokenizer.is_eog(tokenizer.token_id(text).unwrap()))
            .copied()
            .collect::<Vec<_>>()
    };
    assert_eq!(ends(&["a", "<|im_end|>", "<|endoftext|>", "</s>"]), ["<|im_end|>", "<|endoftext|>", "</s>"]);
    assert_eq!(ends(&["<fim_pad>", "<fim_prefix>", "<|file_sep|>", "<reponame>"]).len(), 3);
    assert_eq!(ends(&["<｜end▁of▁sentence｜>", "[e~[", "<|eom_id|>"]).len(), 3);
    assert_eq!(ends(&["<|end|>", "<|return|>", "<|call|>"]), ["<|return|>", "<|call|>"]);
    assert_eq!(ends(&["<|end|>", "<|calls|>", "<|flush|>"]), ["<|calls|>", "<|flush|>"]);
    assert_eq!(ends(&["<|end|>", "<|return|>"]), ["<|end|>", "<|return|>"]);
    assert_eq!(ends(&["</s>", "<|tool_response>"]), ["<|tool_response>"]);
}

#[test]
fn tokens_recognised_by_text_get_the_type_of_their_job() {
    let texts =
        ["<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "</s>", "<|tool_response>", "<|message|>", "a"];
    let tokenizer = loaded(&bpe("gpt-2", &plain(&texts), &[]));
    use TokenType::*;
    let types = (0..8).map(|id| tokenizer.token_type(id)).collect::<Vec<_>>();
    assert_eq!(types, [Control, UserDefined, Control, Control, Normal, Control, UserDefined, Normal]);
    assert_eq!(tokenizer.token_type(8), Undefined);
}

#[test]
fn pieces_by_type() {
    let tokens =
        [("\u{120}a\u{c3}", NORMAL), ("<x>", CONTROL), ("<u>", UNKNOWN), (" y", USER), ("<0x0A>", BYTE)];
    let mut tokens = tokens.to_vec();
    tokens.extend([("<0xG1>", BYTE), ("unused", 5), ("odd", 77), ("a日", NORMAL), ("<0x+1>", BYTE)]);
    let tokenizer = loaded(&bpe("gpt-2", &tokens, &[]));
    let piece = |id| tokenizer.piece(id, false);
    assert_eq!([piece(0), piece(1), piece(2)], [b" a\xc3".to_vec(), vec![], vec![]]);
    assert_eq!([piece(3), piece(4), piece(5)], [b" y".to_vec(), b"\n".to_vec(), vec![]]);
    assert!((6..8).chain([9, 10, u32::MAX]).all(|id| piece(id).is_empty()));
    assert_eq!(String::from_utf8(piece(8)).unwrap(), "a[UNK_BYTE_0xe697a5a日]");
    assert_eq!([tokenizer.piece(1, true), tokenizer.piece(2, true)], [b"<x>", b"<u>"]);
    assert_eq!((tokenizer.token_text(10), tokenizer.token_id("odd")), ("", Some(7)));
}

#[test]
fn spaces_before_punctuation_go_where_the_family_wants_it() {
    let alphabet: Vec<(String, i32)> = (0x21..0x7f).map(|c: u8| ((c as char).to_string(), NORMAL)).collect();
    let mut tokens: Vec<(&str, i32)> = alphabet.iter().map(|(text, kind)| (text.as_str(), *kind)).collect();
    tokens.push(("\u{120}", NORMAL));
    let decoded = |pre, text| {
        let tokenizer = loaded(&bpe(pre, &tokens, &[]));
        tokenizer.decode(&tokenizer.encode(text, false, false))
    };
    for (text, clean) in [
        ("a , b . c ! d ?", "a, b. c! d?"),
        ("a  .", "a ."),
        ("a ' b", "a'b"),
        ("a ' ' b", "a'' b"),
        ("it 's I 'm we 're they 've", "it's I'm we're they've"),
        ("don 't I 'd we 'll x 'r", "don 't I 'd we 'll x 'r"),
        ("", ""),
        (" ", " "),
    ] {
        assert_eq!((decoded("gpt-2", text), decoded("qwen2", text)), (clean.to_owned(), text.to_owned()));
    }
}

#[test]
fn streams_show_the_control_tokens_that_are_asked_for() {
    let tokenizer = loaded(&spm(&plain(&["\u{2581}a"])));
    let (end, text) = (2, tokenizer.token_text(2).to_owned());
    assert_eq!(tokenizer.token_type(end), TokenType::Control);
    let shown = tokenizer.control_ids([text.as_str(), "\u{2581}a", "no token"]);
    assert_eq!(shown, [end]);
    let mut stream = Detokenizer::showing(shown);
    assert_eq!([FIRST as u32, end, 1].map(|id| stream.push(&tokenizer, id)), [" a", text.as_str(), ""]);
}

#[test]
fn streams_hold_back_incomplete_characters() {
    let tokenizer = loaded(&spm(&plain(&["\u{2581}a"])));
    let byte = |byte: u8| u32::from(byte) + 3;
    let mut stream = Detokenizer::default();
    assert_eq!(stream.push(&tokenizer, FIRST as u32), " a");
    assert_eq!([0xF0, 0x9F, 0xA6].map(|b| stream.push(&tokenizer, byte(b))), ["", "", ""]);
    assert_eq!(stream.push(&tokenizer, byte(0x99)), "🦙");
    // A character that is broken off is one replacement character, in front of what broke it off.
    assert_eq!([0xE4, 0xB8].map(|b| stream.push(&tokenizer, byte(b))), ["", ""]);
    assert_eq!(stream.push(&tokenizer, byte(b'x')), "\u{fffd}x");
    assert_eq!([0xFF, 0xC3, 0x28].map(|b| stream.push(&tokenizer, byte(b))), ["\u{fffd}", "", "\u{fffd}("]);
    // Control tokens have no text, and do not complete anything.
    assert_eq!(
        (stream.push(&tokenizer, byte(0xC3)), stream.push(&tokenizer, 2), stream.push(&tokenizer, u32::MAX)),
        Default::default()
    );
    assert_eq!((stream.push(&tokenizer, byte(0xA9)).as_str(), stream.finish().as_str()), ("é", ""));
    stream.push(&tokenizer, byte(0xC3));
    assert_eq!((stream.finish().as_str(), stream.finish().as_str()), ("\u{fffd}", ""));
}

#[test]
fn many_special_tokens_in_a_long_text() {
    let texts: Vec<String> = (0..2000).map(|i| format!("<|special_{i}|>")).collect();
    let mut tokens: Vec<(&str, i32)> = texts.iter().map(|text| (text.as_str(), CONTROL)).collect();
    tokens.push(("<", NORMAL));
    let tokenizer = loaded(&bpe("gpt-2", &tokens, &[]));
    let text = format!("{}{}", "<".repeat(1 << 20), texts.concat());
    let ids = tokenizer.encode(&text, false, true);
    assert_eq!(ids.len(), (1 << 20) + 2000);
    assert!(ids[..1 << 20].iter().all(|id| *id == 2000) && ids[1 << 20..].iter().copied().eq(0..2000));
}

/// The tiny model's tokenizer: byte-level, so every text can be encoded.
fn tiny() -> Tokenizer {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-tiny-Q4_K_M.gguf");
    loaded(qgguf_gguf::GgufFile::open(path).unwrap().metadata())
}

#[test]
fn inputs_that_make_careless_tokenizers_quadratic() {
    let cjk: String = (0x4e00..0x9fa5).filter_map(char::from_u32).cycle().take((1 << 20) / 3).collect();
    let texts = ["Z".repeat(131_072), "\n".repeat(100_000), format!("{}x", " ".repeat(100_000)), cjk];
    for tokenizer in [tiny(), loaded(&spm(&plain(&["Z", "ZZ", "\u{2581}", "ZZZZ", "\u{2581}\u{2581}"])))] {
        for text in &texts {
            let tokens = tokenizer.encode(text, false, true);
            assert!(!tokens.is_empty() && tokenizer.decode(&tokens) == *text);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn decoding_gives_the_text_back(text in any::<String>()) {
        thread_local!(static TOKENIZERS: [Tokenizer; 2] =
            [tiny(), loaded(&spm(&plain(&["a", "\u{2581}", "\u{2581}a"])))]);
        TOKENIZERS.with(|tokenizers| {
            for tokenizer in tokenizers {
                // U+2581 is how such vocabularies write a space.
                if text.contains('\u{2581}') {
                    continue;
                }
                prop_assert_eq!(&tokenizer.decode(&tokenizer.encode(&text, false, true)), &text);
                prop_assert_eq!(&tokenizer.decode(&tokenizer.encode(&text, false, false)), &text);
            }
            Ok(())
        })?;
    }

    #[test]
    fn bytes_that_are_not_text_are_kept_or_replaced(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        thread_local!(static TOKENIZERS: [Tokenizer; 2] = [tiny(), loaded(&spm(&[]))]);
        TOKENIZERS.with(|[level, pieces]| {
            let mut replaced = String::new();
            for chunk in bytes.utf8_chunks() {
                replaced.push_str(chunk.valid());
                replaced.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
            }
            prop_assert_eq!(level.decode(&level.encode_bytes(&bytes, false, true)), replaced);
            let tokens = pieces.encode_bytes(&bytes, false, false);
            // Every byte is a token here, and spaces have become U+2581.
            let mut expected: Vec<u8> = Vec::new();
            for byte in b" ".iter().chain(&bytes).filter(|_| !bytes.is_empty()) {
                expected.extend(if *byte == b' ' { "\u{2581}".as_bytes() } else { std::slice::from_ref(byte) });
            }
            prop_assert_eq!(pieces.decode_bytes(&tokens, false, true), expected);
            Ok(())
        })?;
    }

    #[test]
    fn streams_lose_nothing(ids in prop::collection::vec(0u32..270, 0..40)) {
        thread_local!(static TOKENIZER: Tokenizer = loaded(&spm(&plain(&["a", "é", "\u{2581}a", "日本"]))));
        TOKENIZER.with(|tokenizer| {
            let mut stream = Detokenizer::default();
            let mut streamed: String = ids.iter().map(|&id| stream.push(tokenizer, id)).collect();
            streamed += &stream.finish();
            let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.piece(id, false)).collect();
            prop_assert_eq!(streamed, String::from_utf8_lossy(&bytes));
            Ok(())
        })?;
    }
}
