//! OpenAI's conversations.

use serde_json::{Value, json};

use super::script::{Script, Server};

fn hello() -> Value {
    json!({ "messages": [{ "role": "user", "content": "Hello" }] })
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn an_answer_has_its_message_usage_and_timings() {
    let server = Server::start(Script::new(&[" Be of good cheer."]));
    let reply = server.post("/v1/chat/completions", &hello());
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let answer = reply.json();
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "tiny");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let choice = json!({
        "index": 0,
        "message": { "role": "assistant", "content": " Be of good cheer." },
        "finish_reason": "stop",
        "logprobs": null,
    });
    assert_eq!(answer["choices"], json!([choice]));
    let usage = &answer["usage"];
    let n_prompt = server.script.prompts.lock().unwrap()[0].len();
    assert_eq!(usage["prompt_tokens"], n_prompt);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 1);
    assert_eq!(usage["total_tokens"], n_prompt as u64 + usage["completion_tokens"].as_u64().unwrap());
    assert_eq!(answer["timings"]["cache_n"], 1);
    assert_eq!(answer["timings"]["prompt_ms"], 2.0);
    assert_eq!(server.script.prompt_texts(), ["user: Hello\nassistant:"]);
}

#[test]
fn a_stream_is_framed_as_clients_expect_it() {
    let server = Server::start(Script::new(&["Fear not"]));
    let reply = server.post("/v1/chat/completions", &with(hello(), json!({ "stream": true })));
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let first = reply.events()[0].clone();
    let head = format!(
        "data: {{\"id\":{},\"object\":\"chat.completion.chunk\",\"created\":{},\"model\":\"tiny\",\"system_fingerprint\":\"qgguf-{}\",\"choices\":[{{\"index\":0,",
        first["id"],
        first["created"],
        env!("CARGO_PKG_VERSION")
    );
    let delta =
        |delta: &str| format!("{head}\"delta\":{delta},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n");
    let (start, end) = reply.body.split_once("\"finish_reason\":\"stop\"").unwrap();
    let pieces: Vec<String> = server.script_pieces("Fear not");
    let mut expected = delta("{\"role\":\"assistant\",\"content\":null}");
    for piece in pieces {
        expected += &delta(&json!({ "content": piece }).to_string());
    }
    expected += &format!("{head}\"delta\":{{}},\"logprobs\":null,");
    assert_eq!(start, expected);
    assert!(end.starts_with("}],\"timings\":{\"cache_n\":1,"), "{end}");
    assert!(end.ends_with("}}\n\ndata: [DONE]\n\n"), "{end}");
    assert!(!reply.body.contains("usage"));
}

#[test]
fn the_usage_comes_in_a_chunk_of_its_own_if_asked_for() {
    let server = Server::start(Script::new(&["Fear not"]));
    let body = with(hello(), json!({ "stream": true, "stream_options": { "include_usage": true } }));
    let events = server.post("/v1/chat/completions", &body).events();
    let (last, rest) = events.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["total_tokens"].as_u64().unwrap() > 2);
    assert!(last["timings"].is_object());
    assert!(rest.iter().all(|event| event.get("usage").is_none() && event.get("timings").is_none()));
}

#[test]
fn several_choices_are_told_apart_and_their_prompt_counts_once() {
    let server = Server::start(Script::new(&["one", "two"]));
    let answer = server.post("/v1/chat/completions", &with(hello(), json!({ "n": 2 }))).json();
    let choices = answer["choices"].as_array().unwrap();
    let contents: Vec<&str> = choices.iter().map(|c| c["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(contents, ["one", "two"]);
    assert_eq!(choices[1]["index"], 1);
    let prompts = server.script.prompts.lock().unwrap();
    assert_eq!(answer["usage"]["prompt_tokens"], prompts[0].len());
}

#[test]
fn an_answer_that_is_cut_says_length() {
    let server = Server::start(Script::new(&["one two three four"]));
    for name in ["max_tokens", "max_completion_tokens", "n_predict"] {
        let answer = server.post("/v1/chat/completions", &with(hello(), json!({ name: 2 }))).json();
        assert_eq!(answer["choices"][0]["finish_reason"], "length", "{name}");
        assert_eq!(answer["usage"]["completion_tokens"], 2);
    }
}

#[test]
fn logprobs_have_tokens_bytes_and_alternatives() {
    let server = Server::start(Script::new(&["Fear"]));
    let body = with(hello(), json!({ "logprobs": true, "top_logprobs": 2 }));
    let answer = server.post("/v1/chat/completions", &body).json();
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    let text: String = content.iter().map(|entry| entry["token"].as_str().unwrap()).collect();
    assert_eq!(text, "Fear");
    assert_eq!(content[0]["logprob"], -0.5);
    assert_eq!(content[0]["top_logprobs"][1]["logprob"], -9999.0);
    let streamed = server.post("/v1/chat/completions", &with(body, json!({ "stream": true }))).events();
    let told: Vec<Value> = streamed
        .iter()
        .filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(told, content);
}

#[test]
fn what_would_change_the_answer_and_cannot_be_done_names_its_field() {
    let server = Server::start(Script::new(&["x"]));
    for (field, value) in [
        ("temperature", json!("hot")),
        ("n", json!(0)),
        ("n", json!(100_000)),
        ("top_logprobs", json!(5)),
        ("max_tokens", json!(-2)),
        ("stop", json!(7)),
        ("stop", json!(vec!["x"; 33])),
        ("logit_bias", json!({ "999999": 1 })),
        ("logit_bias", json!({ "1": "x" })),
        ("mirostat", json!(3)),
        ("min_keep", json!(3)),
        ("functions", json!([])),
        ("modalities", json!(["audio"])),
        ("best_of", json!(3)),
        ("messages", json!([])),
        ("messages[0].role", Value::Null),
        ("repeat_penalty", json!(0)),
        ("seed", json!(1.5)),
    ] {
        let body = match field {
            "messages[0].role" => json!({ "messages": [{ "content": "x" }] }),
            _ => with(hello(), json!({ field: value })),
        };
        let reply = server.post("/v1/chat/completions", &body);
        assert_eq!(reply.status, 400, "{field} {value}: {reply:?}");
        let error = &reply.json()["error"];
        assert_eq!(error["type"], "invalid_request_error");
        assert_eq!(error["code"], 400);
        assert_eq!(error["param"], field, "{error}");
        assert!(error["message"].as_str().unwrap().starts_with(field), "{error}");
    }
    assert!(server.script.prompts.lock().unwrap().is_empty());
}

#[test]
fn fields_that_change_nothing_are_ignored() {
    let server = Server::start(Script::new(&["x"]));
    let more = json!({
        "user": "u", "store": true, "metadata": { "a": "b" }, "service_tier": "auto", "prompt_cache_key": "k",
        "safety_identifier": "s", "mirostat": 0, "xtc_probability": 0.0, "lora": [], "stop": null, "unheard_of": [1],
        "parallel_tool_calls": true, "min_p": 2.0, "top_k": -5, "logit_bias": { " the": false, "5": -1 }, "best_of": 1,
    });
    let reply = server.post("/v1/chat/completions?beta=true", &with(hello(), more));
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[test]
fn contents_are_texts_or_parts_of_text() {
    let server = Server::start(Script::new(&["x"]));
    let parts = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]);
    let body = json!({ "messages": [{ "role": "developer", "content": "Be brief" }, { "role": "user", "content": parts }] });
    assert_eq!(server.post("/chat/completions", &body).status, 200);
    assert_eq!(server.script.prompt_texts(), ["system: Be brief\nuser: a\nb\nassistant:"]);
    let image = json!([{ "type": "image_url", "image_url": { "url": "http://127.0.0.1:1/x.png" } }]);
    let body = json!({ "messages": [{ "role": "user", "content": image }] });
    let reply = server.post("/v1/chat/completions", &body);
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("messages[0].content[0].type")));
}

#[test]
fn a_last_message_of_the_assistant_is_continued() {
    let server = Server::start(Script::new(&[" light"]));
    let user = json!({ "role": "user", "content": "Say" });
    let start = json!({ "role": "assistant", "content": "Let there be" });
    let body = json!({ "messages": [user, start] });
    assert_eq!(server.post("/v1/chat/completions", &body).status, 200);
    assert_eq!(server.script.prompt_texts(), ["user: Say\nassistant: Let there be"]);
    let twice = json!({ "messages": [user, start, start] });
    assert_eq!(server.post("/v1/chat/completions", &twice).status, 400);
    let contrary = with(body, json!({ "continue_final_message": true, "add_generation_prompt": true }));
    assert_eq!(server.post("/v1/chat/completions", &contrary).status, 400);
}

#[test]
fn a_prompt_beyond_the_context_tells_both_numbers() {
    let server = Server::start(Script::new(&["x"]));
    let body = json!({ "messages": [{ "role": "user", "content": "word ".repeat(5000) }], "stream": true });
    let reply = server.post("/v1/chat/completions", &body);
    assert_eq!(reply.status, 400);
    let error = reply.json()["error"].clone();
    assert_eq!(error["type"], "exceed_context_size_error");
    assert_eq!(error["n_ctx"], super::script::model().hparams().n_ctx_train);
    assert!(error["n_prompt_tokens"].as_u64().unwrap() > error["n_ctx"].as_u64().unwrap());
}
