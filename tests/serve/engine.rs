//! The server with the real engine on the tiny model.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use qgguf::engine::service::{Service, ServiceOptions};
use qgguf::generate::{GenerateOptions, generate};
use qgguf::sampler::{Sampler, SamplerParams};
use qgguf::session::Session;
use serde_json::{Value, json};

use super::client;
use super::script::{Script, Server, model, quiet, served};

/// The tiny model, evaluated.
fn server(options: &ServiceOptions) -> Server {
    let script = Arc::new(Script::new(&[]));
    let mut tiny = served("tiny", script.clone());
    tiny.backend = Box::new(Service::start(model(), options).unwrap());
    let server = Server::loading(script, quiet());
    server.app.ready(vec![tiny]);
    server
}

/// The text that the library generates alone.
fn alone(prompt: &str, params: SamplerParams, seed: u64, n: usize) -> String {
    let mut session = Session::new(model(), None, &Default::default()).unwrap();
    let tokens = model().tokenizer().encode(prompt, true, true);
    let mut sampler = Sampler::new(params, Some(seed)).unwrap();
    let options = GenerateOptions { n_predict: Some(n), ..Default::default() };
    generate(&mut session, &mut sampler, &tokens, &options, |_| ControlFlow::Continue(())).unwrap().text
}

fn complete(server: &Server, body: Value) -> Value {
    let reply = server.post("/v1/completions", &body);
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

#[test]
fn a_crowd_gets_what_each_would_get_alone() {
    let server = server(&ServiceOptions { n_parallel: 4, ..Default::default() });
    let prompts = ["In the beginning", "And it came to pass", "The LORD is my", "In the beginning God"];
    let answers: Vec<String> = thread::scope(|scope| {
        let ask = |i: usize| {
            let body = json!({ "prompt": prompts[i % 4], "seed": i, "max_tokens": 12, "temperature": 0.7 });
            complete(&server, body)["choices"][0]["text"].as_str().unwrap().to_owned()
        };
        let all: Vec<_> = (0..8).map(|i| scope.spawn(move || ask(i))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (i, answer) in answers.iter().enumerate() {
        let params = SamplerParams { temperature: 0.7, ..SamplerParams::default() };
        assert_eq!(*answer, alone(prompts[i % 4], params, i as u64, 12), "{i}");
    }
}

#[test]
fn a_stop_string_over_token_borders_is_not_told() {
    let server = server(&Default::default());
    let whole = alone("In the beginning", SamplerParams::greedy(), 0, 20);
    let stop = &whole[9..14];
    let body = json!({ "prompt": "In the beginning", "temperature": 0, "max_tokens": 20, "stop": [stop] });
    let answer = complete(&server, body.clone());
    let expected = whole.split(stop).next().unwrap();
    assert_eq!(answer["choices"][0]["text"], expected);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let mut streamed = body;
    streamed["stream"] = true.into();
    let events = server.post("/v1/completions", &streamed).events();
    let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, expected);
    let native = json!({ "prompt": "In the beginning", "temperature": 0, "n_predict": 20, "stop": stop });
    let native = server.post("/completion", &native).json();
    assert_eq!((&native["stop_type"], &native["stopping_word"]), (&json!("word"), &json!(stop)));
}

#[test]
fn echoed_logprobs_are_the_models() {
    let server = server(&Default::default());
    let ids = model().tokenizer().encode("In the beginning God", true, true);
    let body = json!({ "prompt": ids, "echo": true, "logprobs": 2, "max_tokens": 0 });
    let answer = complete(&server, body)["choices"][0].clone();
    assert_eq!(answer["text"], model().tokenizer().decode(&ids));
    let told: Vec<Option<f64>> =
        serde_json::from_value(answer["logprobs"]["token_logprobs"].clone()).unwrap();
    let mut session = Session::new(model(), None, &Default::default()).unwrap();
    let mut expected = vec![None];
    session
        .eval_all(&ids, |i, logits| {
            let Some(&next) = ids.get(i + 1) else { return };
            let max = logits.iter().fold(f64::MIN, |max, &x| max.max(x.into()));
            let sum: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
            expected.push(Some(f64::from(logits[next as usize]) - max - sum.ln()));
        })
        .unwrap();
    assert_eq!(told.len(), expected.len());
    for (told, expected) in told.iter().zip(&expected).skip(1) {
        assert!((told.unwrap() - expected.unwrap()).abs() < 1e-5, "{told:?} {expected:?}");
    }
}

#[test]
fn an_answer_keeps_to_its_schema() {
    let server = server(&Default::default());
    let schema = json!({
        "type": "object",
        "properties": { "book": { "enum": ["Genesis", "Exodus"] }, "verse": { "type": "integer", "minimum": 1, "maximum": 99 } },
        "required": ["book", "verse"],
        "additionalProperties": false,
    });
    let body = json!({
        "messages": [{ "role": "user", "content": "Which?" }],
        "response_format": { "type": "json_schema", "json_schema": { "name": "place", "schema": schema } },
        "seed": 3,
        "max_tokens": 60,
    });
    let answer = server.post("/v1/chat/completions", &body).json();
    let content: Value =
        serde_json::from_str(answer["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert!(["Genesis", "Exodus"].contains(&content["book"].as_str().unwrap()));
    assert!((1..=99).contains(&content["verse"].as_i64().unwrap()));
    let native = json!({ "prompt": "x", "grammar": "root ::= \"yea\" | \"nay\"", "seed": 1 });
    let said = server.post("/completion", &native).json()["content"].clone();
    assert!(said == "yea" || said == "nay", "{said}");
    for (field, value) in
        [("grammar", json!("root ::= (")), ("json_schema", json!({ "not": {} })), ("regex", json!("("))]
    {
        let reply = server.post("/completion", &json!({ "prompt": "x", field: value }));
        assert_eq!(reply.status, 400, "{field}: {reply:?}");
    }
    let both = json!({ "prompt": "x", "grammar": "root ::= \"a\"", "json_schema": {} });
    assert_eq!(server.post("/completion", &both).json()["error"]["param"], "grammar");
}

#[test]
fn a_required_tool_is_called() {
    let server = server(&Default::default());
    let tool = json!({ "type": "function", "function": {
        "name": "lookup",
        "parameters": {
            "type": "object",
            "properties": { "chapter": { "type": "integer", "minimum": 1, "maximum": 50 } },
            "required": ["chapter"],
            "additionalProperties": false,
        },
    }});
    let mut body = json!({
        "messages": [{ "role": "user", "content": "Which?" }],
        "tools": [tool],
        "tool_choice": "required",
        "parallel_tool_calls": false,
        "seed": 5,
        "max_tokens": 100,
    });
    let answer = server.post("/v1/chat/completions", &body).json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("lookup")));
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!((1..=50).contains(&arguments["chapter"].as_i64().unwrap()));
    body["stream"] = true.into();
    let events = server.post("/v1/chat/completions", &body).events();
    let deltas: Vec<&Value> =
        events.iter().filter_map(|e| e["choices"][0]["delta"]["tool_calls"].get(0)).collect();
    assert_eq!(deltas[0]["function"], json!({ "name": "lookup", "arguments": "" }));
    assert!(deltas[1..].iter().all(|delta| delta.get("id").is_none() && delta["index"] == 0));
    let pieces: String =
        deltas.iter().map(|delta| delta["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(serde_json::from_str::<Value>(&pieces).unwrap(), arguments);
    body["response_format"] = json!({ "type": "json_object" });
    assert_eq!(server.post("/v1/chat/completions", &body).status, 400);
}

#[test]
fn a_common_start_is_taken_from_the_cache() {
    let server = server(&Default::default());
    let prompt = "And God said, ".repeat(60);
    let ask = || complete(&server, json!({ "prompt": prompt, "max_tokens": 1, "temperature": 0 }));
    let first = ask();
    let second = ask();
    assert_eq!(first["choices"][0]["text"], second["choices"][0]["text"]);
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert!(second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() >= 128);
}

#[test]
fn embeddings_have_the_models_width() {
    let server = server(&Default::default());
    let answer = server.post("/v1/embeddings", &json!({ "input": ["In the beginning", "Amen"] })).json();
    for entry in answer["data"].as_array().unwrap() {
        let vector: Vec<f64> = serde_json::from_value(entry["embedding"].clone()).unwrap();
        assert_eq!(vector.len(), model().hparams().n_embd);
        let length: f64 = vector.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
}

/// A command that does not outlive its test.
#[cfg(unix)]
struct Running(Child);

#[cfg(unix)]
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `qgguf serve` on a free port, and what it said until it listened.
#[cfg(unix)]
fn spawn(args: &[&str]) -> (Running, SocketAddr, Vec<String>) {
    let child = Command::new(env!("CARGO_BIN_EXE_qgguf"))
        .args(["serve", "--port", "0"])
        .args(args)
        .env("QGGUF_MODELS", Path::new(env!("CARGO_MANIFEST_DIR")).join("models"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Running(child);
    let mut said = Vec::new();
    let mut lines = BufReader::new(child.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    for line in lines.by_ref() {
        let address = line.split("listening on http://").nth(1).map(|address| address.parse().unwrap());
        said.push(line);
        if let Some(address) = address {
            thread::spawn(move || lines.for_each(drop));
            return (child, address, said);
        }
    }
    panic!("it ended with {}: {said:?}", child.0.wait().unwrap());
}

#[cfg(unix)]
#[test]
fn the_command_serves_and_ends_well_when_it_is_asked_to() {
    let (mut child, address, said) = spawn(&["-a", "kjv,bible", "-np", "2"]);
    let said = said.join("\n");
    for part in ["qgguf: kjv: qwen3", "2 requests at once", "of keys and values", "has no chat template"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let models = client::send(address, "GET", "/v1/models", &[], "").json();
    assert_eq!(models["data"][0]["aliases"], json!(["bible"]));
    let inspected = client::send(address, "GET", "/inspect", &[], "").json();
    assert!(inspected["tensors"].is_array(), "{inspected}");
    let body = json!({ "prompt": "In the beginning", "max_tokens": 3 }).to_string();
    assert_eq!(client::send(address, "POST", "/v1/completions", &[], &body).status, 200);
    let sent = Command::new("kill").args(["-s", "TERM", &child.0.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

#[cfg(unix)]
#[test]
fn a_port_that_is_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_qgguf")).args(["serve", "--port", &port]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("cannot listen on 127.0.0.1:{port}: ")), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
