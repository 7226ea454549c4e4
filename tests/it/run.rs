//! `qgguf run`.

use std::fs;
use std::io::Read;

use serde_json::Value;

use crate::support::{failure, json, qgguf, spawn, stderr, stdout, tiny_model};

/// What llama.cpp's greedy decoding makes of "In the beginning" with this file.
const GREEDY: &str = " of the world, and the world, and";

const LONG_PROMPT: &str = "And it came to pass in those days, that there went out a decree, and all the people \
    went every one unto his own city, and the king spake unto the children of Israel";

fn tokens(value: &Value) -> Vec<u64> {
    value["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

#[test]
fn the_greedy_text_is_that_of_llama_cpp() {
    let result = json(qgguf("run --temp 0 -n 24 --json -p").arg("In the beginning"));
    let text = result["text"].as_str().unwrap();
    assert!(text.starts_with(GREEDY), "{text}");
    assert_eq!(result["stop"], "length");
    assert_eq!(tokens(&result).len(), 24);
    assert_eq!(result["settings"]["sampling"]["temperature"], 0.0);
    assert!(result["timings"]["decode_tokens_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn text_goes_to_stdout_and_everything_else_to_stderr() {
    let output = qgguf("run --temp 0 -n 4 -p").arg("In the beginning").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout.clone()).unwrap(), "In the beginning of the world,\n");
    let stderr = stderr(&output);
    for said in
        ["tiny built-in model", "kjv-tiny-Q4_K_M.gguf", "./quickstart", "temperature 0", "prefill", "tok/s"]
    {
        assert!(stderr.contains(said), "{said} in {stderr}");
    }
    let text = stdout(qgguf("run --temp 0 -n 4 --no-display-prompt -p").arg("In the beginning"));
    assert_eq!(text, " of the world,\n");
}

#[test]
fn threads_ubatch_and_instruction_set_change_nothing() {
    let run = |flags: &str, isa: &str| {
        let mut command = qgguf("run --seed 3 -n 12 --json -p");
        command.arg(LONG_PROMPT).args(flags.split_whitespace());
        if !isa.is_empty() {
            command.env("QGGUF_ISA", isa);
        }
        let result = json(&mut command);
        if !isa.is_empty() {
            assert_eq!(result["settings"]["isa"], isa);
        }
        tokens(&result)
    };
    let expected = run("-t 1 -ub 512", "");
    assert_eq!(expected.len(), 12);
    for threads in [1, 2, 3] {
        for ubatch in [1, 7, 512] {
            assert_eq!(run(&format!("-t {threads} -ub {ubatch}"), ""), expected, "-t {threads} -ub {ubatch}");
        }
    }
    assert_eq!(run("-t 2 -ub 7", "portable"), expected);
}

#[test]
fn a_seed_gives_the_same_text_again() {
    let run = |seed: &str| stdout(qgguf("run -n 24 -p And --seed").arg(seed));
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
    let output = qgguf("run -n 1 -p And --seed 7").output().unwrap();
    assert!(stderr(&output).contains("seed 7"));
}

#[test]
fn a_stop_string_ends_the_text_and_is_not_printed() {
    for flag in ["--stop", "-r", "--reverse-prompt"] {
        let result =
            json(qgguf("run --temp 0 -n 24 --json -p").args(["In the beginning", flag, "world, and"]));
        assert_eq!(result["text"], " of the ");
        assert_eq!(result["stop"], "stop");
    }
}

#[test]
fn no_tokens_can_be_asked_for() {
    let result = json(&mut qgguf("run -n 0 --json -p And"));
    assert_eq!((tokens(&result).len(), &result["stop"]), (0, &"length".into()));
}

#[test]
fn the_prompt_may_come_from_a_file_or_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompt.txt");
    fs::write(&file, "In the beginning\n").unwrap();
    let from_flag = json(qgguf("run --temp 0 -n 4 --json -p").arg("In the beginning"));
    let from_file = json(qgguf("run --temp 0 -n 4 --json -f").arg(&file));
    let from_stdin = json(qgguf("run --temp 0 -n 4 --json").write_stdin("In the beginning\n"));
    for other in [from_file, from_stdin] {
        assert_eq!(other["prompt"], "In the beginning");
        assert_eq!(other["prompt_tokens"], from_flag["prompt_tokens"]);
        assert_eq!(other["tokens"], from_flag["tokens"]);
    }
    let line = failure(qgguf("run -f").arg(dir.path().join("missing.txt")), 1);
    assert!(line.contains("cannot read") && line.contains("missing.txt"), "{line}");
    fs::write(&file, b"ab\xff").unwrap();
    let line = failure(qgguf("run -f").arg(&file), 1);
    assert!(line.contains("prompt.txt is not UTF-8 (byte 2)"), "{line}");
}

#[test]
fn escapes_are_processed_unless_forbidden() {
    let prompt = |flag: &str| json(qgguf("run -n 0 --json -p").args([r"a\nb", flag]))["prompt"].clone();
    assert_eq!(prompt("-e"), "a\nb");
    assert_eq!(prompt("--no-escape"), r"a\nb");
    // A prompt may look like a flag.
    assert_eq!(json(&mut qgguf("run -n 0 --json -p -ub"))["prompt"], "-ub");
}

#[test]
fn a_prompt_longer_than_the_context_is_an_error_with_both_numbers() {
    let n = json(qgguf("run -n 0 --json -p").arg(LONG_PROMPT))["prompt_tokens"].as_array().unwrap().len();
    let line = failure(qgguf("run -c 8 -p").arg(LONG_PROMPT), 1);
    assert!(line.starts_with("qgguf: ") && line.contains(&format!("{n} tokens")), "{line}");
    assert!(line.contains("context of 8"), "{line}");
}

#[test]
fn a_full_context_stops_or_shifts() {
    let run =
        |flags: &str| json(qgguf("run -c 8 --temp 0 -n 20 --json -p And").args(flags.split_whitespace()));
    let full = run("");
    assert_eq!(full["stop"], "context");
    assert!(full["stop_detail"].as_str().unwrap().contains("context of 8"));
    let shifted = run("--context-shift --keep 1");
    assert_eq!((tokens(&shifted).len(), &shifted["stop"]), (20, &"length".into()));
}

#[test]
fn an_empty_prompt_is_an_error() {
    let line = failure(qgguf("run -p").arg(""), 1);
    assert!(line.starts_with("qgguf: ") && line.contains("the prompt is empty"), "{line}");
}

#[test]
fn a_file_that_is_no_model_is_named() {
    let line = failure(&mut qgguf("run -p And -m /nonexistent/model.gguf"), 1);
    assert!(line.starts_with("qgguf: ") && line.matches("/nonexistent/model.gguf").count() == 1, "{line}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text.gguf");
    fs::write(&file, "this is no model, whatever its name may say").unwrap();
    let line = failure(qgguf("run -p And -m").arg(&file), 1);
    assert!(line.contains("text.gguf"), "{line}");
    let line = failure(qgguf("run -p And").env("QGGUF_MODELS", dir.path()), 1);
    assert!(line.contains("-m FILE") && line.contains(dir.path().to_str().unwrap()), "{line}");
}

#[test]
fn a_wrong_command_line_is_code_2() {
    let cases = [
        "run -p And --no-such-flag",
        "run -p And -ub 0",
        "run -p And -ctk q4_0",
        "run -p And -t many",
        "run -p And -t 100000",
        "run -p And --isa sse9",
        "run -p And --temp nan",
        "run -p And --top-p -1",
        "run -p And --repeat-penalty 0",
        "run -p And -l 5",
        "run -p And -l 4000000000+1",
        "run -p And --samplers top_k;magic",
        "run -p And --preset gpt",
        "run -p And -f file",
        "run -p And --chat-template-kwargs 5",
        "frobnicate",
        "",
    ];
    for case in cases {
        failure(&mut qgguf(case), 2);
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    for args in ["run -n 60 -p And", "run -n 60 -p And --json", "completions bash", "run --help"] {
        let mut child = spawn(&args.split_whitespace().collect::<Vec<_>>());
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(child.wait().unwrap().success(), "{args}: {stderr}");
        assert!(!stderr.contains("panic") && !stderr.to_lowercase().contains("pipe"), "{args}: {stderr}");
    }
}

#[test]
fn a_token_can_be_banned() {
    let free = json(qgguf("run --temp 0 -n 1 --json -p").arg("In the beginning"));
    let banned = format!("{}-inf", tokens(&free)[0]);
    let other = json(qgguf("run --temp 0 -n 1 --json -l").arg(banned).args(["-p", "In the beginning"]));
    assert_ne!(free["tokens"], other["tokens"]);
}

#[test]
fn a_stop_text_that_is_a_control_token_stops_at_the_first() {
    // Token 4094 is <|im_start|>, which has no text; the bias makes it the only choice.
    let run = |stop: &str| json(qgguf("run -p Hello --temp 0 -l 4094+100 -n 6 --json -r").arg(stop));
    let stopped = run("<|im_start|>");
    assert_eq!((tokens(&stopped), stopped["stop"].as_str()), (vec![4094], Some("stop")), "{stopped}");
    assert_eq!(stopped["text"], "");
    let other = run("<|im_end|>");
    assert_eq!((tokens(&other), other["stop"].as_str()), (vec![4094; 6], Some("length")), "{other}");
}

#[test]
fn a_repetition_is_left_by_dry() {
    let run = |flags: &str| {
        let mut command = qgguf("run --temp 0 -n 12 --json -p");
        tokens(&json(command.arg("the sea and the sea and the sea and").args(flags.split_whitespace())))
    };
    let plain = run("");
    assert_ne!(run("--dry-multiplier 50"), plain);
    assert_eq!(run("--dry-multiplier 50 --dry-penalty-last-n 0"), plain);
    assert_eq!(run("--dry-multiplier 50 --samplers top_k"), plain);
}

#[test]
fn the_settings_in_force_are_said() {
    let said = |flags: &str| {
        let output = qgguf("run -n 1 -p And").args(flags.split_whitespace()).output().unwrap();
        assert!(output.status.success());
        stderr(&output)
    };
    assert!(said("").contains("top_k 40 > typ_p off > top_p 0.95"), "{}", said(""));
    let preset = said("--preset qwen3 --top-k 5 --repeat-penalty 1.1");
    assert!(preset.contains("from qwen3") && preset.contains("top_k 5 > typ_p off > top_p 0.8"), "{preset}");
    assert!(preset.contains("repeat 1.1"), "{preset}");
    assert!(said("--samplers top_k;temperature;infill").contains("not available: infill"));
    let letters = said("--sampler-seq dxat --dry-multiplier 0.8 --xtc-probability 0.5 --adaptive-target 0.3");
    let shown = "dry over the last 64 (0.8 times 1.75 to the power of repeated tokens beyond 2) > xtc 0.5 (from 0.1) \
                 > adaptive_p 0.3 (decay 0.9) > temperature 0.8 > draw";
    assert!(letters.contains(shown), "{letters}");
    let mirostat = said("--mirostat 2 --mirostat-ent 4 --dynatemp-range 0.3");
    assert!(
        mirostat.contains("temperature 0.8 ± 0.3 (exponent 1) > mirostat 2 (tau 4, eta 0.1)"),
        "{mirostat}"
    );
    let verbose = said("-v -ctk f32");
    assert!(verbose.contains("keys f32, values f16") && verbose.contains("mapped"), "{verbose}");
    let verbose = said("-v -ctk q8_0 -ctv Q8_0");
    assert!(verbose.contains("keys q8_0, values q8_0"), "{verbose}");
}

#[test]
fn a_chat_template_makes_the_prompt_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let template = dir.path().join("template.jinja");
    fs::write(&template, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ extra }}")
        .unwrap();
    let command = |flags: &str| {
        let mut command = qgguf("run --temp 0 -n 3 --json -p And");
        command.args(flags.split_whitespace()).arg("--chat-template").arg(&template);
        command
    };
    let raw = json(qgguf("run --temp 0 -n 3 --json -p").arg("system: Hi\nuser: And\nx"));
    let mut chat = command("-sys Hi");
    let chat = json(chat.args(["--chat-template-kwargs", r#"{"extra": "x"}"#]));
    assert_eq!(chat["prompt_tokens"], raw["prompt_tokens"]);
    assert_eq!(chat["tokens"], raw["tokens"]);
    fs::write(&template, "{% for %}").unwrap();
    let line = failure(&mut command(""), 1);
    assert!(line.contains("template.jinja"), "{line}");
}

#[test]
fn every_intermediate_can_be_traced() {
    let run = |ubatch: &str| {
        let dir = tempfile::tempdir().unwrap();
        json(
            qgguf("run --temp 0 -n 2 --json -p")
                .args([LONG_PROMPT, "-ub", ubatch, "--trace"])
                .arg(dir.path()),
        );
        let mut files: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
            .collect();
        files.sort();
        files
    };
    let files = run("512");
    assert!(files.len() > 4 * 5, "{} files", files.len());
    assert!(files.iter().all(|(name, bytes)| name.ends_with(".npy") && bytes.starts_with(b"\x93NUMPY")));
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let split = run("5");
    assert_eq!(names(&split), names(&files));
    let layers = |files: Vec<(String, Vec<u8>)>| files.into_iter().filter(|(name, _)| name.contains("-0."));
    assert!(layers(files).eq(layers(split)));
}

#[test]
fn a_context_of_0_is_the_trained_one() {
    let result = json(qgguf("run -n 0 --json -c 0 -p And -m").arg(tiny_model()));
    let trained = json(&mut qgguf("run -n 0 --json -p And"));
    assert_eq!(result["settings"]["n_ctx"], trained["settings"]["n_ctx"]);
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_text_but_not_without_a_word() {
    let mut child = spawn(&["run", "-n", "2000", "--ignore-eos", "--no-display-prompt", "-p", "And"]);
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    crate::support::interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let stderr = stderr(&output);
    assert!(stderr.contains("interrupted") && stderr.contains("tok/s"), "{stderr}");
}

#[test]
fn the_last_of_a_repeated_flag_wins() {
    let text = stdout(&mut qgguf("run -p In --temp 0 -n 9 -n 1 --no-display-prompt"));
    assert_eq!(text, stdout(&mut qgguf("run -p In --temp 0 -n 1 --no-display-prompt")));
}

#[test]
fn an_empty_instruction_set_variable_is_none() {
    stdout(qgguf("run -p In --temp 0 -n 1").env("QGGUF_ISA", ""));
    let line = failure(qgguf("run -p In --temp 0 -n 1").env("QGGUF_ISA", "sse9"), 2);
    assert!(line.contains("QGGUF_ISA: unknown instruction set \"sse9\" (known: portable, avx2"), "{line}");
}

#[test]
fn a_prompt_that_does_not_fit_prints_nothing() {
    let output = qgguf("run -p In_the_beginning -n 3 -c 1").output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
}

#[cfg(unix)]
#[test]
fn a_pipe_is_no_model() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.gguf");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let line = failure(qgguf("inspect").arg(&pipe), 1);
    assert!(line.ends_with("pipe.gguf: not a regular file"), "{line}");
}

#[test]
fn a_model_in_memory_gives_what_a_mapped_one_gives() {
    let text = |flags: &[&str]| stdout(qgguf("run --temp 0 -n 8 -p").arg("In the beginning").args(flags));
    assert_eq!(text(&["--no-mmap"]), text(&[]));
    assert_eq!(text(&["-tb", "3", "-t", "1"]), text(&[]));
}

#[test]
fn the_text_keeps_to_a_schema_or_a_grammar() {
    let schema = r#"{"type":"object","properties":{"day":{"enum":["first","second"]}},"required":["day"],"additionalProperties":false}"#;
    let text = stdout(qgguf("run --no-display-prompt --temp 0 -p In -j").arg(schema));
    let value: Value = serde_json::from_str(&text).unwrap();
    assert!(value["day"] == "first" || value["day"] == "second", "{text}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("answer.gbnf");
    std::fs::write(&file, "root ::= \" the \" (\"day\" | \"night\") \".\"\n").unwrap();
    let text = stdout(qgguf("run --no-display-prompt --temp 0 -p In --grammar-file").arg(&file));
    assert!([" the day.\n", " the night.\n"].contains(&text.as_str()), "{text:?}");
}

#[test]
fn a_form_that_cannot_be_kept_to_is_an_error() {
    let error = |flags: &[&str], code| failure(qgguf("run -p In").args(flags), code);
    assert_eq!(
        error(&["-j", r#"{"not": {}}"#], 1),
        "qgguf: --json-schema: JSON schema at #/not: this keyword is not supported"
    );
    assert_eq!(
        error(&["--grammar", "root = 1"], 1),
        "qgguf: --grammar: grammar at line 1, column 6: expected ::=, found '='"
    );
    assert!(error(&["--json-schema", "{"], 1).starts_with("qgguf: --json-schema: not JSON: "));
    assert_eq!(
        error(&["-j", "{}", "--ignore-eos"], 2),
        "qgguf: --json-schema: the text has to end, which --ignore-eos forbids (see --help)"
    );
}
