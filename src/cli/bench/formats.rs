//! Rows as llama-bench prints them: Markdown, CSV, JSON, JSON lines, SQL.

use std::io::{self, Write};

use super::plan::Lists;
use super::row::{BACKEND, BUILD_COMMIT, Machine, Row, Value, build_number};
use crate::cli::terminal;

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    None,
    Csv,
    Json,
    Jsonl,
    Md,
    Sql,
}

/// Prints rows as they come.
pub struct Printer<'a, W: Write> {
    format: Format,
    out: W,
    machine: &'a Machine,
    columns: Vec<Column>,
    n_rows: usize,
}

impl<'a, W: Write> Printer<'a, W> {
    /// A printer of rows from `lists`; `limits` tells whether they have limits.
    pub fn new(format: Format, out: W, machine: &'a Machine, lists: &Lists, limits: bool) -> Printer<'a, W> {
        Printer { format, out, machine, columns: columns(lists, limits), n_rows: 0 }
    }

    /// What stands in front of the rows and does not need one.
    pub fn header(&mut self) -> io::Result<()> {
        match self.format {
            Format::Json => writeln!(self.out, "[")?,
            Format::Md => {
                let cells = self.columns.iter().map(|column| column.cell(column.name));
                writeln!(self.out, "|{}", cells.collect::<String>())?;
                let rules = self.columns.iter().map(Column::rule);
                writeln!(self.out, "|{}", rules.collect::<String>())?;
            }
            Format::None | Format::Csv | Format::Jsonl | Format::Sql => {}
        }
        self.out.flush()
    }

    /// One row.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        let fields = row.fields(self.machine);
        let first = self.n_rows == 0;
        self.n_rows += 1;
        match self.format {
            Format::None => {}
            Format::Md => {
                let cells = self.columns.iter().map(|column| column.cell(&column.value(row, &fields)));
                writeln!(self.out, "|{}", cells.collect::<String>())?;
            }
            Format::Csv => {
                if first {
                    writeln!(self.out, "{}", names(&fields).join(","))?;
                }
                let quoted = |(_, value): &(_, Value)| format!("\"{}\"", value.plain().replace('"', "\"\""));
                writeln!(self.out, "{}", fields.iter().map(quoted).collect::<Vec<_>>().join(","))?;
            }
            Format::Json => {
                let members = json_members(&fields, row)?;
                let before = if first { "" } else { ",\n" };
                write!(self.out, "{before}  {{\n    {}\n  }}", members.join(",\n    "))?;
            }
            Format::Jsonl => writeln!(self.out, "{{{}}}", json_members(&fields, row)?.join(", "))?,
            Format::Sql => {
                if first {
                    let declared = fields.iter().map(|(name, value)| format!("  {name} {}", sql_type(value)));
                    let declared = declared.collect::<Vec<_>>().join(",\n");
                    writeln!(self.out, "CREATE TABLE IF NOT EXISTS llama_bench (\n{declared}\n);\n")?;
                }
                let quoted = |(_, value): &(_, Value)| format!("'{}'", value.plain().replace('\'', "''"));
                let values = fields.iter().map(quoted).collect::<Vec<_>>().join(", ");
                let names = names(&fields).join(", ");
                writeln!(self.out, "INSERT INTO llama_bench ({names}) VALUES ({values});")?;
            }
        }
        self.out.flush()
    }

    /// What stands behind the rows.
    pub fn footer(&mut self) -> io::Result<()> {
        match self.format {
            Format::Json => writeln!(self.out, "\n]")?,
            Format::Md => writeln!(self.out, "\nbuild: {BUILD_COMMIT} ({})", build_number())?,
            Format::None | Format::Csv | Format::Jsonl | Format::Sql => {}
        }
        self.out.flush()
    }
}

fn names(fields: &[(&'static str, Value)]) -> Vec<&'static str> {
    fields.iter().map(|&(name, _)| name).collect()
}

fn sql_type(value: &Value) -> &'static str {
    match value {
        Value::Text(_) => "TEXT",
        Value::Integer(_) | Value::Bool(_) => "INTEGER",
        Value::Real(_) => "REAL",
    }
}

/// `"name": value` of every field and of the samples.
fn json_members(fields: &[(&'static str, Value)], row: &Row) -> io::Result<Vec<String>> {
    let mut members = Vec::with_capacity(fields.len() + 2);
    for (name, value) in fields {
        let value = match value {
            Value::Text(text) => serde_json::to_string(text)?,
            Value::Bool(on) => on.to_string(),
            Value::Integer(_) | Value::Real(_) => value.plain(),
        };
        members.push(format!("\"{name}\": {value}"));
    }
    let list = |values: Vec<String>| format!("[ {} ]", values.join(", "));
    let ns = row.samples_ns.iter().map(u64::to_string).collect();
    let ts = row.samples_ts().iter().map(|ts| format!("{ts:.6}")).collect();
    members.push(format!("\"samples_ns\": {}", list(ns)));
    members.push(format!("\"samples_ts\": {}", list(ts)));
    Ok(members)
}

/// A column of the Markdown table.
struct Column {
    /// The field, or the name of a value that only the table has.
    field: &'static str,
    /// What stands in the header.
    name: &'static str,
    width: usize,
    left: bool,
}

impl Column {
    fn cell(&self, text: &str) -> String {
        let text = terminal::escape(text).replace('|', "\\|");
        match self.left {
            true => format!(" {text:<0$} |", self.width),
            false => format!(" {text:>0$} |", self.width),
        }
    }

    fn rule(&self) -> String {
        format!(" {}{} |", "-".repeat(self.width - 1), if self.left { '-' } else { ':' })
    }

    fn value(&self, row: &Row, fields: &[(&'static str, Value)]) -> String {
        match self.field {
            "model" => row.model_type.clone(),
            "size" if row.model_size < 1 << 30 => format!("{:.2} MiB", row.model_size as f64 / 1048576.0),
            "size" => format!("{:.2} GiB", row.model_size as f64 / 1073741824.0),
            "params" if row.model_n_params < 1_000_000_000 => {
                format!("{:.2} M", row.model_n_params as f64 / 1e6)
            }
            "params" => format!("{:.2} B", row.model_n_params as f64 / 1e9),
            "backend" => BACKEND.to_owned(),
            "test" => row.test.name(),
            "t/s" => {
                let (mean, deviation) = row.tokens_per_second();
                format!("{mean:.2} ± {deviation:.2}")
            }
            "limit t/s" => row.limit.map_or(String::new(), |(_, limit)| format!("{limit:.2}")),
            "% of limit" => {
                row.share_of_limit().map_or(String::new(), |share| format!("{:.1}", 100.0 * share))
            }
            field => {
                let found = fields.iter().find(|(name, _)| *name == field);
                found.map_or(String::new(), |(_, value)| value.plain())
            }
        }
    }
}

/// The columns: those of every table, and the parameters that vary or are not at their defaults.
fn columns(lists: &Lists, limits: bool) -> Vec<Column> {
    let right = |field, name, width| Column { field, name, width, left: false };
    let left = |field, name, width| Column { field, name, width, left: true };
    let optional = [
        (lists.n_batch != [2048], right("n_batch", "n_batch", 7)),
        (lists.n_ubatch != [512], right("n_ubatch", "n_ubatch", 8)),
        (lists.type_k != [qgguf_kernels::KvType::F16], right("type_k", "type_k", 6)),
        (lists.type_v != [qgguf_kernels::KvType::F16], right("type_v", "type_v", 6)),
        (lists.flash_attn != [-1], right("flash_attn", "fa", 3)),
        (lists.load_mode != [super::plan::LoadMode::Auto], right("load_mode", "lm", 10)),
    ];
    let mut columns = vec![
        left("model", "model", 30),
        right("size", "size", 10),
        right("params", "params", 10),
        left("backend", "backend", 10),
        right("n_threads", "threads", 7),
    ];
    columns.extend(optional.into_iter().filter(|(shown, _)| *shown).map(|(_, column)| column));
    columns.extend([right("test", "test", 15), right("t/s", "t/s", 20)]);
    if limits {
        columns.extend([right("limit t/s", "limit t/s", 10), right("% of limit", "% of limit", 10)]);
    }
    columns
}
