//! What `qgguf inspect --json` prints for programs: one object, written as it is made.

use std::io::{self, Write};

use qgguf_gguf::{GgufFile, Metadata, MetadataValue, TensorInfo, TensorView, file_type_name};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::ser::Formatter;
use serde_json::{Value, json};

use super::summary::{Part, Summary, Totals};
use super::tensor::{Statistics, first_values};
use super::text::bits_of;

/// Everything about a file.
pub fn file(out: &mut dyn Write, file: &GgufFile, summary: &Summary) -> io::Result<()> {
    print(out, &File { file, summary })
}

/// One metadata value.
pub fn value(out: &mut dyn Write, key: &str, value: &MetadataValue) -> io::Result<()> {
    struct One<'a>(&'a str, &'a MetadataValue);
    impl Serialize for One<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry("key", self.0)?;
            typed(&mut map, self.1)?;
            map.end()
        }
    }
    print(out, &One(key, value))
}

/// Statistics and the first values of a tensor.
pub fn tensor(out: &mut dyn Write, view: &TensorView<'_>, s: &Statistics, n_values: u64) -> io::Result<()> {
    struct Tensor<'a>(&'a TensorView<'a>, &'a Statistics, u64);
    impl Serialize for Tensor<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let &Tensor(view, s, n_values) = self;
            let mut map = serializer.serialize_map(None)?;
            record(&mut map, view.info())?;
            map.serialize_entry(
                "statistics",
                &json!({
                    "n_values": s.n_values,
                    "n_nan": s.n_nan,
                    "n_inf": s.n_inf,
                    "n_zero": s.n_zero,
                    "min": s.min().map(shortest),
                    "max": s.max().map(shortest),
                    "mean": s.mean(),
                    "rms": s.rms(),
                }),
            )?;
            map.serialize_entry("first_values", &First(view, n_values))?;
            map.end()
        }
    }
    print(out, &Tensor(view, s, n_values))
}

/// The f64 that prints like the f32.
fn shortest(x: f32) -> f64 {
    x.to_string().parse().expect("a printed number can be read")
}

fn print(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, Layout { depth: 0, empty: false });
    // The conversion gives back what `out` said, so that a broken pipe stays one.
    value.serialize(&mut serializer).map_err(io::Error::from)?;
    writeln!(out)
}

struct File<'a> {
    file: &'a GgufFile,
    summary: &'a Summary,
}

impl Serialize for File<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &File { file, summary } = self;
        let metadata = file.metadata();
        let path = |path: &std::path::Path| path.display().to_string();
        let file_type = metadata.u32("general.file_type").ok().flatten().and_then(file_type_name);
        let active = summary.active.map(|active| {
            json!({
                "n_parameters": active.n_parameters,
                "n_experts_used": active.n_experts_used,
                "n_experts": active.n_experts,
            })
        });
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("file", &path(file.path()))?;
        map.serialize_entry("shards", &file.paths().map(path).collect::<Vec<_>>())?;
        map.serialize_entry("version", &file.version())?;
        map.serialize_entry("endianness", if file.big_endian() { "big" } else { "little" })?;
        map.serialize_entry("alignment", &file.alignment())?;
        map.serialize_entry("n_bytes", &file.mapped_bytes())?;
        map.serialize_entry("data_offset", &file.data_offset())?;
        map.serialize_entry("architecture", &metadata.str("general.architecture").ok().flatten())?;
        map.serialize_entry("file_type", &file_type)?;
        map.serialize_entry("n_metadata", &metadata.len())?;
        map.serialize_entry("n_tensors", &file.tensors().len())?;
        map.serialize_entry("n_parameters", &summary.all.n_parameters)?;
        map.serialize_entry("active", &active)?;
        map.serialize_entry("bits_per_weight", &summary.all.bits_per_weight())?;
        map.serialize_entry("tied_output", &summary.tied)?;
        map.serialize_entry("metadata", &AllMetadata(metadata))?;
        map.serialize_entry("tensors", &Tensors(file.tensors()))?;
        map.serialize_entry("parameters", &parts(summary))?;
        map.serialize_entry("types", &types(summary))?;
        map.end()
    }
}

fn parts(summary: &Summary) -> Vec<Value> {
    let parts = Part::ALL.iter().zip(&summary.parts);
    parts.map(|(part, totals)| totals_of("part", &part.name().to_lowercase(), totals, &summary.all)).collect()
}

fn types(summary: &Summary) -> Vec<Value> {
    summary.types.iter().map(|(ty, totals)| totals_of("type", ty.name(), totals, &summary.all)).collect()
}

fn totals_of(kind: &str, name: &str, totals: &Totals, all: &Totals) -> Value {
    json!({
        kind: name,
        "n_tensors": totals.n_tensors,
        "n_parameters": totals.n_parameters,
        "share": totals.share(all),
        "n_bytes": totals.n_bytes,
        "bits_per_weight": totals.bits_per_weight(),
    })
}

struct Tensors<'a>(&'a [TensorInfo]);

impl Serialize for Tensors<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Record<'a>(&'a TensorInfo);
        impl Serialize for Record<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                record(&mut map, self.0)?;
                map.end()
            }
        }
        serializer.collect_seq(self.0.iter().map(Record))
    }
}

fn record<M: SerializeMap>(map: &mut M, tensor: &TensorInfo) -> Result<(), M::Error> {
    map.serialize_entry("name", &tensor.name)?;
    map.serialize_entry("shape", &tensor.shape)?;
    map.serialize_entry("type", tensor.ty.name())?;
    map.serialize_entry("bits_per_weight", &bits_of(tensor.ty))?;
    map.serialize_entry("n_elements", &tensor.n_elements())?;
    map.serialize_entry("n_bytes", &tensor.n_bytes)?;
    map.serialize_entry("offset", &tensor.offset)?;
    map.serialize_entry("shard", &(tensor.shard + 1))
}

struct AllMetadata<'a>(&'a Metadata);

impl Serialize for AllMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Typed<'a>(&'a MetadataValue);
        impl Serialize for Typed<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                typed(&mut map, self.0)?;
                map.end()
            }
        }
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, Typed(value))))
    }
}

fn typed<M: SerializeMap>(map: &mut M, value: &MetadataValue) -> Result<(), M::Error> {
    map.serialize_entry("type", &value.type_name())?;
    map.serialize_entry("value", &Plain(value))
}

/// A metadata value without its type.
struct Plain<'a>(&'a MetadataValue);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            MetadataValue::F32(v) => Float(*v).serialize(serializer),
            MetadataValue::F64(v) if v.is_finite() => serializer.serialize_f64(*v),
            MetadataValue::F64(v) => serializer.serialize_str(not_finite(*v)),
            MetadataValue::Bool(v) => serializer.serialize_bool(*v),
            MetadataValue::String(v) => serializer.serialize_str(v),
            MetadataValue::U64(v) => serializer.serialize_u64(*v),
            MetadataValue::Array(array) => {
                let mut seq = serializer.serialize_seq(Some(array.len()))?;
                array.iter().try_for_each(|element| seq.serialize_element(&Plain(&element)))?;
                seq.end()
            }
            other => serializer.serialize_i64(other.as_integer().unwrap_or_default() as i64),
        }
    }
}

/// A number, or a string for what JSON has no number for.
struct Float(f32);

impl Serialize for Float {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            serializer.serialize_f32(self.0)
        } else {
            serializer.serialize_str(not_finite(self.0.into()))
        }
    }
}

/// The name that JavaScript and Python's `float` know.
fn not_finite(x: f64) -> &'static str {
    if x.is_nan() {
        "NaN"
    } else if x > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

/// The first values of a tensor.
struct First<'a>(&'a TensorView<'a>, u64);

impl Serialize for First<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        if self.1 > 0 {
            first_values(self.0, self.1, |x| seq.serialize_element(&Float(x)))?;
        }
        seq.end()
    }
}

/// Objects and arrays of the first two levels get a line per element, deeper ones are one line. Control
/// characters that JSON would let through are escaped, too.
struct Layout {
    depth: usize,
    empty: bool,
}

/// Levels that are broken into lines.
const LINES: usize = 2;

impl Layout {
    fn open(&mut self, out: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.empty = true;
        out.write_all(bracket)
    }

    fn close(&mut self, out: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if !self.empty && self.depth < LINES {
            write!(out, "\n{:1$}", "", 2 * self.depth)?;
        }
        self.empty = false;
        out.write_all(bracket)
    }

    fn element(&mut self, out: &mut (impl Write + ?Sized), first: bool) -> io::Result<()> {
        self.empty = false;
        let comma = if first { "" } else { "," };
        match self.depth {
            0..=LINES => write!(out, "{comma}\n{:1$}", "", 2 * self.depth),
            _ => write!(out, "{comma}{}", if first { "" } else { " " }),
        }
    }
}

impl Formatter for Layout {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.element(out, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.element(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        let mut rest = text;
        // Everything that is unsafe on a terminal lies in the basic plane, so one \u is enough.
        while let Some((at, c)) = rest.char_indices().find(|&(_, c)| crate::cli::terminal::is_unsafe(c)) {
            write!(out, "{}\\u{:04x}", &rest[..at], c as u32)?;
            rest = &rest[at + c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}
