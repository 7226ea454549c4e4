//! `qgguf bench`: llama-bench's flags, tests and formats; the limits beside them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::fixtures::fixtures;
use crate::support::{failure, json, qgguf, stderr, stdout, tiny_model};

/// The fields of llama-bench, in its order.
const FIELDS: &str = "build_commit build_number cpu_info gpu_info backends model_filename model_type model_size \
    model_n_params n_batch n_ubatch n_threads cpu_mask cpu_strict poll type_k type_v n_gpu_layers n_cpu_moe \
    split_mode main_gpu no_kv_offload flash_attn devices tensor_split tensor_buft_overrides load_mode lazy_mode \
    embeddings no_op_offload no_host repack fit_target fit_min_ctx n_prompt n_gen n_depth test_time avg_ns \
    stddev_ns avg_ts stddev_ts";
/// What follows them in every row, and what follows with the limits.
const MORE_FIELDS: &str = "use_mmap isa";
const LIMIT_FIELDS: &str = "read_bytes_per_second int8_multiply_adds_per_second f32_multiply_adds_per_second \
    limit_ts limit_percent";

/// A quick test of the tiny model without limits, and more flags.
fn bench(args: &str) -> assert_cmd::Command {
    qgguf(&format!("bench --no-limits -r 1 --no-warmup {args}"))
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// The cells of a row of a Markdown table.
fn cells(line: &str) -> Vec<String> {
    let inner = line.strip_prefix('|').unwrap().strip_suffix('|').unwrap();
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

fn jsonl(command: &mut assert_cmd::Command) -> Vec<Value> {
    stdout(command).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The names of tests, as the table has them.
fn names(args: &str) -> Vec<String> {
    let table = stdout(&mut bench(args));
    let column = cells(table.lines().next().unwrap()).iter().position(|name| name == "test").unwrap();
    table
        .lines()
        .skip(2)
        .take_while(|line| !line.is_empty())
        .map(|line| cells(line)[column].clone())
        .collect()
}

#[test]
fn the_table_is_llama_benchs() {
    let table = stdout(&mut bench("-t 2 -p 8 -n 2 -r 3"));
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "| model                          |       size |     params | backend    | threads |            test |                  t/s |",
            "| ------------------------------ | ---------: | ---------: | ---------- | ------: | --------------: | -------------------: |",
        ]
    );
    let row = cells(lines[2]);
    assert_eq!(row[..6], ["qwen3 5.0M Q4_K - Medium", "3.07 MiB", "4.98 M", "CPU", "2", "pp8"]);
    let (mean, deviation) = row[6].split_once(" ± ").unwrap();
    assert!(mean.parse::<f64>().unwrap() > 0.0 && deviation.parse::<f64>().unwrap() >= 0.0, "{}", row[6]);
    assert_eq!(lines[2].chars().count(), lines[0].len());
    assert_eq!(cells(lines[3])[5], "tg2");
    assert_eq!(lines[4..], ["", concat!("build: ", env!("CARGO_PKG_VERSION"), " (100)")]);
}

#[test]
fn parameters_that_vary_or_are_not_the_default_have_a_column() {
    let header = |args: &str| cells(stdout(&mut bench(args)).lines().next().unwrap());
    let always = |more: &str| words(&format!("model size params backend threads {more} test t/s")).join(" ");
    for (args, more) in [
        ("-t 1 -p 4 -n 0 -b 2048 -ub 512 -ctk f16 -ctv f16 -d 1", ""),
        ("-p 4 -n 0 -b 2048,4", "n_batch"),
        ("-p 4 -n 0 -fa 1 -lm mmap -ctv f32 -ctk f32 -ub 2 -b 8", "n_batch n_ubatch type_k type_v fa lm"),
        ("-p 4 -n 0 -ctk f16,f16 -ngl 99", "type_k"),
    ] {
        assert_eq!(header(args).join(" "), always(more), "{args}");
    }
}

#[test]
fn tests_are_named_by_what_they_do() {
    assert_eq!(names("-p 4,0,2 -n 3 -pg 2,1 -pg 0,2 -pg 0,0"), ["pp4", "pp2", "tg3", "pp2+tg1", "tg2"]);
    assert_eq!(
        names("-p 2 -n 1 -pg 2,1 -d 0,5"),
        ["pp2", "tg1", "pp2+tg1", "pp2 @ d5", "tg1 @ d5", "pp2+tg1 @ d5"]
    );
}

#[test]
fn lists_multiply_in_the_order_of_llama_bench() {
    let rows = jsonl(&mut bench("-o jsonl -t 1,2 -p 2-4+2 -n 1 -d 0 -d 3 -ub 8,4 -b 4 -ctk f16,f32"));
    let values = |field: &str| rows.iter().map(|row| row[field].to_string()).collect::<Vec<_>>().join(" ");
    assert_eq!(rows.len(), 48);
    assert!(values("n_ubatch").starts_with("8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 4"));
    assert!(values("type_k").starts_with(&format!("{}\"f32\"", "\"f16\" ".repeat(12))));
    assert!(values("n_threads").starts_with("1 1 1 1 1 1 2 2 2 2 2 2 1"));
    assert!(values("n_depth").starts_with("0 0 0 3 3 3 0"));
    assert!(values("n_prompt").starts_with("2 4 0 2 4 0"));
    assert!(values("n_gen").starts_with("0 0 1 0 0 1"));
}

#[test]
fn several_models_come_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("other.gguf");
    fs::copy(tiny_model(), &other).unwrap();
    let (tiny, other) = (tiny_model().display().to_string(), other.display().to_string());
    let rows = jsonl(&mut bench(&format!("-o jsonl -p 1 -n 0 -m {tiny},{other} -m {tiny}")));
    let files: Vec<&str> = rows.iter().map(|row| row["model_filename"].as_str().unwrap()).collect();
    assert_eq!(files, [&tiny, &other, &tiny]);
}

#[test]
fn json_has_llama_benchs_fields_and_the_samples() {
    let rows = json(&mut qgguf("bench --no-limits -p 4 -n 1 -r 3 -t 2 -o json"));
    assert_eq!(rows.as_array().unwrap().len(), 2);
    let row = &rows[0];
    let expected = [words(FIELDS), words(MORE_FIELDS), vec!["samples_ns", "samples_ts"]].concat();
    assert_eq!(row.as_object().unwrap().keys().collect::<Vec<_>>(), expected);
    for (field, value) in [
        ("backends", "\"CPU\""),
        ("gpu_info", "\"\""),
        ("model_type", "\"qwen3 5.0M Q4_K - Medium\""),
        ("model_size", "3220480"),
        ("model_n_params", "4984064"),
        ("n_batch", "2048"),
        ("n_ubatch", "512"),
        ("n_threads", "2"),
        ("type_k", "\"f16\""),
        ("n_gpu_layers", "-1"),
        ("flash_attn", "-1"),
        ("embeddings", "false"),
        ("use_mmap", "true"),
        ("n_prompt", "4"),
        ("n_gen", "0"),
        ("n_depth", "0"),
    ] {
        assert_eq!(row[field].to_string(), value, "{field}");
    }
    let time = row["test_time"].as_str().unwrap();
    assert!(time.len() == 20 && time.ends_with('Z') && time.contains('T'), "{time}");

    let samples = |name: &str| row[name].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let (ns, ts): (Vec<f64>, Vec<f64>) = (samples("samples_ns"), samples("samples_ts"));
    assert_eq!((ns.len(), ts.len()), (3, 3));
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs() + 1.0;
    assert!(ns.iter().zip(&ts).all(|(ns, ts)| close(*ts, 4e9 / ns)), "{row}");
    assert!(close(row["avg_ns"].as_f64().unwrap(), ns.iter().sum::<f64>() / 3.0), "{row}");
    assert!(close(row["avg_ts"].as_f64().unwrap(), ts.iter().sum::<f64>() / 3.0), "{row}");
}

#[test]
fn csv_quotes_every_value() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("a\"b.gguf");
    fs::copy(tiny_model(), &model).unwrap();
    let csv = stdout(bench("-o csv -p 2 -n 1 -m").arg(&model));
    let lines: Vec<&str> = csv.lines().collect();
    let header: Vec<&str> = lines[0].split(',').collect();
    assert_eq!(header, [words(FIELDS), words(MORE_FIELDS)].concat());
    assert_eq!(lines.len(), 3);
    for (line, n_prompt) in lines[1..].iter().zip(["2", "0"]) {
        let values: Vec<&str> =
            line.strip_prefix('"').unwrap().strip_suffix('"').unwrap().split("\",\"").collect();
        let value = |name: &str| values[header.iter().position(|&field| field == name).unwrap()];
        assert_eq!(values.len(), header.len());
        assert!(value("model_filename").ends_with("a\"\"b.gguf"), "{line}");
        assert_eq!((value("n_prompt"), value("repack"), value("tensor_split")), (n_prompt, "1", "0.00"));
        assert!(value("avg_ts").parse::<f64>().unwrap() > 0.0);
    }
}

#[test]
fn sql_makes_a_table_and_fills_it() {
    let sql = stdout(&mut bench("-o sql -p 2 -n 1"));
    let (table, inserts) = sql.split_once(");\n\n").unwrap();
    let columns: Vec<&str> = table.lines().skip(1).map(|line| line.trim().trim_end_matches(',')).collect();
    assert!(table.starts_with("CREATE TABLE IF NOT EXISTS llama_bench (\n"), "{table}");
    let names: Vec<&str> = columns.iter().map(|column| column.split_once(' ').unwrap().0).collect();
    assert_eq!(names, [words(FIELDS), words(MORE_FIELDS)].concat());
    for column in ["model_type TEXT", "n_batch INTEGER", "embeddings INTEGER", "avg_ts REAL"] {
        assert!(columns.contains(&column), "{column} in {table}");
    }
    assert_eq!(inserts.lines().count(), 2);
    for insert in inserts.lines() {
        let values = insert.strip_prefix(&format!("INSERT INTO llama_bench ({}) VALUES (", names.join(", ")));
        let values = values.unwrap().strip_suffix(");").unwrap();
        assert_eq!(values.split("', '").count(), names.len(), "{insert}");
    }
}

#[test]
fn results_may_go_to_both_outputs_in_different_formats() {
    let output = bench("-o none -oe jsonl -p 2 -n 0").output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty());
    let row: Value = serde_json::from_str(stderr(&output).lines().last().unwrap()).unwrap();
    assert_eq!(row["n_prompt"], 2);
}

#[test]
fn limits_stand_beside_the_results() {
    let output = qgguf("bench -p 8 -n 2 -r 1 -t 1,2").output().unwrap();
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(
        cells(table.lines().next().unwrap()).ends_with(&["limit t/s".to_owned(), "% of limit".to_owned()])
    );
    let row = cells(table.lines().nth(2).unwrap());
    assert!(row[row.len() - 2..].iter().all(|cell| cell.parse::<f64>().unwrap() > 0.0), "{table}");
    let said = stderr(&output);
    assert_eq!(said.matches("GB/s read").count(), 2, "{said}");

    let rows = jsonl(&mut qgguf("bench -p 8 -n 2 -r 1 -o jsonl"));
    let expected =
        [words(FIELDS), words(MORE_FIELDS), words(LIMIT_FIELDS), vec!["samples_ns", "samples_ts"]].concat();
    assert_eq!(rows[0].as_object().unwrap().keys().collect::<Vec<_>>(), expected);
    for row in rows {
        let number = |field: &str| row[field].as_f64().unwrap();
        assert!(words(LIMIT_FIELDS).into_iter().all(|field| number(field) > 0.0), "{row}");
        let percent = 100.0 * number("avg_ts") / number("limit_ts");
        assert!((number("limit_percent") - percent).abs() < 1e-3 * percent, "{row}");
    }
}

#[test]
fn the_instruction_set_is_said_and_can_be_chosen() {
    let output = bench("-p 2 -n 0 -o jsonl --isa portable").output().unwrap();
    assert!(stderr(&output).lines().any(|line| line.ends_with(", portable")), "{}", stderr(&output));
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(row["isa"], "portable");
    let rows = jsonl(bench("-p 2 -n 0 -o jsonl").env("QGGUF_ISA", "portable"));
    assert_eq!(rows[0]["isa"], "portable");
}

#[test]
fn progress_and_memory_go_to_stderr() {
    let output = qgguf("bench --no-limits -p 2 -n 1 -d 3 -r 2 --progress -v -o csv").output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output));
    assert_eq!(out.lines().count(), 3, "{out}");
    for line in [
        "qgguf bench: benchmark 1/2: starting",
        "qgguf bench: benchmark 1/2: depth run",
        "qgguf bench: benchmark 2/2: warmup run",
        "qgguf bench: benchmark 2/2: tg1 @ d3 run 2/2",
    ] {
        assert!(err.lines().any(|said| said == line), "{line} in {err}");
    }
    assert!(err.contains(" mapped, ") && err.contains(" scratch"), "{err}");
    #[cfg(target_os = "linux")]
    assert!(err.contains(" resident"), "{err}");
}

#[test]
fn flags_for_other_devices_are_taken_if_they_change_nothing() {
    let rows = jsonl(&mut bench(
        "-p 2 -n 0 -o jsonl -ngl -1,99 -fa 0,1 -sm none -mg 0 -nkvo 0 -embd 0 -ts 0 -ot none -ncmoe 0 -dev none \
         --poll 50 --prio 0 --repack 1 --no-host 0 -dio 0",
    ));
    let pairs: Vec<_> =
        rows.iter().map(|row| (row["n_gpu_layers"].clone(), row["flash_attn"].clone())).collect();
    assert_eq!(pairs, [(-1, 0), (-1, 1), (99, 0), (99, 1)].map(|(ngl, fa)| (ngl.into(), fa.into())));
    let output = bench("-nkvo 1").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("invalid value '1' for '--no-kv-offload <no-kv-offload>'"), "{said}");
    assert!(said.contains("[possible values: 0]"), "{said}");
}

#[test]
fn mmap_is_the_older_name_of_a_load_mode() {
    let rows = jsonl(&mut bench("-p 2 -n 0 -o jsonl -mmp 0,1"));
    let modes: Vec<_> = rows.iter().map(|row| (row["load_mode"].clone(), row["use_mmap"].clone())).collect();
    assert_eq!(modes, [("none", false), ("auto", true)].map(|(mode, on)| (mode.into(), on.into())));
}

#[test]
fn wrong_command_lines_are_explained() {
    for (args, what) in [
        ("-p -1", "-1 is not from 0 to 2147483647"),
        ("-p 1,x", "\"x\" is not a number"),
        ("-t 0", "0 is not from 1 to 1024"),
        ("-t 4096", "4096 is not from 1 to 1024"),
        ("-ub 0", "0 is not from 1 to"),
        ("-d 8-4", "the range \"8-4\" ends before it begins"),
        ("-pg 5", "two numbers with a comma between them are needed"),
        ("-r 0", "0 is not in 1.."),
        ("-o xml", "[possible values: none, csv, json, jsonl, md, sql]"),
        ("-ctk q7", "unknown cache type \"q7\""),
        ("-fa maybe", "\"maybe\" is none of on, off and auto"),
        ("-mmp 2", "\"2\" is neither 0 nor 1"),
        ("-mmp 0 -lm none", "cannot be used with"),
        ("-lm dio", "[possible values: auto, mmap, mlock, none]"),
        ("--isa mmx", "unknown instruction set \"mmx\""),
        ("-p 0 -n 0", "nothing to measure: -p and -n are 0, and no -pg is given"),
        ("--plot chart.png", "the file's name has to end in .svg"),
        ("--numa distribute", "unexpected argument '--numa'"),
    ] {
        let output = bench(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args}: {}", stderr(&output));
        assert!(stderr(&output).contains(what), "{args}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args}");
    }
}

#[test]
fn a_model_that_cannot_be_opened_does_not_stop_the_others() {
    let args = format!("-o json -p 2 -n 1 -m missing.gguf -m {}", tiny_model().display());
    let output = bench(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    let said = stderr(&output);
    assert!(said.contains("qgguf: missing.gguf: "), "{said}");
    assert_eq!(said.lines().last().unwrap(), "qgguf: 2 of 4 tests could not be run");
    assert!(failure(&mut bench("-p 1 -n 0 -m missing.gguf"), 1).contains("1 of 1 tests"));
}

#[test]
fn a_cache_type_that_the_heads_do_not_fit_fails_its_test_only() {
    let Some(fixtures) = fixtures("a_cache_type_that_the_heads_do_not_fit_fails_its_test_only") else {
        return;
    };
    let model = fixtures.join("gguf/phi3-tiny-Q4_K_M.gguf");
    let output = bench("-o jsonl -p 2 -n 0 -ctk q8_0,f16 -m").arg(model).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(row["type_k"], "f16");
    let said = stderr(&output);
    assert!(said.contains("qgguf: pp2: keys of 16 values per head cannot be stored as q8_0"), "{said}");
    assert_eq!(said.lines().last().unwrap(), "qgguf: 1 of 2 tests could not be run");
}

#[test]
fn a_test_may_go_beyond_the_trained_context() {
    let trained = json(&mut qgguf("run -p In -n 0 --json -c 0"))["settings"]["n_ctx"].as_u64().unwrap();
    let rows = jsonl(&mut bench(&format!("-o jsonl -p 0 -n 1 -d {}", trained + 1)));
    assert_eq!(rows[0]["n_depth"], trained + 1);
}

#[test]
fn the_last_of_a_repeated_flag_that_is_no_list_wins() {
    let rows = jsonl(&mut bench("-o csv -o jsonl -r 2 -r 3 -p 1 -n 0 --no-warmup"));
    assert_eq!(rows[0]["samples_ns"].as_array().unwrap().len(), 3);
}

#[test]
fn a_plot_has_a_line_for_every_test() {
    let dir = tempfile::tempdir().unwrap();
    let draw = |args: &str, file: &Path| {
        stdout(bench(args).arg("--plot").arg(file));
        fs::read_to_string(file).unwrap()
    };
    let threads = draw("-t 1,2 -p 2 -n 1", &dir.path().join("threads.svg"));
    for label in ["pp2", "tg1", "threads", "tokens per second", "qwen3 5.0M Q4_K - Medium"] {
        assert!(threads.contains(&format!("\n{label}\n")), "{label} in {threads}");
    }
    assert_eq!(threads.matches("<circle").count(), 4);
    let depth = draw("-t 1,2 -p 0 -n 1 -d 0,4 -ctk f16,f32", &dir.path().join("depth.svg"));
    for label in ["tg1, k f16, t 1", "tg1, k f32, t 2", "tokens in the context"] {
        assert!(depth.contains(&format!("\n{label}\n")), "{label} in {depth}");
    }
    let line = failure(bench("-p 1 -n 0 --plot").arg("/nonexistent/a.svg"), 1);
    assert!(line.contains("cannot write /nonexistent/a.svg"), "{line}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_test_that_memory_cannot_hold_fails_before_it_begins() {
    let output = bench("-o jsonl -p 2,2147483647 -n 0 -d 0").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(row["n_prompt"], 2);
    let said = stderr(&output);
    let line = "qgguf: pp2147483647: 2147483647 positions, 512 together, take ";
    assert!(said.lines().any(|said| said.starts_with(line) && said.ends_with(" can be had")), "{said}");
    assert_eq!(said.lines().last().unwrap(), "qgguf: 1 of 2 tests could not be run");
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_with_the_rows_that_are_done() {
    use std::io::{BufRead, BufReader, Read};

    let dir = tempfile::tempdir().unwrap();
    let plot = dir.path().join("a.svg");
    // The last test would take hours.
    let args = "bench --no-limits --no-warmup -r 1 -o json -p 0 -n 1,2,1000000 --plot";
    let args: Vec<&str> = args.split(' ').chain([plot.to_str().unwrap()]).collect();
    let mut child = crate::support::spawn(&args);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut json = String::new();
    while json.matches("samples_ts").count() < 2 {
        assert!(out.read_line(&mut json).unwrap() > 0, "{json}");
    }
    crate::support::interrupt(&child);
    out.read_to_string(&mut json).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    let rows: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    assert_eq!(said.lines().last().unwrap(), "qgguf: interrupted after 2 of 3 tests");
    assert!(plot.exists());
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_delay_too() {
    use std::io::Read;

    let args = ["bench", "--no-limits", "-o", "json", "--delay", "1000000"];
    let mut child = crate::support::spawn(&args);
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0]).unwrap();
    crate::support::interrupt(&child);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(rest.trim(), "]");
}
