//! Conversations as clients send them, with the templates of real models.

use serde_json::json;

use super::*;

/// A template of the fixtures.
fn template(name: &str) -> Option<ChatTemplate> {
    let path = fixtures(name)?.join("chat").join(format!("{name}.jinja"));
    let source = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Some(ChatTemplate::new(&source, SpecialTokens::new("<s>", "</s>")).unwrap())
}

fn options(tools: Json) -> RenderOptions {
    RenderOptions {
        tools: Some(tools),
        add_generation_prompt: true,
        now: Some(fixed_time()),
        ..Default::default()
    }
}

/// A question, two calls with arguments as text and an id of another family, their results.
fn with_calls(n: usize) -> Vec<Message> {
    let call = |i| json!({"id": format!("call_{i}"), "type": "function", "function": {"name": format!("f{i}"), "arguments": "{\"city\": \"Paris\"}"}});
    let mut all = vec![
        json!({"role": "user", "content": "Weather?"}),
        json!({"role": "assistant", "content": null, "tool_calls": (0..n).map(call).collect::<Vec<_>>()}),
    ];
    all.extend(
        (0..n).map(|i| json!({"role": "tool", "tool_call_id": format!("call_{i}"), "content": "sunny"})),
    );
    messages(&all.into())
}

#[test]
fn what_templates_can_do_is_found_out() {
    // tools, tool calls, several of them, system messages, enable_thinking
    for (name, expected) in [
        ("Qwen-Qwen3-0.6B", [true, true, true, true, true]),
        ("Qwen-Qwen2.5-7B-Instruct", [true, true, true, true, false]),
        ("Qwen3-Coder", [true, true, true, true, false]),
        ("Qwen3.5-4B", [true, true, true, true, true]),
        ("meta-llama-Llama-3.1-8B-Instruct", [true, true, false, true, false]),
        ("meta-llama-Llama-3.2-3B-Instruct", [true, true, false, true, false]),
        ("mistralai-Mistral-Nemo-Instruct-2407", [true, true, true, true, false]),
        ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", [true, true, true, true, false]),
        ("google-gemma-2-2b-it", [false, false, false, false, false]),
        ("HuggingFaceTB-SmolLM3-3B", [false, false, false, true, true]),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", [false, true, true, true, true]),
        ("GLM-4.6", [true, true, true, true, true]),
        ("chatml-generic", [false, false, false, true, false]),
    ] {
        let Some(template) = template(name) else { return };
        let can = template.capabilities();
        let found = [can.tools, can.tool_calls, can.parallel_tool_calls, can.system, can.enable_thinking];
        assert_eq!(found, expected, "{name}: {can:?}");
    }
}

#[test]
fn every_template_takes_calls_and_parts_and_system_messages() {
    let Some(dir) = fixtures("every_template_takes_calls_and_parts_and_system_messages") else { return };
    let tools = json!([{"type": "function", "function": {"name": "f0", "description": "d", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]);
    for entry in std::fs::read_dir(dir.join("chat")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "jinja") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let template = template(&name).unwrap();
        let parts = json!([{"type": "text", "text": "part one"}, {"type": "text", "text": "part two"}]);
        let mut all = messages(&json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": "Well."},
        ]));
        all.extend(with_calls(1));
        let prompt = template.prompt(&all, &options(tools.clone())).unwrap_or_else(|e| panic!("{name}: {e}"));
        for text in ["Be brief.", "part one", "part two", "Weather?", "f0", "Paris", "sunny"] {
            // Mistral's writes the system message only where the user has the last word.
            let dropped = text == "Be brief." && name.starts_with("mistralai-");
            assert!(dropped || prompt.contains(text), "{name}: no {text} in {prompt}");
        }
        let plain = template.prompt(&[Message::new("user", "Hi")], &RenderOptions::default());
        assert!(plain.as_ref().is_ok_and(|text| text.contains("Hi")), "{name}: {plain:?}");
        assert!(!prompt.contains("\\\\\"city") && !prompt.contains("'text'"), "{name}: {prompt}");
    }
}

#[test]
fn arguments_and_ids_become_what_the_template_wants() {
    let Some(qwen) = template("Qwen3-Coder") else { return };
    let prompt = qwen.prompt(&with_calls(2), &RenderOptions::default()).unwrap();
    assert!(prompt.contains("<function=f1>\n<parameter=city>\nParis\n</parameter>"), "{prompt}");
    let mistral = template("mistralai-Mistral-Nemo-Instruct-2407").unwrap();
    let prompt = mistral.prompt(&with_calls(2), &RenderOptions::default()).unwrap();
    assert!(prompt.contains("\"arguments\": {\"city\": \"Paris\"}"), "{prompt}");
    let ids: Vec<&str> = prompt.split("\"id\": \"").skip(1).map(|rest| &rest[..9]).collect();
    let results: Vec<&str> = prompt.split("\"call_id\": \"").skip(1).map(|rest| &rest[..9]).collect();
    assert_eq!((ids.len(), &ids), (2, &results));
    assert_ne!(ids[0], ids[1]);
    let qwen3 = template("Qwen-Qwen3-0.6B").unwrap();
    let mut all = with_calls(1);
    all[1].0.insert("reasoning_content".into(), "I look it up.".into());
    let prompt = qwen3.prompt(&all, &RenderOptions::default()).unwrap();
    assert!(prompt.contains("<think>\nI look it up.\n</think>\n\n<tool_call>\n{\"name\": \"f0\", \"arguments\": {\"city\": \"Paris\"}}"), "{prompt}");
}

#[test]
fn thinking_is_on_unless_it_is_switched_off() {
    let Some(qwq) = template("Qwen-QwQ-32B") else { return };
    let ask = [Message::new("user", "Hi")];
    let mut options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    assert!(qwq.prompt(&ask, &options).unwrap().ends_with("<think>\n"));
    options.kwargs.insert("enable_thinking".into(), false.into());
    assert!(qwq.prompt(&ask, &options).unwrap().ends_with("<think>\n</think>"));
}

#[test]
fn a_message_can_be_continued() {
    let Some(qwen) = template("Qwen-Qwen2.5-7B-Instruct") else { return };
    let mut all =
        vec![Message::new("system", "S"), Message::new("user", "Hi"), Message::new("assistant", "Well, ")];
    let prompt = qwen.prompt_continuing(&all, &RenderOptions::default()).unwrap();
    assert!(prompt.ends_with("<|im_start|>assistant\nWell, "), "{prompt:?}");
    all[2].0.insert("content".into(), Json::Null);
    all[2].0.insert("tool_calls".into(), json!([{}]));
    let error = ChatTemplate::new("{{ 1 }}", SpecialTokens::default()).unwrap();
    let error =
        error.prompt_continuing(&[Message::new("assistant", "a")], &RenderOptions::default()).unwrap_err();
    assert!(error.to_string().contains("does not write the message"), "{error}");
    let error = qwen.prompt_continuing(&[], &RenderOptions::default()).unwrap_err();
    assert!(error.to_string().contains("no text to be continued"), "{error}");
}

#[test]
fn many_threads_render_at_once() {
    let template = ChatTemplate::new("{{ messages[0].content }}{{ a }}", SpecialTokens::default()).unwrap();
    let slow =
        ChatTemplate::new("{% for i in range(10**9) %}x{% endfor %}", SpecialTokens::default()).unwrap();
    std::thread::scope(|scope| {
        for i in 0..16 {
            let (template, slow) = (&template, &slow);
            scope.spawn(move || {
                assert!(slow.render(&[], &RenderOptions::default()).is_err());
                for j in 0..50 {
                    let mut options = RenderOptions::default();
                    options.kwargs.insert("a".into(), j.into());
                    let text = template.clone().render(&[Message::new("user", &format!("{i}:"))], &options);
                    assert_eq!(text.unwrap(), format!("{i}:{j}"));
                }
            });
        }
    });
}

#[test]
fn templates_show_their_notation_and_their_tags() {
    use crate::answer::{ReasoningStyle, ToolFormat};
    use ToolFormat::{Hermes, Llama3, MistralArray, QwenCoder};
    // The notation of calls; whether there are tags, and whether a prompt ends inside them.
    for (name, format, opened) in [
        ("Qwen-Qwen3-0.6B", Some(Hermes), Some(false)),
        ("Qwen-Qwen2.5-7B-Instruct", Some(Hermes), None),
        ("Qwen-QwQ-32B", Some(Hermes), Some(true)),
        ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", Some(Hermes), None),
        ("Qwen3-Coder", Some(QwenCoder), None),
        ("Qwen3.5-4B", Some(QwenCoder), Some(true)),
        ("meta-llama-Llama-3.1-8B-Instruct", Some(Llama3), None),
        ("meta-llama-Llama-3.2-3B-Instruct", Some(Llama3), None),
        ("mistralai-Mistral-Nemo-Instruct-2407", Some(MistralArray), None),
        ("GLM-4.6", None, Some(false)),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", None, Some(true)),
        ("HuggingFaceTB-SmolLM3-3B", None, Some(false)),
        ("google-gemma-2-2b-it", None, None),
        ("chatml-generic", None, None),
    ] {
        let Some(template) = template(name) else { return };
        assert_eq!(ToolFormat::detect(template.source()), format, "{name}");
        let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
        let prompt = template.prompt(&[Message::new("user", "Hi")], &options).unwrap();
        let style = ReasoningStyle::detect(template.source(), &prompt);
        assert_eq!(style.map(|style| style.opened), opened, "{name}");
    }
}

/// What a template writes of a call, a model that was trained with it writes too.
#[test]
fn calls_as_templates_write_them_are_read_back() {
    use crate::answer::{AnswerOptions, AnswerParser, Tool, ToolFormat};
    for (name, turn) in [
        ("Qwen-Qwen3-0.6B", "assistant\n"),
        ("Qwen-Qwen2.5-7B-Instruct", "assistant\n"),
        ("Qwen3-Coder", "assistant\n"),
        ("Qwen3.5-4B", "assistant\n"),
        ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "assistant\n"),
        ("meta-llama-Llama-3.1-8B-Instruct", "assistant<|end_header_id|>\n\n"),
        ("meta-llama-Llama-3.2-3B-Instruct", "assistant<|end_header_id|>\n\n"),
        ("mistralai-Mistral-Nemo-Instruct-2407", "[/INST]"),
    ] {
        let Some(template) = template(name) else { return };
        let n = if template.capabilities().parallel_tool_calls { 2 } else { 1 };
        let prompt = template.prompt(&with_calls(n), &RenderOptions::default()).unwrap();
        let answer = prompt.split(turn).nth(1).unwrap();
        let end =
            ["<|im_end|>", "<|eot_id|>", "</s>"].iter().filter_map(|end| answer.find(end)).min().unwrap();
        let format = ToolFormat::detect(template.source());
        let tools = (0..n).map(|i| Tool { name: format!("f{i}"), parameters: Json::Null }).collect();
        let reasoning = crate::answer::ReasoningStyle::detect(template.source(), "");
        let options = AnswerOptions { reasoning, format, tools, parallel: true, seed: None };
        let mut parser = AnswerParser::new(options);
        for c in answer[..end].chars() {
            parser.push(c.encode_utf8(&mut [0; 4]));
        }
        let (_, message) = parser.finish();
        let calls: Vec<(&str, Json)> = message
            .tool_calls
            .iter()
            .map(|call| (call.name.as_str(), serde_json::from_str(&call.arguments).unwrap()))
            .collect();
        let names: Vec<String> = (0..n).map(|i| format!("f{i}")).collect();
        let expected: Vec<(&str, Json)> =
            names.iter().map(|name| (name.as_str(), json!({"city": "Paris"}))).collect();
        assert_eq!((calls, message.content.as_str()), (expected, ""), "{name}: {prompt}");
    }
}
