//! Who may ask, how much, and what they are told if not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use qgguf::server::{Keys, Limits, Options};
use serde_json::{Value, json};

use super::client::{self, begin, send};
use super::script::{Script, Server, eventually, quiet, served};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn hello() -> Value {
    json!({ "messages": [{ "role": "user", "content": "Hello" }] })
}

#[test]
fn keys_are_wanted_everywhere_but_for_the_health_and_the_page() {
    let options = Options { keys: Keys::new(["secret"]), ..quiet() };
    let server = Server::with(Script::new(&["x"]), options);
    for path in ["/health", "/v1/health", "/", "/app.js"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    for path in
        ["/v1/models", "/models", "/props", "/slots", "/api/tags", "/metrics", "/openapi.json", "/inspect"]
    {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
    let reply = server.post("/v1/chat/completions", &hello());
    assert_eq!(reply.status, 401);
    let error =
        json!({ "code": 401, "message": "Invalid API Key", "type": "authentication_error", "param": null });
    assert_eq!(reply.json(), json!({ "error": error }));
    let body = hello().to_string();
    let with =
        |key: (&str, &str)| send(server.address, "POST", "/v1/chat/completions", &[JSON, key], &body).status;
    assert_eq!(with(("Authorization", "Bearer secret")), 200);
    assert_eq!(with(("X-Api-Key", "secret")), 200);
    assert_eq!(with(("Authorization", "Bearer secret2")), 401);
}

#[test]
fn a_key_is_checked_before_the_body_is_read() {
    let options = Options { keys: Keys::new(["secret"]), ..quiet() };
    let server = Server::with(Script::new(&["x"]), options);
    // The body never comes.
    let mut stream =
        begin(server.address, "POST", "/v1/chat/completions", &[JSON, ("Content-Length", "1000")], "");
    assert_eq!(client::read(&mut stream).status, 401);
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    let options = Options {
        allowed_hosts: vec!["models.example".to_owned()],
        cors_origins: vec!["https://app.example".to_owned()],
        ..quiet()
    };
    let server = Server::with(Script::new(&["x"]), options);
    let get = |headers: &[(&str, &str)]| send(server.address, "GET", "/v1/models", headers, "");
    assert_eq!(get(&[("Host", "evil.example")]).status, 403);
    assert_eq!(get(&[("Host", "models.example:80")]).status, 200);
    assert_eq!(get(&[("Origin", "https://evil.example")]).status, 403);
    let own = format!("http://{}", server.address);
    assert_eq!(get(&[("Origin", &own)]).header("access-control-allow-origin"), None);
    let allowed = get(&[("Origin", "https://app.example")]);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(allowed.header("vary"), Some("Origin"));
    let preflight = [
        ("Origin", "https://app.example"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization, content-type"),
    ];
    let reply = send(server.address, "OPTIONS", "/v1/chat/completions", &preflight, "");
    assert_eq!(reply.status, 204);
    assert_eq!(reply.header("access-control-allow-headers"), Some("authorization, content-type"));
}

#[test]
fn a_page_cannot_send_a_form() {
    let server = Server::start(Script::new(&["x"]));
    let own = format!("http://{}", server.address);
    let post = |headers: &[(&str, &str)]| {
        send(server.address, "POST", "/v1/chat/completions", headers, &hello().to_string()).status
    };
    assert_eq!(post(&[("Origin", &own), ("Content-Type", "text/plain")]), 415);
    assert_eq!(post(&[("Origin", &own), JSON]), 200);
    // As curl -d sends it.
    assert_eq!(post(&[("Content-Type", "application/x-www-form-urlencoded")]), 200);
}

#[test]
fn every_family_has_errors_of_its_own_shape() {
    let server = Server::start(Script::new(&["x"]));
    let openai = server.post("/v1/chat/completions", &json!({}));
    assert_eq!(openai.json()["error"]["message"], "messages: missing");
    assert_eq!(openai.header("content-type"), Some("application/json; charset=utf-8"));
    let anthropic = server.post("/v1/messages", &json!({}));
    let error = json!({ "type": "invalid_request_error", "message": "messages: missing" });
    assert_eq!(anthropic.json(), json!({ "type": "error", "error": error }));
    let ollama = server.post("/api/chat", &json!({}));
    assert_eq!((ollama.status, ollama.json()), (400, json!({ "error": "messages: missing" })));
    let missing = server.get("/v1/nothing");
    assert_eq!((missing.status, &missing.json()["error"]["message"]), (404, &json!("File Not Found")));
    assert_eq!(server.get("/api/nothing").json(), json!({ "error": "File Not Found" }));
    let method = server.get("/v1/chat/completions");
    assert_eq!((method.status, &method.json()["error"]["code"]), (405, &json!(405)));
    assert_eq!(send(server.address, "POST", "/health", &[JSON], "{}").status, 405);
    let malformed = send(server.address, "POST", "/v1/messages", &[JSON], "{\"a\":");
    assert!(malformed.json()["error"]["message"].as_str().unwrap().starts_with("the body is not valid JSON"));
    assert_eq!(malformed.status, 400);
}

#[test]
fn bodies_have_a_limit_announced_or_not() {
    let limits = Limits { body: 1000, messages: 3, ..Limits::default() };
    let server = Server::with(Script::new(&["x"]), Options { limits, ..quiet() });
    let long = json!({ "messages": [{ "role": "user", "content": "x".repeat(2000) }] });
    let reply = server.post("/v1/chat/completions", &long);
    assert_eq!(reply.status, 413, "{reply:?}");
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let _ = stream.write_all(format!("800\r\n{}\r\n0\r\n\r\n", "x".repeat(0x800)).as_bytes());
    assert_eq!(client::read(&mut stream).status, 413);
    let many = json!({ "messages": vec![json!({ "role": "user", "content": "" }); 4] });
    assert_eq!(server.post("/v1/chat/completions", &many).json()["error"]["param"], "messages");
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    let server = Server::start(Script::new(&["x"]).with_capacity(1).closed());
    let body = hello().to_string();
    let mut first = begin(server.address, "POST", "/v1/chat/completions", &[JSON], &body);
    eventually("the first is taken", || !server.script.prompts.lock().unwrap().is_empty());
    let second = server.post("/v1/chat/completions", &hello());
    assert_eq!((second.status, second.header("retry-after")), (429, Some("1")));
    assert_eq!(second.json()["error"]["type"], "rate_limit_error");
    server.script.open();
    assert_eq!(client::read(&mut first).status, 200);
}

#[test]
fn a_request_half_taken_is_given_up() {
    let server = Server::start(Script::new(&["x"]).with_capacity(1).closed());
    let mut body = hello();
    body["n"] = json!(2);
    assert_eq!(server.post("/v1/chat/completions", &body).status, 429);
    eventually("the first answer is cancelled", || server.script.n_cancelled.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_server_that_is_loading_says_so() {
    let script = Arc::new(Script::new(&["x"]));
    let server = Server::loading(script.clone(), quiet());
    for reply in
        [server.get("/health"), server.get("/v1/models"), server.post("/v1/chat/completions", &hello())]
    {
        assert_eq!(reply.status, 503);
        let error = &reply.json()["error"];
        assert_eq!(
            (&error["type"], &error["message"]),
            (&json!("unavailable_error"), &json!("Loading model"))
        );
    }
    server.app.ready(vec![served("tiny", script)]);
    assert_eq!(server.get("/health").json(), json!({ "status": "ok" }));
}

#[test]
fn several_models_are_chosen_by_name() {
    let first = Arc::new(Script::new(&["from the first"]));
    let second = Arc::new(Script::new(&["from the second"]));
    let server = Server::loading(first.clone(), quiet());
    server.app.ready(vec![served("first", first), served("second", second)]);
    let ask = |model: &str| {
        let mut body = hello();
        body["model"] = model.into();
        server.post("/v1/chat/completions", &body)
    };
    assert_eq!(ask("second-alias").json()["choices"][0]["message"]["content"], "from the second");
    assert_eq!(ask("first").json()["model"], "first");
    let unknown = ask("third");
    assert_eq!((unknown.status, &unknown.json()["error"]["param"]), (404, &json!("model")));
    assert_eq!(server.get("/v1/models").json()["data"].as_array().unwrap().len(), 2);
    assert_eq!(server.get("/v1/models/second").json()["id"], "second");
    assert_eq!(server.get("/v1/models/third").status, 404);
}

#[test]
fn a_client_that_leaves_cancels_its_answer() {
    for stream in [false, true] {
        let server = Server::start(Script::new(&["x"]).closed());
        let mut body = hello();
        body["stream"] = stream.into();
        let connection = begin(server.address, "POST", "/v1/chat/completions", &[JSON], &body.to_string());
        eventually("it is taken", || !server.script.prompts.lock().unwrap().is_empty());
        drop(connection);
        eventually("it is cancelled", || server.script.n_cancelled.load(Ordering::SeqCst) == 1);
    }
}

#[test]
fn a_client_that_does_not_read_is_let_go() {
    let long = "word ".repeat(3000);
    let options = Options { timeout: Duration::from_millis(300), ..quiet() };
    let server = Server::with(Script::new(&[&long]), options);
    let mut body = hello();
    body["stream"] = true.into();
    body["n"] = 64.into();
    let mut connection = begin(server.address, "POST", "/v1/chat/completions", &[JSON], &body.to_string());
    let mut first = [0; 10];
    connection.read_exact(&mut first).unwrap();
    // No slot waits for the reader.
    eventually("all answers are over", || {
        server.get("/slots").json().to_string().matches("true").count() == 0
    });
    std::thread::sleep(Duration::from_millis(600));
    let mut rest = String::new();
    let _ = connection.read_to_string(&mut rest);
    assert!(!rest.contains("[DONE]"), "the whole answer was kept for a client that did not read");
}

#[test]
fn the_head_of_a_request_has_to_come_in_time() {
    let options = Options { header_timeout: Duration::from_millis(100), ..quiet() };
    let server = Server::with(Script::new(&["x"]), options);
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[test]
fn running_requests_are_finished_before_the_end() {
    let mut server = Server::start(Script::new(&["to the end"]).closed());
    let mut running = begin(server.address, "POST", "/v1/chat/completions", &[JSON], &hello().to_string());
    eventually("it is taken", || !server.script.prompts.lock().unwrap().is_empty());
    server.begin_to_end();
    eventually("no new connection", || TcpStream::connect(server.address).is_err());
    server.script.open();
    let reply = client::read(&mut running);
    assert_eq!(reply.json()["choices"][0]["message"]["content"], "to the end");
    assert!(server.end());
}

#[test]
fn a_request_that_takes_too_long_is_broken_off_at_the_end() {
    let options = Options { drain_timeout: Duration::from_millis(50), ..quiet() };
    let mut server = Server::with(Script::new(&["x"]).closed(), options);
    let running = begin(server.address, "POST", "/v1/chat/completions", &[JSON], &hello().to_string());
    eventually("it is taken", || !server.script.prompts.lock().unwrap().is_empty());
    assert!(!server.end());
    drop(running);
}

#[test]
fn responses_carry_the_id_of_their_request() {
    let server = Server::start(Script::new(&["x"]));
    let given = send(server.address, "GET", "/health", &[("X-Request-Id", "abc-1")], "");
    assert_eq!(given.header("x-request-id"), Some("abc-1"));
    let own = server.get("/nothing");
    assert!(own.header("x-request-id").unwrap().starts_with("req-"));
    assert_eq!(own.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn a_prefix_stands_before_every_path() {
    let server = Server::with(Script::new(&["x"]), Options { prefix: "/llm".to_owned(), ..quiet() });
    assert_eq!(server.get("/llm/v1/models").status, 200);
    assert_eq!(server.get("/v1/models").status, 404);
    assert_eq!(server.post("/llm/api/chat", &json!({})).json(), json!({ "error": "messages: missing" }));
}

#[test]
fn counters_have_llama_servers_names() {
    let mut options = quiet();
    assert_eq!(Server::with(Script::new(&["x"]), options.clone()).get("/metrics").status, 501);
    options.endpoints.metrics = true;
    let server = Server::with(Script::new(&["x"]), options);
    server.get("/health");
    let reply = server.get("/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        "llamacpp:prompt_tokens_total 10",
        "llamacpp:prompt_tokens_seconds 2",
        "llamacpp:predicted_tokens_seconds 5",
        "llamacpp:requests_deferred 1",
        "llamacpp:n_busy_slots_per_decode 1.5",
        "llamacpp:kv_cache_usage_ratio 0.25",
        "llamacpp:time_to_first_token_seconds_count 0",
        "llamacpp:http_responses_total{status=\"200\"} 1",
    ] {
        assert!(reply.body.lines().any(|found| found == line), "{line} in {}", reply.body);
    }
}
