//! `qgguf chat`, over a pipe.

use std::fs;

use serde_json::Value;

use crate::support::{failure, qgguf, stderr};

/// Special tokens around the contents, as in real templates, so that no token reaches over their ends.
const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}\
    assistant<|im_start|>";

/// Chats with the tiny model and a plain template; returns stdout and stderr.
fn chat(flags: &str, input: &str) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    let template = dir.path().join("template.jinja");
    fs::write(&template, TEMPLATE).unwrap();
    let mut command = qgguf("chat --temp 0 -n 6 --chat-template");
    let output = command.arg(&template).args(flags.split_whitespace()).write_stdin(input).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    (String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output))
}

/// The numbers of tokens that were evaluated as prompts.
fn prefills(stderr: &str) -> Vec<usize> {
    let counts = stderr.split("prefill ").skip(1);
    counts.map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn turns_reuse_what_they_share() {
    let (stdout, stderr) = chat("", "Who made the heaven?\nAnd who made the earth?\n");
    assert!(!stdout.trim().is_empty());
    let counts = prefills(&stderr);
    assert_eq!(counts.len(), 2, "{stderr}");
    let (_, alone) = chat("", "And who made the earth?\n");
    assert!(counts[1] <= prefills(&alone)[0] + 2, "{counts:?}, alone {alone}");
}

#[test]
fn a_cleared_conversation_begins_anew() {
    let answer = |input: &str| chat("", input).0;
    let once = answer("Who made the heaven?\n");
    assert_eq!(answer("Who made the heaven?\n/clear\nWho made the heaven?\n"), format!("{once}{once}"));
    assert_eq!(answer("/system Be brief.\nWho?"), chat("-sys Be", "/system Be brief.\n/clear\nWho?").0);
}

#[test]
fn a_conversation_can_be_saved() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("talk.json");
    let (stdout, stderr) =
        chat("-sys Be", &format!("one \\\ntwo\n/save {}\n/exit\nnot read\n", file.display()));
    assert!(stderr.contains("saved to"), "{stderr}");
    let messages: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let roles: Vec<_> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant"]);
    assert_eq!(messages[1]["content"], "one \ntwo");
    assert_eq!(messages[2]["content"].as_str().unwrap().trim_end(), stdout.trim_end());
}

#[test]
fn what_goes_wrong_in_a_turn_does_not_end_the_chat() {
    let long = "And it came to pass ".repeat(20);
    let (stdout, stderr) = chat("-c 40", &format!("{long}\n/frobnicate\n/save\n/help\nWho?\n"));
    for said in [
        "do not fit the context of 40",
        "no command /frobnicate",
        "/save needs a file name",
        "/system [TEXT]",
    ] {
        assert!(stderr.contains(said), "{said} in {stderr}");
    }
    assert_eq!(prefills(&stderr).len(), 1);
    assert!(!stdout.trim().is_empty());
}

#[test]
fn without_a_template_chatting_is_an_error() {
    let line = failure(&mut qgguf("chat"), 1);
    assert!(line.contains("no chat template") && line.contains("--chat-template"), "{line}");
}

/// A chat in the middle of a long answer, and its input.
#[cfg(unix)]
fn answering() -> (std::process::Child, std::process::ChildStdin) {
    use std::io::{Read, Write};

    let dir = tempfile::tempdir().unwrap();
    let template = dir.path().join("template.jinja");
    fs::write(&template, TEMPLATE).unwrap();
    let template = template.to_str().unwrap();
    let mut child =
        crate::support::spawn(&["chat", "-n", "1500", "--ignore-eos", "--chat-template", template]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"Speak.\n").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    (child, stdin)
}

#[cfg(unix)]
#[test]
fn a_request_to_end_ends_the_chat_and_not_only_the_answer() {
    let (mut child, _stdin) = answering();
    crate::support::signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[cfg(unix)]
#[test]
fn an_interrupt_stops_the_answer_and_the_next_one_leaves() {
    use crate::support::interrupt;
    use std::io::{Read, Write};

    let (mut child, mut stdin) = answering();
    let mut said = String::new();
    interrupt(&child);
    // The chat goes on.
    stdin.write_all(b"/system\n").unwrap();
    let mut stderr = child.stderr.take().unwrap();
    while !said.contains("system prompt: none") {
        let mut buffer = [0; 1024];
        let n = stderr.read(&mut buffer).unwrap();
        assert!(n > 0, "it ended: {said}");
        said += std::str::from_utf8(&buffer[..n]).unwrap();
    }
    assert!(said.contains("stopped: interrupted"), "{said}");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
