use proptest::prelude::*;
use serde_json::json;

use super::*;

/// An answer and what it means: reasoning, content, names and arguments of calls.
type Sample = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

fn tools() -> Vec<Tool> {
    let tool = |name: &str, parameters| Tool { name: name.to_owned(), parameters };
    vec![
        tool("get_weather", json!({"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}})),
        tool("add", json!({"properties": {"a": {"type": "number"}, "b": {"type": "number"}}})),
        tool("write", json!({"properties": {"path": {"type": "string"}, "text": {"type": "string"}}})),
    ]
}

fn options(format: Option<ToolFormat>, opened: bool) -> AnswerOptions {
    let reasoning = ReasoningStyle { open: "<think>".into(), close: "</think>".into(), opened };
    AnswerOptions { reasoning: Some(reasoning), format, tools: tools(), parallel: true, seed: Some(1) }
}

/// What a client that adds up the deltas has in the end: reasoning, content, and calls (complete or not).
fn added_up(deltas: Vec<Delta>) -> (String, String, Vec<ToolCall>) {
    let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::<ToolCall>::new());
    for delta in deltas {
        match delta {
            Delta::Reasoning(text) => reasoning += &text,
            Delta::Content(text) => content += &text,
            Delta::ToolCall { index, id, name } => {
                assert_eq!(index, calls.len());
                calls.push(ToolCall { index, id, name, arguments: String::new() });
            }
            Delta::ToolArguments { index, text } => {
                assert_eq!(index + 1, calls.len());
                calls[index].arguments += &text;
            }
        }
    }
    (reasoning, content, calls)
}

/// Parses pieces; what the deltas add up to has to be the message.
fn parse<'a>(options: AnswerOptions, pieces: impl IntoIterator<Item = &'a str>) -> Message {
    let mut parser = AnswerParser::new(options);
    let mut deltas = Vec::new();
    for piece in pieces {
        deltas.extend(parser.push(piece));
    }
    let (last, message) = parser.finish();
    deltas.extend(last);
    let (reasoning, content, mut calls) = added_up(deltas);
    calls.retain(|call| serde_json::from_str::<serde_json::Map<_, _>>(&call.arguments).is_ok());
    assert_eq!(message, Message { reasoning, content, tool_calls: calls });
    message
}

fn check(format: Option<ToolFormat>, opened: bool, samples: &[Sample]) {
    for (text, reasoning, content, calls) in samples {
        let message = parse(options(format, opened), [*text]);
        let found: Vec<_> =
            message.tool_calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
        assert_eq!((&*message.reasoning, &*message.content), (*reasoning, *content), "{text}");
        assert_eq!(found, *calls, "{text}");
        let characters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
        assert_eq!(parse(options(format, opened), characters), message, "{text}, character by character");
    }
}

const PLAIN: &[Sample] = &[
    ("", "", "", &[]),
    ("Hello", "", "Hello", &[]),
    ("  Hello \n", "", "  Hello \n", &[]),
    ("<think>\nHm.\n\nYes.\n</think>\n\nHello\n", "Hm.\n\nYes.", "Hello\n", &[]),
    ("\n<think></think>Hello", "", "Hello", &[]),
    ("<think>Hm, 1 < 2 </thin", "Hm, 1 < 2 </thin", "", &[]),
    ("<think>Hm. ", "Hm.", "", &[]),
    ("<thin", "", "<thin", &[]),
    ("<thing>", "", "<thing>", &[]),
    ("A <think> in it</think>", "", "A <think> in it</think>", &[]),
    ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>", &[]),
    ("<tool_call>{\"name\": \"add\"}</tool_call>", "", "<tool_call>{\"name\": \"add\"}</tool_call>", &[]),
];

const OPENED: &[Sample] = &[
    ("", "", "", &[]),
    ("Hm.\n</think>\n\nHello", "Hm.", "Hello", &[]),
    ("Hm.", "Hm.", "", &[]),
    (" \n", "", "", &[]),
    ("\n</think>Hello", "", "Hello", &[]),
    ("<think>\nHm.</think>Hello", "Hm.", "Hello", &[]),
    ("<th", "<th", "", &[]),
    ("a <think> b</think>c", "a <think> b", "c", &[]),
];

const HERMES: &[Sample] = &[
    ("Just text.\n", "", "Just text.\n", &[]),
    (
        "<think>\nI need it.\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
        "I need it.",
        "",
        &[("get_weather", "{\"city\": \"Paris\"}")],
    ),
    (
        "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2, {\"c\": null}]}}\n</tool_call>\n\
         <tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>\n",
        "",
        "Let me see.",
        &[("add", "{\"a\": 1, \"b\": [2, {\"c\": null}]}"), ("add", "{}")],
    ),
    // Keys in another order, arguments as text, none at all, other keys, line ends in strings.
    (
        "<tool_call>{\"arguments\": {\"a\":1}, \"x\": 12, \"name\": \"add\"}</tool_call>after",
        "",
        "after",
        &[("add", "{\"a\":1}")],
    ),
    (
        "<tool_call>{\"name\":\"add\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>",
        "",
        "",
        &[("add", "{\"a\": 1}")],
    ),
    ("<tool_call>{\"name\":\"add\",\"arguments\":null}</tool_call>", "", "", &[("add", "{}")]),
    ("<tool_call>{\"name\":\"add\"}</tool_call>", "", "", &[("add", "{}")]),
    (
        "<tool_call>{\"name\":\"write\",\"parameters\":{\"text\":\"a\n\tb </tool_call> é\"}}</tool_call>",
        "",
        "",
        &[("write", "{\"text\":\"a\\n\\tb </tool_call> é\"}")],
    ),
    // The end marker is missing, or holds two objects.
    ("<tool_call>{\"name\":\"add\",\"arguments\":{}}", "", "", &[("add", "{}")]),
    (
        "<tool_call>{\"name\":\"add\"}\n{\"name\":\"f.g-h\"}</tool_call>",
        "",
        "",
        &[("add", "{}"), ("f.g-h", "{}")],
    ),
    ("<tool_call>{\"name\":\"add\"} and so on", "", " and so on", &[("add", "{}")]),
    ("<tool_call>{\"name\":\"add\"}</tool", "", "</tool", &[("add", "{}")]),
    // No calls.
    ("1 < 2 <tool_cal", "", "1 < 2 <tool_cal", &[]),
    ("See <tool_box>", "", "See <tool_box>", &[]),
    ("A\n<tool_call>hello</tool_call>\n", "", "A\n<tool_call>hello</tool_call>\n", &[]),
    ("A\n<tool_call>{\"name\": \"a", "", "A\n<tool_call>{\"name\": \"a", &[]),
    ("<tool_call>{\"name\": 1}</tool_call>", "", "<tool_call>{\"name\": 1}</tool_call>", &[]),
    ("<tool_call>{}</tool_call>", "", "<tool_call>{}</tool_call>", &[]),
    ("<tool_call>[1]</tool_call>", "", "<tool_call>[1]</tool_call>", &[]),
    (
        "<tool_call>{\"name\":\"add\",\"arguments\":[1]}</tool_call>",
        "",
        "<tool_call>{\"name\":\"add\",\"arguments\":[1]}</tool_call>",
        &[],
    ),
    (
        "<tool_call>{\"name\":\"add\",\"arguments\":\"1\"}</tool_call>",
        "",
        "<tool_call>{\"name\":\"add\",\"arguments\":\"1\"}</tool_call>",
        &[],
    ),
    // A call that breaks after its name was told, and a sound one after it.
    (
        " <tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1,}}</tool_call>\n<tool_call>{\"name\":\"add\"}</tool_call>",
        "",
        " <tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1,}}</tool_call>",
        &[("add", "{}")],
    ),
    (
        "<tool_call>{\"name\":\"write\",\"arguments\":{\"text\":\"long",
        "",
        "<tool_call>{\"name\":\"write\",\"arguments\":{\"text\":\"long",
        &[],
    ),
    (
        "<tool_call>{\"name\": \"<tool_call>{\"name\":\"add\"}</tool_call>",
        "",
        "<tool_call>{\"name\": \"",
        &[("add", "{}")],
    ),
];

const QWEN_CODER: &[Sample] = &[
    (
        "I look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nSão \"Paulo\"\n</parameter>\n<parameter=days>\n3\n\
         </parameter>\n</function>\n</tool_call>",
        "",
        "I look.",
        &[("get_weather", "{\"city\": \"São \\\"Paulo\\\"\", \"days\": 3}")],
    ),
    (
        "<tool_call>\n<function=write>\n<parameter=text>\n\n  <p>a</p>\n</parameter_>\n\n</parameter>\n</function>\n</tool_call>\n\
         <tool_call>\n<function=add>\n</function>\n</tool_call>\nDone.",
        "",
        "\nDone.",
        &[("write", "{\"text\": \"\\n  <p>a</p>\\n</parameter_>\\n\"}"), ("add", "{}")],
    ),
    // Without the outer marker; an unknown tool; values on the marker's line; Windows' line ends.
    (
        "<function=other><parameter=n>12</parameter><parameter=t>\r\nwords\r\n</parameter></function>",
        "",
        "",
        &[("other", "{\"n\": 12, \"t\": \"words\"}")],
    ),
    ("<tool_call><function=add><parameter=a>1</parameter></tool_call>", "", "", &[("add", "{\"a\": 1}")]),
    (
        "<tool_call><function=add></function><function=add></function></tool_call>",
        "",
        "",
        &[("add", "{}"), ("add", "{}")],
    ),
    (
        "<tool_call>\n<function=write><parameter=text>\n\n</parameter></function>",
        "",
        "",
        &[("write", "{\"text\": \"\"}")],
    ),
    // No calls.
    ("<tool_call>{\"name\": \"add\"}</tool_call>", "", "<tool_call>{\"name\": \"add\"}</tool_call>", &[]),
    ("a <function=add", "", "a <function=add", &[]),
    ("<function=>", "", "<function=>", &[]),
    ("<function=a\nb>", "", "<function=a\nb>", &[]),
    ("<function=add> text", "", "<function=add> text", &[]),
    ("<function=write><parameter=text>lo", "", "<function=write><parameter=text>lo", &[]),
];

const LLAMA3: &[Sample] = &[
    ("{\"name\": \"add\", \"parameters\": {\"a\": \"1\"}}", "", "", &[("add", "{\"a\": \"1\"}")]),
    (
        " {\"type\": \"function\", \"name\": \"add\", \"parameters\": {}}; {\"name\": \"add\", \"parameters\": {\"b\": 2}}",
        "",
        "",
        &[("add", "{}"), ("add", "{\"b\": 2}")],
    ),
    (
        "<|python_tag|>{\"name\": \"add\", \"parameters\": {}}<|python_tag|>{\"name\": \"add\", \"parameters\": {}}",
        "",
        "",
        &[("add", "{}"), ("add", "{}")],
    ),
    (
        "Well: <|python_tag|>get_weather.call(city=\"Pa(r\\\"is\", days=3)",
        "",
        "Well:",
        &[("get_weather", "{\"city\":\"Pa(r\\\"is\",\"days\":3}")],
    ),
    (
        "<|python_tag|>add.call(a=-1.5, b='x', c=True, d=None)",
        "",
        "",
        &[("add", "{\"a\":-1.5,\"b\":\"x\",\"c\":true,\"d\":null}")],
    ),
    ("<|python_tag|>add.call()", "", "", &[("add", "{}")]),
    // No calls: other JSON, unknown tools, programs.
    ("{\"name\": \"Paris\", \"parameters\": {}}", "", "{\"name\": \"Paris\", \"parameters\": {}}", &[]),
    ("{\"name\": \"add\"}", "", "{\"name\": \"add\"}", &[]),
    ("{\"a\": 1}\n", "", "{\"a\": 1}\n", &[]),
    ("{", "", "{", &[]),
    ("Text {\"name\": \"add\", \"parameters\": {}}", "", "Text {\"name\": \"add\", \"parameters\": {}}", &[]),
    ("<|python_tag|>print(1)\nx", "", "<|python_tag|>print(1)\nx", &[]),
    ("<|python_tag|>other.call(a=1)", "", "<|python_tag|>other.call(a=1)", &[]),
    ("<|python_tag|>add.call(a=b)", "", "<|python_tag|>add.call(a=b)", &[]),
    ("<|python", "", "<|python", &[]),
];

const MISTRAL: &[Sample] = &[
    (
        "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"id\": \"abcDEF123\"}, {\"name\": \"add\", \"arguments\": {}}]",
        "",
        "",
        &[("add", "{\"a\": 1}"), ("add", "{}")],
    ),
    (
        "See.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"P]a}r\"}[TOOL_CALLS]add[CALL_ID]abcDEF123[ARGS]{\"a\":\n1}",
        "",
        "See.",
        &[("get_weather", "{\"city\": \"P]a}r\"}"), ("add", "{\"a\":\n1}")],
    ),
    ("[TOOL_CALLS]add[ARGS]{} and more", "", " and more", &[("add", "{}")]),
    ("[TOOL_CALLS] [ {\"name\": \"add\"} ]\n", "", "", &[("add", "{}")]),
    // No calls.
    ("[TOOL_CALLS]", "", "[TOOL_CALLS]", &[]),
    ("[TOOL", "", "[TOOL", &[]),
    ("[1, 2]", "", "[1, 2]", &[]),
    ("[TOOL_CALLS][]", "", "[TOOL_CALLS][]", &[]),
    ("[TOOL_CALLS]a b[ARGS]{}", "", "[TOOL_CALLS]a b[ARGS]{}", &[]),
    ("[TOOL_CALLS]add{\"a\": 1}", "", "[TOOL_CALLS]add{\"a\": 1}", &[]),
    ("[TOOL_CALLS]add[ARGS][1]", "", "[TOOL_CALLS]add[ARGS][1]", &[]),
    ("[TOOL_CALLS]add[ARGS]{\"a\"", "", "[TOOL_CALLS]add[ARGS]{\"a\"", &[]),
];

const GENERIC: &[Sample] = &[
    ("{\"tool_call\": {\"name\": \"add\", \"arguments\": {\"a\": 1}}}", "", "", &[("add", "{\"a\": 1}")]),
    (
        "\n{ \"tool_calls\" : [ {\"name\": \"add\", \"arguments\": {}} , {\"name\": \"add\", \"arguments\": {}} ] }",
        "",
        "",
        &[("add", "{}"), ("add", "{}")],
    ),
    ("{\"response\": \"Hi\\n\\\"you\\\" \\u00e9\\ud83d\\ude00 😀\"}", "", "Hi\n\"you\" é😀 😀", &[]),
    ("{\"response\": {\"a\": [1, \"\\n\"]}}", "", "{\"a\": [1, \"\\n\"]}", &[]),
    ("{\"response\": 12}", "", "12", &[]),
    ("{\"response\": \"cut sho", "", "cut sho", &[]),
    ("Plain", "", "Plain", &[]),
    ("{\"tool\": 1}", "", "{\"tool\": 1}", &[]),
    (
        "{\"tool_call\": {\"name\": \"other\", \"arguments\": {}}}",
        "",
        "{\"tool_call\": {\"name\": \"other\", \"arguments\": {}}}",
        &[],
    ),
];

const ALL: [(Option<ToolFormat>, bool, &[Sample]); 8] = [
    (None, false, PLAIN),
    (None, true, OPENED),
    (Some(ToolFormat::Hermes), false, HERMES),
    (Some(ToolFormat::QwenCoder), false, QWEN_CODER),
    (Some(ToolFormat::Llama3), false, LLAMA3),
    (Some(ToolFormat::MistralArray), false, MISTRAL),
    (Some(ToolFormat::MistralArgs), false, MISTRAL),
    (Some(ToolFormat::Generic), false, GENERIC),
];

#[test]
fn samples_mean_what_they_mean() {
    for (format, opened, samples) in ALL {
        check(format, opened, samples);
    }
}

/// The text cut at random places.
fn pieces<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let mut ends: Vec<usize> =
        cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
    ends.extend([0, text.len()]);
    ends.sort_unstable();
    ends.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// Texts out of markers and what may stand between them, most of them broken.
fn rubble() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        "<tool_call>",
        "</tool_call>",
        "<function=",
        "add>",
        "</function>",
        "<parameter=",
        "a>",
        "</parameter>",
        "\n",
        " ",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        ";",
        "\"",
        "\\",
        "\"name\"",
        "\"add\"",
        "\"arguments\"",
        "\"parameters\"",
        "\"id\"",
        "{\"name\":\"add\",\"arguments\":",
        "{\"a\":1}",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "add",
        "<|python_tag|>",
        "add.call(",
        "a=1",
        "a='",
        ")",
        "<think>",
        "</think>",
        "é",
        "12",
        "\"tool_call\"",
        "\"tool_calls\"",
        "\"response\":",
        "{\"response\":",
        "{\"tool_calls\":[",
        "\r\n",
        "\\ud83d",
        "\\u00e9",
        "true",
        "-",
    ]);
    prop::collection::vec(parts, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn pieces_do_not_matter(
        at in 0..ALL.len(),
        sample in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let (format, opened, samples) = ALL[at];
        let text = sample.get(samples).0;
        let whole = parse(options(format, opened), [text]);
        prop_assert_eq!(parse(options(format, opened), pieces(text, &cuts)), whole);
    }

    #[test]
    fn pieces_do_not_matter_for_rubble(
        at in 0..ALL.len(),
        text in rubble(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let (format, opened, _) = ALL[at];
        let whole = parse(options(format, opened), [text.as_str()]);
        prop_assert_eq!(parse(options(format, opened), pieces(&text, &cuts)), whole);
    }
}

#[test]
fn arguments_stream() {
    let mut parser = AnswerParser::new(options(Some(ToolFormat::Hermes), false));
    assert_eq!(parser.push("<tool_call>{\"name\":\"write\",\"arguments\":"), []);
    let deltas = parser.push("{\"text\":\"on");
    assert!(matches!(&deltas[0], Delta::ToolCall { index: 0, name, .. } if name == "write"), "{deltas:?}");
    assert_eq!(deltas[1..], [Delta::ToolArguments { index: 0, text: "{\"text\":\"on".into() }]);
    assert_eq!(parser.push("ce"), [Delta::ToolArguments { index: 0, text: "ce".into() }]);
    let mut parser = AnswerParser::new(options(Some(ToolFormat::QwenCoder), false));
    assert_eq!(parser.push("<function=write><parameter=text>\nab\n</para").len(), 2);
    assert_eq!(parser.push("ble>c"), [Delta::ToolArguments { index: 0, text: "\\n</parable>c".into() }]);
}

#[test]
fn ids_have_the_form_that_templates_accept() {
    let id_of = |format, text: &str, seed| {
        let options = AnswerOptions { seed, ..options(Some(format), false) };
        parse_ids(options, text)
    };
    let twice = "<tool_call>{\"name\":\"add\"}</tool_call><tool_call>{\"name\":\"add\"}</tool_call>";
    let ids = id_of(ToolFormat::Hermes, twice, None);
    assert!(ids.iter().all(|id| id.starts_with("call_") && id.len() == 29) && ids[0] != ids[1], "{ids:?}");
    assert_ne!(id_of(ToolFormat::Hermes, twice, None), ids);
    assert_eq!(id_of(ToolFormat::Hermes, twice, Some(3)), id_of(ToolFormat::Hermes, twice, Some(3)));
    let twice = "[TOOL_CALLS]add[CALL_ID]abcDEF123[ARGS]{}[TOOL_CALLS]add[CALL_ID]abcDEF123[ARGS]{}[TOOL_CALLS]add[CALL_ID]x[ARGS]{}";
    let ids = id_of(ToolFormat::MistralArgs, twice, None);
    assert_eq!(ids[0], "abcDEF123");
    assert!(ids.iter().all(|id| out::is_mistral_id(id)) && ids[1] != ids[0] && ids.len() == 3, "{ids:?}");
}

fn parse_ids(options: AnswerOptions, text: &str) -> Vec<String> {
    parse(options, [text]).tool_calls.into_iter().map(|call| call.id).collect()
}

#[test]
fn one_call_ends_the_answer_where_only_one_is_wanted() {
    let options = AnswerOptions { parallel: false, ..options(Some(ToolFormat::Hermes), false) };
    let mut parser = AnswerParser::new(options);
    parser.push("<tool_call>{\"name\":\"add\"");
    assert!(!parser.is_done());
    parser.push("}</tool_call>\n<tool_call>{\"name\":\"add\"}");
    assert!(parser.is_done());
    assert_eq!(parser.push("</tool_call>text"), []);
    let (deltas, message) = parser.finish();
    assert_eq!((deltas.len(), message.tool_calls.len(), message.content.as_str()), (0, 1, ""));
}

#[test]
fn long_answers_take_linear_time() {
    let long = "word <tool_call> [TOOL_CALLS] <function= {\"\n".repeat(8_000);
    let call = format!(
        "<tool_call>{{\"name\":\"write\",\"arguments\":{{\"text\":\"{}\"}}}}</tool_call>",
        "a".repeat(1 << 17)
    );
    for (format, ..) in ALL {
        assert_eq!(parse(options(format, false), [long.as_str()]).content, long);
        parse(
            options(format, false),
            call.as_bytes().chunks(5).map(|piece| std::str::from_utf8(piece).unwrap()),
        );
    }
}

#[test]
fn the_markers_are_named() {
    let markers = options(Some(ToolFormat::MistralArgs), false);
    assert_eq!(markers.markers(), ["<think>", "</think>", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"]);
}
