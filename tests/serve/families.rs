//! The other families: what each makes of a request, and how it writes the answer.

use serde_json::{Value, json};

use super::client::Reply;
use super::script::{Script, Server, model};

/// Names of the events of a stream.
fn names(reply: &Reply) -> Vec<&str> {
    reply.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect()
}

#[test]
fn completions_take_texts_and_tokens() {
    let server = Server::start(Script::new(&[" heaven"]));
    let ids = model().tokenizer().encode("In the beginning", true, true);
    let mixed = json!([["In the", ids[0]], "God"]);
    for (prompt, n) in [(json!("In the beginning"), 1), (json!(ids), 1), (json!([ids, ids]), 2), (mixed, 2)] {
        let reply = server.post("/v1/completions", &json!({ "prompt": prompt }));
        assert_eq!(reply.status, 200, "{reply:?}");
        let answer = reply.json();
        assert_eq!(answer["object"], "text_completion");
        let choices = answer["choices"].as_array().unwrap();
        assert_eq!(choices.len(), n);
        let last = json!({ "text": " heaven", "index": n - 1, "logprobs": null, "finish_reason": "stop" });
        assert_eq!(choices[n - 1], last);
    }
    for (prompt, param) in
        [(json!([1, 99_999_999]), "prompt[1]"), (json!(7), "prompt"), (json!([[1], {}]), "prompt[1]")]
    {
        let reply = server.post("/v1/completions", &json!({ "prompt": prompt }));
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)));
    }
}

#[test]
fn completions_stream_and_end_with_usage() {
    let server = Server::start(Script::new(&[" heaven"]));
    let reply = server.post("/v1/completions", &json!({ "prompt": "In", "stream": true }));
    let events = reply.events();
    let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, " heaven");
    let (last, rest) = events.split_last().unwrap();
    assert!(
        rest.iter()
            .all(|event| event["choices"][0]["finish_reason"].is_null() && event.get("usage").is_none())
    );
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert!(last["usage"]["total_tokens"].is_u64());
    assert!(reply.body.ends_with("\n\ndata: [DONE]\n\n"));
}

#[test]
fn legacy_logprobs_cover_the_echoed_prompt() {
    let server = Server::start(Script::new(&[" heaven"]));
    let ids = model().tokenizer().encode("In the beginning", true, true);
    let body = json!({ "prompt": ids, "echo": true, "logprobs": 1, "max_tokens": 1 });
    let choice = server.post("/v1/completions", &body).json()["choices"][0].clone();
    let logprobs = &choice["logprobs"];
    let tokens: Vec<&str> =
        logprobs["tokens"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    assert_eq!(tokens.len(), ids.len() + 1);
    assert_eq!(logprobs["token_logprobs"][0], Value::Null);
    assert_eq!(logprobs["top_logprobs"][0], Value::Null);
    assert_eq!(logprobs["token_logprobs"][1], -0.5);
    assert_eq!(logprobs["top_logprobs"][1][tokens[1]], -0.5);
    let offsets: Vec<u64> = serde_json::from_value(logprobs["text_offset"].clone()).unwrap();
    assert_eq!(offsets[0], 0);
    assert_eq!(offsets[2], (tokens[0].chars().count() + tokens[1].chars().count()) as u64);
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let events = server.post("/v1/completions", &streamed).events();
    let told: Vec<Value> = events
        .iter()
        .filter_map(|e| e["choices"][0]["logprobs"]["tokens"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(Value::from(told), logprobs["tokens"]);
    let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(choice["text"], text);
}

#[test]
fn the_native_route_tells_everything() {
    let server = Server::start(Script::new(&[" heaven\nand"]));
    let body = json!({ "prompt": "In", "n_probs": 1, "return_tokens": true, "temperature": 0.5, "seed": 7 });
    let answer = server.post("/completion", &body).json();
    assert_eq!(answer["content"], " heaven\nand");
    assert_eq!((&answer["stop"], &answer["stop_type"]), (&json!(true), &json!("eos")));
    assert_eq!(answer["has_new_line"], true);
    assert_eq!(answer["prompt"], "In");
    assert_eq!(answer["generation_settings"]["temperature"], 0.5);
    assert_eq!(answer["generation_settings"]["seed"], 7);
    let n = answer["tokens"].as_array().unwrap().len();
    assert_eq!(answer["completion_probabilities"].as_array().unwrap().len(), n);
    assert_eq!(answer["tokens_predicted"], n);
    let picked = json!({ "prompt": "In", "response_fields": ["content", "generation_settings/top_k"] });
    assert_eq!(server.post("/completion", &picked).json(), json!({ "content": " heaven\nand", "top_k": 40 }));
    let streamed = server.post("/completion", &json!({ "prompt": "In", "stream": true }));
    let events = streamed.events();
    assert_eq!(events.last().unwrap()["stop"], true);
    assert_eq!(events[0]["stop"], false);
    assert!(!streamed.body.contains("[DONE]"));
    assert!(server.post("/completion", &json!({ "prompt": ["a", "b"] })).json().is_array());
}

#[test]
fn texts_become_tokens_and_back() {
    let server = Server::start(Script::new(&[]));
    let ids = model().tokenizer().encode("In the beginning", false, true);
    let tokens = server.post("/tokenize", &json!({ "content": "In the beginning" })).json();
    assert_eq!(tokens, json!({ "tokens": ids }));
    let pieces = server.post("/tokenize", &json!({ "content": "In the", "with_pieces": true })).json();
    assert!(pieces["tokens"][0]["piece"].is_string());
    let text = server.post("/detokenize", &json!({ "tokens": ids })).json();
    assert_eq!(text, json!({ "content": "In the beginning" }));
    assert_eq!(server.post("/detokenize", &json!({ "tokens": [-1] })).status, 400);
    let body = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    assert_eq!(server.post("/apply-template", &body).json(), json!({ "prompt": "user: Hi\nassistant:" }));
}

#[test]
fn models_without_infilling_say_so() {
    let server = Server::start(Script::new(&[]));
    let reply = server.post("/infill", &json!({ "input_prefix": "a", "input_suffix": "b" }));
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (501, &json!("not_supported_error")));
}

#[test]
fn embeddings_are_normalised_numbers_or_base64() {
    let server = Server::start(Script::new(&[]));
    let answer = server.post("/v1/embeddings", &json!({ "input": ["a", "b"] })).json();
    assert_eq!(answer["object"], "list");
    let x = f64::from(0.6f32);
    assert_eq!(
        answer["data"][1],
        json!({ "object": "embedding", "index": 1, "embedding": [x, f64::from(0.8f32)] })
    );
    let bytes = server.post("/v1/embeddings", &json!({ "input": "a", "encoding_format": "base64" })).json();
    assert_eq!(bytes["data"][0]["embedding"], "mpkZP83MTD8=");
    let native = server.post("/embedding", &json!({ "content": "a", "embd_normalize": -1 })).json();
    assert_eq!(native, json!([{ "index": 0, "embedding": [[3.0, 4.0]] }]));
    for input in [json!([]), json!({}), json!([99_999_999]), Value::Null] {
        assert_eq!(server.post("/v1/embeddings", &json!({ "input": input })).status, 400, "{input}");
    }
    assert_eq!(server.post("/v1/embeddings", &json!({ "input": "a", "dimensions": 3 })).status, 400);
    let ollama = server.post("/api/embed", &json!({ "model": "tiny", "input": "a" })).json();
    assert_eq!(ollama["embeddings"][0][0], x);
}

#[test]
fn anthropics_messages_are_read_and_answered_in_blocks() {
    let server = Server::start(Script::new(&["Peace"]));
    let body = json!({
        "model": "claude", "max_tokens": 100, "system": [{ "type": "text", "text": "Be brief" }],
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
            { "role": "assistant", "content": "c" },
            { "role": "user", "content": "d" },
        ],
        "metadata": { "user_id": "u" },
    });
    let reply = server.post("/v1/messages?beta=true", &body);
    assert_eq!(reply.status, 200, "{reply:?}");
    let answer = reply.json();
    assert_eq!(answer["content"], json!([{ "type": "text", "text": "Peace" }]));
    assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!("end_turn"), &Value::Null));
    assert_eq!(answer["usage"]["cache_read_input_tokens"], 1);
    assert_eq!(
        server.script.prompt_texts(),
        ["system: Be brief\nuser: a\nb\nassistant: c\nuser: d\nassistant:"]
    );
    let n_prompt = server.script.prompts.lock().unwrap()[0].len();
    assert_eq!(server.post("/v1/messages/count_tokens", &body).json(), json!({ "input_tokens": n_prompt }));
}

#[test]
fn anthropics_stream_has_its_events_in_order() {
    let server = Server::start(Script::new(&["Fear not"]));
    let body = json!({ "max_tokens": 2, "stream": true, "messages": [{ "role": "user", "content": "a" }] });
    let reply = server.post("/v1/messages", &body);
    let names = names(&reply);
    assert_eq!(names[..2], ["message_start", "content_block_start"]);
    let end = ["content_block_stop", "message_delta", "message_stop"];
    assert_eq!(names[names.len() - 3..], end);
    assert!(names[2..names.len() - 3].iter().all(|name| *name == "content_block_delta"));
    let events = reply.events();
    assert_eq!(
        events[1],
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } })
    );
    assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], "max_tokens");
    assert!(!reply.body.contains("[DONE]"));
}

#[test]
fn responses_are_items() {
    let server = Server::start(Script::new(&["Peace"]));
    let body = json!({ "instructions": "Be brief", "input": "Hi", "max_output_tokens": 50 });
    let answer = server.post("/v1/responses", &body).json();
    assert_eq!((&answer["object"], &answer["status"]), (&json!("response"), &json!("completed")));
    let item = &answer["output"][0];
    assert_eq!(item["type"], "message");
    assert_eq!(
        item["content"],
        json!([{ "type": "output_text", "text": "Peace", "annotations": [], "logprobs": [] }])
    );
    assert_eq!(answer["usage"]["input_tokens_details"]["cached_tokens"], 1);
    assert_eq!(server.script.prompt_texts(), ["system: Be brief\nuser: Hi\nassistant:"]);
    let cut = server.post("/v1/responses", &json!({ "input": "Hi", "max_output_tokens": 1 })).json();
    assert_eq!(
        (&cut["status"], &cut["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    let reply = server.post("/v1/responses", &json!({ "input": "Hi", "previous_response_id": "resp_1" }));
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("previous_response_id")));
}

#[test]
fn the_events_of_a_response_are_numbered_and_in_order() {
    let server = Server::start(Script::new(&["Fear not"]));
    let items =
        json!([{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hi" }] }]);
    let reply = server.post("/v1/responses", &json!({ "input": items, "stream": true }));
    let names: Vec<&str> = names(&reply);
    let deltas = names.iter().filter(|name| **name == "response.output_text.delta").count();
    assert_eq!(deltas, server.script_pieces("Fear not").len());
    let others: Vec<&&str> = names.iter().filter(|name| **name != "response.output_text.delta").collect();
    assert_eq!(
        others,
        [
            &"response.created",
            &"response.in_progress",
            &"response.output_item.added",
            &"response.content_part.added",
            &"response.output_text.done",
            &"response.content_part.done",
            &"response.output_item.done",
            &"response.completed",
        ]
    );
    let events = reply.events();
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["response"]["output"][0]["content"][0]["text"], "Fear not");
    let id = &events[2]["item"]["id"];
    assert!(events[3..events.len() - 1].iter().all(|e| e["item_id"] == *id || e["item"]["id"] == *id));
}

#[test]
fn ollamas_lines_are_objects() {
    let server = Server::start(Script::new(&["Peace be"]));
    let body = json!({ "model": "tiny:latest", "messages": [{ "role": "user", "content": "Hi" }], "options": { "num_predict": 50 } });
    let reply = server.post("/api/chat", &body);
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    let lines: Vec<Value> = reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text: String = lines.iter().map(|line| line["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(text, "Peace be");
    let last = lines.last().unwrap();
    assert_eq!((&last["done"], &last["done_reason"]), (&json!(true), &json!("stop")));
    assert_eq!(last["eval_duration"], 4_000_000);
    let whole =
        server.post("/api/generate", &json!({ "prompt": "Hi", "system": "S", "stream": false })).json();
    assert_eq!(whole["response"], "Peace be");
    assert_eq!(
        server.post("/api/generate", &json!({ "prompt": "Hi", "raw": true, "stream": false })).status,
        200
    );
    let prompts = server.script.prompt_texts();
    assert_eq!(prompts[1..], ["system: S\nuser: Hi\nassistant:", "Hi"]);
    assert_eq!(server.get("/api/tags").json()["models"][0]["name"], "tiny");
    assert_eq!(server.get("/api/version").json(), json!({ "version": env!("CARGO_PKG_VERSION") }));
    let shown = server.post("/api/show", &json!({ "model": "tiny" })).json();
    assert_eq!(shown["model_info"]["general.architecture"], shown["details"]["family"]);
    assert_eq!(server.post("/api/generate", &json!({ "model": "tiny" })).json()["done_reason"], "load");
}

#[test]
fn every_documented_route_is_there() {
    let server = Server::start(Script::new(&["x"]));
    let document = server.get("/openapi.json").json();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = path.replace("{name}", "tiny");
            let status = match method.as_str() {
                "get" => server.get(&path).status,
                _ => server.post(&path, &json!({})).status,
            };
            assert!(!matches!(status, 404 | 405 | 500), "{method} {path}: {status}");
        }
    }
}

#[test]
fn models_and_props_tell_sizes() {
    let server = Server::start(Script::new(&[]));
    let entry = server.get("/v1/models").json()["data"][0].clone();
    assert_eq!((&entry["id"], &entry["object"]), (&json!("tiny"), &json!("model")));
    assert_eq!(entry["meta"]["n_vocab"], model().hparams().n_vocab);
    let props = server.get("/props").json();
    assert_eq!(props["default_generation_settings"]["n_ctx"], model().hparams().n_ctx_train);
    assert_eq!(props["chat_template"], super::script::TEMPLATE);
    assert_eq!(server.get("/slots").json()[0]["is_processing"], false);
    let page = server.get("/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'self'"));
}
