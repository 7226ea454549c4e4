//! What `qgguf inspect` prints for people.

use std::borrow::Cow;
use std::io::{self, Write};

use qgguf_gguf::{
    GgmlType, GgufFile, Metadata, MetadataArray, MetadataValue, TensorInfo, TensorView, file_type_name,
};

use super::summary::{Part, Summary, Totals};
use super::tensor::{Statistics, first_values};
use crate::cli::table::Table;
use crate::cli::terminal::{self, escape};

/// Characters of a string that are shown without `--full`.
const SHORT_STRING: usize = 64;
/// Characters of a string inside an array.
const SHORT_ELEMENT: usize = 24;
/// Elements of an array that are shown without `--full`.
const SHORT_ARRAY: usize = 6;

/// Everything about a file.
pub fn file(out: &mut dyn Write, file: &GgufFile, summary: &Summary, full: bool) -> io::Result<()> {
    header(out, file, summary)?;
    metadata(out, file.metadata(), full)?;
    tensors(out, file)?;
    parts(out, summary)?;
    types(out, summary)
}

fn header(out: &mut dyn Write, file: &GgufFile, summary: &Summary) -> io::Result<()> {
    let mut field = |name: &str, value: &str| writeln!(out, "{name:<16} {value}");
    let byte_order = if file.big_endian() { "big-endian" } else { "little-endian" };
    field("file", &escape(&file.path().display().to_string()))?;
    for shard in file.paths().skip(1) {
        field("", &escape(&shard.display().to_string()))?;
    }
    field(
        "format",
        &format!("GGUF version {}, {byte_order}, alignment {}", file.version(), file.alignment()),
    )?;
    if file.paths().len() > 1 {
        field("shards", &file.paths().len().to_string())?;
    }
    field("size", &exact_bytes(file.mapped_bytes()))?;
    if let Ok(Some(arch)) = file.metadata().str("general.architecture") {
        field("architecture", &escape(&cut(arch, SHORT_STRING)))?;
    }
    field("parameters", &exact_count(summary.all.n_parameters))?;
    if let Some(active) = summary.active {
        let experts = format!("with {} of {} experts", active.n_experts_used, active.n_experts);
        field("  for one token", &format!("{}, {experts}", exact_count(active.n_parameters)))?;
    }
    if let Some(bits) = summary.all.bits_per_weight() {
        field("bits per weight", &format!("{bits:.2} on average"))?;
    }
    field("metadata", &format!("{} keys", file.metadata().len()))?;
    field("tensors", &format!("{}, data from byte {}", file.tensors().len(), file.data_offset()))
}

fn metadata(out: &mut dyn Write, metadata: &Metadata, full: bool) -> io::Result<()> {
    if metadata.is_empty() {
        return Ok(());
    }
    let limit = if full { usize::MAX } else { SHORT_STRING };
    let mut table = Table::new("<<<", ["METADATA", "type", "value"]);
    for (key, value) in metadata.iter() {
        let mut text = Vec::new();
        inline(&mut text, value, full)?;
        if let Some(name) = file_type(key, value) {
            write!(text, " ({name})")?;
        }
        let text = String::from_utf8(text).expect("values are written as text");
        table.row([escape(&cut(key, limit)).into_owned(), short_type(value), text]);
    }
    table.print(out)
}

/// The quantization that a file claims.
fn file_type(key: &str, value: &MetadataValue) -> Option<&'static str> {
    if key != "general.file_type" {
        return None;
    }
    file_type_name(value.as_integer()?.try_into().ok()?)
}

/// `u32`, `string[4096]`.
fn short_type(value: &MetadataValue) -> String {
    match value {
        MetadataValue::Array(array) => {
            let name = value.type_name();
            format!("{}[{}]", name.strip_prefix("array of ").unwrap_or(&name), array.len())
        }
        _ => value.type_name(),
    }
}

/// A value on one line.
fn inline(out: &mut dyn Write, value: &MetadataValue, full: bool) -> io::Result<()> {
    let limit = |short| if full { usize::MAX } else { short };
    match value {
        MetadataValue::Array(array) => {
            let shown = array.len().min(limit(SHORT_ARRAY));
            write!(out, "[")?;
            for (i, element) in array.iter().take(shown).enumerate() {
                write!(out, "{}", if i == 0 { "" } else { ", " })?;
                scalar(out, &element, limit(SHORT_ELEMENT))?;
            }
            write!(out, "{}]", if shown < array.len() { ", ..." } else { "" })
        }
        _ => scalar(out, value, limit(SHORT_STRING)),
    }
}

fn scalar(out: &mut dyn Write, value: &MetadataValue, max_chars: usize) -> io::Result<()> {
    match value {
        MetadataValue::F32(v) => write!(out, "{v:?}"),
        MetadataValue::F64(v) => write!(out, "{v:?}"),
        MetadataValue::Bool(v) => write!(out, "{v}"),
        MetadataValue::String(v) => {
            let shown = cut(v, max_chars);
            let quoted = terminal::quote(shown.as_bytes());
            match shown {
                Cow::Borrowed(_) => write!(out, "{quoted}"),
                Cow::Owned(_) => write!(out, "{quoted} ({} bytes)", v.len()),
            }
        }
        _ => write!(out, "{}", value.as_integer().unwrap_or_default()),
    }
}

/// The first `max` characters, with dots if that is not all; borrowed if it is.
fn cut(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// One value in full: a string as it is, an array with one element a line. On a terminal, control characters
/// other than line breaks and tabs are escaped.
pub fn value(out: &mut dyn Write, value: &MetadataValue, terminal: bool) -> io::Result<()> {
    match value {
        MetadataValue::String(text) if terminal => {
            let mut rest = text.as_str();
            while let Some(at) = rest.find(['\n', '\t']) {
                write!(out, "{}{}", escape(&rest[..at]), &rest[at..at + 1])?;
                rest = &rest[at + 1..];
            }
            writeln!(out, "{}", escape(rest))
        }
        MetadataValue::String(text) => out.write_all(text.as_bytes()),
        MetadataValue::Array(MetadataArray::String(strings)) => {
            strings.iter().try_for_each(|s| writeln!(out, "{}", terminal::quote(s.as_bytes())))
        }
        MetadataValue::Array(array) => array.iter().try_for_each(|element| {
            scalar(out, &element, usize::MAX)?;
            writeln!(out)
        }),
        _ => {
            scalar(out, value, usize::MAX)?;
            writeln!(out)
        }
    }
}

fn tensors(out: &mut dyn Write, file: &GgufFile) -> io::Result<()> {
    if file.tensors().is_empty() {
        return Ok(());
    }
    let split = file.paths().len() > 1;
    let mut table = Table::new(
        "<<<>>>>",
        ["TENSORS", "shape", "type", "bits", "bytes", "offset", if split { "shard" } else { "" }],
    );
    for tensor in file.tensors() {
        table.row([
            escape(&tensor.name).into_owned(),
            shape(tensor),
            tensor.ty.to_string(),
            bits(tensor.ty),
            tensor.n_bytes.to_string(),
            tensor.offset.to_string(),
            if split { (tensor.shard + 1).to_string() } else { String::new() },
        ]);
    }
    table.print(out)
}

/// `256 x 4096`, row length first.
fn shape(tensor: &TensorInfo) -> String {
    match tensor.shape.as_slice() {
        [] => "scalar".to_owned(),
        dims => dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x "),
    }
}

/// Bits per weight of a type.
pub fn bits_of(ty: GgmlType) -> f64 {
    ty.block_bytes() as f64 * 8.0 / ty.block_size() as f64
}

fn bits(ty: GgmlType) -> String {
    bits_of(ty).to_string()
}

fn parts(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    if summary.types.is_empty() {
        return Ok(());
    }
    let mut table = Table::new("<>>>>>", ["PARAMETERS", "tensors", "count", "share", "bytes", "bits"]);
    for (part, totals) in Part::ALL.into_iter().zip(&summary.parts) {
        let tied = part == Part::Output && summary.tied;
        let name = if tied { "output (the embedding again)" } else { part.name() };
        table.row(totals_row(name, totals, &summary.all));
    }
    table.row(totals_row("all", &summary.all, &summary.all));
    table.print(out)
}

fn types(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    if summary.types.is_empty() {
        return Ok(());
    }
    let mut table = Table::new("<>>>>>", ["TYPES", "tensors", "count", "share", "bytes", "bits"]);
    summary.types.iter().for_each(|(ty, totals)| table.row(totals_row(ty.name(), totals, &summary.all)));
    table.print(out)
}

fn totals_row(name: &str, totals: &Totals, all: &Totals) -> [String; 6] {
    [
        name.to_owned(),
        totals.n_tensors.to_string(),
        totals.n_parameters.to_string(),
        format!("{:.1}%", 100.0 * totals.share(all)),
        totals.n_bytes.to_string(),
        totals.bits_per_weight().map_or_else(|| "-".to_owned(), |bits| format!("{bits:.2}")),
    ]
}

/// Statistics and the first values of a tensor.
pub fn tensor(out: &mut dyn Write, view: &TensorView<'_>, s: &Statistics, n_values: u64) -> io::Result<()> {
    let mut field = |name: &str, value: &str| writeln!(out, "{name:<16} {value}");
    field("tensor", &escape(view.name()))?;
    field("shape", &shape(view.info()))?;
    field("type", &format!("{}, {} bits per weight", view.ty(), bits(view.ty())))?;
    field("size", &format!("{}, from byte {}", exact_bytes(view.info().n_bytes), view.info().offset))?;
    field("values", &format!("{} ({} zero)", s.n_values, s.n_zero))?;
    field("not finite", &format!("{} NaN, {} infinite", s.n_nan, s.n_inf))?;
    let number = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{:?}", x as f32));
    field("min", &number(s.min().map(f64::from)))?;
    field("max", &number(s.max().map(f64::from)))?;
    field("mean", &number(s.mean()))?;
    field("rms", &number(s.rms()))?;
    if n_values == 0 {
        return Ok(());
    }
    write!(out, "{:<16}", "first values")?;
    first_values(view, n_values, |x| write!(out, " {x:?}"))?;
    writeln!(out, "{}", if s.n_values > n_values { " ..." } else { "" })
}

/// `3.2 MiB (3355040 bytes)`.
fn exact_bytes(n: u64) -> String {
    if n < 1024 { format!("{n} bytes") } else { format!("{} ({n} bytes)", terminal::bytes(n)) }
}

/// `5.0 M (4980992)`.
fn exact_count(n: u64) -> String {
    if n < 10_000 { n.to_string() } else { format!("{} ({n})", terminal::count(n)) }
}
